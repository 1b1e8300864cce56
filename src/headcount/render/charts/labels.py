"""Places for the labels of reference lines: the first place where a label touches no mark, line or other label.

Places are in pixels of a chart 720 wide, from the lower left corner of its axes. A label without a place goes to the
legend. chart.js places the labels of a page in the same way, at any width and zoom.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from headcount.render.charts.chart import Chart, ChartSeries, Fall

Kind = Literal["fall", "mark", "level"]
ARROW_OFFSET = 32.0
"""Distance of the arrow of a fall from its lower point."""
MAX_ARROW_DISTANCE = 8.0
"""How far beyond the ends of the arrow its text may stand."""
CLEARANCE_STEP = 6.0
"""Distance of the points at which a line is kept clear."""
MARK_RADII = {"line": 4.5, "rings": 6.0}


class Box(NamedTuple):
    """A rectangle that is occupied, or a candidate for a label."""

    left: float
    low: float
    right: float
    high: float

    def meets(self, other: Box) -> bool:
        """Whether two rectangles share more than an edge."""
        across = self.left < other.right and other.left < self.right
        return across and self.low < other.high and other.low < self.high


class Label(NamedTuple):
    """A text and its place; None if there was no place for it."""

    kind: Kind
    text: str
    box: Box | None


class Frame(NamedTuple):
    """A chart's axes, with their width and height in pixels."""

    chart: Chart
    width: float
    height: float

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Return the place of a point."""
        return self.width * self.chart.x.place(x), self.height * self.chart.y.place(y)

    def arrow(self, fall: Fall) -> Box:
        """Return the arrow of a fall, from the height of the upper point down to that of the lower one."""
        (x, low), (_, high) = self.at(fall.x_to, fall.y_to), self.at(fall.x_from, fall.y_from)
        return Box(x + ARROW_OFFSET - 5, low, x + ARROW_OFFSET + 5, high)


def place_labels(frame: Frame, size: Callable[[Kind, str], tuple[float, float]]) -> list[Label]:
    """Return the labels of a chart's reference lines, none over another; `size` measures a text."""
    chart, taken = frame.chart, list(occupied(frame))
    found: list[Label] = []

    def put(kind: Kind, text: str, places: Callable[[float, float], Iterator[Box]]) -> None:
        if text:
            found.append(Label(kind, text, first_free(places(*size(kind, text)), taken)))
            taken.extend(box for box in [found[-1].box] if box is not None)

    if (fall := chart.fall) is not None:
        put("fall", fall.text, lambda wide, tall: _beside_arrow(frame, fall, wide, tall))
    for mark in chart.marks:
        put("mark", mark.text, functools.partial(_beside_line, frame, mark.x))
    for level in chart.levels:
        put("level", level.text, functools.partial(_along_line, frame, level.y))
    return found


def first_free(places: Iterable[Box], taken: Sequence[Box]) -> Box | None:
    """Return the first free place, if there is one."""
    return next((place for place in places if not any(place.meets(box) for box in taken)), None)


def occupied(frame: Frame) -> Iterator[Box]:
    """Return what no label may cover: marks, lines, whiskers, reference lines and the arrow of a fall."""
    chart = frame.chart
    for series in chart.series:
        yield from _series_boxes(frame, series)
    for level in chart.levels:
        yield _around(0.0, frame.at(chart.x.low, level.y)[1], 0.5)._replace(right=frame.width)
    for mark in chart.marks:
        yield _around(frame.at(mark.x, chart.y.low)[0], 0.0, 0.5)._replace(high=frame.height)
    if chart.fall is not None:
        arrow = frame.arrow(chart.fall)
        yield arrow
        for x, height in ((chart.fall.x_from, arrow.high), (chart.fall.x_to, arrow.low)):
            yield Box(frame.at(x, chart.y.low)[0], height - 1, arrow.right, height + 1)


def _series_boxes(frame: Frame, series: ChartSeries) -> Iterator[Box]:
    """Return the boxes of the marks of a series, and of points along its lines."""
    if series.style == "band":
        return
    places = [(x + series.shift, y) for x, y in (frame.at(p.x, p.y) for p in series.points)]
    marks = {"all": places, "last": places[-1:], "none": []}[series.marks]
    if series.style in ("line", "rings", "dots"):
        yield from (_around(x, y, MARK_RADII.get(series.style, series.radius + 1)) for x, y in marks)
    if series.style in ("line", "thin", "dashed"):
        for (x, y), (to, down) in itertools.pairwise(places):
            count = max(1, math.ceil(math.hypot(to - x, down - y) / CLEARANCE_STEP))
            yield from (_around(x + (to - x) * k / count, y + (down - y) * k / count, 2.0) for k in range(count + 1))
    if series.style == "rings":
        for (x, y), point in zip(places, series.points, strict=True):
            ends = [frame.at(point.x, v)[1] for v in (point.low, point.high) if v is not None]
            yield Box(x - 1, min([y, *ends]), x + 1, max([y, *ends]))


def _around(x: float, y: float, reach: float) -> Box:
    return Box(x - reach, y - reach, x + reach, y + reach)


def _along_line(frame: Frame, y: float, wide: float, tall: float) -> Iterator[Box]:
    """Return places above a horizontal line, then below it: at its right end, at its left end, and between."""
    height = frame.at(frame.chart.x.low, y)[1]
    room = frame.width - 8 - wide
    for low in (height + 2, height - 2 - tall):
        if room >= 0 and low >= 0 and low + tall <= frame.height:
            for k in (8, 0, 7, 6, 5, 4, 3, 2, 1):
                left = 4 + room * k / 8
                yield Box(left, low, left + wide, low + tall)


def _beside_line(frame: Frame, x: float, wide: float, tall: float) -> Iterator[Box]:
    """Return places right and left of a vertical line, from the top down."""
    at = frame.at(x, frame.chart.y.low)[0]
    for k in range(int(frame.height / (tall + 2))):
        low = frame.height - 4 - tall - k * (tall + 2)
        for left in (at + 5, at - 5 - wide):
            if low >= 0 and left >= 0 and left + wide <= frame.width:
                yield Box(left, low, left + wide, low + tall)


def _beside_arrow(frame: Frame, fall: Fall, wide: float, tall: float) -> Iterator[Box]:
    """Return places right of an arrow, then left of it, as near to its middle as possible."""
    arrow = frame.arrow(fall)
    middle = (arrow.low + arrow.high - tall) / 2
    heights = [
        middle + sign * k * CLEARANCE_STEP for k in range(int(frame.height / CLEARANCE_STEP)) for sign in (1, -1)
    ]
    for left in (arrow.right + 4, arrow.left - 4 - wide):
        if left >= 0 and left + wide <= frame.width:
            near = (
                y
                for y in heights
                if arrow.low - MAX_ARROW_DISTANCE <= y + tall and y <= arrow.high + MAX_ARROW_DISTANCE
            )
            yield from (Box(left, y, left + wide, y + tall) for y in near if 0 <= y <= frame.height - tall)
