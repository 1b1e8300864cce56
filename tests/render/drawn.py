"""Numbers and boxes read back from the drawings of a chart: matplotlib's, the page's in a browser, the terminal's."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any, NamedTuple

from browser_pipe import Browser

from headcount.render.charts.chart import Axis, Chart, ChartSeries
from headcount.render.charts.matplotlib import as_figure
from headcount.render.charts.terminal import LINE_MARKS, character_chart

Points = list[tuple[float, float]]


class TextBox(NamedTuple):
    """A text that is seen, and where: left, top, right, bottom."""

    text: str
    left: float
    top: float
    right: float
    bottom: float


def shown(series: ChartSeries) -> Points:
    """The points of a series as they should be drawn; a band's are its upper edge."""
    if series.style == "band":
        return [(p.x, p.high) for p in series.points if p.low is not None and p.high is not None]
    return [(p.x, p.y) for p in series.points]


# -- matplotlib ---------------------------------------------------------------------------------------------


def in_picture(chart: Chart) -> list[Points]:
    """The points of every series, from the artists of a picture."""
    axes = as_figure(chart).axes[0]
    lines, bands = iter(axes.lines[len(chart.levels) + len(chart.marks) :]), iter(axes.collections)
    found: list[Points] = []
    for series in chart.series:
        if series.style == "band":
            corners = next(bands).get_paths()[0].vertices
            top: dict[float, float] = {}
            for x, y in corners:
                top[x] = max(y, top.get(x, y))
            found.append(sorted(top.items()))
            continue
        if series.style == "rings":
            for _ in [p for p in series.points if p.low is not None and p.high is not None]:
                next(lines)
        line = next(lines)
        found.append([(float(x), float(y)) for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)])
        if series.style == "line":
            marks = next(lines)
            count = {"all": len(series.points), "last": 1, "none": 0}[series.marks]
            assert list(marks.get_ydata()) == list(line.get_ydata())[len(series.points) - count :]
    return found


def picture_boxes(chart: Chart) -> tuple[list[TextBox], list[TextBox]]:
    """The texts of a picture, and its marks, in pixels from the top."""
    fig = as_figure(chart)
    fig.draw_without_rendering()
    axes, high = fig.axes[0], fig.bbox.y1
    texts = [*fig.texts, *axes.texts, *(text for legend in fig.legends for text in legend.get_texts())]
    for axis in (axes.xaxis, axes.yaxis):
        texts += [axis.label, *(tick.label1 for tick in axis.get_major_ticks())]
    boxes = [(t.get_text(), t.get_window_extent()) for t in texts if t.get_text().strip() and t.get_visible()]
    marks: list[TextBox] = []
    for line in axes.lines:
        if line.get_marker() not in ("None", "", None) and len(line.get_xdata()):
            r = line.get_markersize() * fig.dpi / 144
            for x, y in line.get_transform().transform(list(zip(line.get_xdata(), line.get_ydata(), strict=True))):
                marks.append(TextBox("mark", x - r, high - y - r, x + r, high - y + r))
    return [TextBox(text, b.x0, high - b.y1, b.x1, high - b.y0) for text, b in boxes], marks


# -- the page -----------------------------------------------------------------------------------------------

_READ = """(() => {{ const svg = document.querySelector('#{id} > svg.live');
  const attributes = (t) => [t.textContent, +t.getAttribute('x'), +t.getAttribute('y')];
  return {{
    x: [...svg.querySelectorAll('text.x')].map(attributes), y: [...svg.querySelectorAll('text.y')].map(attributes),
    paths: [...svg.querySelectorAll('g.inside > path')].map(p => [p.getAttribute('class'), p.getAttribute('d')])
  }}; }})()"""
_BOXES = """(() => {{
  const box = (e) => (r => [e.textContent, r.left, r.top, r.right, r.bottom])(e.getBoundingClientRect());
  const figure = document.querySelector('#{id}'), svg = figure.querySelector('svg.live'), k = svg.getScreenCTM();
  return {{ texts: [...svg.querySelectorAll('text')].map(box), zoom: [k.a, k.e, k.d, k.f],
    legend: [...figure.querySelectorAll('.legend li')].filter(e => e.offsetParent).map(e => e.textContent) }}; }})()"""


def in_page(chart: Chart, browser: Browser) -> list[Points]:
    """The points of every series, read from the paths that the script drew in an open page."""
    read = browser.run(_READ.format(id=chart.id))
    x, y = (
        _reader(chart.x, [(t, at) for t, at, _ in read["x"]]),
        _reader(chart.y, [(t, at - 4.5) for t, _, at in read["y"]]),
    )
    width = float(browser.run(f"document.querySelector('#{chart.id} > svg').viewBox.baseVal.width"))
    return [
        [(x(a - series.shift * width / 720), y(b)) for a, b in places]
        for series, places in zip(chart.series, _places(chart, read["paths"]), strict=True)
    ]


def page_boxes(chart: Chart, browser: Browser) -> tuple[list[TextBox], list[TextBox], list[str]]:
    """The texts of a chart in an open page, its marks, and the entries of its legend, in the screen's pixels."""
    read, paths = browser.run(_BOXES.format(id=chart.id)), browser.run(_READ.format(id=chart.id))["paths"]
    a, e, d, f = read["zoom"]
    marks: list[TextBox] = []
    for series, places in zip(chart.series, _places(chart, paths), strict=True):
        if series.style in ("dots", "rings", "line"):
            r = {"dots": series.radius, "rings": 5, "line": 4}[series.style]
            kept = {"all": places, "last": places[-1:], "none": []}[series.marks]
            marks += [
                TextBox("mark", e + a * (x - r), f + d * (y - r), e + a * (x + r), f + d * (y + r)) for x, y in kept
            ]
    return [TextBox(*one) for one in read["texts"]], marks, read["legend"]


def _places(chart: Chart, paths: list[list[str]]) -> list[Points]:
    """Where the points of every series are drawn, in the pixels of the picture."""
    drawn = iter([(kind, d) for kind, d in paths if kind not in ("level", "guide", "arrow", "head")])
    found: list[Points] = []
    for series in chart.series:
        if not series.points or (series.style == "band" and not shown(series)):
            found.append([])
            continue
        kind, d = next(drawn)
        if series.style == "rings":
            kind, d = next(drawn)
        if series.style in ("dots", "rings"):
            found.append(_marks(d, series))
            continue
        places = [tuple(map(float, pair.split())) for pair in re.split("[ML]", d.removesuffix("Z"))[1:]]
        found.append(places[: len(shown(series))] if series.style == "band" else places)  # type: ignore[arg-type]
        if series.style == "line" and series.marks != "none":
            _, d = next(drawn)
            assert _marks(d, series) == [(a, b) for a, b in (places if series.marks == "all" else places[-1:])], kind
    assert next(drawn, None) is None
    return found


def _marks(d: str, series: ChartSeries) -> Points:
    """The middles of the marks of one path."""
    r = {"dots": series.radius, "rings": 5.0, "line": 4.0}[series.style]
    right, down = {"circle": (r, 0), "square": (r, r), "up": (0, r), "diamond": (0, r), "down": (0, -r)}[series.shape]
    starts = re.findall(r"M(-?[\d.]+) (-?[\d.]+)", d)
    return [(round(float(x) + right, 1), round(float(y) + down, 1)) for x, y in starts]


def _reader(axis: Axis, ticks: list[tuple[str, float]]) -> Any:
    """What turns a place on an axis into a number, from where the axis writes two of its ticks."""
    named = {text: value for value, text in axis.ticks}
    (one, a), (other, b) = ticks[0], ticks[-1]
    p, q = axis.place(named[one]), axis.place(named[other])
    return lambda at: axis.value(p + (q - p) * (at - a) / (b - a))


# -- the terminal -------------------------------------------------------------------------------------------


def in_terminal(chart: Chart) -> list[Points]:
    """The points of every line, as well as a terminal's rows show them."""
    rows = [line.partition("|") for line in character_chart(chart) if "|" in line]
    named = [(i, name.strip()) for i, (name, _, _) in enumerate(rows) if name.strip()]
    values = {text: value for value, text in chart.y.ticks}
    known = [(i, values[name]) for i, name in named if name in values]
    (i, one), (j, other) = known[0], known[-1]
    p, q = chart.y.place(one), chart.y.place(other)
    lines = [s for s in chart.series if s.style == "line"]
    columns = sorted({p.x for s in lines for p in s.points})
    width = max(len(row) for _, _, row in rows) / len(columns)
    found: list[Points] = []
    for mark, _ in zip(LINE_MARKS, lines, strict=False):
        at = [(c, r) for r, (_, _, row) in enumerate(rows) for c, letter in enumerate(row) if letter == mark]
        found.append([(columns[int(c / width)], chart.y.value(p + (q - p) * (r - i) / (j - i))) for c, r in sorted(at)])
    return found


# -- boxes --------------------------------------------------------------------------------------------------


def collisions(texts: list[TextBox], others: list[TextBox], slack: float = 1.0) -> list[tuple[str, str]]:
    """Texts that lie over each other or over something else, by more than a pixel."""
    pairs = [*itertools.combinations(texts, 2), *itertools.product(texts, others)]
    return [
        (a.text, b.text)
        for a, b in pairs
        if min(a.right, b.right) - max(a.left, b.left) > slack and min(a.bottom, b.bottom) - max(a.top, b.top) > slack
    ]


def write_page(charts: list[Chart], path: Path, code: str | None = None) -> Path:
    """A page of charts alone; `code` stands in for the package's script."""
    from headcount.render.charts.html import HINT, figure, script, script_hash
    from headcount.render.pages import POLICY, _style

    code = code or script()
    parts = "\n".join([*(figure(chart) for chart in charts), HINT])
    path.write_text(
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>Charts</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}; script-src \'{script_hash(code)}\'">'
        f"<style>{_style()}</style></head><body><main>{parts}</main><script>{code}</script></body></html>",
        encoding="utf-8",
    )
    return path
