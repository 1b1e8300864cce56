"""Draw the heat map of heads: from figure data to the bytes of a PNG or the text of an SVG."""

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

MAX_NUMBERED_HEADS = 12
"""Layers with at most this many heads have numbers in their cells."""
LIGHT_SCALE = (COLOURS["plain"], "#b9b0dc", "#f7f7f9", "#f0b48a", COLOURS["few"])
"""Colours from "better without the head" through "no difference" to "worse without it", on a light page."""
DARK_SCALE = ("#b3a3f2", "#7468b4", "#23272f", "#a85f2c", "#ff9a52")
"""The same colours on a dark page."""
COLOUR_STEPS = 64
"""Steps of the colour scale; a page has a variable for each."""
MIDDLE_INK = "#1f2431"
"""Colour of numbers in cells with a middle colour, on light and dark pages."""
MIDDLE_FRACTION, STRONG_FRACTION = 0.5, 0.88
"""Above the first fraction of the scale numbers have the colour `MIDDLE_INK`, above the second that of the page."""


class HeatPanel(Spec):
    """One map, with a value for every head of every layer."""

    title: str
    note: str
    rows: list[list[float]]


class HeatFigure(Spec):
    """The maps of a model, and the heads that the plan removes."""

    title: str
    subtitle: str
    panels: list[HeatPanel]
    gone: list[list[int]]
    """The heads of each layer that the plan removes."""
    alt: str


def heat_figure(record: ProbeRecord) -> HeatFigure:
    """Return the data of the picture for a record."""
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
            f"Two maps of {len(record.heads)} heads in {len(record.layers)} layers. Head {best.head + 1} of layer "
            f"{best.layer + 1} has the largest effect; {len(gone)} heads are crossed out."
        ),
    )


def as_figure(figure: HeatFigure) -> Picture:
    """Return the picture as a matplotlib figure with its title, which a notebook can show."""
    with drawing_style():
        return _draw(figure, titled=True)


def png(figure: HeatFigure, *, dpi: int = 160) -> bytes:
    """Return the picture as a PNG; equal data give equal bytes."""
    return as_figure(figure).as_png(dpi)


def svg(figure: HeatFigure) -> str:
    """Return the picture as an SVG element that follows the colours of its page (`style` has the page's rules)."""
    with drawing_style():
        drawn = _draw(figure, titled=False)
    return drawn.as_element("map", figure.alt, {**_variables(LIGHT_SCALE), "heat-letter": MIDDLE_INK})


def style() -> str:
    """Return the CSS rules of a page with a map, which switch to the dark scale on a dark page."""
    dark = {**_variables(DARK_SCALE), "heat-letter": "var(--page)"}
    rules = "".join(f" --{name}: {colour};" for name, colour in dark.items())
    return f"@media screen and (prefers-color-scheme: dark) {{ :root {{{rules} }} }}\n"


def _variables(shades: tuple[str, ...]) -> dict[str, str]:
    """Return the colours of a scale by the names of their CSS variables."""
    return {f"heat-{k}": colour for k, colour in enumerate(_scale(shades))}


@functools.cache
def _scale(shades: tuple[str, ...]) -> list[str]:
    """Return the COLOUR_STEPS + 1 colours of a scale, from one end to the other."""
    from matplotlib.colors import LinearSegmentedColormap, to_hex

    between = LinearSegmentedColormap.from_list("heads", shades, N=4 * COLOUR_STEPS + 1)
    return [to_hex(between(k / COLOUR_STEPS)) for k in range(COLOUR_STEPS + 1)]


def _shade(value: float, top: float) -> str:
    """Return the colour of a value between −top and top."""
    return _scale(LIGHT_SCALE)[round(COLOUR_STEPS * (value / top + 1) / 2)]


def _lines(text: str, width: float) -> list[str]:
    """Wrap a text between words, but never between a number and its per cent sign."""
    return textwrap.wrap(text.replace(" %", "\N{NO-BREAK SPACE}%"), int(width))


def _draw(figure: HeatFigure, *, titled: bool) -> Picture:
    from headcount.render import Picture

    layers = len(figure.gone)
    columns = max(len(row) for row in figure.panels[0].rows)
    cell = min(0.52, max(0.2, 4.6 / max(columns, 1)))
    wide, tall = max(columns * cell, 2.6), max(layers * cell, 0.9)
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
    numbered = max(len(row) for row in figure.panels[0].rows) <= MAX_NUMBERED_HEADS
    parts = ("×: can go", gone), ("violet: better without it", better), ("numbers: % of the largest", numbered)
    return "; ".join(text for text, shown in parts if shown)


def _words(fig: Any, panel: HeatPanel, left: float, height: float, tall: float) -> None:
    fig.text(left, (0.98 + tall + 0.32) / height, panel.title, va="bottom", fontsize=12.5, fontweight="bold")
    fig.text(left, (0.98 + tall + 0.08) / height, panel.note, va="bottom", fontsize=10, color=COLOURS["muted"])


def _map(fig: Any, panel: HeatPanel, figure: HeatFigure, place: tuple[float, ...], cell: float) -> None:
    from matplotlib.patches import Rectangle

    top = max((abs(value) for row in panel.rows for value in row), default=0.0) or 1.0
    axes = fig.add_axes(place)
    columns, layers = max(len(row) for row in panel.rows), len(panel.rows)
    for i, row in enumerate(panel.rows):
        for head, value in enumerate(row):
            axes.add_patch(Rectangle((head, i), 1, 1, fc=_shade(value, top), ec=COLOURS["ground"], linewidth=1))
            ink = _ink(abs(value) / top)
            if columns <= MAX_NUMBERED_HEADS:
                percent = f"{round(100 * value / top)}".replace("-", "−")
                axes.text(head + 0.5, i + 0.53, percent, ha="center", va="center", fontsize=18 * cell, color=ink)
            if head in figure.gone[i]:
                at, size = (0.83, 10 * cell) if columns <= MAX_NUMBERED_HEADS else (0.5, 22 * cell)
                axes.plot(head + at, i + 1 - at, "x", ms=size, mew=1.5, color=ink)
    axes.set(xlim=(0, columns), ylim=(layers, 0), xlabel="head", ylabel="layer")
    axes.set_xticks(*_ticks(columns), fontsize=9.5)
    axes.set_yticks(*_ticks(layers), fontsize=9.5)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    bar = fig.add_axes((place[0] + place[2] + 0.012, place[1], 0.012, place[3]))
    values = [value for row in panel.rows for value in row]
    low, high = min([*values, 0.0]), max([*values, 0.0])
    edges = [low + ((high - low) or 1.0) * k / COLOUR_STEPS for k in range(COLOUR_STEPS + 1)]
    for under, over in itertools.pairwise(edges):
        bar.add_patch(Rectangle((0, under), 1, over - under, color=_shade((under + over) / 2, top)))
    bar.set(xlim=(0, 1), ylim=(edges[0], edges[-1]), xticks=[])
    bar.yaxis.tick_right()
    marks = [v for v in sorted({low, 0.0, high}) if v == 0 or abs(v) > 0.08 * (high - low)]
    bar.set_yticks(marks, [f"{v:.2g}" for v in marks], fontsize=9.5)
    bar.tick_params(length=0)
    bar.spines[:].set_visible(False)


def _ink(strength: float) -> str:
    """Return the colour of the number in a cell whose colour has this strength, from 0 to 1."""
    if strength > STRONG_FRACTION:
        return COLOURS["ground"]
    return MIDDLE_INK if strength > MIDDLE_FRACTION else COLOURS["ink"]


def _ticks(count: int) -> tuple[list[float], list[str]]:
    """Return ticks in the middle of cells and their numbers, from 1, leaving out those that do not fit."""
    step = math.ceil(count / 16)
    shown = range(0, count, step)
    return [i + 0.5 for i in shown], [str(i + 1) for i in shown]
