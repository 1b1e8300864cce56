"""The charts of each table and figure: those of every run's page, and the few that only one of them needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from headcount.analysis import Analysis, Part
from headcount.render.charts import (
    Axis,
    Chart,
    ChartSeries,
    Dot,
    PaperValue,
    Style,
    dot,
    doubling_axis,
    equal_error,
    error_by_heads,
    error_by_length,
    errors_axis,
    level,
    log_axis,
    look,
    numbered,
    ramp,
    scaling,
    whole_axis,
)
from headcount.render.words import error_terms, error_text, heads_text
from headcount.reproduction import numbers
from headcount.reproduction.cells import PARTS, WORDS, Cells, ComparedCell, Comparison, mean_and_deviation
from headcount.reproduction.items import DATA, Item, paper_tables
from headcount.reproduction.law import FittedLaw, laws_of, reversals_of
from headcount.reproduction.words import signed
from headcount.store import Run

MARK_SHIFT = 5.0
"""Points by which marks at the same place are moved apart."""
CLOSE_UP_ACCURACY = 0.9
"""Accuracies from here on are shown once more, closer."""
TITLES = {part: WORDS[part].capitalize() for part in PARTS}
HEADS, LENGTH = "Number of attention heads", "Sequence length T"
OURS = "Solid: ours, mean ± standard deviation over seeds."


def charts_of(item: Item, found: Comparison) -> list[Chart]:
    """Return the charts of a table or figure, each with its own name; empty ones are left out."""
    charts = _charts(item, found)
    if item.data is None:
        return numbered(charts)
    charts = [chart for chart in charts if any(s.points for s in chart.series)]
    lengths = found.cells.lengths
    if len(lengths) > 1:
        return charts
    # a single line has no legend to name its length
    return [chart.model_copy(update={"title": f"{chart.title}, T = {lengths[0]}"}) for chart in charts]


def _charts(item: Item, found: Comparison) -> list[Chart]:
    analysis, cells, runs = found.analysis, found.cells, found.runs
    paper = paper_values(item.spec, item.part)
    parts = sorted(PARTS, key=lambda part: part != item.part)
    match item.picture:
        case "heads" if len(analysis.settings) > 1:
            return settings_charts(analysis)
        case "heads":
            return error_by_heads(analysis, runs, paper)
        case "lengths":
            shown = analysis.model_copy(update={"cells": [c for c in analysis.cells if _shown(item, c.heads)]})
            return error_by_length(shown, [v for v in paper if _shown(item, v.heads)])
        case "hidden":
            return scaling(analysis)
        case "hidden-by-heads":
            return hidden_charts(analysis)
        case "parameters":
            return equal_error(analysis)
        case "steps":
            return [steps_chart(runs)]
        case "head_dims":
            return [head_dims_chart(runs), *smallest_hidden_chart(runs)]
        case "reversal":
            return [reversal_chart(found), *(length_chart(cells, part) for part in parts if item.data)]
        case "accuracy":
            return [chart for part in parts for chart in (accuracy_chart(cells, part), *close_charts(cells, part))]
        case "accuracy-by-length":
            return [length_chart(cells, part, theirs=theirs) for part in parts for theirs in (False, True)]
        case "law":
            return [*law_charts(cells), accuracy_chart(cells, "train")]
        case "mrr":
            return [rank_chart(cells, part) for part in parts]


def paper_values(spec: str, part: Part) -> list[PaperValue]:
    """Return the paper's errors on a part of the data, for a chart; of accuracies 1 minus the accuracy.

    A range that reaches below zero has no ends, and accuracy 1 has no place on a log scale.
    """
    data, found = DATA.get(spec), list[PaperValue]()
    if (table := paper_tables(spec).get(part)) is None:
        return found
    for cell in numbers.cells(table):
        error, deviation = cell.value, cell.deviation
        if data is not None:
            error = 1.0 - cell.value / data.unit
            deviation = None if cell.deviation is None else cell.deviation / data.unit
        spread = deviation if deviation and deviation < error else None
        if error > 1e-9:
            found.append(
                PaperValue(
                    heads=cell.heads,
                    length=cell.length,
                    value=error,
                    deviation=deviation,
                    label=f"paper, {table.replace('table', 'table ')}",
                    low=None if spread is None else error - spread,
                    high=None if spread is None else error + spread,
                )
            )
    return found


def _shown(item: Item, heads: int | None) -> bool:
    return item.heads is None or heads in item.heads


def reversal_chart(found: Comparison) -> Chart:
    """Return the weighted reversal score against heads on every part; the paper's are open marks."""
    series: list[ChartSeries] = []
    scores = reversals_of(found)
    for i, (part, theirs, ours) in enumerate(scores):
        of = f", {WORDS[part]}" if len(scores) > 1 else ""
        points = [
            Dot(x=float(h), y=one.score, low=one.low, high=one.high, text="" if one.p is None else f"p = {one.p:.2g}")
            for h, one in ours.items()
        ]
        # marks at the same place must not hide each other
        beside = look(i, 2, (2 * i - 1) * MARK_SHIFT) if len(scores) > 1 else look(1, 2)
        paper = [Dot(x=float(h), y=score) for h, score in theirs.items()]
        series.append(ChartSeries(name=f"ours{of}", style="band", points=points, **look(i, 2)))
        series.append(ChartSeries(name=f"ours{of}", style="line", points=points, **look(i, 2)))
        series.append(ChartSeries(name=f"paper{of}", style="rings", points=paper, **beside))
    series = [s for s in series if s.points]
    series.sort(key=lambda s: ("band", "line", "rings").index(s.style))
    top = max([v for s in series for p in s.points for v in (p.y, p.high or 0.0)], default=1.0) or 1.0
    step = next(s for s in (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 1e9) if top / s <= 8)
    ticks = [(k * step, f"{k * step:g}") for k in range(int(top / step) + 1)]
    drawn = "the draws" if found.data is None else "the draws of seeds"
    return Chart(
        id="reversal",
        kind="reversal",
        title="Weighted reversal score by number of heads",
        subtitle=f"Above zero, some longer sequences are easier. Shaded: 90 % of {drawn}.",
        x=whole_axis(HEADS, found.cells.heads),
        y=Axis(label="Reversal score R(h)", scale="linear", low=-0.08 * top, high=1.08 * top, ticks=ticks),
        series=series,
        caption="The score alone decides nothing.",
        alt=_alt("the reversal score against the number of heads", series),
    )


# -- errors on a task ---------------------------------------------------------------------------------------


def settings_charts(analysis: Analysis) -> list[Chart]:
    """Return error against heads, a line for each setting: one chart for each length and hidden size."""
    charts: list[Chart] = []
    for length, hidden in dict.fromkeys((c.length, c.hidden) for c in analysis.cells):
        series: list[ChartSeries] = []
        for i, setting in enumerate(analysis.settings):
            members = [c for c in analysis.cells if (c.setting, c.length, c.hidden) == (setting, length, hidden)]
            line = [dot(c, float(c.heads or 0)) for c in members if level(c) is not None]
            if line:
                style = look(i, len(analysis.settings))
                series.append(ChartSeries(name=setting, style="line", points=line, **style))
        if series:
            y, levels = errors_axis(series)
            charts.append(
                Chart(
                    id="settings",
                    kind="heads",
                    title=analysis.title,
                    subtitle=f"T = {length}",
                    x=whole_axis(HEADS, [c.heads or 0 for c in analysis.cells]),
                    y=y,
                    levels=levels,
                    series=series,
                    caption="Best seed, averaged over the targets in log scale.",
                    alt=_lines_alt("the error against the number of heads, a line for each setting", series),
                )
            )
    return charts


def hidden_charts(analysis: Analysis) -> list[Chart]:
    """Return error against the hidden size N: a chart for each head count, a line for each length with its slope."""
    charts: list[Chart] = []
    for heads in sorted({s.heads for s in analysis.scaling if s.heads is not None}):
        found = sorted((s for s in analysis.scaling if s.heads == heads), key=lambda s: s.length or 0)
        series = [
            ChartSeries(
                name=f"T = {s.length}, slope {s.slope:.2f}",
                style="line",
                colour=ramp(i, len(found)),
                points=[Dot(x=n, y=error) for n, error in s.points],
            )
            for i, s in enumerate(found)
        ]
        charts.append(
            _error_chart(
                "error-by-hidden",
                "hidden",
                f"Error by hidden size, {heads_text(heads)}",
                analysis.title,
                "Hidden size N",
                series,
                "Best seed, averaged over the targets in log scale.",
                "the error against the hidden size",
            )
        )
    return charts


def steps_chart(runs: Sequence[Run]) -> Chart:
    """Return error against training steps: a line for each recipe (the first part of a setting) and head count."""
    lines = _best_lines(
        (
            (heads, str(run.values.get("setting", "Adam, ")).split(", ")[0]),
            int(run.spec["train"]["steps"]),
            [t.nmse for t in run.trials if t.heads == heads and t.nmse is not None],
        )
        for run in runs
        for heads in sorted({t.heads for t in run.trials})
    )
    recipes = list(dict.fromkeys(recipe for _, recipe in lines))
    series = [
        ChartSeries(
            name=f"{heads_text(heads)}, {recipe}",
            style="line" if heads == min(h for h, _ in lines) else "dashed",
            colour=ramp(recipes.index(recipe), len(recipes)),
            points=points,
        )
        for (heads, recipe), points in lines.items()
    ]
    return _error_chart(
        "floor",
        "steps",
        "Error by training steps, for each recipe",
        runs[0].title,
        "Training steps",
        series,
        "Best seed. Solid: too few heads. Dashed: enough.",
        "error against steps",
    )


def head_dims_chart(runs: Sequence[Run]) -> Chart:
    """Return error against the head size n: a line for each hidden size and kind of F."""
    lines = _best_lines(
        (
            (run.values.get("hidden", "?"), str(run.values.get("setting", ""))),
            int(run.values["head_dim"]),
            [t.nmse for t in run.trials if t.nmse is not None],
        )
        for run in runs
    )
    settings = list(dict.fromkeys(setting for _, setting in lines))
    sizes = max(1, len(lines) // max(1, len(settings)))
    series = [
        ChartSeries(
            name=f"N = {hidden}, {setting}".removesuffix(", "),
            style="line" if setting == settings[0] else "dashed",
            colour=ramp(i % sizes, sizes),
            points=points,
        )
        for i, ((hidden, setting), points) in enumerate(lines.items())
    ]
    return _error_chart(
        "head-dims",
        "head_dims",
        "Error by head size n, one head",
        runs[0].title,
        "Head size n",
        series,
        "Best seed. Solid: two layers in F. Dashed: five.",
        "error against n",
    )


Line = tuple[Any, str]
"""What identifies a line: its head count or hidden size, and its recipe or kind of F."""


def _best_lines(places: Iterable[tuple[Line, int, Sequence[float]]]) -> dict[Line, list[Dot]]:
    """Return the points of each line: the best of the errors at each place, with their range."""
    lines: dict[Line, list[Dot]] = {}
    for line, x, errors in places:
        if errors:
            lines.setdefault(line, []).append(Dot(x=x, y=min(errors), low=min(errors), high=max(errors)))
    return {line: sorted(points, key=lambda p: p.x) for line, points in lines.items()}


def _error_chart(
    name: str, kind: str, title: str, subtitle: str, x: str, series: Sequence[ChartSeries], caption: str, what: str
) -> Chart:
    """Return a chart of errors against a size, both in log scale; `what` is its description for readers of the page."""
    points = [p for s in series for p in s.points]
    return Chart(
        id=name,
        kind=kind,
        title=title,
        subtitle=subtitle,
        x=doubling_axis(x, [int(p.x) for p in points]),
        y=log_axis("Error (NMSE)", [p.y for p in points]),
        series=list(series),
        caption=caption,
        alt=_lines_alt(what, series),
    )


def _lines_alt(what: str, series: Sequence[ChartSeries]) -> str:
    ranges = "; ".join(f"{s.name}: {error_text(s.points[0].y)} to {error_text(s.points[-1].y)}" for s in series)
    return f"Line chart of {what}. {ranges}."


def smallest_hidden(runs: Sequence[Run]) -> dict[tuple[str, float], list[tuple[int, int]]]:
    """Return, by setting and error, the head sizes n with the smallest hidden size N tried that reaches the error.

    Of the round errors (1, 1.2, 1.5, 2, 3, 5 or 7 times a power of ten) the three whose lines pass through most sizes
    are taken.
    """
    best: dict[tuple[str, int], dict[int, float]] = {}
    for run in runs:
        errors = [t.nmse for t in run.trials if t.nmse is not None]
        if errors and "hidden" in run.values:
            place = str(run.values.get("setting", "")), int(run.values["head_dim"])
            best.setdefault(place, {})[int(run.values["hidden"])] = min(errors)
    lowest = min((e for sizes in best.values() for e in sizes.values()), default=1.0)
    powers = range(math.floor(math.log10(max(lowest, 1e-12))), 1)
    found: dict[float, dict[str, list[tuple[int, int]]]] = {}
    for error in (m * 10.0**k for k in powers for m in (1, 1.2, 1.5, 2, 3, 5, 7)):
        lines: dict[str, list[tuple[int, int]]] = {}
        for (setting, head_dim), sizes in sorted(best.items()):
            enough = [N for N, reached in sizes.items() if reached <= error]
            if enough:
                lines.setdefault(setting, []).append((head_dim, min(enough)))
        if lines not in found.values():
            found[error] = {k: at for k, at in lines.items() if len({N for _, N in at}) > 1}
    telling = sorted(found, key=lambda error: -sum(len({N for _, N in at}) for at in found[error].values()))[:3]
    return {(setting, error): at for error in sorted(telling) for setting, at in found[error].items()}


def smallest_hidden_chart(runs: Sequence[Run]) -> list[Chart]:
    """Return the smallest N that reaches an error against the head size n: a line for each error and kind of F."""
    found = smallest_hidden(runs)
    settings = list(dict.fromkeys(setting for setting, _ in found))
    levels = sorted({error for _, error in found})
    if not found:
        return []
    series = [
        ChartSeries(
            name=f"error {error_text(error)}" + (f", {setting}" if setting else ""),
            style="line" if setting == settings[0] else "dashed",
            colour=ramp(levels.index(error), len(levels)),
            points=[Dot(x=n, y=N) for n, N in at],
        )
        for (setting, error), at in found.items()
    ]
    ranges = "; ".join(f"{s.name}: N = {s.points[0].y:g} to {s.points[-1].y:g}" for s in series)
    return [
        Chart(
            id="smallest-hidden",
            kind="head_dims",
            title="Smallest hidden size for an error, one head",
            subtitle=runs[0].title,
            x=doubling_axis("Head size n", [int(p.x) for s in series for p in s.points]),
            y=doubling_axis("Hidden size N", [int(p.y) for s in series for p in s.points]),
            series=series,
            caption="The smallest N tried whose best seed reaches the error; a head size without a point reaches it "
            "with none.",
            alt=f"Line chart of the smallest hidden size against the head size. {ranges}.",
        )
    ]


# -- accuracies on real data --------------------------------------------------------------------------------

Pair = tuple[float | None, float | None]
Value = Callable[[ComparedCell], Pair]
"""The mean and deviation that are drawn for a cell, from 0 to 1."""


def accuracy_chart(cells: Cells, part: Part) -> Chart:
    """Return accuracy against heads: a line for each length, the paper's dashed in the same colour."""
    series = _by_length(cells, part, _ours)
    dashed = _by_length(cells, part, _theirs, "dashed")
    return Chart(
        id=f"accuracy-{part}",
        kind="accuracy",
        title=f"{TITLES[part]} accuracy by number of heads",
        subtitle=f"{OURS} Dashed: the paper's." if dashed else OURS,
        x=whole_axis(HEADS, cells.heads),
        y=percent_axis(f"{TITLES[part]} accuracy (%)", [*series, *dashed]),
        series=[*dashed, *series],
        caption="Higher is better.",
        alt=_alt(f"{WORDS[part]} accuracy in percent against the number of heads", series),
    )


def close_charts(cells: Cells, part: Part) -> list[Chart]:
    """Return the same for the head counts whose accuracies are all near 100 %, where lines otherwise coincide."""
    near = [
        h
        for h in cells.heads
        if (known := [v for c in cells.with_heads(part, h) for v in (c.mean, c.theirs) if v])
        and min(known) >= CLOSE_UP_ACCURACY
    ]
    if len(near) < 3 or len(near) == len(cells.heads):
        return []
    chart = accuracy_chart(Cells({place: cell for place, cell in cells.items() if cell.heads in near}), part)
    title = f"{chart.title}, from {near[0]} on"
    return [chart.model_copy(update={"id": f"{chart.id}-close", "title": title})]


def rank_chart(cells: Cells, part: Part) -> Chart:
    """Return the mean reciprocal rank against heads, a line for each length."""
    series = _by_length(cells, part, _ranks)
    return Chart(
        id=f"mrr-{part}",
        kind="mrr",
        title=f"{TITLES[part]} mean reciprocal rank by number of heads",
        subtitle=OURS,
        x=whole_axis(HEADS, cells.heads),
        y=percent_axis("Mean reciprocal rank (%)", series),
        series=series,
        caption="100 %: the right passage always comes first.",
        alt=_alt("the mean reciprocal rank in percent against the number of heads", series),
    )


def length_chart(cells: Cells, part: Part, *, theirs: bool = False) -> Chart:
    """Return a chart of accuracy against length, a line for each head count, from our results or the paper's."""
    counts, value = cells.heads, _theirs if theirs else _ours
    series: list[ChartSeries] = []
    for i, heads in enumerate(counts):
        points = _dots(cells.with_heads(part, heads), value, along="length")
        if points:
            series.append(ChartSeries(name=f"h = {heads}", style="line", points=points, **look(i, len(counts))))
    whose = "the paper's table" if theirs else "ours, mean over seeds"
    both = [*_by_length(cells, part, _ours), *_by_length(cells, part, _theirs)]
    return Chart(
        id=f"{'paper' if theirs else 'accuracy'}-by-length-{part}",
        kind="accuracy-by-length",
        title=f"{TITLES[part]} accuracy by length: {whose}",
        subtitle="A line for each number of heads.",
        x=doubling_axis(LENGTH, cells.lengths),
        y=percent_axis(f"{TITLES[part]} accuracy (%)", both),  # one range for theirs and ours
        series=series,
        caption="Where a line rises, longer sequences are easier.",
        alt=_alt(f"{WORDS[part]} accuracy in percent against the length", series),
    )


def law_charts(cells: Cells) -> list[Chart]:
    """Return training errors against heads with the law fitted with and without the head counts the paper left out."""
    places, means, zeros = cells.error_rates("train")
    lengths = sorted({length for _, length in places})
    charts: list[Chart] = []
    low = 0.7 * float(means[0].min()) if places else 0.0
    for law in (law for law in laws_of(cells) if law.ours):
        series: list[ChartSeries] = []
        for i, length in enumerate(lengths):
            line = [(h, float(means[0, k])) for k, (h, t) in enumerate(places) if t == length]
            grid = [1 + (max(h for h, _ in line) - 1) * k / 48 for k in range(49)]
            curve = [Dot(x=h, y=y) for h in grid if low <= (y := _predicted(law, h, length)) <= 1]
            style = look(i, len(lengths))
            series.append(ChartSeries(name=f"T = {length}", style="dashed", points=curve, **style))
            series.append(
                ChartSeries(
                    name=f"T = {length}", style="rings", points=[Dot(x=h, y=error) for h, error in line], **style
                )
            )
        series.sort(key=lambda s: s.style)
        left = f"without h = {', '.join(map(str, law.without))}" if law.without else "with all h"
        both = [
            f"δ = {signed(co['delta'])}, α = {signed(co['alpha'])}" for co in (law.coefficients, numbers.fitted_law())
        ]
        note = f"{zeros} trials without any error count as half a wrong answer." if zeros else ""
        charts.append(
            Chart(
                id="law" if law.without else "law-all",
                kind="law",
                title="Training error and the law c·T^b·exp(α·h/T^δ)",
                subtitle=f"Ours, {left}: {both[0]}. The paper: {both[1]}.",
                x=whole_axis(HEADS, cells.heads),
                y=log_axis(error_terms("error rate", "train").axis, [p.y for s in series for p in s.points]),
                series=series,
                caption=f"Open marks: ours, mean over seeds. Dashed: the law, fitted {left}.",
                notes=[note] if note else [],
                alt=_alt("the training error against the number of heads, with a fitted law", series),
            )
        )
    return charts


def _predicted(law: FittedLaw, heads: float, length: int) -> float:
    co = law.coefficients
    exponent = co["alpha"] * heads / length ** co["delta"]
    return co["c"] * length ** co["b"] * math.exp(min(exponent, 300.0))


def percent_axis(label: str, series: Sequence[ChartSeries]) -> Axis:
    """Return a linear axis in percent that holds all values, with round ticks."""
    found = [v for s in series for p in s.points for v in (p.y, p.low, p.high) if v is not None] or [0.0, 100.0]
    low, high = max(min(found), 0.0), min(max(found), 100.0)
    step = next(s for s in (1, 2, 5, 10, 20) if (high - low) / s <= 7)
    low, high = step * math.floor(low / step), step * math.ceil(max(high, low + 1e-9) / step)
    high = high if high > low else low + step
    ticks = [(float(v), str(v)) for v in range(low, high + 1, step)]
    pad = 0.03 * (high - low)
    return Axis(label=label, scale="linear", low=low - pad, high=high + pad, ticks=ticks)


def _ours(cell: ComparedCell) -> Pair:
    return mean_and_deviation(cell.results)


def _theirs(cell: ComparedCell) -> Pair:
    return cell.theirs, cell.deviation


def _ranks(cell: ComparedCell) -> Pair:
    return mean_and_deviation(cell.ranks)


def _dots(cells: Iterable[ComparedCell], value: Value, along: str) -> list[Dot]:
    found: list[Dot] = []
    for cell in cells:
        share, over_seeds = value(cell)
        if share is not None:
            mean, deviation = 100 * share, 100 * (over_seeds or 0.0)
            low, high = (max(mean - deviation, 0.0), min(mean + deviation, 100.0)) if deviation else (None, None)
            text = f"h = {cell.heads}, T = {cell.length}"
            found.append(Dot(x=float(getattr(cell, along)), y=mean, low=low, high=high, text=text))
    return found


def _by_length(cells: Cells, part: Part, value: Value, style: Style = "line") -> list[ChartSeries]:
    """Return a line for each length, with a band if there are deviations; dashed lines have neither marks nor band."""
    lengths = cells.lengths
    series: list[ChartSeries] = []
    for i, length in enumerate(lengths):
        points = _dots(cells.at_length(part, length), value, along="heads")
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
    ranges = [
        f"{s.name}: from {s.points[0].y:.3g} to {s.points[-1].y:.3g}."
        for s in series
        if s.points and s.style in ("line", "rings")
    ]
    return f"Chart of {what}. {' '.join(ranges)}".strip()
