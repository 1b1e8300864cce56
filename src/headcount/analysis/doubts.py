"""What an estimate of D may not claim: a fall that is not clear, too few trials, head counts without a result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from headcount.analysis.blocks import Floats, planned
from headcount.analysis.bootstrap import OUTSIDE, Drawn
from headcount.core import generator

TRIED = 3
"""Trials below which the head count before the answer is not ruled out."""
SURELY = 2.5
"""Standard deviations that a difference must have to be shown."""
MAX_TIMES = 20.0
"""Beyond so many times the sequences at hand, an extrapolated number of them says nothing."""
FEWEST = 2
"""The finished trials that a decisive head count needs: one trial drawn again is always itself."""
LEVEL_DECADES = 0.3
"""Errors are level while none is smaller than that of fewer heads by more decades than this: by more than 2 times."""


def single(drawn: Sequence[Drawn]) -> bool:
    """Whether there is one target, and one seed at most in every cell."""
    return len(drawn[0].block.targets) == 1 and max(int(d.block.counts.max()) for d in drawn) <= 1


def redrawn(drawn: Sequence[Drawn], units: Floats, seed: int) -> Floats:
    """Draw the places again where that is the only luck there is: one target, and one seed in every cell.

    `units` are levels [draw, place, head count]. With one place too nothing varies, and nothing is sure.
    """
    if units.shape[1] < 2 or not single(drawn):
        return units
    chosen = generator(seed, "places of the rule").integers(0, units.shape[1], units.shape[:2])
    chosen[0] = np.arange(units.shape[1])
    return np.take_along_axis(units, chosen[:, :, None], 1)


def at_least(gap: Floats, allowed: Floats, solved: NDArray[np.bool_]) -> int:
    """Return the index of the smallest head count that may be D: all smaller ones are clearly worse than larger ones.

    `gap` is [draw, head count but the last], `allowed` what a head count that is enough may leave, likewise. `solved`
    tells for every draw whether any head count does well: while none does, more training may change everything.
    Clearly means in all but `OUTSIDE` of the draws, for all smaller head counts at once.
    """
    worse = (np.logical_and.accumulate(gap > allowed, 1) & solved[:, None]).mean(0) >= 1 - OUTSIDE
    return int(worse.sum())


def fall_shown(levels: Floats, least: float) -> tuple[Literal["falls", "level", "unclear"], float]:
    """Return whether the error falls with more heads, and the share of the draws that show what the data show.

    `levels` are [draw, head count], row 0 the data. It falls where the larger half of the head counts is better than
    the smaller half by more than `least` decades. It is level where no head count of the data is better than a smaller
    one, and none of a draw better than the smallest, by more than `LEVEL_DECADES`. Either must hold in all but
    `OUTSIDE` of the draws: that a fall is not shown does not make the errors level.
    """
    half = levels.shape[1] // 2
    falling = float((levels[:, :half].mean(1) - levels[:, half:].mean(1) > least).mean())
    if falling >= 1 - OUTSIDE:
        return "falls", falling
    if largest_fall(levels[0])[2] > LEVEL_DECADES:
        return "unclear", falling
    level = float((levels[:, 0] - levels[:, 1:].min(1) <= LEVEL_DECADES).mean())
    return ("level" if level >= 1 - OUTSIDE else "unclear"), level


def largest_fall(levels: Floats) -> tuple[int, int, float]:
    """Return between which head counts, by index, a smaller and a larger one, the level falls most, and how far."""
    falls = np.triu(levels[:, None] - levels[None, :], 1)
    before, after = np.unravel_index(int(falls.argmax()), falls.shape)
    return int(before), int(after), float(falls[before, after])


def too_few(drawn: Sequence[Drawn], heads: Sequence[int], index: int) -> bool:
    """Whether what is said of the head count at an index rests on one with hardly a trial."""
    decisive = (heads[index - 1], heads[index]) if index > 0 else (heads[0], heads[-1])
    return any(finished(drawn, h) < FEWEST for h in decisive)


def finished(drawn: Sequence[Drawn], heads: int) -> int:
    """Count the trials of a head count that have an error."""
    return sum(int(np.isfinite(d.block.errors[:, d.block.heads.index(heads)]).sum()) for d in drawn)


def lost(drawn: Sequence[Drawn], heads: Sequence[int]) -> dict[int, str]:
    """Return the planned head counts that have no result, each with why."""
    found: dict[int, str] = {}
    runs = [run for d in drawn for _, run in d.block.panels]
    states = {state for run in runs for state, number in run.left_out.items() if number}
    for h in drawn[0].block.heads:
        if h in heads:
            continue
        records = sum(t.heads == h for run in runs for t in run.trials)
        if records and records == sum(planned(run, h) for run in runs):
            found[h] = "diverged"
        else:
            found[h] = "failed" if states == {"failed"} else "pending"
    return found


def between(missing: dict[int, str], heads: Sequence[int], index: int) -> list[int]:
    """Return the planned head counts without a result that might be D in place of the one at an index."""
    below = heads[index - 1] if index > 0 else 0
    return [h for h in missing if below < h < heads[index]]


def lucky(drawn: Sequence[Drawn], heads: Sequence[int], index: int) -> int:
    """Return the index of the smallest head count whose failure bad luck with the seeds could still explain.

    A seed succeeds where its log error is nearer to the best of its place than to the best of fewer heads there.
    """
    if index == 0:
        return 0
    reached = tried = 0
    trials = np.zeros(len(heads), np.int64)
    for d in drawn:
        columns = [d.block.heads.index(h) for h in heads]
        errors, counts = d.block.errors[:, columns], d.block.counts[:, columns]
        middle = (errors[:, :index].min((1, 2)) + errors[:, index:].min((1, 2))) / 2
        reached += int((errors[:, index] < middle[:, None]).sum())
        tried += int(counts[:, index].sum())
        trials += counts.sum(0)
    chance, smallest = 1.0, index
    for i in reversed(range(index)):
        chance *= (1.0 - reached / max(tried, 1)) ** int(trials[i])
        if chance <= OUTSIDE:
            break
        smallest = i
    return smallest


def would_settle(errors: Floats, limits: Floats, place: int, sequences: int) -> int | None:
    """Extrapolate how many sequences would show that these heads are enough and one step fewer are not.

    The spread of a mean falls with the root of their number; what seeds add to it does not, so this is a guess.
    """
    asked = [limits - errors[:, place], *([errors[:, place - 1] - limits] if place else [])]
    needed = [(SURELY * float(some[1:].std()) / max(float(some[0]), 1e-12)) ** 2 for some in asked]
    most = max(needed) * sequences
    return int(float(f"{most:.1e}")) if sequences < most <= MAX_TIMES * sequences else None


def widened(counts: Sequence[int], place: int, low: int, high: int) -> tuple[int, int]:
    """Widen an interval over head counts whose trials are too few to rule them out."""
    if place > 0 and counts[place - 1] < TRIED:
        low = min(low, place - 1)
    while low > 0 and counts[low - 1] < 2:
        low -= 1
    while high + 1 < len(counts) and counts[high + 1] < 2:
        high += 1
    if high == len(counts) - 1 and counts[high] < 2:
        high += 1  # nothing larger confirms it
    return low, high
