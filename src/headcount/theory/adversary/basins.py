"""The adversary's segments: the places beside each minimiser where the proof of Theorem 2 (2) puts its points.

Beside every minimiser x^(i) the proof takes a segment G_i, at distances r/4 to r/2 along a feasible direction. If r is
small enough, then f_i rises strictly along G_i, by (2.1) and (2.3); the target is strictly monotone there while all
other z_j are at their minima, by (2.4); and f_i is larger on all other segments and minimisers, by (2.2). We halve r
until all three hold on a fine sample. The sample is only a guide: what is built on the segments is evaluated by the
task itself.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from headcount.core import BadInput
from headcount.tasks import GeneralizedRetrieval, Uniform
from headcount.tasks.assumptions import check_assumptions
from headcount.tasks.expressions import Function, Node
from headcount.tasks.expressions import in_numpy as expr_numpy

Array = NDArray[np.float64]


def _evaluate(f: Function, x: Array) -> Array:
    """Evaluate an expression in NumPy; bare functions were rejected earlier."""
    assert isinstance(f, Node)
    return expr_numpy.evaluate(cast("Any", f), x)


@dataclass(frozen=True)
class Basin:
    """A minimiser x^(i), with the segment G_i = {x^(i) + u·direction: near ≤ u ≤ far} beside it."""

    minimiser: Array
    direction: Array
    near: float
    far: float
    output: int
    """The output of F0 that varies most along the segment."""

    def at(self, u: Array | float) -> Array:
        """Return the points at distances u: [..., dim]."""
        return self.minimiser + np.asarray(u)[..., None] * self.direction


def find_basins(task: GeneralizedRetrieval, seed: int = 0) -> tuple[tuple[Basin, ...], Array]:
    """Return the segments of step 1 and the minima z_i; reject a task that breaks one of (2.1) to (2.4), naming it."""
    if not task.symbolic or not isinstance(task.law, Uniform) or task.box is None:
        raise BadInput(f"{task.name}: the adversary needs f and F0 as expressions, and tokens that fill a box")
    report = check_assumptions(task, seed=seed)
    for name in ("2.1", "2.2", "2.3", "2.4"):
        finding = report.finding(name)
        if finding.verdict != "holds":
            fails = "fails" if finding.verdict == "fails" else "is unknown"
            raise BadInput(f"{task.name}: assumption ({name}) {fails}: {finding.sentence}")
    numbers = cast("dict[str, Any]", report.finding("2.1").numbers)
    centres = np.array([points[0] for points in numbers["minimisers"]], dtype=float)
    minima = np.array(numbers["minima"], dtype=float)
    low, high = (np.asarray(side) for side in task.box)
    r = min([*(math.dist(a, b) for a, b in itertools.combinations(centres, 2)), float((high - low).min())])
    for _ in range(30):
        found = [_segment(task, minima, i, c, r, low, high) for i, c in enumerate(centres)]
        usable = [b for b in found if b is not None]
        if len(usable) == len(centres) and _are_apart(task, usable):
            return tuple(usable), minima
        r /= 2
    raise BadInput(f"{task.name}: found no segments beside the minimisers on which every f_i is monotone")


def f_and_target(
    task: GeneralizedRetrieval, minima: Array, i: int, points: Array, output: int | None = None
) -> tuple[Array, Array]:
    """Return f_i [k] at points[k, dim], and the target there, [k] or [k, out], with all other z_j at their minima."""
    z = np.repeat(minima[None], len(points), 0)
    z[:, i] = _evaluate(task.f[i], points)[:, 0]
    H = _evaluate(task.F0, z)
    return z[:, i], H if output is None else H[:, output]


def _segment(
    task: GeneralizedRetrieval, minima: Array, i: int, centre: Array, r: float, low: Array, high: Array
) -> Basin | None:
    """Return the feasible segment that step 1 asks for with the largest change of the target, or None."""
    axes = np.eye(len(centre))
    towards = (low + high) / 2 - centre
    length = float(np.linalg.norm(towards))
    candidates = [*([towards / length] if length > 0 else []), *axes, *-axes]
    u, best, largest_change = np.linspace(r / 4, r / 2, 257), None, 0.0
    for direction in candidates:
        points = centre + u[:, None] * direction
        if (points < low).any() or (points > high).any():
            continue
        f, H = f_and_target(task, minima, i, points)
        output = int(np.abs(H[-1] - H[0]).argmax())
        steps = np.diff(H[:, output])
        if (np.diff(f) > 0).all() and ((steps > 0).all() or (steps < 0).all()) and abs(steps.sum()) > largest_change:
            best, largest_change = Basin(centre, direction, r / 4, r / 2, output), abs(float(steps.sum()))
    return best


def _are_apart(task: GeneralizedRetrieval, basins: list[Basin]) -> bool:
    """Return whether every f_i is larger on the other segments and minimisers than on its own segment."""
    for i, b in enumerate(basins):
        end_value = float(_evaluate(task.f[i], b.at(b.far)[None])[0, 0])
        for j, other in enumerate(basins):
            points = np.concatenate([other.minimiser[None], other.at(np.linspace(other.near, other.far, 65))])
            if j != i and float(_evaluate(task.f[i], points).min()) <= end_value:
                return False
    return True
