"""The adversary at several ε: measured distances beside those that counting guarantees, as figure data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headcount.core import BadInput
from headcount.core.text import exponent_text
from headcount.models import SavedModel
from headcount.models.transformer import Transformer
from headcount.tasks import GeneralizedRetrieval
from headcount.theory.adversary.algorithm import Attacked, Collision, attack, eps_for_points, make_plan
from headcount.theory.adversary.subset_sums import DEFAULT_LIST_SIZE

POINTS_PER_GRID = (2, 3, 4, 6, 8, 12, 16)
"""Points per grid where no ε is given: half of the range of ε in which distances exceed the rounding of float64."""
DISTANCE_FLOOR = 1e-15
"""Smaller distances are rounding errors of the reference model's own sums, and are left out of the fit."""


@dataclass(frozen=True)
class AdversaryRun:
    """The adversary's results at several ε, the largest ε first."""

    collisions: tuple[Collision, ...]

    @property
    def slope(self) -> float | None:
        """The fitted exponent of distance against ε, from the distances above rounding; None for fewer than three.

        The theorem says only that distances lie *below* C·ε^(k+1); how fast the distances that are found fall is
        another matter. A search over all pairs finds the nearest of q^(2·T0), and its distances fall like
        ε^(2·T0/((n+1)s)), twice as fast as the pigeonhole bound. Lists of a fixed length find much nearer pairs than
        guaranteed at large ε, so their distances fall slowly.
        """
        measurable = [(c.eps, c.distance) for c in self.collisions if c.distance > DISTANCE_FLOOR]
        if len(measurable) < 3:
            return None
        eps, distances = np.log(np.array(measurable).T)
        return float(np.polyfit(eps, distances, 1)[0])

    def line(self) -> list[float]:
        """Return C·ε^(k+1), with C chosen to meet the pigeonhole distance at the largest ε.

        Counting gives every exponent below T0/((n+1)s), so the line lies above the pigeonhole distances at smaller ε.
        The theorem's own constant is at least (3·T0/variation)^(k+1). With C = 1 the line for T = 32 would lie below
        1e-24 wherever the grids have two points, out of reach of float64.
        """
        first = self.collisions[0]
        k = first.plan.exponent.k
        return [first.pigeonhole_distance * (c.eps / first.eps) ** (k + 1) for c in self.collisions]

    @property
    def is_below_line(self) -> bool:
        """Whether every distance lies below C·ε^(k+1) or is a rounding error."""
        pairs = zip(self.collisions, self.line(), strict=True)
        return all(c.distance <= max(line, DISTANCE_FLOOR) for c, line in pairs)

    def figure(self) -> dict[str, Any]:
        """Return figure data: the measured distances, the pigeonhole distances, and the line C·ε^(k+1)."""
        c = self.collisions[0]
        k, T0 = c.plan.exponent.k, len(c.plan.free)
        title = f"Two sequences that attention confuses, targets at least 3ε apart: {T0} free positions"
        if c.plan.exponent.vacuous:
            title = f"{title}; vacuous here, k = {k:.2f}"
        slope = self.slope
        fitted = "all but rounding" if slope is None else f"fitted exponent {slope:.1f}"
        return {
            "title": title,
            "subtitle": f"Basin {c.plan.uncovered + 1} is picked by no head; k = {exponent_text(k)}; {fitted}",
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
                    "y": [c.pigeonhole_distance for c in self.collisions],
                },
                {
                    "name": f"C·ε^{exponent_text(k + 1)}, the exponent k + 1 of the theorem",
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
    list_size: int = DEFAULT_LIST_SIZE,
    tries: int = 1,
    seed: int = 0,
) -> AdversaryRun:
    """Run the adversary at every ε (default: those with 2 to 16 points per grid); all runs share one plan."""
    plan = make_plan(Attacked(model, task), task, seed)
    eps_values = [eps_for_points(plan, q) for q in POINTS_PER_GRID] if eps is None else list(eps)
    if not eps_values or not all(math.isfinite(e) and e > 0 for e in eps_values):
        raise BadInput("eps needs one or more finite numbers above 0")
    collisions = [
        attack(model, task, e, list_size=list_size, tries=tries, seed=seed, plan=plan) for e in sorted(eps_values)[::-1]
    ]
    return AdversaryRun(tuple(collisions))


def adversary_figure(
    model: SavedModel | Transformer,
    task: GeneralizedRetrieval,
    eps: Sequence[float] | None = None,
    *,
    list_size: int = DEFAULT_LIST_SIZE,
    tries: int = 1,
    seed: int = 0,
) -> dict[str, Any]:
    """Return the picture of `run_adversary` as the data that `render.save_errors` draws."""
    return run_adversary(model, task, eps, list_size=list_size, tries=tries, seed=seed).figure()
