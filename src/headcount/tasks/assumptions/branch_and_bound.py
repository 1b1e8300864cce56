"""Branch and bound in ball arithmetic: the steps that prove where a smooth expression is smallest."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headcount.tasks.expressions import in_balls as expr_ball
from headcount.tasks.expressions.in_balls import ball
from headcount.tasks.expressions.jet_arithmetic import Jet, balls, ceil, curvature, definite, floor, jets
from headcount.tasks.expressions.tree import Expr

Point = tuple[float, ...]

MAX_HALVINGS = 24
"""Halvings of the domain down to the smallest core that is tried."""
MIN_SIDE_FRACTION = 2.0**-26
"""Shortest side that is split, as a fraction of the domain's."""


class Region(NamedTuple):
    """A box whose corners are exact doubles; sides may be infinite or of length 0."""

    low: Point
    high: Point

    def free(self) -> list[int]:
        """Return the coordinates whose sides have a length above 0."""
        return [k for k, (a, b) in enumerate(zip(self.low, self.high, strict=True)) if a < b]

    def cut(self, k: int, low: float, high: float) -> Region:
        """Return the part of the box with coordinate k in [low, high]."""
        return Region((*self.low[:k], low, *self.low[k + 1 :]), (*self.high[:k], high, *self.high[k + 1 :]))

    def clamp(self, point: Sequence[float]) -> Point:
        """Return the point of the box nearest to `point`."""
        return tuple(min(max(float(c), a), b) for c, a, b in zip(point, self.low, self.high, strict=True))

    def bounded(self) -> bool:
        """Whether all sides are finite."""
        return all(math.isfinite(v) for v in (*self.low, *self.high))


def hull(regions: Sequence[Region]) -> Region:
    """Return the smallest box around some boxes."""
    lows, highs = zip(*regions, strict=True)
    return Region(
        tuple(min(side) for side in zip(*lows, strict=True)),
        tuple(max(side) for side in zip(*highs, strict=True)),
    )


def reduce(f: Expr, region: Region, domain: Region) -> tuple[Region, Jet] | None:
    """Return the part of a box that may contain a global minimiser, by monotonicity, and f's jet; None if no part may.

    Where ∂f/∂x_k > 0 on the whole box, f is smaller on the box's lower face in x_k than above it, and smaller still
    beyond that face, unless it is a face of the domain.
    """
    while True:
        jet = jets(f, balls(*region), 1)[0]
        smaller = region
        for k in region.free():
            slope = jet.gradient.get(k)
            if slope is None or not (slope > 0 or slope < 0):
                continue
            face, edge = (region.low[k], domain.low[k]) if slope > 0 else (region.high[k], domain.high[k])
            if face != edge or math.isinf(edge):
                return None
            smaller = smaller.cut(k, face, face)
        if smaller == region:
            return region, jet
        region = smaller


class Core(NamedTuple):
    """A box with at most one minimiser of f: an enclosure of the minimiser, and bounds of the minimum."""

    region: Region
    minimiser: Region
    bottom: float
    top: float


def find_core(f: Expr, domain: Region, point: Point) -> Core | None:
    """Return a box around the candidate on which f is strictly convex, as large as possible; None if none is found.

    f must be convex in the directions that monotonicity leaves free, so a minimiser on a face counts too.
    """
    for halvings in range(MAX_HALVINGS if domain.bounded() else 1):
        region = domain
        for k in domain.free() if halvings else ():
            a, b, c = domain.low[k], domain.high[k], point[k]
            reach = math.ldexp(b - a, -halvings)
            region = region.cut(k, max(a, c - reach), min(b, c + reach))
        reduced = reduce(f, region, domain)
        if reduced is None:  # no minimiser near the candidate
            return None
        inner, _ = reduced
        if definite(jets(f, balls(*inner))[0].hessian, inner.free()):
            core = _contract(f, region, inner, inner.clamp(point))
            if core is not None:
                return core
    return None


def _contract(f: Expr, region: Region, inner: Region, p: Point) -> Core | None:
    """Enclose the only minimiser on a box where f is strongly convex: Hessian ≥ m > 0 in the free directions.

    f(x) ≥ f(p) + g·(x − p) + m/2·|x − p|², where g is the gradient at p without the components along which the
    whole box lies uphill. So the minimiser, where f ≤ f(p), lies within 2|g|/m of p, and its value is at most
    |g|²/(2m) below f(p).
    """
    axes = inner.free()
    at_p = jets(f, balls(p, p), 1)[0]
    if not axes:
        return Core(region, inner, floor(at_p.value), ceil(at_p.value))
    m = curvature(jets(f, balls(*inner))[0].hessian, axes)
    if not m > 0:
        return None
    square = ball(0.0)
    for k in axes:
        g = at_p.gradient.get(k, ball(0.0))
        if not ((p[k] == inner.low[k] and g >= 0) or (p[k] == inner.high[k] and g <= 0)):
            square += expr_ball.power(g, 2)
    radius = 2 * square.upper().sqrt() / m
    near = inner
    for k in axes:
        low, high = floor(ball(p[k]) - radius), ceil(ball(p[k]) + radius)
        near = near.cut(k, max(inner.low[k], low), min(inner.high[k], high))
    return Core(region, near, floor(at_p.value - square / (2 * m)), ceil(at_p.value))


def without(domain: Region, core: Region) -> Iterator[Region]:
    """Yield boxes that cover the domain except for the core."""
    for k in domain.free():
        if domain.low[k] < core.low[k]:
            yield domain.cut(k, domain.low[k], core.low[k])
        if core.high[k] < domain.high[k]:
            yield domain.cut(k, core.high[k], domain.high[k])
        domain = domain.cut(k, core.low[k], core.high[k])


def bounds(f: Expr, region: Region, jet: Jet) -> tuple[Point, float, float]:
    """Return the middle of a box, a lower bound of f on the box, and an upper bound of f at the middle.

    The lower bound is the better of two: the value of the tree, and f(middle) + gradient·(x − middle).
    """
    middle = tuple(a + (b - a) / 2 for a, b in zip(*region, strict=True))
    at_middle = expr_ball.evaluate(f, balls(middle, middle))[0]
    sides = balls(*region)
    mean_value = sum((g * (sides[k] - ball(middle[k])) for k, g in jet.gradient.items()), at_middle)
    return middle, max(floor(jet.value), floor(mean_value)), ceil(at_middle)


def split_axis(region: Region, jet: Jet, domain: Region) -> int | None:
    """Return the axis along which f varies most; None if all sides are too short to split."""
    sides = {k: region.high[k] - region.low[k] for k in region.free()}
    if all(side <= (domain.high[k] - domain.low[k]) * MIN_SIDE_FRACTION for k, side in sides.items()):
        return None
    change = {k: ceil(abs(jet.gradient.get(k, ball(0.0)))) * side for k, side in sides.items()}
    return max(sides, key=lambda k: (change[k], sides[k]))
