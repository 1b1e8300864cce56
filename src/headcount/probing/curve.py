"""The loss against the number of heads removed, as a chart and as a table of the same points."""

from __future__ import annotations

import math
from collections.abc import Sequence

from headcount.probing.record import CurvePoint, ProbeRecord
from headcount.render import NONE, Column, Table
from headcount.render.charts import Axis, Chart, ChartSeries, Dot, Level, Shade, log_axis, whole_axis

MAX_TERMINAL_POINTS = 12
"""Most points of the curve that a terminal shows; the page and the record have all of them."""
MIN_LOG_AXIS_RATIO = 3.0
"""Losses that differ by a larger factor are drawn on a logarithmic axis."""


def curve_chart(record: ProbeRecord, max_points: int | None = None) -> Chart | None:
    """Return the curve as a chart of at most `max_points` points (default: all); None if no head can be removed."""
    points = thinned(record.curve, max_points)
    if len(points) < 2:
        return None
    levels = [Level(y=record.plan.allowed, text="the budget allows")]
    if record.chance is not None:
        levels.append(Level(y=record.chance, text="guessing"))
    x = whole_axis("heads removed", [point.removed for point in points])
    end = max(point.removed for point in points if point.within)
    last = points[-1]
    inside, beyond = _between(end, points), last.removed > end
    shades = [Shade(low=x.low, high=inside if beyond else x.high, tone="enough", text="within the budget")]
    if beyond:
        shades.append(Shade(low=inside, high=x.high, tone="few", text="beyond it"))
    return Chart(
        id="loss-curve",
        kind="curve",
        title=f"{record.model}: loss against heads removed",
        subtitle=f"Measured: {record.loss_name}, {record.samples}",
        caption=(
            "One mark per removal, the cheapest head (or group) first. Every loss is measured with all heads up to "
            "that mark removed."
        ),
        alt=(
            f"The loss is {points[0].loss:.4g} with all heads, {record.plan.loss:.4g} without the {end} that the "
            f"budget allows to remove, and {last.loss:.4g} with {last.removed} removed."
        ),
        x=x,
        y=_loss_axis([*(point.loss for point in points), *(level.y for level in levels)]),
        series=[ChartSeries(name="loss", style="line", points=[_dot(point, record) for point in points])],
        levels=levels,
        shades=shades,
    )


def curve_table(record: ProbeRecord, max_points: int | None = None) -> Table:
    """Return the curve as a table with a row for each removal."""
    points = thinned(record.curve, max_points)
    rows = [
        [
            str(point.removed),
            f"{point.loss:.4g}",
            _change(point.loss, record.loss),
            NONE if point.layer is None else _place(point),
            "within" if point.within else "beyond",
        ]
        for point in points
    ]
    columns = [
        Column(name="Removed", meaning="number of heads removed"),
        Column(name="Loss", meaning="measured with all of them removed"),
        Column(name="Change", meaning="relative to the loss of the whole model"),
        Column(name="Last removed", meaning="layer and heads, counted from 1"),
        Column(name="Budget", meaning="whether the budget allows to remove that many"),
    ]
    less = f", {len(points)} of {len(record.curve)} rows" if len(points) < len(record.curve) else ""
    kept = max((i for i, point in enumerate(points) if point.within), default=None)
    return Table(
        caption=f"Loss against heads removed (measured{less})",
        columns=columns,
        rows=rows,
        marked=kept if record.plan.steps else None,
    )


def thinned(points: Sequence[CurvePoint], max_points: int | None = None) -> list[CurvePoint]:
    """Return at most `max_points` points, evenly spaced, always with the first, the last and the last in the budget."""
    if max_points is None or len(points) <= max_points:
        return list(points)
    needed = {0, max(i for i, point in enumerate(points) if point.within), len(points) - 1}
    free = max_points - len(needed)
    chosen = needed | {round((i + 1) * (len(points) - 1) / (free + 1)) for i in range(free)}
    return [points[i] for i in sorted(chosen)]


def _between(end: int, points: Sequence[CurvePoint]) -> float:
    """Return where the budget ends: halfway to the next point."""
    following = min((point.removed for point in points if point.removed > end), default=end + 1)
    return (end + following) / 2


def _dot(point: CurvePoint, record: ProbeRecord) -> Dot:
    text = "the whole model" if point.layer is None else f"last removed: {_place(point)}"
    return Dot(x=point.removed, y=point.loss, text=f"{text}; {_change(point.loss, record.loss)}")


def _place(point: CurvePoint) -> str:
    numbers = ", ".join(str(head + 1) for head in point.heads)
    return f"layer {(point.layer or 0) + 1}, head{'s' if len(point.heads) > 1 else ''} {numbers}"


def _change(loss: float, full: float) -> str:
    if not full or not math.isfinite(loss / full):
        return NONE
    return f"{100 * (loss - full) / abs(full):+.1f} %".replace("-", "−").replace("+0.0 %", "0.0 %")


def _loss_axis(values: Sequence[float]) -> Axis:
    """Return an axis of losses: logarithmic if they differ by a large factor, otherwise linear with round ticks."""
    low, high = min(values), max(values)
    if low > 0 and high / low > MIN_LOG_AXIS_RATIO:
        return log_axis("loss", values)
    pad = 0.08 * (high - low) or 0.1 * abs(high) or 1.0
    low, high = (low - pad if low <= 0 else max(low - pad, 0.5 * low)), high + pad
    rough = (high - low) / 5
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * m for m in (1, 2, 5, 10) if unit * m >= rough)
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    first, final = math.ceil(low / step), math.floor(high / step)
    ticks = [(k * step, f"{k * step:.{digits}f}".replace("-", "−")) for k in range(first, final + 1)]
    return Axis(label="loss", scale="linear", low=low, high=high, ticks=ticks)
