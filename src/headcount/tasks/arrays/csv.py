"""Sequences in long form from a .csv file, as numbers; every error names its line."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from headcount.core import BadInput
from headcount.core.readers import MAX_LINE_BYTES, read_lines
from headcount.tasks.arrays.long_form import (
    Arrays,
    Tokens,
    column_roles,
    pad_sequences,
    required_content,
    with_class_names,
)

_MAX_BLOCK_ROWS = 1_000  # rows whose text is in memory at a time; many more would slow the garbage collector
_MAX_BLOCK_CELLS = 1_000_000  # cells of these rows; as Python strings they take some 60 MB
_BOOLEANS = {"true": 1.0, "false": 0.0}


def read_csv(path: Path, text: bool = False) -> Arrays:
    """Return the sequences of a .csv file, padded to the longest; with `text` the target may hold class names."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as handle:
            tokens, classes = _tokens(path, handle, text)
        return with_class_names(pad_sequences(path, tokens), classes)
    except UnicodeDecodeError:
        raise BadInput(f"{path}, line {_undecodable_line(path)}: not UTF-8: save the file as CSV in UTF-8") from None


def _undecodable_line(path: Path) -> int:
    """Return the line of the first byte that is not UTF-8; the buffered reader's error does not know it."""
    for number, line in enumerate(read_lines(path), 1):
        try:
            line.decode()
        except UnicodeDecodeError:
            return number
    return 1


def _lines(path: Path, handle: TextIO) -> Iterator[str]:
    """Yield the lines unchanged; an endless line is refused before it fills the memory."""
    number = 0
    while line := handle.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            raise BadInput(f"{path}, line {number}: longer than {MAX_LINE_BYTES:,} characters: this is not CSV")
        yield line


def _records(path: Path, handle: TextIO) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of every record that is not blank, with the number of its first line."""
    reader = csv.reader(_lines(path, handle), skipinitialspace=True, strict=True)
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise BadInput(
                f"{path}, line {line}: not CSV ({error}): close every quote, and double the quotes inside quoted text"
            ) from error
        if cells is None:
            return
        if len(cells) > 1 or (cells and cells[0].strip()):
            yield line, cells


def _header(path: Path, records: Iterator[tuple[int, list[str]]]) -> tuple[str, list[str]]:
    """Return the place of the header, for errors, and the names of the columns."""
    line, cells = next(records, (0, list[str]()))
    if not line:
        raise BadInput(f"{path}: the file is empty: the first line must name the columns; one row per token follows")
    where, names = f"{path}, line {line}", [cell.strip() for cell in cells]
    if len(names) == 1 and any(mark in names[0] for mark in ";\t"):
        raise BadInput(f"{where}: the columns are not separated by commas: save the file with commas")
    if "" in names:
        raise BadInput(
            f"{where}: column {names.index('') + 1} has no name: name it or drop it, e.g. by df.to_csv(…, index=False)"
        )
    return where, names


def _tokens(path: Path, handle: TextIO, text: bool) -> tuple[Tokens, list[str] | None]:
    """Read all rows in blocks; also return the class names where the target is text, as the first row shows."""
    records = _records(path, handle)
    where, names = _header(path, records)
    targets, features = column_roles(where, names)
    codes: dict[str, int] = {}
    classes: dict[str, int] | None = None
    blocks: list[_Block] = []
    while rows := _next_rows(path, records, len(names)):
        if not blocks and text and targets == ["target"]:
            first = rows[0][1][names.index("target")].strip().lower()
            classes = {} if first and _number(first) is None else None
        blocks.append(_Block(path, names, rows, codes, classes))
    if not blocks:
        raise BadInput(f"{path}: the table has no rows: give one row per token")
    lines = np.concatenate([block.lines for block in blocks])
    numbers = np.concatenate([block.numbers for block in blocks])
    labels, place = list(codes), {name: i for i, name in enumerate(names)}
    tokens = Tokens(
        codes=np.concatenate([block.codes for block in blocks]),
        position=np.concatenate([block.position for block in blocks]),
        features=numbers[:, [place[name] for name in features]],
        targets=numbers[:, [place[name] for name in targets]],
        label=labels.__getitem__,
        place=lambda row: f"line {lines[row]}",
    )
    return tokens, None if classes is None else list(classes)


def _next_rows(path: Path, records: Iterator[tuple[int, list[str]]], width: int) -> list[tuple[int, list[str]]]:
    """Return the records of the next block, each checked to be as wide as the header."""
    rows: list[tuple[int, list[str]]] = []
    for line, cells in records:
        if len(cells) != width:
            raise BadInput(f"{path}, line {line}: {len(cells)} values, but the header has {width} columns")
        rows.append((line, cells))
        if len(rows) == _MAX_BLOCK_ROWS or len(rows) * width >= _MAX_BLOCK_CELLS:
            break
    return rows


class _Block:
    """A block of rows as numbers, with all columns of the file; those of sequence and position stay 0."""

    def __init__(
        self,
        path: Path,
        names: list[str],
        rows: list[tuple[int, list[str]]],
        codes: dict[str, int],
        classes: dict[str, int] | None = None,
    ) -> None:
        self.path = path
        self.lines = np.array([line for line, _ in rows])
        self.numbers = np.zeros((len(rows), len(names)))
        for i, (name, column) in enumerate(zip(names, zip(*(cells for _, cells in rows), strict=True), strict=True)):
            if name == "sequence":
                self._refuse_blanks(name, column)
                self.codes = np.array([codes.setdefault(label, len(codes)) for label in column], dtype=np.int64)
            elif name == "position":
                self.position = self._integers(name, column)
            elif name == "target" and classes is not None:
                self.numbers[:, i] = self._class_indices(name, column, classes)
            else:
                self.numbers[:, i] = self._floats(name, column)

    def _refuse_blanks(self, name: str, column: Sequence[str]) -> None:
        for row, cell in enumerate(column):
            if not cell.strip():
                raise self._error(row, name, "has no value: fill or drop such rows")

    def _class_indices(self, name: str, column: Sequence[str], classes: dict[str, int]) -> list[int]:
        """Return the indices of the class names; a number among them is refused as a mistake."""
        self._refuse_blanks(name, column)
        words = [cell.strip() for cell in column]
        for row, word in enumerate(words):
            if word not in classes and _number(word.lower()) is not None:
                raise self._error(row, name, f"holds {_brief(word)} after text: it must hold only text or only numbers")
        return [classes.setdefault(word, len(classes)) for word in words]

    def _integers(self, name: str, column: Sequence[str]) -> NDArray[np.int64]:
        """Return a column of whole numbers."""
        self._refuse_blanks(name, column)
        try:
            found = np.array([int(cell) for cell in column], dtype=np.int64)
            if not any("_" in cell for cell in column):  # Python would read 1_0 as 10
                return found
        except (ValueError, OverflowError):
            pass
        row = next(row for row, cell in enumerate(column) if not _is_int64(cell))
        raise self._error(row, name, f"holds {_brief(column[row])}: it must hold {required_content(name)}")

    def _floats(self, name: str, column: Sequence[str]) -> NDArray[np.float64]:
        """Return a column of finite numbers, parsed at once where nothing is wrong."""
        try:
            found = np.array([float(cell) for cell in column])
            if np.isfinite(found).all() and not any("_" in cell for cell in column):
                return found
        except ValueError:
            pass
        self._refuse_blanks(name, column)
        return np.array([self._float(row, name, cell) for row, cell in enumerate(column)])

    def _float(self, row: int, name: str, cell: str) -> float:
        """Return one number or boolean."""
        number = _number(cell.strip().lower())
        if number is None:
            remedy = "; number the classes 0, 1, 2, …" if name.startswith("target") else ", or be left out"
            raise self._error(
                row, name, f"holds the text {_brief(cell)}: it must hold {required_content(name)}{remedy}"
            )
        if not np.isfinite(number):
            raise self._error(row, name, f"holds {_brief(cell)}: drop or fill such entries")
        return number

    def _error(self, row: int, name: str, problem: str) -> BadInput:
        return BadInput(f"{self.path}, line {self.lines[row]}: column {name!r} {problem}")


def _number(word: str) -> float | None:
    try:
        return None if "_" in word else _BOOLEANS[word] if word in _BOOLEANS else float(word)
    except ValueError:
        return None


def _is_int64(cell: str) -> bool:
    """Whether a cell holds a 64-bit whole number."""
    try:
        return "_" not in cell and -(2**63) <= int(cell) < 2**63
    except ValueError:
        return False


def _brief(cell: str) -> str:
    """Return the repr of a cell, truncated to 40 characters."""
    return repr(cell if len(cell) <= 40 else cell[:40] + "…")
