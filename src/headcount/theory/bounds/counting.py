"""The count behind Theorem 2 (2), with its proof: how wide F must be for s < D heads, the best over all it may choose.

**Claim.** Let a model of one layer with s < D heads of dimension n satisfy (1.1) to (1.3), |activation'| ≤ L_act, and
be within ε of a task of D basins. Then the width of F is at least the least, over basins i, of the largest of

    W = ε'·G / (L_act·E·n·s·3·t·V),   E = n·s,   V = sqrt(E),   q = ⌊variation_i/(3·t·ε')⌋ ≥ 2,
    G the largest whole number with G^((n+1)s) < q^t,

over all ε' ≥ ε and all whole t, 1 ≤ t ≤ T0_i = |S_i| − s − D + 1. Only t > (n+1)s is tried: below, W stays under
variation_i/(9·t²·L_act·E·n·s·V) at every ε.

**What it needs of the task.** For every i a minimiser x^(i) of f_i on the box and a segment G_i in the box on which
f_i rises from f_i(x^(i)) while the target, all other z_j at their minima, changes monotonically by variation_i; and
f_i(y) ≥ max of f_i on G_i for every y of A_j = G_j ∪ {x^(j)}, j ≠ i. `task_bounds` proves it of quadratic basins.

**Proof.** If some T0_i < 1 there is nothing to show. A model within ε is within every ε' ≥ ε. Fix for every basin i
its own t and ε', and on G_i put t consecutive grids U_1, …, U_t of q points each: all q·t points in the order of f_i,
the target 3ε' or more apart from one to the next (q·t steps of 3ε' fit into variation_i). Let A be the finite set of
all these points and all x^(i).

*Peaks.* Head k = 1, …, s in turn picks the pair (y_k, p_k) of largest weight a_k(y, p), y in A, p among ALL positions
that no earlier head has picked (not only those of one S_j: a free position outside it could outweigh the peak). Each
y_k is assigned to one A_j that it lies in; since s < D some basin i has no pick assigned. We do not know which, hence
the least over i. Its t, ε', q are used from here on.

*Pins.* y_k is pinned at p_k, and then x^(j), for every j ≠ i, at an unused position of S_j: one is left since |S_j| ≥
s + D. At most s + D − 1 positions of S_i are taken, so t ≤ T0_i of the others can be free. Every remaining position
is filled with x^(j) of one j ≠ i, say x^(D), or x^(1) if i = D; there is one since D ≥ 2. Positions are used once. So
every z_j, j ≠ i, is at its minimum, whatever the free positions hold; and no pin or filler has a smaller f_i than a
point of G_i.

*Weights.* In units of the peak a_k(y_k, p_k) a free token weighs at most 1 in head k, as its position was unused and
its point is in A. Let α, b be the sums of weights and of weighted values over the free positions: α in [0, t], b in
[−tV, tV]^n. The rest contributes C ≥ 1, the pinned peak alone, and N: the output is o = (N + b)/(C + α). What the
filler weighs enters only C and N, so it need not be bounded by the peak. |o| ≤ V in every coordinate, an average of
values. For two sequences

    o − o' = ((b − b') − o'·(α − α'))/(C + α),   so |o − o'| ≤ |b − b'| + V·|α − α'|.

*Pigeons.* The q^t choices of one point of U_l at the l-th free position give (n+1)s numbers (α, b of every head). G
cells a coordinate are fewer than q^t: two different choices share a cell, |α − α'| ≤ t/G and |b − b'| ≤ 2tV/G. At the
positions where the two choose alike put the filler in both: the differences of α and b stay, C and N change in both
alike, C ≥ 1. So every output moves by 3tV/G at most, and F's input by ‖Δ‖₁ ≤ E·n·s·3tV/G since |W_O| ≤ 1.

*Targets.* Let l be the first free position where they differ. Grids are in order and pins and filler no lower, so z_i
is f_i of the point at l in both: two points of U_l, targets 3ε' or more apart, outputs of the model ε' or more. A
two-layer F of width N with weights ≤ 1 moves by at most N·L_act·‖Δ‖₁ (Lemma 4). ∎

**Computing it.** For one t the best ε' ≥ ε with q points is variation/(3tq), q ≤ Q = ⌊variation/(3tε)⌋, where W =
G(q)/(K·q) with K = 9·t²·L_act·E·n·s·V/variation. G(q) < q^(t/m), m = (n+1)s, so W < q^(t/m − 1)/K, which rises with q
when t > m: q is tried from Q downwards until this bound is no better than the best. The same bound, in floating point
with a margin, puts the t in order, and the search over t ends when it falls below the best exact value. So the result
is the exact maximum; it rises when ε falls and when a set or a variation grows, because the maximum is over more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from headcount.core import BadInput
from headcount.theory.bounds.too_few_heads import check, movement, root

LARGEST = 10**300
"""Widths are not told apart above this."""
GRID, GRID_END = 8, 300
"""`bites_below_eps` tries 10^(−k/8), down to 1e-300."""
LOG_MARGIN = 1e-9
"""Relative; rounding of the floating-point logarithms is below 1e-12 of their size."""


@dataclass(frozen=True)
class Basin:
    """What the count needs of one basin."""

    size: int
    """|S_i|."""
    variation: Fraction
    """How much the target changes along the adversary's segment."""


@dataclass(frozen=True)
class Heads:
    """The sizes of the attention layer, with the task's D and the activation's Lipschitz constant."""

    heads: int
    head_dim: int
    intrinsic: int
    lipschitz: float = 1.0

    @property
    def numbers(self) -> int:
        """(n + 1)·s, the numbers that attention keeps of a sequence."""
        return (self.head_dim + 1) * self.heads

    def cost(self, t: int, variation: Fraction) -> Fraction:
        """Return K: with t free positions and q points a grid the width is at least G/(K·q)."""
        moved = movement(t, heads=self.heads, head_dim=self.head_dim, lipschitz=self.lipschitz)
        return 3 * t * moved / variation


@dataclass(frozen=True)
class Width:
    """A proved least width of F, with what gives it."""

    width: Fraction
    positions: int | None
    """t, the free positions that serve the deciding basin best; None where the width is 0."""
    basin: int
    """The basin that decides, from 0: the one that gives least."""


def least_width(eps: float | Fraction, basins: Sequence[Basin], sizes: Heads) -> Width:
    """Return the proved least width of F within ε: the least over basins of the best over t and ε' ≥ ε.

    At most `LARGEST`. It never rises with ε, and never falls when a set or a variation grows.
    """
    _check(eps, basins, sizes)
    found = {basin: _best(Fraction(eps), basin, sizes) for basin in set(basins)}
    least = min(range(len(basins)), key=lambda i: found[basins[i]][0])
    width, t = found[basins[least]]
    return Width(width, t or None, least)


def bites_below_eps(basins: Sequence[Basin], sizes: Heads) -> float | None:
    """Return the largest ε of the grid 10^(−k/8) at which `least_width` exceeds one unit; None if none to 1e-300 does.

    `least_width` never rises with ε, so it exceeds one unit at every smaller ε too.
    """
    _check(1, basins, sizes)
    distinct = set(basins)
    k, end = 0, GRID * GRID_END
    step = 1 << end.bit_length()
    while step := step // 2:  # where the floating-point bound begins to exceed 1
        if k + step < end and not _may_bite(k + step - 1, distinct, sizes):
            k += step
    while k and _bites(k - 1, distinct, sizes):
        k -= 1
    while k < end and not _bites(k, distinct, sizes):
        k += 1
    return _grid(k) if k < end else None


def _check(eps: float | Fraction, basins: Sequence[Basin], sizes: Heads) -> None:
    check(heads=sizes.heads, head_dim=sizes.head_dim, intrinsic=sizes.intrinsic, length=1)
    if not basins or not (eps > 0 and sizes.lipschitz > 0 and all(b.variation > 0 for b in basins)):
        raise BadInput("eps, every variation and the activation's Lipschitz constant must be above 0")


def _grid(k: int) -> float:
    return 10.0 ** (-k / GRID)


def _may_bite(k: int, basins: set[Basin], sizes: Heads) -> bool:
    """Whether the floating-point bound allows the width to exceed 1; a guide, and no claim."""
    bounds = [_log_bounds(Fraction(_grid(k)), basin, sizes)[1] for basin in basins]
    return all(len(b) > 0 and b.max() > 0 for b in bounds)


def _bites(k: int, basins: set[Basin], sizes: Heads) -> bool:
    """Whether the least width exceeds 1 at a point of the grid, exactly."""
    return all(_exceeds(Fraction(1), Fraction(_grid(k)), basin, sizes) for basin in basins)


def _best(eps: Fraction, basin: Basin, sizes: Heads) -> tuple[Fraction, int]:
    """Return the exact maximum over t and ε' ≥ ε for one basin, and its t (0 where nothing is proved)."""
    if _exceeds(Fraction(LARGEST), eps, basin, sizes):
        ts, logs = _log_bounds(eps, basin, sizes)
        return Fraction(LARGEST), int(ts[logs.argmax()])
    best, chosen, m = Fraction(0), 0, sizes.numbers
    for t, bound in _descending(eps, basin, sizes):
        if best and bound < _log(best):
            break
        width = _best_ratio(_points(eps, t, basin), t, m) / sizes.cost(t, basin.variation)
        if (width, -t) > (best, -chosen):
            best, chosen = width, t
    return best, chosen


def _exceeds(level: Fraction, eps: Fraction, basin: Basin, sizes: Heads) -> bool:
    """Whether the maximum over t and ε' ≥ ε exceeds a level, exactly and without a root."""
    for t, bound in _descending(eps, basin, sizes):
        if bound < _log(level):
            return False
        K, m, q = level * sizes.cost(t, basin.variation), sizes.numbers, _points(eps, t, basin)
        while q >= 2:
            if _power_less(math.floor(K * q) + 1, m, q, t):  # G exceeds K·q
                return True
            if not _power_less(K.numerator, m, q, t - m, K.denominator):  # no smaller q can do it
                break
            q -= 1
    return False


def _points(eps: Fraction, t: int, basin: Basin) -> int:
    return math.floor(basin.variation / (3 * t * eps))


def _best_ratio(points: int, t: int, m: int) -> Fraction:
    """Return the largest G(q)/q over 2 ≤ q ≤ points, where G^m < q^t and t > m."""
    best, q = Fraction(0), points
    while q >= 2 and _power_less(best.numerator, m, q, t - m, best.denominator):
        best = max(best, Fraction(root(q**t - 1, m), q))
        q -= 1
    return best


def _power_less(a: int, m: int, q: int, t: int, denominator: int = 1) -> bool:
    """Whether (a/denominator)^m < q^t; powers are computed only where lengths in bits do not decide."""
    least = t * (q.bit_length() - 1) + m * (denominator.bit_length() - 1)
    most = t * q.bit_length() + m * denominator.bit_length()
    if m * a.bit_length() <= least:
        return True
    if m * (a.bit_length() - 1) >= most:
        return False
    return a**m < q**t * denominator**m


def _descending(eps: Fraction, basin: Basin, sizes: Heads) -> list[tuple[int, float]]:
    """Return every t with at least two points a grid, and a bound of log W, the largest first."""
    ts, logs = _log_bounds(eps, basin, sizes)
    order = np.argsort(-logs, kind="stable")
    return [(int(ts[j]), float(logs[j])) for j in order if logs[j] > -math.inf]


def _log_bounds(eps: Fraction, basin: Basin, sizes: Heads) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return all t, (n+1)s < t ≤ T0, and a bound of the logarithm of W at each: q^(t/m − 1)/K, rounded up."""
    m, T0 = sizes.numbers, basin.size - sizes.heads - sizes.intrinsic + 1
    few = sizes.heads < sizes.intrinsic
    ts = np.arange(m + 1, T0 + 1 if few else 0, dtype=np.int64)
    t = ts.astype(np.float64)
    log_points = _log(basin.variation / (3 * eps)) - np.log(t) + LOG_MARGIN
    small = log_points < 34  # below 2^50 whole numbers are told apart
    log_points[small] = np.log(np.maximum(np.floor(np.exp(log_points[small])), 1))
    logs = (t / m - 1) * log_points - 2 * np.log(t) - _log(sizes.cost(1, basin.variation))
    logs += LOG_MARGIN * (1 + np.abs(logs) + (t / m) * np.abs(log_points))
    return ts, np.where(log_points < math.log(2) - 1e-6, -math.inf, logs)


def _log(x: Fraction) -> float:
    return math.log(x.numerator) - math.log(x.denominator)
