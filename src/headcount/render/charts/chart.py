"""Charts as data: axes, series and marks, so that page, picture and terminal draw the same numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

from pydantic import Field

from headcount.core import Spec
from headcount.render.words.numbers import error_text

RAMP_COLOURS = 8
"""Colours of the scale from first to last; line 3 of 5 has the same one in every drawing."""
Shape = Literal["circle", "square", "up", "diamond", "down"]
SHAPES: tuple[Shape, ...] = ("circle", "square", "up", "diamond", "down")
Style = Literal["line", "thin", "dashed", "dots", "rings", "band"]
Tone = Literal["few", "enough", "plain", "ink", "muted"]
"""Colours with a meaning. few: these heads fail; enough: at or after the step; plain: no step divides the head counts;
ink, muted: drawn like text."""


class Axis(Spec):
    """One axis: its whole range and the ticks of that range."""

    label: str
    scale: Literal["linear", "log"]
    low: float
    high: float
    ticks: list[tuple[float, str]]

    def place(self, value: float) -> float:
        """Return where a value lies, from 0 at the low end to 1 at the high one."""
        if self.scale == "linear":
            return (value - self.low) / (self.high - self.low)
        return math.log(value / self.low) / math.log(self.high / self.low)

    def value(self, place: float) -> float:
        """Return the value at a place: the inverse of `place`, also beyond both ends."""
        if self.scale == "linear":
            return self.low + place * (self.high - self.low)
        return self.low * (self.high / self.low) ** place

    def middle(self, one: float, other: float) -> float:
        """Return the value drawn half-way between two others."""
        return self.value((self.place(one) + self.place(other)) / 2)


class Dot(Spec):
    """One number against another, the range it was drawn from, and a text about it."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    text: str = ""


class ChartSeries(Spec):
    """Points that belong together; series with the same name share an entry of the legend."""

    name: str
    style: Style
    """line: joined, with marks; thin: joined, faint, without marks; dashed: a fit or a summary; dots: small;
    rings: open, with whiskers; band: from low to high."""
    colour: int = Field(default=0, ge=0, lt=RAMP_COLOURS)
    tone: Tone | None = None
    """A colour with a meaning, instead of one of the scale."""
    shape: Shape = "circle"
    marks: Literal["all", "last", "none"] = "all"
    """Which points of a line have a mark."""
    radius: float = Field(default=3.0, gt=0)
    """Radius of dots, in pixels of a chart 720 wide."""
    shift: float = 0.0
    """How far beside their x the points are drawn, in pixels of a chart 720 wide, so that none hides another."""
    points: list[Dot]


class Level(Spec):
    """A horizontal line with a meaning."""

    y: float
    text: str


class Mark(Spec):
    """A vertical line with a meaning."""

    x: float
    text: str


class Shade(Spec):
    """Part of the x axis, shaded."""

    low: float
    high: float
    tone: Literal["few", "enough"]
    text: str


class Fall(Spec):
    """A fall from one point to a lower one, drawn as an arrow beside the lower one, with a text."""

    x_from: float
    y_from: float
    x_to: float
    y_to: float
    text: str


class Chart(Spec):
    """Everything that a chart shows."""

    id: str = Field(pattern=r"^[a-z][a-z0-9-]*$")
    kind: str
    """Charts of one kind stand together on the page."""
    title: str
    subtitle: str = ""
    caption: str = ""
    alt: str
    """The chart in words, for those who cannot see it."""
    x: Axis
    y: Axis
    series: list[ChartSeries]
    levels: list[Level] = Field(default_factory=list[Level])
    marks: list[Mark] = Field(default_factory=list[Mark])
    shades: list[Shade] = Field(default_factory=list[Shade])
    fall: Fall | None = None
    notes: list[str] = Field(default_factory=list[str])

    def names(self) -> list[str]:
        """Return the entries of the legend, in order."""
        return list(dict.fromkeys(s.name for s in self.series))

    def entry(self, name: str) -> ChartSeries:
        """Return the series that represents a name in the legend: a line rather than dots, dots rather than a band.

        If series of that name and style have several colours with a meaning, the entry in the legend has none of them.
        """
        order = ("line", "dashed", "rings", "dots", "thin", "band")
        first = min((s for s in self.series if s.name == name), key=lambda s: order.index(s.style))
        tones = {s.tone for s in self.series if (s.name, s.style) == (name, first.style)}
        return first if len(tones) == 1 else first.model_copy(update={"tone": "muted"})

    def ends(self) -> list[ChartSeries]:
        """Return the lines whose names stand at their right ends: none if there is only one name."""
        found = [s for s in self.series if s.style == "line" and s.marks != "none" and s.points]
        return found if len(self.names()) > 1 else []


class PaperValue(Spec):
    """A number of the paper, to be shown next to ours."""

    heads: int
    length: int
    value: float
    low: float | None = None
    high: float | None = None
    deviation: float | None = None
    """The number after ± in the paper; if it is not given, half of the range from low to high is shown."""
    label: str = "paper"
    """Its source, such as "paper, table 2"."""
    setting: str = ""


def ramp(i: int, n: int) -> int:
    """Return the colour of member i of n, in order."""
    return round(i * (RAMP_COLOURS - 2) / (n - 1)) if n > 1 else 0


def log_axis(label: str, values: Iterable[float], most: int = 8) -> Axis:
    """Return an axis of powers of ten, or of 1, 2, 5, 10, … if the values are close together."""
    found = [v for v in values if v > 0] or [0.1, 1.0]
    low, high = math.log10(min(found)), math.log10(max(found))
    pad = max(0.04 * (high - low), 0.08)
    low, high = low - pad, high + pad
    if high - low < 3:
        steps = (1, 2, 5) if high - low > 0.9 else (1, 1.5, 2, 3, 4, 5, 7)
        ticks = [m * 10.0**k for k in range(math.floor(low), math.ceil(high) + 1) for m in steps]
        named = [(t, number_text(t)) for t in ticks if low <= math.log10(t) <= high]
        if len(named) < 3:
            named = [(t, number_text(t)) for t in round_ticks(10.0**low, 10.0**high, 6)]
    else:
        step = math.ceil((high - low) / most)
        named = [(10.0**k, power_text(k)) for k in range(math.floor(high), math.ceil(low) - 1, -step)]
    return Axis(label=label, scale="log", low=10.0**low, high=10.0**high, ticks=named)


def whole_axis(label: str, values: Iterable[int]) -> Axis:
    """Return a linear axis with a tick at every value that occurs, thinned if these are many or too close."""
    found = sorted(set(values)) or [1]
    step = math.ceil(len(found) / 16)
    ticks: list[tuple[float, str]] = []
    for value in found[::step]:
        # two texts need room on the axis for every character; single digits fit wherever whole numbers do
        wide = 0.012 * (len(str(value)) + len(ticks[-1][1])) * (found[-1] - found[0] + 1) if ticks else 0.0
        if not ticks or value - ticks[-1][0] >= wide:
            ticks.append((float(value), str(value)))
    pad = max(0.5, 0.035 * (found[-1] - found[0]))  # room for marks beside the first and the last value
    return Axis(label=label, scale="linear", low=found[0] - pad, high=found[-1] + pad, ticks=ticks)


def linear_axis(label: str, values: Iterable[float], most: int = 6) -> Axis:
    """Return a linear axis with round ticks around all values."""
    found = list(values) or [0.0, 1.0]
    low, high = min(found), max(found)
    pad = 0.08 * (high - low) or 0.1 * abs(high) or 1.0
    low, high = low - pad, high + pad
    ticks = [(t, f"{t:.6g}") for t in round_ticks(low, high, most)]
    return Axis(label=label, scale="linear", low=low, high=high, ticks=ticks)


def round_ticks(low: float, high: float, most: int) -> list[float]:
    """Return evenly spaced round numbers between two values, about `most` of them."""
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    step = next(m * power for m in (1, 2, 5, 10) if m * power * most >= high - low)
    return [k * step for k in range(math.ceil(low / step), math.floor(high / step) + 1)]


def doubling_axis(label: str, values: Iterable[int]) -> Axis:
    """Return a logarithmic axis whose ticks are the values that occur: lengths and sizes usually double."""
    found = sorted(set(values)) or [1, 2]
    pad = (found[-1] / found[0]) ** 0.07 if len(found) > 1 else 1.5
    low, high = found[0] / pad, found[-1] * pad
    ticks: list[tuple[float, str]] = []
    for value in found:
        # a tick too close to the last one would overlap it
        if not ticks or math.log(value / ticks[-1][0]) > 0.045 * math.log(high / low):
            ticks.append((float(value), f"{value:,}"))
    return Axis(label=label, scale="log", low=low, high=high, ticks=ticks)


def number_text(value: float) -> str:
    """Write a number of an axis or a table: 0.002, 5, 1,200, 3.0e-5."""
    if value and abs(value) < 1e-3:
        return error_text(abs(value)) if value > 0 else f"−{error_text(-value)}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def power_text(exponent: int) -> str:
    """Write a power of ten: 0.0001, 1, 100, 10⁻⁵."""
    if -4 <= exponent <= 4:
        return f"{10.0**exponent:,.{max(0, -exponent)}f}"
    return "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def apart(places: list[float], gap: float, most: float) -> list[float]:
    """Return the places of labels, moved little, so that no two are closer than `gap` and none is above `most`."""
    order = sorted(range(len(places)), key=lambda i: places[i])
    moved = list(places)
    last = -math.inf
    for i in order:
        moved[i] = last = max(moved[i], last + gap)
    last = most + gap
    for i in reversed(order):  # push those beyond the end back
        moved[i] = last = min(moved[i], last - gap)
    return moved
