"""The pictures on real data, as data: accuracy by heads and by length, reciprocal ranks, the law, reversal scores."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence

from headcount.analysis import Part
from headcount.analysis import measure_words as words
from headcount.render.charts import Axis, Chart, ChartSeries, Dot, Style, doubling_axis, log_axis, look, whole_axis
from headcount.reproduction import numbers
from headcount.reproduction.law import FittedLaw, laws_of, paper_scores, reversal_scores, signed
from headcount.reproduction.real_cells import PARTS, Cells, RealCell, errors, heads_of, lengths_of
from headcount.reproduction.real_items import RealItem

SHIFT = 5.0
NEAR = 0.9
"""Accuracies from here on are shown once more, closer."""
HEADS, LENGTH = "Number of attention heads", "Sequence length T"
TITLES: dict[Part, str] = {"train": "Training", "validation": "Validation"}
OURS = "Solid: ours, mean ± standard deviation over seeds."
Value = Callable[[RealCell], tuple[float, float] | None]
"""Mean and deviation of a cell, as they are drawn."""


def real_charts(item: RealItem, cells: Cells) -> list[Chart]:
    """Return the pictures of a table or figure; the part that it is about comes first."""
    parts = sorted(PARTS, key=lambda part: part != item.part)
    charts: list[Chart] = []
    match item.picture:
        case "heads":
            charts = [chart for part in parts for chart in (accuracy_chart(cells, part), *close_charts(cells, part))]
        case "mrr":
            charts = [rank_chart(cells, part) for part in parts]
        case "law":
            charts = [*law_charts(cells), accuracy_chart(cells, "train")]
        case "reversal":
            charts = [reversal_chart(cells), *(length_chart(cells, part) for part in parts)]
        case "lengths":
            charts = [length_chart(cells, part, theirs=theirs) for part in parts for theirs in (False, True)]
    charts = [chart for chart in charts if any(s.points for s in chart.series)]
    lengths = lengths_of(cells)
    if len(lengths) > 1:
        return charts
    # a line alone has no legend that names its length
    return [chart.model_copy(update={"title": f"{chart.title}, T = {lengths[0]}"}) for chart in charts]


def accuracy_chart(cells: Cells, part: Part) -> Chart:
    """Accuracy against heads, a line for each length, the paper's dashed in the same colour."""
    series = _by_length(cells, part, _ours)
    dashed = _by_length(cells, part, _theirs, "dashed")
    told = f"{OURS} Dashed: the paper's." if dashed else OURS
    return Chart(
        id=f"accuracy-{part}", kind="accuracy", title=f"{TITLES[part]} accuracy by number of heads", subtitle=told,
        x=whole_axis(HEADS, heads_of(cells)), y=percent_axis(f"{TITLES[part]} accuracy (%)", [*series, *dashed]),
        series=[*dashed, *series], caption="Higher is better.",
        alt=_alt(f"{TITLES[part].lower()} accuracy in percent against the number of heads", series),
    )  # fmt: skip


def close_charts(cells: Cells, part: Part) -> list[Chart]:
    """The same with those head counts alone whose accuracies are all near 100 %: the whole chart has one line there."""
    near = [
        h for h in heads_of(cells)
        if (known := [v for t in lengths_of(cells) if (c := cells.get((part, h, t))) for v in (c.mean, c.theirs) if v])
        and min(known) >= NEAR
    ]  # fmt: skip
    if len(near) < 3 or len(near) == len(heads_of(cells)):
        return []
    chart = accuracy_chart({place: cell for place, cell in cells.items() if cell.heads in near}, part)
    title = f"{chart.title}, from {near[0]} on"
    return [chart.model_copy(update={"id": f"{chart.id}-close", "title": title})]


def rank_chart(cells: Cells, part: Part) -> Chart:
    """The mean reciprocal rank against heads, a line for each length."""
    series = _by_length(cells, part, _ranks)
    return Chart(
        id=f"mrr-{part}", kind="mrr", title=f"{TITLES[part]} mean reciprocal rank by number of heads", subtitle=OURS,
        x=whole_axis(HEADS, heads_of(cells)), y=percent_axis("Mean reciprocal rank (%)", series),
        series=series, caption="100 %: the right passage always comes first.",
        alt=_alt("the mean reciprocal rank in percent against the number of heads", series),
    )  # fmt: skip


def length_chart(cells: Cells, part: Part, *, theirs: bool = False) -> Chart:
    """Accuracy against the length, a line for each head count: ours, or the paper's."""
    counts, value = heads_of(cells), _theirs if theirs else _ours
    series: list[ChartSeries] = []
    for i, heads in enumerate(counts):
        points = _dots([c for t in lengths_of(cells) if (c := cells.get((part, heads, t)))], value, along="length")
        if points:
            series.append(ChartSeries(name=f"h = {heads}", style="line", points=points, **look(i, len(counts))))
    whose = "the paper's table" if theirs else "ours, mean over seeds"
    both = [*_by_length(cells, part, _ours), *_by_length(cells, part, _theirs)]
    return Chart(
        id=f"{'paper' if theirs else 'accuracy'}-by-length-{part}", kind="accuracy-by-length",
        title=f"{TITLES[part]} accuracy by length: {whose}", subtitle="A line for each number of heads.",
        x=doubling_axis(LENGTH, lengths_of(cells)),
        y=percent_axis(f"{TITLES[part]} accuracy (%)", both),  # one range for theirs and ours
        series=series, caption="Where a line rises, longer sequences are easier.",
        alt=_alt(f"{TITLES[part].lower()} accuracy in percent against the length", series),
    )  # fmt: skip


def law_charts(cells: Cells) -> list[Chart]:
    """Training errors against heads with the fitted law: without the head counts the paper left out, and with all."""
    places, means, zeros = errors(cells, "train")
    lengths = sorted({length for _, length in places})
    charts: list[Chart] = []
    low = 0.7 * float(means[0].min()) if places else 0.0
    for law in (law for law in laws_of(cells, "marco") if law.ours):
        series: list[ChartSeries] = []
        for i, length in enumerate(lengths):
            line = [(h, float(means[0, k])) for k, (h, t) in enumerate(places) if t == length]
            grid = [1 + (max(h for h, _ in line) - 1) * k / 48 for k in range(49)]
            curve = [Dot(x=h, y=y) for h in grid if low <= (y := _predicted(law, h, length)) <= 1]
            style = look(i, len(lengths))
            series.append(ChartSeries(name=f"T = {length}", style="dashed", points=curve, **style))
            series.append(ChartSeries(
                name=f"T = {length}", style="rings", points=[Dot(x=h, y=error) for h, error in line], **style
            ))  # fmt: skip
        series.sort(key=lambda s: s.style)
        left = f"without h = {', '.join(map(str, law.without))}" if law.without else "with all h"
        both = [
            f"δ = {signed(co['delta'])}, α = {signed(co['alpha'])}" for co in (law.coefficients, numbers.fitted_law())
        ]
        note = f"{zeros} trials without any error count as half a wrong answer." if zeros else ""
        charts.append(Chart(
            id="law" if law.without else "law-all", kind="law", title="Training error and the law c·T^b·exp(α·h/T^δ)",
            subtitle=f"Ours, {left}: {both[0]}. The paper: {both[1]}.",
            x=whole_axis(HEADS, heads_of(cells)),
            y=log_axis(words("error rate", "train").axis, [p.y for s in series for p in s.points]), series=series,
            caption=f"Open marks: ours, mean over seeds. Dashed: the law, fitted {left}.",
            notes=[note] if note else [],
            alt=_alt("the training error against the number of heads, with a fitted law", series),
        ))  # fmt: skip
    return charts


def _predicted(law: FittedLaw, heads: float, length: int) -> float:
    co = law.coefficients
    exponent = co["alpha"] * heads / length ** co["delta"]
    return co["c"] * length ** co["b"] * math.exp(min(exponent, 300.0))


def reversal_chart(cells: Cells) -> Chart:
    """The weighted reversal score of the mean errors against heads, on both parts, the paper's as open marks."""
    series: list[ChartSeries] = []
    for i, part in enumerate(PARTS):
        style, name = look(i, 2), f"ours, {TITLES[part].lower()}"
        points = [
            Dot(x=float(h), y=score, low=low, high=high)
            for h, (score, low, high) in reversal_scores(cells, part).items()
        ]
        paper = [Dot(x=float(h), y=score) for h, score in paper_scores(cells, part).items()]
        series.append(ChartSeries(name=name, style="band", points=points, **style))
        series.append(ChartSeries(name=name, style="line", points=points, **style))
        beside = look(i, 2, (2 * i - 1) * SHIFT)  # marks at one place must not hide each other
        series.append(ChartSeries(name=f"paper, {TITLES[part].lower()}", style="rings", points=paper, **beside))
    series = [s for s in series if s.points]
    series.sort(key=lambda s: ("band", "line", "rings").index(s.style))
    top = max([v for s in series for p in s.points for v in (p.y, p.high or 0.0)], default=1.0) or 1.0
    step = next(s for s in (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 1e9) if top / s <= 8)
    ticks = [(k * step, f"{k * step:g}") for k in range(int(top / step) + 1)]
    return Chart(
        id="reversal", kind="reversal", title="Weighted reversal score by number of heads",
        subtitle="Above zero, some longer sequences are easier. Shaded: 90 % of the draws of seeds.",
        x=whole_axis(HEADS, heads_of(cells)),
        y=Axis(label="Reversal score R(h)", scale="linear", low=-0.08 * top, high=1.08 * top, ticks=ticks),
        series=series, caption="The score alone decides nothing.",
        alt=_alt("the reversal score against the number of heads", series),
    )  # fmt: skip


def percent_axis(label: str, series: Sequence[ChartSeries]) -> Axis:
    """A linear axis in percent that holds all values, with round ticks."""
    found = [v for s in series for p in s.points for v in (p.y, p.low, p.high) if v is not None] or [0.0, 100.0]
    low, high = max(min(found), 0.0), min(max(found), 100.0)
    step = next(s for s in (1, 2, 5, 10, 20) if (high - low) / s <= 7)
    low, high = step * math.floor(low / step), step * math.ceil(max(high, low + 1e-9) / step)
    high = high if high > low else low + step
    ticks = [(float(v), str(v)) for v in range(low, high + 1, step)]
    pad = 0.03 * (high - low)
    return Axis(label=label, scale="linear", low=low - pad, high=high + pad, ticks=ticks)


def _ours(cell: RealCell) -> tuple[float, float] | None:
    return None if cell.mean is None else (100 * cell.mean, 100 * (cell.spread or 0.0))


def _theirs(cell: RealCell) -> tuple[float, float] | None:
    return None if cell.theirs is None else (100 * cell.theirs, 100 * (cell.deviation or 0.0))


def _ranks(cell: RealCell) -> tuple[float, float] | None:
    if not cell.ranks:
        return None
    return 100 * statistics.fmean(cell.ranks), 100 * statistics.stdev(cell.ranks) if len(cell.ranks) > 1 else 0.0


def _dots(cells: Iterable[RealCell], value: Value, along: str) -> list[Dot]:
    found: list[Dot] = []
    for cell in cells:
        if (known := value(cell)) is not None:
            mean, deviation = known
            low, high = (max(mean - deviation, 0.0), min(mean + deviation, 100.0)) if deviation else (None, None)
            text = f"h = {cell.heads}, T = {cell.length}"
            found.append(Dot(x=float(getattr(cell, along)), y=mean, low=low, high=high, text=text))
    return found


def _by_length(cells: Cells, part: Part, value: Value, style: Style = "line") -> list[ChartSeries]:
    """A line for each length, with a band where there are deviations; the dashed ones have neither marks nor band."""
    lengths = lengths_of(cells)
    series: list[ChartSeries] = []
    for i, length in enumerate(lengths):
        points = _dots([c for h in heads_of(cells) if (c := cells.get((part, h, length)))], value, along="heads")
        drawn, name = look(i, len(lengths)), f"T = {length}"
        if style == "dashed":
            points = [Dot(x=p.x, y=p.y, text=p.text) for p in points]
        elif any(p.low is not None for p in points):
            banded = [p if p.low is not None else Dot(x=p.x, y=p.y, low=p.y, high=p.y) for p in points]
            series.append(ChartSeries(name=name, style="band", points=banded, **drawn))
        if points:
            series.append(ChartSeries(name=name, style=style, points=points, **drawn))
    series.sort(key=lambda s: s.style != "band")
    return series


def _alt(what: str, series: Sequence[ChartSeries]) -> str:
    told = [
        f"{s.name}: from {s.points[0].y:.3g} to {s.points[-1].y:.3g}." for s in series
        if s.points and s.style in ("line", "rings")
    ]  # fmt: skip
    return f"Chart of {what}. {' '.join(told)}".strip()
