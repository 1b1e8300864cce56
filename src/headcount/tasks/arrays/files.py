"""Read arrays from .npz, .npy, .parquet and .csv files; anything wrong with a file is an error of one line."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headcount.core import BadInput, MissingExtra, nearest
from headcount.core.readers import check_size, guarded, npz_names, read_npy, read_npz
from headcount.tasks.arrays.csv import read_csv
from headcount.tasks.arrays.long_form import (
    Arrays,
    Tokens,
    column_roles,
    pad_sequences,
    required_content,
    with_class_names,
)

_NAMES = ("X", "y", "mask")


def read_arrays(path: Path, y: Path | None = None, *, text: bool = False) -> Arrays:
    """Return X, y and the mask of a file, by its ending; `ArrayTask.load` documents each format.

    With `text` the column target may hold class names, returned as y[samples]; an array may always hold them.
    """
    readers: dict[str, Callable[[], Arrays]] = {
        ".npz": lambda: _npz(path),
        ".npy": lambda: _npy_pair(path, y),
        ".parquet": lambda: _parquet(path, text),
        ".csv": lambda: read_csv(path, text),
    }
    ending = path.suffix.lower()
    if ending not in readers:
        raise BadInput(f"{path}: unknown file type {ending!r}: {nearest(ending, readers)}")
    _check_file(path)
    if y is not None and ending != ".npy":
        raise BadInput(f"{path}: a second file for y goes with .npy only: a {ending} file holds its own y")
    return readers[ending]()


def _check_file(path: Path, purpose: str = "") -> None:
    """Check that a file exists and can be read; `purpose` follows its name in the error."""
    if path.is_dir():
        raise BadInput(f"{path} is a folder, not a file{purpose}")
    try:
        with path.open("rb"):
            return
    except FileNotFoundError:
        raise BadInput(f"no such file: {path}{purpose}") from None
    except OSError as error:
        raise BadInput(f"cannot read {path}{purpose}: {error.strerror}") from None


def _npy_pair(path: Path, y: Path | None) -> Arrays:
    """Read X and its file of targets: given, or the sibling whose name has y for a free-standing X."""
    if y is None:
        stem, found = re.subn(r"(?<![A-Za-z])[Xx](?![A-Za-z])", "y", path.stem)
        if found != 1:
            raise BadInput(
                f"{path}: cannot tell the file of targets from this name: call the files X.npy and y.npy, or pass y= "
                f"in Python"
            )
        y = path.with_name(stem + path.suffix)
        _check_file(y, f" (the targets of {path}): create it, or pass another with y= in Python")
    else:
        _check_file(y)
    return read_npy(path), read_npy(y), None


def _npz(path: Path) -> Arrays:
    """Read X, y and, if present, mask from a .npz file."""
    remedy = "write it with np.savez(path, X=X, y=y)"
    for name in npz_names(path, remedy):
        if name not in _NAMES:
            raise BadInput(f"{path}: unknown array {name!r}: {nearest(name, _NAMES)}")
    found = read_npz(path, remedy=remedy)
    for name in ("X", "y"):
        if name not in found:
            raise BadInput(f"{path}: missing array {name}; found: {', '.join(found) or 'none'}; {remedy}")
    return found["X"], found["y"], found.get("mask")


def _parquet(path: Path, names_classes: bool) -> Arrays:
    """Read tokens in long form, and pad the sequences to the longest; with `names_classes` the target may be text."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingExtra("pyarrow", "parquet", "reading Parquet") from None

    remedy = "write it with DataFrame.to_parquet"
    file = guarded(path, "the table", remedy, lambda: pq.ParquetFile(path))
    with file:
        schema, rows = file.schema_arrow, file.metadata.num_rows
        names: list[str] = schema.names
        targets, features = column_roles(str(path), names)
        if rows == 0:
            raise BadInput(f"{path}: the table has no rows: give one row per token")
        _check_column_types(path, schema, names_classes)
        check_size(rows * len(names) * 8, path.stat().st_size, f"{path}: the table")
        texts = [name for name in names if _is_text(schema.field(name).type)]  # a repeated long text is small on disk
    table = guarded(path, "the table", remedy, lambda: _read_table(path, texts))
    if table.num_rows != rows:
        raise BadInput(
            f"{path}: the table has {table.num_rows:,} rows, but its header says {rows:,}: it is damaged; {remedy}"
        )
    for name in names:
        column = table.column(name)
        if column.null_count:
            row = column.is_null().to_pylist().index(True)
            raise BadInput(f"{path}: column {name!r} has no value in row {row} (from 0): fill or drop such rows")

    def encoded(name: str) -> tuple[Any, NDArray[np.int64]]:
        """Return the distinct values of a column, and for every row the index of its value."""
        column = table.column(name).combine_chunks().dictionary_encode()
        column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        return column.dictionary, column.indices.to_numpy().astype(np.int64)

    labels, codes = encoded("sequence")
    has_names = _is_text(table.schema.field(targets[0]).type)
    classes, class_codes = encoded("target") if has_names else (None, codes)
    position = table.column("position").to_numpy().astype(np.int64)

    def block(columns: list[str]) -> NDArray[np.float64]:
        return np.stack([table.column(c).to_numpy().astype(np.float64) for c in columns], axis=1)

    tokens = Tokens(
        codes,
        position,
        block(features),
        block(targets) if classes is None else class_codes[:, None].astype(np.float64),
        label=lambda code: labels[code].as_py(),
        place=lambda row: f"row {row} (from 0)",
    )
    return with_class_names(pad_sequences(path, tokens), None if classes is None else classes.to_pylist())


def _read_table(path: Path, texts: list[str]) -> Any:
    """Read a table, with text columns as indices into their distinct values."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path, read_dictionary=texts) as file:
        return file.read()


def _check_column_types(path: Path, schema: Any, names_classes: bool) -> None:
    """Refuse columns of the wrong type for their role, before their data are read."""
    import pyarrow as pa

    for name in schema.names:
        kind = schema.field(name).type
        text, integer = pa.types.is_string(kind) or pa.types.is_large_string(kind), pa.types.is_integer(kind)
        number = integer or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
        named = name == "target" and names_classes and _is_text(kind)
        if not {"sequence": integer or text, "position": integer}.get(name, number or named):
            raise BadInput(
                f"{path}: column {name!r} holds {kind}: it must hold {required_content(name)}, or be left out"
            )


def _is_text(kind: Any) -> bool:
    """Whether an Arrow type is text, or a category of text."""
    import pyarrow as pa

    values = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.types.is_string(values) or pa.types.is_large_string(values)
