"""Two selections with nearly equal sums: the search that the pigeonhole argument of Theorem 2 (2) leaves open.

Given are `choices[position][choice]`, vectors in R^m. A selection takes one choice at every position; two selections
collide when their sums agree. Positions where both take the same choice cancel, so what is sought is a sum of
*differences* vectors[j][a] − vectors[j][b], at most one a position and not all zero, that is as short as possible.
With q choices at each of T0 positions there are q^T0 selections, hence a pair within about q^(−T0/m) by pigeonholes,
and about q^(2·T0) pairs, hence one within about q^(−2·T0/m) by chance. To find one is another matter:

- `meet_in_the_middle`: all differences of two halves, and the nearest pair by a k-d tree: the exact optimum, as long
  as both lists fit; a list of W sums reaches W^(−2/m);
- `k_list`: a tree over the positions (Wagner). Every node keeps the W shortest sums of its two children, so every full
  level gains a factor W^(−1/m) and the last one W^(−2/m); the optimum is lost, more positions are used;
- `lattice`: with two choices a token the differences d_j have coefficients in {−1, 0, 1}, a subset-sum; the rows of the
  lattice [I | K·d], reduced by LLL, are short in coefficients and sum alike.
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

LIST = 50_000
"""Sums that a list holds unless told otherwise: a quarter of a second a merge in R^3."""
NEAR = 4
"""Partners that `k_list` looks at for every sum: the shortest W of these are nearly the shortest W of all."""


@dataclass(frozen=True)
class Choices:
    """What may be put where: vectors[position][choice, m], a tag for each choice, and how far apart tags must be.

    Two selections may differ at a position only by choices whose tags lie at least `gap` apart: with targets as tags
    every pair that a search returns differs in its target.
    """

    vectors: Sequence[Array]
    tags: Sequence[Array] = ()
    gap: float = 0.0

    def __post_init__(self) -> None:
        sizes = {v.shape[1] for v in self.vectors if v.ndim == 2}
        if not self.vectors or len(sizes) != 1 or any(v.ndim != 2 or len(v) < 1 for v in self.vectors):
            raise BadInput("a search needs positions with choices, each a vector of the same length")
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
    """Two selections, one choice a position each, and the Euclidean distance of their sums."""

    first: tuple[int, ...]
    second: tuple[int, ...]
    distance: float
    search: str
    complete: bool
    """Whether this is the exact optimum over all pairs of selections (up to rounding)."""


@dataclass
class _Sums:
    """A list of sums of differences, row 0 the empty one, and how each came about.

    To swap the two selections turns a sum's sign, so a list holds one of every pair ±v and stands for both.
    """

    vectors: Array
    position: int = -1
    pairs: Ranks = field(default_factory=lambda: np.zeros((1, 2), dtype=np.intp))
    left: _Sums | None = None
    right: _Sums | None = None
    rows: Ranks = field(default_factory=lambda: np.zeros((0, 3), dtype=np.intp))
    """Row of the left list, row of the right one, and the sign of the latter."""
    whole: bool = True

    def trace(self, row: int, sign: int = 1) -> dict[int, tuple[int, int]]:
        """Return position → pair of choices of one row, swapped if the sign is negative."""
        if self.left is None or self.right is None:
            a, b = (int(v) for v in self.pairs[row][::sign])
            return {self.position: (a, b)} if row else {}
        i, j, turned = (int(v) for v in self.rows[row])
        return {**self.left.trace(i, sign), **self.right.trace(j, sign * turned)}


def distance(choices: Choices, first: Sequence[int], second: Sequence[int]) -> float:
    """Return the Euclidean distance of two selections' sums; every coordinate is summed exactly and rounded once."""
    parts = [(v[a], v[b]) for v, a, b in zip(choices.vectors, first, second, strict=True) if a != b]
    m = choices.vectors[0].shape[1]
    return math.hypot(*(math.fsum(x for p, q in parts for x in (p[k], -q[k])) for k in range(m)))


def _pair(choices: Choices, differing: dict[int, tuple[int, int]], search: str, complete: bool) -> Pair:
    first, second = [0] * len(choices.vectors), [0] * len(choices.vectors)
    for j, (a, b) in differing.items():
        first[j], second[j] = a, b
    return Pair(tuple(first), tuple(second), distance(choices, first, second), search, complete)


def _leaf(choices: Choices, position: int, most: int) -> _Sums:
    """All differences at one position, the shortest `most` of them if there are more."""
    pairs, v = choices.pairs(position), choices.vectors[position]
    moved = v[pairs[:, 0]] - v[pairs[:, 1]]
    whole = len(pairs) < most
    if not whole:
        keep = np.argpartition((moved**2).sum(1), most - 2)[: most - 1]
        pairs, moved = pairs[keep], moved[keep]
    pairs = np.concatenate([np.zeros((1, 2), dtype=np.intp), pairs])
    return _Sums(np.concatenate([np.zeros((1, v.shape[1])), moved]), position, pairs, whole=whole)


def _count(a: _Sums, b: _Sums) -> int:
    """How many rows the product of two lists has."""
    return len(a.vectors) * len(b.vectors) + (len(a.vectors) - 1) * (len(b.vectors) - 1)


def _product(a: _Sums, b: _Sums) -> _Sums:
    """All sums and differences of a row of one list and a row of the other."""
    i, j = np.divmod(np.arange(len(a.vectors) * len(b.vectors)), len(b.vectors))
    both = (i > 0) & (j > 0)
    i, j, sign = np.append(i, i[both]), np.append(j, j[both]), np.repeat([1, -1], [len(i), int(both.sum())])
    vectors = a.vectors[i] + sign[:, None] * b.vectors[j]
    return _Sums(vectors, left=a, right=b, rows=np.stack([i, j, sign], 1), whole=a.whole and b.whole)


def _partners(a: Array, b: Array, near: int) -> Ranks:
    """For every row of a the `near` rows of b, with a sign each, that come nearest to cancelling it: [·, 3]."""
    order = np.argsort(a[:, int(a.std(0).argmax())])  # neighbours ask one after the other: the tree stays in the cache
    tree: Any = KDTree(np.concatenate([-b, b[1:]]), balanced_tree=False, compact_nodes=False)
    near = min(near, 2 * len(b) - 1)
    found = np.asarray(tree.query(a[order], k=list(range(1, near + 1)))[1], dtype=np.intp).ravel()
    turned = found >= len(b)
    return np.stack([np.repeat(order, near), np.where(turned, found - len(b) + 1, found), np.where(turned, -1, 1)], 1)


def _merge(a: _Sums, b: _Sums, most: int) -> _Sums:
    """The shortest `most` sums of two lists: all where they are few, else the nearest partners of every row."""
    if _count(a, b) <= most:
        return _product(a, b)
    if _count(a, b) <= 8 * most:
        rows = _product(a, b).rows
    else:
        if len(a.vectors) < len(b.vectors):
            a, b = b, a
        rows = _partners(a.vectors, b.vectors, max(NEAR, -(-most // len(a.vectors))))
    sums, size = _added(a, b, rows)
    keep = np.argpartition(size, most - 2)[: most - 1]
    empty = np.array([[0, 0, 1]], dtype=np.intp)
    vectors = np.concatenate([np.zeros((1, sums.shape[1])), sums[keep]])
    return _Sums(vectors, left=a, right=b, rows=np.concatenate([empty, rows[keep]]), whole=False)


def _added(a: _Sums, b: _Sums, rows: Ranks) -> tuple[Array, Array]:
    """The sums of the named rows, and their squared lengths; that of the empty sum counts as infinite."""
    i, j, sign = rows.T
    sums = a.vectors[i] + sign[:, None] * b.vectors[j]
    return sums, np.where((i == 0) & (j == 0), np.inf, (sums**2).sum(1))


def _closest(choices: Choices, a: _Sums, b: _Sums, search: str, whole: bool) -> Pair:
    """The shortest sum of a row of each list that is not the empty one."""
    if len(a.vectors) < 2 and len(b.vectors) < 2:
        raise BadInput("no two selections differ: every position has one choice, or all tags lie within the gap")
    rows = _partners(a.vectors, b.vectors, 2)
    i, j, sign = (int(v) for v in rows[int(_added(a, b, rows)[1].argmin())])
    return _pair(choices, {**a.trace(i), **b.trace(j, sign)}, search, whole)


def meet_in_the_middle(choices: Choices, most: int = LIST) -> Pair:
    """Return the nearest pair over as many positions as two lists of `most` sums hold, the first ones first.

    With q choices everywhere a position has 1 + q(q − 1) differences; p positions need (1 + q(q − 1))^(p/2)/2 rows in
    either list instead of the square. All pairs of these positions are covered: where they are all positions, the pair
    is the nearest there is. A position with more differences than a list holds is passed over.
    """
    halves: list[list[_Sums]] = [[], []]
    sizes = [1, 1]
    for position in range(len(choices.vectors)):
        small = 0 if sizes[0] <= sizes[1] else 1  # the shorter list first
        size = sizes[small] * (1 + 2 * len(choices.pairs(position)))
        if size <= 2 * most - 1:  # a list holds one of every pair ±v
            halves[small].append(_leaf(choices, position, most + 1))
            sizes[small] = size
    if not halves[0]:
        raise BadInput(f"every position has more differences than a list of {most} sums holds")
    empty = _Sums(np.zeros((1, choices.vectors[0].shape[1])))
    lists = [_folded(half or [empty], most + 1) for half in halves]
    used = len(halves[0]) + len(halves[1])
    return _closest(choices, lists[0], lists[1], "meet in the middle", used == len(choices.vectors))


def _folded(leaves: list[_Sums], most: int) -> _Sums:
    """Merge neighbours, and neighbours of these, until one list is left."""
    while len(leaves) > 1:
        merged = [_merge(leaves[k], leaves[k + 1], most) for k in range(0, len(leaves) - 1, 2)]
        leaves = merged + leaves[len(merged) * 2 :]
    return leaves[0]


def k_list(choices: Choices, most: int = LIST, tries: int = 1, seed: int = 0) -> Pair:
    """Return the nearest pair that a tree over all positions finds with `most` sums a list.

    Neighbours are merged first: where the vectors of neighbouring positions are nearly parallel, as on consecutive
    pieces of one smooth curve, their shortest sums are differences of higher order, and no list is wasted. Every
    further try puts the positions into another order.
    """
    if most < 2:
        raise BadInput(f"a list holds at least 2 sums, not {most}")
    rng = generator(seed, "k-list")
    best: Pair | None = None
    empty = _Sums(np.zeros((1, choices.vectors[0].shape[1])))
    for attempt in range(max(tries, 1)):
        order = np.arange(len(choices.vectors)) if attempt == 0 else rng.permutation(len(choices.vectors))
        leaves = [_leaf(choices, int(j), most) for j in order]
        middle = 1 << max(0, (len(leaves) - 1).bit_length() - 1)  # the tree's own middle, so that halves are full
        middle = middle if len(leaves) - middle >= middle // 2 else len(leaves) // 2
        left, right = (_folded(half or [empty], most) for half in (leaves[:middle], leaves[middle:]))
        found = _closest(choices, left, right, "k-list", left.whole and right.whole)
        best = found if best is None or found.distance < best.distance else best
    assert best is not None
    return best


def lattice(choices: Choices, tries: int = 8, seed: int = 0) -> Pair | None:
    """Return the nearest pair that LLL finds with two choices a position, or None where it finds none.

    For differences d_j the rows of [I | round(K·d)] generate all (c, K·Σ c_j·d_j) with whole c_j. A larger K makes a
    short row a shorter sum with larger coefficients, so K runs through powers of two; only rows, and sums and
    differences of two rows, with all c_j in {−1, 0, 1} are selections. Where a position has more choices, every try
    draws two of them: the first try takes the pair with the shortest difference.
    """
    import flint

    rng = generator(seed, "lattice")
    every = [choices.pairs(j) for j in range(len(choices.vectors))]
    best: Pair | None = None
    for attempt in range(max(tries, 1)):
        taken: dict[int, tuple[int, int]] = {}
        for j, pairs in enumerate(every):
            if len(pairs):
                moved = choices.vectors[j][pairs[:, 0]] - choices.vectors[j][pairs[:, 1]]
                row = int((moved**2).sum(1).argmin()) if attempt == 0 else int(rng.integers(len(moved)))
                taken[j] = (int(pairs[row, 0]), int(pairs[row, 1]))
        if not taken:
            return None
        d = np.stack([choices.vectors[j][a] - choices.vectors[j][b] for j, (a, b) in taken.items()])
        if not d.any():
            return _pair(choices, dict(list(taken.items())[:1]), "lattice", False)
        basis, N = np.eye(len(d), dtype=np.int64), len(d)
        for power in range(3, 49, 3):  # each reduction starts from the one before: only the sums have grown
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
            both = zip(signs, taken.items(), strict=True)
            chosen = {j: (a, b) if sign > 0 else (b, a) for sign, (j, (a, b)) in both if sign}
            found = _pair(choices, chosen, "lattice", False)
            best = found if best is None or found.distance < best.distance else best
    return best


def nearest(choices: Choices, most: int = LIST, tries: int = 1, seed: int = 0) -> Pair:
    """Return the nearest pair that any of the three searches finds."""
    found: list[Pair | None] = []
    if any(1 + len(choices.pairs(j)) <= most for j in range(len(choices.vectors))):
        found.append(meet_in_the_middle(choices, most))
    if not any(pair and pair.complete for pair in found):  # the optimum itself needs no company
        found += [k_list(choices, most, tries, seed), lattice(choices, tries, seed)]
    return min((pair for pair in found if pair), key=lambda pair: pair.distance)
