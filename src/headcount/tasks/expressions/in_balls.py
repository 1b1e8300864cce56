"""Expressions in ball arithmetic: every real point of the input box is mapped into the output balls.

The numbers of a tree are exact binary doubles, so exactly the function stated by the JSON is enclosed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from headcount.core import BadInput
from headcount.tasks.expressions import tree as e

if TYPE_CHECKING:
    from flint import arb

try:
    import flint
except ImportError:  # the rest of the package works without it
    flint = None


def ball(low: float, high: float | None = None) -> arb:
    """Return a ball that contains [low, high], slightly wider, or the exact number low if high is None."""
    if flint is None:
        raise BadInput("ball arithmetic needs python-flint, which is not installed: pip install python-flint")
    return flint.arb(low) if high is None else flint.arb(low).union(flint.arb(high))


def evaluate(node: e.Expr, x: Sequence[arb]) -> list[arb]:
    """Return enclosures of the components of a tree over a box of inputs."""
    match node:
        case e.Variable():
            return list(x)
        case e.Affine():
            u = evaluate(node.of, x)
            return [
                sum((ball(w) * v for w, v in zip(row, u, strict=True) if w != 0.0), ball(b))
                for row, b in zip(node.weight, node.bias, strict=True)
            ]
        case e.Power():
            return [power(v, node.exponent) for v in evaluate(node.of, x)]
        case e.Exp():
            return [v.exp() for v in evaluate(node.of, x)]
        case e.Tanh():
            return [monotone(v, lambda t: t.tanh()) for v in evaluate(node.of, x)]
        case e.Softplus():
            return [monotone(v, softplus) for v in evaluate(node.of, x)]
        case _:
            parts = [v for a in node.children for v in evaluate(a, x)]
    match node:
        case e.Sum():
            return [sum(parts, ball(0.0))]
        case e.Product():
            return [reduce(lambda a, b: a * b, parts)]
        case e.Min():
            return [reduce(lambda a, b: a.min(b), parts)]
        case e.Max():
            return [reduce(lambda a, b: a.max(b), parts)]
        case e.Norm():
            squares = sum((power(v, 2) for v in parts), ball(0.0))
            return [monotone(squares, _root)]
        case e.Stack():
            return parts
        case _:
            raise TypeError(f"unknown node {node.op!r}")


def monotone(v: arb, function: Callable[[arb], arb]) -> arb:
    """Return the enclosure of an increasing function of a ball, by its values at the two ends: tight for wide balls."""
    return function(v.lower()).union(function(v.upper()))


def power(v: arb, exponent: int) -> arb:
    """Return the enclosure of v^k; an even power of a ball around 0 does not become negative."""
    if exponent % 2:
        return monotone(v, lambda t: t**exponent)
    return (v.abs_lower() ** exponent).union(v.abs_upper() ** exponent)


def softplus(t: arb) -> arb:
    """Return log(1 + exp(t)) at a point, without the loss of precision of exp at a large t."""
    return t + (-t).exp().log1p() if t > 0 else t.exp().log1p()


def _root(t: arb) -> arb:
    """Return the square root of an end of an enclosed sum of squares, whose lower end may be rounded below 0."""
    return ball(0.0) if t < 0 else t.sqrt()  # in this order, so that NaN stays NaN
