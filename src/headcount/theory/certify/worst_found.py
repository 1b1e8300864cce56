"""The worst error found by search: a measured lower bound on the sup error.

The search tries four kinds of starts, and the caller's own:

- random sequences, from the box and, where they fit the box, from the task's own law;
- corners and lattices: tokens on a few levels of every coordinate, all of them if there are not too many;
- few against many: one or a few tokens at p and all others at q, with p and q from a pool of points that contains the
  minimiser of every f_i, the centre and the corners. The worst case of a single softmax has this shape;
- the ambiguous minimum: one token at the minimiser of f_i and the others at a distance of about δ, with δ from the
  whole box down to 1e-7 of it: whatever β a softmax has, some δ makes it confuse its tokens.

From the best of each kind it climbs, and accepts only improvements. A move follows the gradient or its sign, adds noise
of any size, or replaces a token by another one or by a point of the pool, so neither kinks nor saturated gradients stop
it. Everything runs batched in float64 on the stored weights, and the reported error is that of the reference model.
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

SEARCH_WORK = 2.5e9  # multiply-adds of one search at effort 1: one to two seconds on one core
CHUNK_HIDDEN_NUMBERS = 2_000_000  # hidden activations in memory at once
POOL_SIZE = 2048
MIN_CLIMB_STEPS = 40
MAX_CLIMB_STEPS = 240  # bounds the time on small models, where a step costs little but its overhead


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
        raise BadInput("the tokens are not bounded: give a box as its lower and its upper corner")
    try:
        low, high = (np.asarray([float(v) for v in side]) for side in box)
    except (TypeError, ValueError):
        raise BadInput(
            f"the box needs two corners with a number per token coordinate ({dim}), not {box!r:.60}"
        ) from None
    if low.shape != (dim,) or high.shape != (dim,):
        raise BadInput(f"the box needs two corners of {dim} numbers, one per coordinate of a token")
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low <= high).all()):
        raise BadInput("the box must be bounded, with no coordinate of its lower corner above the upper one")
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
    """Search the box for the largest error of a model on a task; `starts` are additional sequences to start from.

    A bare function takes X[batch, length, dim] in float64 and returns y in the task's units; it should be
    differentiable by torch. `effort` scales the number of sequences tried. The same arguments find the same
    input, unless `seconds` ends the search early.
    """
    low, high = check_box(task.box if box is None else box, task.dim)
    if not effort > 0:
        raise BadInput(f"effort must be above 0, not {effort}")
    exact = reference(model) if isinstance(model, SavedModel) else model
    predict, cost = folded(model) if isinstance(model, SavedModel) else (model, 64.0 * task.length * task.dim)
    search = _Search(predict, task, low, high, seed, max(1, int(CHUNK_HIDDEN_NUMBERS / (cost / 4))))
    search.deadline = None if seconds is None else time.monotonic() + seconds
    budget = effort * SEARCH_WORK / cost
    worst_X = search.run(
        int(min(max(budget / 3, 512), max(20_000 * effort, 512), 200_000)), int(max(budget / 4.5, 512)), effort, starts
    )
    X = worst_X[None]
    with torch.no_grad():
        errors = (exact(torch.from_numpy(X)) - task.value(torch.from_numpy(X))).abs()[0]
    output = int(errors.argmax())
    return Worst(float(errors[output]), worst_X, output, search.tried)


class _Search:
    """One search: the box, a pool of its points, and the number of sequences tried."""

    def __init__(self, predict: Predict, task: Task, low: Array, high: Array, seed: int, chunk: int) -> None:
        self.predict, self.task, self.chunk = predict, task, chunk
        self.low, self.high, self.rng = low, high, generator(seed, "worst")
        self.tried = 0
        self.deadline: float | None = None
        self.pool, self.ranks = self._pool()

    def time_is_up(self) -> bool:
        """Return whether the deadline has passed."""
        return self.deadline is not None and time.monotonic() > self.deadline

    def _pool(self) -> tuple[Array, list[Ranks]]:
        """Return points of the box, and for every f_i their indices in increasing order of f_i."""
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
        """Return every f_i at some points: [D, points]."""
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
        """Return sequences on 2, 3, 4 and 6 levels of every coordinate: all, or a sample if there are too many."""
        T, dim = self.task.length, self.task.dim
        kinds: list[Array] = []
        for levels in (2, 3, 4, 6):
            if levels ** (T * dim) <= count // 4:
                grid = np.array(list(itertools.product(range(levels), repeat=T * dim))).reshape(-1, T, dim)
            else:
                grid = self.rng.integers(0, levels, (count // 4, T, dim))
            kinds.append(self.low + (self.high - self.low) * grid / (levels - 1))
        return np.concatenate(kinds)

    def _few_against_many(self, count: int) -> Array:
        """Return sequences with few tokens at a point p and all others at q, often near a minimiser of some f_i."""
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
        """Return sequences with one token at or near the minimiser of f_i and the others about δ away, for any δ."""
        T, dim, n = self.task.length, self.task.dim, len(self.pool)
        X = self._random(count)
        if not self.ranks:
            return X
        target_index = self.rng.integers(0, len(self.ranks), count)
        scale = 10.0 ** self.rng.uniform(-7, 0, (count, 1, 1))
        for i, rank in enumerate(self.ranks):
            rows = np.flatnonzero(target_index == i)
            base = self.pool[rank[np.where(self.rng.random(len(rows)) < 0.5, 0, self.rng.integers(0, n, len(rows)))]]
            offset = self.rng.standard_normal((len(rows), T, dim)) * scale[rows] * (self.high - self.low)
            same = self.rng.random(len(rows)) < 0.5  # all others at one point: the worst case for a softmax
            offset[same] = offset[same][:, :1]
            above = base[:, None] + offset
            above[np.arange(len(rows)), self.rng.integers(0, T, len(rows))] = base
            kept_random = self.rng.random((len(rows), T)) < self.rng.choice([0.0, 0.0, 0.3], (len(rows), 1))
            X[rows] = np.where(kept_random[..., None], X[rows], above)
        return np.clip(X, self.low, self.high)

    # -- the search ------------------------------------------------------------------------------------------

    def error(self, X: Array, gradient: bool = False) -> tuple[Array, Array]:
        """Return max_k |y_k − H_k| for X[batch, length, dim], and its gradient if requested."""
        values, slopes = np.full(len(X), -1.0), np.zeros(X.shape if gradient else (0,))
        for k in range(0, len(X), self.chunk):
            if k and self.time_is_up():
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
        makers = (self._random, self._lattice, self._few_against_many, self._ambiguous)
        kinds = [make(quarter) for make in makers]
        if len(starts):
            kinds.append(np.clip(np.asarray(starts, dtype=float), self.low, self.high))
        count = int(np.clip(evaluations // 80, 8, 96))

        def steps(rows: int) -> int:
            return int(np.clip(evaluations // 2 // rows, MIN_CLIMB_STEPS * min(effort, 1.0), MAX_CLIMB_STEPS * effort))

        best: list[Array] = []
        for X in kinds:
            e, _ = self.error(X)
            best.append(X[np.argsort(-e)[: max(count // 5, 1)]])
            best.append(X[self.rng.integers(0, len(X), max(count // 20, 1))])  # and some others
        climbed = self._climb(np.concatenate(best), steps(count + 8))
        few = climbed[np.argsort(-self.error(climbed)[0])[: max(count // 6, 4)]]
        finalists = self._climb(few, steps(len(few)))
        return finalists[int(np.argmax(self.error(finalists)[0]))]

    def _climb(self, x: Array, steps: int) -> Array:
        """Climb by projected ascent, with a step size per sequence; accept only improvements."""
        rows, T = np.arange(len(x)), self.task.length
        side = self.high - self.low
        e, g = self.error(x, gradient=True)
        step_size = np.full((len(x), 1, 1), 0.05)
        for k in range(steps):
            if self.time_is_up():
                break
            slope = g * side  # step sizes are fractions of the box's sides
            outward = ((self.low >= x) & (slope < 0)) | ((self.high <= x) & (slope > 0))
            slope = np.where(outward, 0.0, slope)
            kind = k % 4
            if kind == 0:
                move = step_size * slope / np.maximum(np.abs(slope).max((1, 2), keepdims=True), 1e-300)
            elif kind == 1:
                move = step_size * np.sign(slope)
            else:
                noise = self.rng.standard_normal(x.shape) * 10.0 ** self.rng.uniform(-6, 0, (len(x), 1, 1))
                alone = self.rng.random((len(x), T)) < np.where(self.rng.random((len(x), 1)) < 0.7, 1.5 / T, 1.0)
                move = noise * alone[..., None]
            new = np.clip(x + move * side, self.low, self.high)
            if kind == 3:  # replace a token by another one, or by a point of the pool
                to, source = self.rng.integers(0, T, len(x)), self.rng.integers(0, T, len(x))
                pool = self.pool[self.rng.integers(0, len(self.pool), len(x))]
                token = np.where(self.rng.random((len(x), 1)) < 0.5, x[rows, source], pool)
                swap = self.rng.random(len(x)) < 0.5
                new[rows[swap], to[swap]] = token[swap]
            new_e, slopes = self.error(new, gradient=True)
            better = new_e > e
            x, e, g = (
                np.where(better.reshape(-1, *[1] * (b.ndim - 1)), a, b) for a, b in ((new, x), (new_e, e), (slopes, g))
            )
            if kind < 2:
                step_size = np.clip(np.where(better[:, None, None], step_size * 1.7, step_size * 0.5), 1e-9, 0.5)
                step_size = np.where(step_size <= 1e-8, 0.05, step_size)  # restart a step size that got stuck
        return x
