"""An upper bound on the irreducible gap: how far apart targets can be for inputs with equal attention outputs.

    G = sup { |H_j(X) − H_j(X')| : X, X' in box^T, o(X) = o(X') }.

With the encoder and the attention layer fixed, G/2 is exactly the smallest sup error in output j that a continuous
feed-forward block can reach, provided that W_O is injective (proved by a left inverse). The search for colliding pairs
bounds G from below. This module bounds it from above, by best-first branch and bound over pairs of boxes
(`pair_bounds`). By symmetry it is enough to maximise H_j(X) − H_j(X'), over sequences whose interchangeable positions
are sorted by their first coordinate.
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
from headcount.theory.irreducible.pair_bounds import PairBounds, PairResults

PAIRS_PER_STEP = 512
SIDE_WEIGHT = 0.6  # weight of a side's length against its share of the remainders, when choosing the side to cut
MAX_STORED_NUMBERS = 1_000_000  # numbers stored for the lower corners: about 100 MB in all


@dataclass(frozen=True)
class Enclosed:
    """A proved upper bound on G.

    finished: the bound is at most `goal` times the given lower bound, or no pair of boxes is left. boxes: pairs of
    boxes examined. left: pairs of boxes not yet settled.
    """

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
    """Lower a proved upper bound on G until it is at most goal·lower, or the time is up.

    output: j. lower: a gap that was found, 0 if none. on_step: called with the bound, the pairs of boxes left and the
    seconds spent.
    """
    start = time.monotonic()
    problem = check_enclosable(saved, task)
    low, high = check_box(box or saved.box or problem.box, problem.dim)
    if not 0 <= output < problem.out_dim:
        raise BadInput(f"output must lie from 0 to {problem.out_dim - 1}, not {output}")
    if not (lower >= 0 and goal >= 1):
        raise BadInput(f"lower must be at least 0 and goal at least 1, not {lower} and {goal}")
    pairs = _PairSearch(saved, problem, output, low, high, lower, goal * lower)
    while True:
        spent = time.monotonic() - start
        if on_step is not None:
            on_step(pairs.bound, len(pairs.value), spent)
        if not len(pairs.value) or pairs.stuck or spent >= seconds:
            break
        pairs.step()
    finished = pairs.bound <= max(goal * lower, 0.0) or not len(pairs.value)
    return Enclosed(pairs.bound, finished, pairs.boxes, len(pairs.value), time.monotonic() - start)


def check_enclosable(saved: SavedModel, task: GeneralizedRetrieval) -> GeneralizedRetrieval:
    """Return the task; reject a model whose largest gap cannot be bounded from above."""
    try:
        problem = covered(saved, task)
    except BadInput as error:
        raise BadInput(str(error).replace("certify covers", "an enclosure covers")) from None
    tensors = {name: t.detach().double().numpy() for name, t in saved.transformer.tensors()}
    value, output = (tensors[f"layers.0.attention.{name}"] for name in ("value", "output"))
    live = [output[i, :, k] for i in range(len(value)) for k in range(value.shape[1]) if value[i, k].any()]
    if live and not _is_injective(np.stack(live, axis=1)):
        raise BadInput("W_O is not proved to be injective: F may also confuse sequences with different head outputs")
    return problem


def _is_injective(W: Array) -> bool:
    """Return whether W provably has a left inverse: the row sums of |I − Y·W|, with rounding errors, are below 1."""
    if W.shape[0] < W.shape[1]:
        return False
    Y = np.linalg.pinv(W)
    error = 2.0 * len(W) * np.finfo(np.float64).eps * (np.abs(Y) @ np.abs(W))
    return bool((np.abs(np.eye(W.shape[1]) - Y @ W) + error).sum(1).max() < 0.99)


class _PairSearch:
    """The pairs of boxes that are not settled yet, each with a proved bound."""

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
        T, self.target, self.discarded_bound, self.stuck = task.length, target, lower, False
        unordered = saved.transformer.spec.positions == "none"
        self.sorted_groups = _interchangeable_positions(task) if unordered else []
        self.pair_bounds = PairBounds(fold(saved.transformer), task, output, self.sorted_groups)
        shape = (1, 2, T, task.dim)
        self.box_sides = np.maximum(high - low, 1e-300)
        self.low, self.high = np.zeros((0, *shape[1:])), np.zeros((0, *shape[1:]))
        self.value, self.cost = np.zeros(0), np.zeros((0, *shape[1:]))
        self.boxes = 0
        self._examine_and_add(
            np.broadcast_to(low, shape).copy(), np.broadcast_to(high, shape).copy(), np.array([np.inf])
        )

    @property
    def bound(self) -> float:
        """The proved upper bound on G."""
        return max(float(self.value.max(initial=0.0)), self.discarded_bound)

    def step(self) -> None:
        """Halve the pairs with the largest bounds, each along the coordinate that `_axis_to_cut` chooses."""
        count = min(PAIRS_PER_STEP, len(self.value))
        pick = np.argpartition(-self.value, count - 1)[:count]
        low, high, value = self.low[pick], self.high[pick], self.value[pick]
        axis = self._axis_to_cut(low, high, self.cost[pick])
        rows, shape = np.arange(count), low.shape
        low, high = low.reshape(count, -1), high.reshape(count, -1)
        middle = 0.5 * low[rows, axis] + 0.5 * high[rows, axis]
        divisible = (low[rows, axis] < middle) & (middle < high[rows, axis])
        if not divisible.any() or self.low.size > MAX_STORED_NUMBERS * shape[2] * shape[3] * 2:
            self.stuck = True
            return
        uncut = np.ones(len(self.value), dtype=bool)
        uncut[pick[divisible]] = False
        self._select(uncut)
        low, high, rows = low[divisible], high[divisible], np.arange(int(divisible.sum()))
        lows, highs = np.tile(low, (2, 1)), np.tile(high, (2, 1))
        highs[rows, axis[divisible]] = middle[divisible]
        lows[len(rows) + rows, axis[divisible]] = middle[divisible]
        shape = (-1, *shape[1:])
        self._examine_and_add(lows.reshape(shape), highs.reshape(shape), np.tile(value[divisible], 2))

    def _axis_to_cut(self, low: Array, high: Array, cost: Array) -> NDArray[np.intp]:
        """Return the coordinate to cut: a long side that adds much to the remainders."""
        share = cost / np.maximum(cost.max((1, 2, 3), keepdims=True), 1e-300)
        side_share = (high - low) / self.box_sides
        side_share = side_share / np.maximum(side_share.max((1, 2, 3), keepdims=True), 1e-300)
        return (side_share * (share + SIDE_WEIGHT)).reshape(len(low), -1).argmax(1)

    def _examine_and_add(self, low: Array, high: Array, parent_bound: Array) -> None:
        """Examine pairs of boxes and keep those whose bound is above the target."""
        nonempty = self._tighten_to_sorted(low, high)
        low, high, parent_bound = low[nonempty], high[nonempty], parent_bound[nonempty]
        if not len(low):
            return
        found = self.pair_bounds.examine(low, high, self.target)
        value = np.minimum(np.where(np.isnan(found.value), np.inf, found.value), parent_bound)
        self.boxes += len(value)
        left = value > self.target
        # contractions may cut off points with a gap up to the target, so no smaller bound can be claimed
        self.discarded_bound = max(self.discarded_bound, self.target, float(value[~left].max(initial=0.0)))
        self._append(found, value, left)

    def _append(self, found: PairResults, value: Array, left: NDArray[np.bool_]) -> None:
        self.low, self.high = np.concatenate([self.low, found.low[left]]), np.concatenate([self.high, found.high[left]])
        self.value, self.cost = np.concatenate([self.value, value[left]]), np.concatenate([self.cost, found.cost[left]])

    def _select(self, mask: NDArray[np.bool_]) -> None:
        self.low, self.high, self.value, self.cost = (x[mask] for x in (self.low, self.high, self.value, self.cost))

    def _tighten_to_sorted(self, low: Array, high: Array) -> NDArray[np.bool_]:
        """Shrink boxes, in place, to the sequences sorted at interchangeable positions; return which boxes have any."""
        for group in self.sorted_groups:
            for s, t in itertools.pairwise(group):
                low[:, :, t, 0] = np.maximum(low[:, :, t, 0], low[:, :, s, 0])
            for s, t in itertools.pairwise(group[::-1]):
                high[:, :, t, 0] = np.minimum(high[:, :, t, 0], high[:, :, s, 0])
        return np.asarray((low <= high).all((1, 2, 3)))


def _interchangeable_positions(task: GeneralizedRetrieval) -> list[list[int]]:
    """Return the groups of two or more positions that belong to the same index sets."""
    groups: dict[tuple[bool, ...], list[int]] = {}
    for t in range(task.length):
        groups.setdefault(tuple(t in s for s in task.S), []).append(t)
    return [group for group in groups.values() if len(group) > 1]
