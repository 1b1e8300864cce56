"""Arrays from .npz, .npy, .parquet and .csv files; every way in which a file can be wrong gives one line."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from headcount.base.errors import BadInput, MissingExtra, nearest
from headcount.tasks.array_csv import read_csv
from headcount.tasks.array_long import Arrays, Tokens, padded, roles, wanted, with_names

_NAMES = ("X", "y", "mask")


def read_arrays(path: Path, y: Path | None = None, *, text: bool = False) -> Arrays:
    """Read X, y and the mask, by the ending of the file; `ArrayTask.load` says what each kind holds.

    With `text` a column target may hold text, the names of classes, which comes as y[samples]; an array may anyway.
    """
    readers: dict[str, Callable[[], Arrays]] = {
        ".npz": lambda: _npz(path),
        ".npy": lambda: _npy_pair(path, y),
        ".parquet": lambda: _parquet(path, text),
        ".csv": lambda: read_csv(path, text),
    }
    ending = path.suffix.lower()
    if ending not in readers:
        raise BadInput(f"{path}: unknown kind of file {ending!r}: {nearest(ending, readers)}")
    _check_file(path)
    if y is not None and ending != ".npy":
        raise BadInput(f"{path}: a second file for y goes with .npy only: a {ending} file holds its own y")
    return readers[ending]()


def _check_file(path: Path, purpose: str = "") -> None:
    """Refuse what is not a file that can be read."""
    if path.is_dir():
        raise BadInput(f"{path} is a folder, not a file{purpose}")
    try:
        with path.open("rb"):
            return
    except FileNotFoundError:
        raise BadInput(f"there is no file {path}{purpose}") from None
    except OSError as error:
        raise BadInput(f"cannot read {path}{purpose}: {error.strerror}") from None


def _guarded(path: Path, what: str, remedy: str, read: Callable[[], Any]) -> Any:
    """Read, and turn whatever a broken file makes a reader raise into one line."""
    try:
        return read()
    except BadInput:
        raise
    except MemoryError as error:
        raise BadInput(f"{path}: {what} does not fit into memory, or its header is broken") from error
    except Exception as error:  # zip, zlib, NumPy's header and Arrow each have errors of their own
        if "Object arrays" in str(error):
            raise BadInput(
                f"{path}: {what} holds pickled Python objects, which are never read: save plain numbers"
            ) from error
        raise BadInput(
            f"{path}: {what} cannot be read: truncated, damaged or another kind of file; {remedy}"
        ) from error


def _array(handle: IO[bytes]) -> NDArray[Any]:
    """Read one array in NumPy's format, never unpickling, to the end of the file."""
    array = np.lib.format.read_array(handle, allow_pickle=False)
    if handle.read(1):  # in an archive, this also compares the checksum
        raise ValueError("more bytes than the header says")
    return array


def _npy(path: Path) -> NDArray[Any]:
    """Read the array of a .npy file."""

    def read() -> NDArray[Any]:
        with path.open("rb") as handle:
            return _array(handle)

    return _guarded(path, "the array", "write it with np.save", read)


def _npy_pair(path: Path, y: Path | None) -> Arrays:
    """Read X and its file of targets: given, or y for the X that stands alone in the name."""
    if y is None:
        stem, found = re.subn(r"(?<![A-Za-z])[Xx](?![A-Za-z])", "y", path.stem)
        if found != 1:
            raise BadInput(
                f"{path}: the file of the targets is not clear from this name: call them X.npy and y.npy, or state y= "
                f"in Python"
            )
        y = path.with_name(stem + path.suffix)
        _check_file(y, f" with the targets of {path}: write it, or state another with y= in Python")
    else:
        _check_file(y)
    return _npy(path), _npy(y), None


def _npz(path: Path) -> Arrays:
    """Read X, y and perhaps mask from a .npz file."""
    remedy = "write it with np.savez(path, X=X, y=y)"

    def read() -> dict[str, NDArray[Any]]:
        with zipfile.ZipFile(path) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist()]
            for name in names:
                if name not in _NAMES:
                    raise BadInput(f"{path}: unknown array {name!r}: {nearest(name, _NAMES)}")
            return {name: _guarded(path, name, remedy, lambda n=name: member(archive, n)) for name in names}

    def member(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
        with archive.open(f"{name}.npy") as handle:
            return _array(handle)

    found = _guarded(path, "the archive", remedy, read)
    for name in ("X", "y"):
        if name not in found:
            raise BadInput(f"{path}: there is no array {name}; found: {', '.join(found) or 'none'}; {remedy}")
    return found["X"], found["y"], found.get("mask")


def _parquet(path: Path, names_classes: bool) -> Arrays:
    """Read tokens in long form, and pad the sequences to the longest."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingExtra("pyarrow", "parquet", "reading Parquet") from None

    def read() -> Any:
        with pq.ParquetFile(path) as file:
            return file.read()

    table = _guarded(path, "the table", "write it with DataFrame.to_parquet", read)
    names: list[str] = table.column_names
    targets, features = roles(str(path), names)
    if table.num_rows == 0:
        raise BadInput(f"{path}: the table has no rows: give one row a token")
    for name in names:
        kind, column = table.schema.field(name).type, table.column(name)
        text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        whole = pa.types.is_integer(kind)
        number = whole or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
        named = name == "target" and names_classes and _is_text(kind)
        fits = {"sequence": whole or text, "position": whole}.get(name, number or named)
        if not fits:
            raise BadInput(f"{path}: column {name!r} holds {kind}: it must hold {wanted(name)}, or be left out")
        if column.null_count:
            row = column.to_pylist().index(None)
            raise BadInput(f"{path}: column {name!r} has no value in row {row} (from 0): fill or drop such rows")

    def encoded(name: str) -> tuple[Any, NDArray[np.int64]]:
        """Return the different values of a column, and for every row the place of its value among them."""
        found = table.column(name).combine_chunks().dictionary_encode()
        found = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
        return found.dictionary, found.indices.to_numpy().astype(np.int64)

    labels, codes = encoded("sequence")
    named = _is_text(table.schema.field(targets[0]).type)
    classes, numbered = encoded("target") if named else (None, codes)
    position = table.column("position").to_numpy().astype(np.int64)

    def block(columns: list[str]) -> NDArray[np.float64]:
        return np.stack([table.column(c).to_numpy().astype(np.float64) for c in columns], axis=1)

    tokens = Tokens(
        codes, position, block(features), block(targets) if classes is None else numbered[:, None].astype(np.float64),
        label=lambda code: labels[code].as_py(), place=lambda row: f"row {row} (from 0)",
    )  # fmt: skip
    return with_names(padded(path, tokens), None if classes is None else classes.to_pylist())


def _is_text(kind: Any) -> bool:
    """Whether an Arrow type is text, or a category of text."""
    import pyarrow as pa

    values = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.types.is_string(values) or pa.types.is_large_string(values)
