"""Charts as files: PNG for slides, PDF and SVG for papers, the same bytes every time."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headcount.core import write_bytes
from headcount.render.charts.chart import Axis, Chart, ChartSeries, Shape, apart
from headcount.render.style import COLOURS, _settings, check_ending  # pyright: ignore[reportPrivateUsage]

if TYPE_CHECKING:
    from headcount.render.picture import Picture

RAMP = ("#0d0887", "#5302a3", "#8b0aa5", "#b83289", "#d2526d", "#dc6a3c", "#c98500", "#8f8a00")
"""From first to last: hue and lightness change together, so that colour-blind eyes and grey prints see the order."""
MARKERS: dict[Shape, str] = {"circle": "o", "square": "s", "up": "^", "diamond": "D", "down": "v"}
WIDTH = 7.2
PIXELS = 100
"""Pixels of the page's chart to an inch here: shifts are stated in them."""


def as_figure(chart: Chart) -> Picture:
    """Draw a chart as a matplotlib figure, with its title; a notebook shows it."""
    with _settings():
        return _draw(chart)


def picture(chart: Chart, ending: str = "png", *, dpi: int = 200) -> bytes:
    """Draw a chart as a PNG, PDF or SVG file, with its title."""
    check_ending(Path(f"{chart.id}.{ending}"))
    return as_figure(chart).as_bytes(ending, dpi=dpi)


def save(chart: Chart, path: Path) -> None:
    """Draw a chart into a file; its ending says which kind."""
    write_bytes(path, picture(chart, path.suffix.lower().removeprefix(".")))


def _draw(chart: Chart) -> Picture:
    """Lay out one chart: title, axes with names at the ends of lines, legend and notes below."""
    from headcount.render.picture import Picture

    title = textwrap.wrap(chart.title, 58) or [""]
    subtitle = textwrap.wrap(chart.subtitle, 88)[:2]
    notes = [line for note in chart.notes for line in textwrap.wrap(note, 96)]
    columns = _columns(chart)
    legend = -(-len(chart.names()) // columns) if len(chart.names()) > 1 else 0
    head = 0.34 + 0.27 * len(title) + 0.2 * len(subtitle)
    foot = 0.68 + 0.24 * legend + 0.2 * len(notes)
    height = head + 3.7 + foot
    fig = Picture(figsize=(WIDTH, height), facecolor=COLOURS["ground"])
    right = 0.15 + min(max((len(s.name) for s in chart.ends()), default=0), 18) * 0.095
    left = 0.85 + 0.1 * max(0, max((len(text) for _, text in chart.y.ticks), default=0) - 5)  # "0.0015" needs more
    axes = fig.add_axes((left / WIDTH, foot / height, (WIDTH - left - right) / WIDTH, 3.7 / height))
    _axes(axes, chart)
    for series in chart.series:
        _series(fig, axes, series)
    _ends(axes, chart)
    fig.text(0.02, 1 - 0.1 / height, "\n".join(title), va="top", fontsize=14, fontweight="bold", linespacing=1.25)
    place = 1 - (0.14 + 0.27 * len(title)) / height
    fig.text(0.02, place, "\n".join(subtitle), va="top", fontsize=10.5, color=COLOURS["muted"])
    if legend:
        fig.legend(
            handles=[_key(chart.entry(name)) for name in chart.names()], loc="lower center", ncols=columns,
            frameon=False, fontsize=10.5, handlelength=1.8, handletextpad=0.5, columnspacing=1.4,
            bbox_to_anchor=(0.5, (0.03 + 0.2 * len(notes)) / height),
        )  # fmt: skip
    for i, note in enumerate(reversed(notes)):
        fig.text(0.5, (0.06 + 0.2 * i) / height, note, ha="center", fontsize=9.5, color=COLOURS["muted"])
    return fig


def _columns(chart: Chart) -> int:
    """As many columns of the legend as its longest name lets stand beside each other."""
    longest = max((len(name) for name in chart.names()), default=1)
    return max(1, min(len(chart.names()), int(84 / (longest + 7))))


def _axes(axes: Any, chart: Chart) -> None:
    """Scales, ticks, shades, marks and levels."""
    axes.set_facecolor("none")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", which="major", color=COLOURS["grid"], linewidth=0.9)
    axes.tick_params(which="both", length=0)
    axes.set_xlabel(chart.x.label, fontsize=12, labelpad=5)
    axes.set_ylabel(chart.y.label, fontsize=12, labelpad=5)
    _scale(axes, axes.xaxis, chart.x, "x")
    _scale(axes, axes.yaxis, chart.y, "y")
    above = axes.get_xaxis_transform()
    for shade in chart.shades:
        axes.axvspan(shade.low, shade.high, color=COLOURS[f"{shade.tone}-ground"], linewidth=0, zorder=0)
        middle = (shade.low + shade.high) / 2
        axes.text(
            middle, 1.01, shade.text, transform=above, color=COLOURS[shade.tone], ha="center", va="bottom",
            fontsize=11, fontweight="bold",
        )  # fmt: skip
    for level in chart.levels:
        axes.axhline(level.y, color=COLOURS["muted"], linewidth=1.0, dashes=(2, 3), zorder=1)
        axes.annotate(
            level.text, (1, level.y), (-4, 3), xycoords=("axes fraction", "data"), textcoords="offset points",
            ha="right", va="bottom", fontsize=9.5, color=COLOURS["muted"],
        )  # fmt: skip
    for mark in chart.marks:
        axes.axvline(mark.x, 0, 0.92, color=COLOURS["muted"], linewidth=1.0, dashes=(2, 3), zorder=1)
        tight = chart.x.place(mark.x) > 0.8  # near the end the text stands before the line
        axes.annotate(
            mark.text, (mark.x, 0.89), (-4 if tight else 4, -4), ha="right" if tight else "left",
            xycoords=("data", "axes fraction"), textcoords="offset points", fontsize=9.5, color=COLOURS["muted"],
        )  # fmt: skip


def _scale(axes: Any, one: Any, axis: Axis, which: str) -> None:
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    getattr(axes, f"set_{which}scale")(axis.scale)
    getattr(axes, f"set_{which}lim")(axis.low, axis.high)
    one.set_major_locator(FixedLocator([value for value, _ in axis.ticks]))
    one.set_major_formatter(FixedFormatter([text for _, text in axis.ticks]))
    one.set_minor_locator(NullLocator())


def _series(fig: Any, axes: Any, series: ChartSeries) -> None:
    from matplotlib.transforms import ScaledTranslation

    x, y = [p.x for p in series.points], [p.y for p in series.points]
    colour, marker = RAMP[series.colour], MARKERS[series.shape]
    place = axes.transData + ScaledTranslation(series.shift / PIXELS, 0, fig.dpi_scale_trans)
    ranges = [(p.x, p.low, p.high) for p in series.points if p.low is not None and p.high is not None]
    if series.style == "band" and not ranges:
        return
    if series.style == "band":
        axes.fill_between(*zip(*ranges, strict=True), color=colour, alpha=0.14, linewidth=0, zorder=2)
    elif series.style == "dots":
        axes.plot(x, y, marker, ms=4.6, mew=0, alpha=0.55, color=colour, transform=place, zorder=3)
    elif series.style == "rings":
        for at, low, high in ranges:
            axes.plot([at, at], [low, high], lw=1.1, color=colour, alpha=0.8, transform=place, zorder=4)
        axes.plot(x, y, marker, ms=8, mew=1.6, mfc=COLOURS["ground"], mec=colour, transform=place, zorder=5)
    elif series.style == "dashed":
        axes.plot(x, y, lw=1.5, dashes=(5, 3), color=colour, zorder=3)
    else:
        axes.plot(x, y, marker=marker, ms=6, mew=0, lw=2.1, color=colour, zorder=4)


def _ends(axes: Any, chart: Chart) -> None:
    """Names of lines at their right ends."""
    ends = chart.ends()
    places = apart([chart.y.place(s.points[-1].y) for s in ends], 0.062, 1.0)
    for place, series in zip(places, ends, strict=True):
        axes.annotate(
            textwrap.shorten(series.name, 20, placeholder="…"), (1, place), (5, 0), xycoords="axes fraction",
            textcoords="offset points", va="center", fontsize=10.5, fontweight="bold", color=RAMP[series.colour],
            annotation_clip=False,
        )  # fmt: skip


def _key(series: ChartSeries) -> Any:
    """The entry of a series in the legend."""
    from matplotlib.lines import Line2D

    colour, marker = RAMP[series.colour], MARKERS[series.shape]
    if series.style == "dashed":
        return Line2D([], [], lw=1.5, dashes=(5, 3), color=colour, label=series.name)
    if series.style == "rings":
        style: dict[str, Any] = {"marker": marker, "ms": 8, "mew": 1.6, "mfc": COLOURS["ground"], "mec": colour}
        return Line2D([], [], ls="", label=series.name, **style)
    line = "-" if series.style == "line" else ""
    return Line2D([], [], marker=marker, ms=6, mew=0, lw=2.1, ls=line, color=colour, label=series.name)
