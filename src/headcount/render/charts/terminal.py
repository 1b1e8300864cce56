"""A run in the terminal: the sentence, a chart of characters and the cells, for people without a browser at hand."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from headcount.analysis import Analysis
from headcount.render.charts.chart import Axis, Chart, ChartSeries, power_text
from headcount.render.charts.of_run import error_by_heads
from headcount.render.run_tables import cell_table
from headcount.render.tables import as_terminal
from headcount.render.words.errors import terms_of
from headcount.render.words.run import known, rises, summary
from headcount.store import Run

if TYPE_CHECKING:
    from headcount.core.text import Terminal

LINE_MARKS = "ox+*#%@&"
CHART_ROWS = 14
MAX_CHART_WIDTH = 78


def print_run(analysis: Analysis, terminal: Terminal, runs: Sequence[Run] = ()) -> None:
    """Print a run: the answers and their reasons, error against heads for every length, and all cells."""
    terminal.print(analysis.title or analysis.run, style="bold")
    terminal.print(summary(analysis))
    errors = [] if analysis.plain else [f"Errors: {terms_of(analysis).kind} {terms_of(analysis).data}."]
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
    """Print a chart of characters, or how many columns it needs if the terminal has fewer."""
    width = min(terminal.width, MAX_CHART_WIDTH)
    drawn = character_chart(chart, width)
    needed = max((len(line) for line in drawn if line.lstrip().startswith("+-")), default=0)
    if needed > width:
        drawn = [drawn[0], f"left out at {width} columns: this chart needs {needed}; the table has its numbers"]
    for line in drawn:
        terminal.print(line)


def character_chart(chart: Chart, most: int = MAX_CHART_WIDTH) -> list[str]:
    """Return a chart drawn with characters: x values from left to right, one mark per line, the y axis upwards.

    Marks at one x stand side by side, so that none hides another; if they need more than `most` cells, the chart is
    wider. Levels are rows of dots; shaded parts, marks on the x axis and the fall are named above and below.
    """
    found = _lines(chart)
    drawn, rest = found[: len(LINE_MARKS)], found[len(LINE_MARKS) :]
    columns = sorted({p.x for s in drawn for p in s.points})
    title = f"{chart.title.removesuffix('.')}, {chart.subtitle}" if chart.subtitle else chart.title
    if not columns:
        return [title, "no trial has a result"]
    least = max(len(drawn), *(len(f"{x:g}") for x in columns)) + 1
    width = min(max(least + 1, 6), max((most - 8) // len(columns), least))
    scale = _scale(chart.y)
    levels = {scale.row(level.y) for level in chart.levels}
    lines = [title, "", *_above(chart, columns, width)]
    for row in range(scale.rows - 1, -1, -1):
        fill = "." if row in levels else " "
        cells = ["".join(_mark(s, i, x, scale, row) for i, s in enumerate(drawn)).center(width) for x in columns]
        lines.append(f"{scale.names.get(row, ''):>6} |{''.join(cells).replace(' ', fill)}".rstrip())
    lines.append(f"{'':>6} +{'-' * (width * len(columns))}")
    lines.append(f"{'':>7}{''.join(f'{x:g}'.center(width) for x in columns)}".rstrip())
    lines += _below(chart, columns, width)
    lines.append(f"{'':>7}{chart.x.label.center(width * len(columns))}".rstrip())
    lines += _legend(drawn, [level.text for level in chart.levels if level.text], most)
    if rest:
        lines.append(f"{'':>8}and {len(rest)} more not drawn: {rest[0].name} and on")
    return lines


def _lines(chart: Chart) -> list[ChartSeries]:
    """Return the series that a terminal draws: the lines or, if there are none, the marks."""
    for styles in (("line",), ("rings", "dots")):
        if found := [s for s in chart.series if s.style in styles and s.points]:
            return found
    return []


class _Rows(NamedTuple):
    """The rows of a chart, from the lowest up."""

    base: float
    unit: float
    rows: int
    names: dict[int, str]
    """The ticks, by row."""
    log: bool

    def row(self, value: float) -> int:
        """Return the row of a value."""
        return round(((math.log10(value) if self.log else value) - self.base) / self.unit)


def _scale(axis: Axis) -> _Rows:
    """Return rows that are whole from one power of ten to the next; an axis of less than one keeps its own ticks."""
    log = axis.scale == "log"
    low, high = (math.log10(v) if log else v for v in (axis.low, axis.high))
    if not log or high - low < 1:
        found = _Rows(low, (high - low) / CHART_ROWS, CHART_ROWS + 1, {}, log)
        return found._replace(names={found.row(value): text for value, text in axis.ticks})
    step = max(1, math.ceil((high - low) / 8))
    base = math.floor(low)
    unit = step / max(1, round(CHART_ROWS * step / (high - base)))
    names = {round((k - base) / unit): power_text(k) for k in range(base, math.floor(high) + 1, step)}
    return _Rows(base, unit, math.ceil((high - base) / unit), names, log)


def _above(chart: Chart, columns: Sequence[float], width: int) -> Iterator[str]:
    """Return a line with the names of shaded parts, each above its columns."""
    line = ""
    for shade in chart.shades:
        inside = [i for i, x in enumerate(columns) if shade.low <= x <= shade.high]
        if inside and shade.text:
            middle = 8 + width * (inside[0] + inside[-1] + 1) // 2
            line = line.ljust(max(middle - len(shade.text) // 2, len(line) + 2 * bool(line))) + shade.text
    if line:
        yield line


def _below(chart: Chart, columns: Sequence[float], width: int) -> Iterator[str]:
    """Return lines for the marks on the x axis and for the fall."""
    for mark in chart.marks:
        if mark.x in columns:
            yield f"{'':>{7 + width * columns.index(mark.x) + (width - 1) // 2}}^ {mark.text}"
    if chart.fall is not None:
        text = " ".join(chart.fall.text.split())
        yield f"{'':>8}from {chart.fall.x_from:g} to {chart.fall.x_to:g}: {text}"


def _mark(series: ChartSeries, number: int, x: float, scale: _Rows, row: int) -> str:
    return LINE_MARKS[number] if any(p.x == x and scale.row(p.y) == row for p in series.points) else " "


def _legend(lines: list[ChartSeries], levels: list[str], most: int) -> Iterator[str]:
    """Return the marks and their names, in lines of at most `most` columns."""
    line = f"{'':>7}"
    named = [
        *((mark, series.name) for mark, series in zip(LINE_MARKS, lines, strict=False)),
        *(("...", s) for s in levels),
    ]
    for mark, name in named:
        entry = f" {mark} {name}  "
        if line.strip() and len(line) + len(entry) > most:
            yield line.rstrip()
            line = f"{'':>7}"
        line += entry
    yield line.rstrip()
