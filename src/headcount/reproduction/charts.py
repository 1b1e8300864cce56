"""The picture of each name, as data: those of every run's page, and the few that only one name needs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from headcount.analysis import Analysis, reversal_score
from headcount.analysis.words import error_text, heads_text
from headcount.render.charts import (
    SHAPES,
    Axis,
    Chart,
    ChartSeries,
    Dot,
    PaperValue,
    dot,
    doubling_axis,
    equal_error,
    error_by_heads,
    error_by_length,
    errors_axis,
    level,
    log_axis,
    numbered,
    ramp,
    scaling,
    whole_axis,
)
from headcount.reproduction.items import Item
from headcount.reproduction.numbers import PaperCell
from headcount.store import Run


def charts_of(item: Item, analysis: Analysis, runs: Sequence[Run], theirs: Sequence[PaperCell]) -> list[Chart]:
    """Return the pictures of a table or figure, each with a name of its own."""
    return numbered(_charts(item, analysis, runs, theirs))


def _charts(item: Item, analysis: Analysis, runs: Sequence[Run], theirs: Sequence[PaperCell]) -> list[Chart]:
    paper = paper_values(theirs)
    match item.kind:
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
        case "reversal":
            return [reversal_chart(analysis, theirs)]
        case "steps":
            return [steps_chart(runs)]
        case "head_dims":
            return [head_dims_chart(runs), *smallest_hidden_chart(runs)]


def paper_values(theirs: Sequence[PaperCell]) -> list[PaperValue]:
    """Return the paper's numbers in the form in which a chart shows them; a range below zero has no low end."""
    return [
        PaperValue(
            heads=c.heads, length=c.length, value=c.value, deviation=c.deviation,
            label=f"paper, {c.table.replace('table', 'table ')}",
            low=None if c.deviation is None or c.deviation >= c.value else c.value - c.deviation,
            high=None if c.deviation is None or c.deviation >= c.value else c.value + c.deviation,
        )
        for c in theirs
    ]  # fmt: skip


def _shown(item: Item, heads: int | None) -> bool:
    return item.heads is None or heads in item.heads


def same_lengths(analysis: Analysis, theirs: Sequence[PaperCell]) -> list[PaperCell]:
    """Return the paper's cells at the lengths of a run: a score over other lengths is another score."""
    lengths = {c.length for c in analysis.cells}
    return [c for c in theirs if c.length in lengths]


def paper_reversal(theirs: Sequence[PaperCell]) -> dict[int, float]:
    """Return the weighted reversal score of each head count of a table of the paper."""
    counts = sorted({c.heads for c in theirs})
    tables = {h: [c.value for c in sorted(theirs, key=lambda c: c.length) if c.heads == h] for h in counts}
    return {h: float(reversal_score(np.array(errors))) for h, errors in tables.items()}


def reversal_chart(analysis: Analysis, theirs: Sequence[PaperCell]) -> Chart:
    """The weighted reversal score against heads, ours with its interval and the paper's from its own table."""
    ours = [
        Dot(x=float(r.heads or 0), y=r.score, low=r.low, high=r.high, text=f"p = {r.p:.2g}") for r in analysis.reversals
    ]
    theirs = same_lengths(analysis, theirs)
    paper = [Dot(x=float(h), y=score) for h, score in paper_reversal(theirs).items()]
    series = [
        ChartSeries(name="ours", style="band", points=ours),
        ChartSeries(name="ours", style="line", points=ours),
        ChartSeries(name="paper, from its table", style="rings", colour=6, shape="square", points=paper),
    ]
    top = max([p.high or p.y for p in ours] + [p.y for p in paper] + [1.0])
    told = "; ".join(f"{heads_text(round(p.x))}: {p.y:.2f}" for p in ours)
    return Chart(
        id="reversal", kind="reversal", title="Weighted reversal score by number of heads",
        subtitle="above zero, some longer sequences are easier",
        x=whole_axis("Number of attention heads", [round(p.x) for p in ours + paper]),
        y=Axis(
            label="Reversal score R(h)", scale="linear", low=-0.08 * top, high=1.08 * top,
            ticks=[(float(k), str(k)) for k in range(math.ceil(top) + 1) if k <= 1.05 * top],
        ), series=series,
        caption="Shaded: 90 % of the draws of seeds and targets. The score alone decides nothing.",
        alt=f"Line chart of the reversal score against the number of heads. {told}.",
    )  # fmt: skip


def settings_charts(analysis: Analysis) -> list[Chart]:
    """Error against heads, a line for each setting: one chart for each length and hidden size."""
    charts: list[Chart] = []
    for length, hidden in dict.fromkeys((c.length, c.hidden) for c in analysis.cells):
        series: list[ChartSeries] = []
        for i, setting in enumerate(analysis.settings):
            members = [c for c in analysis.cells if (c.setting, c.length, c.hidden) == (setting, length, hidden)]
            line = [dot(c, float(c.heads or 0)) for c in members if level(c) is not None]
            if line:
                shape = SHAPES[i % len(SHAPES)]
                colour = ramp(i, len(analysis.settings))
                series.append(ChartSeries(name=setting, style="line", shape=shape, colour=colour, points=line))
        if series:
            y, levels = errors_axis(series)
            told = "; ".join(f"{s.name}: {error_text(s.points[0].y)} to {error_text(s.points[-1].y)}" for s in series)
            charts.append(Chart(
                id="settings", kind="heads", title=analysis.title, subtitle=f"T = {length}",
                x=whole_axis("Number of attention heads", [c.heads or 0 for c in analysis.cells]), y=y, levels=levels,
                series=series, caption="Best seed, averaged over the targets in log scale.",
                alt=f"Line chart of the error against the number of heads, a line for each setting. {told}.",
            ))  # fmt: skip
    return charts


def hidden_charts(analysis: Analysis) -> list[Chart]:
    """Error against the hidden size N, a chart for each head count, in it a line for each length with its slope."""
    charts: list[Chart] = []
    for heads in sorted({s.heads for s in analysis.scaling if s.heads is not None}):
        found = sorted((s for s in analysis.scaling if s.heads == heads), key=lambda s: s.length or 0)
        series = [
            ChartSeries(
                name=f"T = {s.length}, slope {s.slope:.2f}", style="line", colour=ramp(i, len(found)),
                points=[Dot(x=n, y=error) for n, error in s.points],
            )
            for i, s in enumerate(found)
        ]  # fmt: skip
        told = "; ".join(f"{s.name}: {error_text(s.points[0].y)} to {error_text(s.points[-1].y)}" for s in series)
        charts.append(Chart(
            id="error-by-hidden", kind="hidden", title=f"Error by hidden size, {heads_text(heads)}",
            subtitle=analysis.title, x=doubling_axis("Hidden size N", [int(p.x) for s in series for p in s.points]),
            y=log_axis("Error (NMSE)", [p.y for s in series for p in s.points]), series=series,
            caption="Best seed, averaged over the targets in log scale.",
            alt=f"Line chart of the error against the hidden size. {told}.",
        ))  # fmt: skip
    return charts


def steps_chart(runs: Sequence[Run]) -> Chart:
    """Error against training steps: a line for each recipe and head count; the recipe is the setting's first part."""
    lines: dict[tuple[int, str], list[Dot]] = {}
    for run in runs:
        recipe = str(run.values.get("setting", "Adam, ")).split(", ")[0]
        steps = int(run.spec["train"]["steps"])
        for heads in sorted({t.heads for t in run.trials}):
            errors = sorted(t.nmse for t in run.trials if t.heads == heads and t.nmse is not None)
            if errors:
                low, high = errors[0], errors[-1]
                lines.setdefault((heads, recipe), []).append(Dot(x=steps, y=low, low=low, high=high))
    recipes = list(dict.fromkeys(recipe for _, recipe in lines))
    series = [
        ChartSeries(
            name=f"{heads_text(heads)}, {recipe}", style="line" if heads == min(h for h, _ in lines) else "dashed",
            colour=ramp(recipes.index(recipe), len(recipes)), points=sorted(points, key=lambda p: p.x),
        )
        for (heads, recipe), points in lines.items()
    ]  # fmt: skip
    told = "; ".join(f"{s.name}: {error_text(s.points[0].y)} to {error_text(s.points[-1].y)}" for s in series)
    return Chart(
        id="floor", kind="steps", title="Error by training steps, for each recipe",
        subtitle=runs[0].title, x=doubling_axis("Training steps", [int(p.x) for s in series for p in s.points]),
        y=log_axis("Error (NMSE)", [p.y for s in series for p in s.points]), series=series,
        caption="Best seed. Solid: too few heads. Dashed: enough.", alt=f"Line chart of error against steps. {told}.",
    )  # fmt: skip


def head_dims_chart(runs: Sequence[Run]) -> Chart:
    """Error against the head size n: a line for each hidden size and kind of F."""
    lines: dict[str, list[Dot]] = {}
    for run in runs:
        name = f"N = {run.values.get('hidden', '?')}, {run.values.get('setting', '')}".removesuffix(", ")
        errors = sorted(t.nmse for t in run.trials if t.nmse is not None)
        if errors:
            low, high = errors[0], errors[-1]
            lines.setdefault(name, []).append(Dot(x=int(run.values["head_dim"]), y=low, low=low, high=high))
    settings = list(dict.fromkeys(name.partition(", ")[2] for name in lines))
    series = [
        ChartSeries(
            name=name, style="line" if name.partition(", ")[2] == settings[0] else "dashed",
            colour=ramp(i % max(1, len(lines) // len(settings)), max(1, len(lines) // len(settings))),
            points=sorted(points, key=lambda p: p.x),
        )
        for i, (name, points) in enumerate(lines.items())
    ]  # fmt: skip
    told = "; ".join(f"{s.name}: {error_text(s.points[0].y)} to {error_text(s.points[-1].y)}" for s in series)
    return Chart(
        id="head-dims", kind="head_dims", title="Error by head size n, one head", subtitle=runs[0].title,
        x=doubling_axis("Head size n", [int(p.x) for s in series for p in s.points]),
        y=log_axis("Error (NMSE)", [p.y for s in series for p in s.points]), series=series,
        caption="Best seed. Solid: two layers in F. Dashed: five.", alt=f"Line chart of error against n. {told}.",
    )  # fmt: skip


def smallest_hidden(runs: Sequence[Run]) -> dict[tuple[str, float], list[tuple[int, int]]]:
    """Return by setting and error the smallest hidden size N tried that reaches it, against the head size n.

    Of the round errors (1, 1.2, 1.5, 2, 3, 5 or 7 times a power of ten) the three that tell most are taken: the more
    sizes their lines pass, the better.
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
    """The smallest N that reaches an error against the head size n: a line for each error, for each kind of F."""
    found = smallest_hidden(runs)
    settings = list(dict.fromkeys(setting for setting, _ in found))
    levels = sorted({error for _, error in found})
    if not found:
        return []
    series = [
        ChartSeries(
            name=f"error {error_text(error)}" + (f", {setting}" if setting else ""),
            style="line" if setting == settings[0] else "dashed",
            colour=ramp(levels.index(error), len(levels)), points=[Dot(x=n, y=N) for n, N in at],
        )
        for (setting, error), at in found.items()
    ]  # fmt: skip
    told = "; ".join(f"{s.name}: N = {s.points[0].y:g} to {s.points[-1].y:g}" for s in series)
    return [Chart(
        id="smallest-hidden", kind="head_dims", title="Smallest hidden size for an error, one head",
        subtitle=runs[0].title, x=doubling_axis("Head size n", [int(p.x) for s in series for p in s.points]),
        y=doubling_axis("Hidden size N", [int(p.y) for s in series for p in s.points]), series=series,
        caption="The smallest N tried whose best seed reaches the error; a head size without a point reaches it with "
        "none.",
        alt=f"Line chart of the smallest hidden size against the head size. {told}.",
    )]  # fmt: skip
