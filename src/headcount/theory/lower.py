"""Theorem 2 (2), too few heads: with s < D heads M = Ω(1/ε^k), and what that says in numbers.

The proof counts. On T0 = min|S_i| − s − D + 1 free positions it places points of consecutive grids of q points each,
so there are q^T0 sequences; attention keeps (n + 1)·s numbers of each, so two sequences agree in all of them up to a
cell of a partition with fewer cells than sequences, while their targets differ by 3ε. A feed-forward block with weights
≤ 1 that tells them apart must be wide (Lemma 4). The exponent k is what remains for small ε; `counting_width` keeps
every constant, in exact rational arithmetic rounded to the safe side, because Ω alone implies no number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from headcount.base.errors import BadInput


@dataclass(frozen=True)
class Exponent:
    """The exponent k of M = Ω(1/ε^k) in one of its forms, and where it begins to say something."""

    form: str
    """`printed` takes |S_i| = T/4, the worst case; `sharp` the smallest |S_i| of the task."""
    k: float
    """The exponent; at most 0 means that the theorem says nothing here."""
    k_five_layers: float
    """The exponent where F may have five layers: k/4."""
    k_limit: float
    """T0/((n+1)s) − 1: the proof gives every exponent below this."""
    free_positions: float
    """T0, the positions that the adversary can fill."""
    vacuous: bool
    bites_from_length: int | None
    """The smallest T at which k > 0, for these D, h and n and the same share of positions in S_i; None if h ≥ D."""
    bites_below_head_dim: int | None
    """The smallest n at which k ≤ 0: the bound bites for head dimensions below it; None where none does."""


def check(*, heads: int, head_dim: int, intrinsic: int, length: int) -> None:
    """Refuse sizes that are none."""
    for name, number in (("heads", heads), ("head_dim", head_dim), ("intrinsic", intrinsic), ("length", length)):
        if number < 1:
            raise BadInput(f"{name} must be at least 1, not {number}")


def exponents(
    *, length: int, heads: int, head_dim: int, intrinsic: int, smallest_set: int | None = None
) -> list[Exponent]:
    """Return k of Theorem 2 (2) as printed and in its sharp form.

        printed   k = (T/4 − s − D + 1)/((n + 1)s + 1) − 1        Theorem 2 (2), |S_i| ≥ T/4
        sharp     k = (min|S_i| − s − D + 1)/((n + 1)s + 1) − 1    what its proof gives

    Assumptions: (1.1)–(1.3) on the model, (2.1)–(2.4) on the task, s < D. `smallest_set` is min|S_i|, by default T.
    """
    check(heads=heads, head_dim=head_dim, intrinsic=intrinsic, length=length)
    m = length if smallest_set is None else smallest_set
    if not 1 <= m <= length:
        raise BadInput(f"the smallest index set has 1 to T = {length} positions, not {m}")
    found: list[Exponent] = []
    for form, size in (("printed", Fraction(length, 4)), ("sharp", Fraction(m))):
        free = size - heads - intrinsic + 1
        k = free / ((head_dim + 1) * heads + 1) - 1
        few = heads < intrinsic
        share = size / length
        # k > 0 means |S| > (n + 2)s + D
        needed = (head_dim + 2) * heads + intrinsic
        largest = -(-(size - intrinsic) // heads) - 3  # the largest n with (n + 2)s + D < |S|
        bites = largest + 1 if few and largest >= 1 else None
        found.append(Exponent(
            form=form, k=float(k), k_five_layers=float(k / 4), k_limit=float(free / ((head_dim + 1) * heads) - 1),
            free_positions=float(free), vacuous=not few or k <= 0,
            bites_from_length=math.floor(needed / share) + 1 if few else None, bites_below_head_dim=bites,
        ))  # fmt: skip
    return found


def _root(number: int, degree: int) -> int:
    """Return the largest whole g with g^degree ≤ number."""
    low, high = 0, 1 << (number.bit_length() // degree + 1)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if middle**degree <= number else (low, middle - 1)
    return low


def counting_width(
    eps: float,
    *,
    smallest_set: int,
    heads: int,
    head_dim: int,
    intrinsic: int,
    variation: float,
    lipschitz: float = 1.0,
) -> Fraction:
    """Return a proved lower bound on the width of F for any model within ε, with all constants of the counting.

    `variation` is what the target changes along the adversary's segment: the segment's length r/4 times a lower bound
    of |∂F0/∂z_1|·|df_1/dr| on it (`task_variation` finds it for quadratic basins). The grids have
    q = ⌊variation/(3·T0·ε)⌋ points each. Normalised by the pinned peak of its head a sum of weights lies in [0, T0] and
    a sum of weighted values in [−T0·V, T0·V]^n with V = sqrt(E), since ‖P‖ ≤ 1 and |W_V| ≤ 1. G cells a coordinate
    with G^((n+1)s) < q^T0 leave two sequences in one cell: their head outputs differ by at most 3·T0·V/G, and
    ‖Δ‖₁ ≤ E·n·s·3·T0·V/G at F's input. By Lemma 4 the width is at least (3ε − 2ε)/(L_act·‖Δ‖₁).
    """
    check(heads=heads, head_dim=head_dim, intrinsic=intrinsic, length=smallest_set)
    if not (eps > 0 and variation > 0 and lipschitz > 0):
        raise BadInput("eps, variation and the activation's Lipschitz constant must be above 0")
    free = smallest_set - heads - intrinsic + 1
    if heads >= intrinsic or free < 1:
        return Fraction(0)
    points = math.floor(Fraction(variation) / (3 * free * Fraction(eps)))
    if points < 2:
        return Fraction(0)
    cells = _root(points**free - 1, (head_dim + 1) * heads)
    if cells < 1:
        return Fraction(0)
    E = heads * head_dim
    V = Fraction(math.isqrt(E * 4**40 - 1) + 1, 2**40)  # sqrt(E) rounded up
    moved = E * head_dim * heads * 3 * free * V / cells
    return Fraction(eps) / (Fraction(lipschitz) * moved)


def bites_below_eps(
    *, smallest_set: int, heads: int, head_dim: int, intrinsic: int, variation: float, lipschitz: float = 1.0
) -> float | None:
    """Return the ε below which `counting_width` exceeds one unit; None where no ε above 1e-300 does.

    It is reported as the largest power of ten to the −1/8 at which the bound holds, so it is itself proved.
    """
    sizes = {"smallest_set": smallest_set, "heads": heads, "head_dim": head_dim, "intrinsic": intrinsic}
    for eighth in range(8 * 300):
        eps = 10.0 ** (-eighth / 8)
        if counting_width(eps, **sizes, variation=variation, lipschitz=lipschitz) > 1:
            return eps
    return None


def pair_width(gap: float, eps: float, moved: float, lipschitz: float = 1.0) -> float:
    """Lemma 4: the width that two inputs force, targets `gap` apart, `moved` apart (l1) at F's input, model within ε.

    A two-layer F with weights ≤ 1 and an activation of that Lipschitz constant has at least
    (gap − 2ε)/(L_act·‖Δ‖₁) hidden units. 0 where the gap is within 2ε, infinity where the inputs collide.
    """
    if gap <= 2 * eps:
        return 0.0
    return math.inf if moved == 0 else (gap - 2 * eps) / (lipschitz * moved)
