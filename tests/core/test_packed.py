"""Sizes before memory: a few megabytes that unpack to gigabytes end in one line, and take little memory."""

from __future__ import annotations

import resource
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bombs import jsonl_bomb, line_bomb, npz_bomb
from headcount import BadInput
from headcount.core.readers import packed
from headcount.core.readers.packed import check_size, npz_names, read_lines, read_npy, read_npz
from headcount.datasets.msmarco.collection import read_marco
from headcount.tasks.arrays.task import ArrayTask
from support import Cli

MAX_MB = 600
"""What reading a bomb may add to the memory of the process."""

READERS = {
    "arrays": "from headcount.tasks.arrays.task import ArrayTask; read = ArrayTask.load",
    "marco": "from headcount.datasets.msmarco.collection import read_marco; read = read_marco",
}
SCRIPT = """
import resource, sys
from headcount.core.errors import BadInput
{reader}
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
before = peak()
try:
    read(sys.argv[1])
    said = "read"
except BadInput as error:
    said = str(error)
print(peak() - before)
print(said)
"""


def read_apart(path: Path, reader: str) -> tuple[int, str]:
    """Read a file in a separate process; return its memory use in MB, and its message."""
    script = SCRIPT.format(reader=READERS[reader])
    done = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    memory, said = done.stdout.splitlines()
    return int(memory), said


@pytest.mark.parametrize(
    ("make", "reader", "said"),
    [
        (lambda at: npz_bomb(at / "bomb.npz", 1100), "arrays", "X would take 9.2 GB of memory: at most"),
        (lambda at: jsonl_bomb(at / "marco", 256), "marco", "too much for text: decompress the file first"),
        (lambda at: line_bomb(at / "line", 5000), "marco", "line 1: longer than 16.8 MB"),
    ],
    ids=["npz", "jsonl.gz", "one line"],
)
def test_decompression_bombs_are_rejected(tmp_path: Path, make: Callable[[Path], Path], reader: str, said: str) -> None:
    bomb = make(tmp_path)
    files = [bomb] if bomb.is_file() else [*bomb.iterdir()]
    assert sum(p.stat().st_size for p in files) < 8e6
    memory, line = read_apart(bomb, reader)
    assert said in line
    assert memory < MAX_MB


def test_harmless_twins_of_the_bombs_are_read(tmp_path: Path) -> None:
    """As tightly compressed, but small; and large, but not as tightly compressed."""
    np.savez_compressed(tmp_path / "small.npz", X=np.zeros((10, 1000, 300)), y=np.arange(10.0))
    assert (tmp_path / "small.npz").stat().st_size * 500 < 10 * 1000 * 300 * 8
    assert ArrayTask.load(tmp_path / "small.npz").samples == 10
    assert len(read_marco(jsonl_bomb(tmp_path / "marco", 64), titled=True).passages) == 1600


def test_sizes_that_are_allowed() -> None:
    check_size(packed.EXEMPT_DATA_BYTES, 1, "x")
    check_size(packed.MAX_DATA_RATIO * 10**7, 10**7, "x")
    check_size(packed.MAX_DATA_BYTES, packed.MAX_DATA_BYTES, "x")
    for needed, stored in (
        (packed.EXEMPT_DATA_BYTES + 1, 1),
        (10**9 + 1, 10**7),
        (packed.MAX_DATA_BYTES + 1, 10**12),
        (10**40, 1),
    ):
        with pytest.raises(BadInput, match="x would take .* of memory: at most"):
            check_size(needed, stored, "x")


@pytest.mark.parametrize("shape", ["(10**9,)", "(3, 999999999999)", "(-1,)", "(True,)", "(2.0,)", "'x'", "(" * 50, ""])
def test_headers_of_arrays_that_promise_another_size(tmp_path: Path, shape: str) -> None:
    text = "{'descr': '<f8', 'fortran_order': False, 'shape': " + shape + ", }"
    raw = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + bytes(24)
    (tmp_path / "a.npy").write_bytes(raw)
    with pytest.raises(BadInput, match="cannot be read"):
        read_npy(tmp_path / "a.npy")


def test_an_endless_header_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + b" " * 100)
    with pytest.raises(BadInput, match="cannot be read"):
        read_npy(tmp_path / "a.npy")


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("kind", ["<f4", ">f8", "|u1", "|b1", "<U5", "|S3", "<i8"])
def test_arrays_as_numpy_writes_them(tmp_path: Path, order: str, kind: str) -> None:
    for shape in ((3, 4, 2), (), (0, 5), (7,)):
        array = np.asarray(np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(kind), order=order)
        np.save(tmp_path / "a.npy", array)
        found = read_npy(tmp_path / "a.npy")
        np.testing.assert_array_equal(found, array)
        assert found.dtype == array.dtype
        np.savez_compressed(tmp_path / "a.npz", a=array, b=array)
        np.testing.assert_array_equal(read_npz(tmp_path / "a.npz", ("b",))["b"], array)
        assert npz_names(tmp_path / "a.npz") == ["a", "b"]


def test_archives_that_numpy_does_not_write(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", np.zeros(3))
    for name, way in (("bz2", zipfile.ZIP_BZIP2), ("xz", zipfile.ZIP_LZMA)):  # they unpack a chunk without a limit
        with zipfile.ZipFile(tmp_path / f"{name}.npz", "w", way) as archive:
            archive.write(tmp_path / "X.npy", "X.npy")
        with pytest.raises(BadInput, match="X cannot be read"):
            read_npz(tmp_path / f"{name}.npz")
    with zipfile.ZipFile(tmp_path / "twice.npz", "w") as archive:
        archive.write(tmp_path / "X.npy", "X.npy")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.write(tmp_path / "X.npy", "X.npy")
    with pytest.raises(BadInput, match="'X' occurs twice"):
        read_npz(tmp_path / "twice.npz")


def test_names_of_arrays_that_break_lines(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("two\nlines.npy", b"nothing")
    with pytest.raises(BadInput, match=r"'two\\nlines' cannot be read") as caught:
        read_npz(tmp_path / "a.npz")
    assert "\n" not in str(caught.value)


def test_tables_with_fewer_rows_than_declared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    columns = {"sequence": np.repeat(range(10), 3), "position": [0, 1, 2] * 10, "target": np.repeat(range(10), 3)}
    pq.write_table(pa.table({**columns, "x": np.arange(30.0)}), tmp_path / "a.parquet")
    assert ArrayTask.load(tmp_path / "a.parquet").samples == 10
    whole = pq.ParquetFile.read
    for rows in (0, 29):
        monkeypatch.setattr(pq.ParquetFile, "read", lambda self, rows=rows: whole(self).slice(0, rows))
        with pytest.raises(BadInput, match=f"the table has {rows} rows, but its header says 30"):
            ArrayTask.load(tmp_path / "a.parquet")


def test_padding_that_takes_more_than_the_data(tmp_path: Path) -> None:
    """One long sequence among many short ones, which padding would make as long."""
    rows = [f"a,{k},0,1\n" for k in range(9000)] + [f"s{k},0,1,1\n" for k in range(9000)]
    (tmp_path / "long.csv").write_text("sequence,position,target,x\n" + "".join(rows))
    with pytest.raises(BadInput, match="9,001 sequences padded to the longest, 9,000 tokens, would take"):
        ArrayTask.load(tmp_path / "long.csv")
    (tmp_path / "short.csv").write_text("sequence,position,target,x\n" + "".join(rows[:90] + rows[9000:9090]))
    assert ArrayTask.load(tmp_path / "short.csv").X.shape == (91, 90, 1)


def test_endless_csv_lines_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = "sequence,position,target,x\n"
    body = "".join(f"{s},{t},{s},0.5\n" for s in range(10) for t in range(3))
    (tmp_path / "a.csv").write_text(head + body + "7" * 5000)
    monkeypatch.setattr("headcount.tasks.arrays.csv.MAX_LINE_BYTES", 4000)
    with pytest.raises(BadInput, match="line 32: longer than 4,000 characters"):
        ArrayTask.load(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_text(head + body)
    assert ArrayTask.load(tmp_path / "a.csv").samples == 10


def test_tables_of_few_bytes_and_many_rows(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    zeros = pa.array(np.zeros(1 << 20))
    whole = pa.array(np.zeros(1 << 20, np.int64))
    table = pa.table({"sequence": whole, "position": whole, "target": zeros, "x": zeros})
    with pq.ParquetWriter(tmp_path / "bomb.parquet", table.schema) as writer:
        for _ in range(10):
            writer.write_table(table)
    assert (tmp_path / "bomb.parquet").stat().st_size < 1e6
    with pytest.raises(BadInput, match="the table would take 335.5 MB"):
        ArrayTask.load(tmp_path / "bomb.parquet")


def test_a_long_name_repeated_a_million_times_is_stored_once(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    names = pa.DictionaryArray.from_arrays(np.repeat(np.arange(40), 5000), ["x" * 20_000 + str(k) for k in range(40)])
    table = pa.table(
        {
            "sequence": names.cast(pa.string()) if len(names) < 1000 else names,
            "position": np.tile(np.arange(5000), 40),
            "target": np.repeat(np.arange(40.0), 5000),
            "x": np.zeros(200_000),
        }
    )
    plain = table.schema.set(0, pa.field("sequence", pa.string()))
    pq.write_table(table, tmp_path / "names.parquet", store_schema=False)
    assert pq.read_schema(tmp_path / "names.parquet").field("sequence").type == plain.field("sequence").type
    memory, said = read_apart(tmp_path / "names.parquet", "arrays")
    assert said == "read"
    assert memory < MAX_MB  # 4 GB as plain text


def test_plain_lines_have_no_ratio(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"a\nb\r\nc")
    assert [*read_lines(tmp_path / "a.txt")] == [b"a\n", b"b\r\n", b"c"]
    with pytest.raises(BadInput, match="cannot read .*No such file"):
        next(read_lines(tmp_path / "none.txt"))


# -- where memory runs out ------------------------------------------------------------------------------------


def limited(bytes_: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(resource.RLIMIT_AS, (bytes_, bytes_))


@pytest.mark.parametrize("mebibytes", [200, 500, 900])
def test_a_limit_in_which_nothing_can_be_loaded(headcount_cli: Cli, mebibytes: int) -> None:
    done = headcount_cli("tasks", preexec_fn=limited(mebibytes << 20))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"headcount: ulimit -v allows {mebibytes} MiB of memory: at least 1,024 are needed\n"


def test_a_limit_that_is_reached_on_the_way(headcount_cli: Cli, tmp_path: Path) -> None:
    train = ("train", "quadratic-basins", "--heads", "2", "--steps", "2", "--out", "m", "--length")
    done = headcount_cli(*train, "2000", preexec_fn=limited(1100 << 20))
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert "out of memory: choose a smaller batch, length or hidden size" in done.stderr
    assert list(tmp_path.iterdir()) == []
