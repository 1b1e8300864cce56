"""Multipliers for pairs of boxes: many small linear programs, solved by a compiled dual simplex method.

    maximise c·x   subject to   A·x + s = b,   low ≤ x ≤ high,   s_low ≤ s ≤ s_high.

The slacks s form the first basis. Every x is bounded on both sides, so this basis is dual feasible with each x at its
better end, and every step of the method lowers the bound: it may stop at any time. Nothing here is rounded outward, and
nothing needs to be: the caller computes in interval arithmetic the bound that the returned multipliers prove.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headcount.core import cached_njit

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

_PIVOT_TOLERANCE = 1e-11


@cached_njit()
def multipliers(
    A: Array, b: Array, c: Array, low: Array, high: Array, s_low: Array, s_high: Array, steps: int
) -> tuple[Array, Array, Mask]:
    """Return the duals y[problems, rows], dual rays [problems, rows], and a mask of the problems found infeasible.

    A ray is given for infeasible problems only: it is the reason why there is no solution.

    A[problems, rows, n], b[problems, rows], c, low, high[problems, n], s_low, s_high[problems, rows].
    """
    count, rows, n = A.shape
    duals, rays, empty = np.zeros((count, rows)), np.zeros((count, rows)), np.zeros(count, np.bool_)
    width = n + rows
    table, d, x = np.empty((rows, width)), np.empty(width), np.empty(width)
    lo, hi = np.empty(width), np.empty(width)
    basis, is_basic = np.empty(rows, np.int64), np.empty(width, np.bool_)
    for p in range(count):
        table[:] = 0.0
        for j in range(n):
            lo[j], hi[j], d[j], is_basic[j] = low[p, j], high[p, j], c[p, j], False
            x[j] = hi[j] if d[j] > 0 else lo[j]
        for r in range(rows):
            value = b[p, r]
            for j in range(n):
                table[r, j] = A[p, r, j]
                value -= A[p, r, j] * x[j]
            table[r, n + r] = 1.0
            lo[n + r], hi[n + r], d[n + r], is_basic[n + r], basis[r] = s_low[p, r], s_high[p, r], 0.0, True, n + r
            x[n + r] = value
        for _ in range(steps):
            leave, worst_violation, below_range = -1, 0.0, False
            for r in range(rows):
                k = basis[r]
                scale = _PIVOT_TOLERANCE * (1.0 + abs(x[k]))
                if lo[k] - x[k] > scale and lo[k] - x[k] > worst_violation:
                    leave, worst_violation, below_range = r, lo[k] - x[k], True
                if x[k] - hi[k] > scale and x[k] - hi[k] > worst_violation:
                    leave, worst_violation, below_range = r, x[k] - hi[k], False
            if leave < 0:
                break
            enter, best_ratio, size = -1, np.inf, 0.0
            for j in range(width):
                if is_basic[j] or lo[j] == hi[j]:
                    continue
                slope = table[leave, j] if below_range else -table[leave, j]
                at_upper = x[j] == hi[j]
                if (slope < -_PIVOT_TOLERANCE and not at_upper) or (slope > _PIVOT_TOLERANCE and at_upper):
                    ratio = abs(d[j] / slope)
                    if ratio < best_ratio or (ratio == best_ratio and abs(slope) > size):
                        enter, best_ratio, size = j, ratio, abs(slope)
            if enter < 0:
                empty[p] = True
                for r in range(rows):
                    rays[p, r] = table[leave, n + r] if below_range else -table[leave, n + r]
                break
            k = basis[leave]
            pivot = table[leave, enter]
            end = lo[k] if below_range else hi[k]
            move = (x[k] - end) / pivot
            for r in range(rows):
                x[basis[r]] -= table[r, enter] * move
            x[enter] += move
            x[k] = end
            for j in range(width):
                table[leave, j] /= pivot
            for r in range(rows):
                if r != leave and table[r, enter] != 0.0:
                    factor = table[r, enter]
                    for j in range(width):
                        table[r, j] -= factor * table[leave, j]
            factor = d[enter]
            for j in range(width):
                d[j] -= factor * table[leave, j]
            d[enter] = 0.0
            is_basic[k], is_basic[enter], basis[leave] = False, True, enter
        for r in range(rows):
            duals[p, r] = -d[n + r]
    return duals, rays, empty
