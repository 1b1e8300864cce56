"""The compiled, fast twin of `head.bound`: row after row, each with its own Newton steps.

Rows share one bound c, so a row with g(c) ≤ 0 at the bound of the earlier rows costs one evaluation, and a row whose
tokens all lie below c costs nothing. Rounding is outward as in `intervals`: x + (|x|·2⁻⁵² + 2⁻¹⁰⁷⁴) is at or above the
next float, since |x|·2⁻⁵² is at least one unit in the last place of a normal x; exp is widened by 16 such units.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from headcount.core import cached_njit

Array = NDArray[np.float64]
Index = NDArray[np.int64]
Mask = NDArray[np.bool_]

_ULP, _MIN_DOUBLE, _WIDENING = 2.0**-52, 5e-324, 2.0**-48
_MAX_STEPS = 60


@cached_njit(inline="always")
def _up(x: float) -> float:
    return x + (abs(x) * _ULP + _MIN_DOUBLE)


@cached_njit(inline="always")
def _gain(part: float, free: float) -> float:
    return _up(part - free) if part > -np.inf else -np.inf


@cached_njit()
def evaluate(
    c: float, counts: Array, sizes: Index, lo: Array, hi: Array, tops: Array, flags: Index
) -> tuple[float, float]:
    """Return g(c) of one row, rounded upward, and minus its slope.

    tops[4, groups, cells] are for free tokens, the first and the second special token, and a token that is both.
    flags[groups, cells] has bit 1 where a cell may hold the first special token, and bit 2 for the second. g(c) = −∞
    means that no sequence belongs to the row.
    """
    groups = len(counts)
    best = np.full((4, groups), -np.inf)
    weight = np.zeros((4, groups))
    for q in range(groups):
        for m in range(sizes[q]):
            flag = flags[q, m]
            for part in range(4):
                if (part & flag) != part:  # 0: free, 1: first, 2: second, 3: both
                    continue
                gap = _up(tops[part, q, m] - c)
                a = hi[q, m] if gap > 0 else lo[q, m]
                value = _up(gap * a)
                if value > best[part, q]:
                    best[part, q], weight[part, q] = value, a
    total, slope = 0.0, 0.0
    for q in range(groups):
        total = _up(total + _up(counts[q] * best[0, q]))
        slope += counts[q] * weight[0, q]
    best_gain, slope_change = -np.inf, 0.0
    for q in range(groups):
        both = _gain(best[3, q], best[0, q])
        if both > best_gain:
            best_gain, slope_change = both, weight[3, q] - weight[0, q]
        first = _gain(best[1, q], best[0, q])
        if first == -np.inf:
            continue
        for r in range(groups):
            second = _gain(best[2, r], best[0, r])
            if second == -np.inf or (q == r and counts[q] < 2):
                continue
            pair = _up(first + second)
            if pair > best_gain:
                best_gain, slope_change = pair, weight[1, q] - weight[0, q] + weight[2, r] - weight[0, r]
    if best_gain == -np.inf:
        return -np.inf, 1.0
    return _up(total + best_gain), slope + slope_change


@cached_njit()
def sweep(
    plain: Array,
    own: Array,
    ends: Array,
    s_lo: Array,
    s_hi: Array,
    f_lo: Array,
    f_hi: Array,
    free: Mask,
    low: Array,
    high: Array,
    kinds: Index,
    counts: Array,
    members: Mask,
    j1: int,
    j2: int,
) -> float:
    """Return a proved upper bound on w·o − Σ_j γ_j·z_j over all rows; −∞ if no sequence has its z in any row.

    plain[kinds, cells] ≥ w·v; own[3, kinds, cells] ≥ w·v − γ·f for the special tokens of j1, of j2 and of both;
    ends[rows, D] ≥ −γ_j·z_j; s_lo, s_hi[kinds, cells]; f_lo, f_hi[cells, D]; free[groups, cells]; low, high[rows, D];
    members[groups, D]. If there is only one minimum, then j2 = j1, and the second special token is the first.
    """
    groups, cells, rows, D = len(counts), plain.shape[1], low.shape[0], low.shape[1]
    lo, hi = np.empty((groups, cells)), np.empty((groups, cells))
    tops, flags = np.empty((4, groups, cells)), np.empty((groups, cells), np.int64)
    index, sizes = np.empty((groups, cells), np.int64), np.empty(groups, np.int64)
    bound = -np.inf
    for row in range(rows):
        rest0, rest1, rest2, rest3 = 0.0, 0.0, 0.0, 0.0
        for j in range(D):
            rest0 = _up(rest0 + ends[row, j])
            if j != j1:
                rest1 = _up(rest1 + ends[row, j])
            if j != j2:
                rest2 = _up(rest2 + ends[row, j])
            if j not in (j1, j2):
                rest3 = _up(rest3 + ends[row, j])
        shift, highest, lowest, possible = -np.inf, -np.inf, np.inf, True
        for q in range(groups):
            k, size = kinds[q], 0
            for m in range(cells):
                allowed = free[q, m]
                for j in range(D):
                    if members[q, j] and f_hi[m, j] < low[row, j]:
                        allowed = False
                if not allowed:
                    continue
                index[q, size] = m
                flag = 0
                if members[q, j1] and f_lo[m, j1] <= high[row, j1]:
                    flag |= 1
                if members[q, j2] and f_lo[m, j2] <= high[row, j2]:
                    flag |= 2
                flags[q, size] = flag
                t0 = _up(plain[k, m] + rest0)
                if not t0 < np.inf:  # overflow or NaN: nothing is proved
                    return np.inf
                t1 = min(t0, _up(own[0, k, m] + rest1))
                t2 = min(t0, _up(own[1, k, m] + rest2))
                t3 = min(min(t1, t2), _up(own[2, k, m] + rest3))
                tops[0, q, size], tops[1, q, size], tops[2, q, size], tops[3, q, size] = t0, t1, t2, t3
                highest = max(highest, t0)
                lowest = min(lowest, t3)  # a special token's bounds never exceed its bound as a free token
                shift = max(shift, s_hi[k, m])
                size += 1
            sizes[q] = size
            possible = possible and size > 0
        if not possible:
            continue
        if highest <= bound:  # no average exceeds all of its values
            continue
        for q in range(groups):
            for n in range(sizes[q]):
                m = index[q, n]
                x = -_up(shift - float(s_lo[kinds[q], m]))
                lo[q, n] = math.exp(x) * (1 - _WIDENING) if x > -600.0 else 0.0
                x = min(_up(float(s_hi[kinds[q], m]) - shift), 1.0)
                hi[q, n] = math.exp(x) * (1 + _WIDENING) if x > -600.0 else 1e-250
        scale, margin, value = abs(highest) + abs(lowest) + 1e-300, 1e-12, 0.0
        if bound > -np.inf:
            c = bound
        else:
            value, slope = evaluate(highest, counts, sizes, lo, hi, tops, flags)
            if value == -np.inf:
                continue
            c = max(highest + value / slope, lowest) if slope > 0 else lowest
        for step in range(_MAX_STEPS):
            if c >= highest:
                c = highest
                break
            value, slope = evaluate(c, counts, sizes, lo, hi, tops, flags)
            if value <= 0:
                break
            move = value / slope if slope > 0 else np.inf
            c = min(c + move + margin * scale, highest)
            if step == _MAX_STEPS - 2:
                c = highest
            margin *= 4
        if value > -np.inf or c >= highest:
            bound = max(bound, c)
    return bound
