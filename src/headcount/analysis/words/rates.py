"""What is said of error rates alone: no claim while many answers are wrong, nor a step where the fall is even."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headcount.analysis.blocks import Floats
from headcount.analysis.bootstrap import Drawn
from headcount.analysis.measures import FEW, HALF, guessing
from headcount.analysis.record import Dimension
from headcount.analysis.words.numbers import error_text, heads_text

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


def turned(found: Dimension) -> str:
    """Say so where an error rate is smallest before the last head count: its fall has an end, but that is no answer."""
    heads, least = min(found.errors, key=lambda pair: pair[1])
    most = found.head_counts[-1]
    if heads == most or found.verdict == "no-fall":
        return ""
    why = "no step is sharp enough to say how many are needed"
    if least > LARGE:
        why = f"{_percent(least)} wrong answers are too many to say that it is the heads that limit it"
    elif (found.low or 0) > found.head_counts[0]:
        why = f"no step is sharp enough to say more than that at least {found.low} are needed"
    return (
        f"No transition was seen: the {found.words.noun} is smallest with {heads_text(heads)} "
        f"({error_text(least)}) and no smaller up to {most}, but {why}."
    )


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


def refused_text(found: Dimension, heads: int) -> str:
    """Say why the end of a fall is not called a transition."""
    why = f"where fewer than {FEW} answers are wrong, too few to tell a step from a fall that has nothing left to learn"
    if found.even is not None:
        rates = f"{10 ** found.even[0]:.2f} times a head, before it {10 ** found.even[1]:.2f} times"
        why = f"but the last step is not much steeper ({rates}): the fall is even, and no number of heads stands out"
    falls = f"the {found.words.noun} falls up to {heads_text(heads)} ({error_text(found.error(heads))})"
    return f"Unclear: {falls}, {why}. No transition is claimed."


def large_text(found: Dimension) -> list[str]:
    """Say so where every error rate is too large for any answer."""
    least = min(error for _, error in found.errors)
    if not found.rate or least <= LARGE:
        return []
    why = "since data, training or size may be what limits it"
    told = f"above {_percent(LARGE)} wrong answers no number of heads is claimed, {why}"
    return [f"The smallest {found.words.noun} is {error_text(least)}; {told}."]


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"
