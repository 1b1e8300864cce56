"""Boxes in which no two sequences collide: the enclosed Jacobian of the attention outputs has a left inverse.

    ∂o_i/∂x(t) = w_i(t)·((v_i(t) − o_i) ⊗ ∂s_i/∂x(t) + ∂v_i/∂x(t)),

w the attention weights, s the scores, v the values. A unit of the encoder has slope 0 or 1, or [0, 1] where it may
change sign. By the mean value theorem, row by row, o(X) − o(X') = M·(X − X') with M in the enclosure J. If P·J = I + E
for some matrix P, and the row sums of |E| are below 1, then every P·M has an inverse: o(X) = o(X') only if X = X'.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headcount.theory.certify.token_cells import Folded, sum_up
from headcount.theory.enclose.intervals import Array, Interval, down, interval, matmul, up
from headcount.theory.irreducible.affine_forms import enclose_heads, per_output


def proved_injective(model: Folded, low: Array, high: Array) -> NDArray[np.bool_]:
    """Return, for boxes of sequences [K, T, dim], whether provably no two different sequences of the box collide."""
    J = jacobian(model, low, high)
    K, count, N = J.lo.shape
    usable = np.asarray(np.isfinite(J.lo + J.hi).reshape(K, -1).all(1))
    middle = np.where(usable[:, None, None], J.mid, 0.0)
    if count < N or not usable.any():
        return np.zeros(K, dtype=bool)
    E = matmul(np.linalg.pinv(middle), J) - np.eye(N)
    size = E.size
    rows = sum_up([size[:, :, k] for k in range(N)])
    return np.asarray(usable & (rows < 1).all(1))  # NaN fails every comparison


def jacobian(model: Folded, low: Array, high: Array) -> Interval:
    """Enclose the Jacobian of all outputs on boxes of sequences: [K, outputs, T·dim]."""
    heads = enclose_heads(model, low, high)
    a, dim, n = heads.a, low.shape[2], model.head_dim
    lowest, highest = (_others(part) for part in (a.lo, a.hi))
    w = Interval(
        np.maximum(down(a.lo / up(a.lo + highest.hi)), 0.0), np.minimum(up(a.hi / down(a.hi + lowest.lo)), 1.0)
    )
    ds, dv = _unit_slopes(model, low, high)  # [K, T, dim, heads], [K, T, dim, outputs]
    v_deviation = sum_up([heads.v_slope.size[:, :, k] for k in range(dim)])
    v = Interval(down(heads.v.lo - v_deviation), up(heads.v.hi + v_deviation))
    w, ds = per_output(w, n), per_output(ds, n)
    enclosed = w[:, :, None] * ((v - heads.o[:, None])[:, :, None] * ds + dv)
    bounds = [np.moveaxis(x, 3, 1).reshape(len(low), x.shape[3], -1) for x in (enclosed.lo, enclosed.hi)]
    return Interval(*bounds)


def _others(a: Array) -> Interval:
    """Enclose the sum of the weights of all other tokens: [K, T, heads]."""
    T = a.shape[1]
    parts = [interval(np.zeros_like(a[:, 0])) for _ in range(T)]
    for t in range(T):
        for s in range(T):
            if s != t:
                parts[t] = parts[t] + a[:, s]
    return Interval(np.stack([p.lo for p in parts], 1), np.stack([p.hi for p in parts], 1))


def _unit_slopes(model: Folded, low: Array, high: Array) -> tuple[Interval, Interval]:
    """Enclose the slopes of scores and values in every coordinate of every token."""
    K, T, dim = low.shape
    kinds = model.bias.lo.shape[0]
    box = Interval(low.reshape(-1, dim), high.reshape(-1, dim))
    pre = matmul(box, model.inner.T)
    bias = model.bias if kinds > 1 else Interval(np.repeat(model.bias.lo, T, 0), np.repeat(model.bias.hi, T, 0))
    lo, hi = down(pre.lo.reshape(K, T, -1) + bias.lo), up(pre.hi.reshape(K, T, -1) + bias.hi)
    lam = Interval(np.where(lo >= 0, 1.0, 0.0), np.where(hi <= 0, 0.0, 1.0))
    lam = Interval(np.minimum(lam.lo, lam.hi), np.maximum(lam.lo, lam.hi))  # at lo = hi = 0, any slope is right
    units = lam[:, :, None] * model.inner.T  # [K, T, dim, hidden]
    return matmul(units, model.score.T), matmul(units, model.value.T)
