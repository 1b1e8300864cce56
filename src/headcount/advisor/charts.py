"""The charts of an advice: error against heads with its spread, and at fixed head size, width and parameters."""

from __future__ import annotations

from collections.abc import Sequence

from headcount.advisor.record import AdviceRecord, Curve, CurveKind, CurvePoint
from headcount.render.charts import (
    GUESSING,
    SHAPES,
    Axis,
    Chart,
    ChartSeries,
    Dot,
    Level,
    Shade,
    doubling_axis,
    log_axis,
    models_chart,
    ramp,
    step_fall,
    whole_axis,
)
from headcount.render.words import error_text, heads_text

HEADS = "Number of attention heads"
MIN_FLOOR_RATIO = 0.1
"""A noise floor below this fraction of the smallest error is not drawn: it would squeeze the rest of the chart."""
MIN_SHOWN_ERROR = 1e-12
"""An error of 0 is drawn here on a logarithmic scale."""
DOUBLING_AXIS_HEADS = 8
"""From this many heads on the axis is logarithmic: the answer is usually among the small numbers."""
CURVE_NAMES: dict[CurveKind, str] = {"head-size": "head size", "width": "width", "parameters": "parameters"}


def advice_charts(record: AdviceRecord) -> list[Chart]:
    """Return the charts that the record has numbers for."""
    found = [error_chart(record)] if record.curve else []
    return [*found, fixed_chart(record)] if record.curves else found


def error_chart(record: AdviceRecord) -> Chart:
    """Return validation and training error against heads: a line for the best model, a band up to the worst."""
    points = record.curve
    unseen = [
        Dot(
            x=p.heads,
            y=_plottable(p.validation),
            low=_plottable(p.validation),
            high=_plottable(p.worst),
            text=_seeds(p),
        )
        for p in points
    ]
    known = [Dot(x=p.heads, y=_plottable(p.train), text="the same model on what it was trained on") for p in points]
    series = [
        ChartSeries(name="validation", style="band", colour=0, points=unseen),
        ChartSeries(name="training", style="line", colour=ramp(1, 2), shape="square", points=known),
        ChartSeries(name="validation", style="line", colour=0, points=[d.model_copy(update=_NO_RANGE) for d in unseen]),
    ]
    shown = [v for p in points for v in (p.validation, p.worst, p.train)]
    levels = [Level(y=1.0, text=GUESSING)] if max(shown) > 0.3 else []
    floor = record.noise_floor
    if floor >= MIN_FLOOR_RATIO * min(
        map(_plottable, shown)
    ):  # drawn like a fit: a label beside it would lie on the lines
        ends = [Dot(x=p.heads, y=floor, text="no model is expected to get below") for p in points]
        series.insert(1, ChartSeries(name="noise floor", style="dashed", colour=ramp(1, 3), points=ends))
        shown.append(floor)
    spoken = ", ".join(f"{heads_text(p.heads)} {error_text(p.validation)}" for p in points)
    return Chart(
        id="error-by-heads",
        kind="error-by-heads",
        title="Error by number of heads",
        subtitle=f"heads of size {points[0].head_dim}, {points[0].hidden} hidden units, one layer",
        x=_heads_axis([p.heads for p in points]),
        y=log_axis(_label(record), _errors([*shown, *(level.y for level in levels)])),
        series=series,
        levels=levels,
        shades=_shades(record),
        caption="Lower is better: 0 is perfect, 1 is guessing the average. Lines show the best model of each number of "
        "heads, on sequences that it was trained on and on others; the band reaches up to the worst start."
        f"{_classes(record)}",
        alt=f"Validation error by number of heads: {spoken}.",
    )


def fixed_chart(record: AdviceRecord) -> Chart:
    """Return error against heads with the head size, the width or the parameters held fixed."""
    own = Curve(kind="head-size", fixed=f"heads of size {record.curve[0].head_dim}", points=record.curve)
    curves = [own, *record.curves]
    series: list[ChartSeries] = []
    for i, curve in enumerate(curves):
        name, colour, shape = f"same {CURVE_NAMES[curve.kind]}", ramp(i, len(curves)), SHAPES[i % len(SHAPES)]
        dots = [
            Dot(
                x=p.heads,
                y=_plottable(p.validation),
                low=_plottable(p.validation),
                high=_plottable(p.worst),
                text=_sizes(p),
            )
            for p in curve.points
        ]
        series.append(ChartSeries(name=name, style="band", colour=colour, points=dots))
        bare = [d.model_copy(update=_NO_RANGE) for d in dots]
        series.append(ChartSeries(name=name, style="line", colour=colour, shape=shape, points=bare))
    series.sort(key=lambda s: s.style)  # bands below lines
    points = [p for curve in curves for p in curve.points]
    fixed = "; ".join(f"same {CURVE_NAMES[curve.kind]}: {curve.fixed}" for curve in curves)
    return Chart(
        id="what-is-fixed",
        kind="what-is-fixed",
        title="More heads, or larger ones?",
        subtitle="validation error of the best model, with something else held fixed",
        x=_heads_axis([p.heads for p in points]),
        y=log_axis(_label(record), _errors([v for p in points for v in (p.validation, p.worst)])),
        series=series,
        caption=f"Held fixed: {fixed}. The bands reach up to the worst start.{_classes(record)}",
        alt=f"Validation error by number of heads. {fixed}.",
    )


def answer_chart(record: AdviceRecord, errors: dict[int, list[float]]) -> Chart:
    """Return the answer as a chart: a dot per model, the best and the median of each head count, the step marked.

    errors: the validation errors of all models, by head count.
    """
    counts, answer, fall = [p.heads for p in record.curve], record.recommended_heads, None
    pair = None
    if not record.no_transition and answer in counts[1:]:
        after = counts.index(answer)
        before, enough = record.curve[after - 1], record.curve[after]
        pair = before.heads, answer
        factor = before.validation / max(enough.validation, 1e-300)
        fall = step_fall((before.heads, before.validation), (answer, enough.validation), factor)
    chart = models_chart(
        {heads: [(error, "one model") for error in some] for heads, some in sorted(errors.items())},
        best=[(p.heads, p.validation) for p in record.curve],
        median=[(p.heads, p.median) for p in record.curve],
        x=_heads_axis(counts),
        pair=pair,
        fall=fall,
    )
    shown = [dot.y for series in chart.series for dot in series.points]
    low, high = error_text(record.noise_floor), error_text(record.noise_floor_high)
    return chart.model_copy(
        update={
            "id": "answer",
            "title": record.sentence,
            "subtitle": record.name,
            "y": log_axis(_label(record), [*shown, 1.0, 2.0]),
            "levels": [Level(y=1.0, text=GUESSING)],
            "notes": [
                note for note in (f"Noise floor of y: between {low} and {high}.", _classes(record).strip()) if note
            ],
            "alt": f"Validation error against the number of heads. {record.sentence}",
        }
    )


def _label(record: AdviceRecord) -> str:
    """Return the label of the error axis: for classes, errors are those of the one-hot numbers, not of y."""
    return f"Error (share of {'the one-hot variance' if record.classes else 'the variance of y'})"


def _classes(record: AdviceRecord) -> str:
    """Return what the error of classes is; empty for a regression."""
    text = " The error is the squared error of the one-hot classes, as a share of their variance."
    return text if record.classes else ""


_NO_RANGE = {"low": None, "high": None}


def _heads_axis(heads: Sequence[int]) -> Axis:
    return (doubling_axis if max(heads) >= DOUBLING_AXIS_HEADS else whole_axis)(HEADS, heads)


def _errors(values: Sequence[float]) -> list[float]:
    """Return the errors that an axis must span, with room above the largest one."""
    return [*map(_plottable, values), 1.3 * max(map(_plottable, values))]


def _shades(record: AdviceRecord) -> list[Shade]:
    """Return shades for too few and enough heads, if the record names a transition."""
    counts, answer = [p.heads for p in record.curve], record.recommended_heads
    if record.verdict != "transition" or record.no_transition or answer not in counts or answer == counts[0]:
        return []
    axis = _heads_axis(counts)
    middle = axis.middle(counts[counts.index(answer) - 1], answer)
    return [
        Shade(low=axis.low, high=middle, tone="few", text="too few heads"),
        Shade(low=middle, high=axis.high, tone="enough", text="enough heads"),
    ]


def _plottable(error: float) -> float:
    return max(error, MIN_SHOWN_ERROR)


def _seeds(point: CurvePoint) -> str:
    wrong = "" if point.wrong is None else f", {100 * point.wrong:.1f} % wrong classes"
    return f"best of {point.seeds}{wrong}" if point.seeds > 1 else f"one model{wrong}"


def _sizes(point: CurvePoint) -> str:
    return f"head size {point.head_dim}, {point.hidden} hidden units, {point.parameters:,} parameters, {_seeds(point)}"
