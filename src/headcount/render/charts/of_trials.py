"""The charts of single trials: a dot per model with the step marked, the lines of panels, and training curves."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from headcount.analysis import ROUNDING_ERROR, Dimension
from headcount.render.charts.chart import (
    SHAPES,
    Axis,
    Chart,
    ChartSeries,
    Dot,
    Fall,
    Shade,
    Tone,
    round_ticks,
    whole_axis,
)
from headcount.render.charts.series import HEADS_LABEL, errors_axis, for_log_scale, lanes, look
from headcount.render.words.numbers import error_text, heads_text, times_text
from headcount.store import Run, Trial

STEP_LABEL = "Training step"
MODEL_NAME = "one trained model (one seed)"
LARGE_RADIUS = 5.5
"""Radius of a dot if dots are few enough to stand side by side."""
MAX_FALL_PLACE = 0.66
"""A fall ends at this fraction of the x axis at most: its arrow and its text need the rest."""
TRAINING_CAPTION = "Each line is one model; its error is measured on sequences that it was not trained on."


def transition_chart(run: Run, found: Dimension) -> Chart:
    """Return error against head count: a dot per seed, lines through the best and the median, the step marked."""
    rows = [row for row in found.rows if row.best is not None and row.median is not None]
    done = [t for t in run.trials if t.state == "done" and t.nmse is not None]
    models = {
        heads: [(t.nmse or 0.0, f"seed {t.seed}") for t in done if t.heads == heads]
        for heads in sorted({t.heads for t in done})
    }
    pair = decisive_pair(found)
    fall = None
    if pair is not None and found.drop is not None:
        before, after = ((heads, found.error(heads)) for heads in pair)
        fall = step_fall(before, after, found.drop)
    notes = [f"{count} of {len(run.trials)} models diverged and have no dot."] if (count := _diverged(found)) else []
    notes += (
        [f"Errors of 0 are drawn at {error_text(ROUNDING_ERROR)}."]
        if any((r.best or 0.0) < ROUNDING_ERROR for r in rows)
        else []
    )
    chart = models_chart(
        models,
        best=[(row.heads, row.best or 0.0) for row in rows],
        pair=pair,
        fall=fall,
        median=[(row.heads, row.median or 0.0) for row in rows],
        x=whole_axis(HEADS_LABEL, [row.heads for row in found.rows]),
        far="enough heads" if found.estimate is not None else "end not seen",
    )
    axis, levels = errors_axis(chart.series, found, [run], always=True)
    spoken = [
        f"{heads_text(r.heads)}: best {error_text(r.best or 0.0)}, median {error_text(r.median or 0.0)}." for r in rows
    ]
    return chart.model_copy(
        update={
            "title": found.sentence,
            "subtitle": run.title or run.name,
            "y": axis,
            "levels": levels,
            "notes": notes,
            "caption": f"Every dot is one trained model. Lower is better{even_steps(axis)}. "
            "At 1 a model is no better than guessing the average answer.",
            "alt": " ".join(["Chart of the error against the number of heads.", *spoken, found.sentence]),
        }
    )


def models_chart(
    models: dict[int, list[tuple[float, str]]],
    *,
    best: Sequence[tuple[int, float]],
    median: Sequence[tuple[int, float]],
    x: Axis,
    pair: tuple[int, int] | None,
    fall: Fall | None,
    far: str = "enough heads",
) -> Chart:
    """Return error against head count with a dot per model; the caller sets title, texts and levels.

    models: by head count, the error of every model and a text. pair: the last head count that is too few and the first
    that is enough; it sets the colours.
    """
    toned: dict[Tone, list[Dot]] = {}
    for count, errors in models.items():
        dots = [Dot(x=count, y=for_log_scale(error), text=text) for error, text in errors]
        toned.setdefault(_tone(count, pair), []).extend(dots)
    series = [
        ChartSeries(name="median of the seeds", style="dashed", tone="muted", points=_points(median)),
        ChartSeries(name="best seed", style="line", marks="none", tone="ink", points=_points(best)),
    ]
    most = max((len(errors) for errors in models.values()), default=1)
    radius = LARGE_RADIUS if most <= 6 else 3.0
    for tone, dots in toned.items():
        series += [
            ChartSeries(name=MODEL_NAME, style="dots", tone=tone, radius=radius, shift=beside, points=some)
            for beside, some in lanes(dots, 0.0, n=min(most, 9), apart=min(10.0, 36.0 / most))
        ]
    if fall is not None:
        x = x.model_copy(update={"high": max(x.high, x.value(x.place(fall.x_to) / MAX_FALL_PLACE))})
    shades: list[Shade] = []
    if pair is not None:
        last, first = (pair[0] + 0.5, pair[1] - 0.5) if x.scale == "linear" else (x.middle(*pair), x.middle(*pair))
        shades = [
            Shade(low=x.low, high=last, tone="few", text="too few heads"),
            Shade(low=first, high=x.high, tone="enough", text=far),
        ]
    return Chart(
        id="transition",
        kind="transition",
        title="",
        alt="",
        x=x,
        y=errors_axis(series)[0],
        series=series,
        shades=shades,
        fall=fall,
    )


def step_fall(before: tuple[int, float], after: tuple[int, float], factor: float) -> Fall:
    """Return the fall from one head count to the next, each with its error."""
    text = f"{times_text(factor)} times\nsmaller error".replace("than a", "than\na")
    return Fall(
        x_from=before[0], y_from=for_log_scale(before[1]), x_to=after[0], y_to=for_log_scale(after[1]), text=text
    )


def panels_chart(runs: Sequence[Run], answers: Sequence[Dimension] = ()) -> Chart:
    """Return the best error against head count, one line per panel: how it changes with length or size.

    If all panels together gave one answer, its sentence is the title.
    """
    series: list[ChartSeries] = []
    for i, run in enumerate(runs):
        done = [t for t in run.trials if t.nmse is not None]
        best = {h: min(t.nmse or 0.0 for t in done if t.heads == h) for h in sorted({t.heads for t in done})}
        label = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in run.values.items())
        if best:
            points = _points(list(best.items()))
            series.append(ChartSeries(name=label, style="line", points=points, **look(i, len(runs))))
    y, levels = errors_axis(series, answers[0] if answers else None, runs)
    return Chart(
        id="panels",
        kind="transition",
        title=answers[0].sentence if len(answers) == 1 else "Error by number of heads",
        subtitle=runs[0].title or runs[0].name,
        series=series,
        y=y,
        levels=levels,
        x=whole_axis(HEADS_LABEL, {t.heads for run in runs for t in run.trials}),
        notes=["Best of the seeds; one line for each setting."],
        alt="Line chart of the best error against the number of heads, one line for each setting.",
    )


def training_chart(run: Run, found: Dimension | None = None) -> Chart:
    """Return error against training step: a thin line per seed, a thick one for the best seed of each head count."""
    thin: list[ChartSeries] = []
    thick: list[ChartSeries] = []
    for number, heads in enumerate(sorted({t.heads for t in run.trials})):
        group = [t for t in run.trials if t.heads == heads and t.curve]
        done = [t for t in group if t.nmse is not None]
        best = min(done, key=lambda t: (t.nmse, t.seed)) if done else None
        tone = _tone(heads, decisive_pair(found))
        thin += [_curve(t, tone, number, thick=False) for t in group if t is not best]
        thick += [_curve(best, tone, number, thick=True)] if best is not None and best.curve else []
    spoken = [_ends_text(s) for s in thick]
    return _steps_chart(
        [*thin, *thick],
        run,
        found,
        "How the error falls during training",
        run.title or run.name,
        notes=["Thick lines: the best seed of each head count. Thin lines: the other seeds."],
        alt=" ".join(["Line chart of the validation error against the training step.", *spoken]),
    )


def curve_chart(trial: Trial, task: str) -> Chart:
    """Return the validation error of one model against training step."""
    line = _curve(trial, "plain", 0, thick=True)
    first, last = line.points[0], line.points[-1]
    return _steps_chart(
        [line],
        None,
        None,
        "How the error fell during training",
        task,
        notes=[],
        alt=f"Validation error against the training step: from {error_text(first.y)} at step {first.x:.0f} to "
        f"{error_text(last.y)} at step {last.x:.0f}.",
    )


def decisive_pair(found: Dimension | None) -> tuple[int, int] | None:
    """Return the last head count that is too few and the next one tried, if the verdict rests on them."""
    if found is None or (found.verdict != "transition" and not found.bounded):
        return None
    if found.drop_from is None or found.drop_to is None:
        return None
    return found.drop_from, found.drop_to


def even_steps(axis: Axis) -> str:
    """Return by which factor the error falls from one horizontal line to the next, if all are equally far apart."""
    values = sorted(value for value, _ in axis.ticks)
    ratios = {round(b / a, 6) for a, b in itertools.pairwise(values)}
    if axis.scale != "log" or len(ratios) != 1:
        return ""
    return f": from one horizontal line to the next the error is {ratios.pop():,g} times smaller"


def _steps_chart(
    series: list[ChartSeries],
    run: Run | None,
    found: Dimension | None,
    title: str,
    subtitle: str,
    *,
    notes: list[str],
    alt: str,
) -> Chart:
    y, levels = errors_axis(series, found, [run] if run is not None else [], always=True)
    longest = max((p.x for s in series for p in s.points), default=1.0)
    return Chart(
        id="training",
        kind="training",
        title=title,
        subtitle=subtitle,
        x=_steps_axis(longest),
        y=y,
        levels=levels,
        series=series,
        notes=notes,
        caption=TRAINING_CAPTION,
        alt=alt,
    )


def _steps_axis(longest: float) -> Axis:
    """Return an axis from 0 with round ticks."""
    high = 1.02 * max(longest, 1.0)
    return Axis(
        label=STEP_LABEL,
        scale="linear",
        low=0.0,
        high=high,
        ticks=[(t, f"{t:,.6g}") for t in round_ticks(0.0, high, 6)],
    )


def _curve(trial: Trial, tone: Tone, number: int, *, thick: bool) -> ChartSeries:
    points = [Dot(x=step, y=for_log_scale(error), text=f"seed {trial.seed}") for step, error in trial.curve]
    return ChartSeries(
        name=heads_text(trial.heads),
        style="line" if thick else "thin",
        marks="last",
        tone=tone,
        shape=SHAPES[number % len(SHAPES)],
        points=points,
    )


def _ends_text(line: ChartSeries) -> str:
    return f"{line.name}: from {error_text(line.points[0].y)} to {error_text(line.points[-1].y)}."


def _tone(heads: int, pair: tuple[int, int] | None) -> Tone:
    if pair is None:
        return "plain"
    return "few" if heads <= pair[0] else "enough" if heads >= pair[1] else "plain"


def _points(errors: Sequence[tuple[int, float]]) -> list[Dot]:
    return [Dot(x=heads, y=for_log_scale(error)) for heads, error in errors]


def _diverged(found: Dimension) -> int:
    return sum(row.diverged for row in found.rows)
