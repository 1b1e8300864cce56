"""The worst error found by search: a measured lower bound on the sup error.

Starts of five kinds, and from the best of each an ascent that only accepts what is better:

- random sequences, from the box and from the task's own law where it fits the box;
- corners and lattices: tokens on a few levels of every coordinate, all of them where they are few;
- one against many: one token at p and all others at q, p and q from a pool of points that holds every f_i's
  minimiser, the centre and corners: the worst case of a single softmax has this shape;
- the ambiguous minimum: one token at the minimiser of f_i, the others above it by about δ in f_i, δ from the whole
  range of f_i down to 1e-7 of it: where a softmax of any β confuses its tokens, some δ meets it;
- moves: the gradient, its sign, a token replaced by another or by a point of the pool, and noise of every size, so
  that neither kinks nor saturated gradients hold a sequence back.

All of it runs in float64 on the stored weights, batched, and the error reported is that of the reference model.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from headcount.core import BadInput, generator
from headcount.models import SavedModel
from headcount.tasks import GeneralizedRetrieval, Task
from headcount.theory.certify.folded import Predict, folded, reference

Box = tuple[Sequence[float], Sequence[float]]
Array = NDArray[np.float64]
Ranks = NDArray[np.intp]

SEARCH_WORK = 2.5e9  # multiply-adds of one search at effort 1: one to two seconds of one core
CHUNK_HIDDEN_NUMBERS = 2_000_000  # hidden numbers held at once
POOL_SIZE = 2048
CLIMB_STEPS = (
    40,
    240,
)  # of a climb: the upper end bounds the time of small models, where a step costs its overhead only


@dataclass(frozen=True)
class Worst:
    """The worst input found: max_k |y_k − H_k(X)| = error, at output k."""

    error: float
    X: Array
    output: int
    tried: int


def check_box(box: Box | None, dim: int) -> tuple[Array, Array]:
    """Return the corners of a box of tokens; reject a box that is unbounded, empty or of another dimension."""
    if box is None:
        raise BadInput("the tokens are not bounded: state a box, its lower and its upper corner")
    low, high = (np.asarray([float(v) for v in side]) for side in box)
    if low.shape != (dim,) or high.shape != (dim,):
        raise BadInput(f"the box needs two corners of {dim} numbers, one per coordinate of a token")
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low <= high).all()):
        raise BadInput("the box must be bounded, and its lower corner nowhere above the upper one")
    return low, high


def worst_error(
    model: SavedModel | Predict,
    task: Task,
    box: Box | None = None,
    *,
    seed: int = 0,
    effort: float = 1.0,
    seconds: float | None = None,
    starts: Sequence[Array] | Array = (),
) -> Worst:
    """Search the box for the largest error of a model on a task; `starts` are sequences to begin with, too.

    A bare function takes X[batch, length, dim] in float64 and returns y in the task's units; it should be
    differentiable by torch. `effort` scales the number of sequences tried; the same arguments find the same input,
    unless `seconds` ends the search early.
    """
    low, high = check_box(task.box if box is None else box, task.dim)
    if not effort > 0:
        raise BadInput(f"effort must be above 0, not {effort}")
    exact = reference(model) if isinstance(model, SavedModel) else model
    predict, cost = folded(model) if isinstance(model, SavedModel) else (model, 64.0 * task.length * task.dim)
    search = _Search(predict, task, low, high, seed, max(1, int(CHUNK_HIDDEN_NUMBERS / (cost / 4))))
    search.deadline = None if seconds is None else time.monotonic() + seconds
    budget = effort * SEARCH_WORK / cost
    found = search.run(
        int(min(max(budget / 3, 512), max(20_000 * effort, 512), 200_000)), int(max(budget / 4.5, 512)), effort, starts
    )
    X = found[None]
    with torch.no_grad():
        errors = (exact(torch.from_numpy(X)) - task.value(torch.from_numpy(X))).abs()[0]
    output = int(errors.argmax())
    return Worst(float(errors[output]), found, output, search.tried)


class _Search:
    """The state of one search: what is known of the box, and what has been tried."""

    def __init__(self, predict: Predict, task: Task, low: Array, high: Array, seed: int, chunk: int) -> None:
        self.predict, self.task, self.chunk = predict, task, chunk
        self.low, self.high, self.rng = low, high, generator(seed, "worst")
        self.tried = 0
        self.deadline: float | None = None
        self.pool, self.ranks = self._pool()

    def late(self) -> bool:
        """Return whether the time is over."""
        return self.deadline is not None and time.monotonic() > self.deadline

    def _pool(self) -> tuple[Array, list[Ranks]]:
        """Return points of the box, and for every f_i their order from the least on."""
        dim, side = self.task.dim, self.high - self.low
        levels = np.linspace(0, 1, {1: 129, 2: 17, 3: 7, 4: 5}.get(dim, 2))
        lattice = np.array(list(itertools.product(levels, repeat=dim))) if dim <= 10 else np.zeros((0, dim))
        points = [self.low + side * lattice[:POOL_SIZE], self.low + side * self.rng.random((POOL_SIZE, dim))]
        ranks: list[Ranks] = []
        if isinstance(self.task, GeneralizedRetrieval):
            for i in range(len(self.task.f)):  # zoom in on the minimiser of f_i: samples around the best so far
                x = np.concatenate(points)
                for scale in 4.0 ** -np.arange(1, 11):
                    best = x[np.argmin(self._f(x)[i])]
                    x = np.concatenate([best[None], best + scale * side * (self.rng.random((64, dim)) - 0.5)])
                    x = np.clip(x, self.low, self.high)
                points.append(x[np.argsort(self._f(x)[i])[:1]])
            pool = np.concatenate(points)
            ranks = list(np.argsort(self._f(pool), axis=1))
            return pool, ranks
        return np.concatenate(points), ranks

    def _f(self, x: Array) -> Array:
        """Every f_i at some points: [D, points]."""
        assert isinstance(self.task, GeneralizedRetrieval)
        with torch.no_grad():
            return self.task.tokens(torch.from_numpy(x)[:, None]).numpy()[..., 0].T

    # -- starts ----------------------------------------------------------------------------------------------

    def _random(self, count: int) -> Array:
        T, dim = self.task.length, self.task.dim
        X = self.low + (self.high - self.low) * self.rng.random((count, T, dim))
        drawn = self.task.law.draw(self.rng, count // 3, T, dim)
        fits = ((drawn >= self.low) & (drawn <= self.high)).all((1, 2))
        X[: count // 3][fits] = drawn[fits]
        return X

    def _lattice(self, count: int) -> Array:
        """Sequences on 2, 3, 4, 6 levels of every coordinate: all of them where they are few, else a draw."""
        T, dim = self.task.length, self.task.dim
        kinds: list[Array] = []
        for levels in (2, 3, 4, 6):
            if levels ** (T * dim) <= count // 4:
                grid = np.array(list(itertools.product(range(levels), repeat=T * dim))).reshape(-1, T, dim)
            else:
                grid = self.rng.integers(0, levels, (count // 4, T, dim))
            kinds.append(self.low + (self.high - self.low) * grid / (levels - 1))
        return np.concatenate(kinds)

    def _against(self, count: int) -> Array:
        """A few tokens at one point p and all others at q; the minimisers stand in the pool's best ranks."""
        T, n = self.task.length, len(self.pool)
        pick = self.rng.integers(0, n, (count, 2))
        for rank in self.ranks:
            chosen = self.rng.random((count, 2)) < 0.5 / len(self.ranks)
            pick = np.where(chosen, rank[self.rng.geometric(0.3, (count, 2)).clip(max=n) - 1], pick)
        few = np.where(self.rng.random(count) < 0.6, 1, self.rng.integers(0, T + 1, count))
        order = self.rng.random((count, T)).argsort(1)
        at_first_point = order < few[:, None]
        return np.where(at_first_point[..., None], self.pool[pick[:, :1]], self.pool[pick[:, 1:]])

    def _ambiguous(self, count: int) -> Array:
        """One token at (or near) the minimiser of f_i, the others above it by about δ, for δ of every size."""
        T, dim, n = self.task.length, self.task.dim, len(self.pool)
        X = self._random(count)
        if not self.ranks:
            return X
        which = self.rng.integers(0, len(self.ranks), count)
        scale = 10.0 ** self.rng.uniform(-7, 0, (count, 1, 1))
        for i, rank in enumerate(self.ranks):
            rows = np.flatnonzero(which == i)
            base = self.pool[rank[np.where(self.rng.random(len(rows)) < 0.5, 0, self.rng.integers(0, n, len(rows)))]]
            spread = self.rng.standard_normal((len(rows), T, dim)) * scale[rows] * (self.high - self.low)
            same = self.rng.random(len(rows)) < 0.5  # all others at one point: the worst case of a softmax
            spread[same] = spread[same][:, :1]
            near = base[:, None] + spread
            near[np.arange(len(rows)), self.rng.integers(0, T, len(rows))] = base
            keep = self.rng.random((len(rows), T)) < self.rng.choice([0.0, 0.0, 0.3], (len(rows), 1))
            X[rows] = np.where(keep[..., None], X[rows], near)
        return np.clip(X, self.low, self.high)

    # -- the search ------------------------------------------------------------------------------------------

    def error(self, X: Array, gradient: bool = False) -> tuple[Array, Array]:
        """Return max_k |y_k − H_k| for X[batch, length, dim], and its gradient where wanted."""
        values, slopes = np.full(len(X), -1.0), np.zeros(X.shape if gradient else (0,))
        for k in range(0, len(X), self.chunk):
            if k and self.late():
                break
            x = torch.from_numpy(X[k : k + self.chunk]).requires_grad_(gradient)
            with torch.set_grad_enabled(gradient):
                e = (self.predict(x) - self.task.value(x)).abs().amax(-1)
                if gradient and e.requires_grad:
                    slopes[k : k + self.chunk] = torch.autograd.grad(e.sum(), x)[0].nan_to_num(0.0).numpy()
            values[k : k + self.chunk] = e.detach().nan_to_num(-1.0).numpy()  # NaN never counts as the worst error
        self.tried += len(X)
        return values, slopes

    def run(self, samples: int, evaluations: int, effort: float, starts: Sequence[Array] | Array) -> Array:
        """Try the starts, then climb from the best of each kind; return the worst sequence."""
        quarter = max(samples // 4, 64)
        kinds = [self._random(quarter), self._lattice(quarter), self._against(quarter), self._ambiguous(quarter)]
        if len(starts):
            kinds.append(np.clip(np.asarray(starts, dtype=float), self.low, self.high))
        count = int(np.clip(evaluations // 80, 8, 96))

        def steps(rows: int) -> int:
            return int(np.clip(evaluations // 2 // rows, CLIMB_STEPS[0] * min(effort, 1.0), CLIMB_STEPS[1] * effort))

        best: list[Array] = []
        for X in kinds:
            e, _ = self.error(X)
            best.append(X[np.argsort(-e)[: max(count // 5, 1)]])
            best.append(X[self.rng.integers(0, len(X), max(count // 20, 1))])  # and some that are not the best
        several = self._climb(np.concatenate(best), steps(count + 8))
        few = several[np.argsort(-self.error(several)[0])[: max(count // 6, 4)]]
        last = self._climb(few, steps(len(few)))
        return last[int(np.argmax(self.error(last)[0]))]

    def _climb(self, x: Array, steps: int) -> Array:
        """Projected ascent, every sequence with its own step size; only what is better is accepted."""
        rows, T = np.arange(len(x)), self.task.length
        side = self.high - self.low
        e, g = self.error(x, gradient=True)
        size = np.full((len(x), 1, 1), 0.05)
        for k in range(steps):
            if self.late():
                break
            slope = g * side  # steps are shares of the box's sides
            outward = ((self.low >= x) & (slope < 0)) | ((self.high <= x) & (slope > 0))
            slope = np.where(outward, 0.0, slope)
            kind = k % 4
            if kind == 0:
                move = size * slope / np.maximum(np.abs(slope).max((1, 2), keepdims=True), 1e-300)
            elif kind == 1:
                move = size * np.sign(slope)
            else:
                noise = self.rng.standard_normal(x.shape) * 10.0 ** self.rng.uniform(-6, 0, (len(x), 1, 1))
                alone = self.rng.random((len(x), T)) < np.where(self.rng.random((len(x), 1)) < 0.7, 1.5 / T, 1.0)
                move = noise * alone[..., None]
            new = np.clip(x + move * side, self.low, self.high)
            if kind == 3:  # one token becomes another one, or a point of the pool
                to, source = self.rng.integers(0, T, len(x)), self.rng.integers(0, T, len(x))
                pool = self.pool[self.rng.integers(0, len(self.pool), len(x))]
                token = np.where(self.rng.random((len(x), 1)) < 0.5, x[rows, source], pool)
                swap = self.rng.random(len(x)) < 0.5
                new[rows[swap], to[swap]] = token[swap]
            found, slopes = self.error(new, gradient=True)
            better = found > e
            x, e, g = (
                np.where(better.reshape(-1, *[1] * (b.ndim - 1)), a, b) for a, b in ((new, x), (found, e), (slopes, g))
            )
            if kind < 2:
                size = np.clip(np.where(better[:, None, None], size * 1.7, size * 0.5), 1e-9, 0.5)
                size = np.where(size <= 1e-8, 0.05, size)  # a stuck size starts again
        return x
