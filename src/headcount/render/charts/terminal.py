"""A run for the terminal: the sentence, a chart of characters and the cells, for people without a browser at hand."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from headcount.analysis import Analysis
from headcount.core.text import plain
from headcount.render.charts.chart import Chart, ChartSeries, power_text
from headcount.render.charts.of_run import error_by_heads
from headcount.render.narrow import print_table
from headcount.render.run_tables import cell_table
from headcount.render.words.run import known, rises, summary
from headcount.store import Run

if TYPE_CHECKING:
    from headcount.core.text import Terminal

MARKS = "ox+*#%@&"
ROWS = 14
WIDTH = 78


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
            for line in _item(text, terminal.width):
                terminal.print(line, soft_wrap=True)
    terminal.print()
    terminal.print(known(analysis, runs))
    terminal.print()
    for chart in error_by_heads(analysis):
        for line in character_chart(chart):
            terminal.print(line, no_wrap=True, crop=False)
        terminal.print()
    table = cell_table(analysis, short=True)
    names = [column.name for column in table.columns]
    keys = names.index("Heads") + 1
    print_table(terminal, table.caption, names, table.rows, keys=keys, texts=("Setting",))


def character_chart(chart: Chart) -> list[str]:
    """Draw the lines of a chart with characters: its x values across, a mark a line, the error upwards in log scale.

    Marks of one x stand side by side, so that none hides another.
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
    width = min(max(len(lines) + 2, 6), max((WIDTH - 8) // len(columns), len(lines) + 1))
    names = {round((k - base) / unit): power_text(k) for k in range(base, math.floor(high) + 1, step)}
    if high - low < 1:  # within a decade powers of ten are too coarse: the ticks of the axis itself
        base, unit, rows = low, (high - low) / ROWS, ROWS + 1
        names = {round((math.log10(v) - base) / unit): text for v, text in chart.y.ticks}
    drawn = [title, ""]
    for row in range(rows - 1, -1, -1):
        cells = ["".join(_mark(s, i, x, base, unit, row) for i, s in enumerate(lines)).center(width) for x in columns]
        drawn.append(f"{names.get(row, ''):>6} |{''.join(cells)}".rstrip())
    drawn.append(f"{'':>6} +{'-' * (width * len(columns))}")
    drawn.append(f"{'':>7}{''.join(f'{x:g}'.center(width) for x in columns)}  heads".rstrip())
    drawn += _legend(lines)
    if len(found) > len(lines):
        drawn.append(f"{'':>8}and {len(found) - len(lines)} more not drawn: {found[len(lines)].name} and on")
    return drawn


def _item(text: str, width: int) -> list[str]:
    return textwrap.wrap(plain(text), max(width, 40), initial_indent="  - ", subsequent_indent="    ")


def _mark(series: ChartSeries, number: int, x: float, base: float, unit: float, row: int) -> str:
    heights = [round((math.log10(p.y) - base) / unit) for p in series.points if p.x == x]
    return MARKS[number] if row in heights else " "


def _legend(lines: list[ChartSeries]) -> Iterator[str]:
    """The marks and their names, in lines of at most 80 columns."""
    line = f"{'':>7}"
    for mark, series in zip(MARKS, lines, strict=False):
        entry = f" {mark} {series.name}  "
        if len(line) + len(entry) > WIDTH:
            yield line.rstrip()
            line = f"{'':>7}"
        line += entry
    yield line.rstrip()
