"""Interval arithmetic on arrays, rounded outward: every real result lies between `lo` and `hi`.

NumPy's + − × ÷ and sqrt round to nearest, so the real result lies between the two neighbours of the float
(`np.nextafter`), even if it is subnormal. exp, tanh and erf are not correctly rounded: their results are widened by a
relative `WIDENING_ULPS`·2⁻⁵², which a test checks in arbitrary precision, and by `MIN_WIDENING`, which covers results
that are subnormal or flushed to 0. Matrix products use middle and radius: in whatever order BLAS adds,
|fl(Σ_k a_k b_k) − Σ_k a_k b_k| ≤ γ·Σ_k |a_k||b_k| with γ = k·u/(1 − k·u), u = 2⁻⁵³ (Higham, section 3.1).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf as _erf  # pyright: ignore[reportAttributeAccessIssue]

Array = NDArray[np.float64]

WIDENING_ULPS = 16  # for exp, tanh and erf, in units of 2⁻⁵²: libraries promise 1 to 4
MIN_WIDENING = 2.0**-1000
_WIDENING = WIDENING_ULPS * 2.0**-52
_MAX_EXPONENT = 709.0  # exp is treated as +∞ above this and as 0 below its negative, before doubles overflow


def up(x: Array | float) -> Array:
    """Return the next float above."""
    return np.nextafter(x, np.inf)


def down(x: Array | float) -> Array:
    """Return the next float below."""
    return np.nextafter(x, -np.inf)


@dataclass(frozen=True, slots=True)
class Interval:
    """Arrays of intervals [lo, hi]."""

    lo: Array
    hi: Array

    def __add__(self, other: Interval | Array | float) -> Interval:
        other = interval(other)
        return Interval(down(self.lo + other.lo), up(self.hi + other.hi))

    def __neg__(self) -> Interval:
        return Interval(-self.hi, -self.lo)

    def __sub__(self, other: Interval | Array | float) -> Interval:
        return self + -interval(other)

    def __mul__(self, other: Interval | Array | float) -> Interval:
        other = interval(other)
        ends = [a * b for a in (self.lo, self.hi) for b in (other.lo, other.hi)]
        return Interval(down(np.minimum.reduce(ends)), up(np.maximum.reduce(ends)))

    __radd__, __rmul__ = __add__, __mul__

    def __getitem__(self, key: Any) -> Interval:
        return Interval(self.lo[key], self.hi[key])

    @property
    def mid(self) -> Array:
        """A float inside, about the middle."""
        return np.clip(0.5 * self.lo + 0.5 * self.hi, self.lo, self.hi)

    @property
    def rad(self) -> Array:
        """At least the distance from `mid` to either end."""
        return up(np.maximum(self.hi - self.mid, self.mid - self.lo))

    @property
    def size(self) -> Array:
        """The largest magnitude."""
        return np.maximum(np.abs(self.lo), np.abs(self.hi))

    @property
    def T(self) -> Interval:
        """The transpose."""
        return Interval(self.lo.T, self.hi.T)

    def square(self) -> Interval:
        """Return x², never negative."""
        a, b = self.lo * self.lo, self.hi * self.hi
        holds = (self.lo <= 0) & (self.hi >= 0)
        return Interval(np.where(holds, 0.0, np.maximum(down(np.minimum(a, b)), 0.0)), up(np.maximum(a, b)))

    def power(self, exponent: int) -> Interval:
        """Return x^k for an integer k ≥ 0; an even power is computed from x²."""
        if exponent == 0:
            return interval(np.ones_like(self.lo))
        if exponent % 2 == 0:
            return self.square().power(exponent // 2)
        return self if exponent == 1 else _by_ends(self, lambda e: _odd(e, exponent))

    def minimum(self, other: Interval) -> Interval:
        """Return the elementwise minimum."""
        return Interval(np.minimum(self.lo, other.lo), np.minimum(self.hi, other.hi))

    def hull(self, other: Interval) -> Interval:
        """Return the smallest interval that contains both."""
        return Interval(np.minimum(self.lo, other.lo), np.maximum(self.hi, other.hi))

    def exp(self) -> Interval:
        """Return e^x."""
        return Interval(exp_below(self.lo), exp_above(self.hi))

    def tanh(self) -> Interval:
        """Return the hyperbolic tangent, clipped to [−1, 1]."""
        return _by_ends(self, lambda e: _widened(np.tanh(e.lo), np.tanh(e.hi), 1.0))

    def erf(self) -> Interval:
        """Return the error function, clipped to [−1, 1]."""
        return _by_ends(self, lambda e: _widened(_erf(e.lo), _erf(e.hi), 1.0))

    def sqrt(self) -> Interval:
        """Return √x; an end below 0 counts as 0."""
        lo, hi = np.sqrt(np.maximum(self.lo, 0.0)), np.sqrt(np.maximum(self.hi, 0.0))
        return Interval(np.maximum(down(lo), 0.0), up(hi))

    def reciprocal(self) -> Interval:
        """Return 1/x for x > 0."""
        return Interval(down(1.0 / self.hi), up(1.0 / self.lo))


def interval(x: Interval | Array | float) -> Interval:
    """Return exact floats as intervals of width 0."""
    if isinstance(x, Interval):
        return x
    exact = np.asarray(x, dtype=np.float64)
    return Interval(exact, exact)


def exp_above(x: Array) -> Array:
    """Return an upper bound on e^x; +∞ for x above 709."""
    with np.errstate(over="ignore", under="ignore"):
        return np.where(
            x > _MAX_EXPONENT,
            np.inf,
            up(np.exp(np.clip(x, -_MAX_EXPONENT, _MAX_EXPONENT)) * (1 + _WIDENING)) + MIN_WIDENING,
        )


def exp_below(x: Array) -> Array:
    """Return a lower bound on e^x, at least 0; 0 for x below −600."""
    found = down(np.exp(np.clip(x, -600.0, _MAX_EXPONENT)) * (1 - _WIDENING))
    return np.where(x < -600.0, 0.0, found)


def matmul(a: Interval | Array, b: Interval | Array) -> Interval:
    """Return the product of two matrices of intervals (the last two axes), by middle and radius.

    (A ± r)(B ± s) lies within |A|·s + r·(|B| + s) of AB, and fl(AB) within γ·|A||B| of it. The radius is a sum of
    numbers ≥ 0, with fewer than 2¹² roundings on any path if k ≤ 2¹⁰, so the factor 1 + 2⁻⁴⁰ covers them.
    """
    x, y = interval(a), interval(b)
    count = x.lo.shape[-1]
    if count > 1024:
        half = count // 2
        return matmul(x[..., :half], y[..., :half, :]) + matmul(x[..., half:], y[..., half:, :])
    A, r, B, s = x.mid, x.rad, y.mid, y.rad
    gamma = (count + 2) * 2.0**-53 * (1 + 2.0**-40)
    middle = A @ B
    radius = (np.abs(A) @ s + r @ (np.abs(B) + s) + gamma * (np.abs(A) @ np.abs(B))) * (1 + 2.0**-40) + MIN_WIDENING
    return Interval(down(middle - radius), up(middle + radius))


def total(x: Interval, axis: int) -> Interval:
    """Return the sum along an axis."""
    parts = [Interval(np.take(x.lo, k, axis), np.take(x.hi, k, axis)) for k in range(x.lo.shape[axis])]
    found = parts[0]
    for part in parts[1:]:
        found = found + part
    return found


def _odd(e: Interval, exponent: int) -> Interval:
    """Return an odd power of the two ends, as repeated products of non-negative magnitudes."""
    low, high = (_magnitude(v, exponent) for v in (e.lo, e.hi))
    return Interval(np.where(e.lo < 0, -low.hi, low.lo), np.where(e.hi < 0, -high.lo, high.hi))


def _magnitude(v: Array, exponent: int) -> Interval:
    """Enclose |v|^k."""
    found = size = interval(np.abs(v))
    for _ in range(exponent - 1):
        found = Interval(np.maximum(down(found.lo * size.lo), 0.0), up(found.hi * size.hi))
    return found


def _by_ends(x: Interval, ends: Callable[[Interval], Interval]) -> Interval:
    """Apply an increasing function, given by its values at the ends."""
    return ends(x)


def _widened(lo: Array, hi: Array, limit: float) -> Interval:
    """Widen the results of a library at the two ends, and clip them to [−limit, limit], the range of the function."""
    low, high = lo - np.abs(lo) * _WIDENING - MIN_WIDENING, hi + np.abs(hi) * _WIDENING + MIN_WIDENING
    return Interval(np.maximum(down(low), -limit), np.minimum(up(high), limit))
