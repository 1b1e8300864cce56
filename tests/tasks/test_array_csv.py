"""Sequences from .csv files: the same as from Parquet, and every wrong file refused with one line and its place."""

from __future__ import annotations

import csv
import io
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headcount.core.errors import BadInput
from headcount.tasks.arrays import csv as array_csv
from headcount.tasks.arrays.task import ArrayTask

LENGTHS = [3, 1, 5, 2, 5, 4, 1, 1, 2, 3, 4]
GOOD = "sequence,position,a,b,target\n" + "".join(
    f"s{s},{t},{s / 7!r},{s - t},{s * s}\n" for s, n in enumerate(LENGTHS) for t in range(n)
)
"""The first rows are on lines 2 to 4 (s0), 5 (s1) and 6 to 10 (s2)."""


def load(folder: Path, content: str | bytes) -> ArrayTask:
    path = folder / "t.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return ArrayTask.load(path)


def refused(folder: Path, content: str | bytes, pattern: str) -> None:
    """Check that the file is rejected with one line that names it and matches."""
    with pytest.raises(BadInput, match=pattern) as caught:
        load(folder, content)
    assert "\n" not in str(caught.value)
    assert "t.csv" in str(caught.value)


def table(seed: int, *, text: bool, first: int, components: int) -> dict[str, list]:
    """Return random columns in random order, with shuffled rows."""
    rng = np.random.default_rng(seed)
    rows = [(s, t) for s, n in enumerate(LENGTHS) for t in range(n)]
    y = rng.standard_normal((len(LENGTHS), components)) * 10.0 ** rng.integers(-30, 30)
    names = ["target"] if components == 1 else [f"target_{i}" for i in range(components)]
    columns = {
        "sequence": [f'a "{s}", b' if text else 100 - s for s, _ in rows],
        "position": [t + first for _, t in rows],
        "small": rng.standard_normal(len(rows)).tolist(),
        "large": (rng.standard_normal(len(rows)) * 1e300).tolist(),
        "whole, or so": rng.integers(-(10**9), 10**9, len(rows)).tolist(),
        "truth": (rng.random(len(rows)) < 0.5).tolist(),
        **{name: [float(y[s, i]) for s, _ in rows] for i, name in enumerate(names)},
    }
    order = rng.permutation(len(rows))
    keys = [list(columns)[i] for i in rng.permutation(len(columns))]
    return {key: [columns[key][i] for i in order] for key in keys}


def as_csv(columns: dict[str, list], **options) -> str:
    out = io.StringIO()
    writer = csv.writer(out, **options)
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return out.getvalue()


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("components", [1, 3])
@pytest.mark.parametrize("options", [{}, {"quoting": csv.QUOTE_ALL, "lineterminator": "\n"}])
def test_the_same_as_parquet(tmp_path, text, first, components, options):
    for seed in range(3):
        columns = table(seed, text=text, first=first, components=components)
        pq.write_table(pa.table(columns), tmp_path / "t.parquet")
        other, task = ArrayTask.load(tmp_path / "t.parquet"), load(tmp_path, as_csv(columns, **options))
        assert task.hash() == other.hash()
        assert np.array_equal(task.mask, other.mask)
        assert (task.name, task.dim, task.out_dim) == ("t", 4, components)
        columns["small"][5] = float(np.nextafter(columns["small"][5], 2))  # the comparison sees the last bit
        assert load(tmp_path, as_csv(columns, **options)).hash() != other.hash()


@pytest.mark.parametrize("rows", [1, 7, 31, 10**6])
def test_read_some_rows_at_a_time(tmp_path, monkeypatch, rows):
    whole = load(tmp_path, GOOD).hash()
    monkeypatch.setattr(array_csv, "_MAX_BLOCK_ROWS", rows)
    assert load(tmp_path, GOOD).hash() == whole
    refused(tmp_path, GOOD.replace("s2,4", "s2,3"), "3 is repeated in line 10")


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "\ufeff" + text,
        lambda text: '\ufeff"sequence"' + text.removeprefix("sequence"),
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("\n", "\r"),
        lambda text: text.removesuffix("\n"),
        lambda text: "\n\n" + text.replace("\n", "\n\n  \n") + "\r\n\n",
        lambda text: text.replace(",", ", "),
        lambda text: text.replace(",", " ,  ").replace("s", "s").replace("sequence", " sequence"),
        lambda text: text.replace("s2,", '"s2",').replace(",1,", ',"1",'),
        lambda text: text.replace("s2,", '"s\r\n2, ""two""",'),
        lambda text: text.replace(",0,", ",+0,").replace("s3,1", "s3,01"),
    ],
    ids=["bom", "bom quoted", "crlf", "cr", "no end", "blanks", "spaces", "wide", "quotes", "line in label", "signs"],
)
def test_equivalent_csv_spellings_read_equal(tmp_path, change):
    assert load(tmp_path, change(GOOD)).hash() == load(tmp_path, GOOD).hash()


def test_classes_stay_numbers(tmp_path):
    task = load(tmp_path, GOOD)
    assert task.y[:, 0].tolist() == [s * s for s in range(len(LENGTHS))]
    assert task.y.dtype == np.float64


def line(number: int, new: str | None) -> str:
    """Return the good file with one line replaced or removed."""
    lines = GOOD.splitlines()
    lines[number - 1 : number] = [] if new is None else [new]
    return "\n".join(lines) + "\n"


HEADER = "sequence,position,a,b,target"
CELL = "s2,1,0.5,1,4"  # line 7, but for the numbers


@pytest.mark.parametrize(
    ("content", "pattern"),
    [
        ("", "t.csv: the file is empty: the first line must name the columns"),
        ("\ufeff\r\n \n\n", "the file is empty"),
        (HEADER + "\n\n", "the table has no rows"),
        (GOOD.replace("sequence", "Sequence"), "line 1: missing column 'sequence': give one row per token"),
        ("\n\n" + GOOD.replace("position", "place"), "line 3: missing column 'position'"),
        (GOOD.replace("target", "y"), r"line 1: missing column .target.: give one row"),
        (GOOD.replace("b,target", "target_1,target_2"), "line 1: the columns of the target are"),
        (GOOD.replace("b,", "a,"), "line 1: several columns are called 'a'"),
        (GOOD.replace("sequence,position,a,b", "sequence,position,target_0,target_1"), "columns of the target"),
        (GOOD.replace("sequence", "", 1), r"line 1: column 1 has no name: .*index=False"),
        (GOOD.replace(",", ";"), "line 1: the columns are not separated by commas"),
        (GOOD.replace(",", "\t"), "line 1: the columns are not separated by commas"),
        (line(7, CELL.replace("0.5", "half")), "line 7: column 'a' holds the text 'half': it must hold numbers, or be"),
        (line(7, CELL.replace("0.5", "0,5")), "line 7: 6 values, but the header has 5 columns"),
        (line(7, CELL.replace(",4", "")), "line 7: 4 values"),
        (line(7, CELL.replace("0.5", "")), "line 7: column 'a' has no value"),
        (line(7, CELL.replace("0.5", " ")), "line 7: column 'a' has no value"),
        (line(7, CELL.replace("0.5", "NaN")), "line 7: column 'a' holds 'NaN': drop or fill"),
        (line(7, CELL.replace("0.5", "-inf")), "line 7: column 'a' holds '-inf'"),
        (line(7, CELL.replace("0.5", "1e999")), "line 7: column 'a' holds '1e999'"),
        (line(7, CELL.replace("0.5", "1_000")), "line 7: column 'a' holds the text '1_000'"),
        (line(7, CELL.replace("0.5", "x" * 90)), "holds the text 'x{40}…'"),
        (line(7, CELL.replace("0.5", '"a\nb"')), r"line 7: column 'a' holds the text 'a\\nb'"),
        (
            line(7, CELL.replace(",4", ",cat")),
            "column 'target' holds the text 'cat': .*; number the classes 0, 1",
        ),
        (line(7, CELL.replace(",4", ",nan")), "line 7: column 'target' holds 'nan'"),
        (line(7, CELL.replace(",4", ",")), "line 7: column 'target' has no value"),
        (line(7, CELL.replace(",4", ",5")), "the target changes within sequence 's2': .* differs in line 7"),
        (line(7, CELL.replace("s2", "")), "line 7: column 'sequence' has no value"),
        (line(7, CELL.replace(",1,0", ",,0")), "line 7: column 'position' has no value"),
        (line(7, CELL.replace(",1,0", ",one,0")), "line 7: column 'position' holds 'one': it must hold whole numbers"),
        (line(7, CELL.replace(",1,0", ",1.0,0")), "line 7: column 'position' holds '1.0'"),
        (line(7, CELL.replace(",1,0", ",1_0,0")), "line 7: column 'position' holds '1_0'"),
        (line(7, CELL.replace(",1,0", f",{10**30},0")), "line 7: column 'position' holds '1000"),
        (line(7, CELL.replace(",1,0", ",-1,0")), "'s2' are not 0, 1, 2, … each once: -1 is too small in line 7"),
        (line(7, CELL.replace(",1,0", ",2,0")), "sequence 's2' .*: 1 is missing before 2 in line 7"),
        (line(7, None), "sequence 's2' are not 0, 1, 2, … each once: 1 is missing before 2 in line 7"),
        (line(7, CELL + "\n" + CELL), "sequence 's2' .*: 1 is repeated in line 8; number the tokens"),
        (GOOD + CELL, "sequence 's2' .*: 1 is repeated in line 33; number the tokens"),
        (GOOD.replace("s2,0", "s2,5"), "sequence 's2' .*: 0 is missing before 1 in line 7"),
        (line(7, CELL.replace("s2", '"s2')), r"line 7: not CSV \(unexpected end of data\): close every quote"),
        (line(7, CELL.replace("s2", '"s"2')), "line 7: not CSV"),
        (line(7, CELL.replace("0.5", "x" * 200_000)), "line 7: not CSV .field larger"),
        (line(7, CELL.replace("0.5", "1\x00")), "line 7: column 'a' holds the text"),
        (line(7, CELL.replace("s2", "é")).encode("latin-1"), "line 7: not UTF-8"),
        (GOOD.encode("utf-16"), "line 1: not UTF-8"),
        ("\n".join(GOOD.splitlines()[:12]), "4 samples are too few"),
        (b"PK\x03\x04" + bytes(100), "t.csv"),
    ],
)
def test_wrong_files(tmp_path, content, pattern):
    assert load(tmp_path, GOOD).samples == len(LENGTHS)
    refused(tmp_path, content, pattern)


def test_a_missing_header_is_rejected(tmp_path):
    refused(tmp_path, GOOD.split("\n", 1)[1], "line 1: missing column 'sequence'")


def test_files_truncated_or_damaged_anywhere_are_rejected(tmp_path):
    whole = GOOD.encode()
    rng, refusals = np.random.default_rng(0), 0
    for size in range(0, len(whole), 13):
        spoilt = bytearray(whole)
        spoilt[size] = int(rng.integers(256))
        for content in (whole[:size], bytes(spoilt)):
            said = ""
            try:
                load(tmp_path, content)
            except BadInput as error:
                said = str(error)
                refusals += 1
            assert "\n" not in said
            assert not said or "t.csv" in said
    assert refusals > 50


def test_it_needs_no_pyarrow(tmp_path, monkeypatch):
    for name in ("pyarrow", "pyarrow.parquet", "pandas"):
        monkeypatch.setitem(sys.modules, name, None)
    assert load(tmp_path, GOOD).samples == len(LENGTHS)


def test_a_second_file_is_rejected(tmp_path):
    (tmp_path / "t.csv").write_text(GOOD)
    with pytest.raises(BadInput, match="goes with .npy only: a .csv file holds its own y"):
        ArrayTask.load(tmp_path / "t.csv", y="y.npy")


def test_ten_thousand_sequences_in_seconds(tmp_path):
    samples, length = 10_000, 32
    X = np.random.default_rng(0).standard_normal((samples, length, 2))
    with (tmp_path / "t.csv").open("w") as handle:
        handle.write("sequence,position,a,b,target\n")
        for s, rows in enumerate(X.tolist()):
            handle.writelines(f"{s},{t},{a!r},{b!r},{s % 7}\n" for t, (a, b) in enumerate(rows))
    start = time.process_time()
    task = ArrayTask.load(tmp_path / "t.csv")
    assert time.process_time() - start < 10  # a second or two on an idle core
    assert task.hash() == ArrayTask.from_arrays(X, np.arange(samples) % 7, kind="auto").hash()


def test_training_takes_a_csv_file(tmp_path, headcount_here):
    X = np.random.default_rng(0).random((40, 4)).tolist()
    rows = [(s, t, x[t], max(x)) for s, x in enumerate(X) for t in range(4)]
    columns = dict(zip(("sequence", "position", "a", "target"), map(list, zip(*rows, strict=True)), strict=True))
    (tmp_path / "mine.csv").write_text(as_csv(columns))
    done = headcount_here("train", "mine.csv", "--heads", "1", "--steps", "5", "--out", "model")
    assert done.returncode == 0, done.stderr
    done = headcount_here("train", "mine.csv", "--heads", "1", "--length", "4", "--out", "model")
    assert "mine.csv: a file states the whole task: leave out --length" in done.stderr
