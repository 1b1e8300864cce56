"""Arrays from .npz and .npy files: round trips, and every broken file refused with one line that names it."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

from headcount.core.errors import BadInput
from headcount.tasks.arrays.task import ArrayTask

SAMPLES, LENGTH, DIM = 12, 5, 3


def inputs() -> np.ndarray:
    return np.random.default_rng(0).integers(-50, 50, (SAMPLES, LENGTH, DIM)).astype(float)


def targets(X: np.ndarray) -> np.ndarray:
    return X.max(1).sum(-1)


def some_mask() -> np.ndarray:
    return np.arange(LENGTH) < np.arange(SAMPLES)[:, None] % LENGTH + 1


def unreadable(pattern: str, path: Path, **kwargs) -> None:
    """Check that the file is rejected with one line that names it and matches."""
    with pytest.raises(BadInput, match=pattern) as caught:
        ArrayTask.load(path, **kwargs)
    assert "\n" not in str(caught.value)
    assert path.name in str(caught.value)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_round_trip(tmp_path, dtype, masked, save):
    X = inputs().astype(dtype)
    arrays = {"X": X, "y": targets(X), **({"mask": some_mask()} if masked else {})}
    save(tmp_path / "data.npz", **arrays)
    task = ArrayTask.load(tmp_path / "data.npz")
    assert task.name == "data"
    assert task.hash() == ArrayTask.from_arrays(**arrays).hash()
    assert (task.mask is None) != masked
    assert ArrayTask.load(str(tmp_path / "data.npz")).hash() == task.hash()


@pytest.mark.parametrize("names", [("X.npy", "y.npy"), ("X_train.npy", "y_train.npy"), ("set1-x.npy", "set1-y.npy")])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_npy_round_trip_by_sibling(tmp_path, names, dtype):
    X = inputs().astype(dtype)
    np.save(tmp_path / names[0], X)
    np.save(tmp_path / names[1], targets(X))
    assert ArrayTask.load(tmp_path / names[0]).hash() == ArrayTask.from_arrays(X, targets(X)).hash()


def test_npy_with_a_named_second_file(tmp_path):
    X = inputs()
    np.save(tmp_path / "features.npy", X)
    np.save(tmp_path / "labels.npy", targets(X))
    task = ArrayTask.load(tmp_path / "features.npy", y=tmp_path / "labels.npy")
    assert task.hash() == ArrayTask.from_arrays(X, targets(X)).hash()
    unreadable("cannot tell the file of targets .*: call the files X.npy and y.npy", tmp_path / "features.npy")
    unreadable("no such file: .*none.npy", tmp_path / "none.npy")
    with pytest.raises(BadInput, match=r"no such file: .*gone\.npy"):
        ArrayTask.load(tmp_path / "features.npy", y=tmp_path / "gone.npy")


def test_npy_without_its_sibling(tmp_path):
    np.save(tmp_path / "X.npy", inputs())
    unreadable(r"no such file: .*y\.npy \(the targets of .*X\.npy\): create it, or", tmp_path / "X.npy")


def test_missing_files_and_folders_are_rejected(tmp_path):
    unreadable("no such file:", tmp_path / "data.npz")
    (tmp_path / "folder.npz").mkdir()
    unreadable("is a folder", tmp_path / "folder.npz")
    unreadable(r"unknown file type '\.feather': allowed: \.csv, \.npy, \.npz, \.parquet", tmp_path / "data.feather")
    unreadable(r"did you mean '\.npz'", tmp_path / "data.npzz")
    np.savez(tmp_path / "whole.npz", X=inputs(), y=np.arange(SAMPLES))
    unreadable("goes with .npy only", tmp_path / "whole.npz", y="y.npy")


@pytest.mark.parametrize("ending", ["npz", "npy", "parquet"])
@pytest.mark.parametrize("content", [b"", b"X,y\n1,2\n", b"PK\x03\x04", b"\x93NUMPY", b"PAR1", bytes(200)])
def test_text_and_fragments_under_a_wrong_name(tmp_path, ending, content):
    path = tmp_path / f"X.{ending}"
    path.write_bytes(content)
    np.save(tmp_path / "y.npy", np.arange(SAMPLES))
    unreadable("cannot be read: truncated, damaged or another kind of file; write it with", path)


@pytest.mark.parametrize("compressed", [False, True])
def test_npz_truncated_or_damaged_anywhere(tmp_path, compressed):
    save = np.savez_compressed if compressed else np.savez
    save(tmp_path / "data.npz", X=inputs(), y=np.arange(SAMPLES))
    whole = (tmp_path / "data.npz").read_bytes()
    reference = ArrayTask.load(tmp_path / "data.npz").hash()
    path = tmp_path / "broken.npz"
    for size in range(0, len(whole), 37):
        path.write_bytes(whole[:size])
        unreadable("cannot be read", path)
    lines = []
    for place in range(0, len(whole), 11):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            assert ArrayTask.load(path).hash() == reference  # a date or a comment: nothing that counts
        except BadInput as error:
            lines.append(str(error))
    assert len(lines) > len(whole) // 11 * 0.5
    assert not any("\n" in line for line in lines)


def test_npy_truncated_anywhere(tmp_path):
    np.save(tmp_path / "y.npy", np.arange(SAMPLES))
    np.save(tmp_path / "X.npy", inputs())
    whole = (tmp_path / "X.npy").read_bytes()
    for size in [*range(0, 140, 7), len(whole) - 1]:
        (tmp_path / "X.npy").write_bytes(whole[:size])
        unreadable("the array cannot be read", tmp_path / "X.npy")
    (tmp_path / "X.npy").write_bytes(whole + b"more")
    unreadable("the array cannot be read", tmp_path / "X.npy")
    (tmp_path / "X.npy").write_bytes(whole)
    assert ArrayTask.load(tmp_path / "X.npy").samples == SAMPLES


def test_npy_whose_header_promises_too_much(tmp_path):
    np.save(tmp_path / "y.npy", np.arange(SAMPLES))
    np.save(tmp_path / "X.npy", inputs())
    whole = (tmp_path / "X.npy").read_bytes()
    (tmp_path / "X.npy").write_bytes(whole.replace(b"(12, 5, 3), }          ", b"(12, 5, 9999999999999)}"))
    unreadable("cannot be read|does not fit in memory", tmp_path / "X.npy")


TRACES: list[str] = []


def leave_a_trace() -> None:
    TRACES.append("unpickled")


class Bomb:
    """An object that leaves a trace when it is unpickled."""

    def __reduce__(self):
        return leave_a_trace, ()


def test_pickles_are_never_opened(tmp_path):
    objects = np.empty(SAMPLES, dtype=object)
    objects[:] = [Bomb()] * SAMPLES
    np.savez(tmp_path / "data.npz", X=inputs(), y=objects, allow_pickle=True)
    unreadable("y holds pickled Python objects, which are never read", tmp_path / "data.npz")
    np.save(tmp_path / "X.npy", inputs())
    np.save(tmp_path / "y.npy", objects, allow_pickle=True)
    with pytest.raises(BadInput, match="pickled Python objects"):
        ArrayTask.load(tmp_path / "X.npy")
    (tmp_path / "p.npz").write_bytes(objects.dumps())
    unreadable("cannot be read", tmp_path / "p.npz")
    assert not TRACES
    np.load(tmp_path / "y.npy", allow_pickle=True)
    assert TRACES


def test_npz_with_other_arrays(tmp_path):
    X, y = inputs(), np.arange(SAMPLES)
    np.savez(tmp_path / "a.npz", X=X)
    unreadable("missing array y; found: X; write it with np.savez", tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", X=X, y=y, masks=some_mask())
    unreadable("unknown array 'masks': did you mean 'mask'", tmp_path / "b.npz")
    np.savez(tmp_path / "c.npz")
    unreadable("missing array X; found: none", tmp_path / "c.npz")
    with zipfile.ZipFile(tmp_path / "d.npz", "w") as archive:
        archive.writestr("X", "text")
    unreadable("X cannot be read", tmp_path / "d.npz")


def test_checks_of_arrays_name_the_file(tmp_path):
    np.savez(tmp_path / "data.npz", X=np.ones((SAMPLES, 4, 1, 1)), y=np.arange(SAMPLES))
    unreadable(r"X must be X\[samples, length, dim\]", tmp_path / "data.npz")
