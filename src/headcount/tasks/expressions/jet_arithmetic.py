"""Second-order jets in ball arithmetic: value, gradient and Hessian of a smooth tree over a box of inputs.

A jet carries f, ∂f and ∂²f through the tree by the chain rule; every number is a ball that contains the true
value at *every* point of the box. Derivatives are sparse: a missing entry is exactly 0 on the whole box, so linear
functions and coordinates that are never read are recognised without a tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.core import BadInput
from headcount.tasks.expressions import tree as e
from headcount.tasks.expressions.in_balls import ball, monotone, power, softplus

if TYPE_CHECKING:
    from flint import arb

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Jet:
    """One number with its derivatives: gradient[i] and hessian[i, j] for i ≤ j; absent means exactly 0."""

    value: arb
    gradient: dict[int, arb]
    hessian: dict[Pair, arb]


def jets(node: e.Expr, x: Sequence[arb], order: int = 2) -> list[Jet]:
    """Return enclosures of a smooth tree over a box and its derivatives up to `order` (1: the Hessian stays empty)."""
    match node:
        case e.Variable():
            return [Jet(v, {i: ball(1.0)} if order else {}, {}) for i, v in enumerate(x)]
        case e.Affine():
            u = jets(node.of, x, order)
            return [_linear(row, u, b) for row, b in zip(node.weight, node.bias, strict=True)]
        case e.Power() | e.Exp() | e.Tanh() | e.Softplus():
            return [_chain(u, *_derivatives(node, u.value), order) for u in jets(node.of, x, order)]
        case e.Sum() | e.Product() | e.Stack():
            parts = [u for a in node.children for u in jets(a, x, order)]
        case _:
            raise BadInput(f"{node.op} has kinks: derivatives can be enclosed only for smooth expressions")
    match node:
        case e.Sum():
            return [_linear([1.0] * len(parts), parts, 0.0)]
        case e.Product():
            return [reduce(lambda a, b: _product(a, b, order), parts)]
        case _:
            return parts


def _linear(weights: Sequence[float], parts: Sequence[Jet], bias: float) -> Jet:
    """Return Σ w·u + b: derivatives are summed with the same weights."""
    terms = [(ball(w), u) for w, u in zip(weights, parts, strict=True) if w != 0.0]
    return Jet(
        sum((w * u.value for w, u in terms), ball(bias)),
        _total((i, w * g) for w, u in terms for i, g in u.gradient.items()),
        _total((ij, w * h) for w, u in terms for ij, h in u.hessian.items()),
    )


def _chain(u: Jet, value: arb, first: arb, second: arb, order: int) -> Jet:
    """Return φ(u): ∂ = φ'·∂u, ∂² = φ'·∂²u + φ''·∂u·∂u."""
    gradient = _total((i, first * g) for i, g in u.gradient.items())
    if order < 2:
        return Jet(value, gradient, {})
    second_order = ((ij, first * h) for ij, h in u.hessian.items())
    return Jet(value, gradient, _total(chain(second_order, ((ij, second * g) for ij, g in _outer(u, u)))))


def _product(u: Jet, v: Jet, order: int) -> Jet:
    """Return u·v: ∂ = u·∂v + v·∂u, ∂² = u·∂²v + v·∂²u + ∂u·∂vᵀ + ∂v·∂uᵀ."""
    gradient = _total((i, a.value * g) for a, b in ((u, v), (v, u)) for i, g in b.gradient.items())
    if order < 2:
        return Jet(u.value * v.value, gradient, {})
    second_order = ((ij, a.value * h) for a, b in ((u, v), (v, u)) for ij, h in b.hessian.items())
    return Jet(u.value * v.value, gradient, _total(chain(second_order, _outer(u, v), _outer(v, u))))


def _outer(u: Jet, v: Jet) -> Iterable[tuple[Pair, arb]]:
    """Yield ∂u·∂vᵀ on and above the diagonal; a square is enclosed as a square."""
    for i, a in u.gradient.items():
        for j, b in v.gradient.items():
            if i <= j:
                yield (i, j), power(a, 2) if u is v and i == j else a * b


def _total(terms: Iterable[tuple[Any, arb]]) -> dict[Any, arb]:
    """Return the sums of entries of equal index; sums that are exactly 0 are omitted."""
    sums: dict[Any, arb] = {}
    for key, term in terms:
        sums[key] = sums[key] + term if key in sums else term
    return {key: v for key, v in sums.items() if not v == 0}  # noqa: SIM201 - `!=` is false for a ball around 0


def _derivatives(node: e.Power | e.Exp | e.Tanh | e.Softplus, u: arb) -> tuple[arb, arb, arb]:
    """Return enclosures of φ, φ' and φ'' over a ball."""
    match node:
        case e.Power():
            k = node.exponent
            first = k * power(u, k - 1) if k > 1 else ball(1.0)  # u⁰ is 1, also where the ball holds 0
            second = k * (k - 1) * power(u, k - 2) if k > 2 else ball(2.0 * (k == 2))
            return power(u, k), first, second
        case e.Exp():
            v = monotone(u, lambda t: t.exp())
            return v, v, v
        case e.Tanh():  # 1 − tanh² = sech²: no cancellation if tanh is saturated
            v, bell = monotone(u, lambda t: t.tanh()), _bell(u, lambda t: t.sech() ** 2)
            return v, bell, -2 * v * bell
        case e.Softplus():  # σ and σ·(1 − σ), the latter as sech²(u/2)/4
            first = monotone(u, lambda t: ((t / 2).tanh() + 1) / 2 if t > 0 else t.exp() / (1 + t.exp()))
            return monotone(u, softplus), first, _bell(u, lambda t: (t / 2).sech() ** 2 / 4)


def _bell(u: arb, function: Callable[[arb], arb]) -> arb:
    """Return the enclosure of an even function that decreases in |u|."""
    return function(u.abs_lower()).union(function(u.abs_upper()))


# -- decisions from enclosures -------------------------------------------------------------------------------


def balls(low: Sequence[float], high: Sequence[float]) -> list[arb]:
    """Return a box as balls; a side of length 0 stays an exact number."""
    return [ball(a) if a == b else ball(a, b) for a, b in zip(low, high, strict=True)]


def floor(v: arb) -> float:
    """Return a double that is at most every number in the ball."""
    end = v.lower()
    near = float(end)
    if math.isnan(near):
        return -math.inf
    return near if ball(near) <= end else math.nextafter(near, -math.inf)


def ceil(v: arb) -> float:
    """Return a double that is at least every number in the ball."""
    return -floor(-v) + 0.0  # no -0.0


def definite(hessian: dict[Pair, arb], axes: Sequence[int], shift: float = 0.0) -> bool | None:
    """Return whether hessian − shift·I, restricted to `axes`, is positive definite, by the pivots of LDLᵀ in balls.

    True: every symmetric matrix in the enclosure is (all pivots > 0). False: none is (a pivot ≤ 0 after
    positive ones). None: the balls are too wide to decide.
    """
    used = set(axes)
    rows: dict[int, dict[int, arb]] = {i: {i: ball(-shift)} for i in sorted(used)}
    for (i, j), h in hessian.items():
        if i in used and j in used:
            rows[i][j] = rows[i][j] + h if j in rows[i] else h
    while rows:
        i = next(iter(rows))
        row = rows.pop(i)
        pivot = row.pop(i)
        if not pivot > 0:
            return False if pivot <= 0 else None
        for j, a in row.items():
            for k, b in row.items():
                if j <= k:
                    rows[j][k] = rows[j].get(k, ball(0.0)) - (power(a, 2) if j == k else a * b) / pivot
    return True


def curvature(hessian: dict[Pair, arb], axes: Sequence[int]) -> float:
    """Return a proved lower bound of the smallest eigenvalue, or 0 if no bound above 0 is found."""
    index = {axis: n for n, axis in enumerate(axes)}
    middle = np.zeros((len(index), len(index)))
    for (i, j), h in hessian.items():
        if i in index and j in index:
            middle[index[i], index[j]] = middle[index[j], index[i]] = float(h.mid())
    if not np.isfinite(middle).all():
        return 0.0
    estimate = float(np.linalg.eigvalsh(middle)[0])
    trials = (estimate * fraction for fraction in (1 - 2.0**-30, 0.99, 0.9, 0.5, 0.1, 1e-2, 1e-4))
    return next((t for t in trials if t > 0 and definite(hessian, axes, t)), 0.0)
