"""The table of a result: its cells are written once, so terminal, Markdown and HTML cannot disagree."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from headcount.analysis import Dimension, HeadRow
from headcount.analysis.words import error_text, times_text
from headcount.core import Spec
from headcount.core.text import HANGING_INDENT, fold, plain, row_text
from headcount.render.layout import Line, Strip, list_lines, table_lines

NONE = "–"


class Column(Spec):
    """The head of a column, and what it means."""

    name: str
    meaning: str = ""
    kind: Literal["number", "text"] = "number"
    """Numbers stand right and are never broken; texts stand left and break between words where room is short."""
    key: bool | None = None
    """Whether it says what a row is, and so stands in every part of a split table; where none states it, the first."""
    minor: bool = False
    """Whether it is left out, and named, before a table is split into more than three."""
    lines: bool = False
    """Whether line feeds in its cells begin a new line; elsewhere they are written out, so that no name forges one."""
    styles: dict[str, str] = Field(default_factory=dict[str, str])
    """How a terminal shows certain cells, such as {"no": "red"}."""


class Table(Spec):
    """A table of finished texts."""

    caption: str
    columns: list[Column]
    rows: list[list[str]]
    marked: int | None = None
    """The row of the heads needed, if the result names one."""
    notes: list[str] = Field(default_factory=list[str])
    """Lines below the table."""


@dataclass(frozen=True)
class Shown:
    """Lines that depend on the terminal's width: `terminal.print` shows them."""

    lines: Callable[[int], Iterable[Line]]

    def __rich_console__(self, _: Any, options: Any) -> Iterator[Any]:
        """Lay them out when they are printed."""
        return map(row_text, self.lines(options.max_width))


COLUMNS = [
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
    """Write the cells of a result."""
    return row_table(transition.rows, transition.heads_needed)


def row_table(found: Sequence[HeadRow], needed: int | None, where: str = "") -> Table:
    """Write the cells of head counts summed up; `needed` is marked, `where` names the panel they are of."""
    counts = [row.heads for row in found]
    return Table(
        caption=f"Error by number of heads{where and f', {where}'} (NMSE on fresh sequences)",
        columns=COLUMNS,
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
    """A ratio that fits a cell."""
    return "> 10⁶×" if factor >= 1e6 else f"{times_text(factor)}×"


def _change(drop: float) -> str:
    """A drop in words; a rise is not hidden behind a small number."""
    if times_text(max(drop, 1 / drop)) == "1.0":
        return "the same"
    return f"{_times(drop)} smaller" if drop > 1 else f"{_times(1 / drop)} larger"


def as_terminal(table: Table) -> Shown:
    """Return what a terminal prints at any width from 40 columns: a blank line, the caption, the table, its notes."""
    return Shown(lambda width: _lines(table, width))


def terminal_list(pairs: Iterable[tuple[str, object]]) -> Shown:
    """Return names and values below each other, such as files and where they are."""
    texts = [(plain(name), plain(value)) for name, value in pairs]
    return Shown(lambda width: list_lines(texts, width))


def _lines(table: Table, width: int) -> Iterator[Line]:
    yield []
    if table.caption:
        yield from ([(line, "bold")] for line in fold(plain(table.caption), width))
    if table.columns:
        yield from table_lines(_strips(table), width, table.marked)
    if table.notes:
        yield []
    for note in table.notes:
        yield from ([(line, "")] for line in fold(plain(note), width))


def _strips(table: Table) -> list[Strip]:
    """The columns with texts in which nothing is hidden, before they are measured."""
    stated = any(column.key is not None for column in table.columns)
    return [
        Strip(
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
    """Render as a Markdown table, with its notes below."""
    sides = ["---:" if column.kind == "number" else "---" for column in table.columns]
    lines = [[column.name for column in table.columns], sides]
    for i, row in enumerate(table.rows):
        texts = (cell.replace("\n", " ") if c.lines else cell for c, cell in zip(table.columns, row, strict=True))
        cells = [plain(text).replace("*", "\\*") for text in texts]
        lines.append([f"**{cell}**" if i == table.marked else cell for cell in cells])
    body = "\n".join(f"| {' | '.join(plain(cell).replace('|', '∣') for cell in line)} |" for line in lines)
    notes = "".join(f"\n{plain(note)}\n".replace("*", "\\*") for note in table.notes)
    return f"{body}\n{notes}"
