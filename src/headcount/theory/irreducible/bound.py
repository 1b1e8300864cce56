"""The irreducible gap from above: how far apart targets can be where the attention outputs are equal.

    G = sup { |H_j(X) − H_j(X')| : X, X' in box^T, o(X) = o(X') }.

With the encoder and the attention layer fixed, half of G is exactly the least sup error in output j that any continuous
feed-forward block can reach, provided that W_O is injective (proved by a left inverse). A search for colliding
pairs bounds G from below; here it is bounded from above, by best-first branch and bound over pairs of boxes
(`pair_bounds`), so that it is enclosed. By symmetry only H_j(X) − H_j(X') is maximised, and positions that are alike
are sorted by their first coordinate, in X and in X'.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headcount.core import BadInput
from headcount.models import SavedModel
from headcount.tasks import GeneralizedRetrieval
from headcount.theory.certify.token_cells import fold
from headcount.theory.certify.trained import covered
from headcount.theory.certify.worst_found import Box, check_box
from headcount.theory.enclose.intervals import Array
from headcount.theory.irreducible.pair_bounds import Examined, PairBounds

PAIRS_PER_STEP = 512
SIDE_WEIGHT = 0.6  # weight of a side's length beside its part in the remainders, when choosing the side to cut
MAX_STORED_NUMBERS = 1_000_000  # of the boxes' corners, per coordinate of a pair: about 100 MB


@dataclass(frozen=True)
class Enclosed:
    """G is at most `bound`, proved; finished: within the goal times the lower bound given, or no pair is left."""

    bound: float
    finished: bool
    boxes: int
    left: int
    seconds: float


Report = Callable[[float, int, float], None]  # bound, pairs of boxes left, seconds


def irreducible_bound(
    saved: SavedModel,
    task: GeneralizedRetrieval,
    box: Box | None = None,
    *,
    output: int = 0,
    seconds: float = 60.0,
    lower: float = 0.0,
    goal: float = 1.1,
    on_step: Report | None = None,
) -> Enclosed:
    """Bound G from above until it is at most goal·lower, `lower` being a gap that was found, or the time is over."""
    start = time.monotonic()
    problem = enclosable(saved, task)
    low, high = check_box(box or saved.box or problem.box, problem.dim)
    if not 0 <= output < problem.out_dim:
        raise BadInput(f"output must lie from 0 to {problem.out_dim - 1}, not {output}")
    if not (lower >= 0 and goal >= 1):
        raise BadInput(f"lower must be at least 0 and goal at least 1, not {lower} and {goal}")
    pairs = _Pairs(saved, problem, output, low, high, lower, goal * lower)
    while True:
        spent = time.monotonic() - start
        if on_step is not None:
            on_step(pairs.bound, len(pairs.value), spent)
        if not len(pairs.value) or pairs.stuck or spent >= seconds:
            break
        pairs.step()
    finished = pairs.bound <= max(goal * lower, 0.0) or not len(pairs.value)
    return Enclosed(pairs.bound, finished, pairs.boxes, len(pairs.value), time.monotonic() - start)


def enclosable(saved: SavedModel, task: GeneralizedRetrieval) -> GeneralizedRetrieval:
    """Return the task; refuse in one line a model whose largest gap cannot be bounded from above."""
    try:
        problem = covered(saved, task)
    except BadInput as error:
        raise BadInput(str(error).replace("certify covers", "an enclosure covers")) from None
    tensors = {name: t.detach().double().numpy() for name, t in saved.transformer.tensors()}
    value, output = (tensors[f"layers.0.attention.{name}"] for name in ("value", "output"))
    live = [output[i, :, k] for i in range(len(value)) for k in range(value.shape[1]) if value[i, k].any()]
    if live and not _is_injective(np.stack(live, axis=1)):
        raise BadInput("W_O is not proved to be injective: equal outputs of the heads are not all that F confuses")
    return problem


def _is_injective(W: Array) -> bool:
    """Whether a left inverse is proved: |I − Y·W|, rounding included, has row sums below 1."""
    if W.shape[0] < W.shape[1]:
        return False
    Y = np.linalg.pinv(W)
    error = 2.0 * len(W) * np.finfo(np.float64).eps * (np.abs(Y) @ np.abs(W))
    return bool((np.abs(np.eye(W.shape[1]) - Y @ W) + error).sum(1).max() < 0.99)


class _Pairs:
    """The pairs of boxes that are left, each with a proved bound."""

    def __init__(
        self,
        saved: SavedModel,
        task: GeneralizedRetrieval,
        output: int,
        low: Array,
        high: Array,
        lower: float,
        target: float,
    ) -> None:
        T, self.target, self.settled, self.stuck = task.length, target, lower, False
        alike = saved.transformer.spec.positions == "none"
        self.places = _alike(task) if alike else []
        self.bounds = PairBounds(fold(saved.transformer), task, output, self.places)
        shape = (1, 2, T, task.dim)
        self.whole = np.maximum(high - low, 1e-300)
        self.low, self.high = np.zeros((0, *shape[1:])), np.zeros((0, *shape[1:]))
        self.value, self.cost = np.zeros(0), np.zeros((0, *shape[1:]))
        self.boxes = 0
        self._take(np.broadcast_to(low, shape).copy(), np.broadcast_to(high, shape).copy(), np.array([np.inf]))

    @property
    def bound(self) -> float:
        """The proved bound."""
        return max(float(self.value.max(initial=0.0)), self.settled)

    def step(self) -> None:
        """Halve the pairs with the largest bounds, across the coordinate that matters most."""
        count = min(PAIRS_PER_STEP, len(self.value))
        pick = np.argpartition(-self.value, count - 1)[:count]
        low, high, value = self.low[pick], self.high[pick], self.value[pick]
        axis = self._axis(low, high, self.cost[pick])
        rows, shape = np.arange(count), low.shape
        low, high = low.reshape(count, -1), high.reshape(count, -1)
        middle = 0.5 * low[rows, axis] + 0.5 * high[rows, axis]
        cut = (low[rows, axis] < middle) & (middle < high[rows, axis])
        if not cut.any() or self.low.size > MAX_STORED_NUMBERS * shape[2] * shape[3] * 2:
            self.stuck = True
            return
        rest = np.ones(len(self.value), dtype=bool)
        rest[pick[cut]] = False
        self._keep(rest)
        low, high, rows = low[cut], high[cut], np.arange(int(cut.sum()))
        lows, highs = np.tile(low, (2, 1)), np.tile(high, (2, 1))
        highs[rows, axis[cut]] = middle[cut]
        lows[len(rows) + rows, axis[cut]] = middle[cut]
        shape = (-1, *shape[1:])
        self._take(lows.reshape(shape), highs.reshape(shape), np.tile(value[cut], 2))

    def _axis(self, low: Array, high: Array, cost: Array) -> NDArray[np.intp]:
        """The coordinate to cut: the one that adds most to the remainders; the longest where none does."""
        share = cost / np.maximum(cost.max((1, 2, 3), keepdims=True), 1e-300)
        wide = (high - low) / self.whole
        wide = wide / np.maximum(wide.max((1, 2, 3), keepdims=True), 1e-300)
        return (wide * (share + SIDE_WEIGHT)).reshape(len(low), -1).argmax(1)

    def _take(self, low: Array, high: Array, above: Array) -> None:
        """Examine pairs of boxes and keep those whose bound is above the target."""
        keep = self._sort(low, high)
        low, high, above = low[keep], high[keep], above[keep]
        if not len(low):
            return
        found = self.bounds.examine(low, high, self.target)
        value = np.minimum(np.where(np.isnan(found.value), np.inf, found.value), above)
        self.boxes += len(value)
        left = value > self.target
        # what a contraction cuts off is at most the target, so the target itself is the least that can be claimed
        self.settled = max(self.settled, self.target, float(value[~left].max(initial=0.0)))
        self._add(found, value, left)

    def _add(self, found: Examined, value: Array, left: NDArray[np.bool_]) -> None:
        self.low, self.high = np.concatenate([self.low, found.low[left]]), np.concatenate([self.high, found.high[left]])
        self.value, self.cost = np.concatenate([self.value, value[left]]), np.concatenate([self.cost, found.cost[left]])

    def _keep(self, rest: NDArray[np.bool_]) -> None:
        self.low, self.high, self.value, self.cost = (x[rest] for x in (self.low, self.high, self.value, self.cost))

    def _sort(self, low: Array, high: Array) -> NDArray[np.bool_]:
        """Tighten boxes, in place, to sorted sequences of the positions that are alike; say which have any."""
        for places in self.places:
            for s, t in itertools.pairwise(places):
                low[:, :, t, 0] = np.maximum(low[:, :, t, 0], low[:, :, s, 0])
            for s, t in itertools.pairwise(places[::-1]):
                high[:, :, t, 0] = np.minimum(high[:, :, t, 0], high[:, :, s, 0])
        return np.asarray((low <= high).all((1, 2, 3)))


def _alike(task: GeneralizedRetrieval) -> list[list[int]]:
    """The positions that belong to the same index sets."""
    groups: dict[tuple[bool, ...], list[int]] = {}
    for t in range(task.length):
        groups.setdefault(tuple(t in s for s in task.S), []).append(t)
    return [places for places in groups.values() if len(places) > 1]
