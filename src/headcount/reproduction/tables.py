"""Theirs and ours, cell by cell: the table of a name, and the draw of the target that is most like the paper's."""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from headcount.analysis import Analysis, Cell
from headcount.analysis.words import error_text, heads_text, times_text
from headcount.core.text import plain_data
from headcount.render import NONE, Column, Table
from headcount.reproduction.numbers import PaperCell, statistic
from headcount.store import Run

Place = tuple[int, int]  # heads, length


class Draw(NamedTuple):
    """One draw of the a_i beside the paper's table."""

    target: int
    errors: dict[Place, float]
    distance: float
    """The mean absolute difference of log10 error from the paper's, over the cells with fewer than D heads."""


def nearest_draw(runs: Sequence[Run], theirs: Sequence[PaperCell]) -> Draw | None:
    """Return the draw whose errors with too few heads are most like the paper's; with D heads all are alike.

    Beside a table of means stand means over the seeds, beside any other the best seed.
    """
    mean = bool(theirs) and statistic(theirs[0].table).startswith("mean")
    found: dict[int, dict[Place, float]] = {}
    for run in runs:
        for heads in {t.heads for t in run.trials}:
            errors = [t.nmse for t in run.trials if t.heads == heads and t.nmse is not None]
            if errors and "target" in run.values:
                level = statistics.fmean(errors) if mean else min(errors)
                found.setdefault(int(run.values["target"]), {})[heads, int(run.values["length"])] = level
    intrinsic = runs[0].intrinsic or 0
    draws: list[Draw] = []
    for target, errors in found.items():
        gaps = [
            abs(math.log10(errors[c.heads, c.length] / c.value)) for c in theirs
            if c.heads < intrinsic and errors.get((c.heads, c.length))
        ]  # fmt: skip
        if gaps:
            draws.append(Draw(target, errors, statistics.fmean(gaps)))
    return min(draws, key=lambda draw: draw.distance, default=None)


def comparison(
    title: str, analysis: Analysis, runs: Sequence[Run], theirs: Sequence[PaperCell], like: Draw | None
) -> Table:
    """Return the table in the paper's shape: rows by head count, columns by length, the paper's number first.

    For runs of one setting and one hidden size. Best and median are named for seeds and for draws of the target apart.
    """
    cells = {(c.heads or 0, c.length or 0): c for c in analysis.cells}
    lengths = sorted({length for _, length in cells})
    columns = [
        Column(name="h", meaning="heads"),
        Column(name="what", meaning="whose number it is"),
        *(Column(name=f"T{_BLANK}={_BLANK}{length}", meaning=f"NMSE at length {length}") for length in lengths),
    ]
    paper = {(c.heads, c.length): c for c in theirs}
    rows = [
        [str(heads), name, *texts]
        for heads in sorted({heads for heads, _ in cells})
        for name, texts in _rows([(heads, length) for length in lengths], cells, paper, _by_draw(runs), like)
    ]
    return Table(caption=title, columns=columns, rows=rows, marked=None)


_BLANK = "\N{NO-BREAK SPACE}"
Errors = dict[Place, dict[int, list[float]]]
"""The errors of the finished seeds, by place and draw."""


def _by_draw(runs: Sequence[Run]) -> Errors:
    found: Errors = {}
    for run in runs:
        draw, length = int(run.values.get("target", 0)), int(run.values.get("length", run.task.get("length", 0)))
        for trial in run.trials:
            if trial.nmse is not None:
                found.setdefault((trial.heads, length), {}).setdefault(draw, []).append(trial.nmse)
    return found


def _rows(
    places: Sequence[Place], cells: dict[Place, Cell], paper: dict[Place, PaperCell], errors: Errors, like: Draw | None
) -> list[tuple[str, list[str]]]:
    """Return the lines of one head count: the paper's, and ours with both spreads."""

    def over(seeds: Callable[[list[float]], float], draws: Callable[[list[float]], float]) -> list[str]:
        found = [[seeds(v) for v in errors.get(place, {}).values()] for place in places]
        return [_error(draws(v) if v else None) for v in found]

    ours = [cells.get(place) for place in places]
    several = any(c is not None and c.targets > 1 for c in ours)
    mean = bool(paper) and statistic(next(iter(paper.values())).table).startswith("mean")
    found: list[tuple[str, list[str]]] = []
    if paper:
        found.append(("paper", [_theirs(paper.get(place)) for place in places]))
    if several:
        found.append(("best seed, best draw", over(min, min)))
        found.append(("best seed, median draw", over(min, statistics.median)))
        found.append(("median seed, median draw", over(statistics.median, statistics.median)))
    else:
        found.append(("best seed", over(min, min)))
        found.append(("median seed", over(statistics.median, min)))
    if mean:
        found.append(("mean seed, median draw" if several else "mean seed", over(statistics.fmean, statistics.median)))
    found.append(("spread over seeds", [_factor(c.seed_spread if c else None) for c in ours]))
    if several:
        found.append(("spread over draws", [_factor(c.target_spread if c else None) for c in ours]))
    if like is not None:
        kind = "mean seed" if mean else "best seed"
        found.append((f"draw {like.target}, {kind}", [_error(like.errors.get(place)) for place in places]))
    for name, count in (("diverged", lambda c: c.diverged), ("no result", lambda c: c.missing)):
        if any(c is not None and count(c) for c in ours):
            found.append((name, [NONE if c is None else f"{count(c)} of {c.trials}" for c in ours]))
    return found


def remarks(
    analysis: Analysis, runs: Sequence[Run], theirs: Sequence[PaperCell], note: str, like: Draw | None
) -> list[str]:
    """Return what a reader must know to read the table."""
    said = [note] if note else []
    if theirs and statistic(theirs[0].table).startswith("mean"):
        said.append(
            "The paper's numbers are means over its seeds, with their standard deviation; where that exceeds the mean, "
            "no range is drawn."
        )
    elif theirs:
        said.append("The paper does not state whether its numbers are the best or the mean over seeds.")
    draws = sorted({int(run.values["target"]) for run in runs if "target" in run.values})
    if theirs and draws:
        told = f"draw {draws[0]}" if len(draws) == 1 else f"draws {', '.join(map(str, draws))}"
        said.append(
            f"The paper's a_i are unknown. Here they are drawn by seed ({told}){_apart(runs)}, so a single number "
            "proves little."
        )
    if like is not None:
        said.append(
            f"Draw {like.target} is most like the paper's table: with fewer than D heads its errors differ from the "
            f"paper's by a factor of {times_text(10**like.distance)} on average."
        )
    lost = {state: n for state, n in analysis.counts.items() if n and state != "done"}
    told = ", ".join(f"{n} {state}" for state, n in lost.items()) or "none failed or diverged"
    said.append(f"{sum(analysis.counts.values())} trials: {told}.")
    return said


def _apart(runs: Sequence[Run]) -> str:
    """Say how far the draws are apart with one head too few, in the best seed, at the length where it is most."""
    few = (runs[0].intrinsic or 0) - 1
    factors: list[float] = []
    for (heads, _), draws in _by_draw(runs).items():
        best = [min(errors) for errors in draws.values()]
        if heads == few and len(best) > 1 and min(best) > 0:
            factors.append(max(best) / min(best))
    if not factors:
        return ""
    return f"; with {heads_text(few)} one differs from another by a factor of up to {times_text(max(factors))}"


def reversal_table(title: str, analysis: Analysis, theirs: dict[int, float]) -> Table:
    """Return the weighted reversal score of every head count, the paper's over the same lengths beside ours."""
    rows = [
        [
            str(r.heads), NONE if r.heads not in theirs else f"{theirs[r.heads or 0]:.2f}", f"{r.score:.2f}",
            f"{r.low:.2f} to {r.high:.2f}", f"{r.p:.2f}",
        ]
        for r in analysis.reversals
    ]  # fmt: skip
    columns = [
        Column(name="h", meaning="heads"), Column(name="paper", meaning="R(h) of its table, over the same lengths"),
        Column(name="ours", meaning="R(h) of the best seeds, averaged over the draws in log scale"),
        Column(name="90 %", meaning="of the draws of seeds and targets"),
        Column(name="p", meaning="the chance of a score as large if T had no effect"),
    ]  # fmt: skip
    return Table(caption=title, columns=columns, rows=rows, marked=None)


CSV = [
    "name", "paper_cell", "setting", "heads", "length", "hidden", "head_dim", "paper", "paper_deviation", "best",
    "median", "worst", "seed_spread", "target_spread", "targets", "trials", "diverged", "missing", "parameters",
    "parameters_total",
]  # fmt: skip


def as_csv(name: str, analysis: Analysis, theirs: Sequence[PaperCell]) -> str:
    """Return every cell of a run with the paper's number beside it, as a CSV file."""
    paper = {(c.heads, c.length): c for c in theirs}
    text = io.StringIO()
    writer = csv.DictWriter(text, CSV, lineterminator="\n")
    writer.writeheader()
    for cell in analysis.cells:
        match = paper.get((cell.heads or 0, cell.length or 0))
        row: dict[str, Any] = {key: getattr(cell, key) for key in CSV if hasattr(cell, key)}
        row |= {"name": name, "paper_cell": match.cell if match else "", "paper": match.value if match else ""}
        row["paper_deviation"] = match.deviation if match else ""
        writer.writerow(plain_data({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()}))
    return text.getvalue()


def _theirs(cell: PaperCell | None) -> str:
    if cell is None:
        return NONE
    texts = [f"{cell.value:.3g}", *([] if cell.deviation is None else [f"{cell.deviation:.2g}"])]
    return " ± ".join(texts).replace("e-0", "e-")


def _error(error: float | None) -> str:
    return NONE if error is None else error_text(error)


def _factor(factor: float | None) -> str:
    return NONE if factor is None else f"× {times_text(factor)}"
