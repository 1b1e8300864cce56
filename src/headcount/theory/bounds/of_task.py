"""What the count of Theorem 2 (2) needs to know about a task: each basin's index set and its segment.

This covers quadratic basins f_i = a_i·|x − c_i|² + b_i under an affine F0, with tokens that fill a box B. All results
are exact: the numbers of the task are binary fractions, and no square root is taken.

**Minimisers.** x^(i) is the point of B nearest to c_i, coordinate by coordinate; c_i itself only where it lies in B.
A projection onto a convex set has (x − x^(i))·(x^(i) − c_i) ≥ 0 for every x in B, so

    f_i(x) − f_i(x^(i)) = a_i·(|x − x^(i)|² + 2·(x − x^(i))·(x^(i) − c_i)) ≥ a_i·|x − x^(i)|²        (*)

and x^(i) is the only minimiser on B, as (2.1) requires, with the Hessian 2·a_i·I for (2.3). If two x^(i) coincide,
(2.2) fails.

**Segments.** G_i starts at x^(i) and runs along one axis k, away from the nearer side of the box. With room ρ on that
axis and g = |x^(i)_k − c_i,k|, which is 0 where c_i,k lies within the box, f_i rises strictly along it, after a
distance u ≤ ρ by a_i·(u² + 2·g·u), continuously and by up to a_i·(ρ² + 2·g·ρ). Let r_i be the distance from x^(i) to
the nearest other minimiser. G_i ends where f_i has risen by

    rise_i = a_i·min(r_i²/4, max over k of (ρ_k² + 2·g_k·ρ_k)),

so it lies in B; by (*) none of its points is further than r_i/2 from x^(i).

**Apart.** A point y of G_j, or y = x^(j), j ≠ i, has |y − x^(j)| ≤ r_j/2 ≤ |x^(i) − x^(j)|/2, so it is at least
|x^(i) − x^(j)|/2 ≥ r_i/2 from x^(i), and by (*) f_i(y) is at least f_i at the end of G_i, as `counting` requires.

**Variation.** While all other z_j are at their minima the target changes along G_i by exactly |∂F0/∂z_i|·rise_i, in
the output of F0 where that is most. The paper stays r/4 away from x^(i) to bound a slope from below; steps of equal
height need no slope, so the segment may begin at x^(i), and r_i may differ from basin to basin.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from headcount.tasks import ClippedGaussian, GeneralizedRetrieval, Uniform
from headcount.tasks.expressions import tree as e

Point = tuple[Fraction, ...]
Side = tuple[Fraction, Fraction]
"""The low and the high end of the box along one axis."""


@dataclass(frozen=True)
class Segment:
    """The adversary's segment beside one minimiser, in exact numbers."""

    minimiser: Point
    """x^(i), the minimiser on the box."""
    axis: int
    towards: int
    """+1 or −1, the direction along the axis."""
    rise: Fraction
    """How much f_i rises along the segment."""
    variation: Fraction
    """How much the target changes along it: |∂F0/∂z_i|·rise."""


def segments(task: GeneralizedRetrieval) -> tuple[Segment, ...] | str:
    """Return the adversary's segment beside every minimiser, or the reason in words why none is known."""
    if not isinstance(task.law, (Uniform, ClippedGaussian)) or task.box is None:
        return f"{task.law.law} tokens do not fill a box, so a segment may leave their domain"
    basins = [b for f in task.f if (b := basin(f)) is not None]
    if len(basins) < len(task.f):
        return "f is not written as scale·|x − c|²: state --variation"
    slopes = outer_slopes(task.F0, len(task.f))
    if slopes is None:
        return "F0 is not affine: state --variation"
    if not all(slopes):
        return f"F0 does not depend on z_{slopes.index(Fraction(0)) + 1}: assumption (2.4) fails"
    sides = [(Fraction(low), Fraction(high)) for low, high in zip(*task.box, strict=True)]
    minimisers = [_nearest(centre, sides) for centre, _ in basins]
    if len(set(minimisers)) < len(minimisers):
        return "two minimisers on the box coincide: assumption (2.2) fails"
    if len(minimisers) < 2:
        return "there is only one basin: D must be at least 2"
    found: list[Segment] = []
    for (centre, scale), at, slope in zip(basins, minimisers, slopes, strict=True):
        along = enumerate(zip(centre, at, sides, strict=True))
        room, axis, towards = max(_way(c, x, side, k) for k, (c, x, side) in along)
        apart = min(squared_distance(at, other) for other in minimisers if other != at)
        rise = scale * min(apart / 4, room)
        found.append(Segment(at, axis, towards, rise, slope * rise))
    return tuple(found)


def basin(f: e.Function) -> tuple[Point, Fraction] | None:
    """Return centre and scale of f = scale·|x − centre|² + constant, or None if f does not have this form."""
    scale = Fraction(1)
    if isinstance(f, e.Affine) and len(f.weight) == 1 and len(f.weight[0]) == 1:
        scale, f = Fraction(f.weight[0][0]), f.of
    if not (isinstance(f, e.Sum) and len(f.args) == 1 and isinstance(f.args[0], e.Power) and f.args[0].exponent == 2):
        return None
    inner = f.args[0].of
    if not (isinstance(inner, e.Affine) and isinstance(inner.of, e.Variable)):
        return None
    n = inner.of.dim
    if list(map(list, inner.weight)) != [[1.0 if i == j else 0.0 for j in range(n)] for i in range(n)] or scale <= 0:
        return None
    return tuple(-Fraction(b) for b in inner.bias), scale


def outer_slopes(F0: e.Function, count: int) -> list[Fraction] | None:
    """Return the largest |∂F0/∂z_i| over the outputs of F0, for every i; None if F0 is not affine."""
    rows = _linear(F0)
    if rows is None:
        return None
    return [max(abs(row.get(i, Fraction(0))) for row in rows) for i in range(count)]


def squared_distance(x: Point, y: Point) -> Fraction:
    """Return |x − y|²."""
    return sum(((a - b) ** 2 for a, b in zip(x, y, strict=True)), Fraction(0))


def _nearest(centre: Point, sides: list[Side]) -> Point:
    """Return the point of the box nearest to the centre."""
    return tuple(min(max(c, low), high) for c, (low, high) in zip(centre, sides, strict=True))


def _way(centre: Fraction, at: Fraction, side: Side, axis: int) -> tuple[Fraction, int, int]:
    """Return ρ² + 2·g·ρ for the direction along an axis with more room, the axis and that direction."""
    low, high = side
    towards = 1 if high - at >= at - low else -1
    room = max(high - at, at - low)
    return room**2 + 2 * abs(at - centre) * room, axis, towards


def _linear(node: e.Function) -> list[dict[int, Fraction]] | None:
    """Return the exact gradient of every component of an affine tree, {i: ∂/∂z_i}; None for other trees."""
    if isinstance(node, e.Variable):
        return [{i: Fraction(1)} for i in range(node.dim)]
    if not isinstance(node, (e.Affine, e.Sum, e.Stack)):
        return None
    below: list[dict[int, Fraction]] = []
    for child in node.children:
        rows = _linear(child)
        if rows is None:
            return None
        below += rows
    if isinstance(node, e.Stack):
        return below
    weights = node.weight if isinstance(node, e.Affine) else [[1.0] * len(below)]
    return [_combined(weight, below) for weight in weights]


def _combined(weights: tuple[float, ...] | list[float], rows: list[dict[int, Fraction]]) -> dict[int, Fraction]:
    """Return the weighted sum of gradients."""
    total: dict[int, Fraction] = {}
    for weight, row in zip(weights, rows, strict=True):
        for i, slope in row.items():
            total[i] = total.get(i, Fraction(0)) + Fraction(weight) * slope
    return total
