"""The feed-forward block on a box of head outputs, as y = L·o + e: a matrix L of floats, and intervals e.

Every activation φ(p) on [l, u] is replaced by α·p + [e_lo, e_hi]. Any float α is sound; we take the slope of the chord:

- ReLU: φ(p) − α·p is convex, so its maximum is at an end, and its minimum at an end or at the kink;
- GELU: φ'' = (2 − p²)·pdf(p). [l, u] is cut into pieces, and on a piece with centre m and half width r,
  φ(p) − α·p lies in φ(m) − α·m + (φ'(m) − α)·[−r, r] + φ''(piece)·[0, r²]/2.

The rounding error of L is multiplied by the box and moved to e, so L is a matrix of exact floats at every step.
"""

from __future__ import annotations

import numpy as np

from headcount.theory.certify.token_cells import Folded
from headcount.theory.enclose.intervals import Array, Interval, interval, matmul

GELU_PIECES = 4
_SQRT_HALF = interval(0.5).sqrt()
_PDF = Interval(np.asarray(0.39894228040143265), np.asarray(0.39894228040143276))  # 1/√(2π) = 0.398942280401432677…


def gelu(x: Interval) -> tuple[Interval, Interval]:
    """Return GELU and its derivative at points (narrow intervals)."""
    cdf = ((x * _SQRT_HALF).erf() + 1.0) * 0.5
    return x * cdf, cdf + x * _pdf(x)


def _pdf(x: Interval) -> Interval:
    return (-(x.square() * 0.5)).exp() * _PDF


def chord(kind: str, p: Interval) -> tuple[Array, Interval]:
    """Return α and an enclosure of φ(p) − α·p over every interval."""
    width = np.maximum(p.hi - p.lo, 1e-300)
    if kind == "relu":
        alpha = np.clip((np.maximum(p.hi, 0.0) - np.maximum(p.lo, 0.0)) / width, 0.0, 1.0)
        alpha = np.where(p.lo >= 0, 1.0, np.where(p.hi <= 0, 0.0, alpha))
        ends = [interval(np.maximum(v, 0.0)) - interval(alpha) * v for v in (p.lo, p.hi)]
        enclosed = ends[0].hull(ends[1])
        kink = (p.lo < 0) & (p.hi > 0)
        return alpha, Interval(np.where(kink, np.minimum(enclosed.lo, 0.0), enclosed.lo), enclosed.hi)
    alpha = (gelu(interval(p.hi))[0].mid - gelu(interval(p.lo))[0].mid) / width
    alpha = np.where(p.hi - p.lo > 1e-6 * (1 + p.size), np.clip(alpha, -0.2, 1.2), gelu(interval(p.mid))[1].mid)
    edges = p.lo + (p.hi - p.lo) * np.linspace(0, 1, GELU_PIECES + 1).reshape(-1, *[1] * p.lo.ndim)
    edges[0], edges[-1] = p.lo, p.hi
    edges = np.maximum.accumulate(edges, 0)  # neighbouring pieces share an edge, so they leave no gap
    piece = Interval(edges[:-1], edges[1:])
    m, r = interval(piece.mid), piece.rad
    value, slope = gelu(m)
    second_derivative = _pdf(piece) * (-piece.square() + 2.0)
    r2 = interval(r).square()
    part = (
        value
        - m * alpha
        + (slope - interval(alpha)) * Interval(-r, r)
        + second_derivative * Interval(np.zeros_like(r), r2.hi) * 0.5
    )
    return alpha, Interval(part.lo.min(0), part.hi.max(0))


def relax(model: Folded, o: Interval, mean: Array, std: Array) -> tuple[Array, Interval]:
    """Return L[..., out, heads·head_dim] and e[..., out] with y in L·o + e for all o[..., heads·head_dim] in a box."""
    weight, bias = model.layers[0]
    slope = matmul(weight, model.output)
    rest = matmul(weight, model.token[:, None])[:, 0] + bias
    slopes, rest = _round_slopes(slope, rest, o)
    for weight, bias in model.layers[1:]:
        pre = matmul(slopes, Interval(o.lo[..., None], o.hi[..., None]))[..., 0] + rest
        alpha, error = chord(model.activation, pre)
        rest = rest * alpha + error
        slopes, rest = _round_slopes(interval(slopes) * alpha[..., None], rest, o)
        rest = matmul(weight, Interval(rest.lo[..., None], rest.hi[..., None]))[..., 0] + bias
        slopes, rest = _round_slopes(matmul(weight, slopes), rest, o)
    return _round_slopes(interval(slopes) * std[:, None], rest * std + mean, o)


def _round_slopes(slope: Interval, rest: Interval, o: Interval) -> tuple[Array, Interval]:
    """Return the middle of a matrix of intervals; the radius, multiplied by the box, is added to the rest."""
    rounding = Interval(-slope.rad, slope.rad)
    return slope.mid, rest + matmul(rounding, Interval(o.lo[..., None], o.hi[..., None]))[..., 0]
