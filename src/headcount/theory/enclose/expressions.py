"""Expressions over many boxes at once: value and gradient, enclosed in intervals rounded outward.

For trees with kinks (min, max, norm), Clarke's generalised gradient is enclosed: if several arguments can attain the
minimum, this is the hull of their gradients. The mean value theorem holds for these gradients too: on a box,
f(x) − f(m) = Σ_k g_k·(x_k − m_k) for some g in the enclosure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headcount.tasks.expressions import tree as e
from headcount.theory.enclose.intervals import Interval, interval


@dataclass(frozen=True, slots=True)
class Slope:
    """A scalar over many boxes: its value [boxes], and its gradient, one interval [boxes] per coordinate."""

    value: Interval
    gradient: list[Interval]


def slopes(node: e.Expr, x: Sequence[Interval]) -> list[Slope]:
    """Enclose a tree and its gradient over boxes, given as one interval [boxes] per coordinate."""
    zero, one = interval(np.zeros_like(x[0].lo)), interval(np.ones_like(x[0].lo))
    match node:
        case e.Variable():
            return [Slope(v, [one if i == k else zero for k in range(len(x))]) for i, v in enumerate(x)]
        case e.Affine():
            parts = slopes(node.of, x)
            return [_linear(row, parts, b, zero, len(x)) for row, b in zip(node.weight, node.bias, strict=True)]
        case e.Power() | e.Exp() | e.Tanh() | e.Softplus():
            return [_chain(u, *_derivative(node, u.value)) for u in slopes(node.of, x)]
        case _:
            parts = [u for child in node.children for u in slopes(child, x)]
    match node:
        case e.Sum():
            return [_linear([1.0] * len(parts), parts, 0.0, zero, len(x))]
        case e.Product():
            found = parts[0]
            for part in parts[1:]:
                slope = [a * part.value + b * found.value for a, b in zip(found.gradient, part.gradient, strict=True)]
                found = Slope(found.value * part.value, slope)
            return [found]
        case e.Min():
            return [_minimum(parts)]
        case e.Max():
            return [_negated(_minimum([_negated(p) for p in parts]))]
        case e.Norm():
            squares = parts[0].value.square()
            for part in parts[1:]:
                squares = squares + part.value.square()
            size = squares.sqrt()  # every partial derivative is Σ (u_i/|u|)·∂u_i, with |u_i/|u|| ≤ 1
            unit = Interval(-one.lo, one.lo)
            return [Slope(size, [_sum([unit * p.gradient[k] for p in parts]) for k in range(len(x))])]
        case e.Stack():
            return parts
        case _:
            raise TypeError(f"unknown node {node.op!r}")


def _linear(weights: Sequence[float], parts: Sequence[Slope], bias: float, zero: Interval, dim: int) -> Slope:
    value, gradient = zero + bias if bias else zero, [zero] * dim
    for w, part in zip(weights, parts, strict=True):
        if w != 0.0:
            value = value + part.value * w
            gradient = [g + p * w for g, p in zip(gradient, part.gradient, strict=True)]
    return Slope(value, gradient)


def _chain(u: Slope, value: Interval, first: Interval) -> Slope:
    return Slope(value, [first * g for g in u.gradient])


def _derivative(node: e.Power | e.Exp | e.Tanh | e.Softplus, u: Interval) -> tuple[Interval, Interval]:
    """Enclose φ and φ' over intervals."""
    match node:
        case e.Power():
            return u.power(node.exponent), u.power(node.exponent - 1) * float(node.exponent)
        case e.Exp():
            return u.exp(), u.exp()
        case e.Tanh():  # φ' = 1 − tanh², between 0 and 1
            slope = -(u.tanh().square()) + 1.0
            return u.tanh(), Interval(np.maximum(slope.lo, 0.0), np.minimum(slope.hi, 1.0))
        case e.Softplus():  # max(u, 0) + log(1 + e^−|u|), and 0 ≤ log(1 + q) ≤ q; the slope is (1 + tanh(u/2))/2
            middle, slope = _softplus(interval(u.mid)), ((u * 0.5).tanh() + 1.0) * 0.5
            slope = Interval(np.maximum(slope.lo, 0.0), np.minimum(slope.hi, 1.0))
            return middle + slope * (u - interval(u.mid)), slope


def _softplus(at: Interval) -> Interval:
    """Enclose log(1 + e^u) at points, by logaddexp, with its result widened as for the other functions."""
    found = np.logaddexp(0.0, at.lo)
    wide = np.abs(found) * 2.0**-46 + 2.0**-1000
    return Interval(np.maximum(found - wide, 0.0), found + 2 * wide)


def _minimum(parts: Sequence[Slope]) -> Slope:
    """Enclose the minimum; its gradient is the hull over the arguments that can attain it in the box."""
    top = np.minimum.reduce([p.value.hi for p in parts])
    value = Interval(np.minimum.reduce([p.value.lo for p in parts]), top)
    gradient: list[Interval] = []
    for k in range(len(parts[0].gradient)):
        lo = np.minimum.reduce([np.where(p.value.lo <= top, p.gradient[k].lo, np.inf) for p in parts])
        hi = np.maximum.reduce([np.where(p.value.lo <= top, p.gradient[k].hi, -np.inf) for p in parts])
        gradient.append(Interval(lo, hi))
    return Slope(value, gradient)


def _negated(u: Slope) -> Slope:
    return Slope(-u.value, [-g for g in u.gradient])


def _sum(parts: Sequence[Interval]) -> Interval:
    found = parts[0]
    for part in parts[1:]:
        found = found + part
    return found
