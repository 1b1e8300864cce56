"""Branch and bound over boxes of all tokens, for few tokens and for heads that cancel each other.

The bound over minima (`over_minima`) adds the suprema of heads, which share tokens: where trained heads cancel, that is
far too much. On a box of T tokens, x(t) = m + r∘ξ(t), everything is expanded to second order, all heads together:

    w_i·o_i = c_i + N_i/A_i,   N_i = Σ_t a_i(t)·(w_i·v_i(t) − c_i),   A_i = Σ_t a_i(t),   c_i any number;
    N_i/A_i = μ_i·N_i + (N_i/A_i)·(1 − μ_i·A_i),                       μ_i any number, near 1/A_i.

The last term is a product of two ranges that shrink with the box, N_i/A_i = w_i·o_i − c_i by the root of g(c). N_i is
a sum over tokens, and a(x) = a(m)·(1 + σ + ρ) with σ the affine score and 0 ≤ ρ ≤ e^σ̄ − 1 − σ̄, |σ| ≤ σ̄, makes each
term affine in ξ plus a small remainder. So y − H is one affine function of all ξ(t), for each choice of the tokens at
which the minima may be taken, where z_j = f_j(x(t_j)), affine too: the linear parts cancel, and the error is second
order in the box. Where the boxes are large the sum of the heads' own ranges is better; the smaller of both is taken.

Positions that are alike may be sorted by their first coordinate: boxes without a sorted sequence are dropped.
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from headcount.tasks import GeneralizedRetrieval
from headcount.tasks.expressions import Node
from headcount.theory.certify.relax import relax
from headcount.theory.certify.token_cells import Folded, function_forms, sum_up, token_forms
from headcount.theory.enclose.expressions import slopes
from headcount.theory.enclose.head import Choices, Group, Tops, Weights, bound
from headcount.theory.enclose.intervals import Array, Interval, down, exp_above, exp_below, interval, matmul, total, up

BOXES_PER_STEP = 192
MAX_CHOICES = 300  # of minimising tokens
MAX_SCORE_VARIATION = 20.0  # scores that vary more on a box are not expanded


class TokenBoxes:
    """The boxes that are left, each with a proved bound on |y − H|."""

    def __init__(
        self,
        model: Folded,
        task: GeneralizedRetrieval,
        low: Array,
        high: Array,
        mean: Array,
        std: Array,
        placed: bool,
    ) -> None:
        self.model, self.task, self.mean, self.std = model, task, mean, std
        self.groups = [] if placed else _alike(task)
        T = task.length
        self.low, self.high = np.repeat(low[None, None], T, 1), np.repeat(high[None, None], T, 1)
        self.whole = np.maximum(high - low, 1e-300)
        self.member = np.array([[t in s for t in range(T)] for s in task.S])  # [D, T]
        self.values, self.axes = self.examine(self.low, self.high)
        self.boxes, self.settled, self.stuck = 1, 0.0, False

    @property
    def bound(self) -> float:
        """The proved bound."""
        return max(float(self.values.max(initial=0.0)), self.settled)

    @property
    def left(self) -> int:
        """The number of boxes that are not settled."""
        return len(self.values)

    def step(self, target: float) -> None:
        """Split the worst boxes; boxes with a bound of at most the target are settled and dropped."""
        count = min(BOXES_PER_STEP, len(self.values))
        pick = np.argpartition(-self.values, count - 1)[:count]
        low, high, axes, above = self.low[pick], self.high[pick], self.axes[pick], self.values[pick]
        rows, t, k = np.arange(count), axes // low.shape[2], axes % low.shape[2]
        middle = 0.5 * low[rows, t, k] + 0.5 * high[rows, t, k]
        if not ((low[rows, t, k] < middle) & (middle < high[rows, t, k])).all():
            self.stuck = True
            return
        lows, highs = np.tile(low, (2, 1, 1)), np.tile(high, (2, 1, 1))
        highs[rows, t, k] = middle
        lows[count + rows, t, k] = middle
        keep = self._sort(lows, highs)
        lows, highs = lows[keep], highs[keep]
        values, axes = self.examine(lows, highs)
        values = np.minimum(values, np.concatenate([above, above])[keep])
        rest = np.ones(len(self.values), dtype=bool)
        rest[pick] = False
        self.low, self.high = np.concatenate([self.low[rest], lows]), np.concatenate([self.high[rest], highs])
        self.values, self.axes = np.concatenate([self.values[rest], values]), np.concatenate([self.axes[rest], axes])
        self.boxes += len(values)
        if (done := self.values <= target).any():
            self.settled = max(self.settled, float(self.values[done].max()))
            self.low, self.high = self.low[~done], self.high[~done]
            self.values, self.axes = self.values[~done], self.axes[~done]

    def _sort(self, low: Array, high: Array) -> NDArray[np.bool_]:
        """Tighten boxes, in place, to sequences sorted over positions that are alike; return which boxes have any."""
        for places in self.groups:
            for s, t in itertools.pairwise(places):
                low[:, t, 0] = np.maximum(low[:, t, 0], low[:, s, 0])
            for s, t in itertools.pairwise(places[::-1]):
                high[:, t, 0] = np.minimum(high[:, t, 0], high[:, s, 0])
        return np.asarray((low <= high).all((1, 2)))

    def examine(self, low: Array, high: Array) -> tuple[Array, NDArray[np.intp]]:
        """Return bounds on max_k |y_k − H_k| on boxes [boxes, T, dim], and the coordinate to cut in each."""
        if not len(low):
            return np.zeros(0), np.zeros(0, dtype=np.intp)
        with np.errstate(all="ignore"):
            return self._examine(low, high)

    def _examine(self, low: Array, high: Array) -> tuple[Array, NDArray[np.intp]]:
        K, T, dim = low.shape
        h, n = self.model.heads, self.model.head_dim
        kinds = self.model.bias.lo.shape[0]
        flat = (
            [(0, low.reshape(-1, dim), high.reshape(-1, dim))]
            if kinds == 1
            else [(t, low[:, t], high[:, t]) for t in range(T)]
        )
        parts = [token_forms(self.model, *part) for part in flat]

        def gather(index: int) -> Interval:
            ends: list[Array] = []
            for side in ("lo", "hi"):
                arrays = [getattr(p[index], side) for p in parts]
                shape = arrays[0].shape[1:]
                ends.append(arrays[0].reshape(K, T, *shape) if kinds == 1 else np.stack(arrays, 1))
            return Interval(*ends)

        s, sJ, v, vJ = (gather(i) for i in range(4))  # s[K,T,h], sJ[K,T,dim,h], v[K,T,hn], vJ[K,T,dim,hn]
        swing = sum_up([sJ.size[:, :, k] for k in range(dim)])
        bottom, top = down(s.lo - swing), up(s.hi + swing)
        most = top.max(1, keepdims=True)  # one shift per head, which leaves the softmax unchanged
        a = Weights(exp_below(down(bottom - most)), exp_above(up(top - most)))  # [K,T,h]
        s = s - s.hi.max(1, keepdims=True)
        o = self._outputs(v, vJ, a)
        L, rest = relax(self.model, o, self.mean, self.std)
        f = function_forms(self.task, low.reshape(-1, dim), high.reshape(-1, dim))
        f0, fR, f_lo, f_hi = (f[i].reshape(K, T, -1) for i in (0, 2, 3, 4))
        fJ = np.moveaxis(f[1].reshape(dim, K, T, -1), 0, 2)  # [K,T,dim,D]
        Z = Interval(_least(f_lo, self.member), _least(f_hi, self.member))
        Gamma, rest_H = self._target(Z)
        best, cost = np.full(K, -np.inf), np.zeros((K, T, dim))
        for k in range(L.shape[1]):
            w = L[:, k].reshape(K, h, n)
            sums = _Linear(w, s, sJ, v, vJ, a, swing)
            tail = rest[:, k] - rest_H[:, k]
            for sign in (1.0, -1.0):
                value = sums.upper(sign)
                alone, joint = self._difference(value, sign * Gamma[:, k], f0, fJ, fR, f_lo, Z)
                edge = tail.hi if sign > 0 else -tail.lo
                best = np.maximum(best, up(np.minimum(alone, joint) + edge))
            gross = np.abs(Gamma[:, k])[:, None, None] * np.abs(fJ)
            cost = np.maximum(cost, sums.gross + gross.sum(-1))
        cost = np.nan_to_num(cost) + 1e-9 * (high - low) / self.whole  # where nothing seems to matter, the longest side
        known = [x.reshape(K, -1) for part in (s, sJ, v, vJ) for x in (part.lo, part.hi)]
        known += [x.reshape(K, -1) for x in (f0, fJ, fR, f_lo, f_hi, L, Gamma)]
        sound = np.logical_and.reduce([np.isfinite(x).all(1) for x in known]) & ~np.isnan(best)
        return np.where(sound, best, np.inf), cost.reshape(K, -1).argmax(1)  # overflow proves nothing

    def _outputs(self, v: Interval, vJ: Interval, a: Weights) -> Interval:
        """The box of all heads' outputs: coordinate by coordinate the root of g(c)."""
        reach = sum_up([vJ.size[:, :, k] for k in range(vJ.lo.shape[2])])
        low, high = down(v.lo - reach), up(v.hi + reach)  # [K,T,hn]
        n = self.model.head_dim
        spread = Weights(np.repeat(a.lo, n, 2), np.repeat(a.hi, n, 2))
        top, bottom = roots(high, spread), -roots(-low, spread)
        return Interval(np.minimum(bottom, top), top)

    def _target(self, Z: Interval) -> tuple[Array, Interval]:
        """H = Γ·z + rest on every box: Γ[K,out,D], rest[K,out]."""
        assert isinstance(self.task.F0, Node)
        sides = [Z[:, j] for j in range(Z.lo.shape[1])]
        middle = [interval(z.mid) for z in sides]
        Gamma: list[Array] = []
        rests: list[Interval] = []
        for whole, at in zip(slopes(self.task.F0, sides), slopes(self.task.F0, middle), strict=True):
            rest = at.value
            for slope, z, m in zip(whole.gradient, sides, middle, strict=True):
                gamma = interval(slope.mid)
                rest = rest - gamma * m + (slope - gamma) * (z - m)
            Gamma.append(np.stack([slope.mid for slope in whole.gradient], 1))
            rests.append(rest)
        return np.stack(Gamma, 1), Interval(np.stack([r.lo for r in rests], 1), np.stack([r.hi for r in rests], 1))

    def _difference(
        self,
        value: tuple[Array, Interval, Array],
        Gamma: Array,
        f0: Array,
        fJ: Array,
        fR: Array,
        f_lo: Array,
        Z: Interval,
    ) -> tuple[Array, Array]:
        """Upper bounds of Σ w·o − Γ·z: by the heads' own ranges, and by the affine form with every choice of tokens."""
        alone, slope, rest = value
        alone = up(alone + total(-interval(Gamma) * Z, 1).hi)
        D, T = self.member.shape
        joint = np.full(len(alone), -np.inf)
        places = [np.flatnonzero(self.member[j]) for j in range(D)]
        if np.prod([float(len(p)) for p in places]) > MAX_CHOICES:
            plain = sum_up([slope.size[:, t, k] for t in range(T) for k in range(slope.lo.shape[2])])
            return alone, up(up(rest + plain) + total(-interval(Gamma) * Z, 1).hi)
        can = f_lo <= Z.hi[:, None]  # [K,T,D]: the minimum j may be taken at t
        turned = interval(Gamma[:, None, None, :]) * fJ  # [K,T,dim,D]
        shift = -(interval(Gamma[:, None]) * Interval(down(f0 - fR), up(f0 + fR)))  # [K,T,D]
        for choice in itertools.product(*places):
            possible = np.logical_and.reduce([can[:, t, j] for j, t in enumerate(choice)])
            if not possible.any():
                continue
            size = rest
            for t in range(T):
                part = slope[:, t]
                for j in range(D):
                    if choice[j] == t:
                        part = part - turned[:, t, :, j]
                size = sum_up([size, *(part.size[:, k] for k in range(part.lo.shape[1]))])
            for j, t in enumerate(choice):
                size = up(size + shift.hi[:, t, j])
            joint = np.where(possible, np.maximum(joint, size), joint)
        return alone, joint


class _Linear:
    """Σ_i w_i·o_i on boxes: the heads' own ranges, and an affine function of all tokens with a remainder."""

    def __init__(
        self, w: Array, s: Interval, sJ: Interval, v: Interval, vJ: Interval, a: Weights, swing: Array
    ) -> None:
        K, h, n = w.shape
        T, dim = sJ.lo.shape[1:3]
        column = np.zeros((K, h * n, h))
        for i in range(h):
            column[:, i * n : i * n + n, i] = w[:, i]
        q = matmul(v, column)  # [K,T,h]
        qJ = matmul(Interval(vJ.lo.reshape(K, T * dim, -1), vJ.hi.reshape(K, T * dim, -1)), column)
        qJ = Interval(qJ.lo.reshape(K, T, dim, h), qJ.hi.reshape(K, T, dim, h))
        reach = sum_up([qJ.size[:, :, k] for k in range(dim)])  # δ̄
        self.top = roots(up(q.hi + reach), a)  # [K,h]
        self.bottom = -roots(-down(q.lo - reach), a)
        at = interval(s.mid)
        near = at.exp()  # a(m), with s.rad left to σ
        weight = near.mid / near.mid.sum(1, keepdims=True)
        c = (weight * q.mid).sum(1)  # [K,h]: any number
        mu = interval(1.0 / near.mid.sum(1))  # [K,h]: any number
        sigma = up(swing + s.rad)
        self.sure = (sigma <= MAX_SCORE_VARIATION).all(
            (1, 2)
        )  # else the expansion is of no use, and its numbers may overflow
        sigma = np.minimum(sigma, MAX_SCORE_VARIATION)
        A = total((at + _around(sigma)).exp(), 1)
        second = (Interval(self.bottom, self.top) - c) * (interval(1.0) - mu * A)  # (N/A)(1 − μA)
        d0 = q - c[:, None]
        rho = np.maximum((interval(sigma).exp() - 1.0 - sigma).hi, 0.0)
        loose = d0 * Interval(np.zeros_like(rho), rho) + _around(up(d0.size * s.rad))
        loose = loose + _around(up(reach * up(sigma + rho)))
        scaled = near * mu[:, None]
        term, slope = scaled * (d0 + loose), scaled[:, :, None] * (d0[:, :, None] * sJ + qJ)
        self.slope = total(slope, 3)  # [K,T,dim]
        self.rest = total(total(term, 1) + second + c, 1)  # [K]
        share = a.hi / (a.hi + a.lo.sum(1, keepdims=True) - a.lo)  # the most attention that a token can get
        reach_o = (self.top - self.bottom)[:, None, None]
        self.gross = (share[:, :, None] * (np.minimum(sJ.size, 1.0) * reach_o + qJ.size)).sum(-1)

    def upper(self, sign: float) -> tuple[Array, Interval, Array]:
        """For sign·Σ w·o: the sum of ranges, the slopes, and the constant with its remainder, from above."""
        ends = self.top if sign > 0 else -self.bottom
        alone = sum_up([ends[:, i] for i in range(ends.shape[1])])
        slope, rest = (self.slope, self.rest.hi) if sign > 0 else (-self.slope, -self.rest.lo)
        return alone, slope, np.where(self.sure, rest, np.inf)


def _alike(task: GeneralizedRetrieval) -> list[list[int]]:
    """Return the groups of positions that belong to the same index sets."""
    groups: dict[tuple[bool, ...], list[int]] = {}
    for t in range(task.length):
        groups.setdefault(tuple(t in s for s in task.S), []).append(t)
    return list(groups.values())


def roots(p: Array, a: Weights) -> Array:
    """Upper bounds of Σ a·p/Σ a over p ≤ the given and all weights between their bounds: [K,T,q] → [K,q]."""
    K, T, q = p.shape

    def rows(x: Array) -> Array:
        return np.moveaxis(x, 1, 0).reshape(T, K * q, 1)

    free = np.ones((T, K * q, 1), dtype=bool)
    choices = Choices([Group(1, 0)] * T, free, None, None, None)
    top = rows(p)
    return bound(Tops(top, top, top, top), choices, Weights(rows(a.lo), rows(a.hi)), joint=False).reshape(K, q)


def _around(x: Array) -> Interval:
    return Interval(-x, x)


def _least(f: Array, member: NDArray[np.bool_]) -> Array:
    """The least over t in S_j: [K,T,D] → [K,D]."""
    return np.where(member.T[None], f, np.inf).min(1)
