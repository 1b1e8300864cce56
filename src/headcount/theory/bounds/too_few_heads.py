"""Theorem 2 (2), too few heads: with s < D heads M = Ω(1/ε^k), and the count behind it as an exact number.

The exponent k describes the count for small ε. Since Ω alone implies no number, `counting_width` keeps every constant,
in exact rational arithmetic rounded to the safe side. `counting` has the proof and the best bound that it gives.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from headcount.core import BadInput

MAX_SIZE = 10_000_000
"""Limit on head counts, dimensions and lengths: the count runs over all positions, and ratios of sizes are doubles."""
SetRule = Callable[[int], int]
"""The smallest |S_i| at a length T, for one rule of choosing the sets; it never falls when T rises."""


@dataclass(frozen=True)
class Exponent:
    """The exponent k of M = Ω(1/ε^k) in one of its forms, and the sizes at which it becomes positive."""

    form: str
    """`printed` takes |S_i| = T/4, the worst case; `sharp` the smallest |S_i| of the task."""
    k: float
    """The exponent; if it is at most 0, the theorem says nothing for these sizes."""
    k_five_layers: float
    """The exponent if F may have five layers: k/4."""
    k_limit: float
    """T0/((n+1)s) − 1: the proof gives every exponent below this."""
    free_positions: float
    """T0, the positions that the adversary can fill."""
    vacuous: bool
    bites_from_length: int | None
    """The smallest T from which on k > 0, for these D, h, n and rule for the S_i; None if h ≥ D or there is no rule."""
    bites_below_head_dim: int | None
    """The smallest n with k ≤ 0; the bound bites for head dimensions below it. None if it never bites."""

    def bites_from(self) -> str:
        """Return ", it bites from T = …", or "" if that is unknown."""
        return "" if self.bites_from_length is None else f", it bites from T = {self.bites_from_length}"


def check(**sizes: int) -> None:
    """Reject sizes below 1 and above `MAX_SIZE`."""
    for name, number in sizes.items():
        if number < 1:
            raise BadInput(f"{name} must be at least 1, not {number}")
        if number > MAX_SIZE:
            raise BadInput(f"{name} must be at most {MAX_SIZE:,}")


def all_positions(length: int) -> int:
    """Return T: the rule for sets with all positions."""
    return length


def first_length(needed: int, rule: SetRule) -> int:
    """Return the smallest T from which on the smallest set has more than `needed` positions."""
    low, high = 0, 1
    while rule(high) <= needed:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if rule(middle) > needed else (middle, high)
    return high


def exponents(
    *,
    length: int,
    heads: int,
    head_dim: int,
    intrinsic: int,
    smallest_set: int | None = None,
    rule: SetRule | None = None,
) -> list[Exponent]:
    """Return k of Theorem 2 (2) as printed and in its sharp form.

        printed   k = (T/4 − s − D + 1)/((n + 1)s + 1) − 1        Theorem 2 (2), |S_i| ≥ T/4
        sharp     k = (min|S_i| − s − D + 1)/((n + 1)s + 1) − 1    what its proof gives

    Assumptions: (1.1)–(1.3) on the model, (2.1)–(2.4) on the task, s < D. `smallest_set` is min|S_i| (default T), and
    `rule` gives it at other lengths. Sets with all positions are assumed to have all positions at every length; for
    smaller sets without a rule, the result says nothing about other lengths.
    """
    check(heads=heads, head_dim=head_dim, intrinsic=intrinsic, length=length)
    m = length if smallest_set is None else smallest_set
    if not 1 <= m <= length:
        raise BadInput(f"the smallest index set has 1 to T = {length} positions, not {m}")
    if rule is None and m == length:
        rule = all_positions
    if rule is not None and rule(length) != m:
        raise BadInput(f"the rule for the sets gives {rule(length)} positions at T = {length}, the sets have {m}")
    needed = (head_dim + 2) * heads + intrinsic  # k > 0 means |S| > (n + 2)s + D
    too_few, found = heads < intrinsic, list[Exponent]()
    sharp_from = None if rule is None else first_length(needed, rule)
    for form, size, from_length in (
        ("printed", Fraction(length, 4), 4 * needed + 1),
        ("sharp", Fraction(m), sharp_from),
    ):
        free = size - heads - intrinsic + 1
        k = free / ((head_dim + 1) * heads + 1) - 1
        largest = -(-(size - intrinsic) // heads) - 3  # the largest n with (n + 2)s + D < |S|
        bites = largest + 1 if too_few and largest >= 1 else None
        found.append(
            Exponent(
                form=form,
                k=float(k),
                k_five_layers=float(k / 4),
                k_limit=float(free / ((head_dim + 1) * heads) - 1),
                free_positions=float(free),
                vacuous=not too_few or k <= 0,
                bites_from_length=from_length if too_few else None,
                bites_below_head_dim=bites,
            )
        )
    return found


def root(number: int, degree: int) -> int:
    """Return the largest integer g with g^degree ≤ number, for number ≥ 0."""
    shift = number.bit_length() // degree // 2
    if shift == 0:  # g is below 4
        return next(g for g in (3, 2, 1, 0) if g**degree <= number)
    g = (root(number >> (degree * shift), degree) + 1) << shift  # above the root; Newton's steps decrease to it
    while True:
        smaller = ((degree - 1) * g + number // g ** (degree - 1)) // degree
        if smaller >= g:
            return g
        g = smaller


def root_above(number: int) -> Fraction:
    """Return a rational number at or above the square root, too large by at most 2^-40."""
    return Fraction(math.isqrt(number * 4**40 - 1) + 1, 2**40)


def rounded_down(value: Fraction) -> float:
    """Return the largest double that is at most a value ≥ 0."""
    if value >= sys.float_info.max:
        return sys.float_info.max
    near = float(value)
    return near if Fraction(near) <= value else math.nextafter(near, 0.0)


def movement(positions: int, *, heads: int, head_dim: int, lipschitz: float = 1.0) -> Fraction:
    """Return L_act·E·n·s·3·t·V, which is G times the bound on L_act·‖Δ‖₁, for t free positions and G cells per
    coordinate.

    E = n·s, and V = sqrt(E) bounds every value, since ‖P‖ ≤ 1 and |W_V| ≤ 1.
    """
    E = heads * head_dim
    return Fraction(lipschitz) * E * head_dim * heads * 3 * positions * root_above(E)


def counting_width(
    eps: float | Fraction,
    *,
    smallest_set: int,
    heads: int,
    head_dim: int,
    intrinsic: int,
    variation: float | Fraction,
    lipschitz: float = 1.0,
    positions: int | None = None,
) -> Fraction:
    """Return a proved lower bound on the width of F for any model within ε, with all constants of the counting.

    It is for one basin and t = `positions` free positions (default: all T0 = |S_i| − s − D + 1). `variation` is the
    change of the target along the adversary's segment. The t grids have q = ⌊variation/(3tε)⌋ points each, so there are
    q^t sequences. If G^((n+1)s) < q^t, then two of them share a cell out of G per coordinate, F's inputs for them are
    within movement/(L_act·G), and by Lemma 4 the width is at least (3ε − 2ε)·G/movement.
    """
    check(heads=heads, head_dim=head_dim, intrinsic=intrinsic, length=smallest_set)
    if not (eps > 0 and variation > 0 and lipschitz > 0):
        raise BadInput("eps, variation and the activation's Lipschitz constant must be above 0")
    free = smallest_set - heads - intrinsic + 1
    if heads >= intrinsic or free < 1:
        return Fraction(0)
    if positions is not None and not 1 <= positions <= free:
        raise BadInput(f"positions must be from 1 to T0 = {free}, not {positions}")
    t = free if positions is None else positions
    points = math.floor(Fraction(variation) / (3 * t * Fraction(eps)))
    if points < 2:
        return Fraction(0)
    cells = root(points**t - 1, (head_dim + 1) * heads)
    return Fraction(eps) * cells / movement(t, heads=heads, head_dim=head_dim, lipschitz=lipschitz)


def pair_width(gap: float, eps: float, moved: float, lipschitz: float = 1.0) -> float:
    """Return the width that two inputs force on F, by Lemma 4: targets `gap` apart, F's inputs `moved` apart (l1).

    For a model within ε, a two-layer F with weights ≤ 1 and an activation of that Lipschitz constant has at least
    (gap − 2ε)/(L_act·‖Δ‖₁) hidden units: 0 if the gap is at most 2ε, infinity if the inputs collide.
    """
    if gap <= 2 * eps:
        return 0.0
    return math.inf if moved == 0 else (gap - 2 * eps) / (lipschitz * moved)
