"""Strict readers for the task and the input box that a certificate or witness is about."""

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
    """Return f, F0 and S of a generalized D-retrieval task; reject anything else."""
    length, dim = task["length"], task["dim"]
    if (
        set(task) != KEYS
        or task["kind"] != "retrieval"
        or type(task["name"]) is not str
        or type(task["law"]) is not dict
        or not (type(length) is type(dim) is int and min(length, dim) > 0)
    ):
        raise Rejected("the task is not a generalized D-retrieval")
    f, F0, S = [e.parse_expr(g) for g in task["f"]], e.parse_expr(task["F0"]), task["S"]
    if not f or any(g.out_dim != 1 or g.in_dim not in (0, dim) for g in f) or F0.in_dim not in (0, len(f)):
        raise Rejected("the task's functions do not fit together")
    if len(S) != len(f) or not all(s and all(type(t) is int and 0 <= t < length for t in s) for s in S):
        raise Rejected("an index set of the task is empty, or has a position outside the sequence")
    if any(len(set(s)) != len(s) for s in S):
        raise Rejected("an index set of the task has a position twice")
    return f, F0, [sorted(s) for s in S]


def read_box(box: Any, dim: int) -> tuple[Array, Array]:
    """Return the two corners of the box of tokens."""
    if len(box) != 2 or any(len(side) != dim or any(type(v) is not float for v in side) for side in box):
        raise Rejected("the box must be two corners, each a list of floating-point numbers per token coordinate")
    low, high = (np.array(side, np.float64) for side in box)
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
        raise Rejected("the box is empty or unbounded")
    return low, high


def real(value: Any) -> float:
    """Return a finite JSON number as a float; reject text, booleans, infinities and NaN."""
    if type(value) not in (int, float) or not math.isfinite(value):
        raise Rejected(f"{str(value)[:40]!r} is not a finite number")
    return float(value)
