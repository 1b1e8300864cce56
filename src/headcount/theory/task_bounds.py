"""What the lower bound needs to know of a task: its smallest index set, and how much its target varies on a segment."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from headcount.tasks import expr as e
from headcount.tasks.retrieval import GeneralizedRetrieval


@dataclass(frozen=True)
class Segment:
    """The adversary's segment beside a minimiser: distances r/4 to r/2, and what the target changes along it."""

    radius: float
    variation: float
    why: str


def basin(f: e.Expr) -> tuple[list[float], float] | None:
    """Return centre and scale of f = scale·|x − centre|², or None where f is not written so."""
    scale = 1.0
    if isinstance(f, e.Affine) and len(f.weight) == 1 and len(f.weight[0]) == 1 and f.bias[0] == 0.0:
        scale, f = f.weight[0][0], f.of
    if not (isinstance(f, e.Sum) and len(f.args) == 1 and isinstance(f.args[0], e.Power) and f.args[0].exponent == 2):
        return None
    inner = f.args[0].of
    if not (isinstance(inner, e.Affine) and isinstance(inner.of, e.Variable)):
        return None
    n = inner.of.dim
    if list(map(list, inner.weight)) != [[1.0 if i == j else 0.0 for j in range(n)] for i in range(n)] or scale <= 0:
        return None
    return [-b for b in inner.bias], scale


def outer_slope(F0: e.Expr, count: int) -> float | None:
    """Return a lower bound of |∂F0/∂z_i|, the same for all i, where F0 is affine; None where it is not."""
    if isinstance(F0, e.Sum) and F0.args == (e.Variable(dim=count),):
        return 1.0
    if isinstance(F0, e.Affine) and isinstance(F0.of, e.Variable):
        return min(max(abs(row[i]) for row in F0.weight) for i in range(count))
    return None


def segment(task: GeneralizedRetrieval) -> Segment | str:
    """Return the adversary's segment for quadratic basins under an affine F0, or why it is not known.

    With r the least distance of two centres, another basin's points within r/2 of its centre lie at least r/2 from
    this one, where f_1 is no smaller than on the segment. Along it df_1/dr ≥ 2·scale·r/4, over a length of r/4. The
    direction must stay in the box: towards the box's middle there is room for r/2 as long as r ≤ 1.
    """
    basins = [basin(f) for f in task.f if isinstance(f, e.Node)]
    found = [b for b in basins if b is not None]
    if len(found) < len(task.f):
        return "f is not written as scale·|x − c|²: state --variation"
    if not isinstance(task.F0, e.Node):
        return "F0 is a bare function: state --variation"
    slope = outer_slope(task.F0, len(task.f))
    if slope is None or slope <= 0:
        return "F0 is not affine in every z_i: state --variation"
    centres = [centre for centre, _ in found]
    apart = [math.dist(a, b) for a, b in itertools.combinations(centres, 2)]
    radius = math.nextafter(min([*apart, 1.0]) * (1 - 1e-15), 0.0)
    if radius <= 0:
        return "two minimisers coincide: assumption (2.2) fails"
    scale = min(scale for _, scale in found)
    variation = slope * (2 * scale * radius / 4) * (radius / 4) * (1 - 1e-15)
    return Segment(radius, variation, "quadratic basins, affine F0")
