"""Related results on how many heads are needed, each with its own conditions.

Only consequences of the published statements are computed. If a theorem leaves a constant unspecified, the answer has
the kind `order` and gives the expression without the constant.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from headcount.core import BadInput
from headcount.theory.bounds.too_few_heads import check

MAX_EXACT_LENGTH = 400
"""The number of primitives is computed exactly up to this length; at 400 it has about 100 digits."""


@dataclass(frozen=True)
class Known:
    """One published result: its source, its conditions, and what it says for these sizes."""

    source: str
    conditions: str
    says: str
    value: float | bool | None
    kind: str
    """`exact`, `order` (up to a constant that the source does not give) or `conjecture`."""


def corollary_one(first: int, second: int, length: int) -> Known:
    """Corollary 1: two representations of one target with D1² + D2² ≤ T/50 have D1 = D2.

    Its proof takes γ ≤ max(D1, D2) for any d, and combines 2 (1), with free weights, and 2 (2), with weights ≤ 1.
    """
    check(first=first, second=second, length=length)
    applies = 50 * (first**2 + second**2) <= length
    says = "D1 and D2 must be equal" if applies else f"says nothing before T = {50 * (first**2 + second**2)}"
    return Known("Corollary 1", "(2.1)–(2.4) for both representations; D1² + D2² ≤ T/50", says, applies, "exact")


def other_representations(intrinsic: int, length: int) -> Known:
    """Corollary 1 for a target with a representation of size D: the D' ≠ D that no other representation can have.

    D² + D'² ≤ T/50 is D'² ≤ ⌊T/50⌋ − D², so the excluded D' run from 1 to a largest one, without D itself.
    """
    check(intrinsic=intrinsic, length=length)
    smallest = 2 if intrinsic == 1 else 1
    room = length // 50 - intrinsic**2
    largest = math.isqrt(room) if room >= smallest**2 else 0
    if largest:
        itself = f" (D' ≠ {intrinsic})" if intrinsic <= largest else ""
        says = f"no second representation of the target has D' ≤ {largest}{itself}"
    else:
        says = f"says nothing of D = {intrinsic} before T = {50 * (intrinsic**2 + smallest**2)}"
    return Known(
        "Corollary 1", "(2.1)–(2.4) for both representations, D and D' ≠ D; D² + D'² ≤ T/50", says, largest, "exact"
    )


def conjecture_one(depth: int, heads: int, intrinsic: int) -> Known:
    """Conjecture 1: with depth L efficient approximation needs L·h ≥ D; its rate has unknown constants."""
    check(depth=depth, heads=heads, intrinsic=intrinsic)
    enough = depth * heads >= intrinsic
    says = (
        "L·h ≥ D holds" if enough else f"L·h = {depth * heads} < D = {intrinsic}: exponentially large M is conjectured"
    )
    return Known("Conjecture 1", "depth L, h heads a layer; a conjecture, not a theorem", says, enough, "conjecture")


def density_primitives(length: int, dim: int) -> Known:
    """Theorem 1: how many primitives D the density construction needs.

    These are the minima of x_j and of 1 − x_j over all index sets of size T/4: 2d·C(T, T/4). The paper adds sets for
    the order statistics without one index, which are redundant.
    """
    check(length=length, dim=dim)
    if length % 4:
        raise BadInput(f"the density construction takes a length that is a multiple of 4, not {length}")
    count = 2 * dim * math.comb(length, length // 4) if length <= MAX_EXACT_LENGTH else None
    number = f"= {count:,}" if count is not None else f"> 10^{math.floor(_log10_comb(length, length // 4))}"
    return Known(
        "Theorem 1 (its construction)",
        "T a multiple of 4, continuous F on [0, 1]^(T·d)",
        f"D = 2d·C(T, T/4) {number} primitives suffice",
        count,
        "exact",
    )


def _log10_comb(n: int, k: int) -> float:
    """Return log10 of C(n, k), rounded down: rounding errors are far below 1e-9 of it."""
    return (1 - 1e-9) * (math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)) / math.log(10)


def rank_bottleneck(length: int, head_dim: int) -> Known:
    """Bhojanapalli et al. 2020: a head of dimension below the length cannot represent every attention matrix."""
    check(length=length, head_dim=head_dim)
    full = head_dim >= length
    says = "any stochastic matrix can be a head's attention" if full else f"not from n = {head_dim} < T = {length}"
    return Known("Bhojanapalli et al. 2020", "every position asks; inputs of full rank", says, full, "exact")


def memorised(heads: int, head_dim: int, length: int) -> Known:
    """Mahdavi et al. 2023: one attention layer memorises of the order h·min(T, n) examples."""
    check(heads=heads, head_dim=head_dim, length=length)
    count = heads * min(length, head_dim)
    return Known(
        "Mahdavi et al. 2023", "tokens in general position", f"of the order of {count} examples", count, "order"
    )


def nearest_neighbour_heads(dim: int, rank: int) -> Known:
    """Amsel et al. 2024: the nearest neighbour needs exp(Ω(d − r)) heads of rank r; one head of full rank suffices."""
    check(dim=dim, rank=rank)
    says = "one head of full rank suffices" if rank >= dim else f"exp(Ω(d − r)) heads, d − r = {dim - rank}"
    return Known(
        "Amsel et al. 2024", "nearest-neighbour target on the sphere S^(d−1)", says, max(0, dim - rank), "order"
    )


def sparse_averaging(heads: int, head_dim: int, sparsity: int, bits: int = 32) -> Known:
    """Sanford et al. 2023: q-sparse averaging needs (head dimension m)·(heads)·(bits p) ≥ c·q."""
    check(heads=heads, head_dim=head_dim, sparsity=sparsity, bits=bits)
    room = heads * head_dim * bits
    says = f"h·n·p = {room} against q = {sparsity}: needed is h·n·p ≥ c·q with a hidden constant c"
    return Known("Sanford et al. 2023", "q-sparse averaging, numbers of p bits", says, room / sparsity, "order")


def sparse_regression_heads(sparsity: int) -> Known:
    """Mousavi-Hosseini et al. 2025: q-sparse token regression needs at least q heads."""
    check(sparsity=sparsity)
    says = f"at least {sparsity} heads"
    return Known("Mousavi-Hosseini et al. 2025", "q-sparse token regression, one layer", says, sparsity, "exact")
