"""The table of a result: its cells are written once, so terminal, Markdown and HTML cannot disagree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headcount.analysis import Dimension, HeadRow
from headcount.analysis.words import error_text, times_text
from headcount.core import Spec
from headcount.core.text import plain

if TYPE_CHECKING:
    from rich.table import Table as RichTable

NONE = "–"


class Column(Spec):
    """The head of a column, and what it means."""

    name: str
    meaning: str


class Table(Spec):
    """A table of finished texts."""

    caption: str
    columns: list[Column]
    rows: list[list[str]]
    marked: int | None
    """The row of the heads needed, if the result names one."""


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
        columns=COLUMNS, rows=[_cells(row) for row in found], marked=counts.index(needed) if needed in counts else None,
    )  # fmt: skip


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


def terminal_table(transition: Dimension) -> RichTable:
    """The table of a result for a terminal; print it with a rich Console."""
    return as_terminal(transition_table(transition))


def as_terminal(table: Table) -> RichTable:
    """Render for a terminal."""
    from rich import box
    from rich.table import Table as RichTable

    from headcount.core.text import cell

    shown = RichTable(title=cell(table.caption), title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in table.columns:
        # heads of columns may break into two lines, cells may not: the table fits 80 columns
        shown.add_column(cell(column.name.replace(" ", "\n", 1)), justify="right", no_wrap=True)
    for i, row in enumerate(table.rows):
        shown.add_row(*(cell(text) for text in row), style="bold" if i == table.marked else None)
    return shown


def as_markdown(table: Table) -> str:
    """Render as a Markdown table."""
    lines = [[column.name for column in table.columns], ["---:"] * len(table.columns)]
    for i, row in enumerate(table.rows):
        lines.append([f"**{cell}**" if i == table.marked else cell for cell in row])
    return "\n".join(f"| {' | '.join(plain(cell).replace('|', '∣') for cell in line)} |" for line in lines) + "\n"
