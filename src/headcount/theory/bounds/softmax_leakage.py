"""The leakage of a gated head, that is how far its softmax average is from a minimum, bounded for every β.

A head has the score −Ψ(t) + g(t), where g = 0 on S and g = −gate off S. It returns z~ = Σ_t a(t)·Ψ(t) with the weights
a = softmax of β·score. Let m = min over S of Ψ, s = |S|, o = T − s, and let Ψ lie in [lo, hi] on all tokens, R = hi −
lo.

On S alone, the largest z~ − m arises from one value m and s − 1 values m + x (moving two others towards each other
changes the quotient monotonically). Then

    z~ − m = (s − 1)·x·exp(−βx)/(1 + (s − 1)·exp(−βx)),      largest where  βx − 1 = (s − 1)·exp(−βx):
    max (z~ − m) = W((s − 1)/e)/β,                            W the Lambert function: it grows like log s.

Off S every weight is at most exp(−β·(gate − R)) times the weight of the minimum. So the tokens off S have a total
weight of p ≤ o·exp(−β·(gate − R)), and their values lie within R of m:

    −p·R ≤ z~ − m ≤ W((s − 1)/e)/β + p·R.

The term W/β is an error to one side only, so z~ − W/(2β) is within W/(2β) + p·R of m. This is the error if the reader
of the head subtracts the `shift` W/(2β); the same error is then reached with about half the β.

The paper's gate of 1 does not suffice: with R = 1 the exponent is 0, and p does not fall with β (docs/gate.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from headcount.core import BadInput
from headcount.tasks.expressions import ball

MIN_BETA = 1e-3
"""`beta_for` does not look for a smaller β."""


@dataclass(frozen=True)
class Leakage:
    """−below ≤ z~ − min Ψ ≤ above, and |z~ − shift − min Ψ| ≤ error; all but the shift rounded upward."""

    below: float
    above: float
    shift: float
    error: float


def leakage(beta: float, *, inside: int, outside: int, spread: float, gate: float) -> Leakage:
    """Return the leakage of a head: inside = |S|, outside = T − |S|, spread = R, and gate > 0 if the gate is −gate."""
    _check(inside, outside, spread)
    if not 0 < beta < math.inf or not 0 <= gate < math.inf:
        raise BadInput(f"beta must be above 0 and the gate at least 0, not {beta} and {gate}")
    softmin = (ball(float(inside - 1)) / ball(1.0).exp()).lambertw() / ball(beta)
    escaped = ball(float(outside)) * (-(ball(beta) * (ball(gate) - ball(spread)))).exp()
    if outside and not escaped < 1:  # a total weight is at most 1
        escaped = ball(1.0)
    outside_error = escaped * ball(spread)
    shift = float(softmin / 2)
    return Leakage(
        _up(outside_error),
        _up(softmin + outside_error),
        shift,
        _up((outside_error + shift).max(softmin + outside_error - shift)),
    )


def beta_for(target: float, *, inside: int, outside: int, spread: float, gate: float) -> float:
    """Return a β, within 1 % of the least, at which the error is at most the target; reject a target out of reach."""
    _check(inside, outside, spread)
    if not target > 0:
        raise BadInput(f"the target leakage must be above 0, not {target}")

    def error(beta: float) -> float:
        return leakage(beta, inside=inside, outside=outside, spread=spread, gate=gate).error

    high = 1.0
    while error(high) > target:
        high *= 2
        if high > 1e15:
            raise BadInput(
                f"no β makes the leakage {target:g}: the gate of {gate:g} must be above the range {spread:g}"
            )
    low = high / 2
    while error(low) <= target:
        high, low = low, low / 2
        if low < MIN_BETA:  # there is no leakage: S has one token, and there are none outside
            return high
    while high > 1.01 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if error(middle) <= target else (middle, high)
    return high


def _check(inside: int, outside: int, spread: float) -> None:
    if inside < 1 or outside < 0:
        raise BadInput(f"|S| must be at least 1 and T − |S| at least 0, not {inside} and {outside}")
    if not 0 <= spread < math.inf:
        raise BadInput(f"the range of Ψ must be a finite number of at least 0, not {spread}")


def _up(value: object) -> float:
    """Return a double at or above everything in a ball."""
    end = value.upper()  # type: ignore[attr-defined]
    near = float(end)
    while ball(near) < end:
        near = math.nextafter(near, math.inf)
    return near
