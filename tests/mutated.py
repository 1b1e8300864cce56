"""Every kind of file that the package reads, a sound one of each, and what becomes of a mutated one."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import pickle
import random
import shutil
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from colliding import BOX, collide, drawn, random_model, task
from headcount import HeadcountError, SavedModel, make_task
from headcount.cli.main import main
from headcount.core.readers.packed import read_npz
from headcount.core.readers.reading import read_json
from headcount.datasets.cifar10.read import read_cifar
from headcount.datasets.msmarco.collection import read_marco
from headcount.probing.load import load_folder
from headcount.sweeps.file import read_sweep
from headcount.tasks.arrays.task import ArrayTask
from headcount.tasks.serial import parse_task
from headcount.theory.attack.exact import prove_pair
from headcount.theory.construct.enough_heads import build
from mutations import mutate_arrays, mutate_bytes, mutate_json, mutate_words
from signed import sign

SWEEP = """name = "small"
title = "a sweep"
heads = [1, 2, 3]
hidden = [8, 16]
seeds = 2
targets = [0, 1]

[task]
family = "quadratic-basins"
length = 8
intrinsic = 2
sets = "bands"

[model]
head_dim = 4
beta = 2.0
positions = "gates"

[train]
steps = 50
learning_rate = 0.01
warmup = 5

[[settings]]
name = "deep"
model = { depth = 2 }
"""


class Kind(NamedTuple):
    """A kind of input: how a sound one is made in an empty folder, how it is read, and what of it is mutated."""

    make: Callable[[Path], None]
    read: Callable[[Path], object]
    files: str = "*"
    """A pattern of the names of files that are mutated."""


def command(*arguments: str) -> None:
    """Run the command line in this process; what is no result and no refusal of one line is an error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main([*arguments])
        except SystemExit as ended:
            status = ended.code
    said = err.getvalue()
    if status == 2 and len(said.splitlines()) == 1 and said.startswith("headcount: "):
        raise HeadcountError(said.strip())
    if status == 1 and not said and "does not hold" in out.getvalue():
        raise HeadcountError(" ".join(out.getvalue().split()))
    if status != 0 or said:
        raise AssertionError(f"status {status}: {said}")


def _arrays(folder: Path, ending: str) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.random((12, 3, 2)), rng.random(12)
    mask = np.arange(3) < 1 + np.arange(12)[:, None] % 3
    match ending:
        case "npz":
            np.savez(folder / "data.npz", X=X, y=y, mask=mask)
        case "deflated":
            np.savez_compressed(folder / "data.npz", X=X.astype(np.float32), y=y)
        case "npy":
            np.save(folder / "X.npy", X)
            np.save(folder / "y.npy", y)
        case _:
            rows = [(s, t, y[s], *X[s, t]) for s in range(12) for t in range(3)]
            names = ("sequence", "position", "target", "a", "b")
            if ending == "csv":
                text = [",".join(names), *(",".join(map(str, row)) for row in rows)]
                (folder / "data.csv").write_text("\n".join(text) + "\n")
            else:
                import pyarrow as pa
                import pyarrow.parquet as pq

                columns = {name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}
                pq.write_table(pa.table(columns), folder / "data.parquet")


def _marco(folder: Path, form: str) -> None:
    passages = [{"id": str(k), "text": f"passage number {k} of many"} for k in range(8)]
    queries = [
        {"id": f"q{k}", "split": "dev", "text": f"number {k}", "pos": [str(k)], "rel": {str(k): 2}} for k in (1, 2)
    ]
    if form == "official":
        (folder / "collection.tsv").write_text("".join(f"{p['id']}\t{p['text']}\n" for p in passages))
        (folder / "queries.dev.tsv").write_text("".join(f"{q['id']}\t{q['text']}\n" for q in queries))
        (folder / "qrels.dev.tsv").write_text("".join(f"{q['id']}\t0\t{q['pos'][0]}\t1\n" for q in queries))
        return
    for name, rows in (("passages", passages), ("queries", queries)):
        text = "".join(json.dumps(row) + "\n" for row in rows).encode()
        gz = form == "gz"
        (folder / f"{name}.jsonl{'.gz' if gz else ''}").write_bytes(gzip.compress(text, mtime=0) if gz else text)


def _cifar(folder: Path) -> None:
    """The Python version with an image a batch."""
    rng = np.random.default_rng(0)
    for k, name in enumerate([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]):
        planes = rng.integers(0, 256, (2, 3072), dtype=np.uint8)
        (folder / name).write_bytes(pickle.dumps({"data": planes, "labels": [k % 2, 1 - k % 2]}, 2))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": ["cat", "dog"]}, 2))


def _certified(folder: Path) -> None:
    build(make_task("min-plus-max", length=3), 0.1).save(folder)


def _witnessed(folder: Path) -> None:
    model = random_model(1, positions="gates", beta="learned", heads=1)
    X = collide(model, drawn(1))
    saved = SavedModel(model, task().data(), std=(1.5, 0.7), mean=(0.1, 0.2))
    saved.save(folder)
    saved.save(
        folder, {"witness.json": {**prove_pair(folder, task().data(), BOX, None, 1, X[0], X[1]), "provenance": {}}}
    )


def _probed(folder: Path) -> None:
    import transformers as t

    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8}
    model = t.BertForMaskedLM(t.BertConfig(**sizes, vocab_size=20, max_position_embeddings=16))
    bars = t.utils.logging.is_progress_bar_enabled()
    t.utils.logging.disable_progress_bar()
    model.save_pretrained(folder)
    if bars:
        t.utils.logging.enable_progress_bar()


def _text(name: str, text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_text(text) and None


KINDS: dict[str, Kind] = {
    "sweep": Kind(_text("a.toml", SWEEP), lambda f: read_sweep(f / "a.toml").panels()),
    "task": Kind(
        lambda f: _text("task.json", json.dumps(make_task("quadratic-basins", length=4, intrinsic=2).data()))(f),
        lambda f: parse_task(read_json(f / "task.json")).data(),
    ),
    "npz": Kind(lambda f: _arrays(f, "npz"), lambda f: ArrayTask.load(f / "data.npz")),
    "deflated npz": Kind(lambda f: _arrays(f, "deflated"), lambda f: ArrayTask.load(f / "data.npz")),
    "probe npz": Kind(lambda f: _arrays(f, "deflated"), lambda f: read_npz(f / "data.npz")),
    "npy": Kind(lambda f: _arrays(f, "npy"), lambda f: ArrayTask.load(f / "X.npy")),
    "csv": Kind(lambda f: _arrays(f, "csv"), lambda f: ArrayTask.load(f / "data.csv")),
    "parquet": Kind(lambda f: _arrays(f, "parquet"), lambda f: ArrayTask.load(f / "data.parquet")),
    "jsonl": Kind(lambda f: _marco(f, "jsonl"), read_marco),
    "jsonl.gz": Kind(lambda f: _marco(f, "gz"), read_marco),
    "tsv": Kind(lambda f: _marco(f, "official"), read_marco),
    "cifar": Kind(_cifar, read_cifar),
    "model": Kind(_certified, lambda f: command("show", str(f), "--samples", "20"), "[cm]o*"),
    "certificate": Kind(_certified, lambda f: command("recheck", str(f)), "certificate.json"),
    "witness": Kind(_witnessed, lambda f: command("recheck", str(f)), "witness.json"),
    "probe": Kind(_probed, load_folder),
}


def mutate(rng: random.Random, folder: Path, files: str) -> None:
    """Mutate one file of a folder: its bytes, words or arrays, or a value of its JSON, signed anew where it can be."""
    path = rng.choice(sorted(folder.glob(files)))
    if path.suffix in (".toml", ".csv", ".tsv", ".jsonl") and rng.random() < 0.6:
        path.write_text(mutate_words(rng, path.read_text()))
        return
    if path.suffix in (".npz", ".npy") and rng.random() < 0.6:
        mutate_arrays(rng, path)
        return
    if path.suffix != ".json" or rng.random() < 0.3:
        path.write_bytes(mutate_bytes(rng, path.read_bytes()))
        return
    path.write_text(mutate_json(rng, json.loads(path.read_text())), errors="surrogateescape")
    if path.name == "config.json" and (folder / "model.safetensors").is_file() and rng.random() < 0.7:
        with contextlib.suppress(ValueError, TypeError, KeyError, RecursionError):  # what cannot be signed is left so
            sign(folder)


def outcome(kind: Kind, folder: Path) -> tuple[str, str]:
    """Read a folder: accepted, refused with one line, or a traceback with what it says."""
    try:
        kind.read(folder)
    except HeadcountError as error:
        line = str(error)
        return ("refused", line) if line and "\n" not in line else ("traceback", f"not one line: {line!r}")
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return "traceback", "".join(traceback.format_exception(error)[-3:])
    return "accepted", ""


def run(name: str, count: int, seed: int, where: Path) -> dict[str, Any]:
    """Mutate a sound input so many times; return how many were accepted, refused and neither, with what these said."""
    kind, rng = KINDS[name], random.Random(f"{name} {seed}")
    sound = where / name.replace(" ", "-")
    sound.mkdir(parents=True)
    kind.make(sound)
    assert outcome(kind, sound)[0] == "accepted", outcome(kind, sound)
    counts, odd = {"accepted": 0, "refused": 0, "traceback": 0}, list[str]()
    for k in range(count):
        copy = Path(shutil.copytree(sound, where / "copy"))
        mutate(rng, copy, kind.files)
        found, said = outcome(kind, copy)
        counts[found] += 1
        if found == "traceback":
            odd.append(f"{name}, mutation {k}: {said}")
        shutil.rmtree(copy)
    shutil.rmtree(sound)
    return {**counts, "odd": odd}
