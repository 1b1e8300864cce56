"""Charts inside a page: an SVG that prints and needs no script, its data beside it, and the script that answers.

The script, chart.js, draws the same picture from the same data at any width and zoom; a test compares the two.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable
from importlib import resources
from typing import NamedTuple

from headcount.core.text import escape, json_text, plain_data
from headcount.render.charts.chart import Chart, ChartSeries, Shape, apart
from headcount.render.charts.matplotlib import RAMP

WIDTH = 720
HEIGHT = 418
NAME = 18
"""Characters of a name that stand at the end of its line."""
DARK = ("#8f8dff", "#a97aff", "#c878f2", "#e47ad2", "#f588ab", "#fba283", "#fdc063", "#f3e062")
"""The same scale on a dark ground."""


def script() -> str:
    """Return the script of the charts."""
    return (resources.files("headcount.render.charts") / "chart.js").read_text(encoding="utf-8")


def script_hash(text: str) -> str:
    """Return the name by which a page's policy lets one script run, and no other."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def style() -> str:
    """Return the rules of the charts; the colours of series follow the page's ground."""
    css = (resources.files("headcount.render.charts") / "chart.css").read_text(encoding="utf-8")
    light, dark = ("".join(f" --c{i}: {c};" for i, c in enumerate(colours)) for colours in (RAMP, DARK))
    picks = "".join(f".c{i} {{ --c: var(--c{i}); }}\n" for i in range(len(RAMP)))
    screen = f"@media screen and (prefers-color-scheme: dark) {{ :root {{{dark} }} }}\n"
    return f":root {{{light} }}\n{screen}{picks}{css}"


HINT = (
    '<p class="hint" hidden>Point at a mark to read it. Drag to zoom in, double-click to return; after a click the '
    "wheel zooms too. The names below a chart hide and show. Keys: arrows, +, −, 0.</p>"
)
"""How the charts answer; shown by the script, since without it they do not."""


def figure(chart: Chart) -> str:
    """Return a chart as a figure of a page: title, picture, legend, caption and data."""
    chart = Chart(**plain_data(chart.model_dump()))  # the script draws from the same texts
    text = json_text(chart.model_dump(mode="json", exclude_defaults=True), compact=True)
    data = text.replace("<", "\\u003c")  # no text of a user can end the script element
    notes = " ".join([chart.caption, *chart.notes]).strip()
    subtitle = f" <small>{escape(chart.subtitle)}</small>" if chart.subtitle else ""
    return (
        f'<figure class="chart" id="{chart.id}">\n<h3>{escape(chart.title)}{subtitle}</h3>\n'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(chart.alt)}">\n'
        f"{drawing(chart)}\n</svg>\n{_legend(chart)}"
        f"<figcaption>{escape(notes)}</figcaption>\n"
        f'<script type="application/json">{data}</script>\n</figure>'
    )


class _Box(NamedTuple):
    """Where the axes stand."""

    left: float
    top: float
    w: float
    h: float


def drawing(chart: Chart) -> str:
    """Return the inside of a chart's SVG element."""
    longest = max((min(len(s.name), NAME) for s in chart.ends()), default=0)
    top = 26 if chart.shades else 12
    box = _Box(70, top, WIDTH - 70 - 14 - 8 * longest, HEIGHT - top - 50)
    X: Callable[[float], float] = lambda v: box.left + box.w * chart.x.place(v)  # noqa: E731
    Y: Callable[[float], float] = lambda v: box.top + box.h * (1 - chart.y.place(v))  # noqa: E731
    return "\n".join([*_ground(chart, box, X, Y), *_inside(chart, box, X, Y), *_names(chart, box, Y)])


def _ground(chart: Chart, box: _Box, X: Callable[[float], float], Y: Callable[[float], float]) -> Iterable[str]:
    """Clip, shades, grid, ticks and labels."""
    end, base = box.left + box.w, box.top + box.h
    clip = _rect("", box.left, box.top - 6, box.w, box.h + 12)
    yield f'<clipPath id="clip-{chart.id}">{clip}</clipPath>'
    for shade in chart.shades:
        a, b = (min(max(X(v), box.left), end) for v in (shade.low, shade.high))
        yield _rect(f"{shade.tone}-ground", a, box.top, b - a, box.h)
        if b - a > 7 * len(shade.text):
            yield _text(shade.tone, (a + b) / 2, box.top - 8, shade.text)
    for value, text in chart.y.ticks:
        yield _path("grid", f"M{_n(box.left)} {_n(Y(value))}H{_n(end)}")
        yield _text("y", box.left - 8, Y(value) + 4.5, text)
    yield _path("axis", f"M{_n(box.left)} {_n(box.top)}V{_n(base)}H{_n(end)}")
    last = 0.0
    for value, text in chart.x.ticks:
        if X(value) - last > 9 * len(text) + 3:  # one that would run into the last one is left out, as in the script
            yield _text("x", last := X(value), base + 19, text)
    yield _text("label", box.left + box.w / 2, HEIGHT - 8, chart.x.label)
    turned = f"translate(15 {_n(box.top + box.h / 2)}) rotate(-90)"
    yield f'<g transform="{turned}">{_text("label", 0, 0, chart.y.label)}</g>'


def _inside(chart: Chart, box: _Box, X: Callable[[float], float], Y: Callable[[float], float]) -> Iterable[str]:
    """What lies between the axes, cut at them."""
    end, base = box.left + box.w, box.top + box.h
    yield f'<g clip-path="url(#clip-{chart.id})">'
    for level in chart.levels:
        yield _path("level", f"M{_n(box.left)} {_n(Y(level.y))}H{_n(end)}")
        yield _text("note", end - 4, Y(level.y) - 5, level.text)
    for mark in chart.marks:
        x, tight = X(mark.x), end - X(mark.x) < 7 * len(mark.text) + 8  # near the end the text stands before the line
        yield _path("level", f"M{_n(x)} {_n(box.top + 30)}V{_n(base)}")
        yield _text("note" if tight else "known", x + (-5 if tight else 5), box.top + 42, mark.text)
    for series in chart.series:
        if series.points:
            yield from _series(series, X, Y)
    yield "</g>"


def _series(series: ChartSeries, X: Callable[[float], float], Y: Callable[[float], float]) -> Iterable[str]:
    places = [(X(p.x) + series.shift, Y(p.y)) for p in series.points]
    ranges = [
        (x, Y(p.low), Y(p.high))
        for (x, _), p in zip(places, series.points, strict=True) if p.low is not None and p.high is not None
    ]  # fmt: skip
    tint = f" c{series.colour}"

    def marks(r: int) -> str:
        return "".join(_shape(series.shape, x, y, r) for x, y in places)

    match series.style:
        case "band":
            edge = [(x, high) for x, _, high in ranges] + [(x, low) for x, low, _ in reversed(ranges)]
            yield _path(f"band{tint}", f"{_joined(edge)}Z")
        case "dots":
            yield _path(f"dots{tint}", marks(3))
        case "rings":
            yield _path(f"whisker{tint}", "".join(f"M{_n(x)} {_n(low)}V{_n(high)}" for x, low, high in ranges))
            yield _path(f"ring{tint}", marks(5))
        case "dashed":
            yield _path(f"fit{tint}", _joined(places))
        case "line":
            yield _path(f"line{tint}", _joined(places))
            yield _path(f"dot{tint}", marks(4))


def _names(chart: Chart, box: _Box, Y: Callable[[float], float]) -> Iterable[str]:
    """Names of lines at their right ends, moved apart."""
    ends = chart.ends()
    heights = apart([Y(s.points[-1].y) for s in ends], 17, box.top + box.h)
    for y, series in zip(heights, ends, strict=True):
        name = series.name if len(series.name) <= NAME else f"{series.name[: NAME - 1]}…"
        yield _text(f"end c{series.colour}", box.left + box.w + 8, y + 4.5, name)


def _legend(chart: Chart) -> str:
    """The names of the series with their marks; the script makes them switches."""
    if len(chart.names()) < 2:
        return ""
    items: list[str] = []
    for name in chart.names():
        series = chart.entry(name)
        styles = {"line": ("line", "dot"), "dashed": ("fit", ""), "rings": ("", "ring"), "dots": ("", "dots")}
        line, mark = styles.get(series.style, ("", "dot"))
        drawn = _path(f"{line} c{series.colour}", "M1 7H25") if line else ""
        drawn += _path(f"{mark} c{series.colour}", _shape(series.shape, 13, 7, 4)) if mark else ""
        picture = f'<svg viewBox="0 0 26 14" aria-hidden="true">{drawn}</svg>'
        items.append(f'<li data-name="{escape(name)}">{picture}{escape(name)}</li>')
    return '<ul class="legend" aria-label="Series">\n' + "\n".join(items) + "\n</ul>\n"


def _path(kind: str, d: str) -> str:
    return f'<path class="{kind}" d="{d}"/>'


def _text(kind: str, x: float, y: float, text: str) -> str:
    return f'<text class="{kind}" x="{_n(x)}" y="{_n(y)}">{escape(text)}</text>'


def _rect(kind: str, x: float, y: float, w: float, h: float) -> str:
    return f'<rect class="{kind}" x="{_n(x)}" y="{_n(y)}" width="{_n(w)}" height="{_n(h)}"/>'


def _joined(places: Iterable[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{_n(x)} {_n(y)}" for x, y in places)


def _shape(shape: Shape, x: float, y: float, r: int) -> str:
    """A mark as part of a path: thousands of them are one element."""
    match shape:
        case "circle":
            return f"M{_n(x - r)} {_n(y)}a{r} {r} 0 1 0 {2 * r} 0a{r} {r} 0 1 0 {-2 * r} 0"
        case "square":
            return f"M{_n(x - r)} {_n(y - r)}h{2 * r}v{2 * r}h{-2 * r}z"
        case "up":
            return f"M{_n(x)} {_n(y - r)}l{r} {2 * r}h{-2 * r}z"
        case "diamond":
            return f"M{_n(x)} {_n(y - r)}l{r} {r}l{-r} {r}l{-r} {-r}z"
        case "down":
            return f"M{_n(x)} {_n(y + r)}l{-r} {-2 * r}h{2 * r}z"


def _n(value: float) -> str:
    """A coordinate with one digit."""
    return f"{value:.1f}".removesuffix(".0")
