"""The count behind Theorem 2 (2), with its proof: how wide F must be for s < D heads, optimised over all choices.

**Claim.** Let a model of one layer with s < D heads of dimension n satisfy (1.1) to (1.3) and |activation'| ≤ L_act,
and let it be within ε of a task with D basins. Then the width of F is at least the minimum over basins i of the maximum
of

    W = ε'·G / (L_act·E·n·s·3·t·V),   E = n·s,   V = sqrt(E),   q = ⌊variation_i/(3·t·ε')⌋ ≥ 2,
    G the largest whole number with G^((n+1)s) < q^t,

over all ε' ≥ ε and all integers t, 1 ≤ t ≤ T0_i = |S_i| − s − D + 1. It suffices to try t > (n+1)s: for smaller t, W
stays below variation_i/(9·t²·L_act·E·n·s·V) at every ε.

**Assumption on the task.** For every i there are a minimiser x^(i) of f_i on the box and a segment G_i in the box along
which f_i rises from f_i(x^(i)) and the target, with all other z_j at their minima, changes monotonically by
variation_i. Moreover f_i(y) ≥ max of f_i on G_i for every y in A_j = G_j ∪ {x^(j)}, j ≠ i. `of_task` proves this for
quadratic basins.

**Proof.** If some T0_i < 1, there is nothing to show. A model within ε is within every ε' ≥ ε. For every basin i choose
t and ε', and put t consecutive grids U_1, …, U_t of q points each on G_i: all q·t points in increasing order of f_i,
with targets of successive points at least 3ε' apart (q·t steps of 3ε' fit into variation_i). Let A be the finite set of
all these points and all x^(i).

*Peaks.* Each head k = 1, …, s in turn picks the pair (y_k, p_k) with the largest weight a_k(y, p), where y is in A and
p is ANY position that no earlier head has picked (not only one in some S_j: a free position outside it could outweigh
the peak). Assign each y_k to one A_j that contains it. Since s < D, some basin i has no pick assigned. We do not know
which, hence the minimum over i. From here on, t, ε' and q are those of basin i.

*Pins.* Pin y_k at p_k. Then pin x^(j), for every j ≠ i, at an unused position of S_j; there is one, since |S_j| ≥ s +
D. This takes at most s + D − 1 positions of S_i, so t ≤ T0_i others can be left free. Fill every remaining position
with x^(j) of one j ≠ i, say x^(D), or x^(1) if i = D; such a j exists since D ≥ 2. No position is used twice. So every
z_j, j ≠ i, is at its minimum, whatever the free positions hold, and no pin or filler has a smaller f_i than a point of
G_i.

*Weights.* In units of the peak a_k(y_k, p_k), a free token has a weight of at most 1 in head k, because its position
was unused when the head picked and its point is in A. Let α and b be the sums of weights and of weighted values over
the free positions: α is in [0, t], b in [−tV, tV]^n. Let C be the sum of weights, and N the sum of weighted values,
over all other positions; C ≥ 1, by the pinned peak alone. The output is o = (N + b)/(C + α). The weight of the filler
enters only C and N, so it need not be bounded by the peak. As an average of values, |o| ≤ V in every coordinate. For
two sequences

    o − o' = ((b − b') − o'·(α − α'))/(C + α),   so |o − o'| ≤ |b − b'| + V·|α − α'|.

*Pigeonholes.* Choosing one point of U_l at the l-th free position gives q^t choices, and each gives (n+1)s numbers (α
and b of every head). G cells per coordinate are fewer than q^t cells in all, so two different choices share a cell: |α
− α'| ≤ t/G and |b − b'| ≤ 2tV/G. At positions where the two choices agree, put the filler into both. This leaves the
differences of α and b unchanged, changes C and N by the same amount in both, and C ≥ 1 still holds. So every output
moves by at most 3tV/G, and F's input by ‖Δ‖₁ ≤ E·n·s·3tV/G, since |W_O| ≤ 1.

*Targets.* Let l be the first free position where the two choices differ. The grids are in order, and no pin or filler
is lower, so in both sequences z_i is the value of f_i at the point at l. These are two points of U_l, so the targets
are at least 3ε' apart, and the outputs of the model at least ε'. A two-layer F of width N with weights ≤ 1 changes by
at most N·L_act·‖Δ‖₁ (Lemma 4). ∎

**Computation.** For one t, the best ε' ≥ ε with q points is variation/(3tq), q ≤ Q = ⌊variation/(3tε)⌋, and then W =
G(q)/(K·q) with K = 9·t²·L_act·E·n·s·V/variation. Since G(q) < q^(t/m) with m = (n+1)s, we have W < q^(t/m − 1)/K, which
rises with q if t > m. So we try q from Q downwards until this bound is no better than the best value found. The same
bound, in floating point with a margin, orders the t, and the search over t ends when the bound falls below the best
exact value. So the result is the exact maximum. It rises when ε falls and when a set or a variation grows, because then
the maximum is over more choices.
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

MAX_WIDTH = 10**300
"""Larger widths are reported as this."""
GRID_STEPS_PER_DECADE, GRID_DECADES = 8, 300
"""`bites_below_eps` tries ε = 10^(−k/8), down to 1e-300."""
LOG_MARGIN = 1e-9
"""Relative margin on floating-point logarithms, whose rounding is below 1e-12 of their size."""


@dataclass(frozen=True)
class Basin:
    """What the count needs to know about one basin."""

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
        """(n + 1)·s, the number of sums that attention keeps of a sequence."""
        return (self.head_dim + 1) * self.heads

    def cost(self, t: int, variation: Fraction) -> Fraction:
        """Return K: with t free positions and q points per grid the width is at least G/(K·q)."""
        moved = movement(t, heads=self.heads, head_dim=self.head_dim, lipschitz=self.lipschitz)
        return 3 * t * moved / variation


@dataclass(frozen=True)
class Width:
    """A proved lower bound on the width of F, with the choices that give it."""

    width: Fraction
    positions: int | None
    """t, the best number of free positions for the deciding basin; None if the width is 0."""
    basin: int
    """The deciding basin, counted from 0: the one with the smallest width."""


def least_width(eps: float | Fraction, basins: Sequence[Basin], sizes: Heads) -> Width:
    """Return the proved lower bound on the width of an F within ε: the minimum over basins of the best over t and ε' ≥
    ε.

    It is capped at `MAX_WIDTH`, never rises with ε, and never falls when a set or a variation grows.
    """
    _check(eps, basins, sizes)
    found = {basin: _best(Fraction(eps), basin, sizes) for basin in set(basins)}
    least = min(range(len(basins)), key=lambda i: found[basins[i]][0])
    width, t = found[basins[least]]
    return Width(width, t or None, least)


def bites_below_eps(basins: Sequence[Basin], sizes: Heads) -> float | None:
    """Return the largest ε = 10^(−k/8) at which `least_width` exceeds one unit, or None if there is none above 1e-300.

    `least_width` never rises with ε, so it exceeds one unit at every smaller ε too.
    """
    _check(1, basins, sizes)
    distinct = set(basins)
    k, end = 0, GRID_STEPS_PER_DECADE * GRID_DECADES
    step = 1 << end.bit_length()
    while step := step // 2:  # bisect for where the floating-point bound first exceeds 1
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
    return 10.0 ** (-k / GRID_STEPS_PER_DECADE)


def _may_bite(k: int, basins: set[Basin], sizes: Heads) -> bool:
    """Return whether the floating-point bound allows a width above 1; only a guide for the exact search."""
    bounds = [_log_bounds(Fraction(_grid(k)), basin, sizes)[1] for basin in basins]
    return all(len(b) > 0 and b.max() > 0 for b in bounds)


def _bites(k: int, basins: set[Basin], sizes: Heads) -> bool:
    """Return whether the least width exceeds 1 at a point of the grid, exactly."""
    return all(_exceeds(Fraction(1), Fraction(_grid(k)), basin, sizes) for basin in basins)


def _best(eps: Fraction, basin: Basin, sizes: Heads) -> tuple[Fraction, int]:
    """Return the exact maximum over t and ε' ≥ ε for one basin, and its t (0 if nothing is proved)."""
    if _exceeds(Fraction(MAX_WIDTH), eps, basin, sizes):
        ts, logs = _log_bounds(eps, basin, sizes)
        return Fraction(MAX_WIDTH), int(ts[logs.argmax()])
    best, chosen, m = Fraction(0), 0, sizes.numbers
    for t, bound in _descending(eps, basin, sizes):
        if best and bound < _log(best):
            break
        width = _best_ratio(_points(eps, t, basin), t, m) / sizes.cost(t, basin.variation)
        if (width, -t) > (best, -chosen):
            best, chosen = width, t
    return best, chosen


def _exceeds(level: Fraction, eps: Fraction, basin: Basin, sizes: Heads) -> bool:
    """Return whether the maximum over t and ε' ≥ ε exceeds a level, exactly and without computing roots."""
    for t, bound in _descending(eps, basin, sizes):
        if bound < _log(level):
            return False
        K, m, q = level * sizes.cost(t, basin.variation), sizes.numbers, _points(eps, t, basin)
        while q >= 2:
            if _is_power_less(math.floor(K * q) + 1, m, q, t):  # G exceeds K·q
                return True
            if not _is_power_less(K.numerator, m, q, t - m, K.denominator):  # no smaller q can do it
                break
            q -= 1
    return False


def _points(eps: Fraction, t: int, basin: Basin) -> int:
    return math.floor(basin.variation / (3 * t * eps))


def _best_ratio(points: int, t: int, m: int) -> Fraction:
    """Return the largest G(q)/q over 2 ≤ q ≤ points, where G^m < q^t and t > m."""
    best, q = Fraction(0), points
    while q >= 2 and _is_power_less(best.numerator, m, q, t - m, best.denominator):
        best = max(best, Fraction(root(q**t - 1, m), q))
        q -= 1
    return best


def _is_power_less(a: int, m: int, q: int, t: int, denominator: int = 1) -> bool:
    """Return whether (a/denominator)^m < q^t; powers are computed only if their lengths in bits do not decide."""
    least = t * (q.bit_length() - 1) + m * (denominator.bit_length() - 1)
    most = t * q.bit_length() + m * denominator.bit_length()
    if m * a.bit_length() <= least:
        return True
    if m * (a.bit_length() - 1) >= most:
        return False
    return a**m < q**t * denominator**m


def _descending(eps: Fraction, basin: Basin, sizes: Heads) -> list[tuple[int, float]]:
    """Return every t with at least two points per grid, and a bound on log W, largest bound first."""
    ts, logs = _log_bounds(eps, basin, sizes)
    order = np.argsort(-logs, kind="stable")
    return [(int(ts[j]), float(logs[j])) for j in order if logs[j] > -math.inf]


def _log_bounds(eps: Fraction, basin: Basin, sizes: Heads) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return all t with (n+1)s < t ≤ T0, and for each the logarithm of the bound q^(t/m − 1)/K on W, rounded up."""
    m, T0 = sizes.numbers, basin.size - sizes.heads - sizes.intrinsic + 1
    too_few_heads = sizes.heads < sizes.intrinsic
    ts = np.arange(m + 1, T0 + 1 if too_few_heads else 0, dtype=np.int64)
    t = ts.astype(np.float64)
    log_points = _log(basin.variation / (3 * eps)) - np.log(t) + LOG_MARGIN
    small = log_points < 34  # below 2^50 integers are exact enough to round down
    log_points[small] = np.log(np.maximum(np.floor(np.exp(log_points[small])), 1))
    logs = (t / m - 1) * log_points - 2 * np.log(t) - _log(sizes.cost(1, basin.variation))
    logs += LOG_MARGIN * (1 + np.abs(logs) + (t / m) * np.abs(log_points))
    return ts, np.where(log_points < math.log(2) - 1e-6, -math.inf, logs)


def _log(x: Fraction) -> float:
    return math.log(x.numerator) - math.log(x.denominator)
