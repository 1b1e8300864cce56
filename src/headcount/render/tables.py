"""The table of a result: its cells are written once, so that terminal, Markdown and HTML cannot disagree."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from headcount.analysis import Dimension, HeadRow
from headcount.core import Spec
from headcount.core.text import HANGING_INDENT, fold, plain, row_text
from headcount.render.layout import LaidColumn, Line, list_lines, table_lines
from headcount.render.words.numbers import error_text, times_text

NONE = "–"


class Column(Spec):
    """The header of a column, and its meaning."""

    name: str
    meaning: str = ""
    kind: Literal["number", "text"] = "number"
    """Numbers are right-aligned and never break; texts are left-aligned and break between words if room is short."""
    key: bool | None = None
    """Whether it identifies a row, and so is repeated in every part of a split table; if no column states it, the first
    one does."""
    minor: bool = False
    """Whether it is left out, and named, before a table is split into more than three parts."""
    lines: bool = False
    """Whether line feeds in its cells break lines; otherwise they are escaped, so that no name can forge a line."""
    styles: dict[str, str] = Field(default_factory=dict[str, str])
    """How a terminal shows certain cells, such as {"no": "red"}."""


class Table(Spec):
    """A table of formatted texts."""

    caption: str
    columns: list[Column]
    rows: list[list[str]]
    marked: int | None = None
    """The row of the head count needed, if the result names one."""
    notes: list[str] = Field(default_factory=list[str])
    """Lines below the table."""


@dataclass(frozen=True)
class TerminalLines:
    """Lines that depend on the terminal's width; `terminal.print` shows them."""

    lines: Callable[[int], Iterable[Line]]

    def __rich_console__(self, _: Any, options: Any) -> Iterator[Any]:
        """Return the lines for the width at hand."""
        return map(row_text, self.lines(options.max_width))


HEAD_COLUMNS = [
    Column(name="Heads", meaning="number of attention heads"),
    Column(name="Seeds", meaning="models trained from different random starts; diverged ones gave no result"),
    Column(name="Best error", meaning="NMSE of the best seed"),
    Column(name="Median error", meaning="NMSE of the middle seed"),
    Column(name="Spread", meaning="worst error over best error among the seeds"),
    Column(name="Next is", meaning="how the best error changes at the next larger head count"),
    Column(name="M", meaning="parameters of the encoder and the feed-forward block only, as in theory"),
    Column(name="Total", meaning="all parameters"),
    Column(name="Time", meaning="training time of one model, median"),
]


def transition_table(transition: Dimension) -> Table:
    """Return the table of a result's head counts."""
    return row_table(transition.rows, transition.heads_needed)


def row_table(found: Sequence[HeadRow], needed: int | None, where: str = "") -> Table:
    """Return the table of some head counts; the row of `needed` is marked, and `where` names their panel."""
    counts = [row.heads for row in found]
    return Table(
        caption=f"Error by number of heads{where and f', {where}'} (NMSE on fresh sequences)",
        columns=HEAD_COLUMNS,
        rows=[_cells(row) for row in found],
        marked=counts.index(needed) if needed in counts else None,
    )


def _cells(row: HeadRow) -> list[str]:
    seeds = f"{row.finished} of {row.seeds}" if row.diverged else str(row.seeds)
    spread = row.worst / row.best if row.best and row.worst is not None and row.finished > 1 else None
    return [
        str(row.heads),
        seeds,
        NONE if row.best is None else error_text(row.best),
        NONE if row.median is None else error_text(row.median),
        NONE if spread is None else _times(spread),
        NONE if row.drop_best is None else _change(row.drop_best),
        f"{row.parameters:,}",
        f"{row.parameters_total:,}",
        f"{row.seconds:.1f} s" if row.seconds < 100 else f"{row.seconds:,.0f} s",
    ]


def _times(factor: float) -> str:
    """Return a ratio short enough for a cell."""
    return "> 10⁶×" if factor >= 1e6 else f"{times_text(factor)}×"


def _change(drop: float) -> str:
    """Return a drop in words; a rise is not hidden behind a small number."""
    if times_text(max(drop, 1 / drop)) == "1.0":
        return "the same"
    return f"{_times(drop)} smaller" if drop > 1 else f"{_times(1 / drop)} larger"


def as_terminal(table: Table) -> TerminalLines:
    """Return what a terminal of 40 columns or more prints: a blank line, the caption, the table, its notes."""
    return TerminalLines(lambda width: _lines(table, width))


def terminal_list(pairs: Iterable[tuple[str, object]]) -> TerminalLines:
    """Return a list of names and values, such as files and their paths."""
    texts = [(plain(name), plain(value)) for name, value in pairs]
    return TerminalLines(lambda width: list_lines(texts, width))


def _lines(table: Table, width: int) -> Iterator[Line]:
    yield []
    if table.caption:
        yield from ([(line, "bold")] for line in fold(plain(table.caption), width))
    if table.columns:
        yield from table_lines(_laid_columns(table), width, table.marked)
    if table.notes:
        yield []
    for note in table.notes:
        yield from ([(line, "")] for line in fold(plain(note), width))


def _laid_columns(table: Table) -> list[LaidColumn]:
    """Return the columns to lay out, with their texts made harmless before they are measured."""
    stated = any(column.key is not None for column in table.columns)
    return [
        LaidColumn(
            name=plain(column.name),
            cells=[plain(row[i], lines=column.lines) for row in table.rows],
            folds=column.kind == "text",
            key=bool(column.key) if stated else i == 0,
            minor=column.minor,
            hang=0 if i else HANGING_INDENT,
            styles=column.styles,
        )
        for i, column in enumerate(table.columns)
    ]


def as_markdown(table: Table) -> str:
    """Return the table in Markdown, with its notes below."""
    sides = ["---:" if column.kind == "number" else "---" for column in table.columns]
    lines = [[column.name for column in table.columns], sides]
    for i, row in enumerate(table.rows):
        texts = (cell.replace("\n", " ") if c.lines else cell for c, cell in zip(table.columns, row, strict=True))
        cells = [plain(text).replace("*", "\\*") for text in texts]
        lines.append([f"**{cell}**" if i == table.marked else cell for cell in cells])
    body = "\n".join(f"| {' | '.join(plain(cell).replace('|', '∣') for cell in line)} |" for line in lines)
    notes = "".join(f"\n{plain(note)}\n".replace("*", "\\*") for note in table.notes)
    return f"{body}\n{notes}"
