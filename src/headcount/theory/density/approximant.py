"""Theorem 1 made concrete: every continuous F on sequences is nearly a function of D minima, D = 2d·C(T, T/4).

The primitives are z = min over S of x(t)_j, and of 1 − x(t)_j, for all S of m = T/4 positions. All that follows is a
function of them alone. Fix a coordinate j and write x(t) for x(t)_j, v and w for its m-th largest and smallest value.

1. *Order statistics.* The least of m values is at most the m-th largest, and it is v for the m largest. A set that
   holds t has a minimum of at most min(x(t), v), attained: by the m largest if t is one of them, else by t and the
   m − 1 largest. So v = max over S of z, and Y(t) = min(x(t), v) = max over S with t of z. The same for 1 − x, whose
   m-th largest value is 1 − w, gives w and Z'(t) = max(x(t), w) (the paper's 1 − Z). Its further sets are redundant.
2. *One of the two is right.* The m-th smallest of T values is at most the (T − m + 1)-th smallest, since 2m ≤ T: w ≤ v.
   So Y = Z' = x where w ≤ x ≤ v; Z' = x and Y = v where x > v; Y = x and Z' = w where x < w.
3. *The selector* weights Z' with exp(q·(Z' − w)²) and Y with exp(q·(Y − v)²); with σ the logistic function

       x~ = Y + (Z' − Y)·σ(q·((Z' − w)² − (Y − v)²)).

   Where w ≤ x ≤ v it returns x. Where x > v the second weight is 1, and with δ = x − v ≤ x − w

       x − x~ = δ/(1 + exp(q·(x − w)²)) ≤ δ/(1 + exp(q·δ²)) = (1/√q)·u/(1 + exp(u²)),    u = √q·δ;

   x < w is the same for 1 − x. The largest u/(1 + exp(u²)) lies where 2s − 1 = exp(−s), s = u². That is
   (s − ½)·exp(s − ½) = 1/(2√e), so s = ½ + W with W the Lambert function at 1/(2√e), and the maximum is

       |x~ − x| ≤ c/√q,    c = W/√(½ + W) = 0.277858884…

   It is attained: by equal tokens but for one that lies √(s/q) above them, if m ≥ 2 and q ≥ s = 0.7388…, so that it
   fits into [0, 1]. Below that u/(1 + exp(u²)) still grows at δ = 1, and the maximum is 1/(1 + exp(q)). For T = 4,
   m = 1, v and w are the largest and the smallest token, nothing lies outside, and x~ = x: the primitives are tokens.
4. *F.* x~ lies between Y and Z', in [0, 1], so F(x~) is defined, and |F(x~) − F(x)| ≤ Lip·c/√q with Lip the Lipschitz
   constant of F in the max norm; for a merely continuous F its modulus of continuity at c/√q, which goes to 0.
5. *The class* wants an F0 that is once differentiable; maxima and F need not be. But F0 = F(x~(z)) is continuous on the
   whole cube [0, 1]^D, so (Weierstrass) a polynomial is within any δ of it there: add that δ, as small as one likes.

No selector is needed for continuity: as w ≤ v, x = Y + max(0, Z' − v) exactly. That is q = ∞ here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headcount.core import BadInput
from headcount.tasks.expressions import ball

Array = NDArray[np.float64]
SUPPORTED_LENGTHS = (4, 8, 12)
MAX_ARRAY_NUMBERS = 2**24
"""Numbers in one array, that is 128 MiB; a few arrays exist at a time."""
TOKEN_ROUNDING = 2.0**-50
"""Bounds are proved for real numbers; doubles in [0, 1] add less than this to a recovered token."""


@dataclass(frozen=True)
class Named:
    """A continuous function of X[..., length, dim], and its Lipschitz constant in the max norm."""

    F: Callable[[Array], Array]
    lipschitz: float
    says: str


def _wave(X: Array) -> Array:
    weights = np.arange(1, X.shape[-2] + 1) / math.comb(X.shape[-2] + 1, 2)
    return np.sin(math.tau * (X.mean(-1) @ weights))


NAMED = {
    "max-minus-min": Named(lambda X: X.max((-2, -1)) - X.min((-2, -1)), 2.0, "largest minus smallest number"),
    "mean": Named(lambda X: X.mean((-2, -1)), 1.0, "mean of all numbers"),
    "median": Named(lambda X: np.median(X, -2).mean(-1), 1.0, "median over the tokens, mean over the coordinates"),
    "wave": Named(_wave, math.nextafter(math.tau, 7), "sin(2π Σ_t c_t x(t)), c_t growing with t, Σ c_t = 1"),
}


class Approximant:
    """F as a function F0 of D = `intrinsic` minima: exactly (q = ∞), or with the paper's selector at a finite q."""

    def __init__(self, F: Callable[[Array], Any], *, length: int, dim: int = 1, q: float = math.inf) -> None:
        if type(length) is not int or length not in SUPPORTED_LENGTHS:  # 8.0 is not a size
            raise BadInput(f"the density construction is built for a length of 4, 8 or 12, not {length}")
        if type(dim) is not int or dim < 1:
            raise BadInput(f"dim must be a whole number of at least 1, not {dim}")
        if not q > 0:
            raise BadInput(f"q must be a number above 0, not {q}")
        self.F, self.length, self.dim, self.q = F, length, dim, q
        self.S, self._with = _sets(length)
        self.intrinsic = 2 * dim * len(self.S)
        most = MAX_ARRAY_NUMBERS // (2 * self.S.size)
        if dim > most:
            raise BadInput(
                f"D = 2d·C(T, T/4) = {self.intrinsic:,} primitives do not fit in memory: "
                f"choose a dim of at most {most:,}"
            )

    def features(self, X: Array) -> Array:
        """Return z[..., D] of X[..., length, dim]: first those of x_j, then of 1 − x_j; in each by j, then by S."""
        if X.shape[-2:] != (self.length, self.dim) or not ((X >= 0) & (X <= 1)).all():
            raise BadInput(f"X must have the shape [..., {self.length}, {self.dim}] and lie in [0, 1]; not {X.shape}")
        both = np.stack([X, 1 - X], -3).swapaxes(-2, -1)  # [..., 2, dim, length]
        return both[..., self.S].min(-1).reshape(*X.shape[:-2], self.intrinsic)

    def recover(self, z: Array) -> Array:
        """Return the sequence [..., length, dim] from z[..., D] alone: steps 1 to 3 above."""
        if z.shape[-1] != self.intrinsic:
            raise BadInput(f"z must hold D = {self.intrinsic} numbers, not {z.shape[-1]}")
        z = z.reshape(*z.shape[:-1], 2, self.dim, len(self.S))
        top, own = z.max(-1, keepdims=True), z[..., self._with].max(-1)  # own: the best set that holds each position
        v, Y = top[..., 0, :, :], own[..., 0, :, :]
        w, Z = 1 - top[..., 1, :, :], 1 - own[..., 1, :, :]  # Z is max(x, w), the Z' above
        if self.q == math.inf:
            return (Y + np.maximum(0, Z - v)).swapaxes(-2, -1)
        # the logistic function by tanh, which cannot overflow
        share = 0.5 + 0.5 * np.tanh(0.5 * self.q * ((Z - w) ** 2 - (Y - v) ** 2))
        return (Y + (Z - Y) * share).swapaxes(-2, -1)

    def F0(self, z: Array) -> Array:
        """Return F of the recovered sequence, [...], from z[..., D]."""
        return evaluate(self.F, self.recover(z))

    def value(self, X: Array) -> Array:
        """Return the approximation F0(z(X)) of F(X)."""
        return self.F0(self.features(X))

    def recovered(self, X: Array) -> Array:
        """Return the recovered sequences of many, X[count, length, dim], a part at a time to save memory."""
        size = max(1, MAX_ARRAY_NUMBERS // 4 // (2 * self.dim * self.S.size))
        return np.concatenate([self.recover(self.features(X[i : i + size])) for i in range(0, len(X), size)])

    @property
    def token_bound(self) -> float:
        """Return the proved sup of |x~ − x| over all sequences, rounded upward; attained where it is not 0."""
        return selector_bound(self.length, self.q)


@cache
def _sets(length: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the index sets [C, m], and for each position the numbers of the sets that hold it."""
    S = np.array(list(itertools.combinations(range(length), length // 4)))
    return S, np.array([np.flatnonzero(np.equal(S, t).any(-1)) for t in range(length)])


def selector_peak() -> tuple[Any, Any]:
    """Return balls around s and c of step 3."""
    W = (ball(0.5) * ball(-0.5).exp()).lambertw()
    s = W + ball(0.5)
    return s, W / s.sqrt()


def selector_constant() -> float:
    """Return c = 0.277858884…, the largest u/(1 + exp(u²)), rounded upward."""
    return _upward(selector_peak()[1])


def selector_bound(length: int, q: float, lipschitz: float = 1.0) -> float:
    """Return Lip times the sup of |x~ − x| (step 3 above), rounded upward: 0 for T = 4, else c/√q if q ≥ 0.7388…"""
    if length == 4 or q == math.inf:
        return 0.0
    s, c = selector_peak()
    sharp = 1 / (1 + ball(q).exp()) if ball(q) < s else c / ball(q).sqrt()  # the second holds for every q
    return _upward(sharp * ball(lipschitz))


def _upward(value: Any) -> float:
    """Return a double at or above everything in a ball."""
    near = float(value.upper())
    while not ball(near) >= value:
        near = math.nextafter(near, math.inf)
    return near


def evaluate(F: Callable[[Array], Any], X: Array) -> Array:
    """Return F(X)[...] of X[..., length, dim], refusing in one line what is no number per sequence."""
    with np.errstate(all="ignore"):
        try:
            y = np.asarray(F(X.copy()), dtype=np.float64)
        except Exception as error:
            raise BadInput(f"F failed on X{list(X.shape)}: {type(error).__name__}: {error}") from error
    if y.shape == (*X.shape[:-2], 1):
        y = y[..., 0]
    if y.shape != X.shape[:-2]:
        raise BadInput(
            f"F mapped X{list(X.shape)} to {list(y.shape)} instead of {list(X.shape[:-2])}: "
            "one number per sequence, so X.max((-2, -1)), not X.max()"
        )
    if not np.isfinite(y).all():
        raise BadInput("F returned NaN or infinity on [0, 1]: it must be continuous there")
    return y
