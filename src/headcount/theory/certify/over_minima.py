"""Branch and bound over the minima z = (z_1, …, z_D), not over tokens.

The cost does not grow with the number of tokens that are alike. For a cell Z of z-space, and for all sequences X with
z(X) in Z:

1. each head's output lies in a box, by the root of g(c) in the directions ±e_l (`enclose.head`);
2. on that box y = Σ_i w_i·o_i + e, e an interval, by relaxation of F (`relax`), and H = Σ_j Γ_j·z_j + e', by the mean
   value form of F0 on Z;
3. y − H ≤ Σ_i sup (w_i·o_i − Σ_j γ_ij·z_j) + sup(e − e') + the rest of Γ·z over Z: each head takes a part of every
   minimum that it follows, and the root of g(c) bounds the difference *jointly*, so that the linear parts cancel. Z is
   cut into rows for this (`over_minima_cells`). The same with signs reversed bounds H − y.

All cells with some sequence are covered, cells without any are dropped in step 1 or 3, and the largest bound left is
the certificate. The bound is loose because heads share tokens, while step 3 adds their suprema, and because cells have
width.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from headcount.core import generator
from headcount.models import SavedModel
from headcount.tasks import GeneralizedRetrieval
from headcount.tasks.expressions import Node
from headcount.theory.certify.over_minima_cells import View
from headcount.theory.certify.relax import relax
from headcount.theory.certify.token_cells import Cells, Folded, make_cells
from headcount.theory.enclose.expressions import slopes
from headcount.theory.enclose.head import Group
from headcount.theory.enclose.intervals import Array, Interval, interval, up

SIDES = {1: (128, 512, 2048), 2: (16, 32, 64), 3: (8, 12, 16), 4: (5, 7, 8)}  # cells per side, coarse to fine


@dataclass(order=True)
class _Box:
    """A cell of z-space, the worst first."""

    key: float
    tie: int
    low: Array = field(compare=False)
    high: Array = field(compare=False)
    axis: int = field(compare=False)


class LevelBoxes:
    """The cells of z-space that are left, each with a proved bound on |y − H| over the sequences with z in it."""

    def __init__(
        self,
        saved: SavedModel,
        model: Folded,
        task: GeneralizedRetrieval,
        low: Array,
        high: Array,
        mean: Array,
        std: Array,
        placed: bool,
        seed: int,
    ) -> None:
        self.model, self.task, self.low, self.high, self.mean, self.std = model, task, low, high, mean, std
        self.cells: dict[int, Cells] = {}
        self.groups, self.members = _groups(task, placed)
        self.follow = _follow(saved, task, low, high, seed)
        first = self.table(0)
        z_low, z_high = first.f_lo.min(0), first.f_hi.max(0)
        self.whole = np.maximum(z_high - z_low, 1e-300)
        self.boxes, self.ties, self.stuck, self.bound = 0, itertools.count(), False, np.inf
        self.heap: list[_Box] = []
        self._add(z_low, z_high, np.inf)
        self._settle()

    @property
    def left(self) -> int:
        """How many cells are left."""
        return len(self.heap)

    def table(self, level: int) -> Cells:
        """The table of token cells, made when first needed."""
        if level not in self.cells:
            side = SIDES[len(self.low)][level]
            self.cells[level] = make_cells(self.model, self.task, self.low, self.high, side)
        return self.cells[level]

    def step(self, target: float) -> None:  # noqa: ARG002
        """Split the worst cell."""
        worst = heapq.heappop(self.heap)
        k = worst.axis
        middle = 0.5 * worst.low[k] + 0.5 * worst.high[k]
        if not worst.low[k] < middle < worst.high[k] or worst.high[k] - worst.low[k] < 1e-7 * self.whole[k]:
            heapq.heappush(self.heap, worst)
            self.stuck = True
            return
        for part in (0, 1):  # both halves hold the middle
            low, high = worst.low.copy(), worst.high.copy()
            (high if part == 0 else low)[k] = middle
            self._add(low, high, -worst.key)
        self._settle()

    def _settle(self) -> None:
        """Take the worst cell's bound; every sequence has its z somewhere, so without cells the old bound remains."""
        self.stuck = not self.heap
        self.bound = self.bound if self.stuck else -self.heap[0].key

    def _add(self, low: Array, high: Array, above: float) -> None:
        """Bound a cell and keep it, unless no sequence has its z there; a part's bound is at most that of the whole."""
        self.boxes += 1
        found, axis = self.examine(low, high)
        if found > -np.inf:
            heapq.heappush(self.heap, _Box(-min(found, above), next(self.ties), low, high, axis))

    def examine(self, low: Array, high: Array) -> tuple[float, int]:
        """Return a bound on |y − H| over sequences with z in [low, high], −∞ if there are none, and the axis to cut."""
        with np.errstate(all="ignore"):
            found, axis = self._examine(low, high)
        return (np.inf if np.isnan(found) else found), axis

    def _examine(self, low: Array, high: Array) -> tuple[float, int]:
        share = float(((high - low) / self.whole).max())
        level = 0 if share > 0.4 else 1 if share > 0.1 else 2
        view = View.of(self.table(level), self.groups, self.members, low, high)
        n, heads = self.model.head_dim, self.model.heads
        sides = [None if view is None else view.outputs(i, n) for i in range(heads)]
        if view is None or any(side is None for side in sides):
            return -np.inf, 0
        known = [side for side in sides if side is not None]
        o = Interval(np.concatenate([s[0] for s in known]), np.concatenate([s[1] for s in known]))
        L, rest = relax(self.model, o, self.mean, self.std)
        Gamma, rest_H, bend = self._target(low, high)
        if not (np.isfinite(L).all() and np.isfinite(Gamma).all() and np.isfinite([*rest.size, *rest_H.size]).all()):
            return np.inf, int((high - low).argmax())  # overflow proves nothing
        best = -np.inf
        for k in range(len(L)):
            tail = rest[k] - rest_H[k]
            for sign in (1.0, -1.0):
                value = self._one(view, sign * L[k], sign * Gamma[k], low, high)
                best = float(np.maximum(best, up(value + (tail.hi if sign > 0 else -tail.lo))))
        cost = (np.abs(Gamma).max(0) + 1e-3 * np.abs(Gamma).max()) * (high - low) + bend
        return best, int(cost.argmax())

    def _target(self, low: Array, high: Array) -> tuple[Array, Interval, Array]:
        """H = Γ·z + rest over the cell; and how much each side of the cell adds to the rest."""
        assert isinstance(self.task.F0, Node)
        Z = [Interval(np.array([a]), np.array([b])) for a, b in zip(low, high, strict=True)]
        middle = [interval(z.mid) for z in Z]
        Gamma, lo, hi, bend = [], [], [], np.zeros(len(Z))
        for whole, at in zip(slopes(self.task.F0, Z), slopes(self.task.F0, middle), strict=True):
            rest, row = at.value, []
            for j, (slope, z, m) in enumerate(zip(whole.gradient, Z, middle, strict=True)):
                gamma = interval(slope.mid)
                extra = (slope - gamma) * (z - m)
                rest = rest - gamma * m + extra
                bend[j] = max(bend[j], float(extra.size[0]))
                row.append(float(slope.mid[0]))
            Gamma.append(row)
            lo.append(float(rest.lo[0]))
            hi.append(float(rest.hi[0]))
        return np.array(Gamma), Interval(np.array(lo), np.array(hi)), bend

    def _one(self, view: View, w: Array, Gamma: Array, low: Array, high: Array) -> float:
        """Return an upper bound on Σ_i w_i·o_i − Σ_j Γ_j z_j, with every Γ_j divided among the heads."""
        n, heads = self.model.head_dim, self.model.heads
        parts = w.reshape(heads, n)
        gamma = np.einsum("hn,hnj->hj", parts, self.follow)  # how far head i moves with z_j
        whole = gamma.sum(0)
        gamma = gamma * np.where(np.abs(whole) > 0.2 * np.abs(Gamma), Gamma / np.where(whole == 0, 1.0, whole), 1.0)
        value, left = 0.0, interval(Gamma)
        for i in range(heads):
            left = left - gamma[i]
            value = float(up(value + view.difference(i, n, parts[i], gamma[i])))
        for part in (-left * Interval(low, high)).hi:  # the rest of Γ: rounding, or all of it
            value = float(up(value + part))
        return value


def _groups(task: GeneralizedRetrieval, placed: bool) -> tuple[list[Group], list[frozenset[int]]]:
    """Return groups of positions that are alike, with the same weights and the same index sets."""
    sets = [frozenset(j for j, s in enumerate(task.S) if t in s) for t in range(task.length)]
    if placed:
        return [Group(1, t) for t in range(task.length)], sets
    unique = sorted(set(sets), key=sorted)
    return [Group(sets.count(s), 0) for s in unique], unique


def _follow(saved: SavedModel, task: GeneralizedRetrieval, low: Array, high: Array, seed: int) -> Array:
    """Return how each head's output follows each minimum, [heads, head_dim, D], by least squares on random sequences.

    This only decides which z_j a head is compared with; any choice gives a valid bound.
    """
    model = saved.transformer
    X = low + (high - low) * generator(seed, "certify").random((2000, task.length, task.dim))
    with torch.no_grad():
        x = torch.from_numpy(X)
        e = model.encoder(x.to(saved.dtype)).double()
        attention: Any = model.layers[0].attention
        q = torch.einsum("hne,e->hn", attention.query.double(), model.class_token.double())
        r = torch.einsum("hn,hne,bte->bht", q, attention.key.double(), e)
        if attention.gates is not None:
            r = r + attention.gates.double()
        beta = attention.beta()
        r = r * (beta if isinstance(beta, float) else beta.double()[:, 0])
        o = torch.einsum("bht,hne,bte->bhn", torch.softmax(r, -1), attention.value.double(), e).numpy()
        z = task.features(x).numpy()
    design, none = np.concatenate([z, np.ones((len(z), 1))], 1), np.zeros((*o.shape[1:], z.shape[1]))
    if not (np.isfinite(design).all() and np.isfinite(o).all()):
        return none
    try:
        found = np.linalg.lstsq(design, o.reshape(len(o), -1), rcond=None)[0][:-1]
    except np.linalg.LinAlgError:  # for numbers near the largest doubles
        return none
    return np.moveaxis(np.asarray(found, dtype=np.float64).reshape(-1, *o.shape[1:]), 0, -1)
