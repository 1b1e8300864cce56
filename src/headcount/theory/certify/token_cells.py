"""Enclosures of the scores, the values and the f_j of one token on small cells of its box, for all heads at once.

A head reads tokens one by one, so one table over cells of R^dim serves sequences of any length. On a cell with centre m
and half sides r, x = m + r∘ξ with ξ in [−1, 1]^dim, and every quantity is enclosed as

    q(x) = q0 + Σ_k qJ_k·ξ_k ± qR:

A unit of the encoder that does not change sign is exact. For one that does, on p in [l, u], relu(p) − λ·p lies in
[0, b] with λ = u/(u − l) and b = max(−λ·l, (1 − λ)·u): the difference is convex, so its maximum is at an end, and its
minimum, 0, at the kink. f_j has its mean value form. All weights are folded in interval arithmetic first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headcount.core import BadInput
from headcount.models.transformer import Attention, FeedForward, Transformer
from headcount.tasks import GeneralizedRetrieval
from headcount.tasks.expressions import Node
from headcount.theory.enclose.expressions import slopes
from headcount.theory.enclose.intervals import Array, Interval, down, interval, matmul, up


@dataclass(frozen=True)
class Folded:
    """The model in terms of the encoder's hidden units, with intervals as weights.

    `kinds` is the number of positions that the model tells apart: 1, or the length.
    """

    inner: Array  # [hidden, dim]
    bias: Interval  # [kinds, hidden]
    score: Interval  # [heads, hidden], β included
    score_shift: Interval  # [kinds, heads]
    value: Interval  # [heads·head_dim, hidden]
    value_shift: Interval  # [kinds, heads·head_dim]
    output: Interval  # [width, heads·head_dim]
    token: Array  # [width], the class token
    layers: list[tuple[Array, Array]]  # F
    activation: str
    heads: int
    head_dim: int


def fold(model: Transformer) -> Folded:
    """Fold a model of depth 1 without layer norm and without the class token among its keys.

    W_Q c is multiplied by W_K and W2 once; b2 shifts every score of a head equally, which the softmax cancels.
    """
    spec, encoder, attention, F = model.spec, model.encoder, model.layers[0].attention, model.layers[0].feedforward
    assert isinstance(attention, Attention)
    assert isinstance(F, FeedForward)

    def exact(tensor: object) -> Array:
        return np.asarray(tensor.detach().cpu().double().numpy())  # type: ignore[attr-defined]

    h, n, N = spec.heads, spec.head_dim, spec.hidden
    W2, b2, token = exact(encoder.outer.weight), exact(encoder.outer.bias), exact(model.class_token)
    query = matmul(exact(attention.query), token[:, None])  # [h, n, 1]
    keys = matmul(Interval(np.swapaxes(query.lo, 1, 2), np.swapaxes(query.hi, 1, 2)), exact(attention.key))[:, 0]
    if attention.log_beta is not None:
        beta = interval(exact(attention.log_beta)[:, None]).exp()
    elif isinstance(spec.beta, float):
        beta = interval(np.full((h, 1), spec.beta))
    else:
        beta = interval(np.full((h, 1), float(n))).sqrt().reciprocal()
    keys = keys * beta  # [h, E]
    values = exact(attention.value).reshape(h * n, spec.E)
    kinds = 1 if spec.positions == "none" else spec.length
    bias = interval(np.broadcast_to(exact(encoder.inner.bias), (kinds, N)))
    score_shift, value_shift = interval(np.zeros((kinds, h))), matmul(values, b2[:, None]).T
    value_shift = Interval(np.repeat(value_shift.lo, kinds, 0), np.repeat(value_shift.hi, kinds, 0))
    if encoder.hidden_bias is not None:
        bias = bias + exact(encoder.hidden_bias)
    if encoder.position is not None:
        table = exact(encoder.position)
        score_shift, value_shift = matmul(table, keys.T), value_shift + matmul(table, values.T)
    if attention.gates is not None:
        score_shift = interval(exact(attention.gates).T) * beta.T
    output = np.moveaxis(exact(attention.output), 1, 0).reshape(spec.E, h * n)
    layers = [(exact(layer.weight), exact(layer.bias)) for layer in F.layers]
    return Folded(
        exact(encoder.inner.weight),
        bias,
        matmul(keys, W2),
        score_shift,
        matmul(values, W2),
        value_shift,
        interval(output),
        token,
        layers,
        "gelu" if spec.feedforward == "gelu2" else "relu",
        h,
        n,
    )


@dataclass(frozen=True)
class Cells:
    """The table of scores, values and f_j, for every kind of position and every cell."""

    low: Array  # [cells, dim]
    high: Array
    score_lo: Array  # [kinds, cells, heads]
    score_hi: Array
    v0: Array  # [kinds, cells, heads·head_dim], with slopes [kinds, dim, cells, ·] and a remainder
    v_slope: Array
    v_rest: Array
    f0: Array  # [cells, D], with slopes [dim, cells, D] and a remainder
    f_slope: Array
    f_rest: Array
    f_lo: Array  # [cells, D]
    f_hi: Array


def make_cells(model: Folded, task: GeneralizedRetrieval, low: Array, high: Array, per_side: int) -> Cells:
    """Return the table for the token's box, cut into per_side^dim cells."""
    dim = len(low)
    edges = [np.linspace(a, b, per_side + 1) for a, b in zip(low, high, strict=True)]
    lows = np.stack([g.ravel() for g in np.meshgrid(*[e[:-1] for e in edges], indexing="ij")], 1)
    highs = np.stack([g.ravel() for g in np.meshgrid(*[e[1:] for e in edges], indexing="ij")], 1)
    kinds: list[tuple[Array, ...]] = []
    for kind in range(model.bias.lo.shape[0]):
        s, sJ, v, vJ = token_forms(model, kind, lows, highs)
        deviation = _sum_of_magnitudes(np.abs(sJ.lo), np.abs(sJ.hi))
        rest = sum_up([v.rad, *(vJ.rad[:, k] for k in range(dim))])
        kinds.append((down(s.lo - deviation), up(s.hi + deviation), v.mid, np.moveaxis(vJ.mid, 1, 0), rest))
    score_lo, score_hi, v0, vJ, vR = (np.stack(part) for part in zip(*kinds, strict=True))
    functions = function_forms(task, lows, highs)
    if not all(np.isfinite(x).all() for x in (score_lo, score_hi, v0, vJ, vR, *functions)):
        raise BadInput("the numbers of this model or task overflow on the box, so nothing can be proved")
    return Cells(lows, highs, score_lo, score_hi, v0, vJ, vR, *functions)


def function_forms(task: GeneralizedRetrieval, lows: Array, highs: Array) -> tuple[Array, Array, Array, Array, Array]:
    """Return f0[cells, D], fJ[dim, cells, D], fR, and the range f_lo, f_hi of every f_j on boxes of tokens."""
    box, dim = Interval(lows, highs), lows.shape[1]
    m, r = box.mid, box.rad
    functions = [g for g in task.f if isinstance(g, Node)]
    inside, at = [box[:, k] for k in range(dim)], [interval(m[:, k]) for k in range(dim)]
    f0: list[Array] = []
    fJ: list[Array] = []
    fR: list[Array] = []
    f_lo: list[Array] = []
    f_hi: list[Array] = []
    for g in functions:
        over_box, at_centre = slopes(g, inside)[0], slopes(g, at)[0].value
        f_deviation = [slope * interval(r[:, k]) for k, slope in enumerate(over_box.gradient)]
        f0.append(at_centre.mid)
        fJ.append(np.stack([s.mid for s in f_deviation]))
        fR.append(sum_up([at_centre.rad, *(s.rad for s in f_deviation)]))
        deviation = sum_up([s.size for s in f_deviation])
        f_lo.append(np.maximum(over_box.value.lo, down(at_centre.lo - deviation)))
        f_hi.append(np.minimum(over_box.value.hi, up(at_centre.hi + deviation)))
    return (np.stack(f0, -1), np.stack(fJ, -1), np.stack(fR, -1), np.stack(f_lo, -1), np.stack(f_hi, -1))


def token_forms(model: Folded, kind: int, lows: Array, highs: Array) -> tuple[Interval, Interval, Interval, Interval]:
    """Return scores s[cells, heads], their slopes sJ[cells, dim, heads], v and vJ on boxes of one kind of token."""
    box = Interval(lows, highs)
    m, r = box.mid, box.rad
    unit_slope = interval(r[:, :, None]) * model.inner.T[None]  # column k of W1 times r_k: [cells, dim, hidden]
    deviation = _sum_of_magnitudes(np.abs(unit_slope.lo), np.abs(unit_slope.hi))  # Σ_k of the largest magnitudes
    pre = matmul(m, model.inner.T) + model.bias[kind]
    l, u = down(pre.lo - deviation), up(pre.hi + deviation)
    kinked = (l < 0) & (u > 0)
    lam = np.where(l >= 0, 1.0, np.where(u <= 0, 0.0, np.clip(u / np.where(kinked, u - l, 1.0), 0.0, 1.0)))
    max_excess = np.where(kinked, np.maximum(up(-lam * l), up(up(1 - lam) * u)), 0.0)
    centre = interval(lam) * pre + Interval(np.zeros_like(max_excess), max_excess)
    slope = interval(lam[:, None]) * unit_slope  # [cells, dim, hidden]
    return (
        matmul(centre, model.score.T) + model.score_shift[kind],
        matmul(slope, model.score.T),
        matmul(centre, model.value.T) + model.value_shift[kind],
        matmul(slope, model.value.T),
    )


def _sum_of_magnitudes(a: Array, b: Array) -> Array:
    """Return the sum over axis 1 of the larger of two magnitudes, rounded up."""
    magnitude = np.maximum(a, b)
    return sum_up([magnitude[:, k] for k in range(magnitude.shape[1])])


def sum_up(parts: list[Array]) -> Array:
    """Return the sum of arrays, rounded up."""
    total = parts[0]
    for part in parts[1:]:
        total = up(total + part)
    return total


def directional_bounds(v0: Array, vJ: Array, vR: Array, directions: Array) -> Array:
    """Return upper bounds on w·v for all directions w[directions, q] on all cells: [directions, cells].

    w·v ≤ w·v0 + Σ_k |w·vJ_k| + |w|·vR. The rounding error of a dot product of q terms is at most γ·|w|·|v|, as in
    `intervals`, and that of a sum of a few numbers the same γ times their magnitudes: `count` covers both.
    """
    size = np.abs(directions).T
    count = v0.shape[-1] + 2 * len(vJ) + 8
    gamma = count * 2.0**-53 * (1 + 2.0**-40)
    magnitude = np.abs(v0) + np.abs(vJ).sum(0)
    slack = (vR @ size + 2 * gamma * (magnitude @ size + vR @ size)) * (1 + 2.0**-40) + 2.0**-1000
    total = v0 @ directions.T + sum(np.abs(part @ directions.T) for part in vJ)
    return np.ascontiguousarray(up(total + slack).T)
