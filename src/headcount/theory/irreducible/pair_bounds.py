"""How far apart the targets of two sequences with equal attention outputs can be: bounds over pairs of boxes.

For X in the first box and X' in the second, with o(X) = o(X'), and for any multipliers λ and μ ≥ 0,

    H(X) − H(X') ≤ Γ·z − Γ'·z' + rest + λ·(o(X) − o(X')) + Σ μ_jt·(f_j(x(t)) − z_j),

where z_j is the minimum of the f_j(x(t)). A minimum with a negative weight is f_j of one token, so every token that can
attain it is tried. A minimum with a positive weight may be replaced by an average of the f_j(x(t)), chosen by μ. The
right side is affine in the coordinates ξ of the pair, up to remainders of second order. Linear parts cancel, so the
bound is exact to second order where collisions are transversal. The multipliers come from a small linear program in
floats (`dual_simplex`); whatever they are, the bound that they prove is computed in interval arithmetic.
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
from headcount.theory.irreducible.affine_forms import enclose_heads, expand_outputs, target_forms
from headcount.theory.irreducible.dual_simplex import multipliers
from headcount.theory.irreducible.injective import proved_injective
from headcount.theory.irreducible.rows import (
    Indices,
    Mask,
    Rows,
    function_multipliers,
    linear_programs,
    split_sides,
    stack_rows,
)

MAX_MEAN_CHOICES = 24  # choices of minimising tokens per pair of boxes, on average over a batch
MAX_SIMPLEX_STEPS = 200


@dataclass(frozen=True)
class PairResults:
    """Bounds over pairs of boxes, the boxes shrunk to what may exceed the target, and the cost of each coordinate."""

    value: Array  # [P]; −∞: no two sequences of the pair collide
    low: Array  # [P, 2, T, dim]
    high: Array
    cost: Array  # [P, 2, T, dim], what the coordinate adds to the remainders


class PairBounds:
    """Computes bounds over pairs of boxes for one model, task and output.

    sorted_groups: groups of interchangeable positions, at which all sequences are sorted.
    """

    def __init__(self, model: Folded, task: GeneralizedRetrieval, output: int, sorted_groups: list[list[int]]) -> None:
        self.model, self.task, self.output, self.sorted_groups = model, task, output, sorted_groups
        self.member = np.array([[t in s for t in range(task.length)] for s in task.S])  # [D, T]

    def examine(self, low: Array, high: Array, target: float) -> PairResults:
        """Bound H(X) − H(X') on pairs of boxes [P, 2, T, dim]; points at most `target` apart may be cut off."""
        with np.errstate(all="ignore"):
            return self._examine(low, high, target)

    def _examine(self, low: Array, high: Array, target: float) -> PairResults:
        P, _, T, dim = low.shape
        D = len(self.member)
        f = function_forms(self.task, low.reshape(-1, dim), high.reshape(-1, dim))
        f0, fR, f_lo, f_hi = (f[i].reshape(P, 2, T, D) for i in (0, 2, 3, 4))
        fJ = np.moveaxis(f[1].reshape(dim, P, 2, T, D), 0, 3)  # [P,2,T,dim,D]
        outside = ~self.member.T
        Z = Interval(np.where(outside, np.inf, f_lo).min(2), np.where(outside, np.inf, f_hi).min(2))  # [P,2,D]
        flat = Interval(Z.lo.reshape(2 * P, D), Z.hi.reshape(2 * P, D))
        gamma, rest, span = target_forms(self.task, self.output, flat)
        gamma, rest, span = gamma.reshape(P, 2, D), split_sides(rest), split_sides(span)
        weight = gamma * np.array([1.0, -1.0])[:, None]  # of z_j on each side
        constant = rest[:, 0] - rest[:, 1]
        value = np.where(np.isnan(span.lo + span.hi).any(1), np.inf, up(span.hi[:, 0] - span.lo[:, 1]))
        heads = enclose_heads(self.model, low.reshape(2 * P, T, dim), high.reshape(2 * P, T, dim))
        o = Interval(np.nan_to_num(heads.o.lo, nan=-np.inf), np.nan_to_num(heads.o.hi, nan=np.inf))
        o = split_sides(o)
        shared = Interval(o.lo.max(1), o.hi.min(1))  # [P, outputs]
        value = np.where((shared.lo > shared.hi).any(1), -np.inf, value)
        shared = Interval(np.minimum(shared.lo, shared.hi), np.maximum(shared.lo, shared.hi))
        c = shared.mid
        shared_twice = Interval(np.repeat(shared.lo, 2, 0), np.repeat(shared.hi, 2, 0))
        output_forms = expand_outputs(heads, shared_twice, np.repeat(c, 2, 0), self.model.head_dim)
        rows = stack_rows(output_forms, f0, fJ, fR, P)
        candidates = (f_lo <= Z.hi[:, :, None]) & ~outside & self._minimiser_candidates(low, high)
        value = self._zero_where_injective(low, high, value, target)
        return self._try_choices(rows, weight, constant, Z, candidates, value, low, high, target)

    def _zero_where_injective(self, low: Array, high: Array, value: Array, target: float) -> Array:
        """Return the bounds, or 0 where the two boxes overlap and no two different sequences of their hull collide."""
        T, dim = low.shape[2:]
        if len(self.model.value.lo) < T * dim:
            return value
        k = np.flatnonzero((low.max(1) <= high.min(1)).all((1, 2)) & (value > max(target, 0.0)))
        if len(k):
            value = value.copy()
            value[k] = np.where(proved_injective(self.model, low[k].min(1), high[k].max(1)), 0.0, value[k])
        return value

    def _minimiser_candidates(self, low: Array, high: Array) -> Mask:
        """Return which tokens can have the smallest f_j.

        Of sorted tokens of dim 1, it is the first one if f_j rises on all of them, and the last one if f_j falls.
        """
        P, _, T, dim = low.shape
        candidates = np.ones((P, 2, T, len(self.member)), dtype=bool)
        if dim > 1:
            return candidates
        for group in self.sorted_groups:
            hull = Interval(low[:, :, group].min(2).reshape(-1), high[:, :, group].max(2).reshape(-1))
            for j, g in enumerate(self.task.f):
                assert isinstance(g, Node)
                slope = slopes(g, [hull])[0].gradient[0]
                for monotone, minimiser in (
                    (slope.lo >= 0, group[0]),
                    ((slope.hi <= 0) & (slope.lo < 0), group[-1]),
                ):
                    for t in group:
                        if t != minimiser:
                            candidates[:, :, t, j] &= ~monotone.reshape(P, 2)
        return candidates

    def _try_choices(
        self,
        rows: Rows,
        weight: Array,
        constant: Interval,
        Z: Interval,
        candidates: Mask,
        value: Array,
        low: Array,
        high: Array,
        target: float,
    ) -> PairResults:
        """Try all choices of minimising tokens: keep the largest bound, and the hull of the boxes that are left."""
        numbers = (rows.base.lo, rows.base.hi, rows.slope.lo, rows.slope.hi, weight, constant.lo, constant.hi)
        usable = np.logical_and.reduce([np.isfinite(x.reshape(len(value), -1)).all(1) for x in numbers])
        tried = usable & (value > target)
        pair, chosen = _minimiser_choices(np.flatnonzero(tried), weight, candidates)
        if not len(pair):
            return PairResults(value, low, high, np.ones(low.shape))
        bound, y, coef = self._solve(rows.select(pair), weight[pair], constant[pair], Z[pair], chosen)
        found = np.where(tried, -np.inf, value)
        np.maximum.at(found, pair, bound)
        left = bound > target
        start = (tried & (found > target))[:, None, None, None]
        new_low, new_high = np.where(start, np.inf, low), np.where(start, -np.inf, high)
        inner_low, inner_high = _contract(low[pair[left]], high[pair[left]], bound[left], target, coef[left])
        np.minimum.at(new_low, pair[left], inner_low)
        np.maximum.at(new_high, pair[left], inner_high)
        cost, spread = np.zeros(low.shape), high - low
        worst = bound == found[pair]
        part = np.einsum("pr,prst->pst", np.abs(y), rows.remainders[pair])[..., None] * spread[pair]
        cost[pair[worst]] = part[worst]
        return PairResults(np.minimum(found, value), new_low, new_high, cost)

    def _solve(
        self, rows: Rows, weight: Array, constant: Interval, Z: Interval, chosen: Indices
    ) -> tuple[Array, Array, Interval]:
        """Return the bounds, the multipliers of all rows, and the slopes of the combination, for given choices."""
        T, m = self.task.length, rows.outputs
        positions = np.arange(T)[:, None]
        fixed = np.where(chosen[:, :, None] == positions, weight[:, :, None], 0.0)  # [n,2,T,D]
        averaged = (weight > 0)[:, :, None] & self.member.T  # the rows that μ averages
        duals, rays, empty = multipliers(*linear_programs(rows, weight, Z, fixed, averaged), MAX_SIMPLEX_STEPS)
        y = function_multipliers(duals, m, averaged.reshape(len(weight), -1))
        y[:, m:] += fixed.reshape(len(weight), -1)
        bound, coef = self._proved_bound(rows, y, weight, Z)
        bound = up(bound + constant.hi)
        k = np.flatnonzero(empty)
        if len(k):  # a combination of the rows alone is below 0: no collision
            ray = function_multipliers(rays[k], m, averaged[k].reshape(len(k), -1))
            alone, _ = self._proved_bound(rows.select(k), ray, np.zeros_like(weight[k]), Z[k])
            bound[k] = np.where(alone < 0, -np.inf, bound[k])
        return bound, y, coef

    def _proved_bound(self, rows: Rows, y: Array, weight: Array, Z: Interval) -> tuple[Array, Interval]:
        """Return a proved upper bound on Σ y·rows + (weight − Σ_t y_jt)·z over the pair, and its slopes."""
        n, (D, T) = len(y), self.member.shape
        base = matmul(y[:, None], rows.base[:, :, None])[:, 0, 0]
        coef = matmul(y[:, None], rows.slope)[:, 0]
        over = interval(weight) - total(interval(y[:, rows.outputs :].reshape(n, 2, T, D)), 2)
        rest = total(total(over * Z, 2), 1)
        size = coef.size
        return sum_up([base.hi, rest.hi, *(size[:, k] for k in range(size.shape[1]))]), coef


def _minimiser_choices(pair: Indices, weight: Array, candidates: Mask) -> tuple[Indices, Indices]:
    """Return all choices of minimising tokens for the minima with negative weight: pairs [n] and tokens [n, 2, D].

    The token is −1 where none is chosen.
    """
    D, T = weight.shape[2], candidates.shape[2]
    chosen, max_choices = np.full((len(pair), 2, D), -1), MAX_MEAN_CHOICES * len(pair)
    for s, j in itertools.product(range(2), range(D)):
        negative = weight[pair, s, j] < 0
        allowed = candidates[pair, s, :, j]
        if np.where(negative, allowed.sum(1), 1).sum() > max_choices:
            continue  # too many choices: this minimum keeps its range
        branches = [(np.flatnonzero(~negative), -1)] + [(np.flatnonzero(negative & allowed[:, t]), t) for t in range(T)]
        parts: list[Indices] = []
        for index, t in branches:
            part = chosen[index]
            part[:, s, j] = t
            parts.append(part)
        pair, chosen = np.concatenate([pair[index] for index, _ in branches]), np.concatenate(parts)
    return pair, chosen


def _contract(low: Array, high: Array, bound: Array, target: float, coef: Interval) -> tuple[Array, Array]:
    """Cut off points where the bound is at most the target: keep coef·ξ_k ≥ |coef| − (bound − target) for every k."""
    box = Interval(low, high)
    mid = coef.mid
    threshold = down(down(coef.size - coef.rad) - up(bound - target)[:, None])
    with np.errstate(all="ignore"):
        xi = np.where(mid != 0, down(threshold / np.abs(mid)), -1.0)
    xi = np.clip(np.nan_to_num(xi, nan=-1.0), -1.0, 1.0).reshape(low.shape)
    rising = (mid > 0).reshape(low.shape)
    moved = interval(box.rad) * xi
    new_low = np.where(rising & (xi > -1), np.maximum(low, (moved + box.mid).lo), low)
    new_high = np.where(~rising & (xi > -1), np.minimum(high, (-moved + box.mid).hi), high)
    return np.minimum(new_low, high), np.maximum(new_high, low)
