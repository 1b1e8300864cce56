"""What a certificate speaks of, read strictly: the task and the box of inputs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headcount.recheck.weights import Rejected
from headcount.tasks.expressions import tree as e

Array = NDArray[np.float64]
KEYS = {"kind", "name", "length", "dim", "law", "f", "S", "F0"}


def read_task(task: dict[str, Any]) -> tuple[list[e.Expr], e.Expr, list[list[int]]]:
    """Return f, F0 and S of a generalized D-retrieval; what is no such task is refused."""
    length, dim = task["length"], task["dim"]
    if (
        set(task) != KEYS
        or task["kind"] != "retrieval"
        or type(task["name"]) is not str
        or type(task["law"]) is not dict
        or not (type(length) is type(dim) is int and min(length, dim) > 0)
    ):
        raise Rejected("the task is no generalized D-retrieval")
    f, F0, S = [e.parse_expr(g) for g in task["f"]], e.parse_expr(task["F0"]), task["S"]
    if not f or any(g.out_dim != 1 or g.in_dim not in (0, dim) for g in f) or F0.in_dim not in (0, len(f)):
        raise Rejected("the task's functions do not fit together")
    if len(S) != len(f) or not all(s and all(type(t) is int and 0 <= t < length for t in s) for s in S):
        raise Rejected("an index set of the task holds no position, or one that is not there")
    if any(len(set(s)) != len(s) for s in S):
        raise Rejected("an index set of the task holds a position twice")
    return f, F0, [sorted(s) for s in S]


def read_box(box: Any, dim: int) -> tuple[Array, Array]:
    """Return the two corners of the box of tokens."""
    if len(box) != 2 or any(len(side) != dim or any(type(v) is not float for v in side) for side in box):
        raise Rejected("the box is not two corners of numbers")
    low, high = (np.array(side, np.float64) for side in box)
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
        raise Rejected("the box is empty or not bounded")
    return low, high


def real(value: Any) -> float:
    """Return a JSON number; texts, booleans and what is not finite are refused."""
    if type(value) not in (int, float) or not math.isfinite(value):
        raise Rejected(f"{str(value)[:40]!r} is no number")
    return float(value)
