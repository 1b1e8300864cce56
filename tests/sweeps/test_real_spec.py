"""Specs on real data: panels and trials without the folder, hashes that tell data apart; data opened well and badly."""

from __future__ import annotations

import pytest
import torch

from datasets.marco_tiny import corpus, write_compact
from headcount.core.errors import BadInput
from headcount.sweeps.encoder_spec import CifarData, MarcoData, RealModel, RealSpec, RealTrialSpec
from headcount.sweeps.open_data import open_cifar, open_marco
from headcount.training.encoder.stacked import Feed, RealTrain
from real_tiny import DIM, pictures, write_bert, write_corpus, write_pictures
from support import REPO

REAL = REPO.parent / "shared" / "data"
HASH = "ab" * 32
MARCO = {
    "content": HASH,
    "train": 28000,
    "validation": 2000,
    "passages": 72817,
    "seed": 0,
    "embeddings": HASH,
    "dim": 768,
    "most": 512,
}


def marco(**changes) -> RealSpec:
    data = MarcoData(**{**MARCO, **changes})
    return RealSpec(name="m", kind="marco", source=data, heads=[1, 8], lengths=[8, 64])


def cifar(lengths=(32, 48, 64, 96, 128), **changes) -> RealSpec:
    data = CifarData(**{"content": HASH, "train": 50000, "validation": 10000, "classes": 10, **changes})
    return RealSpec(name="c", kind="cifar", source=data, heads=[1, 24], lengths=list(lengths))


def test_the_papers_models():
    for panel, T in zip(marco().panels(), (8, 64), strict=True):
        spec = panel.sized(8)
        assert (spec.width, spec.depth, spec.tokens, spec.inputs, spec.outputs) == (256, 2, T, 1536, 1)
        assert (spec.readout, spec.positions, panel.values) == ("each", False, {"length": T})
    panels = cifar().panels()
    assert [panel.values for panel in panels] == [{"length": T} for T in (65, 145, 257, 577, 1025)], "the paper's T"
    spec = panels[-1].sized(24)
    assert (spec.width, spec.depth, spec.tokens, spec.inputs, spec.outputs) == (384, 4, 1025, 48, 10)
    assert (spec.readout, spec.positions) == ("class", True)
    assert panels[0].trial(1, 0).real["side"] == 32
    tokens = marco(entry="tokens", most=24).panels()[0].sized(2)
    assert (tokens.tokens, tokens.inputs, tokens.positions) == (8 * 24, 768, True)


def test_a_spec_round_trips_through_its_data():
    for spec in (marco(), cifar(), marco(entry="tokens", most=24)):
        again = RealSpec.parse(spec.data())
        assert again == spec
        for one, other in zip(spec.panels(), again.panels(), strict=True):
            trial = one.trial(1, 2)
            assert trial.hash() == other.trial(1, 2).hash()
            assert RealTrialSpec.parse(trial.data()) == trial


def test_different_data_give_different_trials():
    changes = [
        {"content": "cd" * 32},
        {"embeddings": "cd" * 32},
        {"train": 27000},
        {"seed": 1},
        {"most": 128},
        {"standard": False},
        {"entry": "tokens"},
    ]
    specs = [marco(), *(marco(**change) for change in changes)]
    specs += [
        cifar(),
        *(cifar(**c) for c in ({"content": "cd" * 32}, {"patch": 8}, {"flips": False}, {"moving": False})),
    ]
    hashes = {
        panel.trial(h, s).hash() for spec in specs for panel in spec.panels() for h in panel.heads for s in (0, 1)
    }
    assert len(hashes) == sum(len(spec.panels()) * 4 for spec in specs)
    one, other = (
        marco().model_copy(update={"lengths": [8], "heads": h}).panels()[0].trial(8, 0) for h in ([8], [1, 8])
    )
    assert one.hash() == other.hash(), "what else is in a sweep does not matter"


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda: cifar(lengths=[16]), "side 16 with patches of 4: a side must be at least 32"),
        (lambda: cifar(lengths=[46]), "side 46 with patches of 4: .* multiple of the patch"),
        (lambda: cifar(lengths=[32, 32]), "each value may be listed once"),
        (lambda: RealSpec.parse({**marco().data(), "lengths": [128]}), "length 128: a set has 2 to 64 candidates"),
        (
            lambda: RealSpec.parse({**marco().data(), "kind": "cifar"}),
            "kind is 'cifar', but the data are of kind 'marco'",
        ),
        (lambda: RealSpec.parse({**marco().data(), "head": [1]}), "unknown key 'head'"),
        (lambda: marco(content="xyz"), "content"),
        (lambda: marco(train=0), "train"),
    ],
)
def test_bad_specs_in_one_line(make, line):
    with pytest.raises(BadInput, match=line) as caught:
        make()
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    return {
        "corpus": write_corpus(folder / "corpus"),
        "other": write_corpus(folder / "other", seed=1),
        "bert": write_bert(folder / "bert"),
        "images": write_pictures(folder / "images"),
    }


def test_opening_candidates(folders, tmp_path):
    source = open_marco(folders["corpus"], folders["bert"], lengths=(2, 4), queries=40, validation=10, quiet=True)
    assert (source.data.train, source.data.validation, source.data.dim) == (30, 10, DIM)
    spec = RealSpec(name="m", kind="marco", source=source.data, heads=[1], lengths=[4, 2])
    feeds = source.feeds()
    for panel in spec.panels():
        feed = feeds(panel)
        assert isinstance(feed, Feed)
        panel.check(feed)
    again = open_marco(
        folders["corpus"], folders["bert"], lengths=[4], queries=40, validation=10, cache=tmp_path, quiet=True
    )
    assert again.data == source.data, "neither the lengths opened together nor the cache count"
    assert len(list(tmp_path.iterdir())) == 1
    panel = spec.panels()[0]
    assert torch.equal(again.feeds()(panel).part("train", 0, 30)[0], feeds(panel).part("train", 0, 30)[0])
    for changed in ({"seed": 1}, {"validation": 11}, {"standard": False}, {"most": 20}, {"entry": "tokens"}):
        options = {"lengths": [2], "queries": 40, "validation": 10, **changed}
        assert open_marco(folders["corpus"], folders["bert"], quiet=True, **options).data != source.data
    assert open_marco(folders["other"], folders["bert"], lengths=[2], quiet=True).data.content != source.data.content
    with pytest.raises(BadInput, match="no sets of 8 candidates were mined, only of 2, 4: add it to lengths"):
        feeds(RealSpec(name="m", kind="marco", source=source.data, heads=[1], lengths=[8]).panels()[0])


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"queries": 49}, "has 48 queries with a usable positive, but 49 were requested: give --train"),
        ({"lengths": [65]}, "length is 65: a set has 2 to 64"),
        ({"lengths": []}, "lengths is empty"),
        ({"validation": 48}, "validation is 48: it must be at least 0 and less than the 48"),
        ({"validation": 0}, "no queries for validation"),
        ({"most": 1000}, "1000 tokens per sequence: use 5 to 40"),
        ({"entry": "tokens", "most": 3}, "3 tokens per sequence: use 5 to 40"),
    ],
)
def test_unavailable_candidates_are_rejected(folders, options, line):
    with pytest.raises(BadInput, match=line) as caught:
        open_marco(folders["corpus"], folders["bert"], quiet=True, **{"lengths": [2], **options})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["... !!!", "— _"])
def test_a_positive_without_a_word(folders, tmp_path, text):
    """It would be nearly equal to every passage, so that no negative is left: told before the mining, by its name."""
    passages, queries = corpus(0)
    bad = queries[3]["pos"][0]
    next(p for p in passages if p["id"] == bad)["text"] = text
    line = rf"passage '{bad}' \('{text[:1]}.*'\), judged relevant to query '\d+', holds no word: fill it or drop it"
    with pytest.raises(BadInput, match=line) as caught:
        open_marco(write_compact(tmp_path, passages, queries), folders["bert"], lengths=[2], quiet=True)
    assert "\n" not in str(caught.value)
    passages, queries = corpus(0)
    asked = {p for query in queries for p in query["pos"]}
    next(p for p in passages if p["id"] not in asked)["text"] = text  # nobody's answer: it may stay
    open_marco(write_compact(tmp_path, passages, queries), folders["bert"], lengths=[2], quiet=True)


def test_opening_images(folders):
    whole = open_cifar(folders["images"])
    assert (whole.data.train, whole.data.validation, whole.data.classes) == (60, 30, 3)
    part = open_cifar(folders["images"], train=10, validation=6)
    assert part.images.train_labels.tolist() == [0, 1, 2, 0, 1, 2, 0, 1, 2, 0], "as even as can be, from the first on"
    assert part.images.test_labels.bincount().tolist() == [2, 2, 2]
    known = {bytes(p.numpy().tobytes()) for p in pictures().train_pixels[:12]}
    assert {bytes(p.numpy().tobytes()) for p in part.images.train_pixels} <= known, "the first of each class"
    assert part.data.content != whole.data.content == open_cifar(folders["images"], train=60).data.content
    spec = RealSpec(name="c", kind="cifar", source=part.data, heads=[1], lengths=[32, 48], train=RealTrain(data_seed=3))
    feeds = part.feeds()
    made = [feeds(panel) for panel in spec.panels()]
    for panel, feed in zip(spec.panels(), made, strict=True):
        panel.check(feed)
    assert made[0].images is made[1].images, "pixels are on the device once"


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"train": 61}, "training images: 61 were requested, and there are 60: request 1 to 60"),
        ({"validation": 0}, "test images: 0 were requested"),
        ({"patch": 0}, "patch"),
    ],
)
def test_unavailable_images_are_rejected(folders, options, line):
    with pytest.raises(BadInput, match=line) as caught:
        open_cifar(folders["images"], **options)
    assert "\n" not in str(caught.value)


@pytest.mark.slow  # tests/datasets/test_frames.py reads and cuts the same images
@pytest.mark.skipif(not (REAL / "cifar10").is_dir(), reason="there is no CIFAR-10 subset in ../shared/data/cifar10")
def test_the_image_subset():
    source = open_cifar(REAL / "cifar10", train=1000, validation=200)
    assert source.images.train_labels.bincount().tolist() == [100] * 10
    spec = RealSpec(
        name="c", kind="cifar", source=source.data, heads=[1], lengths=[128], model=RealModel(head_dim=4, depth=1)
    )
    panel = spec.panels()[0]
    feed = source.feeds()(panel)
    panel.check(feed)
    X, y, _ = feed.part("train", 0, 200)
    assert X.shape == (200, 1024, 48)
    assert X.isfinite().all()
    assert 0.5 < float(X.std()) < 2
    assert len(y.unique()) == 10


@pytest.mark.slow  # tests/datasets/test_marco_real.py reads and mines the same folder
@pytest.mark.skipif(not (REAL / "msmarco").is_dir(), reason="there is no MS MARCO subset in ../shared/data/msmarco")
def test_the_passage_subset(tmp_path):
    pieces = write_bert(tmp_path / "bert", positions=512)  # digits and w: enough for sizes, not for sense
    source = open_marco(REAL / "msmarco", pieces, lengths=[8], queries=60, validation=20, quiet=True)
    assert source.data.passages == 72_817
    spec = RealSpec(name="m", kind="marco", source=source.data, heads=[1], lengths=[8])
    feed = source.feeds()(spec.panels()[0])
    spec.panels()[0].check(feed)
    X, y, _ = feed.train(torch.arange(20).reshape(2, 10), 0, (0, 1))
    assert X.shape == (2, 10, 8, 2 * DIM)
    assert X.isfinite().all()
    assert y.min() >= 0
    assert y.max() < 8


def test_sets_longer_than_the_collection_are_rejected_before_the_search(folders, tmp_path):
    passages, queries = corpus()
    few = passages[:5]
    ids = {passage["id"] for passage in few}
    own = [query for query in queries if {*query["pos"], *query.get("rel", {})} <= ids]
    assert own
    write_compact(tmp_path, few, own)
    with pytest.raises(BadInput, match="has 5 passages, and sets of 8 candidates need more"):
        open_marco(tmp_path, folders["bert"], lengths=[2, 8], cache=tmp_path / "cache", quiet=True)
    assert not (tmp_path / "cache").exists()
