"""The adversary at several ε: figure data, measured distances beside what the counting promises."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headcount.core import BadInput
from headcount.models import SavedModel
from headcount.models.transformer import Transformer
from headcount.tasks import GeneralizedRetrieval
from headcount.theory.adversary.algorithm import Attacked, Collision, attack, eps_of, make_plan
from headcount.theory.adversary.subset_sums import LIST

POINTS = (2, 3, 4, 6, 8, 12, 16)
"""Points a grid unless ε is stated: half of the range of ε over which float64 can tell distances from rounding."""
FLOOR = 1e-15
"""Distances of this size are rounding of the reference model's own sums, and say nothing of a slope."""


@dataclass(frozen=True)
class Run:
    """The adversary at several ε, the largest first."""

    collisions: tuple[Collision, ...]

    @property
    def slope(self) -> float | None:
        """The fitted exponent of the distance in ε, over distances above rounding; None for fewer than three.

        The theorem promises distances *below* C·ε^(k+1); how fast those that are found fall is another number. A
        search that reads all pairs finds the nearest of q^(2·T0) and falls like ε^(2·T0/((n+1)s)), twice as fast as
        the pigeonholes; lists of a fixed length find far nearer pairs than promised at large ε, and fall slowly.
        """
        kept = [(c.eps, c.distance) for c in self.collisions if c.distance > FLOOR]
        if len(kept) < 3:
            return None
        eps, distances = np.log(np.array(kept).T)
        return float(np.polyfit(eps, distances, 1)[0])

    def line(self) -> list[float]:
        """Return C·ε^(k+1), with the C at which it meets the counted distance of the largest ε.

        Counting gives every exponent below T0/((n+1)s), so the line lies above the counted distances of smaller ε. The
        constant is (3·T0/variation)^(k+1) and more: with C = 1 the line of T = 32 would lie below 1e-24 wherever the
        grids have two points, out of reach of float64.
        """
        first = self.collisions[0]
        k = first.plan.exponent.k
        return [first.counted * (c.eps / first.eps) ** (k + 1) for c in self.collisions]

    @property
    def below(self) -> bool:
        """Whether every distance lies below C·ε^(k+1), or is rounding."""
        pairs = zip(self.collisions, self.line(), strict=True)
        return all(c.distance <= max(promised, FLOOR) for c, promised in pairs)

    def figure(self) -> dict[str, Any]:
        """Return figure data: measured distance, the counted one, and the line C·ε^(k+1)."""
        c = self.collisions[0]
        k, T0 = c.plan.exponent.k, len(c.plan.free)
        title = f"Two sequences that attention confuses, targets at least 3ε apart: {T0} free positions"
        if c.plan.exponent.vacuous:
            title = f"{title}; vacuous here, k = {k:.2f}"
        slope = self.slope
        fitted = "all but rounding" if slope is None else f"fitted exponent {slope:.1f}"
        return {
            "title": title,
            "subtitle": f"Basin {c.plan.uncovered + 1} is picked by no head; k = {k:.2f}; {fitted}",
            "x_label": "ε",
            "y_label": "distance at F's input",
            "x": [c.eps for c in self.collisions],
            "series": [
                {
                    "name": "found, measured by the reference model",
                    "style": "dots",
                    "tone": "few",
                    "y": [c.distance for c in self.collisions],
                },
                {
                    "name": "promised by counting",
                    "style": "line",
                    "tone": "muted",
                    "y": [c.counted for c in self.collisions],
                },
                {
                    "name": f"C·ε^{k + 1:.2f}, the exponent k + 1 of the theorem",
                    "style": "dashes",
                    "tone": "enough",
                    "y": self.line(),
                },
            ],
        }


def run_adversary(
    model: SavedModel | Transformer,
    task: GeneralizedRetrieval,
    eps: Sequence[float] | None = None,
    *,
    most: int = LIST,
    tries: int = 1,
    seed: int = 0,
) -> Run:
    """Run the adversary at every ε, by default those at which a grid has 2 to 16 points; one plan serves all."""
    plan = make_plan(Attacked(model, task), task, seed)
    chosen = [eps_of(plan, q) for q in POINTS] if eps is None else list(eps)
    if not chosen or not all(math.isfinite(e) and e > 0 for e in chosen):
        raise BadInput("eps must be one or more numbers above 0")
    found = [attack(model, task, e, most=most, tries=tries, seed=seed, plan=plan) for e in sorted(chosen)[::-1]]
    return Run(tuple(found))


def adversary_figure(
    model: SavedModel | Transformer,
    task: GeneralizedRetrieval,
    eps: Sequence[float] | None = None,
    *,
    most: int = LIST,
    tries: int = 1,
    seed: int = 0,
) -> dict[str, Any]:
    """Return the picture of `run_adversary` as the data that `render.save_errors` draws."""
    return run_adversary(model, task, eps, most=most, tries=tries, seed=seed).figure()
