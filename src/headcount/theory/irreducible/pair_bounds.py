"""Pairs of boxes of sequences: how far apart the targets of two sequences with equal attention outputs can be there.

For X in the first box and X' in the second, with o(X) = o(X'), and for any multipliers λ and μ ≥ 0,

    H(X) − H(X') ≤ Γ·z − Γ'·z' + rest + λ·(o(X) − o(X')) + Σ μ_jt·(f_j(x(t)) − z_j),

z_j being the least f_j(x(t)). A minimum with a negative weight is f_j of one token, so every token that can be the
least one is tried; one with a positive weight may be replaced by any average of the f_j(x(t)), which μ chooses. The
right side is affine in the coordinates ξ of the pair up to remainders of second order: linear parts cancel, so that the
bound is exact to second order where collisions are transversal. The multipliers come from a small linear program
in floats (`dual_simplex`); what they prove is evaluated in interval arithmetic, whatever they are.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from headcount.tasks import GeneralizedRetrieval
from headcount.tasks.expressions import Node
from headcount.theory.certify.token_cells import Folded, function_forms, sum_up
from headcount.theory.enclose.expressions import slopes
from headcount.theory.enclose.intervals import Array, Interval, down, interval, matmul, total, up
from headcount.theory.irreducible.affine_forms import heads_on, outputs_near, target_forms
from headcount.theory.irreducible.dual_simplex import multipliers
from headcount.theory.irreducible.injective import injective
from headcount.theory.irreducible.rows import Mask, Ranks, Rows, programs, sides, signed, stack_rows

MAX_MEAN_CHOICES = 24  # of minimising tokens, on average over a batch
MAX_SIMPLEX_STEPS = 200


@dataclass(frozen=True)
class Examined:
    """What is left of pairs of boxes: bounds, the boxes that hold all that matters, and the coordinate to cut."""

    value: Array  # [P]; −∞: no two sequences collide there
    low: Array  # [P, 2, T, dim]
    high: Array
    cost: Array  # [P, 2, T, dim]


class PairBounds:
    """Bounds over pairs of boxes for one model, task and output; places: positions that are alike, sorted."""

    def __init__(self, model: Folded, task: GeneralizedRetrieval, output: int, places: list[list[int]]) -> None:
        self.model, self.task, self.output, self.places = model, task, output, places
        self.member = np.array([[t in s for t in range(task.length)] for s in task.S])  # [D, T]

    def examine(self, low: Array, high: Array, target: float) -> Examined:
        """Bound H(X) − H(X') on pairs of boxes [P, 2, T, dim]; points at most `target` apart may be cut off."""
        with np.errstate(all="ignore"):
            return self._examine(low, high, target)

    def _examine(self, low: Array, high: Array, target: float) -> Examined:
        P, _, T, dim = low.shape
        D = len(self.member)
        f = function_forms(self.task, low.reshape(-1, dim), high.reshape(-1, dim))
        f0, fR, f_lo, f_hi = (f[i].reshape(P, 2, T, D) for i in (0, 2, 3, 4))
        fJ = np.moveaxis(f[1].reshape(dim, P, 2, T, D), 0, 3)  # [P,2,T,dim,D]
        outside = ~self.member.T
        Z = Interval(np.where(outside, np.inf, f_lo).min(2), np.where(outside, np.inf, f_hi).min(2))  # [P,2,D]
        flat = Interval(Z.lo.reshape(2 * P, D), Z.hi.reshape(2 * P, D))
        gamma, rest, span = target_forms(self.task, self.output, flat)
        gamma, rest, span = gamma.reshape(P, 2, D), sides(rest), sides(span)
        weight = gamma * np.array([1.0, -1.0])[:, None]  # of z_j on each side
        apart = rest[:, 0] - rest[:, 1]
        value = np.where(np.isnan(span.lo + span.hi).any(1), np.inf, up(span.hi[:, 0] - span.lo[:, 1]))
        heads = heads_on(self.model, low.reshape(2 * P, T, dim), high.reshape(2 * P, T, dim))
        o = Interval(np.nan_to_num(heads.o.lo, nan=-np.inf), np.nan_to_num(heads.o.hi, nan=np.inf))
        o = sides(o)
        shared = Interval(o.lo.max(1), o.hi.min(1))  # [P, outputs]
        value = np.where((shared.lo > shared.hi).any(1), -np.inf, value)
        shared = Interval(np.minimum(shared.lo, shared.hi), np.maximum(shared.lo, shared.hi))
        c = shared.mid
        twice = Interval(np.repeat(shared.lo, 2, 0), np.repeat(shared.hi, 2, 0))
        near = outputs_near(heads, twice, np.repeat(c, 2, 0), self.model.head_dim)
        rows = stack_rows(near, f0, fJ, fR, P)
        can = (f_lo <= Z.hi[:, :, None]) & ~outside & self._first(low, high)
        value = self._diagonal(low, high, value, target)
        return self._combine(rows, weight, apart, Z, can, value, low, high, target)

    def _diagonal(self, low: Array, high: Array, value: Array, target: float) -> Array:
        """Where the two boxes overlap and no two different sequences of their hull collide, the gap is 0."""
        T, dim = low.shape[2:]
        if len(self.model.value.lo) < T * dim:
            return value
        k = np.flatnonzero((low.max(1) <= high.min(1)).all((1, 2)) & (value > max(target, 0.0)))
        if len(k):
            value = value.copy()
            value[k] = np.where(injective(self.model, low[k].min(1), high[k].max(1)), 0.0, value[k])
        return value

    def _first(self, low: Array, high: Array) -> Mask:
        """Which sorted tokens (dim 1) can have the least f_j: the first where it rises, the last where it falls."""
        P, _, T, dim = low.shape
        can = np.ones((P, 2, T, len(self.member)), dtype=bool)
        if dim > 1:
            return can
        for places in self.places:
            hull = Interval(low[:, :, places].min(2).reshape(-1), high[:, :, places].max(2).reshape(-1))
            for j, g in enumerate(self.task.f):
                assert isinstance(g, Node)
                slope = slopes(g, [hull])[0].gradient[0]
                for sure, last in ((slope.lo >= 0, places[0]), ((slope.hi <= 0) & (slope.lo < 0), places[-1])):
                    for t in places:
                        if t != last:
                            can[:, :, t, j] &= ~sure.reshape(P, 2)
        return can

    def _combine(
        self,
        rows: Rows,
        weight: Array,
        apart: Interval,
        Z: Interval,
        can: Mask,
        value: Array,
        low: Array,
        high: Array,
        target: float,
    ) -> Examined:
        """Try every choice of the minimising tokens: the largest bound counts, and the hull of what is left."""
        known = (rows.base.lo, rows.base.hi, rows.slope.lo, rows.slope.hi, weight, apart.lo, apart.hi)
        usable = np.logical_and.reduce([np.isfinite(x.reshape(len(value), -1)).all(1) for x in known])
        tried = usable & (value > target)
        pair, chosen = _choices(np.flatnonzero(tried), weight, can)
        if not len(pair):
            return Examined(value, low, high, np.ones(low.shape))
        bound, y, coef = self._solve(rows.at(pair), weight[pair], apart[pair], Z[pair], chosen)
        found = np.where(tried, -np.inf, value)
        np.maximum.at(found, pair, bound)
        left = bound > target
        start = (tried & (found > target))[:, None, None, None]
        new_low, new_high = np.where(start, np.inf, low), np.where(start, -np.inf, high)
        inner_low, inner_high = _contracted(low[pair[left]], high[pair[left]], bound[left], target, coef[left])
        np.minimum.at(new_low, pair[left], inner_low)
        np.maximum.at(new_high, pair[left], inner_high)
        cost, spread = np.zeros(low.shape), high - low
        worst = bound == found[pair]
        part = np.einsum("pr,prst->pst", np.abs(y), rows.loose[pair])[..., None] * spread[pair]
        cost[pair[worst]] = part[worst]
        return Examined(np.minimum(found, value), new_low, new_high, cost)

    def _solve(
        self, rows: Rows, weight: Array, apart: Interval, Z: Interval, chosen: Ranks
    ) -> tuple[Array, Array, Interval]:
        """Return bounds, the multipliers of all rows, and the slopes of the combination, for given choices."""
        T, m = self.task.length, rows.outputs
        places = np.arange(T)[:, None]
        fixed = np.where(chosen[:, :, None] == places, weight[:, :, None], 0.0)  # [n,2,T,D]
        averaged = (weight > 0)[:, :, None] & self.member.T  # rows of μ
        duals, rays, empty = multipliers(*programs(rows, weight, Z, fixed, averaged), MAX_SIMPLEX_STEPS)
        y = signed(duals, m, averaged.reshape(len(weight), -1))
        y[:, m:] += fixed.reshape(len(weight), -1)
        bound, coef = self._proved(rows, y, weight, Z)
        bound = up(bound + apart.hi)
        k = np.flatnonzero(empty)
        if len(k):  # a combination of the rows alone that is below 0: there is no collision
            ray = signed(rays[k], m, averaged[k].reshape(len(k), -1))
            alone, _ = self._proved(rows.at(k), ray, np.zeros_like(weight[k]), Z[k])
            bound[k] = np.where(alone < 0, -np.inf, bound[k])
        return bound, y, coef

    def _proved(self, rows: Rows, y: Array, weight: Array, Z: Interval) -> tuple[Array, Interval]:
        """An upper bound of Σ y·rows + (weight − Σ_t y_jt)·z over the pair, and the slopes."""
        n, (D, T) = len(y), self.member.shape
        base = matmul(y[:, None], rows.base[:, :, None])[:, 0, 0]
        coef = matmul(y[:, None], rows.slope)[:, 0]
        over = interval(weight) - total(interval(y[:, rows.outputs :].reshape(n, 2, T, D)), 2)
        rest = total(total(over * Z, 2), 1)
        size = coef.size
        return sum_up([base.hi, rest.hi, *(size[:, k] for k in range(size.shape[1]))]), coef


def _choices(pair: Ranks, weight: Array, can: Mask) -> tuple[Ranks, Ranks]:
    """For all minima with negative weight all tokens that can be least: pairs [n] and tokens [n, 2, D], −1 for none."""
    D, T = weight.shape[2], can.shape[2]
    chosen, most = np.full((len(pair), 2, D), -1), MAX_MEAN_CHOICES * len(pair)
    for s, j in itertools.product(range(2), range(D)):
        negative = weight[pair, s, j] < 0
        some = can[pair, s, :, j]
        if np.where(negative, some.sum(1), 1).sum() > most:
            continue  # too many: this minimum keeps its range
        kept = [(np.flatnonzero(~negative), -1)] + [(np.flatnonzero(negative & some[:, t]), t) for t in range(T)]
        grown: list[Ranks] = []
        for index, t in kept:
            part = chosen[index]
            part[:, s, j] = t
            grown.append(part)
        pair, chosen = np.concatenate([pair[index] for index, _ in kept]), np.concatenate(grown)
    return pair, chosen


def _contracted(low: Array, high: Array, bound: Array, target: float, coef: Interval) -> tuple[Array, Array]:
    """Cut off what is at most the target: coef·ξ_k ≥ |coef| − (bound − target) for every coordinate ξ_k."""
    box = Interval(low, high)
    mid = coef.mid
    enough = down(down(coef.size - coef.rad) - up(bound - target)[:, None])
    with np.errstate(all="ignore"):
        xi = np.where(mid != 0, down(enough / np.abs(mid)), -1.0)
    xi = np.clip(np.nan_to_num(xi, nan=-1.0), -1.0, 1.0).reshape(low.shape)
    rise = (mid > 0).reshape(low.shape)
    moved = interval(box.rad) * xi
    new_low = np.where(rise & (xi > -1), np.maximum(low, (moved + box.mid).lo), low)
    new_high = np.where(~rise & (xi > -1), np.minimum(high, (-moved + box.mid).hi), high)
    return np.minimum(new_low, high), np.maximum(new_high, low)
