"""Index sets S_i: the positions over which the i-th minimum is taken."""

from __future__ import annotations

from math import ceil
from typing import Literal

from headcount.core import BadInput, generator

SetKind = Literal["all", "bands", "halves", "random"]


def index_sets(kind: SetKind, intrinsic: int, length: int, *, share: float = 0.5, seed: int = 0) -> list[list[int]]:
    """Return D index sets: `intrinsic` sets of positions from 0 to `length` − 1, of one kind.

    all: every position. halves: the first and the second half in turn. bands: windows of `share`·T positions
    whose starts are evenly spaced. random: `share`·T positions drawn by `seed`. Definition 1 requires |S_i| ≥ T/4.
    """
    if not 0.25 <= share <= 1:
        raise BadInput(f"share must lie between 0.25 and 1, since the task requires |S_i| ≥ T/4; got {share}")
    size = ceil(share * length)
    match kind:
        case "all":
            return [list(range(length)) for _ in range(intrinsic)]
        case "halves":
            middle = length // 2 if length > 1 else 1
            halves = [list(range(middle)), list(range(middle, length)) or [0]]
            return [halves[i % 2] for i in range(intrinsic)]
        case "bands":
            last_start = length - size
            starts = [round(i * last_start / max(intrinsic - 1, 1)) for i in range(intrinsic)]
            return [list(range(s, s + size)) for s in starts]
        case "random":
            rng = generator(seed, "index sets")
            return [sorted(rng.choice(length, size=size, replace=False).tolist()) for _ in range(intrinsic)]


def min_set_size(kind: SetKind, length: int, *, share: float = 0.5) -> int:
    """Return the smallest |S_i| of `index_sets` at a length, for any D ≥ 2 and any seed, without making the sets."""
    match kind:
        case "all":
            return length
        case "halves":
            return max(length // 2, 1)
        case "bands" | "random":
            return ceil(share * length)
