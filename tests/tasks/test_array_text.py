"""Targets that are text: read where the caller asks for it, refused with the old line where numbers are needed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headcount.advisor.data import from_file
from headcount.core.errors import BadInput
from headcount.tasks.arrays.files import read_arrays
from headcount.tasks.arrays.task import ArrayTask

RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 3, 2))
LABELS = np.array(["low", "high", "very high", "low"] * 10)
HEADER = "sequence,position,a,b,target"


def columns() -> dict[str, list]:
    sequence, position = (part.ravel().tolist() for part in np.indices((40, 3)))
    a, b = (X[..., k].ravel().tolist() for k in range(2))
    return {"sequence": sequence, "position": position, "a": a, "b": b, "target": np.repeat(LABELS, 3).tolist()}


def rows() -> list[str]:
    return [",".join(map(str, row)) for row in zip(*columns().values(), strict=True)]


def csv(folder: Path, lines: list[str]) -> Path:
    (folder / "t.csv").write_text("\n".join([HEADER, *lines]) + "\n")
    return folder / "t.csv"


def parquet(folder: Path, category: bool = False, **changed) -> Path:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = {**columns(), **changed}
    if category:
        table["target"] = pa.array(table["target"]).dictionary_encode()
    pq.write_table(pa.table(table), folder / "t.parquet")
    return folder / "t.parquet"


def npz(folder: Path) -> Path:
    np.savez(folder / "t.npz", X=X, y=LABELS)
    return folder / "t.npz"


def npy(folder: Path) -> Path:
    np.save(folder / "X.npy", X)
    np.save(folder / "y.npy", LABELS.astype("S9"))
    return folder / "X.npy"


WAYS = {
    "csv": lambda folder: csv(folder, rows()),
    "shuffled csv": lambda folder: csv(folder, [rows()[n] for n in np.random.default_rng(1).permutation(120)]),
    "padded csv": lambda folder: csv(folder, [row.replace(",low", ' ,  "low"') for row in rows()]),
    "parquet": parquet,
    "categories": lambda folder: parquet(folder, category=True),
    "npz": npz,
    "npy of bytes": npy,
}


@pytest.mark.parametrize("way", list(WAYS))
def test_text_targets_are_classes_for_the_advisor(tmp_path, way):
    stuff = from_file(WAYS[way](tmp_path))
    assert stuff.classes == ("high", "low", "very high")
    found = np.array(stuff.classes)[stuff.task.y.argmax(1)]
    place = [int(np.flatnonzero((x == stuff.task.X).all((1, 2)))[0]) for x in X]
    assert found[place].tolist() == LABELS.tolist()


@pytest.mark.parametrize(
    ("way", "text"),
    [
        ("csv", "line 2: column 'target' holds the text 'low': it must hold numbers; number the classes 0, 1, 2"),
        ("parquet", "column 'target' holds string: it must hold numbers, or be left out"),
        ("categories", "column 'target' holds dictionary.*: it must hold numbers"),
        ("npz", "y holds (entries of type <U9: give whole or floating-point|text: give) numbers"),
    ],
)
def test_a_regression_needs_numbers_and_says_so(tmp_path, way, text):
    path = WAYS[way](tmp_path)
    for ask in (ArrayTask.load, from_file):
        with pytest.raises(BadInput, match=text):
            ask(path, kind="regression")


@pytest.mark.parametrize("way", list(WAYS))
def test_a_task_reads_labels_like_the_advisor(tmp_path, way):
    task, stuff = ArrayTask.load(WAYS[way](tmp_path)), from_file(WAYS[way](tmp_path))
    assert task.classes == stuff.classes == ("high", "low", "very high")
    assert np.array_equal(task.y, stuff.task.y)
    assert task.hash() == stuff.task.hash()


@pytest.mark.parametrize(
    ("place", "new", "text"),
    [
        (3, ",7", "line 5: column 'target' holds '7' after text: it must hold only text or only numbers"),
        (3, ",nan", "line 5: column 'target' holds 'nan' after text"),
        (3, ",", "line 5: column 'target' has no value"),
        (0, ",7", "line 3: column 'target' holds the text 'low': it must hold numbers"),
        (4, ",other", "the target changes within sequence '1': .* differs in line 6"),
    ],
)
def test_a_typo_among_labels_is_rejected_with_its_line(tmp_path, place, new, text):
    lines = rows()
    lines[place] = lines[place].rsplit(",", 1)[0] + new
    with pytest.raises(BadInput, match=text) as caught:
        from_file(csv(tmp_path, lines))
    assert "\n" not in str(caught.value)


def test_text_is_allowed_for_a_single_target_only(tmp_path):
    whole = columns()
    lines = [f"{row},x" for row in rows()]
    (tmp_path / "t.csv").write_text("\n".join(["sequence,position,a,b,target_0,target_1", *lines]) + "\n")
    with pytest.raises(BadInput, match="column 'target_0' holds the text"):
        from_file(tmp_path / "t.csv")
    with pytest.raises(BadInput, match="column 'a' holds the text"):
        from_file(csv(tmp_path, [row.replace(row.split(",")[2], "half") for row in rows()]))
    with pytest.raises(BadInput, match="column 'a' holds string"):
        from_file(parquet(tmp_path, a=[str(a) for a in whole["a"]]))


def test_numbers_stay_numbers_where_text_is_allowed(tmp_path):
    lines = [f"{row.rsplit(',', 1)[0]},{row.split(',')[0]}.5" for row in rows()]
    y = read_arrays(csv(tmp_path, lines), text=True)[1]
    assert y[:, 0].tolist() == [n + 0.5 for n in range(40)]


def test_one_sample_is_one(tmp_path):
    with pytest.raises(BadInput, match="1 sample is too few: give 10 or more"):
        ArrayTask.from_arrays(X[:1], np.ones(1))
