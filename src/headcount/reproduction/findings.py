"""What a run on real data confirms of the paper and what it does not, computed from the cells and said plainly."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal

import numpy as np
from pydantic import Field

from headcount.analysis import Analysis, Part, at_edge
from headcount.core import Spec
from headcount.reproduction import numbers
from headcount.reproduction.cells import PARTS, WORDS, Cells, ComparedCell
from headcount.reproduction.items import DATA
from headcount.reproduction.law import MIN_SEEDS, laws_of, reversal_scores, signed

Verdict = Literal["confirmed", "confirmed in part", "not confirmed", "not decided"]
BEYOND_NOISE = 2.0
"""Accuracies that differ by fewer standard errors than this count as alike."""
ALIKE = 0.9
"""From this rank correlation on the order of the cells is the paper's."""
UNLIKE = 0.5
FEWEST = 6
"""Fewer cells than this have no order to speak of."""


class Finding(Spec):
    """One claim of the paper, and what this run says about it."""

    claim: str
    verdict: Verdict
    text: str
    values: dict[str, float] = Field(default_factory=dict[str, float])
    """Numbers of the text that others may want to quote."""

    @property
    def sentence(self) -> str:
        """The verdict first."""
        return f"{self.verdict.capitalize()}: {self.claim}. {self.text}"


def findings(cells: Cells, spec: str, training: Analysis | None = None) -> list[Finding]:
    """Return all that the cells decide or leave open; `training` adds the estimate on training errors."""
    found = [
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
    """The cells of one length that have a result, by head count."""
    return [c for c in cells.at_length(part, length) if c.mean is not None]


def _change(first: ComparedCell, second: ComparedCell) -> int:
    """1 where the second accuracy is higher beyond the noise, −1 where it is lower, else 0."""
    gap = (second.mean or 0.0) - (first.mean or 0.0)
    return 0 if abs(gap) <= BEYOND_NOISE * math.hypot(first.noise, second.noise) else int(math.copysign(1, gap))


def rise(cells: Cells) -> Finding:
    """Does training accuracy rise with heads, and up to which head count?"""
    claim = "training accuracy rises with the number of heads"
    ends: dict[int, str] = {}
    fell: list[str] = []
    whole: dict[int, int] = {}
    for length in cells.lengths:
        line = _line(cells, "train", length)
        if len(line) < 2:
            continue
        whole[length] = _change(line[0], line[-1])
        top = max(line, key=lambda c: c.mean or 0.0)
        if whole[length] > 0:  # the smallest head count that is as good as the best: from there on nothing rises
            ends[length] = f"h = {next(c for c in line if _change(c, top) == 0).heads}"
        fell += [f"h = {a.heads} to {b.heads} at T = {length}" for a, b in pairwise(line) if _change(a, b) < 0]
    if not whole:
        return Finding(claim=claim, verdict="not decided", text="No length has two head counts with a result.")
    verdict: Verdict = "not decided" if not any(whole.values()) and not fell else "not confirmed"
    if ends:
        verdict = "confirmed" if len(ends) == len(whole) and not fell else "confirmed in part"
    told = [f"It rises up to {_by_length(ends)}; from there on it is as good as its best."] if ends else []
    told += [f"It falls from {', '.join(fell)}."] if fell else []
    for sign, said in ((0, "alike within the noise"), (-1, "lower")):
        some = [str(length) for length, change in whole.items() if change == sign]
        told += [f"With the most heads it is {said}, against the fewest, at T = {', '.join(some)}."] if some else []
    return Finding(claim=claim, verdict=verdict, text=" ".join(told))


def peak(cells: Cells) -> Finding:
    """At which head count is validation accuracy best, and is it worse beyond?"""
    claim = "validation accuracy is best at a head count below the largest"
    best, theirs, worse, rising = dict[int, str](), dict[int, str](), list[int](), list[bool]()
    for length in cells.lengths:
        line = _line(cells, "validation", length)
        if len(line) < 2:
            continue
        top = max(line, key=lambda c: c.mean or 0.0)
        best[length] = f"h = {top.heads}"
        worse.append(_change(top, line[-1]))
        rising.append(_change(line[0], line[-1]) > 0)
        paper = [c for c in line if c.theirs is not None]
        if paper:
            theirs[length] = f"h = {max(paper, key=lambda c: c.theirs or 0.0).heads}"
    if not best:
        return Finding(claim=claim, verdict="not decided", text="No length has two head counts with a result.")
    verdict: Verdict = "not confirmed" if any(rising) else "not decided"
    if min(worse) < 0:
        verdict = "confirmed" if max(worse) < 0 else "confirmed in part"
    told = f"Ours is best at {_by_length(best)}"
    told += f", the paper's among these head counts at {_by_length(theirs)}." if theirs else "."
    count = sum(w < 0 for w in worse)
    return Finding(
        claim=claim,
        verdict=verdict,
        text=f"{told} With the most heads it is lower than that, beyond the noise, at {count} of {len(worse)} lengths.",
    )


def _by_length(texts: dict[int, str]) -> str:
    """Name what holds at every length, once where it is the same."""
    if len(set(texts.values())) == 1:
        return f"{next(iter(texts.values()))} at {'every T' if len(texts) > 1 else f'T = {next(iter(texts))}'}"
    return ", ".join(f"{text} at T = {length}" for length, text in texts.items())


def _pairs(cells: Cells, part: Part) -> Iterator[tuple[ComparedCell, ComparedCell]]:
    """Neighbouring lengths at one head count, both with a result."""
    for heads in cells.heads:
        for a, b in pairwise(cells.with_heads(part, heads)):
            if a.mean is not None and b.mean is not None:
                yield a, b


def harder(cells: Cells, part: Part) -> Finding:
    """Are longer sequences harder?"""
    claim = f"longer sequences are harder ({WORDS[part]} accuracy)"
    pairs = list(_pairs(cells, part))
    if not pairs:
        return Finding(claim=claim, verdict="not decided", text="There is one length only.")
    changes = [_change(a, b) for a, b in pairs]
    lower, higher = changes.count(-1), changes.count(1)
    verdict: Verdict = "not decided" if lower == higher == 0 else "not confirmed"
    if lower > higher:
        verdict = "confirmed" if higher == 0 and 2 * lower > len(pairs) else "confirmed in part"
    theirs = [(a.theirs, b.theirs) for a, b in pairs if a.theirs is not None and b.theirs is not None]
    told = f"Of {len(pairs)} pairs of neighbouring lengths the longer one is lower in {lower}, higher in {higher}"
    told += f" and alike within the noise in {changes.count(0)}"
    if theirs:
        count = sum((b or 0.0) < (a or 0.0) for a, b in theirs)
        told += f"; in the paper it is lower in {count} of {len(theirs)}"
    return Finding(claim=claim, verdict=verdict, text=f"{told}.")


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Return Spearman's rank correlation, ties sharing their mean rank; None where either does not vary."""
    if len(x) < 3 or len(set(x)) < 2 or len(set(y)) < 2:
        return None
    ranks = [[float(np.less(v, w).sum() + (np.equal(v, w).sum() - 1) / 2) for w in v] for v in (x, y)]
    return statistics.correlation(*ranks)


def order(cells: Cells, part: Part) -> Finding:
    """Are the cells in the paper's order, and how far are they from its numbers?"""
    claim = f"the cells of {WORDS[part]} accuracy are in the paper's order"
    both = [(c.theirs, c.mean) for c in cells.values() if c.part == part and None not in (c.theirs, c.mean)]
    theirs, ours = [a or 0.0 for a, _ in both], [b or 0.0 for _, b in both]
    found = rank_correlation(theirs, ours)
    if found is None or len(both) < FEWEST:
        told = f"{len(both)} cells of ours have a number of the paper beside them."
        return Finding(claim=claim, verdict="not decided", text=told)
    verdict: Verdict = "confirmed" if found >= ALIKE else "not confirmed" if found < UNLIKE else "confirmed in part"
    gap = 100 * statistics.median(b - a for a, b in zip(theirs, ours, strict=True))
    away = f"{abs(gap):.1f} points {'above' if gap >= 0 else 'below'} the paper's"
    told = (
        f"Their rank correlation with the paper's is {found:.2f} over {len(both)} cells; in the middle ours are {away}."
    )
    values = {"rank_correlation": round(found, 4), "points": round(gap, 2)}
    return Finding(claim=claim, verdict=verdict, text=told, values=values)


def transition(training: Analysis, spec: str) -> Finding:
    """Is the estimate of D from training errors the head count where the paper sees its transition?"""
    theirs = numbers.transition(DATA[spec].name)
    claim = f"on training data the transition is at {theirs} heads"
    found = training.dimensions[0]
    if found.estimate is None:
        return Finding(claim=claim, verdict="not decided", text=found.sentence)
    inside = (found.low or 0) <= theirs and (found.high is None or theirs <= found.high)
    same = found.estimate == theirs
    verdict: Verdict = "confirmed" if same else "confirmed in part" if inside else "not confirmed"
    return Finding(claim=claim, verdict=verdict, text=found.sentence)


def law(cells: Cells) -> Finding:
    """Does the law fitted to our training errors have the paper's δ and α?"""
    stated = numbers.fitted_law()
    named = f"δ = {signed(stated['delta'])} and α = {signed(stated['alpha'])}"
    claim = f"training errors follow c·T^b·exp(α·h/T^δ) with {named}"
    ours = [one for one in laws_of(cells) if one.ours]
    if not ours:
        return Finding(claim=claim, verdict="not decided", text="There are too few cells to fit it.")
    told: list[str] = []
    for one in ours:
        ends = {k: signed(one.coefficients[k]) for k in stated}
        for k, (low, high) in one.intervals.items():
            ends[k] = f"{signed(one.coefficients[k])} ({signed(low)} to {signed(high)})"
        which = f"without h = {', '.join(map(str, one.without))}" if one.without else "with all h"
        missed = f"missing by a factor of {10**one.missed:.2f}"
        edge = ", the edge of the values tried" if at_edge(one.coefficients["delta"]) else ""
        told.append(f"{which} δ = {ends['delta']}{edge}, α = {ends['alpha']}, {missed}")
    alike = next((one for one in ours if one.without), ours[0])
    if not alike.intervals:
        few = f"With fewer than {MIN_SEEDS} seeds a cell there is no interval to hold the paper's."
        return Finding(claim=claim, verdict="not decided", text=f"Ours: {'; '.join(told)}. {few}")
    holds = [alike.intervals[k][0] <= stated[k] <= alike.intervals[k][1] for k in ("delta", "alpha")]
    verdict: Verdict = "confirmed" if all(holds) else "confirmed in part" if any(holds) else "not confirmed"
    return Finding(claim=claim, verdict=verdict, text=f"Ours: {'; '.join(told)} (90 % of the draws of seeds).")


def reversal(cells: Cells, spec: str, training: Analysis | None) -> Finding:
    """Does the reversal score of the training errors turn positive where the paper says so?

    Noise alone makes a score positive where errors do not depend on T, so a score counts only where the permutation
    test of the analysis finds it beyond chance.
    """
    start = numbers.transition(DATA[spec].name)
    claim = f"the reversal score of the training error is positive from {start} heads on, and only there"
    scores = reversal_scores(cells, "train")
    below, above = ([h for h in scores if (h >= start) is side] for side in (False, True))
    if not below or not above:
        return Finding(claim=claim, verdict="not decided", text="There are too few lengths or head counts to tell.")
    positive = [h for h, one in scores.items() if one.score > 0]
    p = {r.heads: r.p for r in training.reversals} if training is not None else {}
    sure = [h for h in positive if p.get(h, 1.0) <= 0.05]
    as_said = set(positive) == set(above) == set(sure)
    verdict: Verdict = "confirmed" if as_said else "not decided" if set(sure) <= set(above) else "not confirmed"
    told = f"It is positive at {_heads(positive)}, beyond chance (p ≤ 0.05) at {_heads(sure)}."
    return Finding(claim=claim, verdict=verdict, text=told)


def _heads(counts: Sequence[int]) -> str:
    return f"h = {', '.join(map(str, counts))}" if counts else "no head count"
