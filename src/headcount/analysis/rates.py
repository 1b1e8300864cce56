"""What the rule also checks on error rates: too few wrong answers, and a fall that is too even for a step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headcount.analysis.blocks import Floats
from headcount.analysis.bootstrap import BlockDraws
from headcount.analysis.measures import MIN_WRONG_ANSWERS, WRONG_ANSWERS_FOR_ZERO, guess_error_rate

LARGE_ERROR_RATE = 0.06
"""The error rate above which nothing is claimed about heads; the rule's `USEFUL_ERROR`."""
MAX_SHARE_OF_GUESS = 0.95
"""Above this share of the error rate of guessing nothing was learned."""
MIN_STEEPENING = 1.5
"""A fall per head is a step only if it is at least this many times the one before."""


def guess_level(drawn: Sequence[BlockDraws]) -> float:
    """Return the error rate above which nothing was learned: just below that of guessing, infinite if unknown."""
    guesses = [g for d in drawn for _, run in d.block.panels if (g := guess_error_rate(run)) is not None]
    return MAX_SHARE_OF_GUESS * float(np.exp(np.log(guesses).mean())) if guesses else np.inf


def few_wrong_answers(drawn: Sequence[BlockDraws], levels: Floats) -> bool:
    """Whether at least half of the places have too few wrong answers; `levels` are theirs at one head count."""
    for_zero = np.concatenate([np.full(d.level.shape[1], max(d.block.errors_for_zero, default=0.0)) for d in drawn])
    known = np.isfinite(levels)
    few = 10.0 ** levels[known] < MIN_WRONG_ANSWERS * for_zero[known] / WRONG_ANSWERS_FOR_ZERO
    return bool(2 * few.sum() >= known.sum() > 0)


def even_fall(
    drawn: Sequence[BlockDraws], levels: Floats, heads: Sequence[int], index: int
) -> tuple[float, float] | None:
    """Return the fall per head into a head count and the one before it, in decades; None if the former is a step.

    The fall before starts at the first head count that has learned anything.
    """
    first = int(np.argmax(levels < np.log10(guess_level(drawn))))
    if index - 1 <= first:
        return None
    last = float(levels[index - 1] - levels[index]) / (heads[index] - heads[index - 1])
    before = float(levels[first] - levels[index - 1]) / (heads[index - 1] - heads[first])
    return None if last >= MIN_STEEPENING * before else (last, before)
