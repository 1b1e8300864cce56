"""Branch and bound in ball arithmetic: the steps that prove where a smooth expression is least."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headcount.tasks.expressions import in_balls as expr_ball
from headcount.tasks.expressions.in_balls import ball
from headcount.tasks.expressions.jet_arithmetic import Jet, balls, ceil, curvature, definite, floor, jets
from headcount.tasks.expressions.tree import Expr

Point = tuple[float, ...]

HALVINGS = 24  # how small a core may become
SHORTEST = 2.0**-26  # the shortest side worth splitting, as a share of the domain's


class Region(NamedTuple):
    """A box, by exact doubles; sides may be infinite or of length 0."""

    low: Point
    high: Point

    def free(self) -> list[int]:
        """The coordinates that still vary."""
        return [k for k, (a, b) in enumerate(zip(self.low, self.high, strict=True)) if a < b]

    def cut(self, k: int, low: float, high: float) -> Region:
        """Return the part with coordinate k in [low, high]."""
        return Region((*self.low[:k], low, *self.low[k + 1 :]), (*self.high[:k], high, *self.high[k + 1 :]))

    def clamp(self, point: Sequence[float]) -> Point:
        """Return the nearest point of the box."""
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
    """Reduce a box, by monotonicity, to the part that may hold a global minimiser; None where no part does.

    Where ∂f/∂x_k > 0 on the whole box, a point above the box's lower face in x_k is beaten by that
    face, and the face itself by what lies beyond it, unless it is the domain's own.
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
    """A box with at most one minimiser of f on it: where that lies, and bounds of the least value there."""

    region: Region
    minimiser: Region
    bottom: float
    top: float


def find_core(f: Expr, domain: Region, point: Point) -> Core | None:
    """Find a box around the candidate on which f is strictly convex, the domain itself at best.

    Convex in the directions that monotonicity leaves free: a minimiser on a face counts too.
    """
    for halvings in range(HALVINGS if domain.bounded() else 1):
        region = domain
        for k in domain.free() if halvings else ():
            a, b, c = domain.low[k], domain.high[k], point[k]
            reach = math.ldexp(b - a, -halvings)
            region = region.cut(k, max(a, c - reach), min(b, c + reach))
        reduced = reduce(f, region, domain)
        if reduced is None:  # there is no minimiser near the candidate
            return None
        inner, _ = reduced
        if definite(jets(f, balls(*inner))[0].hessian, inner.free()):
            core = _contract(f, region, inner, inner.clamp(point))
            if core is not None:
                return core
    return None


def _contract(f: Expr, region: Region, inner: Region, p: Point) -> Core | None:
    """Enclose the only minimiser on a box where f is strongly convex: Hessian ≥ m > 0 in the free directions.

    f(x) ≥ f(p) + g·(x − p) + m/2·|x − p|² with g the gradient at p, without the components along
    which all of the box lies uphill. So the minimiser, where f ≤ f(p), lies within 2|g|/m of p, and its value
    at most |g|²/(2m) below f(p).
    """
    axes = inner.free()
    there = jets(f, balls(p, p), 1)[0]
    if not axes:
        return Core(region, inner, floor(there.value), ceil(there.value))
    m = curvature(jets(f, balls(*inner))[0].hessian, axes)
    if not m > 0:
        return None
    square = ball(0.0)
    for k in axes:
        g = there.gradient.get(k, ball(0.0))
        if not ((p[k] == inner.low[k] and g >= 0) or (p[k] == inner.high[k] and g <= 0)):
            square += expr_ball.power(g, 2)
    radius = 2 * square.upper().sqrt() / m
    near = inner
    for k in axes:
        low, high = floor(ball(p[k]) - radius), ceil(ball(p[k]) + radius)
        near = near.cut(k, max(inner.low[k], low), min(inner.high[k], high))
    return Core(region, near, floor(there.value - square / (2 * m)), ceil(there.value))


def without(domain: Region, core: Region) -> Iterator[Region]:
    """Cut the domain into boxes that cover all of it but the core."""
    for k in domain.free():
        if domain.low[k] < core.low[k]:
            yield domain.cut(k, domain.low[k], core.low[k])
        if core.high[k] < domain.high[k]:
            yield domain.cut(k, core.high[k], domain.high[k])
        domain = domain.cut(k, core.low[k], core.high[k])


def bounds(f: Expr, region: Region, jet: Jet) -> tuple[Point, float, float]:
    """Return the middle, a lower bound of f on the box, and an upper bound of f at the middle.

    The lower bound is the better of two: the tree's own, and f(middle) + gradient·(x − middle).
    """
    middle = tuple(a + (b - a) / 2 for a, b in zip(*region, strict=True))
    at_middle = expr_ball.evaluate(f, balls(middle, middle))[0]
    sides = balls(*region)
    mean_value = sum((g * (sides[k] - ball(middle[k])) for k, g in jet.gradient.items()), at_middle)
    return middle, max(floor(jet.value), floor(mean_value)), ceil(at_middle)


def split_axis(region: Region, jet: Jet, domain: Region) -> int | None:
    """Choose the side along which f varies most; None where all sides are too short to be worth splitting."""
    sides = {k: region.high[k] - region.low[k] for k in region.free()}
    if all(side <= (domain.high[k] - domain.low[k]) * SHORTEST for k, side in sides.items()):
        return None
    change = {k: ceil(abs(jet.gradient.get(k, ball(0.0)))) * side for k, side in sides.items()}
    return max(sides, key=lambda k: (change[k], sides[k]))
