"""The charts of an advice: error against heads with its spread, and at fixed head size, width and parameter count."""

from __future__ import annotations

import math
from collections.abc import Sequence

from headcount.advisor.record import AdviceRecord, Curve, CurveKind, CurvePoint
from headcount.analysis.words import error_text, heads_text
from headcount.render.charts import (
    SHAPES,
    Axis,
    Chart,
    ChartSeries,
    Dot,
    Level,
    Shade,
    doubling_axis,
    log_axis,
    ramp,
    whole_axis,
)

HEADS, ERROR = "Number of attention heads", "Error (share of the variance of y)"
LOW = 0.1
"""A noise floor so far below the smallest error is as good as none, and would squeeze the rest of the picture."""
LEAST = 1e-12
"""What a logarithmic scale shows of an error of 0."""
CROWDED = 8
"""From so many heads on the axis doubles: the small numbers are where the answer usually lies."""
NAMES: dict[CurveKind, str] = {"head-size": "head size", "width": "width", "parameters": "parameters"}


def advice_charts(record: AdviceRecord) -> list[Chart]:
    """Return the charts that the record has numbers for."""
    found = [error_chart(record)] if record.curve else []
    return [*found, fixed_chart(record)] if record.curves else found


def error_chart(record: AdviceRecord) -> Chart:
    """Validation and training error against heads: the best model as a line, up to the worst one as a band."""
    points = record.curve
    unseen = [
        Dot(x=p.heads, y=_above(p.validation), low=_above(p.validation), high=_above(p.worst), text=_seeds(p))
        for p in points
    ]
    known = [Dot(x=p.heads, y=_above(p.train), text="the same model on what it was trained on") for p in points]
    series = [
        ChartSeries(name="validation", style="band", colour=0, points=unseen),
        ChartSeries(name="training", style="line", colour=ramp(1, 2), shape="square", points=known),
        ChartSeries(name="validation", style="line", colour=0, points=[d.model_copy(update=_BARE) for d in unseen]),
    ]
    shown = [v for p in points for v in (p.validation, p.worst, p.train)]
    free = all(not 0.8 < v < 1.25 for p in points[-2:] for v in (p.validation, p.train))  # else it lies on the lines
    levels = [Level(y=1.0, text="always guessing the average" if free else "")] if max(shown) > 0.3 else []
    floor = record.noise_floor
    if floor >= LOW * min(map(_above, shown)):  # drawn like a fit: a text beside it would lie on the lines
        ends = [Dot(x=p.heads, y=floor, text="no model is expected below") for p in points]
        series.insert(1, ChartSeries(name="noise floor", style="dashed", colour=ramp(1, 3), points=ends))
        shown.append(floor)
    told = ", ".join(f"{heads_text(p.heads)} {error_text(p.validation)}" for p in points)
    return Chart(
        id="error-by-heads", kind="error-by-heads", title="Error by number of heads",
        subtitle=f"heads of size {points[0].head_dim}, {points[0].hidden} hidden units, one layer",
        x=_heads_axis([p.heads for p in points]), y=log_axis(ERROR, _errors([*shown, *(level.y for level in levels)])),
        series=series, levels=levels, shades=_shades(record),
        caption="Lower is better: 0 is perfect, 1 is guessing the average. Lines are the best model of each number of "
        "heads, on sequences that it was trained on and on others; the band reaches up to the worst start.",
        alt=f"Validation error by number of heads: {told}.",
    )  # fmt: skip


def fixed_chart(record: AdviceRecord) -> Chart:
    """The same question asked three ways: what is kept while heads are added?"""
    own = Curve(kind="head-size", fixed=f"heads of size {record.curve[0].head_dim}", points=record.curve)
    curves = [own, *record.curves]
    series: list[ChartSeries] = []
    for i, curve in enumerate(curves):
        name, colour, shape = f"same {NAMES[curve.kind]}", ramp(i, len(curves)), SHAPES[i % len(SHAPES)]
        dots = [
            Dot(x=p.heads, y=_above(p.validation), low=_above(p.validation), high=_above(p.worst), text=_sizes(p))
            for p in curve.points
        ]
        series.append(ChartSeries(name=name, style="band", colour=colour, points=dots))
        bare = [d.model_copy(update=_BARE) for d in dots]
        series.append(ChartSeries(name=name, style="line", colour=colour, shape=shape, points=bare))
    series.sort(key=lambda s: s.style)  # bands below lines
    points = [p for curve in curves for p in curve.points]
    fixed = "; ".join(f"same {NAMES[curve.kind]}: {curve.fixed}" for curve in curves)
    return Chart(
        id="what-is-fixed", kind="what-is-fixed", title="More heads, or larger ones?",
        subtitle="validation error of the best model, with something else kept fixed",
        x=_heads_axis([p.heads for p in points]),
        y=log_axis(ERROR, _errors([v for p in points for v in (p.validation, p.worst)])),
        series=series, caption=f"What is kept: {fixed}. The bands reach up to the worst start.",
        alt=f"Validation error by number of heads. {fixed}.",
    )  # fmt: skip


_BARE = {"low": None, "high": None}


def _heads_axis(heads: Sequence[int]) -> Axis:
    return (doubling_axis if max(heads) >= CROWDED else whole_axis)(HEADS, heads)


def _errors(values: Sequence[float]) -> list[float]:
    """The errors of an axis, with room above the largest one."""
    return [*map(_above, values), 1.3 * max(map(_above, values))]


def _shades(record: AdviceRecord) -> list[Shade]:
    """Too few and enough heads, where the record names a transition and where it ends."""
    counts, answer = [p.heads for p in record.curve], record.recommended_heads
    if record.verdict != "transition" or record.no_transition or answer not in counts or answer == counts[0]:
        return []
    axis, before = _heads_axis(counts), counts[counts.index(answer) - 1]
    middle = math.sqrt(before * answer) if axis.scale == "log" else (before + answer) / 2
    return [
        Shade(low=axis.low, high=middle, tone="few", text="too few heads"),
        Shade(low=middle, high=axis.high, tone="enough", text="enough heads"),
    ]


def _above(error: float) -> float:
    return max(error, LEAST)


def _seeds(point: CurvePoint) -> str:
    wrong = "" if point.wrong is None else f", {100 * point.wrong:.1f} % wrong classes"
    return f"best of {point.seeds}{wrong}" if point.seeds > 1 else f"one model{wrong}"


def _sizes(point: CurvePoint) -> str:
    return f"head size {point.head_dim}, {point.hidden} hidden units, {point.parameters:,} parameters, {_seeds(point)}"
