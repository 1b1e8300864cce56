"""How a table fits a width of 40 cells or more: nothing is cut, and what is left out is named.

In this order: all columns side by side; headers folded between words, then long texts; a smaller gap; several tables
below each other that repeat the key columns; minor columns left out; and, if not even one column fits beside the keys,
a list of names and values for each row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from rich.cells import cell_len

from headcount.core.text import fold

COLUMN_GAP = 2
"""Blank cells between columns."""
MIN_TEXT_WIDTH = 20
"""Cells; a table is split rather than a long text folded to less."""
MAX_HEADER_LINES = 3
"""A table is split rather than a header folded to more lines."""
MAX_PARTS = 3
"""Minor columns are left out rather than a table split into more parts."""

Line = list[tuple[str, str]]
"""Texts with their styles, from left to right."""
Widths = dict[int, int]
"""Widths of the columns of a part, in cells, by column number."""


@dataclass(frozen=True)
class LaidColumn:
    """A column to be laid out."""

    name: str
    cells: Sequence[str]
    folds: bool = False
    """Whether its cells are texts, which may break between words; numbers never do."""
    key: bool = False
    minor: bool = False
    hang: int = 0
    """Cells by which further lines of a text are indented."""
    styles: Mapping[str, str] = field(default_factory=dict[str, str])

    @cached_property
    def full_width(self) -> int:
        """The width at which nothing is folded."""
        return max(cell_len(line) for text in (self.name, *self.cells) for line in text.split("\n"))

    @cached_property
    def min_width(self) -> int:
        """The width below which a number or a word would be cut."""
        widths = [cell_len(word) for word in _words(self.name)]
        for line in (line for text in self.cells for line in text.split("\n")):
            first, *rest = line.split(" ") if self.folds else [line]
            widths += [cell_len(first), *(cell_len(word) + self.hang for word in rest)]
        return max(widths)

    @cached_property
    def one_word_numbers(self) -> bool:
        """Whether all its cells are numbers of one word, which a single blank separates well enough."""
        return not self.folds and not any(blank in text for text in (self.name, *self.cells) for blank in " \u00a0")

    @cached_property
    def preferred_width(self) -> int:
        """The width to which it is folded before the table is split instead."""
        width = min(self.full_width, max(self.min_width, MIN_TEXT_WIDTH)) if self.folds else self.min_width
        while len(fold(self.name, width, 0)) > MAX_HEADER_LINES:
            width += 1
        return width

    def tight_width(self, width: int) -> int:
        """Return the smallest width at which everything folds as it does at `width`."""
        lines = [line for text in self.cells for line in fold(text, width, self.hang)] if self.folds else []
        return max(1 if self.folds else self.min_width, *map(cell_len, [*fold(self.name, width, 0), *lines]))

    def line(self, text: str, width: int) -> str:
        """Return one line of a cell, padded: texts are left-aligned, numbers right-aligned."""
        blank = " " * (width - cell_len(text))
        return text + blank if self.folds else blank + text


@dataclass(frozen=True)
class TableLayout:
    """The parts of a table and their columns."""

    parts: list[Widths]
    """The columns of each part; empty if every row becomes a list."""
    gap: int
    left_out: list[int]
    """Columns that do not appear."""


def lay_out(columns: Sequence[LaidColumn], width: int) -> TableLayout:
    """Return the layout of a table at a width."""
    shown = list(range(len(columns)))
    minor = [i for i in shown if columns[i].minor and not columns[i].key]
    parts, gap = _split(columns, shown, width)
    while len(parts) > MAX_PARTS and minor:
        shown.remove(minor.pop())
        parts, gap = _split(columns, shown, width)
    widths = [_widened(columns, part, width, gap) for part in parts]
    return TableLayout(widths, gap, [i for i in range(len(columns)) if i not in shown])


def _split(columns: Sequence[LaidColumn], shown: Sequence[int], width: int) -> tuple[list[Widths], int]:
    """Return the columns of each part that fits the width, each with the key columns first, and the gap; no parts if
    that is impossible.
    """
    for gap in (COLUMN_GAP, 1) if all(columns[i].one_word_numbers for i in shown) else (COLUMN_GAP,):
        if sum(columns[i].preferred_width + gap for i in shown) - gap <= width:
            return [{i: columns[i].preferred_width for i in shown}], gap
    others = [i for i in shown if not columns[i].key]
    keyed = [i for i in shown if columns[i].key]
    for keys in ({i: columns[i].preferred_width for i in keyed}, {i: columns[i].min_width for i in keyed}):
        room = width - sum(size + COLUMN_GAP for size in keys.values())
        if all(columns[i].min_width <= room for i in others) and (others or room + COLUMN_GAP >= 0):
            sizes = {i: min(columns[i].preferred_width, room) for i in others}
            return [keys | part for part in _balanced(sizes, room, any(columns[i].folds for i in others))], COLUMN_GAP
    return [], COLUMN_GAP


def _balanced(widths: Widths, room: int, texts: bool) -> list[Widths]:
    """Distribute columns over as few parts as possible; numbers without texts are distributed evenly."""
    parts = _filled(widths, room)
    for narrower in () if texts or len(parts) == 1 else range(max(widths.values()), room):
        if len(even := _filled(widths, narrower)) == len(parts):
            return even
    return parts


def _filled(widths: Widths, room: int) -> list[Widths]:
    """Fill one part after the other, in the order of the columns."""
    parts: list[Widths] = [{}]
    for i, size in widths.items():
        if parts[-1] and sum(taken + COLUMN_GAP for taken in parts[-1].values()) + size > room:
            parts.append({})
        parts[-1][i] = size
    return parts


def _widened(columns: Sequence[LaidColumn], part: Widths, width: int, gap: int) -> Widths:
    """Give the remaining room to the texts that are folded most, then to such headers."""
    found = dict(part)
    room = width - sum(found.values()) - gap * (len(found) - 1)
    while room > 0 and (folded := [i for i in found if columns[i].folds and found[i] < columns[i].full_width]):
        found[min(folded, key=lambda i: found[i] / columns[i].full_width)] += 1
        room -= 1
    found = {i: columns[i].tight_width(size) for i, size in found.items()}
    room = width - sum(found.values()) - gap * (len(found) - 1)
    while True:
        lines = {i: len(fold(columns[i].name, size, 0)) for i, size in found.items()}
        top = max(lines, key=lambda i: lines[i])
        wider = (n for n in range(1, room + 1) if len(fold(columns[top].name, found[top] + n, 0)) < lines[top])
        more = next(wider, 0)
        if not more:
            return found
        found[top] += more
        room -= more


def table_lines(columns: Sequence[LaidColumn], width: int, marked: int | None = None) -> Iterator[Line]:
    """Return the lines of a table at a width; the row `marked` is bold."""
    found = lay_out(columns, width)
    for number, part in enumerate(found.parts):
        if number:
            yield []
        yield from _grid(columns, part, found.gap, marked)
    if not found.parts:
        for number in range(len(columns[0].cells)):
            if number:
                yield []
            pairs = [(column.name, column.cells[number]) for column in columns]
            yield from list_lines(pairs, width, "bold" if number == marked else "")
    if found.left_out:
        names = ", ".join(columns[i].name for i in found.left_out)
        yield from ([(line, "dim")] for line in fold(f"left out at {width} columns: {names}; --json has all", width))


def _grid(columns: Sequence[LaidColumn], part: Widths, gap: int, marked: int | None) -> Iterator[Line]:
    """Return the header, the rule and the rows of columns side by side."""
    heads = [fold(columns[i].name, size, 0) for i, size in part.items()]
    tall = max(map(len, heads))
    heads = [[""] * (tall - len(head)) + head for head in heads]  # short headers stand on the rule
    yield from _side_by_side(columns, part, gap, heads, lambda _: "bold")
    yield [("─" * (sum(part.values()) + gap * (len(part) - 1)), "")]
    for number in range(len(columns[0].cells)):
        texts = {i: columns[i].cells[number] for i in part}
        cells = [
            fold(text, part[i], columns[i].hang) if columns[i].folds else text.split("\n") for i, text in texts.items()
        ]
        bold = "bold" if number == marked else ""
        yield from _side_by_side(columns, part, gap, cells, lambda i, b=bold, t=texts: columns[i].styles.get(t[i], b))


def _side_by_side(
    columns: Sequence[LaidColumn], part: Widths, gap: int, cells: Sequence[Sequence[str]], style: Callable[[int], str]
) -> Iterator[Line]:
    for number in range(max(map(len, cells))):
        line: Line = []
        for (i, size), texts in zip(part.items(), cells, strict=True):
            text = texts[number] if number < len(texts) else ""
            line += [(" " * gap if line else "", ""), (columns[i].line(text, size), style(i))]
        yield line


def list_lines(pairs: Sequence[tuple[str, str]], width: int, style: str = "") -> Iterator[Line]:
    """Return the lines of a list of names and values; values are folded beside their names or, if too wide, below."""
    words = [cell_len(word) for name, _ in pairs for word in _words(name)]
    size = min(max(cell_len(name) for name, _ in pairs), max(width // 3, *words))
    for name, value in pairs:
        if not value:
            continue
        names, values = fold(name, size, 0), fold(value, width - size - COLUMN_GAP, 0)
        if max(map(cell_len, values)) > width - size - COLUMN_GAP:
            yield from ([(line, style)] for line in fold(name, width))
            yield from ([("  " + line, style)] for line in fold(value, width - 2, 0))
            continue
        for number in range(max(len(names), len(values))):
            left, right = (texts[number] if number < len(texts) else "" for texts in (names, values))
            yield [(left + " " * (size - cell_len(left) + COLUMN_GAP), style), (right, style)]


def _words(text: str) -> list[str]:
    return [word for line in text.split("\n") for word in line.split(" ")]
