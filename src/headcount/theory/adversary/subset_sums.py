"""Search for two selections with nearly equal sums, which the pigeonhole argument of Theorem 2 (2) proves to exist.

The input is `choices[position][choice]`, vectors in R^m. A selection takes one choice at every position; two selections
collide when their sums agree. Positions where both take the same choice cancel, so we look for a short sum of
*differences* vectors[j][a] − vectors[j][b], at most one per position and at least one in all.
With q choices at each of T0 positions there are q^T0 selections, so by the pigeonhole principle some pair lies within
about q^(−T0/m), and about q^(2·T0) pairs, so by chance some pair lies within about q^(−2·T0/m). Three searches:

- `meet_in_the_middle` lists all differences of two halves of the positions and finds the nearest pair with a k-d tree.
  It is exact as long as both lists fit; lists of W sums reach about W^(−2/m).
- `k_list` is a tree over the positions (Wagner). Every node keeps the W shortest sums of its two children, so every
  full level gains a factor W^(−1/m) and the last one W^(−2/m). It uses more positions, but may miss the optimum.
- `lattice` handles two choices per token: the differences d_j have coefficients in {−1, 0, 1}, a subset-sum problem.
  LLL reduces the lattice [I | K·d] to rows that are short in both coefficients and sum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

from headcount.core import BadInput, generator

Array = NDArray[np.float64]
Ranks = NDArray[np.intp]

DEFAULT_LIST_SIZE = 50_000
"""Sums per list by default; a merge then takes about a quarter of a second in R^3."""
MIN_PARTNERS = 4
"""Partners that `k_list` tries at least for every sum: the W shortest results are nearly the W shortest of all."""


@dataclass(frozen=True)
class Choices:
    """The choices at every position: vectors[position][choice, m], and optionally a tag for each choice.

    Two selections may differ at a position only by choices whose tags are at least `gap` apart. With targets as tags,
    every pair that a search returns differs in its target.
    """

    vectors: Sequence[Array]
    tags: Sequence[Array] = ()
    gap: float = 0.0

    def __post_init__(self) -> None:
        sizes = {v.shape[1] for v in self.vectors if v.ndim == 2}
        if not self.vectors or len(sizes) != 1 or any(v.ndim != 2 or len(v) < 1 for v in self.vectors):
            raise BadInput("a search needs at least one position, and choices that are vectors of the same length")
        if self.tags and [len(t) for t in self.tags] != [len(v) for v in self.vectors]:
            raise BadInput("a search needs one tag for every choice, or none at all")
        if not all(np.isfinite(v).all() for v in self.vectors):
            raise BadInput("a search needs finite vectors")

    def pairs(self, position: int) -> Ranks:
        """Return the pairs a < b of choices that may differ: [count, 2]."""
        a, b = np.triu_indices(len(self.vectors[position]), 1)
        if self.tags:
            tags = np.asarray(self.tags[position])
            far = np.abs(tags[a] - tags[b]) >= self.gap
            a, b = a[far], b[far]
        return np.stack([a, b], 1)


@dataclass(frozen=True)
class Pair:
    """Two selections, with one choice per position each, and the Euclidean distance of their sums."""

    first: tuple[int, ...]
    second: tuple[int, ...]
    distance: float
    search: str
    complete: bool
    """Whether the search covered all pairs of selections, so that this is the optimum up to rounding."""


@dataclass
class _Sums:
    """A list of sums of differences, and how each was formed; row 0 is the empty sum.

    Swapping the two selections changes the sign of a sum, so a list holds one of every pair ±v and stands for both.
    """

    vectors: Array
    position: int = -1
    pairs: Ranks = field(default_factory=lambda: np.zeros((1, 2), dtype=np.intp))
    left: _Sums | None = None
    right: _Sums | None = None
    rows: Ranks = field(default_factory=lambda: np.zeros((0, 3), dtype=np.intp))
    """For every sum, its row in the left list, its row in the right list, and the sign of the latter."""
    complete: bool = True

    def trace(self, row: int, sign: int = 1) -> dict[int, tuple[int, int]]:
        """Return the pair of choices at every position of one row, swapped if the sign is negative."""
        if self.left is None or self.right is None:
            a, b = (int(v) for v in self.pairs[row][::sign])
            return {self.position: (a, b)} if row else {}
        i, j, flipped = (int(v) for v in self.rows[row])
        return {**self.left.trace(i, sign), **self.right.trace(j, sign * flipped)}


def distance(choices: Choices, first: Sequence[int], second: Sequence[int]) -> float:
    """Return the Euclidean distance of two selections' sums, every coordinate summed exactly and rounded once."""
    parts = [(v[a], v[b]) for v, a, b in zip(choices.vectors, first, second, strict=True) if a != b]
    m = choices.vectors[0].shape[1]
    return math.hypot(*(math.fsum(x for p, q in parts for x in (p[k], -q[k])) for k in range(m)))


def _make_pair(choices: Choices, differing: dict[int, tuple[int, int]], search: str, complete: bool) -> Pair:
    first, second = [0] * len(choices.vectors), [0] * len(choices.vectors)
    for j, (a, b) in differing.items():
        first[j], second[j] = a, b
    return Pair(tuple(first), tuple(second), distance(choices, first, second), search, complete)


def _leaf(choices: Choices, position: int, list_size: int) -> _Sums:
    """Return the differences at one position, or the shortest `list_size` if there are more."""
    pairs, v = choices.pairs(position), choices.vectors[position]
    differences = v[pairs[:, 0]] - v[pairs[:, 1]]
    complete = len(pairs) < list_size
    if not complete:
        keep = np.argpartition((differences**2).sum(1), list_size - 2)[: list_size - 1]
        pairs, differences = pairs[keep], differences[keep]
    pairs = np.concatenate([np.zeros((1, 2), dtype=np.intp), pairs])
    return _Sums(np.concatenate([np.zeros((1, v.shape[1])), differences]), position, pairs, complete=complete)


def _count(a: _Sums, b: _Sums) -> int:
    """Return the number of rows in the product of two lists."""
    return len(a.vectors) * len(b.vectors) + (len(a.vectors) - 1) * (len(b.vectors) - 1)


def _product(a: _Sums, b: _Sums) -> _Sums:
    """Return all sums and differences of a row of one list and a row of the other."""
    i, j = np.divmod(np.arange(len(a.vectors) * len(b.vectors)), len(b.vectors))
    both = (i > 0) & (j > 0)
    i, j, sign = (
        np.append(i, i[both]),
        np.append(j, j[both]),
        np.repeat([1, -1], [len(i), int(both.sum())]),
    )
    vectors = a.vectors[i] + sign[:, None] * b.vectors[j]
    return _Sums(vectors, left=a, right=b, rows=np.stack([i, j, sign], 1), complete=a.complete and b.complete)


def _partners(a: Array, b: Array, count: int) -> Ranks:
    """Return, for every row of a, the `count` signed rows of b that come nearest to cancelling it: [·, 3]."""
    order = np.argsort(a[:, int(a.std(0).argmax())])  # neighbours in sequence keep the tree in the cache
    tree: Any = KDTree(np.concatenate([-b, b[1:]]), balanced_tree=False, compact_nodes=False)
    count = min(count, 2 * len(b) - 1)
    found = np.asarray(tree.query(a[order], k=list(range(1, count + 1)))[1], dtype=np.intp).ravel()
    flipped = found >= len(b)
    return np.stack(
        [np.repeat(order, count), np.where(flipped, found - len(b) + 1, found), np.where(flipped, -1, 1)], 1
    )


def _merge(a: _Sums, b: _Sums, list_size: int) -> _Sums:
    """Return about the `list_size` shortest sums of two lists: from all sums if few, else from nearest partners."""
    if _count(a, b) <= list_size:
        return _product(a, b)
    if _count(a, b) <= 8 * list_size:
        rows = _product(a, b).rows
    else:
        if len(a.vectors) < len(b.vectors):
            a, b = b, a
        rows = _partners(a.vectors, b.vectors, max(MIN_PARTNERS, -(-list_size // len(a.vectors))))
    sums, size = _sum_rows(a, b, rows)
    keep = np.argpartition(size, list_size - 2)[: list_size - 1]
    empty = np.array([[0, 0, 1]], dtype=np.intp)
    vectors = np.concatenate([np.zeros((1, sums.shape[1])), sums[keep]])
    return _Sums(vectors, left=a, right=b, rows=np.concatenate([empty, rows[keep]]), complete=False)


def _sum_rows(a: _Sums, b: _Sums, rows: Ranks) -> tuple[Array, Array]:
    """Return the sums of the given rows, and their squared lengths; the empty sum counts as infinitely long."""
    i, j, sign = rows.T
    sums = a.vectors[i] + sign[:, None] * b.vectors[j]
    return sums, np.where((i == 0) & (j == 0), np.inf, (sums**2).sum(1))


def _shortest_sum(choices: Choices, a: _Sums, b: _Sums, search: str, complete: bool) -> Pair:
    """Return the pair behind the shortest sum of one row of each list, the empty sum excluded."""
    if len(a.vectors) < 2 and len(b.vectors) < 2:
        raise BadInput("no two selections may differ: each position has one choice, or its tags all lie within the gap")
    rows = _partners(a.vectors, b.vectors, 2)
    i, j, sign = (int(v) for v in rows[int(_sum_rows(a, b, rows)[1].argmin())])
    return _make_pair(choices, {**a.trace(i), **b.trace(j, sign)}, search, complete)


def meet_in_the_middle(choices: Choices, list_size: int = DEFAULT_LIST_SIZE) -> Pair:
    """Return the nearest pair over the leading positions that two lists of `list_size` sums can cover.

    With q choices a position has 1 + q(q − 1) differences, so p positions need (1 + q(q − 1))^(p/2)/2 rows in each list
    instead of the square of that. All pairs that differ at these positions only are covered; if these are all
    positions, the pair is optimal. A position that would make its list too long is skipped.
    """
    halves: list[list[_Sums]] = [[], []]
    sizes = [1, 1]
    for position in range(len(choices.vectors)):
        shorter = 0 if sizes[0] <= sizes[1] else 1  # extend the shorter list
        size = sizes[shorter] * (1 + 2 * len(choices.pairs(position)))
        if size <= 2 * list_size - 1:  # a list holds one of every pair ±v
            halves[shorter].append(_leaf(choices, position, list_size + 1))
            sizes[shorter] = size
    if not halves[0]:
        raise BadInput(f"every position has more differences than a list of {list_size} sums can hold")
    empty = _Sums(np.zeros((1, choices.vectors[0].shape[1])))
    lists = [_merge_all(half or [empty], list_size + 1) for half in halves]
    used = len(halves[0]) + len(halves[1])
    return _shortest_sum(choices, lists[0], lists[1], "meet in the middle", used == len(choices.vectors))


def _merge_all(leaves: list[_Sums], list_size: int) -> _Sums:
    """Merge neighbouring lists, level by level, until one is left."""
    while len(leaves) > 1:
        merged = [_merge(leaves[k], leaves[k + 1], list_size) for k in range(0, len(leaves) - 1, 2)]
        leaves = merged + leaves[len(merged) * 2 :]
    return leaves[0]


def k_list(choices: Choices, list_size: int = DEFAULT_LIST_SIZE, tries: int = 1, seed: int = 0) -> Pair:
    """Return the nearest pair that a tree over all positions finds with `list_size` sums per list.

    Neighbours are merged first: if the vectors of neighbouring positions are nearly parallel, as on consecutive
    pieces of one smooth curve, then their shortest sums are differences of higher order, and every list is useful.
    Every further try takes the positions in another order.
    """
    if list_size < 2:
        raise BadInput(f"invalid list size {list_size}: a list must hold at least 2 sums")
    rng = generator(seed, "k-list")
    best: Pair | None = None
    empty = _Sums(np.zeros((1, choices.vectors[0].shape[1])))
    for attempt in range(max(tries, 1)):
        order = np.arange(len(choices.vectors)) if attempt == 0 else rng.permutation(len(choices.vectors))
        leaves = [_leaf(choices, int(j), list_size) for j in order]
        middle = 1 << max(0, (len(leaves) - 1).bit_length() - 1)  # the tree's own middle keeps both halves full
        middle = middle if len(leaves) - middle >= middle // 2 else len(leaves) // 2
        left, right = (_merge_all(half or [empty], list_size) for half in (leaves[:middle], leaves[middle:]))
        found = _shortest_sum(choices, left, right, "k-list", left.complete and right.complete)
        best = found if best is None or found.distance < best.distance else best
    assert best is not None
    return best


def lattice(choices: Choices, tries: int = 8, seed: int = 0) -> Pair | None:
    """Return the nearest pair that LLL finds with two choices per position, or None if it finds none.

    For differences d_j the rows of [I | round(K·d)] generate all (c, K·Σ c_j·d_j) with integers c_j. With a larger K,
    short rows have shorter sums but larger coefficients, so we try K over powers of two. We keep rows, and sums
    and differences of two rows, whose c_j all lie in {−1, 0, 1}: these are pairs of selections. If a position has more
    than two choices, every try draws two of them; the first try takes the two with the shortest difference.
    """
    import flint

    rng = generator(seed, "lattice")
    allowed_pairs = [choices.pairs(j) for j in range(len(choices.vectors))]
    best: Pair | None = None
    for attempt in range(max(tries, 1)):
        two_choices: dict[int, tuple[int, int]] = {}
        for j, pairs in enumerate(allowed_pairs):
            if len(pairs):
                differences = choices.vectors[j][pairs[:, 0]] - choices.vectors[j][pairs[:, 1]]
                row = int((differences**2).sum(1).argmin()) if attempt == 0 else int(rng.integers(len(differences)))
                two_choices[j] = (int(pairs[row, 0]), int(pairs[row, 1]))
        if not two_choices:
            return None
        d = np.stack([choices.vectors[j][a] - choices.vectors[j][b] for j, (a, b) in two_choices.items()])
        if not d.any():
            return _make_pair(choices, dict(list(two_choices.items())[:1]), "lattice", False)
        basis, N = np.eye(len(d), dtype=np.int64), len(d)
        for power in range(3, 49, 3):  # each reduction continues the last one: only the sums are scaled up
            scaled = np.rint(d * (2.0**power / np.abs(d).max())).astype(np.int64).astype(object)
            rows: Any = flint.fmpz_mat(
                np.concatenate([basis.astype(object), basis.astype(object) @ scaled], 1).tolist()
            )
            reduced: list[Any] = rows.lll(delta=0.999).tolist()
            basis = np.array([[int(v) for v in row[:N]] for row in reduced], dtype=np.int64)
            c = basis.astype(float)
            i, k = np.triu_indices(len(c), 1)
            c = np.concatenate([c, c[i] + c[k], c[i] - c[k]])
            c = c[np.abs(c).max(1) == 1]
            if not len(c):
                continue
            signs = c[int(((c @ d) ** 2).sum(1).argmin())]
            signed_choices = zip(signs, two_choices.items(), strict=True)
            chosen = {j: (a, b) if sign > 0 else (b, a) for sign, (j, (a, b)) in signed_choices if sign}
            found = _make_pair(choices, chosen, "lattice", False)
            best = found if best is None or found.distance < best.distance else best
    return best


def nearest_pair(choices: Choices, list_size: int = DEFAULT_LIST_SIZE, tries: int = 1, seed: int = 0) -> Pair:
    """Return the nearest pair that any of the three searches finds."""
    found: list[Pair | None] = []
    if any(1 + len(choices.pairs(j)) <= list_size for j in range(len(choices.vectors))):
        found.append(meet_in_the_middle(choices, list_size))
    if not any(pair and pair.complete for pair in found):  # an optimum cannot be improved
        found += [k_list(choices, list_size, tries, seed), lattice(choices, tries, seed)]
    return min((pair for pair in found if pair), key=lambda pair: pair.distance)
