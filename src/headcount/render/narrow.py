"""Tables for terminals of any width: where the columns do not fit side by side they go below each other, uncut."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from headcount.core.text import plain

if TYPE_CHECKING:
    from headcount.core.text import Terminal

GAP = 2
"""Blanks between columns."""


def print_table(
    terminal: Terminal, title: str, names: Sequence[str], rows: Sequence[Sequence[str]], *, keys: int,
    texts: Collection[str] = (), marked: int | None = None,
) -> None:  # fmt: skip
    """Print a table; the first `keys` columns say what a row is, and stand before every part of it.

    No cell is ever cut: numbers keep their line, and the columns named in `texts` break between words only.
    """
    from rich import box
    from rich.table import Table

    from headcount.core.text import cell

    names = [plain(name, lines=True) for name in names]
    rows = [[plain(text, lines=True) for text in row] for row in rows]  # before they are measured
    columns = [[name, *(row[i] for row in rows)] for i, name in enumerate(names)]
    least = [_longest(cells, words=name in texts) for name, cells in zip(names, columns, strict=True)]
    whole = [_longest(cells, words=False) for cells in columns]
    terminal.print()
    terminal.print(title, style="bold")
    for number, part in enumerate(parts(least, keys, terminal.width)):
        if number:
            terminal.print()
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
        widths = widened({i: (least[i], whole[i]) for i in part}, terminal.width)
        for i in part:
            justify = "left" if names[i] in texts else "right"
            table.add_column(cell(names[i]), justify=justify, no_wrap=names[i] not in texts, width=widths[i])
        for place, row in enumerate(rows):
            table.add_row(*(cell(row[i]) for i in part), style="bold" if place == marked else None)
        needed = sum(widths.values()) + GAP * (len(part) - 1)
        if needed > terminal.width:  # too narrow for even one column: the line is long, but whole
            table.width = needed
        terminal.print(table, no_wrap=True, overflow="ignore", crop=False)


def parts(widths: Sequence[int], keys: int, width: int) -> list[list[int]]:
    """Share columns out among tables that fit a width; every table starts with the key columns."""
    start = list(range(keys))
    room = width - sum(widths[:keys]) - GAP * (keys - 1)
    found: list[list[int]] = [[]]
    used = 0
    for i in range(keys, len(widths)):
        if found[-1] and used + widths[i] + GAP > room:
            found.append([])
            used = 0
        found[-1].append(i)
        used += widths[i] + GAP
    return [start + part for part in found]


def widened(columns: Mapping[int, tuple[int, int]], width: int) -> dict[int, int]:
    """Return the width of each column, from (least, whole): the room that is left goes to those that would break."""
    found = {i: least for i, (least, _) in columns.items()}
    room = width - sum(found.values()) - GAP * (len(found) - 1)
    while room > 0 and (short := [i for i in found if found[i] < columns[i][1]]):
        found[min(short, key=lambda i: found[i] / columns[i][1])] += 1
        room -= 1
    return found


def _longest(cells: Sequence[str], *, words: bool) -> int:
    """The longest line of some cells, or their longest word."""
    from rich.cells import cell_len

    return max(
        (cell_len(piece) for cell in cells for piece in (cell.split() if words else cell.split("\n"))), default=1
    )
