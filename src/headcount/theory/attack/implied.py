"""What a pair of sequences implies for every feed-forward block F on top of the layer: bounds and their conditions.

F reads u1 for X1 and u2 for X2; let Δ = u1 − u2 and A = |Δ|₂. The targets differ by the gap, so if the model is within
ε, then F changes by at least gap − 2ε between u1 and u2. Hence

    any F, A = 0           sup error ≥ gap/2
    Lipschitz constant L   sup error ≥ (gap − L·A)/2,   and within ε only with L ≥ (gap − 2ε)/A
    Lemma 4                two layers, weights ≤ 1: width ≥ (gap − 2ε)/(L_act·A·√E), and ≥ (gap − 2ε)/(L_act·|Δ|₁)
    weights free           width·max|W|·max|W'| ≥ (gap − 2ε)/(L_act·|Δ|₁),   and the path norm Σ_k |W'_k|·max|W_k| too

The last line is Lemma 4 without its bound on the weights: |F(u1) − F(u2)| ≤ Σ_k |W'_k|·L_act·|W_k·Δ|, where
|W_k·Δ| ≤ max|W_k|·|Δ|₁. All right-hand sides are rounded down.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

L_ACT = {"gelu2": 1.129, "relu2": 1.0, "relu5": 1.0}
"""Lipschitz constants of the activations, rounded up; GELU's is 1.1289."""
ROUND_DOWN = 1.0 - 1e-12  # a factor that outweighs the rounding of a few operations


@dataclass(frozen=True)
class Implied:
    """Lower bounds on an F within error ε; None where no F of any size is within ε."""

    eps: float
    lipschitz: float | None
    width_two: float | None
    width_one: float | None
    norm: float | None

    def data(self) -> dict[str, Any]:
        """Return the bounds as JSON data."""
        return asdict(self)


def sup_error(gap: float, distance: float = 0.0, lipschitz: float = 0.0) -> float:
    """Return a lower bound on the sup error of any F with this Lipschitz constant, or of any F if the distance is 0."""
    moved = 0.0 if distance == 0.0 else lipschitz * distance * (2.0 - ROUND_DOWN)
    return max(0.0, (gap - moved) / 2 * ROUND_DOWN)


def implied(gap: float, distance: float, distance_one: float, width: int, eps: float, feedforward: str) -> Implied:
    """Return what an F within ε of the target needs; `distance` is A, `distance_one` is |Δ|₁, `width` is E.

    Exact pairs have distance 0: then no F is within an ε below gap/2, and all bounds are None.
    """
    moved = gap - 2.0 * eps
    if moved <= 0:
        return Implied(eps, 0.0, 0.0, 0.0, 0.0)
    if distance == 0.0 or distance_one == 0.0:
        return Implied(eps, None, None, None, None)
    slope = L_ACT[feedforward]
    one = ROUND_DOWN * moved / (slope * distance_one)
    return Implied(
        eps, ROUND_DOWN * moved / distance, ROUND_DOWN * moved / (slope * distance * math.sqrt(width)), one, one
    )
