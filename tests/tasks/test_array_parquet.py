"""Sequences from .parquet files: padding, targets, and every wrong table refused with one line."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headcount.core.errors import BadInput, MissingExtra
from headcount.tasks.arrays.task import ArrayTask


def unreadable(pattern: str, path: Path) -> None:
    """Check that the file is rejected with one line that names it and matches."""
    with pytest.raises(BadInput, match=pattern) as caught:
        ArrayTask.load(path, kind="regression")
    assert "\n" not in str(caught.value)
    assert path.name in str(caught.value)


def long_form(lengths: list[int], *, first: int = 0, text: bool = False) -> dict[str, list]:
    """A table of sequences of these lengths, with one target."""
    rng = np.random.default_rng(1)
    rows = [(s, t) for s, n in enumerate(lengths) for t in range(n)]
    return {
        "sequence": [f"s{s}" if text else 100 - s for s, _ in rows],
        "position": [t + first for _, t in rows],
        "a": rng.standard_normal(len(rows)).tolist(),
        "target": [float(s * s) for s, _ in rows],
        "b": [s - t for s, t in rows],
    }


def write(path: Path, columns: dict[str, list]) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


LENGTHS = [3, 1, 5, 2, 5, 4, 1, 1, 2, 3, 4]


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("shuffled", [False, True])
def test_parquet_pads_sequences_of_different_length(tmp_path, first, text, shuffled):
    columns = long_form(LENGTHS, first=first, text=text)
    X, mask = np.zeros((len(LENGTHS), 5, 2)), np.zeros((len(LENGTHS), 5), bool)
    rows = [(s, t) for s, n in enumerate(LENGTHS) for t in range(n)]
    for row, (s, t) in enumerate(rows):
        X[s, t], mask[s, t] = (columns["a"][row], columns["b"][row]), True
    order = np.arange(len(rows))
    if shuffled:
        np.random.default_rng(2).shuffle(order)
    task = ArrayTask.load(write(tmp_path / "t.parquet", {k: [v[i] for i in order] for k, v in columns.items()}))
    # sequences come in the order in which they first appear
    seen = list(dict.fromkeys(rows[i][0] for i in order))
    expected = ArrayTask.from_arrays(X[seen], np.arange(len(LENGTHS))[seen] ** 2.0, mask[seen])
    assert task.hash() == expected.hash()
    assert task.name == "t"


def test_parquet_of_equal_lengths_needs_no_mask(tmp_path):
    task = ArrayTask.load(write(tmp_path / "t.parquet", long_form([3] * 10)))
    assert task.mask is None
    assert task.X.shape == (10, 3, 2)


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64(), pa.int8(), pa.bool_()])
def test_parquet_types(tmp_path, kind):
    columns = long_form([2] * 10)
    values = [bool(i % 2) for i in range(20)] if kind == pa.bool_() else [i % 5 for i in range(20)]
    columns["a"] = pa.array(values, kind)
    columns["position"] = pa.array(columns["position"], pa.uint8())
    task = ArrayTask.load(write(tmp_path / "t.parquet", columns))
    assert task.X[..., 0].ravel().tolist() == [float(v) for v in values]


def test_parquet_in_many_row_groups(tmp_path):
    columns = long_form(LENGTHS, text=True)
    whole = ArrayTask.load(write(tmp_path / "a.parquet", columns))
    pq.write_table(pa.table(columns), tmp_path / "b.parquet", row_group_size=4)
    assert ArrayTask.load(tmp_path / "b.parquet").hash() == whole.hash()


def test_parquet_vector_targets(tmp_path):
    columns = long_form([2] * 10)
    columns["target_1"] = [2 * v for v in columns["target"]]
    columns["target_0"] = columns.pop("target")
    task = ArrayTask.load(write(tmp_path / "t.parquet", columns))
    assert task.out_dim == 2
    assert np.array_equal(task.y, np.outer(np.arange(10) ** 2, [1, 2]))


def _without(*names):
    return lambda c: {k: v for k, v in c.items() if k not in names}


def _with(**new):
    return lambda c: {**c, **{k: v(c) for k, v in new.items()}}


def _set(name, row, value):
    return _with(**{name: lambda c: [*c[name][:row], value, *c[name][row + 1 :]]})


@pytest.mark.parametrize(
    ("change", "pattern"),
    [
        (_without("sequence"), "missing column 'sequence': give one row per token"),
        (_without("position"), "missing column 'position'"),
        (_without("target"), "missing column .target.: .*target_0"),
        (_with(target_1=lambda c: c["target"]), "columns of the target are target, target_1"),
        (_with(targets=lambda c: c["b"]), "columns of the target"),
        (_without("a", "b"), "no feature columns"),
        (_with(a=lambda c: ["x"] * len(c["a"])), "column 'a' holds string: it must hold numbers"),
        (_with(target=lambda c: ["x"] * len(c["a"])), "column 'target' holds string"),
        (
            _with(position=lambda c: [float(p) for p in c["position"]]),
            "'position' holds double: .* whole numbers",
        ),
        (
            _with(sequence=lambda c: [float(p) for p in c["sequence"]]),
            "'sequence' holds double: .*numbers or text",
        ),
        (_set("a", 3, None), r"column 'a' has no value in row 3 \(from 0\)"),
        (_set("sequence", 2, None), "column 'sequence' has no value in row 2"),
        (_set("position", 5, 0), "positions of sequence 98 are not 0, 1, 2, … each once"),
        (_set("position", 4, -1), "positions of sequence 98"),
        (_set("position", 8, 7), "positions of sequence 98"),
        (_set("target", 5, 17.0), "target changes within sequence 98"),
        (_set("target", 4, np.nan), "target changes within sequence 98"),
        (_set("target", 6, np.nan), "target changes within sequence 98"),
        (_set("target", 3, np.nan), "y holds nan at sample 1, component 0"),
        (_set("a", 5, np.inf), "X holds inf at sample 2, position 1, feature 0"),
        (lambda c: {k: v[:20] for k, v in c.items()}, "6 samples are too few"),
        (lambda c: {k: pa.array([], pa.int64()) for k in c}, "no rows"),
    ],
)
def test_bad_parquet_files_are_rejected(tmp_path, change, pattern):
    columns = long_form(LENGTHS)
    assert ArrayTask.load(write(tmp_path / "good.parquet", columns)).samples == len(LENGTHS)
    unreadable(pattern, write(tmp_path / "t.parquet", change(columns)))


def test_parquet_with_a_name_twice(tmp_path):
    columns = long_form([2] * 10)
    table = pa.Table.from_arrays(
        [pa.array(v) for v in columns.values()], names=["sequence", "position", "a", "target", "a"]
    )
    pq.write_table(table, tmp_path / "t.parquet")
    unreadable("several columns are called 'a'", tmp_path / "t.parquet")


def test_parquet_truncated_or_damaged_anywhere(tmp_path):
    whole = write(tmp_path / "t.parquet", long_form(LENGTHS)).read_bytes()
    path = tmp_path / "broken.parquet"
    for size in range(0, len(whole), 61):
        path.write_bytes(whole[:size])
        unreadable("the table cannot be read", path)


def test_parquet_without_pyarrow(tmp_path, monkeypatch):
    path = write(tmp_path / "t.parquet", long_form(LENGTHS))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(MissingExtra, match=r"reading Parquet needs the package pyarrow.*'\.\[parquet\]'"):
        ArrayTask.load(path)
    np.savez(tmp_path / "data.npz", X=np.ones((12, 2, 2)), y=np.arange(12))
    assert ArrayTask.load(tmp_path / "data.npz").samples == 12
