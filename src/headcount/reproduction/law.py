"""The law of the error in heads and length on MS MARCO, and the reversal scores, the paper's beside ours."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headcount.analysis import FORMS, MIN_CELLS, Part, fit, interval, reversal_score
from headcount.core import Spec
from headcount.reproduction import numbers
from headcount.reproduction.cells import Cells, Comparison, Place
from headcount.reproduction.items import paper_tables

LEFT_OUT_BY_PAPER = (1, 12, 14, 16)
"""The head counts that the paper left out of its law."""
LAW_TABLE = paper_tables("marco")["train"]

MIN_SEEDS = 3
"""With fewer seeds in most cells, drawing them again gives no interval: one is always itself, two are a coin toss."""


class FittedLaw(Spec):
    """The law Err = c·T^b·exp(α·h/T^δ), fitted by least absolute error in log scale to mean errors."""

    ours: bool
    """Whether it was fitted to our mean errors; otherwise to those of the paper's table."""
    without: list[int]
    """The head counts that were left out."""
    coefficients: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    """90 % of the draws of seeds; empty with fewer than `MIN_SEEDS` seeds."""
    cells: int
    missed: float
    """The mean absolute error of log10."""


def fit_law(
    places: Sequence[Place], means: NDArray[np.float64], without: Sequence[int] = (), *, ours: bool = True
) -> FittedLaw | None:
    """Fit the law to mean errors [draw, place], without some head counts; return None if too few cells are left."""
    used = [i for i, (heads, _) in enumerate(places) if heads not in without]
    counts, lengths = {places[i][0] for i in used}, {places[i][1] for i in used}
    if len(used) < MIN_CELLS or len(counts) < 3 or len(lengths) < 2:
        return None
    h = np.array([float(places[i][0]) for i in used])
    t = np.log([float(places[i][1]) for i in used])
    logs = np.log(means[:, used])
    form = FORMS[0]
    found = fit(form, h, t, logs)
    delta = float(found["delta"][0])
    columns = form.columns(h, t, delta)
    fitted = found["c"][0] + sum(found[k][0] * column for k, column in zip(form.names, columns, strict=True))
    missed = float(np.abs(logs[0] - fitted).mean() / np.log(10.0))
    found["c"] = np.exp(found["c"])
    ends = {k: interval(v) for k, v in found.items()} if len(means) > 1 else {}
    return FittedLaw(
        ours=ours,
        without=list(without),
        coefficients={k: float(v[0]) for k, v in found.items()},
        intervals=ends,
        cells=len(used),
        missed=missed,
    )


def laws_of(cells: Cells) -> list[FittedLaw]:
    """Fit the law to our training errors and to the paper's, each with and without the head counts that it left out."""
    places, means, _ = cells.error_rates("train")
    seeds = [len(cell.results) for (part, _, _), cell in cells.items() if part == "train" and cell.results]
    if not seeds or statistics.median(seeds) < MIN_SEEDS:
        means = means[:1]
    paper = [c for c in numbers.cells(LAW_TABLE) if c.value < 1]
    theirs = np.array([[1 - c.value for c in paper]])
    where = [(c.heads, c.length) for c in paper]
    found = [
        fit_law(places, means, LEFT_OUT_BY_PAPER),
        fit_law(places, means),
        fit_law(where, theirs, LEFT_OUT_BY_PAPER, ours=False),
        fit_law(where, theirs, ours=False),
    ]
    return [law for law in found if law is not None]


class Score(NamedTuple):
    """A weighted reversal score R(h) of ours."""

    score: float
    low: float
    high: float
    """90 % of the draws of seeds, and of targets where there are several."""
    p: float | None = None
    """The chance of a score at least this large if T had no effect; None if that was not tested."""


class Reversals(NamedTuple):
    """The reversal scores of a part of the data, by head count."""

    part: Part
    theirs: dict[int, float]
    ours: dict[int, Score]


def reversals_of(found: Comparison) -> list[Reversals]:
    """Return the reversal scores of every part; for a task they are those of the analysis, with their test."""
    scores: list[Reversals] = []
    for part, analysis in found.analyses.items():
        if found.data is None:
            ours = {r.heads: Score(r.score, r.low, r.high, r.p) for r in analysis.reversals if r.heads is not None}
        else:
            ours = reversal_scores(found.cells, part)
        scores.append(Reversals(part, paper_scores(found, part), ours))
    return scores


def reversal_scores(cells: Cells, part: Part) -> dict[int, Score]:
    """Return R(h) of our mean error rates at every head count that has all lengths."""
    places, means, _ = cells.error_rates(part)
    lengths = cells.lengths
    found: dict[int, Score] = {}
    for heads in cells.heads:
        at = [places.index((heads, t)) for t in lengths if (heads, t) in places]
        if len(at) == len(lengths) > 1:
            scores = reversal_score(means[:, at])
            found[heads] = Score(float(scores[0]), *interval(scores))
    return found


def paper_scores(found: Comparison, part: Part) -> dict[int, float]:
    """Return R(h) of the paper's errors over our lengths if it has all of them: over others it is another score."""
    scores: dict[int, float] = {}
    for heads in found.cells.heads:
        line = [cell.theirs for cell in found.cells.with_heads(part, heads)]
        known = [v if found.data is None else 1.0 - v for v in line if v is not None]
        if len(known) == len(line) > 1:
            scores[heads] = float(reversal_score(np.array(known)))
    return scores
