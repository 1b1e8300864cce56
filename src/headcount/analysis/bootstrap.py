"""The bootstrap over seeds and targets, and the means, slopes and intervals of its draws.

How it draws. (1) The targets of a setting are drawn with replacement, once for the whole setting: a target is one
object, and keeps its index at every length, hidden size and head count. (2) Within every cell the seeds of a drawn
target are drawn again, independently; a target drawn twice gets two independent draws. (3) Only then is the best of the
drawn seeds taken (of error rates, their mean), so an error that one lucky seed reached is missing from some draws. A
diverged trial is drawn like any other, but has no error.

Row 0 of every array of draws is the data itself. A statistic is computed on all rows at once: its value is that of row
0, its interval holds the middle 90 % of the other rows. The best of a draw is never better than the best of all seeds,
so draws tend to larger errors, and the interval is widened to hold row 0.
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

TAIL = 0.05
"""The share of the draws below an interval, and the share above it."""
SHARE_TOLERANCE = 1e-12
"""Shares of draws that differ by less are equal."""


@dataclass(frozen=True)
class BlockDraws:
    """A block with its draws."""

    block: Block
    level: Floats
    """[draw, index of a target, head count]: log10 error of the best seed (of error rates, of the mean over seeds); NaN
    if there is none."""

    @cached_property
    def known(self) -> NDArray[np.bool_]:
        """[head count]: whether any trial has an error."""
        return np.isfinite(self.level[0]).any(0)


def draw_setting(found: Sequence[Block], resamples: int, seed: int) -> list[BlockDraws]:
    """Draw the targets and seeds of one setting again."""
    first = found[0]
    rng = generator(seed, f"analysis bootstrap {first.setting}")
    K = len(first.targets)
    targets = np.concatenate([np.arange(K)[None], rng.integers(0, K, (resamples, K))])
    return [BlockDraws(block, _level(block, targets, rng)) for block in found]


def _level(block: Block, targets: NDArray[np.int64], rng: np.random.Generator) -> Floats:
    """Return the level of every cell with its seeds drawn again: of the best, or the mean. Row 0 is not drawn.

    If an NMSE can be zero, a stuck seed says nothing about the number of heads, and the best counts. Error rates are
    noisy themselves, and the best of several is the luckiest: there the mean counts.
    """
    seeds = block.errors.shape[2]
    counts = block.counts[targets][..., None]
    chosen = (rng.random((*counts.shape[:3], seeds)) * counts).astype(np.int64)
    chosen[0] = np.arange(seeds)
    errors = np.take_along_axis(block.errors[targets], chosen, 3)
    there = np.where(np.arange(seeds) < counts, errors, np.inf)
    if block.rate:
        means = known_mean(10.0**there, 3)  # that of a diverged trial is infinite, and left out
        return np.log10(means)
    best = there.min(3)
    return np.where(np.isfinite(best), best, np.nan)


def paired(drawn: Sequence[BlockDraws], column: int) -> Floats:
    """Return the levels [draw, block] of some blocks of a setting at one head count, `balanced` over targets."""
    return balanced(np.stack([d.level[:, :, column] for d in drawn], 2))


def balanced(values: Floats) -> Floats:
    """Return the levels [draw, point] of values[draw, target, point], comparing each target only with itself.

    If every target has every point, these are the means over targets. Otherwise a mean would rise wherever an easy
    target is missing, so a level for each target and one for each point are fitted together by least squares; the level
    of a point is the one for an average target. A point that no chain of targets connects to most of the others cannot
    be compared with them and is NaN.
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
    # with the points' levels eliminated, the equations in the targets' levels are singular up to a constant
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
    """Return the mean of the finite numbers, NaN where there are none."""
    known = np.isfinite(values)
    count = known.sum(axis)
    return np.where(count > 0, np.where(known, values, 0.0).sum(axis) / np.maximum(count, 1), np.nan)


def interval(draws: Floats) -> tuple[float, float]:
    """Return the 90 % interval of a statistic's draws, widened to hold row 0."""
    known = draws[1:][np.isfinite(draws[1:])]
    ends = np.quantile(known, [TAIL, 1 - TAIL]) if known.size else draws[[0, 0]]
    return float(min(ends[0], draws[0])), float(max(ends[1], draws[0]))


def line_slope(x: Floats, y: Floats) -> Floats:
    """Return the least-squares slope of each row of y[draw, point] against x[point], ignoring missing points."""
    known = np.isfinite(y)
    count = np.maximum(known.sum(1), 1)
    xs = np.where(known, x, 0.0)
    centred = np.where(known, x - (xs.sum(1) / count)[:, None], 0.0)
    spread = (centred**2).sum(1)
    enough = (known.sum(1) >= 2) & (spread > 0)
    return np.where(enough, (centred * np.where(known, y, 0.0)).sum(1) / np.where(enough, spread, 1.0), np.nan)


def grouped(drawn: Sequence[BlockDraws], by: Literal["length", "hidden"]) -> dict[int, list[BlockDraws]]:
    """Return the blocks of a setting by length or by hidden size, each list in order of the other."""
    found: dict[int, list[BlockDraws]] = {}
    for one in sorted(drawn, key=lambda d: (getattr(d.block, by), d.block.length, d.block.hidden)):
        found.setdefault(getattr(one.block, by), []).append(one)
    return found


class Reading(NamedTuple):
    """The answer that the draws give for a list of head counts."""

    answer: NDArray[np.int64]
    """[draw]: the index of the smallest head count that is enough, or the number of head counts if none is."""
    low: int
    """The index of a: all smaller head counts are shown not to be enough."""
    high: int | None
    """The index of b: that many heads, or some fewer, are shown to be enough; None if that is not shown."""
    shares: dict[int, float]
    """The share of the draws that give each head count; 0 stands for none."""


def read_draws(enough: NDArray[np.bool_], heads: Sequence[int], outside: float) -> Reading:
    """Return the answer and its interval from `enough` [draw, head count]; row 0 is the data."""
    answer = np.where(enough.any(1), enough.argmax(1), len(heads))
    names = np.array([*heads, 0])[answer[1:]]
    shares = {int(h): float((names == h).mean()) for h in (*heads, 0) if (names == h).any()}
    return Reading(answer, *interval_ends(enough[1:], outside), shares)


def interval_ends(enough: NDArray[np.bool_], outside: float) -> tuple[int, int | None]:
    """Return the indices of a and b; at most a share `outside` of the draws contradicts each of them.

    `enough` is [draw, head count]. That no head count before a is enough is tested for all of them at once. That b
    heads or some fewer are enough is tested from the largest head count down, and b is the last for which it is shown:
    a fixed sequence of nested statements, which needs no correction for their number. b is None if it is not even shown
    for the largest. So the answer lies from a to b in all but twice that share of the draws.
    """
    reached = np.logical_or.accumulate(enough, 1)
    first = int(((~reached).mean(0) > 1.0 - outside + SHARE_TOLERANCE).sum())
    against = 1.0 - reached.mean(0)
    good = np.flatnonzero(against <= outside + SHARE_TOLERANCE)
    return min(first, enough.shape[1] - 1), int(good[0]) if good.size else None
