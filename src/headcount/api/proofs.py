"""`hc.certify` and `hc.density`: proved bounds of a model's error, and of a function rebuilt from minima."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from headcount.core import BadInput, Progress
from headcount.core.text import duration, round_up
from headcount.models import SavedModel, load_model
from headcount.tasks import Box
from headcount.theory.certify import Certificate
from headcount.theory.certify import certify as prove
from headcount.theory.density import Density, measure


def certify(
    model: SavedModel | str | Path,
    box: Box | None = None,
    *,
    budget: float | str = "60s",
    goal: float = 1.1,
    seed: int = 0,
    quiet: bool = True,
) -> Certificate:
    """Prove an upper bound of a model's worst error on a box of tokens, and search for the worst error.

    model: a saved model or its folder. box: the two corners of the tokens' box (default: the model's, or its task's).
    budget: seconds, or a text such as "90s" or "9m"; what is proved by then holds. goal: stop when the bound is this
    multiple of the worst error found, at least 1. seed: draws the starts of the search. quiet: hide the progress.
    """
    seconds = duration(budget, "budget")
    if not 1.0 <= goal < math.inf:
        raise BadInput(f"goal must be a finite number of at least 1, not {goal}")
    if seed < 0:
        raise BadInput(f"seed must be 0 or more, not {seed}")
    saved = model if isinstance(model, SavedModel) else load_model(model)
    with Progress("certifying", seconds, every=5.0, closes=False, quiet=quiet) as progress:

        def on_step(bound: float, worst: float, left: int, spent: float) -> None:
            gap = bound / worst if worst > 0 else math.inf
            note = f"proved ≤ {round_up(bound, 3)}, found {worst:.3g}, gap {gap:.2f}, {left} boxes left, {spent:.0f} s"
            progress.advance(min(spent, seconds) - progress.done, note=note)

        return prove(saved, box=box, seconds=seconds, goal=goal, seed=seed, on_step=on_step)


def density(
    function: str | Callable[..., Any] = "max-minus-min",
    *,
    length: int = 8,
    dim: int = 1,
    q: Sequence[float] = (10, 100, 1000, 10000),
    samples: int = 2000,
    seed: int = 0,
    lipschitz: float | None = None,
) -> Density:
    """Rebuild a continuous function of a sequence from D minima (Theorem 1), and measure the error.

    function: max-minus-min, mean, median or wave, or one of your own: X[count, length, dim] → [count]. length: tokens
    in a sequence: 4, 8 or 12. dim: numbers in a token. q: values of the selector's sharpness. samples: random
    sequences, and as many hard ones. seed: draws them. lipschitz: the Lipschitz constant of your own function in the
    max norm, with which its error is bounded too.
    """
    return measure(function, length=length, dim=dim, q=q, samples=samples, seed=seed, lipschitz=lipschitz)
