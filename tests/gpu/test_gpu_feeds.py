"""Feeds on a GPU: the same numbers as on the CPU; runs there, side by side and resumed. Skipped where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from headcount.store.store import Store
from headcount.sweeps.encoder_spec import RealModel, RealSpec
from headcount.sweeps.open_data import open_cifar, open_marco
from headcount.sweeps.results import stored_runs
from headcount.sweeps.run import run_on_store
from headcount.training.encoder.stacked import RealTrain
from headcount.training.feeds.images import ImageFeed, ImagesOnDevice
from real_tiny import pictures, write_bert, write_corpus, write_pictures

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")
INDEX = torch.tensor([[3, 0, 19, 3], [7, 7, 1, 12]])


@pytest.mark.parametrize("side", [32, 48, 128])
def test_frames(side: int) -> None:
    images = pictures()
    here, there = (ImageFeed(ImagesOnDevice.of(images, device), side) for device in ("cpu", "cuda"))
    for step in (0, 977):
        one, other = here.train(INDEX, step, (4, 9)), there.train(INDEX.cuda(), step, (4, 9))
        assert torch.equal(other[0].cpu(), one[0])
        assert torch.equal(other[1].cpu(), one[1])
        counted = there.train(INDEX.cuda(), torch.tensor(step, device="cuda"), (4, 9))
        assert torch.equal(counted[0], other[0])
    for part in ("train", "validation"):
        assert torch.equal(there.part(part, 5, 11)[0].cpu(), here.part(part, 5, 11)[0])


@pytest.mark.parametrize("entry", ["means", "tokens"])
def test_candidates(entry: str, tmp_path: Path) -> None:
    corpus, bert = write_corpus(tmp_path / "corpus"), write_bert(tmp_path / "bert")
    source = open_marco(corpus, bert, lengths=[4], validation=12, entry=entry, quiet=True)
    panel = RealSpec(name="m", kind="marco", source=source.data, heads=[1], lengths=[4]).panels()[0]
    here, there = source.feeds("cpu")(panel), source.feeds("cuda")(panel)
    one, other = here.train(INDEX, 3, (0, 1)), there.train(INDEX.cuda(), 3, (0, 1))
    assert torch.equal(other[0].cpu(), one[0])
    assert torch.equal(other[1].cpu(), one[1])
    if entry == "tokens":
        assert torch.equal(other[2].cpu(), one[2])
        assert torch.equal(there.read.cpu(), here.read)


def test_a_run_with_several_stacks_at_once(tmp_path: Path) -> None:
    source = open_cifar(write_pictures(tmp_path / "images"), patch=16)
    spec = RealSpec(
        name="c", kind="cifar", source=source.data, heads=[1, 2, 3, 4], lengths=[32, 48], seeds=2,
        model=RealModel(head_dim=8, depth=2),
        train=RealTrain(steps=60, warmup=6, batch=32, evaluations=3, learning_rate=3e-3, precision="float32"),
    )  # fmt: skip
    found = {}
    for device in ("cpu", "cuda"):
        with Store.open(tmp_path / device) as store:
            counts = run_on_store(spec, store, feeds=source.feeds(device), device=device, quiet=True)
            assert counts["done"] == 16
            runs = stored_runs(store, "c")
            found[device] = [t.accuracy for run in runs for t in run.trials]
    assert all(t.accuracy > 0.9 for run in runs if run.values["length"] == 5 for t in run.trials)
    apart = [abs(a - b) for a, b in zip(found["cpu"], found["cuda"], strict=True)]
    assert max(apart) < 0.11, f"the same batches and frames, so nearly the same models: {found}"


def test_stopped_and_resumed_on_the_gpu(tmp_path: Path) -> None:
    source = open_cifar(write_pictures(tmp_path / "images"), patch=16)
    spec = RealSpec(
        name="c",
        kind="cifar",
        source=source.data,
        heads=[2, 4],
        lengths=[32],
        seeds=3,
        model=RealModel(head_dim=8, depth=2, dropout=0.1),
        train=RealTrain(steps=3000, batch=32, evaluations=3),
    )
    with Store.open(tmp_path / "store") as store:
        rounds = 0
        while run_on_store(spec, store, feeds=source.feeds("cuda"), device="cuda", seconds=2.0, quiet=True)["pending"]:
            rounds += 1
            assert rounds < 60
        runs = stored_runs(store, "c")
    assert all([step for step, _ in t.curve] == [1000, 2000, 3000] for run in runs for t in run.trials)
