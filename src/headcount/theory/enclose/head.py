"""The range of a head from the root of g(c); a proof needs only one evaluation of g, rounded upward.

    w·o − γ·z ≤ c  for all sequences   ⟺   Σ_t a(t)·(w·v(t) − γ·z − c) ≤ 0,     since o = Σ a·v/Σ a and Σ a > 0.

Tokens enter one by one, so the largest value of the sum is Σ_t max over what token t may be, and

    g(c) = Σ_t max_x a(x, t)·(w·v(x, t) − γ·z − c)

decreases in c. So *any* c with g(c) ≤ 0 is a bound, however it was found, and the root is the exact bound. Here each
token lies in one of a set of cells, the factor a(x) > 0 lies in [a_lo, a_hi] on each cell, and

    max over a cell ≤ (p − c)·(a_hi where p > c, else a_lo),      p ≥ w·v − γ·z on the cell.

**The minimum as a token.** The minimum z_j is f_j at one token of S_j, the special token, and f_j ≥ z_j at all others.
If z_j lies in [ζ_lo, ζ_hi], then the special token can only be where f_j meets [ζ_lo, ζ_hi], and there γ·z_j is
γ·f_j(x) itself, which cancels against w·v(x). The other tokens can only be where f_j ≥ ζ_lo, with γ·z_j at its worse
end. A second minimum has its own special token, or the same one. We take the maximum over the positions that can be
special. So the cost of finding the largest w·o − γ·z_j does not grow with the number of interchangeable tokens.

The scores of a row are shifted by one number before exp, which multiplies g by a positive constant.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headcount.theory.enclose.intervals import Array, down, exp_above, exp_below, up

Mask = NDArray[np.bool_]
MAX_NEWTON_STEPS = 60


@dataclass(frozen=True)
class Group:
    """Interchangeable positions: their number and their kind."""

    count: int
    kind: int


@dataclass(frozen=True)
class Choices:
    """The cells that tokens may lie in, per row (a sub-interval of z_j, or one row for all): masks [groups, rows,
    cells].

    `first` and `second` are the cells of the two special tokens, `both` those of a token that is both; None if there is
    no such token.
    """

    groups: list[Group]
    free: Mask
    first: Mask | None
    second: Mask | None
    both: Mask | None


@dataclass(frozen=True)
class Tops:
    """Upper bounds on w·v − Σ_j γ_j·z_j on cells [groups, rows, cells], for free and for special tokens."""

    free: Array
    first: Array
    second: Array
    both: Array


@dataclass(frozen=True)
class Weights:
    """Lower and upper bounds on exp(score) [groups, rows, cells], shifted by one number per row."""

    lo: Array
    hi: Array


def weights(score_lo: Array, score_hi: Array, choices: Choices) -> Weights:
    """Return bounds on one head's weights from its scores [kinds, cells], shifted by the largest score of each row."""
    kinds = [group.kind for group in choices.groups]
    low, high = score_lo[kinds][:, None], score_hi[kinds][:, None]
    shift = np.where(choices.free, high, -np.inf).max((0, 2), keepdims=True)
    shift = np.where(np.isfinite(shift), shift, 0.0)
    return Weights(
        exp_below(np.minimum(down(low - shift), 0.0)), exp_above(np.where(choices.free, up(high - shift), -700.0))
    )


def g(c: Array, tops: Tops, choices: Choices, a: Weights) -> tuple[Array, Array]:
    """Return g at c[rows], rounded upward, and minus its slope (a float, used only for Newton's step).

    The value −∞ means that no sequence belongs to the row.
    """
    free, weight = _largest(tops.free, c, a, choices.free)
    counts = np.array([group.count for group in choices.groups], dtype=float)[:, None]
    value, slope = np.zeros(free.shape[1]), np.zeros(free.shape[1])
    for count, part, w in zip(counts, free, weight, strict=True):
        value, slope = up(value + up(count * part)), slope + count * w
    if choices.first is None:
        return value, slope
    first, w1 = _largest(tops.first, c, a, choices.first)
    gain, change = up(first - free), w1 - weight  # free is finite wherever first is
    if choices.second is None:
        k = gain.argmax(0)
        return up(value + _at(gain, k)), slope + _at(change, k)
    assert choices.both is not None
    second, w2 = _largest(tops.second, c, a, choices.second)
    both, w_both = _largest(tops.both, c, a, choices.both)
    gain2, change2 = up(second - free), w2 - weight
    k = up(both - free).argmax(0)
    best, slope_change = _at(up(both - free), k), _at(w_both - weight, k)
    for i in range(len(counts)):
        for j in range(len(counts)):
            if i != j or choices.groups[i].count > 1:
                pair = up(gain[i] + gain2[j])
                better = pair > best
                best = np.where(better, pair, best)
                slope_change = np.where(better, change[i] + change2[j], slope_change)
    return up(value + best), slope + slope_change


def _at(x: Array, k: NDArray[np.intp]) -> Array:
    return np.take_along_axis(x, k[None], 0)[0]


def _largest(p: Array, c: Array, a: Weights, mask: Mask) -> tuple[Array, Array]:
    """Return the largest a·(p − c) over the cells of a mask, and the weight there: [groups, rows]."""
    gap = up(p - c[:, None])
    weight = np.where(gap > 0, a.hi, a.lo)
    value = np.where(mask, up(gap * weight), -np.inf)
    k = value.argmax(-1)[..., None]
    weight = np.broadcast_to(weight, value.shape)
    return np.take_along_axis(value, k, -1)[..., 0], np.take_along_axis(weight, k, -1)[..., 0]


def bound(tops: Tops, choices: Choices, a: Weights, *, joint: bool) -> Array:
    """Return upper bounds c[rows] on w·o − γ·z, with g(c) ≤ 0 proved; if `joint`, all rows get the largest bound.

    Since g is convex and decreasing, a Newton step from anywhere ends at or below the root. The iteration starts from
    the largest p and then climbs, with a growing margin, until the evaluation rounded outward shows g ≤ 0. If that
    fails, the answer is the largest p, since no average exceeds all of its values. The bound is −∞ for a row to which
    no sequence belongs.
    """
    rows = max(tops.free.shape[1], choices.free.shape[1])
    lowest = np.where(choices.free, tops.free, np.inf).min((0, 2))
    highest = np.where(choices.free, tops.free, -np.inf).max((0, 2))
    for top, mask in ((tops.first, choices.first), (tops.second, choices.second), (tops.both, choices.both)):
        if mask is not None:
            highest = np.maximum(highest, np.where(mask, top, -np.inf).max((0, 2)))
    highest, lowest = np.broadcast_to(highest, rows).copy(), np.broadcast_to(lowest, rows).copy()
    usable, empty = np.isfinite(highest), highest == -np.inf
    answer, c = np.where(usable | empty, -np.inf, np.inf), np.where(usable, highest, 0.0)  # overflow proves nothing
    scale = np.where(usable, np.abs(highest) + np.abs(lowest), 1.0) + 1e-300
    index, margin = np.flatnonzero(usable), 1e-12
    with np.errstate(all="ignore"):
        for step in range(MAX_NEWTON_STEPS):
            if not len(index):
                break
            found, slope = g(
                c[index], _select_tops(tops, index), _select_rows(choices, index), _select_weights(a, index)
            )
            possible = found > -np.inf
            proved = (found <= 0) & ((step > 0) | (c[index] <= lowest[index])) & possible
            answer[index[proved]] = c[index[proved]]
            newton = np.nan_to_num(c[index] + found / slope, nan=np.inf)
            unfinished = possible & ~proved
            index, newton = index[unfinished], newton[unfinished]
            if not len(index):
                break
            c[index] = np.minimum(np.maximum(newton, lowest[index]) + margin * scale[index], highest[index])
            if joint:
                c[index] = np.minimum(c[index].max(), highest[index])
            if step:
                margin *= 4
    answer[index] = highest[index]
    return np.full(rows, answer.max()) if joint else answer


def _select_tops(tops: Tops, index: NDArray[np.intp]) -> Tops:
    return Tops(*(t if t.shape[1] == 1 else t[:, index] for t in (tops.free, tops.first, tops.second, tops.both)))


def _select_rows(choices: Choices, index: NDArray[np.intp]) -> Choices:
    if choices.free.shape[1] == 1:
        return choices
    cut = [None if m is None else m[:, index] for m in (choices.free, choices.first, choices.second, choices.both)]
    assert cut[0] is not None
    return Choices(choices.groups, cut[0], *cut[1:])


def _select_weights(a: Weights, index: NDArray[np.intp]) -> Weights:
    return a if a.hi.shape[1] == 1 else Weights(a.lo[:, index], a.hi[:, index])
