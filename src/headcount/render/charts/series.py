"""Pieces of a run's charts: cells sorted into lines, their points, axes of errors, and the words around them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from headcount.analysis import ROUNDING_ERROR, Analysis, Cell, Dimension, guess_error_rate, setting_name, size
from headcount.render.charts.chart import (
    SHAPES,
    Axis,
    Chart,
    ChartSeries,
    Dot,
    Level,
    Mark,
    PaperValue,
    Shade,
    log_axis,
    ramp,
)
from headcount.render.words.errors import error_terms, terms_of
from headcount.render.words.numbers import error_text
from headcount.store import Run

MAX_CHARTS = 12
"""Charts of one kind; the cells of further ones are in cells.csv."""
MAX_DOTS = 600
"""If there are more trials and several targets, a dot is the best seed of a target."""
HEADS_LABEL = "Number of attention heads"
GUESSING = "always guessing the average"
GUESSING_AT_RANDOM = "guessing at random"

TrialDots = dict[tuple[int | None, int | None, int | None], list[tuple[float, str]]]
"""(length, hidden, heads) to (error, target and seed)."""


class Group(NamedTuple):
    """The cells of one chart."""

    setting: str
    hidden: int | None
    """The hidden size, if charts differ in it."""
    cells: list[Cell]


def groups(analysis: Analysis) -> list[Group]:
    """Return the cells grouped by setting and hidden size."""
    found: list[Group] = []
    for setting in analysis.settings:
        cells = [c for c in analysis.cells if c.setting == setting]
        sizes = values(cells, "hidden")
        if len(sizes) < 2:
            found.append(Group(setting, None, cells))
        else:
            found += [Group(setting, n, [c for c in cells if c.hidden == n]) for n in sizes]
    return [group for group in found if group.cells]


def lines(analysis: Analysis) -> list[tuple[Group, list[tuple[str, list[Cell]]]]]:
    """Return the cells of each chart of error by heads, in named lines: one per length, or one per hidden size."""
    found: list[tuple[Group, list[tuple[str, list[Cell]]]]] = []
    for setting in analysis.settings:
        cells = [c for c in analysis.cells if c.setting == setting]
        if len(values(cells, "length")) > 1:
            charts = [g for g in groups(analysis) if g.setting == setting]
            found += [(g, _by(g.cells, "length", "T")) for g in charts]
        elif cells:
            named = _by(cells, "hidden", "N") if any(c.hidden for c in cells) else _by(cells, "length", "T")
            found.append((Group(setting, None, cells), named))
    return found


def _by(cells: Sequence[Cell], field: str, symbol: str) -> list[tuple[str, list[Cell]]]:
    return [(f"{symbol} = {v}", [c for c in cells if getattr(c, field) == v]) for v in values(cells, field)]


def values(cells: Sequence[Cell], field: str) -> list[int]:
    """Return the values that occur in a field, in order."""
    return sorted({v for c in cells if (v := getattr(c, field)) is not None})


def level(cell: Cell) -> float | None:
    """Return the error that represents a cell: that of each target (`by_target`), averaged in log scale."""
    if not cell.by_target:
        return cell.best
    return 10.0 ** (sum(math.log10(for_log_scale(e)) for e in cell.by_target) / len(cell.by_target))


def for_log_scale(error: float) -> float:
    """Return the error, raised to `ROUNDING_ERROR` where it is smaller: a logarithmic scale shows no 0."""
    return max(error, ROUNDING_ERROR)


def dot(cell: Cell, x: float) -> Dot:
    """Return a cell as a point of a line, with the range of its targets."""
    several, finished = len(cell.by_target) > 1, cell.trials - cell.diverged - cell.missing
    if several:
        text = f"mean of {cell.targets} targets, {_seeds(cell)} of each"
        text += "" if finished == cell.trials else f" ({finished} of {cell.trials} trials finished)"
    else:
        kind = "mean" if cell.averaged else "best"
        text = (
            f"{kind} of {finished} seeds"
            if finished == cell.trials
            else f"{kind} of {finished} finished ({cell.trials} planned)"
        )
    low, high = (for_log_scale(cell.by_target[0]), for_log_scale(cell.by_target[-1])) if several else (None, None)
    return Dot(x=x, y=for_log_scale(level(cell) or 0.0), low=low, high=high, text=text if cell.trials > 1 else "")


def trial_dots(runs: Sequence[Run], setting: str) -> TrialDots:
    """Return the finished trials of a setting by cell; empty if they are too many to show one by one."""
    found: TrialDots = {}
    own = [run for run in runs if setting_name(run) == setting]
    targets = {run.values.get("target") for run in own}
    if sum(len(run.trials) for run in own) > MAX_DOTS and len(targets) > 1:
        return {}
    for run in own:
        target = f"target {run.values['target']}, " if "target" in run.values else ""
        for trial in run.trials:
            if trial.nmse is not None and trial.state == "done":
                place = (size(run, "length"), size(run, "hidden"), trial.heads)
                found.setdefault(place, []).append((trial.nmse, f"{target}seed {trial.seed}"))
    return found


def target_dots(cell: Cell) -> list[tuple[float, str]]:
    """Return the error of each target of a cell."""
    return [(error, f"{_seeds(cell)} of one of {cell.targets} targets") for error in cell.by_target]


def _seeds(cell: Cell) -> str:
    """Return what the seeds of a target are summarised by, such as "best seed"."""
    return error_terms("error rate" if cell.averaged else "nmse").seeds


def paper_values(paper: Sequence[PaperValue], analysis: Analysis, setting: str) -> list[PaperValue]:
    """Return the paper's numbers that belong to a setting."""
    return [v for v in paper if v.setting == setting or (not v.setting and len(analysis.settings) == 1)]


def paper_series(
    paper: Sequence[PaperValue], look: dict[str, Any], x: Callable[[PaperValue], int]
) -> list[ChartSeries]:
    """Return the paper's numbers as open marks, one series per source."""
    return [
        ChartSeries(
            name=label,
            style="rings",
            **look,
            points=[
                Dot(
                    x=float(x(v)),
                    y=for_log_scale(v.value),
                    low=None if v.low is None else for_log_scale(v.low),
                    high=None if v.high is None else for_log_scale(v.high),
                    text=f"h = {v.heads}, T = {v.length}",
                )
                for v in paper
                if v.label == label
            ],
        )
        for label in dict.fromkeys(v.label for v in paper)
    ]


def look(i: int, n: int, shift: float = 0.0) -> dict[str, Any]:
    """Return colour and shape of line i of n."""
    return {"colour": ramp(i, n), "shape": SHAPES[i % len(SHAPES)], "shift": shift}


def errors_axis(
    series: Sequence[ChartSeries],
    analysis: Analysis | Dimension | None = None,
    runs: Sequence[Run] = (),
    *,
    always: bool = False,
) -> tuple[Axis, list[Level]]:
    """Return the axis of errors and its levels; it includes the error of guessing if that is near, or always."""
    found = [e for s in series for p in s.points for e in (p.y, p.low, p.high) if e is not None]
    near = always or max(found, default=1.0) >= 0.05
    label = error_label((terms_of(analysis) if analysis else error_terms()).axis, runs)
    guess, text, room = 1.0, GUESSING, 2.0
    if analysis is not None and analysis.measure == "error rate":
        guesses = {guess_error_rate(run) for run in runs}
        only = guesses.pop() if len(guesses) == 1 else None
        near, guess, text, room = near and only is not None, only or 1.0, GUESSING_AT_RANDOM, 1.2
    axis = log_axis(label, [*found, guess, room * guess] if near else found)  # room for the label above the line
    return axis, [Level(y=guess, text=text)] if near else []


def error_label(label: str, runs: Sequence[Run]) -> str:
    """Return the label of an error axis: for classes, errors are those of the one-hot numbers, not of y."""
    classes = bool(runs) and all(run.measure == "nmse" and run.task.get("classes") for run in runs)
    return label.replace("(NMSE)", "(NMSE of one-hot classes)") if classes else label


def shared(charts: Sequence[Chart], analysis: Analysis | None = None, runs: Sequence[Run] = ()) -> list[Chart]:
    """Return charts of errors with one y axis, since they are compared side by side."""
    axis, levels = errors_axis([s for chart in charts for s in chart.series], analysis, runs)
    return [chart.model_copy(update={"y": axis, "levels": levels}) for chart in charts]


def lanes(
    points: Sequence[Dot], shift: float, n: int | None = None, apart: float = 6.0
) -> list[tuple[float, list[Dot]]]:
    """Spread dots over lanes if many share an x; return the shift and the dots of each lane.

    n: the number of lanes (default: as many as the dots need). apart: their distance in pixels.
    """
    most = max(Counter(p.x for p in points).values(), default=0)
    n = n or min(9, 1 + most // 24)
    by_lane: list[list[Dot]] = [[] for _ in range(n)]
    seen = Counter[float]()
    for point in points:
        by_lane[seen[point.x] % n].append(point)
        seen[point.x] += 1
    return [(shift + (k - (n - 1) / 2) * apart, dots) for k, dots in enumerate(by_lane)]


def shades(found: Dimension | None, axis: Axis) -> list[Shade]:
    """Shade the head counts below the estimate's interval, and those above it."""
    if found is None or found.estimate is None:
        return []
    shaded: list[Shade] = []
    low = found.low if found.low is not None else found.estimate
    if low - 0.5 > axis.low:
        shaded.append(Shade(low=axis.low, high=low - 0.5, tone="few", text="too few heads"))
    if found.high is not None and found.high - 0.5 < axis.high:
        start = max(found.high - 0.5, axis.low)
        shaded.append(Shade(low=start, high=axis.high, tone="enough", text="enough heads"))
    return shaded


def known_dimensions(analysis: Analysis, runs: Sequence[Run]) -> dict[str, int | None]:
    """Return the known D of every setting, from its own panels; None if it is unknown or not unique."""
    found: dict[str, set[int | None]] = {setting: set() for setting in analysis.settings}
    for run in runs:
        found.setdefault(setting_name(run), set()).add(run.intrinsic)
    return {
        setting: (some.pop() if len(some) == 1 else None) if some else analysis.intrinsic
        for setting, some in found.items()
    }


def known_dimension(D: int | None, axis: Axis) -> list[Mark]:
    """Mark the known D, for comparison."""
    return [Mark(x=float(D), text=f"known D = {D}")] if D is not None and axis.low < D < axis.high else []


def left_out(analysis: Analysis, runs: Sequence[Run], group: Group) -> dict[str, int]:
    """Return how many trials of a chart have no record, by state, if the states are known."""
    found = Counter[str]()
    for run in runs:
        if setting_name(run) == group.setting and group.hidden in (None, size(run, "hidden")):
            found.update(run.left_out)
    if not runs and len(group.cells) == len(analysis.cells):
        found.update({state: n for state, n in analysis.counts.items() if state not in ("done", "diverged")})
    return {state: n for state, n in found.items() if n}


def missing_trials(cells: Sequence[Cell], states: Mapping[str, int] | None = None) -> list[str]:
    """Return notes on trials that a chart cannot show, with their states if known, and on errors of 0."""
    diverged, missing = sum(c.diverged for c in cells), sum(c.missing for c in cells)
    total = sum(c.trials for c in cells)
    known = dict(states or {})
    if sum(known.values()) != missing:  # the states do not account for the missing trials
        known = {"without a result": missing} if missing else {}
    counts = [f"{n:,} {state}" for state, n in {"diverged": diverged, **known}.items() if n]
    *first, last = counts or [""]
    listed = f"{', '.join(first)} and {last}" if first else last
    notes = [f"Not shown: of {total:,} trials, {listed}."] if listed else []
    if any(c.best is not None and c.best < ROUNDING_ERROR for c in cells):
        notes.append(f"Errors of 0 are drawn at {error_text(ROUNDING_ERROR)}.")
    return notes


def subtitle(group: Group, among: Sequence[str] = ()) -> str:
    """Return which part of the run a chart shows."""
    lengths, sizes = values(group.cells, "length"), values(group.cells, "hidden")
    named = " ".join(among) if len(among) > 1 or any(sizes) else ""  # a line alone has no legend that names it
    return ", ".join(
        part
        for part in (
            group.setting,
            f"N = {sizes[0]}" if len(sizes) == 1 and sizes[0] and "N =" not in named else "",
            f"T = {lengths[0]}" if len(lengths) == 1 and lengths[0] and "T =" not in named else "",
        )
        if part
    )


def where(cell: Cell) -> str:
    """Name a cell by its length and size."""
    parts = [f"T = {cell.length}" if cell.length else "", f"N = {cell.hidden}" if cell.hidden else ""]
    return ", ".join(part for part in parts if part)


def alt(what: str, series: Sequence[ChartSeries]) -> str:
    """Return a chart in words: every line with its ends."""
    spoken = [
        f"{s.name}: from {error_text(s.points[0].y)} to {error_text(s.points[-1].y)}."
        for s in series
        if s.points and s.style in ("line", "rings")
    ][:24]
    return f"Chart of {what}. {' '.join(spoken)}".strip()


def fitted(line: Sequence[Dot], slope: float) -> list[Dot]:
    """Return a power law of a given slope through the middle of some points."""
    x, y = ([math.log(v) for v in column] for column in ([p.x for p in line], [p.y for p in line]))
    middle, height = sum(x) / len(x), sum(y) / len(y)
    return [Dot(x=math.exp(v), y=math.exp(height + slope * (v - middle))) for v in (min(x), max(x))]


def numbered(charts: list[Chart]) -> list[Chart]:
    """Return the charts of one kind with different ids, without empty ones and without those beyond `MAX_CHARTS`."""
    charts = [chart for chart in charts if any(s.points for s in chart.series)]
    shown = charts[:MAX_CHARTS]
    if len(charts) > MAX_CHARTS:
        note = f"{len(charts) - MAX_CHARTS} more charts of this kind are left out; cells.csv has their numbers."
        shown[-1] = shown[-1].model_copy(update={"notes": [*shown[-1].notes, note]})
    if len(shown) == 1:
        return shown
    return [chart.model_copy(update={"id": f"{chart.id}-{i + 1}"}) for i, chart in enumerate(shown)]
