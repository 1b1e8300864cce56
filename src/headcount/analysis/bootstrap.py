"""The bootstrap over seeds and targets, and what all statistics of a run share with it.

How it draws. (1) The targets of a setting are drawn again with replacement, once for the whole setting: a target is
one object, and keeps its place at every length, hidden size and head count. (2) Inside every cell the seeds of a drawn
target are drawn again, independently; a target drawn twice gets two independent draws. (3) Only then the best of the
drawn seeds is taken, so an error that one lucky seed reached is missing from some draws; of error rates the mean over
the drawn seeds. A diverged trial is drawn like any other, but has no error.

Row 0 of every array of draws is the data itself. A statistic is computed on all rows at once; its value is that of row
0, its interval holds the middle 90 % of the other rows, widened to hold row 0: the best of fewer different seeds is
never better than the best of all, so the draws lean to larger errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headcount.analysis.blocks import Block, Floats
from headcount.core import generator

OUTSIDE = 0.05
"""The share of draws below an interval, and above it."""
TIE = 1e-12
"""Shares of draws closer than this are equal."""


@dataclass(frozen=True)
class Drawn:
    """A block with its draws."""

    block: Block
    level: Floats
    """[draw, place of a target, head count]: log10 error of the best seed, or of the mean over seeds where errors are
    error rates; not a number where there is none."""

    @cached_property
    def known(self) -> NDArray[np.bool_]:
        """[head count]: whether any trial has an error."""
        return np.isfinite(self.level[0]).any(0)


def draw_setting(found: Sequence[Block], resamples: int, seed: int) -> list[Drawn]:
    """Draw the targets and seeds of one setting again."""
    first = found[0]
    rng = generator(seed, f"analysis bootstrap {first.setting}")
    K = len(first.targets)
    targets = np.concatenate([np.arange(K)[None], rng.integers(0, K, (resamples, K))])
    return [Drawn(block, _level(block, targets, rng)) for block in found]


def _level(block: Block, targets: NDArray[np.int64], rng: np.random.Generator) -> Floats:
    """Draw the seeds of the drawn targets' cells again, keep the best or the mean; row 0 keeps the seeds as they are.

    A stuck seed says nothing about the number of heads where an NMSE can be zero; shares of wrong answers have a noise
    of their own, and the best of several is the luckiest.
    """
    seeds = block.errors.shape[2]
    counts = block.counts[targets][..., None]
    chosen = (rng.random((*counts.shape[:3], seeds)) * counts).astype(np.int64)
    chosen[0] = np.arange(seeds)
    errors = np.take_along_axis(block.errors[targets], chosen, 3)
    there = np.where(np.arange(seeds) < counts, errors, np.inf)
    if block.rate:
        means = known_mean(10.0**there, 3)  # a diverged trial's is infinite, and not known
        return np.log10(means)
    best = there.min(3)
    return np.where(np.isfinite(best), best, np.nan)


def paired(drawn: Sequence[Drawn], column: int) -> Floats:
    """Return the levels [draw, block] of some blocks of a setting at one head count, see `balanced`."""
    return balanced(np.stack([d.level[:, :, column] for d in drawn], 2))


def balanced(values: Floats) -> Floats:
    """Return the levels [draw, point] of values[draw, target, point], each target compared with itself only.

    Where every target has every point, these are the means over targets. Where some are missing, a mean would rise
    wherever an easy target is missing; so every target has a level of its own and every point too, fitted together by
    least squares, and a point's level is for targets of the average level. A point that no chain of targets joins to
    most of the others cannot be compared with them, and is not a number.
    """
    known = np.isfinite(values)
    found = known_mean(values, 1)
    absent = ~np.logical_or.reduce(known, 1)[:, None]
    uneven = (known.any(2) & ~(known | absent).all(2)).any(1)
    if uneven.any():
        found[uneven] = _additive(values[uneven], known[uneven])
    return found


def _additive(values: Floats, known: NDArray[np.bool_]) -> Floats:
    """Fit value = target's level + point's level to every draw, and return the points' levels."""
    K, J = values.shape[1:]
    w = known.astype(float)
    y = np.where(known, values, 0.0)
    joined = w.transpose(0, 2, 1) @ w > 0
    for _ in range(J.bit_length()):
        joined = (joined.astype(float) @ joined.astype(float)) > 0
    largest = joined.sum(2).argmax(1)
    kept = np.take_along_axis(joined, largest[:, None, None], 1)[:, 0]
    # the points' levels fitted out: what is left are equations in the targets' levels, singular by a constant
    w = w * kept[:, None]
    weight = np.maximum(w.sum(1), 1.0)
    left = np.eye(K) * w.sum(2)[:, None] - (w / weight[:, None]) @ w.transpose(0, 2, 1)
    right = (w * (y - ((w * y).sum(1) / weight)[:, None])).sum(2)
    target = np.einsum("rij,rj->ri", np.linalg.pinv(left, hermitian=True), right)
    there = w.any(2)
    target = target - ((target * there).sum(1) / np.maximum(there.sum(1), 1))[:, None]
    level = (w * (y - target[:, :, None])).sum(1) / weight
    return np.where(kept & w.any(1), level, np.nan)


def known_mean(values: Floats, axis: int | tuple[int, ...]) -> Floats:
    """Return the mean of the numbers that are known, not a number where none is."""
    known = np.isfinite(values)
    count = known.sum(axis)
    return np.where(count > 0, np.where(known, values, 0.0).sum(axis) / np.maximum(count, 1), np.nan)


def interval(draws: Floats) -> tuple[float, float]:
    """Return the 90 % interval of a statistic's draws, row 0 included whatever it is."""
    known = draws[1:][np.isfinite(draws[1:])]
    ends = np.quantile(known, [OUTSIDE, 1 - OUTSIDE]) if known.size else draws[[0, 0]]
    return float(min(ends[0], draws[0])), float(max(ends[1], draws[0]))


def line_slope(x: Floats, y: Floats) -> Floats:
    """Return the least-squares slope of each row of y[draw, point] against x[point]; unknown points are left out."""
    known = np.isfinite(y)
    count = np.maximum(known.sum(1), 1)
    xs = np.where(known, x, 0.0)
    centred = np.where(known, x - (xs.sum(1) / count)[:, None], 0.0)
    spread = (centred**2).sum(1)
    enough = (known.sum(1) >= 2) & (spread > 0)
    return np.where(enough, (centred * np.where(known, y, 0.0)).sum(1) / np.where(enough, spread, 1.0), np.nan)


def grouped(drawn: Sequence[Drawn], by: Literal["length", "hidden"]) -> dict[int, list[Drawn]]:
    """Sort the blocks of a setting by length or hidden size, each list in order of the other."""
    found: dict[int, list[Drawn]] = {}
    for one in sorted(drawn, key=lambda d: (getattr(d.block, by), d.block.length, d.block.hidden)):
        found.setdefault(getattr(one.block, by), []).append(one)
    return found


class Reading(NamedTuple):
    """What the draws say about one list of head counts."""

    answer: NDArray[np.int64]
    """[draw]: the place of the smallest head count that is enough, or how many there are where none is."""
    low: int
    """The place of a: all smaller head counts are shown not to be enough."""
    high: int | None
    """The place of b: so many heads, or some fewer, are shown to be enough; None where that is not shown."""
    shares: dict[int, float]
    """The share of the draws that give each head count; 0 stands for none."""


def read(enough: NDArray[np.bool_], heads: Sequence[int], outside: float) -> Reading:
    """Read the answer and its interval off which head counts are enough, [draw, head count]; row 0 is the data."""
    answer = np.where(enough.any(1), enough.argmax(1), len(heads))
    names = np.array([*heads, 0])[answer[1:]]
    shares = {int(h): float((names == h).mean()) for h in (*heads, 0) if (names == h).any()}
    return Reading(answer, *shown(enough[1:], outside), shares)


def shown(enough: NDArray[np.bool_], outside: float) -> tuple[int, int | None]:
    """Return the places of a and b, each with at most a share `outside` of the draws against it.

    `enough` is [draw, head count]. That all head counts before a are not enough is asked of all of them at once. That b
    heads or some fewer are enough is asked from the largest head count down, and b is the last for which it is shown: a
    fixed sequence of nested statements, which needs no correction for their number. b is None where it is not even
    shown of the largest. So in all but twice that share of the draws the answer lies from a to b.
    """
    reached = np.logical_or.accumulate(enough, 1)
    first = int(((~reached).mean(0) > 1.0 - outside + TIE).sum())
    against = 1.0 - reached.mean(0)
    good = np.flatnonzero(against <= outside + TIE)
    return min(first, enough.shape[1] - 1), int(good[0]) if good.size else None
