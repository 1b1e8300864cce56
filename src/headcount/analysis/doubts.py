"""Why an estimate of D may be in doubt: an unclear fall, too few trials, head counts without a result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from headcount.analysis.blocks import Floats, planned
from headcount.analysis.bootstrap import TAIL, BlockDraws
from headcount.core import generator

MIN_TRIALS_BEFORE = 3
"""With fewer trials the head count before the answer is not ruled out."""
SURE_DEVIATIONS = 2.5
"""A difference is shown if it is at least this many standard deviations."""
MAX_EXTRAPOLATION = 20.0
"""An extrapolated number of sequences beyond this many times those at hand says nothing."""
MIN_TRIALS = 2
"""The finished trials that a decisive head count needs: a single trial is always drawn as itself."""
LEVEL_DECADES = 0.3
"""Errors are level if none is more than this many decades (2 times) smaller than that of fewer heads."""


def one_target_one_seed(drawn: Sequence[BlockDraws]) -> bool:
    """Whether there is one target, and at most one seed in every cell."""
    return len(drawn[0].block.targets) == 1 and max(int(d.block.counts.max()) for d in drawn) <= 1


def redraw_places(drawn: Sequence[BlockDraws], units: Floats, seed: int) -> Floats:
    """Return the levels [draw, place, head count] with the places drawn again if nothing else can be drawn.

    That is so with one target and one seed in every cell. With a single place too, they are returned as they are.
    """
    if units.shape[1] < 2 or not one_target_one_seed(drawn):
        return units
    chosen = generator(seed, "places of the rule").integers(0, units.shape[1], units.shape[:2])
    chosen[0] = np.arange(units.shape[1])
    return np.take_along_axis(units, chosen[:, :, None], 1)


def smallest_possible(gap: Floats, allowed: Floats, solved: NDArray[np.bool_]) -> int:
    """Return the index of the smallest head count that may be D: all smaller ones are clearly worse than larger ones.

    `gap` and `allowed` are [draw, head count but the last]: the gaps, and the largest that a head count that is enough
    may have. `solved` says for every draw whether any head count does well: while none does, more training may change
    everything. Clearly means in all but `TAIL` of the draws, for all smaller head counts at once.
    """
    worse = (np.logical_and.accumulate(gap > allowed, 1) & solved[:, None]).mean(0) >= 1 - TAIL
    return int(worse.sum())


def fall_shown(levels: Floats, least: float) -> tuple[Literal["falls", "level", "unclear"], float]:
    """Return whether the error falls with more heads, and the share of the draws that show what the data show.

    `levels` are [draw, head count], row 0 the data. The error falls if the larger half of the head counts is better
    than the smaller half by more than `least` decades. It is level if in the data no head count is more than
    `LEVEL_DECADES` better than a smaller one, and in a draw none is that much better than the smallest. Either must
    hold in all but `TAIL` of the draws: errors are not level merely because no fall is shown.
    """
    half = levels.shape[1] // 2
    falling = float((levels[:, :half].mean(1) - levels[:, half:].mean(1) > least).mean())
    if falling >= 1 - TAIL:
        return "falls", falling
    if largest_fall(levels[0])[2] > LEVEL_DECADES:
        return "unclear", falling
    level = float((levels[:, 0] - levels[:, 1:].min(1) <= LEVEL_DECADES).mean())
    return ("level" if level >= 1 - TAIL else "unclear"), level


def largest_fall(levels: Floats) -> tuple[int, int, float]:
    """Return the indices of the two head counts between which the level falls most, and how many decades it falls."""
    falls = np.triu(levels[:, None] - levels[None, :], 1)
    before, after = np.unravel_index(int(falls.argmax()), falls.shape)
    return int(before), int(after), float(falls[before, after])


def too_few_trials(drawn: Sequence[BlockDraws], heads: Sequence[int], index: int) -> bool:
    """Whether a head count that decides about the one at an index has fewer than `MIN_TRIALS` finished trials."""
    decisive = (heads[index - 1], heads[index]) if index > 0 else (heads[0], heads[-1])
    return any(count_finished(drawn, h) < MIN_TRIALS for h in decisive)


def count_finished(drawn: Sequence[BlockDraws], heads: int) -> int:
    """Count the trials of a head count that have an error."""
    return sum(int(np.isfinite(d.block.errors[:, d.block.heads.index(heads)]).sum()) for d in drawn)


def missing_heads(drawn: Sequence[BlockDraws], heads: Sequence[int]) -> dict[int, str]:
    """Return the planned head counts that have no result, each with the reason: diverged, failed or pending."""
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


def missing_instead_of(missing: dict[int, str], heads: Sequence[int], index: int) -> list[int]:
    """Return the planned head counts without a result that might be D instead of the one at an index."""
    below = heads[index - 1] if index > 0 else 0
    return [h for h in missing if below < h < heads[index]]


def smallest_not_ruled_out(drawn: Sequence[BlockDraws], heads: Sequence[int], index: int) -> int:
    """Return the index of the smallest head count whose failure bad luck with the seeds could still explain.

    A seed succeeds if its log error is closer to the best of its place than to the best of fewer heads there.
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
        if chance <= TAIL:
            break
        smallest = i
    return smallest


def sequences_to_settle(errors: Floats, limits: Floats, place: int, sequences: int) -> int | None:
    """Extrapolate how many sequences would show that a head count is enough and the one before it is not.

    The spread of a mean falls with the root of their number; the part due to seeds does not, so this is a guess.
    """
    differences = [limits - errors[:, place], *([errors[:, place - 1] - limits] if place else [])]
    needed = [(SURE_DEVIATIONS * float(some[1:].std()) / max(float(some[0]), 1e-12)) ** 2 for some in differences]
    total = max(needed) * sequences
    return int(float(f"{total:.1e}")) if sequences < total <= MAX_EXTRAPOLATION * sequences else None


def widen(counts: Sequence[int], place: int, low: int, high: int) -> tuple[int, int]:
    """Return an interval widened to the head counts that have too few trials to be ruled out."""
    if place > 0 and counts[place - 1] < MIN_TRIALS_BEFORE:
        low = min(low, place - 1)
    while low > 0 and counts[low - 1] < 2:
        low -= 1
    while high + 1 < len(counts) and counts[high + 1] < 2:
        high += 1
    if high == len(counts) - 1 and counts[high] < 2:
        high += 1  # nothing larger confirms it
    return low, high
