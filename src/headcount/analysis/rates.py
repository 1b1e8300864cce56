"""What the rule asks of error rates beside: nothing where few answers are wrong, no step where the fall is even."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headcount.analysis.blocks import Floats
from headcount.analysis.bootstrap import Drawn
from headcount.analysis.measures import FEW, HALF, guessing

LARGE = 0.06
"""The share of wrong answers above which nothing is claimed about heads; the rule's `USEFUL`."""
LEARNED = 0.95
"""An error rate above this share of a guess's is no learning."""
STEEPER = 1.5
"""A fall per head that is not so many times the one before is no step."""


def guess_level(drawn: Sequence[Drawn]) -> float:
    """The error rate above which nothing was learned: a little below that of a guess, or none where it is not known."""
    guesses = [g for d in drawn for _, run in d.block.panels if (g := guessing(run)) is not None]
    return LEARNED * float(np.exp(np.log(guesses).mean())) if guesses else np.inf


def few_wrong(drawn: Sequence[Drawn], levels: Floats) -> bool:
    """Whether half of the places or more have fewer than `FEW` wrong answers; `levels` are theirs at one head count."""
    floors = np.concatenate([np.full(d.level.shape[1], max(d.block.floors, default=0.0)) for d in drawn])
    known = np.isfinite(levels)
    return bool(2 * (10.0 ** levels[known] < FEW * floors[known] / HALF).sum() >= known.sum() > 0)


def even_fall(drawn: Sequence[Drawn], levels: Floats, heads: Sequence[int], index: int) -> tuple[float, float] | None:
    """Return the fall per head into a head count and the one before it, in decades; None where it is a step.

    The one before is counted from the first head count that has learned anything.
    """
    first = int(np.argmax(levels < np.log10(guess_level(drawn))))
    if index - 1 <= first:
        return None
    last = float(levels[index - 1] - levels[index]) / (heads[index] - heads[index - 1])
    before = float(levels[first] - levels[index - 1]) / (heads[index - 1] - heads[first])
    return None if last >= STEEPER * before else (last, before)
