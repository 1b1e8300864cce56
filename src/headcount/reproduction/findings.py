"""What a run on real data confirms of the paper's claims and what it does not: verdicts and numbers, from the cells.

`words.py` states them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from headcount.analysis import Analysis, Dimension, Part
from headcount.reproduction import numbers
from headcount.reproduction.cells import PARTS, Cells, ComparedCell
from headcount.reproduction.items import DATA
from headcount.reproduction.law import FittedLaw, laws_of, reversal_scores

Verdict = Literal["confirmed", "confirmed in part", "not confirmed", "not decided"]
MIN_STANDARD_ERRORS = 2.0
"""Accuracies that differ by fewer standard errors than this count as alike."""
SAME_ORDER = 0.9
"""From this rank correlation on, the cells are in the paper's order."""
OTHER_ORDER = 0.5
"""Below this rank correlation they are not."""
MIN_ORDERED_CELLS = 6
"""The order of fewer cells than this says nothing."""
MAX_CHANCE = 0.05
"""The p value up to which a reversal score is beyond chance."""


@dataclass(frozen=True)
class Finding:
    """What a run says about one claim of the paper; each kind holds the numbers of its claim."""

    verdict: Verdict


@dataclass(frozen=True)
class Rise(Finding):
    """Training accuracy rises with the number of heads."""

    lengths: int
    """How many lengths have two head counts with a result."""
    best_from: dict[int, int]
    """By length, where it rises: the smallest head count that is as good as the best."""
    falls: list[tuple[int, int, int]]
    """(heads, next heads, length) wherever it falls."""
    alike: list[int]
    """The lengths at which the most heads are no better and no worse than the fewest."""
    lower: list[int]
    """The lengths at which they are worse."""


@dataclass(frozen=True)
class Peak(Finding):
    """Validation accuracy is best at a head count below the largest."""

    best: dict[int, int]
    """Our best head count, by length."""
    theirs: dict[int, int]
    """The paper's, among our head counts."""
    lower: int
    """At how many lengths the most heads are worse than the best, beyond the noise."""


@dataclass(frozen=True)
class Harder(Finding):
    """Longer sequences are harder."""

    part: Part
    changes: list[int]
    """For every pair of neighbouring lengths: −1 where the longer one has the lower accuracy, 1 the higher, else 0."""
    theirs: list[bool]
    """Whether it has the lower accuracy in the paper, for the pairs that have its numbers."""


@dataclass(frozen=True)
class Order(Finding):
    """The cells are in the paper's order."""

    part: Part
    cells: int
    """How many cells have a number of the paper beside them."""
    correlation: float | None = None
    """Spearman's rank correlation; None if there are too few cells, or all are equal."""
    points: float = 0.0
    """The median of ours minus the paper's, in percentage points."""


@dataclass(frozen=True)
class Transition(Finding):
    """On training data the transition is at the paper's head count."""

    theirs: int
    ours: Dimension


@dataclass(frozen=True)
class LawFinding(Finding):
    """Training errors follow the paper's law with its δ and α."""

    stated: dict[str, float]
    ours: list[FittedLaw]
    intervals: bool = False
    """Whether there are enough seeds for intervals."""


@dataclass(frozen=True)
class ReversalFinding(Finding):
    """The reversal score of the training error is positive from the paper's head count on, and only there."""

    start: int
    decidable: bool
    """Whether there are scores below that head count and from it on."""
    positive: list[int]
    """The head counts with a positive score."""
    beyond_chance: list[int]
    """Those of them that the permutation test finds beyond chance."""


def findings(cells: Cells, spec: str, training: Analysis | None = None) -> list[Finding]:
    """Return all that the cells decide or leave open; `training` adds the estimate on training errors."""
    found: list[Finding] = [
        rise(cells),
        peak(cells),
        *(harder(cells, part) for part in PARTS),
        *(order(cells, part) for part in PARTS),
    ]
    if training is not None:
        found.append(transition(training, spec))
    found.append(law(cells) if spec == "marco" else reversal(cells, spec, training))
    return found


def _line(cells: Cells, part: Part, length: int) -> list[ComparedCell]:
    """Return the cells of one length that have a result, by head count."""
    return [c for c in cells.at_length(part, length) if c.mean is not None]


def _change(first: ComparedCell, second: ComparedCell) -> int:
    """Return 1 if the second accuracy is higher beyond the noise, −1 if it is lower, else 0."""
    gap = (second.mean or 0.0) - (first.mean or 0.0)
    return 0 if abs(gap) <= MIN_STANDARD_ERRORS * math.hypot(first.noise, second.noise) else int(math.copysign(1, gap))


def rise(cells: Cells) -> Rise:
    """Return whether training accuracy rises with heads, and up to which head count."""
    best_from: dict[int, int] = {}
    falls: list[tuple[int, int, int]] = []
    overall: dict[int, int] = {}
    for length in cells.lengths:
        line = _line(cells, "train", length)
        if len(line) < 2:
            continue
        overall[length] = _change(line[0], line[-1])
        top = max(line, key=lambda c: c.mean or 0.0)
        if overall[length] > 0:  # the smallest head count that is as good as the best: from there on nothing rises
            best_from[length] = next(c for c in line if _change(c, top) == 0).heads
        falls += [(a.heads, b.heads, length) for a, b in pairwise(line) if _change(a, b) < 0]
    verdict: Verdict = "not decided" if not any(overall.values()) and not falls else "not confirmed"
    if best_from:
        verdict = "confirmed" if len(best_from) == len(overall) and not falls else "confirmed in part"
    alike, lower = ([length for length, change in overall.items() if change == sign] for sign in (0, -1))
    return Rise(verdict, len(overall), best_from, falls, alike, lower)


def peak(cells: Cells) -> Peak:
    """Return at which head count validation accuracy is best, and whether it is worse beyond."""
    best, theirs, changes, rising = dict[int, int](), dict[int, int](), list[int](), list[bool]()
    for length in cells.lengths:
        line = _line(cells, "validation", length)
        if len(line) < 2:
            continue
        top = max(line, key=lambda c: c.mean or 0.0)
        best[length] = top.heads
        changes.append(_change(top, line[-1]))
        rising.append(_change(line[0], line[-1]) > 0)
        paper = [c for c in line if c.theirs is not None]
        if paper:
            theirs[length] = max(paper, key=lambda c: c.theirs or 0.0).heads
    verdict: Verdict = "not confirmed" if any(rising) else "not decided"
    if min(changes, default=0) < 0:
        verdict = "confirmed" if max(changes) < 0 else "confirmed in part"
    return Peak(verdict, best, theirs, sum(change < 0 for change in changes))


def _pairs(cells: Cells, part: Part) -> Iterator[tuple[ComparedCell, ComparedCell]]:
    """Yield the pairs of neighbouring lengths at one head count that both have a result."""
    for heads in cells.heads:
        for a, b in pairwise(cells.with_heads(part, heads)):
            if a.mean is not None and b.mean is not None:
                yield a, b


def harder(cells: Cells, part: Part) -> Harder:
    """Return whether longer sequences are harder."""
    pairs = list(_pairs(cells, part))
    changes = [_change(a, b) for a, b in pairs]
    lower, higher = changes.count(-1), changes.count(1)
    verdict: Verdict = "not decided" if lower == higher == 0 else "not confirmed"
    if lower > higher:
        verdict = "confirmed" if higher == 0 and 2 * lower > len(pairs) else "confirmed in part"
    theirs = [b.theirs < a.theirs for a, b in pairs if a.theirs is not None and b.theirs is not None]
    return Harder(verdict, part, changes, theirs)


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Return Spearman's rank correlation, ties sharing their mean rank; None if either does not vary."""
    if len(x) < 3 or len(set(x)) < 2 or len(set(y)) < 2:
        return None
    ranks = [[float(np.less(v, w).sum() + (np.equal(v, w).sum() - 1) / 2) for w in v] for v in (x, y)]
    return statistics.correlation(*ranks)


def order(cells: Cells, part: Part) -> Order:
    """Return whether the cells are in the paper's order, and how far they are from its numbers."""
    both = [(c.theirs, c.mean) for c in cells.values() if c.part == part and None not in (c.theirs, c.mean)]
    theirs, ours = [a or 0.0 for a, _ in both], [b or 0.0 for _, b in both]
    found = rank_correlation(theirs, ours)
    if found is None or len(both) < MIN_ORDERED_CELLS:
        return Order("not decided", part, len(both))
    alike, other = found >= SAME_ORDER, found < OTHER_ORDER
    verdict: Verdict = "confirmed" if alike else "not confirmed" if other else "confirmed in part"
    points = 100 * statistics.median(b - a for a, b in zip(theirs, ours, strict=True))
    return Order(verdict, part, len(both), found, points)


def transition(training: Analysis, spec: str) -> Transition:
    """Return whether D is estimated, from training errors, at the head count of the paper's transition."""
    theirs, ours = numbers.transition(DATA[spec].name), training.dimensions[0]
    if ours.estimate is None:
        return Transition("not decided", theirs, ours)
    inside = (ours.low or 0) <= theirs and (ours.high is None or theirs <= ours.high)
    same = ours.estimate == theirs
    return Transition("confirmed" if same else "confirmed in part" if inside else "not confirmed", theirs, ours)


def law(cells: Cells) -> LawFinding:
    """Return whether the law fitted to our training errors has the paper's δ and α."""
    stated, ours = numbers.fitted_law(), [one for one in laws_of(cells) if one.ours]
    if not ours:
        return LawFinding("not decided", stated, ours)
    like_the_papers = next((one for one in ours if one.without), ours[0])
    if not like_the_papers.intervals:
        return LawFinding("not decided", stated, ours)
    ends = like_the_papers.intervals
    holds = [ends[name][0] <= stated[name] <= ends[name][1] for name in ("delta", "alpha")]
    verdict: Verdict = "confirmed" if all(holds) else "confirmed in part" if any(holds) else "not confirmed"
    return LawFinding(verdict, stated, ours, intervals=True)


def reversal(cells: Cells, spec: str, training: Analysis | None) -> ReversalFinding:
    """Return whether the reversal score of the training errors turns positive at the paper's head count.

    Noise alone makes a score positive if errors do not depend on T, so a score counts only if the permutation test of
    the analysis finds it beyond chance.
    """
    start = numbers.transition(DATA[spec].name)
    scores = reversal_scores(cells, "train")
    below, above = ([h for h in scores if (h >= start) is side] for side in (False, True))
    if not below or not above:
        return ReversalFinding("not decided", start, decidable=False, positive=[], beyond_chance=[])
    positive = [h for h, one in scores.items() if one.score > 0]
    p = {r.heads: r.p for r in training.reversals} if training is not None else {}
    sure = [h for h in positive if p.get(h, 1.0) <= MAX_CHANCE]
    agrees = set(positive) == set(above) == set(sure)
    verdict: Verdict = "confirmed" if agrees else "not decided" if set(sure) <= set(above) else "not confirmed"
    return ReversalFinding(verdict, start, decidable=True, positive=positive, beyond_chance=sure)
