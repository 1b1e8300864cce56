"""Attention outputs and targets on boxes of sequences, as affine functions with remainders (for `pair_bounds`).

On a box x(t) = m(t) + r(t)∘ξ(t), ξ in [−1, 1], the scores and values of a token are affine in ξ(t) with a remainder
(`token_cells.token_forms`). If a sequence of one box and a sequence of another have the *same* output o of a head, then
o lies in the ranges of both boxes. With c the middle of the intersection of these ranges, a = exp(score), and any μ,

    o − c = μ·N + (o − c)·(1 − μ·A),     N = Σ_t a(t)·(v(t) − c),     A = Σ_t a(t),

where N is a sum over tokens and the last term is a product of two small ranges. exp is enclosed between two parallel
lines: e^s − β·s is convex, so on [l, u] it is at most the larger of its values at the ends, and at least the value of
its tangent at any point.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headcount.tasks import GeneralizedRetrieval
from headcount.tasks.expressions import Node
from headcount.theory.certify.over_tokens import roots
from headcount.theory.certify.token_cells import Folded, sum_up, token_forms
from headcount.theory.enclose.expressions import slopes
from headcount.theory.enclose.head import Weights
from headcount.theory.enclose.intervals import Array, Interval, down, exp_above, exp_below, interval, total, up


@dataclass(frozen=True)
class HeadEnclosures:
    """Enclosures of all heads on boxes of sequences [Q, T, dim]."""

    s: Interval  # scores at the middle, with remainders, shifted by one number per head: [Q, T, heads]
    s_slope: Interval  # slopes of the scores [Q, T, dim, heads]
    v: Interval  # values [Q, T, heads·head_dim]
    v_slope: Interval  # [Q, T, dim, heads·head_dim]
    a: Weights  # exp(s) on the whole box [Q, T, heads]
    s_lo: Array  # bounds on s on the whole box [Q, T, heads]
    s_hi: Array
    o: Interval  # the exact range of each output, taken alone [Q, heads·head_dim]


def enclose_heads(model: Folded, low: Array, high: Array) -> HeadEnclosures:
    """Enclose the scores, values, weights and outputs of all heads on boxes of sequences [Q, T, dim]."""
    Q, T, dim = low.shape
    kinds = model.bias.lo.shape[0]
    batches = (
        [(0, low.reshape(-1, dim), high.reshape(-1, dim))]
        if kinds == 1
        else [(t, low[:, t], high[:, t]) for t in range(T)]
    )
    parts = [token_forms(model, *part) for part in batches]

    def gather(index: int) -> Interval:
        ends: list[Array] = []
        for side in ("lo", "hi"):
            arrays = [getattr(p[index], side) for p in parts]
            ends.append(arrays[0].reshape(Q, T, *arrays[0].shape[1:]) if kinds == 1 else np.stack(arrays, 1))
        return Interval(*ends)

    s, s_slope, v, v_slope = (gather(i) for i in range(4))
    deviation = sum_up([s_slope.size[:, :, k] for k in range(dim)])
    s = s - up(s.hi + deviation).max(1, keepdims=True)  # one shift per head, which the softmax cancels
    s_lo, s_hi = down(s.lo - deviation), up(s.hi + deviation)
    a = Weights(exp_below(s_lo), exp_above(s_hi))
    v_deviation = sum_up([v_slope.size[:, :, k] for k in range(dim)])
    weights = Weights(np.repeat(a.lo, model.head_dim, 2), np.repeat(a.hi, model.head_dim, 2))
    o_high, o_low = roots(up(v.hi + v_deviation), weights), -roots(-down(v.lo - v_deviation), weights)
    return HeadEnclosures(s, s_slope, v, v_slope, a, s_lo, s_hi, Interval(np.minimum(o_low, o_high), o_high))


@dataclass(frozen=True)
class AffineOutputs:
    """o − c on boxes of sequences, as base + Σ slope·ξ.

    `base` contains the remainder; `remainders` says how much of it is due to each token (floats, for choosing cuts).
    """

    base: Interval  # [Q, outputs]
    slope: Interval  # [Q, T, dim, outputs]
    remainders: Array  # [Q, T, outputs]


def expand_outputs(heads: HeadEnclosures, o: Interval, c: Array, head_dim: int) -> AffineOutputs:
    """Return o − c as an affine function, for sequences with outputs in o[Q, outputs]; c[Q, outputs] is any point."""
    e0, eJ = _exp_forms(heads)
    mu = 2.0 / (heads.a.lo.sum(1) + heads.a.hi.sum(1))  # [Q, heads]; any number is sound
    e0, eJ = e0 * mu[:, None], eJ * mu[:, None, None]
    second = (o - c) * per_output(interval(1.0) - total(Interval(heads.a.lo, heads.a.hi), 1) * mu, head_dim)
    e0, eJ = per_output(e0, head_dim), per_output(eJ, head_dim)  # [Q, T, outputs], [Q, T, dim, outputs]
    d0, dim = heads.v - c[:, None], eJ.lo.shape[2]
    em, dm = e0.mid, d0.mid
    slope = heads.v_slope * em[:, :, None] + eJ * dm[:, :, None]
    deviation_e, deviation_v = (sum_up([J.size[:, :, k] for k in range(dim)]) for J in (eJ, heads.v_slope))
    rest = _symmetric(up(up(e0.rad * deviation_v) + up(d0.rad * deviation_e)))
    for k in range(dim):  # the product of the two linear parts: ξ_k² lies in [0, 1], ξ_k·ξ_l in [−1, 1]
        for l in range(k, dim):
            part = eJ[:, :, k] * heads.v_slope[:, :, l]
            if l == k:
                rest = rest + Interval(np.minimum(part.lo, 0.0), np.maximum(part.hi, 0.0))
            else:
                rest = rest + _symmetric((part + eJ[:, :, l] * heads.v_slope[:, :, k]).size)
    terms = e0 * d0 + rest
    remainders = terms.rad + second.size[:, None] / terms.lo.shape[1]
    return AffineOutputs(total(terms, 1) + second, slope, remainders)


def _exp_forms(heads: HeadEnclosures) -> tuple[Interval, Interval]:
    """Return e0 and eJ with exp(s) in e0 + eJ·ξ on every token's box: two lines with β, the slope of the chord."""
    l, u = heads.s_lo, heads.s_hi
    e_l, e_u = np.exp(np.maximum(l, -600.0)), np.exp(u)
    distinct = u - l > 1e-7
    beta = np.where(distinct, (e_u - e_l) / np.where(distinct, u - l, 1.0), e_u)  # any number is sound
    at = np.log(np.maximum(beta, 1e-300))
    ends = Interval(l, u)
    highest = np.maximum(up(exp_above(l) - down(beta * l)), up(exp_above(u) - down(beta * u)))
    tangent = interval(at).exp()
    lowest = (tangent * (interval(1.0) - at) + (tangent - beta) * ends).lo
    slope = heads.s_slope * beta[:, :, None]
    return heads.s * beta + Interval(lowest, highest), slope


def target_forms(task: GeneralizedRetrieval, output: int, Z: Interval) -> tuple[Array, Interval, Interval]:
    """Return Γ[Q, D] and rest[Q] with H in Γ·z + rest for all minima z in Z[Q, D], and the range of H[Q]."""
    assert isinstance(task.F0, Node)
    sides = [Z[:, j] for j in range(Z.lo.shape[1])]
    middle = [interval(z.mid) for z in sides]
    over_box, rest = slopes(task.F0, sides)[output], slopes(task.F0, middle)[output].value
    mean_value = rest
    for slope, z, m in zip(over_box.gradient, sides, middle, strict=True):
        gamma = interval(slope.mid)
        rest = rest - gamma * m + (slope - gamma) * (z - m)
        mean_value = mean_value + slope * (z - m)
    target_range = Interval(np.maximum(over_box.value.lo, mean_value.lo), np.minimum(over_box.value.hi, mean_value.hi))
    return np.stack([slope.mid for slope in over_box.gradient], 1), rest, target_range


def per_output(x: Interval, head_dim: int) -> Interval:
    """Repeat each head's entry for every output of the head, along the last axis."""
    return Interval(np.repeat(x.lo, head_dim, -1), np.repeat(x.hi, head_dim, -1))


def _symmetric(x: Array) -> Interval:
    """Return [−x, x]."""
    return Interval(-x, x)
