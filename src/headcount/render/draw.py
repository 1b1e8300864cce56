"""Drawing: figure data in, the bytes of a PNG or the text of an SVG out, the same every time."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headcount.core import write_bytes
from headcount.core.text import escape
from headcount.render.figures import FigureData, Jump, Series, Tone
from headcount.render.picture import Picture
from headcount.render.style import COLOURS, PNG_DPI, SIZE, _settings, check_ending  # pyright: ignore[reportPrivateUsage] (one style for all)

TONE: dict[Tone, str] = {tone: COLOURS[tone] for tone in ("few", "enough", "plain")}
SHORT_JUMP = 4.0
ASIDE = 0.32
"""How far the arrow stands beside its head count."""


def as_figure(figure: FigureData) -> Picture:
    """Draw a figure as a matplotlib figure, with its title; a notebook shows it."""
    with _settings():
        return _draw(figure, titled=True)


def png(figure: FigureData, *, dpi: int = PNG_DPI) -> bytes:
    """Draw a figure as a PNG, with its title, for slides and papers."""
    return as_figure(figure).as_png(dpi)


def svg(figure: FigureData, *, titled: bool = False) -> str:
    """Draw a figure as an SVG element that can stand inside a page or alone."""
    with _settings():
        drawn = _draw(figure, titled=titled)
    return _tidy(drawn.as_bytes("svg", transparent=True).decode(), figure)


def save(figure: FigureData, path: Path) -> None:
    """Draw a figure into a file: png, pdf or svg, by its ending."""
    check_ending(path)
    write_bytes(path, as_figure(figure).as_file(path))


def _draw(figure: FigureData, *, titled: bool) -> Picture:
    """Lay out one picture: title, axes, legend below."""
    title = _wrap(figure.title, 58) if titled else ""
    # inches: above the axes the title and subtitle, if any, and a line of names; below them labels and legend
    head = 0.52 + 0.27 * (title.count("\n") + 1) if titled else 0.0
    legend = 0.3 if figure.kind == "transition" else 0.0
    top, bottom, height = head + 0.4, 0.66 + legend + 0.24 * len(figure.notes), SIZE[1] + head
    fig = Picture(figsize=(SIZE[0], height), facecolor=COLOURS["ground"])
    axes = fig.add_axes((0.16, bottom / height, 0.82, (height - bottom - top) / height))
    axes.set_facecolor("none")
    axes.set_yscale("log")
    axes.set_xlabel(figure.x_label, fontsize=13, labelpad=5)
    axes.set_ylabel(figure.y_label, fontsize=13, labelpad=5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", which="major", color=COLOURS["grid"], linewidth=0.9)
    axes.tick_params(which="both", length=0)
    axes.tick_params(axis="x", labelsize=13, pad=6)
    _error_axis(axes, figure)
    (_transition if figure.kind == "transition" else _training)(fig, axes, figure)
    for i, note in enumerate(reversed(figure.notes)):
        place = (0.1 + 0.24 * i) / height
        fig.text(0.57, place, note, ha="center", va="bottom", fontsize=10.5, color=COLOURS["muted"])
    if titled:
        fig.text(0.02, 1 - 0.14 / height, title, va="top", fontsize=14.5, fontweight="bold", linespacing=1.25)
        subtitle = _wrap(figure.subtitle, 84).split("\n")[0]
        fig.text(0.02, 1 - (head - 0.08) / height, subtitle, va="bottom", fontsize=11, color=COLOURS["muted"])
    return fig


def _error_axis(axes: Any, figure: FigureData) -> None:
    """Whole powers of ten, written out as long as that is short, and the line of guessing the average."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    errors = [point.y for series in figure.series for point in series.points]
    low = math.floor(math.log10(min([*errors, 0.1])) - 0.05)
    high = max([*errors, 1.0])
    ticks = range(math.floor(math.log10(high)), low - 1, -figure.decades)
    plain = low >= -6
    name: Callable[[float, int], str] = lambda y, _: (  # noqa: E731
        f"{y:.{max(0, -round(math.log10(y)))}f}" if plain else _power(round(math.log10(y)))
    )
    axes.yaxis.set_major_locator(FixedLocator([10.0**k for k in ticks]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(name))
    span = math.log10(high) - low
    axes.set_ylim(10.0 ** (low - 0.02 * span), high * 10.0 ** (0.07 * span))
    axes.axhline(1.0, color=COLOURS["muted"], linewidth=1.1, dashes=(2, 3))
    axes.annotate(
        "always guessing the average", (1, 1.0), (-4, 4), xycoords=("axes fraction", "data"),
        textcoords="offset points", ha="right", va="bottom", fontsize=10.5, color=COLOURS["muted"],
    )  # fmt: skip


def _transition(fig: Any, axes: Any, figure: FigureData) -> None:
    """Dots, two lines, shaded regions and the arrow."""
    from matplotlib.lines import Line2D

    ticks = figure.ticks or [1]
    left, right = min(ticks) - 0.5, max(ticks) + 0.5
    if figure.jump is not None:
        right = max(right, left + (figure.jump.heads_to + ASIDE - left) / 0.72)  # room for the arrow's text
    axes.set_xlim(left, right)
    axes.set_xticks(ticks)
    for region in figure.regions:
        start = left if region.tone == "few" else region.first - 0.5
        stop = region.last + 0.5 if region.tone == "few" else right
        axes.axvspan(start, stop, color=COLOURS[f"{region.tone}-ground"], linewidth=0, zorder=0)
        axes.text(
            (start + stop) / 2, 1.015, region.text, transform=axes.get_xaxis_transform(), ha="center",
            va="bottom", fontsize=12.5, fontweight="bold", color=TONE[region.tone],
        )  # fmt: skip
    for series in figure.series:
        x, y = [p.x for p in series.points], [p.y for p in series.points]
        if series.style == "dots":
            axes.plot(_spread(x), y, "o", ms=8.5, mew=0, alpha=0.75, color=TONE[series.tone], zorder=4)
        elif series.style == "best":
            axes.plot(x, y, "-", linewidth=2.2, color=COLOURS["ink"], zorder=3)
        else:
            axes.plot(x, y, linewidth=1.6, dashes=(4, 2.5), color=COLOURS["muted"], zorder=2)
    if figure.jump is not None:
        _arrow(axes, figure.jump)
    keys = [
        Line2D(
            [],
            [],
            marker="o",
            ls="",
            ms=8.5,
            mew=0,
            color=COLOURS["muted"],
            label="one trained model (one seed)",
        ),
        Line2D([], [], lw=2.2, color=COLOURS["ink"], label="best seed"),
        Line2D([], [], lw=1.6, dashes=(4, 2.5), color=COLOURS["muted"], label="median of the seeds"),
    ]
    low = 0.04 + 0.24 * len(figure.notes)
    fig.legend(
        handles=keys, loc="lower center", ncols=3, frameon=False, fontsize=11, handlelength=1.8,
        handletextpad=0.5, columnspacing=1.6, bbox_to_anchor=(0.51, low / fig.get_figheight()),
    )  # fmt: skip


def _spread(x: list[float]) -> list[float]:
    """Set dots of one head count side by side, so that equal errors do not hide each other."""
    step = min(0.07, 0.3 / max(len(x), 1))
    return [value + step * (i - (len(x) - 1) / 2) for i, value in enumerate(x)]


def _arrow(axes: Any, jump: Jump) -> None:
    """A dimension line: from the error before the jump down to the error after it."""
    x = jump.heads_to + ASIDE
    for start, y in ((jump.heads_from, jump.error_from), (jump.heads_to, jump.error_to)):
        axes.plot([start, x + 0.05], [y, y], linewidth=1.1, dashes=(1, 2), color=COLOURS["ink"], zorder=2)
    axes.annotate(
        "", (x, jump.error_to), (x, jump.error_from), zorder=5,
        arrowprops={"arrowstyle": "-|>,head_width=0.32,head_length=0.7", "lw": 2, "color": COLOURS["ink"],
                    "shrinkA": 0, "shrinkB": 0},
    )  # fmt: skip
    short = jump.error_from < SHORT_JUMP * jump.error_to  # beside a short arrow the words would lie on the lines
    y = jump.error_from if short else math.sqrt(jump.error_from * jump.error_to)
    axes.annotate(
        jump.text, (x, y), (9, 2 if short else 0), textcoords="offset points",
        va="bottom" if short else "center", fontsize=13.5, fontweight="bold", linespacing=1.3,
    )  # fmt: skip


def _training(_fig: Any, axes: Any, figure: FigureData) -> None:
    """Curves with their names at their ends instead of a legend."""
    ends: list[Series] = []
    order = sorted({s.heads for s in figure.series if s.heads is not None})
    longest = max((p.x for s in figure.series for p in s.points), default=1.0)
    for series in figure.series:
        x, y = [p.x for p in series.points], [p.y for p in series.points]
        thick = series.style == "curve-best"
        axes.plot(
            x, y, color=TONE[series.tone], linewidth=2.4 if thick else 1.0, alpha=1.0 if thick else 0.4,
            solid_capstyle="round", zorder=3 if thick else 2,
        )  # fmt: skip
        if thick:
            ends.append(series)
            mark = order.index(series.heads) if series.heads in order else 0
            axes.plot(x[-1], y[-1], "os^Dvph*"[mark % 8], ms=7, mew=0, color=TONE[series.tone], zorder=4)
    axes.set_xlim(0, longest * 1.17)
    axes.set_xticks([t for t in axes.get_xticks() if 0 <= t <= longest])
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    low, high = (math.log10(v) for v in axes.get_ylim())
    heights = _apart([(math.log10(s.points[-1].y) - low) / (high - low) for s in ends], 0.06)
    for place, series in zip(heights, ends, strict=True):
        axes.text(
            1.025 / 1.17, place, series.name, transform=axes.transAxes, va="center", fontsize=12,
            fontweight="bold", color=TONE[series.tone],
        )  # fmt: skip


def _apart(places: list[float], gap: float) -> list[float]:
    """Move labels as little as a simple sweep can, so that no two are closer than the gap."""
    order = sorted(range(len(places)), key=lambda i: places[i])
    moved = list(places)
    for before, after in itertools.pairwise(order):
        moved[after] = max(moved[after], moved[before] + gap)
    return moved


def _power(exponent: int) -> str:
    """Ten to an exponent, in plain characters."""
    return "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _wrap(text: str, width: int) -> str:
    import textwrap

    return "\n".join(textwrap.wrap(text, width)) or text


def _tidy(text: str, figure: FigureData) -> str:
    """Make Matplotlib's file a guest in a page: no header, own names, colours that follow the page."""
    text = text[text.index("<svg") :].strip() + "\n"
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    prefix = f"{figure.kind}-"
    text = re.sub(r'\bid="', f'id="{prefix}', text)
    text = text.replace('href="#', f'href="#{prefix}').replace("url(#", f"url(#{prefix}")
    text = text.replace("*{stroke-linejoin", f"#{prefix}figure_1 *{{stroke-linejoin")
    for name, colour in COLOURS.items():
        text = text.replace(f": {colour}", f": var(--{name}, {colour})")
    label = escape(figure.alt)
    # the size comes from the page; the view box keeps the proportions
    text = re.sub(r'<svg ([^>]*?)width="[^"]*" height="[^"]*" ', r"<svg \1", text, count=1)
    return text.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
