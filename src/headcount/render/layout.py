"""How a table fits a width of 40 columns or more: nothing is cut, and what is left out is named.

In this order: all columns side by side; header words folded, then the words of long texts; a smaller gap; several
tables below each other that repeat the key columns; columns marked as minor left out; and where not even one column
fits beside the keys, a list of names and values for each row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from rich.cells import cell_len

from headcount.core.text import fold

GAP = 2
"""Blanks between columns."""
READABLE = 20
"""Cells to which a long text is folded before the table is split instead."""
HEADER_LINES = 3
"""Lines to which a header is folded before the table is split instead."""
MAX_PARTS = 3
"""Tables into which one is split before minor columns are left out."""

Line = list[tuple[str, str]]
"""Texts with their styles, side by side."""
Widths = dict[int, int]
"""The width of each column of a part, in cells, by the column's number."""


@dataclass(frozen=True)
class Strip:
    """A column as it is laid out."""

    name: str
    cells: Sequence[str]
    folds: bool = False
    """Whether its cells are texts, which may break between words; others are numbers, which never do."""
    key: bool = False
    minor: bool = False
    hang: int = 0
    """By how many cells its texts go on further right than they began."""
    styles: Mapping[str, str] = field(default_factory=dict[str, str])

    @cached_property
    def whole(self) -> int:
        """The width at which nothing is folded."""
        return max(cell_len(line) for text in (self.name, *self.cells) for line in text.split("\n"))

    @cached_property
    def least(self) -> int:
        """The width below which a number or a word would be cut."""
        widths = [cell_len(word) for word in _words(self.name)]
        for line in (line for text in self.cells for line in text.split("\n")):
            first, *rest = line.split(" ") if self.folds else [line]
            widths += [cell_len(first), *(cell_len(word) + self.hang for word in rest)]
        return max(widths)

    @cached_property
    def single(self) -> bool:
        """Whether it has numbers of one word each, which a single blank parts well enough."""
        return not self.folds and not any(blank in text for text in (self.name, *self.cells) for blank in " \u00a0")

    @cached_property
    def good(self) -> int:
        """The width down to which it is folded rather than the table split."""
        width = min(self.whole, max(self.least, READABLE)) if self.folds else self.least
        while len(fold(self.name, width, 0)) > HEADER_LINES:
            width += 1
        return width

    def tight(self, width: int) -> int:
        """Return the least width at which everything is folded as it is at `width`."""
        lines = [line for text in self.cells for line in fold(text, width, self.hang)] if self.folds else []
        return max(1 if self.folds else self.least, *map(cell_len, [*fold(self.name, width, 0), *lines]))

    def line(self, text: str, width: int) -> str:
        """Return one line of a cell, padded to its side: texts stand left, numbers right."""
        blank = " " * (width - cell_len(text))
        return text + blank if self.folds else blank + text


@dataclass(frozen=True)
class Plan:
    """What stands where."""

    parts: list[Widths]
    """The columns of each table; none where every row is a list."""
    gap: int
    left_out: list[int]


def plan(strips: Sequence[Strip], width: int) -> Plan:
    """Decide what stands where."""
    shown = list(range(len(strips)))
    minor = [i for i in shown if strips[i].minor and not strips[i].key]
    parts, gap = _parts(strips, shown, width)
    while len(parts) > MAX_PARTS and minor:
        shown.remove(minor.pop())
        parts, gap = _parts(strips, shown, width)
    widths = [_widened(strips, part, width, gap) for part in parts]
    return Plan(widths, gap, [i for i in range(len(strips)) if i not in shown])


def _parts(strips: Sequence[Strip], shown: Sequence[int], width: int) -> tuple[list[Widths], int]:
    """Share columns out among tables that fit; each begins with the key columns. None where that cannot be done."""
    for gap in (GAP, 1) if all(strips[i].single for i in shown) else (GAP,):
        if sum(strips[i].good + gap for i in shown) - gap <= width:
            return [{i: strips[i].good for i in shown}], gap
    others = [i for i in shown if not strips[i].key]
    keyed = [i for i in shown if strips[i].key]
    for keys in ({i: strips[i].good for i in keyed}, {i: strips[i].least for i in keyed}):
        room = width - sum(size + GAP for size in keys.values())
        if all(strips[i].least <= room for i in others) and (others or room + GAP >= 0):
            sizes = {i: min(strips[i].good, room) for i in others}
            return [keys | part for part in _balanced(sizes, room, any(strips[i].folds for i in others))], GAP
    return [], GAP


def _balanced(widths: Widths, room: int, texts: bool) -> list[Widths]:
    """Share columns out among as few tables as possible; numbers alone are shared evenly."""
    parts = _shared(widths, room)
    for less in () if texts or len(parts) == 1 else range(max(widths.values()), room):
        if len(even := _shared(widths, less)) == len(parts):
            return even
    return parts


def _shared(widths: Widths, room: int) -> list[Widths]:
    """Fill one table after the other, in the columns' order."""
    parts: list[Widths] = [{}]
    for i, size in widths.items():
        if parts[-1] and sum(taken + GAP for taken in parts[-1].values()) + size > room:
            parts.append({})
        parts[-1][i] = size
    return parts


def _widened(strips: Sequence[Strip], part: Widths, width: int, gap: int) -> Widths:
    """Give the room that is left to the texts that are folded most, then to the headers that are."""
    found = dict(part)
    room = width - sum(found.values()) - gap * (len(found) - 1)
    while room > 0 and (folded := [i for i in found if strips[i].folds and found[i] < strips[i].whole]):
        found[min(folded, key=lambda i: found[i] / strips[i].whole)] += 1
        room -= 1
    found = {i: strips[i].tight(size) for i, size in found.items()}
    room = width - sum(found.values()) - gap * (len(found) - 1)
    while True:
        lines = {i: len(fold(strips[i].name, size, 0)) for i, size in found.items()}
        top = max(lines, key=lambda i: lines[i])
        wider = (n for n in range(1, room + 1) if len(fold(strips[top].name, found[top] + n, 0)) < lines[top])
        more = next(wider, 0)
        if not more:
            return found
        found[top] += more
        room -= more


def table_lines(strips: Sequence[Strip], width: int, marked: int | None = None) -> Iterator[Line]:
    """Return the lines of a table at a width; the row `marked` is bold."""
    found = plan(strips, width)
    for number, part in enumerate(found.parts):
        if number:
            yield []
        yield from _grid(strips, part, found.gap, marked)
    if not found.parts:
        for number in range(len(strips[0].cells)):
            if number:
                yield []
            pairs = [(strip.name, strip.cells[number]) for strip in strips]
            yield from list_lines(pairs, width, "bold" if number == marked else "")
    if found.left_out:
        names = ", ".join(strips[i].name for i in found.left_out)
        yield from ([(line, "dim")] for line in fold(f"left out at {width} columns: {names}; --json has all", width))


def _grid(strips: Sequence[Strip], part: Widths, gap: int, marked: int | None) -> Iterator[Line]:
    """Header, rule and rows of columns side by side."""
    heads = [fold(strips[i].name, size, 0) for i, size in part.items()]
    tall = max(map(len, heads))
    heads = [[""] * (tall - len(head)) + head for head in heads]  # one-line heads stand on the rule
    yield from _side_by_side(strips, part, gap, heads, lambda _: "bold")
    yield [("─" * (sum(part.values()) + gap * (len(part) - 1)), "")]
    for number in range(len(strips[0].cells)):
        texts = {i: strips[i].cells[number] for i in part}
        cells = [
            fold(text, part[i], strips[i].hang) if strips[i].folds else text.split("\n") for i, text in texts.items()
        ]
        bold = "bold" if number == marked else ""
        yield from _side_by_side(strips, part, gap, cells, lambda i, b=bold, t=texts: strips[i].styles.get(t[i], b))


def _side_by_side(
    strips: Sequence[Strip], part: Widths, gap: int, cells: Sequence[Sequence[str]], style: Callable[[int], str]
) -> Iterator[Line]:
    for number in range(max(map(len, cells))):
        line: Line = []
        for (i, size), texts in zip(part.items(), cells, strict=True):
            text = texts[number] if number < len(texts) else ""
            line += [(" " * gap if line else "", ""), (strips[i].line(text, size), style(i))]
        yield line


def list_lines(pairs: Sequence[tuple[str, str]], width: int, style: str = "") -> Iterator[Line]:
    """Return the lines of names and values below each other; values are folded beside the names, or below them."""
    words = [cell_len(word) for name, _ in pairs for word in _words(name)]
    size = min(max(cell_len(name) for name, _ in pairs), max(width // 3, *words))
    for name, value in pairs:
        if not value:
            continue
        names, values = fold(name, size, 0), fold(value, width - size - GAP, 0)
        if max(map(cell_len, values)) > width - size - GAP:
            yield from ([(line, style)] for line in fold(name, width))
            yield from ([("  " + line, style)] for line in fold(value, width - 2, 0))
            continue
        for number in range(max(len(names), len(values))):
            left, right = (texts[number] if number < len(texts) else "" for texts in (names, values))
            yield [(left + " " * (size - cell_len(left) + GAP), style), (right, style)]


def _words(text: str) -> list[str]:
    return [word for line in text.split("\n") for word in line.split(" ")]
