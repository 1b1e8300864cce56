"""How far a softmax is from a minimum: the leakage of a gated head, as a bound that holds at every β.

A head with score −Ψ(t) + g(t), g = 0 on S and g = −gate off it, returns z~ = Σ_t a(t)·Ψ(t) with a = softmax of β·score.
Let m = min over S of Ψ, s = |S|, o = T − s, and let Ψ lie within [lo, hi], R = hi − lo, on all tokens.

On S alone the largest z~ − m comes from one value m and s − 1 values m + x (moving two others towards each other
changes the quotient monotonically), and then

    z~ − m = (s − 1)·x·exp(−βx)/(1 + (s − 1)·exp(−βx)),      largest where  βx − 1 = (s − 1)·exp(−βx):
    max (z~ − m) = W((s − 1)/e)/β,                            W the Lambert function: it grows like log s.

Off S every weight is at most exp(−β·(gate − R)) of that of the minimum, so together p ≤ o·exp(−β·(gate − R)), and p of
the value is replaced by values within R of m:

    −p·R ≤ z~ − m ≤ W((s − 1)/e)/β + p·R.

The first term errs to one side only, so z~ − W/(2β) is within W/(2β) + p·R of m: that is the error of a head whose
reader subtracts the `shift` W/(2β), and it takes about half the β.

The paper's gate of 1 leaves nothing: with R = 1 the exponent is 0 and p does not fall with β (docs/gate.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from headcount.core import BadInput
from headcount.tasks.expressions import ball

MIN_BETA = 1e-3


@dataclass(frozen=True)
class Leakage:
    """−below ≤ z~ − min Ψ ≤ above, and |z~ − shift − min Ψ| ≤ error; all but the shift rounded upward."""

    below: float
    above: float
    shift: float
    error: float


def leakage(beta: float, *, inside: int, outside: int, spread: float, gate: float) -> Leakage:
    """Return the leakage of a head: |S|, T − |S|, the range R of Ψ, and how far the gate lies below 0."""
    _check(inside, outside, spread)
    if not 0 < beta < math.inf or not 0 <= gate < math.inf:
        raise BadInput(f"beta must be above 0 and the gate at least 0, not {beta} and {gate}")
    softmin = (ball(float(inside - 1)) / ball(1.0).exp()).lambertw() / ball(beta)
    escaped = ball(float(outside)) * (-(ball(beta) * (ball(gate) - ball(spread)))).exp()
    if outside and not escaped < 1:  # more than everything cannot escape
        escaped = ball(1.0)
    lost = escaped * ball(spread)
    shift = float(softmin / 2)
    return Leakage(_up(lost), _up(softmin + lost), shift, _up((lost + shift).max(softmin + lost - shift)))


def beta_for(target: float, *, inside: int, outside: int, spread: float, gate: float) -> float:
    """Return a β, within 1 % of the least, at which the shifted minimum errs by at most the target; else refuse."""
    _check(inside, outside, spread)
    if not target > 0:
        raise BadInput(f"the leakage must be allowed to be above 0, not {target}")

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
        if low < MIN_BETA:  # nothing leaks: one token, and none outside
            return high
    while high > 1.01 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if error(middle) <= target else (middle, high)
    return high


def _check(inside: int, outside: int, spread: float) -> None:
    if inside < 1 or outside < 0:
        raise BadInput(f"S needs at least one position, and T − |S| at least 0; not {inside} and {outside}")
    if not 0 <= spread < math.inf:
        raise BadInput(f"the range of Ψ must be a number from 0 on, not {spread}")


def _up(value: object) -> float:
    """Return a double at or above everything in a ball."""
    end = value.upper()  # type: ignore[attr-defined]
    near = float(end)
    while ball(near) < end:
        near = math.nextafter(near, math.inf)
    return near
