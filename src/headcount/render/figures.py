"""Figure data apart from drawing: the picture, the page and the terminal read the same numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from headcount.analysis import FLOOR, Dimension
from headcount.analysis.words import error_text, heads_text, times_text
from headcount.core import Spec
from headcount.store import Run, Trial

Tone = Literal["few", "enough", "plain"]
"""few: these heads fail; enough: at or after the jump; plain: no jump divides the head counts."""
ERROR_LABEL = "Error (NMSE)"


class Point(Spec):
    """One number against another; dots also know their seed."""

    x: float
    y: float
    seed: int | None = None


class Series(Spec):
    """Points that belong together."""

    name: str
    style: Literal["dots", "best", "median", "curve", "curve-best"]
    """dots: one per trial; best, median: a line over the head counts; curve: one trial's training."""
    tone: Tone = "plain"
    heads: int | None = None
    points: list[Point]


class Jump(Spec):
    """The drop between two head counts, to be marked with an arrow."""

    heads_from: int
    heads_to: int
    error_from: float
    error_to: float
    text: str


class Region(Spec):
    """Head counts that share a fate."""

    first: int
    last: int
    tone: Tone
    text: str


class FigureData(Spec):
    """All that a picture shows."""

    kind: Literal["transition", "training"]
    title: str
    subtitle: str
    x_label: str
    y_label: str = ERROR_LABEL
    decades: int = Field(default=1, ge=1)
    """How many powers of ten lie between two lines of the error's scale."""
    ticks: list[int]
    """The head counts; empty where the x axis is a plain scale."""
    series: list[Series]
    jump: Jump | None = None
    regions: list[Region]
    notes: list[str]
    alt: str
    """The picture in words, for those who cannot see it."""


def transition_figure(run: Run, transition: Dimension) -> FigureData:
    """Error against head count: a dot per seed, lines through the best and the median, the jump marked."""
    rows = transition.rows
    series: list[Series] = []
    for row in rows:
        done = [t for t in run.trials if t.heads == row.heads and t.state == "done"]
        points = [Point(x=row.heads, y=max(t.nmse, FLOOR), seed=t.seed) for t in done if t.nmse is not None]
        tone = _tone(row.heads, transition)
        if points:
            series.append(Series(name=heads_text(row.heads), style="dots", tone=tone, heads=row.heads, points=points))
    best = [Point(x=r.heads, y=max(r.best, FLOOR)) for r in rows if r.best is not None]
    median = [Point(x=r.heads, y=max(r.median, FLOOR)) for r in rows if r.median is not None]
    series.append(Series(name="best seed", style="best", points=best))
    series.append(Series(name="median of the seeds", style="median", points=median))
    notes: list[str] = []
    diverged = sum(row.diverged for row in rows)
    if diverged:
        notes.append(f"{diverged} of {len(run.trials)} models diverged and have no dot.")
    if any(r.best is not None and r.best < FLOOR for r in rows):
        notes.append(f"Errors of 0 are drawn at {error_text(FLOOR)}.")
    return FigureData(
        kind="transition",
        title=transition.sentence,
        subtitle=run.title or run.name,
        x_label="Number of attention heads",
        decades=_decades(series),
        ticks=[row.heads for row in rows],
        series=series,
        jump=_jump(transition),
        regions=_regions(transition),
        notes=notes,
        alt=_alt(transition),
    )


def panels_figure(runs: Sequence[Run], answers: Sequence[Dimension] = ()) -> FigureData:
    """Error against head count, the best seed of each, one line a panel: how it moves with length or size.

    Where one answer was read off all panels together, its sentence is the title.
    """
    series: list[Series] = []
    for number, run in enumerate(runs):
        best = {
            h: min(t.nmse for t in run.trials if t.heads == h and t.nmse is not None)
            for h in sorted({t.heads for t in run.trials if t.nmse is not None})
        }
        points = [Point(x=h, y=max(error, FLOOR)) for h, error in best.items()]
        label = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in run.values.items())
        if points:
            series.append(Series(name=label, style="curve-best", tone="plain", heads=number, points=points))
    return FigureData(
        kind="training",
        title=answers[0].sentence if len(answers) == 1 else "Error by number of heads",
        subtitle=runs[0].title or runs[0].name,
        x_label="Number of attention heads",
        decades=_decades(series),
        ticks=sorted({t.heads for run in runs for t in run.trials}),
        series=series,
        regions=[],
        notes=["Best of the seeds; one line for each setting."],
        alt="Line chart of the best error against the number of heads, one line for each setting.",
    )


def training_figure(run: Run, transition: Dimension | None = None) -> FigureData:
    """Error against training step: a thin line per seed, a thick one for the best seed of each head count."""
    series: list[Series] = []
    for heads in sorted({t.heads for t in run.trials}):
        group = [t for t in run.trials if t.heads == heads and t.curve]
        done = [t for t in group if t.nmse is not None]
        best = min(done, key=lambda t: (t.nmse, t.seed)) if done else None
        tone = _tone(heads, transition) if transition is not None else "plain"
        series += [_curve(t, tone, thick=t is best) for t in group]
    return FigureData(
        kind="training",
        title="How the error falls during training",
        subtitle=run.title or run.name,
        x_label="Training step",
        decades=_decades(series),
        ticks=[],
        series=series,
        regions=[],
        notes=["Thick lines: the best seed of each head count. Thin lines: the other seeds."],
        alt="Line chart of the validation error against the training step. "
        + " ".join(_curve_alt(s) for s in series if s.style == "curve-best" and s.points),
    )


def _decades(series: Sequence[Series]) -> int:
    """At most about eight lines, however far the errors reach."""
    errors = [point.y for one in series for point in one.points]
    return max(1, round((math.log10(max([*errors, 1.0])) - math.log10(min([*errors, 1.0]))) / 8))


def _tone(heads: int, transition: Dimension) -> Tone:
    pair = _pair(transition)
    if pair is None:
        return "plain"
    return "few" if heads <= pair[0] else "enough" if heads >= pair[1] else "plain"


def _pair(transition: Dimension) -> tuple[int, int] | None:
    """The last head count that is too few and the next one tried, where the verdict rests on them."""
    if transition.verdict != "transition" and not transition.bounded:
        return None
    if transition.drop_from is None or transition.drop_to is None:
        return None
    return transition.drop_from, transition.drop_to


def _jump(transition: Dimension) -> Jump | None:
    """The jump, where the verdict rests on one."""
    pair = _pair(transition)
    if pair is None or transition.drop is None:
        return None
    return Jump(
        heads_from=pair[0], heads_to=pair[1],
        error_from=transition.error(pair[0]), error_to=transition.error(pair[1]),
        text=f"{times_text(transition.drop)} times\nsmaller error".replace("than a", "than\na"),
    )  # fmt: skip


def _regions(transition: Dimension) -> list[Region]:
    pair = _pair(transition)
    if pair is None:
        return []
    first, last = transition.rows[0].heads, transition.rows[-1].heads
    right = "enough heads" if transition.estimate is not None else "end not seen"
    return [
        Region(first=first, last=pair[0], tone="few", text="too few heads"),
        Region(first=pair[1], last=last, tone="enough", text=right),
    ]


def _alt(transition: Dimension) -> str:
    told = [
        f"{heads_text(r.heads)}: best {error_text(r.best)}, median {error_text(r.median)}."
        for r in transition.rows if r.best is not None and r.median is not None
    ]  # fmt: skip
    return f"Chart of the error against the number of heads. {' '.join(told)} {transition.sentence}"


def _curve(trial: Trial, tone: Tone, *, thick: bool) -> Series:
    points = [Point(x=step, y=max(nmse, FLOOR), seed=trial.seed) for step, nmse in trial.curve]
    style = "curve-best" if thick else "curve"
    return Series(name=heads_text(trial.heads), style=style, tone=tone, heads=trial.heads, points=points)


def _curve_alt(series: Series) -> str:
    first, last = series.points[0], series.points[-1]
    return f"{series.name}: from {error_text(first.y)} to {error_text(last.y)}."
