"""Sequences in long form from a .csv file: text in, numbers out, every mistake with its line."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from headcount.core import BadInput
from headcount.core.readers import MAX_LINE_BYTES, read_lines
from headcount.tasks.arrays.long_form import Arrays, Tokens, padded, roles, wanted, with_names

_AT_ONCE = 1_000  # rows whose text is held at a time; with many more the garbage collector takes over
_CELLS_AT_ONCE = 1_000_000  # of these rows; as texts of their own they take some 60 MB
_TRUTH = {"true": 1.0, "false": 0.0}  # as tables of truth values are written


def read_csv(path: Path, text: bool = False) -> Arrays:
    """Read tokens in long form, and pad the sequences to the longest; with `text` the target may hold names."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as handle:
            tokens, classes = _tokens(path, handle, text)
        return with_names(padded(path, tokens), classes)
    except UnicodeDecodeError:
        raise BadInput(f"{path}, line {_undecodable(path)}: this is not UTF-8: save the file as CSV in UTF-8") from None


def _undecodable(path: Path) -> int:
    """The line of the first byte that is no UTF-8; the error of the buffered reader does not know it."""
    for number, line in enumerate(read_lines(path), 1):
        try:
            line.decode()
        except UnicodeDecodeError:
            return number
    return 1


def _lines(path: Path, handle: TextIO) -> Iterator[str]:
    """Yield the lines as they are; one that has no end is refused before it is held."""
    number = 0
    while line := handle.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            raise BadInput(f"{path}, line {number}: longer than {MAX_LINE_BYTES:,} characters: not CSV")
        yield line


def _records(path: Path, handle: TextIO) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of every record that is not blank, with the line on which it begins."""
    reader = csv.reader(_lines(path, handle), skipinitialspace=True, strict=True)
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise BadInput(
                f"{path}, line {line}: not CSV ({error}): close every quote, and double quotes in quotes"
            ) from error
        if cells is None:
            return
        if len(cells) > 1 or (cells and cells[0].strip()):
            yield line, cells


def _header(path: Path, records: Iterator[tuple[int, list[str]]]) -> tuple[str, list[str]]:
    """Return the place and the names of the columns."""
    line, cells = next(records, (0, list[str]()))
    if not line:
        raise BadInput(f"{path}: the file is empty: the first line names the columns, then comes one row a token")
    where, names = f"{path}, line {line}", [cell.strip() for cell in cells]
    if len(names) == 1 and any(mark in names[0] for mark in ";\t"):
        raise BadInput(f"{where}: the columns are not separated by commas: write the file with commas")
    if "" in names:
        raise BadInput(
            f"{where}: column {names.index('') + 1} has no name: name it or drop it, as df.to_csv(…, index=False) does"
        )
    return where, names


def _tokens(path: Path, handle: TextIO, text: bool) -> tuple[Tokens, list[str] | None]:
    """Read all rows, some at a time; where the target is text, as the first row shows, also its names."""
    records = _records(path, handle)
    where, names = _header(path, records)
    targets, features = roles(where, names)
    codes: dict[str, int] = {}
    classes: dict[str, int] | None = None
    blocks: list[_Block] = []
    while rows := _some(path, records, len(names)):
        if not blocks and text and targets == ["target"]:
            first = rows[0][1][names.index("target")].strip().lower()
            classes = {} if first and _number(first) is None else None
        blocks.append(_Block(path, names, rows, codes, classes))
    if not blocks:
        raise BadInput(f"{path}: the table has no rows: give one row a token")
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


def _some(path: Path, records: Iterator[tuple[int, list[str]]], width: int) -> list[tuple[int, list[str]]]:
    """Take the next records, all as wide as the header."""
    rows: list[tuple[int, list[str]]] = []
    for line, cells in records:
        if len(cells) != width:
            raise BadInput(f"{path}, line {line}: {len(cells)} values, but the header names {width} columns")
        rows.append((line, cells))
        if len(rows) == _AT_ONCE or len(rows) * width >= _CELLS_AT_ONCE:
            break
    return rows


class _Block:
    """Some rows as numbers, a column for every one of the file; those of sequence and position stay empty."""

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
                self.position = self._whole(name, column)
            elif name == "target" and classes is not None:
                self.numbers[:, i] = self._named(name, column, classes)
            else:
                self.numbers[:, i] = self._floats(name, column)

    def _refuse_blanks(self, name: str, column: Sequence[str]) -> None:
        for row, cell in enumerate(column):
            if not cell.strip():
                raise self._bad(row, name, "has no value: fill or drop such rows")

    def _named(self, name: str, column: Sequence[str], classes: dict[str, int]) -> list[int]:
        """Return the places of the names of classes; a number among them is a slip."""
        self._refuse_blanks(name, column)
        words = [cell.strip() for cell in column]
        for row, word in enumerate(words):
            if word not in classes and _number(word.lower()) is not None:
                raise self._bad(row, name, f"holds {_shown(word)}, but text before: it must hold one or the other")
        return [classes.setdefault(word, len(classes)) for word in words]

    def _whole(self, name: str, column: Sequence[str]) -> NDArray[np.int64]:
        """Read whole numbers."""
        self._refuse_blanks(name, column)
        try:
            found = np.array([int(cell) for cell in column], dtype=np.int64)
            if not any("_" in cell for cell in column):  # Python reads 1_0 as 10
                return found
        except (ValueError, OverflowError):
            pass
        row = next(row for row, cell in enumerate(column) if not _is_whole(cell))
        raise self._bad(row, name, f"holds {_shown(column[row])}: it must hold {wanted(name)}")

    def _floats(self, name: str, column: Sequence[str]) -> NDArray[np.float64]:
        """Read finite numbers, all at once where nothing is wrong."""
        try:
            found = np.array([float(cell) for cell in column])
            if np.isfinite(found).all() and not any("_" in cell for cell in column):
                return found
        except ValueError:
            pass
        self._refuse_blanks(name, column)
        return np.array([self._float(row, name, cell) for row, cell in enumerate(column)])

    def _float(self, row: int, name: str, cell: str) -> float:
        """Read one number or truth value."""
        number = _number(cell.strip().lower())
        if number is None:
            remedy = "; number classes 0, 1, 2, …" if name.startswith("target") else ", or be left out"
            raise self._bad(row, name, f"holds the text {_shown(cell)}: it must hold {wanted(name)}{remedy}")
        if not np.isfinite(number):
            raise self._bad(row, name, f"holds {_shown(cell)}: drop or fill such entries")
        return number

    def _bad(self, row: int, name: str, what: str) -> BadInput:
        return BadInput(f"{self.path}, line {self.lines[row]}: column {name!r} {what}")


def _number(word: str) -> float | None:
    try:
        return None if "_" in word else _TRUTH[word] if word in _TRUTH else float(word)
    except ValueError:
        return None


def _is_whole(cell: str) -> bool:
    """Whether a cell holds a whole number of 64 bits."""
    try:
        return "_" not in cell and -(2**63) <= int(cell) < 2**63
    except ValueError:
        return False


def _shown(cell: str) -> str:
    """A cell on one line, cut where it is long."""
    return repr(cell if len(cell) <= 40 else cell[:40] + "…")
