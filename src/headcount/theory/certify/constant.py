"""A proved upper bound on the sup error of the best constant over a box of tokens.

All targets H_k lie in an enclosure over the box, and its midpoint errs by at most half its width. This bound may be too
large, but not too small: a model with a certified error above it is not shown to be better than a constant.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

import numpy as np
from flint import arb
from numpy.typing import NDArray

from headcount.tasks import GeneralizedRetrieval
from headcount.tasks.expressions import Expr, Node, balls, ceil, evaluate, floor

Array = NDArray[np.float64]
MAX_SPLITS = 250  # of the box, for each end of a range
Part = tuple[list[float], list[float]]


def constant_error(task: GeneralizedRetrieval, low: Array, high: Array) -> float:
    """Return an upper bound on the sup error of the best constant over the box; infinity if none is found."""
    ranges = [range_over(f, 0, low.tolist(), high.tolist()) for f in task.f if isinstance(f, Node)]
    assert isinstance(task.F0, Node)
    ends = [range_over(task.F0, k, *map(list, zip(*ranges, strict=True))) for k in range(task.F0.out_dim)]
    if not np.isfinite(ends).all():
        return math.inf
    return max(ceil((arb(b) - arb(a)) / 2) for a, b in ends)


def range_over(f: Expr, component: int, low: Sequence[float], high: Sequence[float]) -> tuple[float, float]:
    """Enclose a component of f over a box by splitting the part whose enclosure reaches farthest."""
    whole = (list(low), list(high))
    return -_largest(f, component, whole, -1), _largest(f, component, whole, 1)


def _largest(f: Expr, component: int, whole: Part, sign: int) -> float:
    """Bound sign·f from above."""

    def most(part: Part) -> float:
        value = evaluate(f, balls(*part))[component]
        end = ceil(value) if sign > 0 else -floor(value)
        return end if end < math.inf else math.inf  # NaN fails the comparison

    if not all(map(math.isfinite, (*whole[0], *whole[1]))):
        return math.inf
    queue: list[tuple[float, int, Part]] = [(-most(whole), 0, whole)]
    for n in range(MAX_SPLITS):
        low, high = queue[0][2]
        axis = max(range(len(low)), key=lambda k: high[k] - low[k])
        middle = low[axis] + (high[axis] - low[axis]) / 2
        if not low[axis] < middle < high[axis]:
            break
        heapq.heappop(queue)
        for m, (a, b) in enumerate(((low[axis], middle), (middle, high[axis])), 1):
            part = [*low[:axis], a, *low[axis + 1 :]], [*high[:axis], b, *high[axis + 1 :]]
            heapq.heappush(queue, (-most(part), 2 * n + m, part))
    return -queue[0][0]
