"""Expressions as sums of functions of one number: f(x) = w·x + b + Σ_k g_k(a_k·x).

A two-layer network can approximate each g_k by a piecewise linear function, whatever the dimension of x. Quadratic
basins, sums, and all functions of one linear form have this form; a product of two different linear forms does not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from headcount.tasks.expressions import Expr
from headcount.tasks.expressions import in_numpy as expr_numpy
from headcount.tasks.expressions import tree as e

Direction = tuple[float, ...]


@dataclass(frozen=True)
class RidgeSum:
    """weight·x + bias + Σ functions[a](a·x); a direction along one axis is stored as the unit vector."""

    weight: Direction
    bias: float
    functions: dict[Direction, Expr]

    @property
    def constant(self) -> bool:
        """Whether the function does not depend on x."""
        return not self.functions and not any(self.weight)


def ridges(node: Expr, dim: int) -> list[RidgeSum | None]:
    """Return every component of a tree as a ridge sum, or None for a component that is not one."""
    zero = (0.0,) * dim
    match node:
        case e.Variable():
            return [RidgeSum(_unit(j, dim), 0.0, {}) for j in range(dim)]
        case e.Affine():
            parts = ridges(node.of, dim)
            return [
                _total(zip(row, parts, strict=True), b, zero) for row, b in zip(node.weight, node.bias, strict=True)
            ]
        case e.Stack():
            return [part for child in node.children for part in ridges(child, dim)]
        case e.Sum():
            return [_total(((1.0, p) for child in node.children for p in ridges(child, dim)), 0.0, zero)]
        case e.Power() | e.Exp() | e.Tanh() | e.Softplus():
            return [None if part is None else _apply(node, part) for part in ridges(node.of, dim)]
        case e.Product():
            return [_product([part for child in node.children for part in ridges(child, dim)], zero)]
        case _:
            return [None] * node.out_dim


def _unit(j: int, dim: int) -> Direction:
    return tuple(1.0 if i == j else 0.0 for i in range(dim))


def _total(parts: Iterable[tuple[float, RidgeSum | None]], bias: float, zero: Direction) -> RidgeSum | None:
    """Return Σ w·part + bias."""
    weight, functions = np.array(zero), dict[Direction, Expr]()
    for w, part in parts:
        if w == 0.0:
            continue
        if part is None:
            return None
        weight, bias = weight + w * np.array(part.weight), bias + w * part.bias
        for a, g in part.functions.items():
            functions[a] = functions[a] + w * g if a in functions else (g if w == 1.0 else w * g)
    return RidgeSum(tuple(weight.tolist()), bias, functions)


def along(part: RidgeSum) -> tuple[Direction, Expr] | None:
    """Return a sum that reads a single linear form as that form and a function of it; None for other sums."""
    axes = [j for j, w in enumerate(part.weight) if w]
    if not part.functions:
        if len(axes) == 1:  # the axis is the form, and the factor belongs to the function
            return _unit(axes[0], len(part.weight)), e.affine([[part.weight[axes[0]]]], [part.bias], e.variable(1))
        return part.weight, e.variable(1) + part.bias
    if len(part.functions) > 1:
        return None
    ((a, g),) = part.functions.items()
    first = next(j for j, v in enumerate(a) if v)
    factor = part.weight[first] / a[first]
    if any(w != factor * v for w, v in zip(part.weight, a, strict=True)):
        return None
    return a, g + part.bias if factor == 0.0 else g + e.affine([[factor]], [part.bias], e.variable(1))


def _apply(node: e.Power | e.Exp | e.Tanh | e.Softplus, part: RidgeSum) -> RidgeSum | None:
    """Return φ of a sum that reads a single form; None for other sums."""
    if part.constant:
        at = e.constant([part.bias], 1)
        value = expr_numpy.evaluate(node.model_copy(update={"of": at}), np.zeros(1))
        return RidgeSum(part.weight, float(value[0]), {})
    found = along(part)
    if found is None:
        return None
    a, g = found
    return RidgeSum((0.0,) * len(part.weight), 0.0, {a: node.model_copy(update={"of": g})})


def _product(parts: list[RidgeSum | None], zero: Direction) -> RidgeSum | None:
    """Return a product whose nonconstant factors all read the same form; None for other products."""
    if any(part is None for part in parts):
        return None
    known = [part for part in parts if part is not None]
    scale = float(np.prod([part.bias for part in known if part.constant]))
    rest = [part for part in known if not part.constant]
    if not rest or scale == 0.0:
        return RidgeSum(zero, scale, {})
    if len(rest) == 1:
        return _total([(scale, rest[0])], 0.0, zero)
    forms = [along(part) for part in rest]
    directions = {form[0] for form in forms if form is not None}
    if None in forms or len(directions) > 1:
        return None
    factors = tuple(form[1] for form in forms if form is not None)
    return RidgeSum(zero, 0.0, {directions.pop(): scale * e.Product(args=factors)})
