"""Charts as files, and as the still picture of a page: the same bytes every time."""

from __future__ import annotations

import functools
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headcount.core import write_bytes
from headcount.core.text import plain
from headcount.render.charts.chart import Axis, Chart, ChartSeries, Shade, Shape, apart
from headcount.render.charts.labels import Frame, Kind, Label, place_labels
from headcount.render.style import COLOURS, RAMP, _settings, check_ending  # pyright: ignore[reportPrivateUsage]

if TYPE_CHECKING:
    from headcount.render.picture import Picture

MARKERS: dict[Shape, str] = {"circle": "o", "square": "s", "up": "^", "diamond": "D", "down": "v"}
WIDTH, HEIGHT = 7.2, 3.7
"""Width of a picture and height of its axes, in inches."""
PIXELS = 100
"""Pixels of the page's chart per inch; shifts and places of labels are in these pixels."""
HINTING_FACTOR = 1.04
"""A text may be wider by this factor at another resolution, where its letters are hinted differently."""
MAX_END_NAME = 18
"""Characters of a name that are written at the end of its line."""
FONTS: dict[str, dict[str, Any]] = {
    "fall": {"fontsize": 13, "fontweight": "bold", "linespacing": 1.3},
    "mark": {"fontsize": 9.5},
    "level": {"fontsize": 9.5},
    "shade": {"fontsize": 11.5, "fontweight": "bold"},
}


def as_figure(chart: Chart) -> Picture:
    """Return a chart as a matplotlib figure with its title, for a notebook."""
    with _settings():
        return _draw(chart, titled=True)


def picture(chart: Chart, ending: str = "png", *, dpi: int = 200) -> bytes:
    """Return a chart with its title as the bytes of a PNG, PDF or SVG file."""
    check_ending(Path(f"{chart.id}.{ending}"))
    return as_figure(chart).as_bytes(ending, dpi=dpi)


def save(chart: Chart, path: Path) -> None:
    """Draw a chart into a file: png, pdf or svg, by its ending."""
    write_bytes(path, picture(chart, path.suffix.lower().removeprefix(".")))


def still(chart: Chart) -> str:
    """Return a chart as an SVG element that follows the colours of the page; its texts stand around it."""
    with _settings():
        return _draw(chart, titled=False).as_element(chart.id, chart.alt)


def _draw(chart: Chart, *, titled: bool) -> Picture:
    """Return one chart laid out: title, axes with names at the ends of lines, legend and notes below."""
    from headcount.render.picture import Picture

    title = (textwrap.wrap(plain(chart.title), 58) or [""]) if titled else []
    subtitle = textwrap.wrap(plain(chart.subtitle), 88)[:2] if titled else []
    notes = [line for note in chart.notes for line in textwrap.wrap(plain(note), 96)] if titled else []
    right = 0.15 + min(max((len(s.name) for s in chart.ends()), default=0), MAX_END_NAME) * 0.095
    left = 0.85 + 0.1 * max(0, max((len(text) for _, text in chart.y.ticks), default=0) - 5)  # "0.0015" needs more
    frame = Frame(chart, (WIDTH - left - right) * PIXELS, HEIGHT * PIXELS)
    labels, shades = place_labels(frame, _label_size), _shades_with_room(frame)
    keys = _legend_entries(chart, labels, shades)
    columns = _columns([len(key.get_label()) for key in keys])
    rows = -(-len(keys) // columns)
    # inches above the axes: title, subtitle, and the names of shaded parts; below them: ticks, label, legend, notes
    head = (0.12 + 0.27 * len(title) + 0.2 * len(subtitle) if titled else 0.08) + (0.28 if shades else 0.06)
    foot = 0.68 + 0.24 * rows + 0.2 * len(notes)
    height = head + HEIGHT + foot
    fig = Picture(figsize=(WIDTH, height), facecolor=COLOURS["ground"])
    axes = fig.add_axes((left / WIDTH, foot / height, (WIDTH - left - right) / WIDTH, HEIGHT / height))
    _inside(fig, axes, frame, labels, shades)
    _ends(axes, chart)
    fig.text(0.02, 1 - 0.1 / height, "\n".join(title), va="top", fontsize=14, fontweight="bold", linespacing=1.25)
    place = 1 - (0.14 + 0.27 * len(title)) / height
    fig.text(0.02, place, "\n".join(subtitle), va="top", fontsize=10.5, color=COLOURS["muted"])
    if keys:
        fig.legend(
            handles=keys,
            loc="lower center",
            ncols=columns,
            frameon=False,
            fontsize=10.5,
            handlelength=1.8,
            handletextpad=0.5,
            columnspacing=1.4,
            bbox_to_anchor=(0.5, (0.03 + 0.2 * len(notes)) / height),
        )
    for i, note in enumerate(reversed(notes)):
        fig.text(0.5, (0.06 + 0.2 * i) / height, note, ha="center", fontsize=9.5, color=COLOURS["muted"])
    return fig


def panels(charts: Sequence[Chart], title: str, subtitle: str, *, across: int = 4) -> Picture:
    """Return charts with the same y axis and legend side by side, each below its own title."""
    from headcount.render.picture import Picture

    across, side, tall = min(across, len(charts)), 3.1, 2.3
    down = -(-len(charts) // across)
    wrapped = textwrap.wrap(plain(subtitle), round(34 * max(across, 3)))
    above = 0.95 + 0.2 * len(wrapped)
    height = above + side * down + 0.1
    with _settings():
        fig = Picture(figsize=(max(side * across + 0.7, 10.0), height), facecolor=COLOURS["ground"])
        wide = fig.get_figwidth()
        for k, chart in enumerate(charts):
            line, column = divmod(k, across)
            frame = Frame(chart, (side - 0.4) * PIXELS, tall * PIXELS)
            left, low = 0.8 + side * column, height - above - side * line - tall
            axes = fig.add_axes((left / wide, low / height, (side - 0.4) / wide, tall / height))
            named = _shades_with_room(frame)
            _inside(fig, axes, frame, place_labels(frame, _label_size), named)
            axes.set_title(chart.title, fontsize=11, loc="left", pad=22 if named else 6)
            axes.set_xlabel(chart.x.label, fontsize=10, labelpad=2)
            axes.set(ylabel="", **({"yticklabels": []} if column else {}))
        fig.text(0.02, 1 - 0.12 / height, title, va="top", fontsize=14, fontweight="bold")
        place = 1 - 0.44 / height
        fig.text(0.02, place, "\n".join(wrapped), va="top", fontsize=10.5, linespacing=1.3, color=COLOURS["muted"])
        keys = [_legend_entry(charts[0].entry(name)) for name in charts[0].names()]
        fig.legend(
            handles=keys, loc="lower left", ncols=len(keys), frameon=False, fontsize=10.5, bbox_to_anchor=(0.015, 0)
        )
    return fig


def _inside(fig: Any, axes: Any, frame: Frame, labels: Sequence[Label], shades: Sequence[Shade]) -> None:
    """Draw the inside of a chart's axes, and the names of shaded parts above them."""
    _axes(axes, frame.chart, shades)
    for series in frame.chart.series:
        _series(fig, axes, series)
    _references(axes, frame, labels)


def _columns(lengths: Sequence[int]) -> int:
    """Return how many columns of the legend fit side by side, from the lengths of its names."""
    if sum(lengths) + 7 * len(lengths) <= 92:
        return max(1, len(lengths))
    return max(1, min(len(lengths), int(84 / (max(lengths) + 7))))


def _label_size(kind: Kind, text: str) -> tuple[float, float]:
    """Return the width and height of a label, in pixels."""
    return text_size(plain(text, lines=True), kind)


@functools.lru_cache(maxsize=1024)
def text_size(text: str, kind: str) -> tuple[float, float]:
    """Return how wide and high a text is, in pixels of a chart 720 wide."""
    from matplotlib.backends.backend_agg import RendererAgg

    from headcount.render.picture import Picture

    with _settings():
        box = Picture(dpi=PIXELS).text(0, 0, text, **FONTS[kind]).get_window_extent(RendererAgg(8, 8, PIXELS))
    return HINTING_FACTOR * box.width, box.height


def _shades_with_room(frame: Frame) -> list[Shade]:
    """Return the shaded parts whose names fit above them."""
    axis, found = frame.chart.x, list[Shade]()
    for shade in frame.chart.shades:
        low, high = (min(max(axis.place(v), 0.0), 1.0) for v in (shade.low, shade.high))
        if shade.text and text_size(plain(shade.text), "shade")[0] < (high - low) * frame.width:
            found.append(shade)
    return found


def _axes(axes: Any, chart: Chart, named: Sequence[Shade]) -> None:
    """Draw scales, ticks, shaded parts, and the lines of marks and levels."""
    axes.set_facecolor("none")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", which="major", color=COLOURS["grid"], linewidth=0.9)
    axes.tick_params(which="both", length=0)
    axes.set_xlabel(chart.x.label, fontsize=12, labelpad=5)
    axes.set_ylabel(chart.y.label, fontsize=12, labelpad=5)
    _scale(axes, axes.xaxis, chart.x, "x")
    _scale(axes, axes.yaxis, chart.y, "y")
    for shade in chart.shades:
        axes.axvspan(shade.low, shade.high, color=COLOURS[f"{shade.tone}-ground"], linewidth=0, zorder=0)
    for shade in named:
        middle = (max(shade.low, chart.x.low) + min(shade.high, chart.x.high)) / 2
        axes.text(
            middle,
            1.01,
            shade.text,
            transform=axes.get_xaxis_transform(),
            color=COLOURS[shade.tone],
            ha="center",
            va="bottom",
            **FONTS["shade"],
        )
    for level in chart.levels:
        axes.axhline(level.y, color=COLOURS["muted"], linewidth=1.0, dashes=(2, 3), zorder=1)
    for mark in chart.marks:
        axes.axvline(mark.x, color=COLOURS["muted"], linewidth=1.0, dashes=(2, 3), zorder=1)


def _scale(axes: Any, one: Any, axis: Axis, which: str) -> None:
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    getattr(axes, f"set_{which}scale")(axis.scale)
    getattr(axes, f"set_{which}lim")(axis.low, axis.high)
    one.set_major_locator(FixedLocator([value for value, _ in axis.ticks]))
    one.set_major_formatter(FixedFormatter([text for _, text in axis.ticks]))
    one.set_minor_locator(NullLocator())


def _colour(series: ChartSeries) -> str:
    return RAMP[series.colour] if series.tone is None else COLOURS[series.tone]


def _series(fig: Any, axes: Any, series: ChartSeries) -> None:
    from matplotlib.transforms import ScaledTranslation

    x, y = [p.x for p in series.points], [p.y for p in series.points]
    colour, marker = _colour(series), MARKERS[series.shape]
    place = axes.transData + ScaledTranslation(series.shift / PIXELS, 0, fig.dpi_scale_trans)
    ranges = [(p.x, p.low, p.high) for p in series.points if p.low is not None and p.high is not None]
    match series.style:
        case "band" if ranges:
            axes.fill_between(*zip(*ranges, strict=True), color=colour, alpha=0.14, linewidth=0, zorder=2)
        case "dots":
            size = 2 * series.radius * 72 / PIXELS
            axes.plot(x, y, marker, ms=size, mew=0, alpha=_faint(series), color=colour, transform=place, zorder=5)
        case "rings":
            for at, low, high in ranges:
                axes.plot([at, at], [low, high], lw=1.1, color=colour, alpha=0.8, transform=place, zorder=4)
            style = {"ms": 8, "mew": 1.6, "mfc": COLOURS["ground"], "mec": colour}
            axes.plot(x, y, marker, transform=place, zorder=5, **style)
        case "dashed":
            axes.plot(x, y, lw=1.5, dashes=(5, 3), color=colour, transform=place, zorder=3)
        case "thin":
            axes.plot(x, y, lw=1.0, alpha=0.4, color=colour, transform=place, zorder=2)
        case "line":
            axes.plot(x, y, lw=2.1, color=colour, solid_capstyle="round", transform=place, zorder=4)
            first = {"all": 0, "last": -1, "none": len(x)}[series.marks]
            axes.plot(x[first:], y[first:], marker, ms=6, mew=0, color=colour, transform=place, zorder=4)
        case _:
            pass


def _faint(series: ChartSeries) -> float:
    """Return the opacity of dots: small ones overlap, large ones stand side by side."""
    return 0.55 if series.radius <= 3 else 0.75


def _ends(axes: Any, chart: Chart) -> None:
    """Write the names of lines at their right ends."""
    ends = chart.ends()
    places = apart([chart.y.place(s.points[-1].y) for s in ends], 0.062, 1.0)
    for place, series in zip(places, ends, strict=True):
        name = series.name if len(series.name) <= MAX_END_NAME else f"{series.name[: MAX_END_NAME - 1]}…"
        axes.annotate(
            name,
            (1, place),
            (5, 0),
            xycoords="axes fraction",
            textcoords="offset points",
            va="center",
            fontsize=10.5,
            fontweight="bold",
            color=_colour(series),
            annotation_clip=False,
        )


def _references(axes: Any, frame: Frame, labels: Sequence[Label]) -> None:
    """Draw the arrow of a fall, and the labels that found a place."""
    at, fall = axes.transAxes, frame.chart.fall
    if fall is not None:
        arrow, ink = frame.arrow(fall), COLOURS["ink"]
        x, low, high = (arrow.left + arrow.right) / 2 / frame.width, arrow.low / frame.height, arrow.high / frame.height
        for start, height in ((fall.x_from, high), (fall.x_to, low)):
            along = [frame.chart.x.place(start), x + 5 / frame.width]
            axes.plot(along, [height] * 2, lw=1.1, dashes=(1, 2), color=ink, transform=at, zorder=2)
        axes.annotate(
            "",
            (x, low),
            (x, high),
            xycoords=at,
            textcoords=at,
            zorder=6,
            arrowprops={
                "arrowstyle": "-|>,head_width=0.32,head_length=0.7",
                "lw": 2,
                "color": ink,
                "shrinkA": 0,
                "shrinkB": 0,
            },
        )
    for label in labels:
        if label.box is not None:
            axes.text(
                label.box.left / frame.width,
                label.box.low / frame.height,
                label.text,
                va="bottom",
                transform=at,
                color=COLOURS["ink" if label.kind == "fall" else "muted"],
                zorder=7,
                **FONTS[label.kind],
            )


def _legend_entries(chart: Chart, labels: Sequence[Label], named: Sequence[Shade]) -> list[Any]:
    """Return the entries of the legend: the series if there are several, and what has no label in the chart."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    keys = [_legend_entry(chart.entry(name)) for name in chart.names()] if len(chart.names()) > 1 else []
    for label in labels:
        if label.box is None:
            look: dict[str, Any] = {"lw": 1.0, "dashes": (2, 3), "color": COLOURS["muted"]}
            if label.kind == "fall":
                look = {"marker": "v", "ms": 6, "mew": 0, "lw": 2, "color": COLOURS["ink"]}
            keys.append(Line2D([], [], label=label.text.replace("\n", " "), **look))
    keys += [Patch(fc=COLOURS[f"{s.tone}-ground"], label=s.text) for s in chart.shades if s.text and s not in named]
    return keys


def _legend_entry(series: ChartSeries) -> Any:
    """Return the entry of a series in the legend."""
    from matplotlib.lines import Line2D

    colour, marker = _colour(series), MARKERS[series.shape]
    looks: dict[str, dict[str, Any]] = {
        "line": {"lw": 2.1, "marker": "" if series.marks == "none" else marker, "ms": 6, "mew": 0},
        "thin": {"lw": 1.0, "alpha": 0.6},
        "dashed": {"lw": 1.5, "dashes": (5, 3)},
        "rings": {"ls": "", "marker": marker, "ms": 8, "mew": 1.6, "mfc": COLOURS["ground"], "mec": colour},
        "dots": {"ls": "", "marker": marker, "ms": 2 * max(series.radius, 4) * 72 / PIXELS, "mew": 0},
        "band": {"lw": 7, "alpha": 0.14, "solid_capstyle": "butt"},
    }
    return Line2D([], [], color=colour, label=series.name, **looks[series.style])
