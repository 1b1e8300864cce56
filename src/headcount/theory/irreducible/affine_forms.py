"""Attention outputs and targets on boxes of sequences, as affine functions with remainders: the rows of `pair_bounds`.

On a box x(t) = m(t) + r(t)∘ξ(t), ξ in [−1, 1], the scores and values of a token are affine in ξ(t) with a remainder
(`token_cells.forms`). For a pair of boxes whose sequences have the *same* output o of a head, o lies in both ranges,
and with c the middle of what they share, a = exp(score), and any μ,

    o − c = μ·N + (o − c)·(1 − μ·A),     N = Σ_t a(t)·(v(t) − c),     A = Σ_t a(t),

where the last term is a product of two small ranges and N a sum over tokens. exp is enclosed between two parallel
lines: e^s − β·s is convex, so on [l, u] it is at most its larger end, and at least its tangent at any point.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headcount.tasks import GeneralizedRetrieval
from headcount.tasks.expressions import Node
from headcount.theory.certify.over_tokens import roots
from headcount.theory.certify.token_cells import Folded, forms, sum_up
from headcount.theory.enclose.expressions import slopes
from headcount.theory.enclose.head import Weights
from headcount.theory.enclose.intervals import Array, Interval, down, exp_above, exp_below, interval, total, up


@dataclass(frozen=True)
class Heads:
    """The heads on boxes of sequences [Q, T, dim]."""

    s: Interval  # scores at the middle, remainders included, shifted by one number a head: [Q, T, heads]
    s_slope: Interval  # their slopes [Q, T, dim, heads]
    v: Interval  # values [Q, T, heads·head_dim]
    v_slope: Interval  # [Q, T, dim, heads·head_dim]
    a: Weights  # exp(s) [Q, T, heads]
    bottom: Array  # s on the whole box [Q, T, heads]
    top: Array
    o: Interval  # the exact range of every output by itself [Q, heads·head_dim]


def heads_on(model: Folded, low: Array, high: Array) -> Heads:
    """Enclose scores, values, weights and outputs of all heads."""
    Q, T, dim = low.shape
    kinds = model.bias.lo.shape[0]
    flat = (
        [(0, low.reshape(-1, dim), high.reshape(-1, dim))]
        if kinds == 1
        else [(t, low[:, t], high[:, t]) for t in range(T)]
    )
    parts = [forms(model, *part) for part in flat]

    def gather(index: int) -> Interval:
        ends: list[Array] = []
        for side in ("lo", "hi"):
            arrays = [getattr(p[index], side) for p in parts]
            ends.append(arrays[0].reshape(Q, T, *arrays[0].shape[1:]) if kinds == 1 else np.stack(arrays, 1))
        return Interval(*ends)

    s, s_slope, v, v_slope = (gather(i) for i in range(4))
    swing = sum_up([s_slope.size[:, :, k] for k in range(dim)])
    s = s - up(s.hi + swing).max(1, keepdims=True)  # one shift a head, which the softmax does not see
    bottom, top = down(s.lo - swing), up(s.hi + swing)
    a = Weights(exp_below(bottom), exp_above(top))
    reach = sum_up([v_slope.size[:, :, k] for k in range(dim)])
    spread = Weights(np.repeat(a.lo, model.head_dim, 2), np.repeat(a.hi, model.head_dim, 2))
    most, least = roots(up(v.hi + reach), spread), -roots(-down(v.lo - reach), spread)
    return Heads(s, s_slope, v, v_slope, a, bottom, top, Interval(np.minimum(least, most), most))


@dataclass(frozen=True)
class Affine:
    """o − c on boxes of sequences: base + Σ slope·ξ, with what each token adds to the remainder (floats)."""

    base: Interval  # [Q, outputs]
    slope: Interval  # [Q, T, dim, outputs]
    loose: Array  # [Q, T, outputs]


def outputs_near(heads: Heads, o: Interval, c: Array, head_dim: int) -> Affine:
    """Expand o − c, for sequences whose outputs lie in o[Q, outputs], around c[Q, outputs]."""
    e0, eJ = _exponential(heads)
    mu = 2.0 / (heads.a.lo.sum(1) + heads.a.hi.sum(1))  # [Q, heads]: any number
    e0, eJ = e0 * mu[:, None], eJ * mu[:, None, None]
    second = (o - c) * wide(interval(1.0) - total(Interval(heads.a.lo, heads.a.hi), 1) * mu, head_dim)
    e0, eJ = wide(e0, head_dim), wide(eJ, head_dim)  # [Q, T, outputs], [Q, T, dim, outputs]
    d0, dim = heads.v - c[:, None], eJ.lo.shape[2]
    em, dm = e0.mid, d0.mid
    slope = heads.v_slope * em[:, :, None] + eJ * dm[:, :, None]
    swing_e, swing_v = (sum_up([J.size[:, :, k] for k in range(dim)]) for J in (eJ, heads.v_slope))
    rest = _around(up(up(e0.rad * swing_v) + up(d0.rad * swing_e)))
    for k in range(dim):  # the product of the two swings: ξ_k² lies in [0, 1], ξ_k·ξ_l in [−1, 1]
        for l in range(k, dim):
            part = eJ[:, :, k] * heads.v_slope[:, :, l]
            if l == k:
                rest = rest + Interval(np.minimum(part.lo, 0.0), np.maximum(part.hi, 0.0))
            else:
                rest = rest + _around((part + eJ[:, :, l] * heads.v_slope[:, :, k]).size)
    terms = e0 * d0 + rest
    loose = terms.rad + second.size[:, None] / terms.lo.shape[1]
    return Affine(total(terms, 1) + second, slope, loose)


def _exponential(heads: Heads) -> tuple[Interval, Interval]:
    """exp(s) = e0 + eJ·ξ on every token's box: between two lines of the slope β of the chord."""
    l, u = heads.bottom, heads.top
    e_l, e_u = np.exp(np.maximum(l, -600.0)), np.exp(u)
    apart = u - l > 1e-7
    beta = np.where(apart, (e_u - e_l) / np.where(apart, u - l, 1.0), e_u)  # any numbers
    at = np.log(np.maximum(beta, 1e-300))
    ends = Interval(l, u)
    highest = np.maximum(up(exp_above(l) - down(beta * l)), up(exp_above(u) - down(beta * u)))
    tangent = interval(at).exp()
    lowest = (tangent * (interval(1.0) - at) + (tangent - beta) * ends).lo
    slope = heads.s_slope * beta[:, :, None]
    return heads.s * beta + Interval(lowest, highest), slope


def target_forms(task: GeneralizedRetrieval, output: int, Z: Interval) -> tuple[Array, Interval, Interval]:
    """H = Γ·z + rest where the minima lie in Z[Q, D]: Γ[Q, D], rest[Q], and the range of H[Q]."""
    assert isinstance(task.F0, Node)
    sides = [Z[:, j] for j in range(Z.lo.shape[1])]
    middle = [interval(z.mid) for z in sides]
    whole, rest = slopes(task.F0, sides)[output], slopes(task.F0, middle)[output].value
    near = rest
    for slope, z, m in zip(whole.gradient, sides, middle, strict=True):
        gamma = interval(slope.mid)
        rest = rest - gamma * m + (slope - gamma) * (z - m)
        near = near + slope * (z - m)
    span = Interval(np.maximum(whole.value.lo, near.lo), np.minimum(whole.value.hi, near.hi))
    return np.stack([slope.mid for slope in whole.gradient], 1), rest, span


def wide(x: Interval, head_dim: int) -> Interval:
    """One entry a head to one an output, along the last axis."""
    return Interval(np.repeat(x.lo, head_dim, -1), np.repeat(x.hi, head_dim, -1))


def _around(x: Array) -> Interval:
    return Interval(-x, x)
