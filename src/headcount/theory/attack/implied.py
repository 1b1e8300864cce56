"""What a pair of sequences implies for every feed-forward block F on top of the layer, as numbers with conditions.

F reads u1 for X1 and u2 for X2, Δ = u1 − u2, while the targets differ by the gap. A model within ε has an F that moves
by at least gap − 2ε along Δ, so with A = |Δ|₂:

    any F, A = 0           sup error ≥ gap/2
    Lipschitz constant L   sup error ≥ (gap − L·A)/2,   and within ε only with L ≥ (gap − 2ε)/A
    Lemma 4                two layers, weights ≤ 1: width ≥ (gap − 2ε)/(L_act·A·√E), and ≥ (gap − 2ε)/(L_act·|Δ|₁)
    weights free           width·max|W|·max|W'| ≥ (gap − 2ε)/(L_act·|Δ|₁),   and the path norm Σ_k |W'_k|·max|W_k| too

The last line is Lemma 4 without its bound on the weights: |F(u1) − F(u2)| ≤ Σ_k |W'_k|·L_act·|W_k·Δ|, where
|W_k·Δ| ≤ max|W_k|·|Δ|₁. All right-hand sides are computed a little low.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

L_ACT = {"gelu2": 1.129, "relu2": 1.0, "relu5": 1.0}
"""Lipschitz constants of the activations, rounded up; GELU's is 1.1289."""
LOW = 1.0 - 1e-12  # outweighs the rounding of a handful of operations


@dataclass(frozen=True)
class Implied:
    """Lower bounds for F at an error ε; None where no F of any size is within ε."""

    eps: float
    lipschitz: float | None
    width_two: float | None
    width_one: float | None
    norm: float | None

    def data(self) -> dict[str, Any]:
        """The numbers as JSON data."""
        return asdict(self)


def sup_error(gap: float, distance: float = 0.0, lipschitz: float = 0.0) -> float:
    """Return the least sup error of an F with this Lipschitz constant; any F where the distance is 0."""
    moved = 0.0 if distance == 0.0 else lipschitz * distance * (2.0 - LOW)
    return max(0.0, (gap - moved) / 2 * LOW)


def implied(gap: float, distance: float, distance_one: float, width: int, eps: float, feedforward: str) -> Implied:
    """Return what an F within ε of the target needs; `distance` is A, `distance_one` is |Δ|₁, `width` is E.

    Exact pairs have distance 0: below ε = gap/2 nothing helps, and all bounds are None.
    """
    moved = gap - 2.0 * eps
    if moved <= 0:
        return Implied(eps, 0.0, 0.0, 0.0, 0.0)
    if distance == 0.0 or distance_one == 0.0:
        return Implied(eps, None, None, None, None)
    slope = L_ACT[feedforward]
    one = LOW * moved / (slope * distance_one)
    return Implied(eps, LOW * moved / distance, LOW * moved / (slope * distance * math.sqrt(width)), one, one)
