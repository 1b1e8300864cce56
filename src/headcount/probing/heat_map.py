"""The heat map of heads: figure data in, the bytes of a PNG or the text of an SVG out."""

from __future__ import annotations

import functools
import itertools
import math
import textwrap
from typing import TYPE_CHECKING, Any

from headcount.core import Spec
from headcount.probing.record import ProbeRecord
from headcount.probing.words import headline
from headcount.render import COLOURS, drawing_style  # pyright: ignore[reportPrivateUsage] (one style for all)

if TYPE_CHECKING:
    from headcount.render import Picture

NUMBERED = 12
"""Up to so many heads a layer their numbers are written into the cells."""
SHADES = (COLOURS["plain"], "#b9b0dc", "#f7f7f9", "#f0b48a", COLOURS["few"])
"""From better without the head, over no difference, to worse without it."""
DARK_SHADES = ("#b3a3f2", "#7468b4", "#23272f", "#a85f2c", "#ff9a52")
"""The same on a dark page."""
STEPS = 64
"""Of a scale of colours; a page has a variable for each."""
LETTER = "#1f2431"
"""Letters in cells of the middle of the scale: dark on a light page, and dark on a dark one too."""
MIDDLE, STRONG = 0.5, 0.88
"""From these shares of the scale on, letters in cells are `LETTER`, and then have the colour of the page's ground."""


class HeatPanel(Spec):
    """One map: a value for every head of every layer."""

    title: str
    note: str
    rows: list[list[float]]


class HeatFigure(Spec):
    """The maps of a model, and the heads that go."""

    title: str
    subtitle: str
    panels: list[HeatPanel]
    gone: list[list[int]]
    """The heads of each layer that the plan removes."""
    alt: str


def heat_figure(record: ProbeRecord) -> HeatFigure:
    """Take the numbers of the picture from the record."""
    gone = record.plan.gone()
    panels = [
        HeatPanel(title="Ablation", note="loss increase without the head", rows=record.effects("ablation")),
        HeatPanel(title="Gradient", note="slope of the loss in the head's mask", rows=record.effects("gradient")),
    ]
    best = max(record.heads, key=lambda head: head.ablation)
    return HeatFigure(
        title=f"{record.model}: {headline(record)}",
        subtitle=f"Measured: {record.loss_name}, {record.samples}",
        panels=panels,
        gone=[sorted(head for where, head in gone if where == i) for i in range(len(record.layers))],
        alt=(
            f"Two maps of {len(record.heads)} heads in {len(record.layers)} layers. The largest effect has head "
            f"{best.head + 1} of layer {best.layer + 1}; {len(gone)} heads are crossed out."
        ),
    )


def as_figure(figure: HeatFigure) -> Picture:
    """Draw the picture as a matplotlib figure, with its title; a notebook shows it."""
    with drawing_style():
        return _draw(figure, titled=True)


def png(figure: HeatFigure, *, dpi: int = 160) -> bytes:
    """Draw the picture as a PNG, the same bytes every time."""
    return as_figure(figure).as_png(dpi)


def svg(figure: HeatFigure) -> str:
    """Draw the picture as an SVG element for a page, whose colours it follows (`style` has the page's rules)."""
    with drawing_style():
        drawn = _draw(figure, titled=False)
    return drawn.as_element("map", figure.alt, {**_variables(SHADES), "heat-letter": LETTER})


def style() -> str:
    """Return the rules of a page with a map: on a dark ground the scale of colours begins with a dark one."""
    dark = {**_variables(DARK_SHADES), "heat-letter": "var(--page)"}
    rules = "".join(f" --{name}: {colour};" for name, colour in dark.items())
    return f"@media screen and (prefers-color-scheme: dark) {{ :root {{{rules} }} }}\n"


def _variables(shades: tuple[str, ...]) -> dict[str, str]:
    """Name the colours of a scale for a page."""
    return {f"heat-{k}": colour for k, colour in enumerate(_scale(shades))}


@functools.cache
def _scale(shades: tuple[str, ...]) -> list[str]:
    """The colours of a scale from one end to the other, one more than there are steps."""
    from matplotlib.colors import LinearSegmentedColormap, to_hex

    between = LinearSegmentedColormap.from_list("heads", shades, N=4 * STEPS + 1)
    return [to_hex(between(k / STEPS)) for k in range(STEPS + 1)]


def _shade(value: float, top: float) -> str:
    """The colour of a value between −top and top."""
    return _scale(SHADES)[round(STEPS * (value / top + 1) / 2)]


def _lines(text: str, width: float) -> list[str]:
    """Break a text between words, never between a number and its per cent sign."""
    return textwrap.wrap(text.replace(" %", "\N{NO-BREAK SPACE}%"), int(width))


def _draw(figure: HeatFigure, *, titled: bool) -> Picture:
    from headcount.render import Picture

    layers = len(figure.gone)
    most = max(len(row) for row in figure.panels[0].rows)
    cell = min(0.52, max(0.2, 4.6 / max(most, 1)))
    wide, tall = max(most * cell, 2.6), max(layers * cell, 0.9)
    title = _lines(figure.title, (2 * wide + 3) * 8.2) if titled else []
    subtitle = _lines(figure.subtitle, (2 * wide + 3) * 10.5) if titled else []
    head = 0.25 + 0.28 * len(title) + 0.22 * len(subtitle) if titled else 0.05
    width, height = len(figure.panels) * (wide + 1.5) + 0.1, head + 0.75 + tall + 1.0
    fig = Picture(figsize=(width, height), facecolor=COLOURS["ground"])
    fig.text(0.2 / width, 1 - 0.15 / height, "\n".join(title), va="top", fontsize=14, fontweight="bold")
    under = 1 - (0.18 + 0.28 * len(title)) / height
    fig.text(0.2 / width, under, "\n".join(subtitle), va="top", fontsize=10.5, color=COLOURS["muted"])
    for k, panel in enumerate(figure.panels):
        left = 0.65 + k * (wide + 1.5)
        _map(fig, panel, figure, (left / width, 0.98 / height, wide / width, tall / height), cell)
        _words(fig, panel, left / width, height, tall)
    fig.text(0.2 / width, 0.12 / height, _key(figure), fontsize=10, color=COLOURS["muted"])
    return fig


def _key(figure: HeatFigure) -> str:
    gone = any(figure.gone)
    better = any(value < 0 for row in figure.panels[0].rows for value in row)
    numbered = max(len(row) for row in figure.panels[0].rows) <= NUMBERED
    parts = ("×: can go", gone), ("violet: better without it", better), ("numbers: % of the largest", numbered)
    return "; ".join(text for text, shown in parts if shown)


def _words(fig: Any, panel: HeatPanel, left: float, height: float, tall: float) -> None:
    fig.text(left, (0.98 + tall + 0.32) / height, panel.title, va="bottom", fontsize=12.5, fontweight="bold")
    fig.text(left, (0.98 + tall + 0.08) / height, panel.note, va="bottom", fontsize=10, color=COLOURS["muted"])


def _map(fig: Any, panel: HeatPanel, figure: HeatFigure, place: tuple[float, ...], cell: float) -> None:
    from matplotlib.patches import Rectangle

    top = max((abs(value) for row in panel.rows for value in row), default=0.0) or 1.0
    axes = fig.add_axes(place)
    most, layers = max(len(row) for row in panel.rows), len(panel.rows)
    for i, row in enumerate(panel.rows):
        for head, value in enumerate(row):
            axes.add_patch(Rectangle((head, i), 1, 1, fc=_shade(value, top), ec=COLOURS["ground"], linewidth=1))
            share = abs(value) / top
            ink = COLOURS["ground"] if share > STRONG else LETTER if share > MIDDLE else COLOURS["ink"]
            if most <= NUMBERED:
                said = f"{round(100 * value / top)}".replace("-", "−")
                axes.text(head + 0.5, i + 0.53, said, ha="center", va="center", fontsize=18 * cell, color=ink)
            if head in figure.gone[i]:
                at, size = (0.83, 10 * cell) if most <= NUMBERED else (0.5, 22 * cell)
                axes.plot(head + at, i + 1 - at, "x", ms=size, mew=1.5, color=ink)
    axes.set(xlim=(0, most), ylim=(layers, 0), xlabel="head", ylabel="layer")
    axes.set_xticks(*_ticks(most), fontsize=9.5)
    axes.set_yticks(*_ticks(layers), fontsize=9.5)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    bar = fig.add_axes((place[0] + place[2] + 0.012, place[1], 0.012, place[3]))
    values = [value for row in panel.rows for value in row]
    low, high = min([*values, 0.0]), max([*values, 0.0])
    edges = [low + ((high - low) or 1.0) * k / STEPS for k in range(STEPS + 1)]
    for under, over in itertools.pairwise(edges):
        bar.add_patch(Rectangle((0, under), 1, over - under, color=_shade((under + over) / 2, top)))
    bar.set(xlim=(0, 1), ylim=(edges[0], edges[-1]), xticks=[])
    bar.yaxis.tick_right()
    marks = [v for v in sorted({low, 0.0, high}) if v == 0 or abs(v) > 0.08 * (high - low)]
    bar.set_yticks(marks, [f"{v:.2g}" for v in marks], fontsize=9.5)
    bar.tick_params(length=0)
    bar.spines[:].set_visible(False)


def _ticks(count: int) -> tuple[list[float], list[str]]:
    """Numbers from 1, in the middle of their cells; not more than fit."""
    step = math.ceil(count / 16)
    shown = range(0, count, step)
    return [i + 0.5 for i in shown], [str(i + 1) for i in shown]
