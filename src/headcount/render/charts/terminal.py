"""A run for the terminal: the sentence, a chart of characters and the cells, for people without a browser at hand."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from headcount.analysis import Analysis
from headcount.render.charts.chart import Chart, ChartSeries, power_text
from headcount.render.charts.of_run import error_by_heads
from headcount.render.run_tables import cell_table
from headcount.render.tables import as_terminal
from headcount.render.words.run import known, rises, summary
from headcount.store import Run

if TYPE_CHECKING:
    from headcount.core.text import Terminal

MARKS = "ox+*#%@&"
ROWS = 14
WIDTH = 78
AXIS = "  heads"
"""What stands at the end of the axis."""


def print_run(analysis: Analysis, terminal: Terminal, runs: Sequence[Run] = ()) -> None:
    """Print a run: what it says and why, error against heads for every length, and all cells. Nothing is written."""
    terminal.print(analysis.title or analysis.run, style="bold")
    terminal.print(summary(analysis))
    errors = [] if analysis.plain else [f"Errors: {analysis.words.kind} {analysis.words.data}."]
    for text in [*errors, *analysis.notes]:
        terminal.print(text)
    for found in analysis.dimensions:
        terminal.print()
        terminal.print(found.labelled, style="bold")
        reasons = [f"{reason.text} ({reason.tag})" for reason in found.reasons]
        for text in [*reasons, *(f"{text} (measured)" for text in rises(analysis, found.setting))]:
            terminal.print(f"  - {text}")
    terminal.print()
    terminal.print(known(analysis, runs))
    for chart in error_by_heads(analysis):
        terminal.print()
        print_chart(chart, terminal)
    terminal.print(as_terminal(cell_table(analysis)))


def print_chart(chart: Chart, terminal: Terminal) -> None:
    """Print a chart of characters, or say how many columns it needs where the terminal has fewer."""
    width = min(terminal.width, WIDTH)
    drawn = character_chart(chart, width)
    needed = max((len(line) for line in drawn if line.endswith(AXIS)), default=0)
    if needed > width:
        drawn = [drawn[0], f"left out at {width} columns: this chart needs {needed}; the table has its numbers"]
    for line in drawn:
        terminal.print(line)


def character_chart(chart: Chart, most: int = WIDTH) -> list[str]:
    """Draw the lines of a chart with characters: its x values across, a mark a line, the error upwards in log scale.

    Marks of one x stand side by side, so that none hides another; where they need more than `most` cells it is wider.
    """
    found = [s for s in chart.series if s.style == "line"]
    lines = found[: len(MARKS)]
    columns = sorted({p.x for s in lines for p in s.points})
    title = chart.title + (f", {chart.subtitle}" if chart.subtitle else "")
    if not columns:
        return [title, "no trial has a result"]
    low, high = (math.log10(v) for v in (chart.y.low, chart.y.high))
    step = max(1, math.ceil((high - low) / 8))
    base = math.floor(low)
    unit = step / max(1, round(ROWS * step / (high - base)))  # whole rows from one power of ten to the next
    rows = math.ceil((high - base) / unit)
    least = max(len(lines), *(len(f"{x:g}") for x in columns)) + 1
    width = min(max(least + 1, 6), max((most - 7 - len(AXIS)) // len(columns), least))
    names = {round((k - base) / unit): power_text(k) for k in range(base, math.floor(high) + 1, step)}
    if high - low < 1:  # within a decade powers of ten are too coarse: the ticks of the axis itself
        base, unit, rows = low, (high - low) / ROWS, ROWS + 1
        names = {round((math.log10(v) - base) / unit): text for v, text in chart.y.ticks}
    drawn = [title, ""]
    for row in range(rows - 1, -1, -1):
        cells = ["".join(_mark(s, i, x, base, unit, row) for i, s in enumerate(lines)).center(width) for x in columns]
        drawn.append(f"{names.get(row, ''):>6} |{''.join(cells)}".rstrip())
    drawn.append(f"{'':>6} +{'-' * (width * len(columns))}")
    drawn.append(f"{'':>7}{''.join(f'{x:g}'.center(width) for x in columns)}{AXIS}")
    drawn += _legend(lines, most)
    if len(found) > len(lines):
        drawn.append(f"{'':>8}and {len(found) - len(lines)} more not drawn: {found[len(lines)].name} and on")
    return drawn


def _mark(series: ChartSeries, number: int, x: float, base: float, unit: float, row: int) -> str:
    heights = [round((math.log10(p.y) - base) / unit) for p in series.points if p.x == x]
    return MARKS[number] if row in heights else " "


def _legend(lines: list[ChartSeries], most: int) -> Iterator[str]:
    """The marks and their names, in lines of at most so many columns."""
    line = f"{'':>7}"
    for mark, series in zip(MARKS, lines, strict=False):
        entry = f" {mark} {series.name}  "
        if line.strip() and len(line) + len(entry) > most:
            yield line.rstrip()
            line = f"{'':>7}"
        line += entry
    yield line.rstrip()
