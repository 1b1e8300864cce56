"""A task's expressions as trees of scalars over linear forms of the input, with gradients in ball arithmetic.

Comparing a network whose hidden units each read one linear form u_k = a_k·x with a function that reads the input
through the same forms is a problem in few variables, however many coordinates x has. Forms are found in exact
fractions: two forms are the same only if they are equal up to an exact factor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import reduce
from typing import Any, NamedTuple

from flint import arb

from headcount.tasks.expressions import monotone, power, softplus
from headcount.tasks.expressions import tree as e

PRECISION = 128  # bits: products of two doubles are exact
Row = tuple[Fraction, ...]
Gradient = dict[int, Any]


class Leaf(NamedTuple):
    """scale·u_k + bias with the k-th form u_k, or a constant (form None); in fractions, or balls after `in_balls`."""

    form: int | None
    scale: Any
    bias: Any


class Tree(NamedTuple):
    """An operation on scalars; `linear` has weights and a bias, `power` has an exponent."""

    op: str
    children: tuple[Any, ...]
    weights: tuple[Any, ...] = ()
    bias: Any = Fraction(0)
    exponent: int = 1


def number(value: Fraction | float) -> arb:
    """Return a double or a fraction as a ball, which is exact for sums and products of doubles."""
    q = Fraction(value)
    return arb(q.numerator) / arb(q.denominator)  # exact if the denominator is a power of two


def _add(rows: Iterable[tuple[Fraction, tuple[Row, Fraction] | None]]) -> tuple[Row, Fraction] | None:
    """Return Σ w·row, or None if one of the parts is not affine."""
    total: tuple[Row, Fraction] | None = ((), Fraction(0))
    for w, part in rows:
        if part is None:
            return None
        row, bias = total
        longer = row or (Fraction(0),) * len(part[0])
        added = tuple(a + w * b for a, b in zip(longer, part[0] or (Fraction(0),) * len(longer), strict=True))
        total = added, bias + w * part[1]
    return total


def affine_rows(node: e.Expr) -> list[tuple[Row, Fraction] | None]:
    """Return the exact row and bias of every component of a node, or None for a component that is not affine."""
    match node:
        case e.Variable():
            one = [tuple(Fraction(int(i == j)) for j in range(node.dim)) for i in range(node.dim)]
            return [(row, Fraction(0)) for row in one]
        case e.Affine():
            parts = affine_rows(node.of)
            found = [_add((Fraction(w), p) for w, p in zip(row, parts, strict=True) if w) for row in node.weight]
            return [None if f is None else (f[0], f[1] + Fraction(b)) for f, b in zip(found, node.bias, strict=True)]
        case e.Stack():
            return [part for child in node.children for part in affine_rows(child)]
        case e.Sum():
            return [_add((Fraction(1), p) for child in node.children for p in affine_rows(child))]
        case _:
            return [None] * node.out_dim


class Forms:
    """The linear forms found so far; if `expanded`, only coordinates are used as forms."""

    def __init__(self, expanded: bool) -> None:
        self.expanded, self.rows = expanded, list[Row]()

    def index(self, row: Row) -> tuple[int, Fraction]:
        """Return the index of a row's form and the row's factor; the first nonzero entry of a form is 1."""
        scale = next(v for v in row if v)
        form = tuple(v / scale for v in row)
        if form not in self.rows:
            self.rows.append(form)
        return self.rows.index(form), scale

    def leaf(self, row: Row, bias: Fraction, apart: bool) -> Leaf | Tree:
        """Return an affine function as one leaf, or as a sum over coordinates if `apart` or expanded."""
        if not any(row):
            return Leaf(None, Fraction(0), bias)
        if not apart and not self.expanded:
            k, scale = self.index(row)
            return Leaf(k, scale, bias)
        units = [(w, tuple(Fraction(int(i == j)) for i in range(len(row)))) for j, w in enumerate(row) if w]
        leaves = tuple(Leaf(self.index(unit)[0], Fraction(1), Fraction(0)) for _, unit in units)
        return Tree("linear", leaves, tuple(w for w, _ in units), bias)


def scalar(node: e.Expr, i: int, forms: Forms, top: bool = True) -> Leaf | Tree:
    """Return component i of a node as a tree; affine parts are split by coordinate at the top, not inside functions."""
    exact = affine_rows(node)[i]
    if exact is not None:
        return forms.leaf(*exact, apart=top)
    match node:
        case e.Affine():
            kept = [(Fraction(w), j) for j, w in enumerate(node.weight[i]) if w]
            children = tuple(scalar(node.of, j, forms, top) for _, j in kept)
            return Tree("linear", children, tuple(w for w, _ in kept), Fraction(node.bias[i]))
        case e.Power() | e.Exp() | e.Tanh() | e.Softplus():
            k = node.exponent if isinstance(node, e.Power) else 1
            return Tree(node.op, (scalar(node.of, i, forms, False),), exponent=k)
        case e.Stack():
            for child in node.children:
                if i < child.out_dim:
                    return scalar(child, i, forms, top)
                i -= child.out_dim
            raise IndexError(i)
        case _:
            inner = top and node.op == "sum"
            parts = tuple(scalar(c, j, forms, inner) for c in node.children for j in range(c.out_dim))
            return Tree("linear", parts, (Fraction(1),) * len(parts)) if node.op == "sum" else Tree(node.op, parts)


def terms(tree: Leaf | Tree, weight: Fraction = Fraction(1)) -> tuple[list[tuple[Fraction, Leaf | Tree]], Fraction]:
    """Return a tree as Σ w·term + constant, with nested sums flattened."""
    if isinstance(tree, Leaf):
        if tree.form is None:
            return [], weight * tree.bias
        return [(weight, Leaf(tree.form, tree.scale, Fraction(0)))], weight * tree.bias
    if tree.op != "linear":
        return [(weight, tree)], Fraction(0)
    found, constant = list[tuple[Fraction, Leaf | Tree]](), weight * tree.bias
    for w, child in zip(tree.weights, tree.children, strict=True):
        more, shift = terms(child, weight * w)
        found, constant = found + more, constant + shift
    return found, constant


def reads(tree: Leaf | Tree) -> set[int]:
    """Return the forms that a tree reads."""
    if isinstance(tree, Leaf):
        return set() if tree.form is None else {tree.form}
    return set().union(*(reads(child) for child in tree.children))


def in_balls(tree: Leaf | Tree) -> Any:
    """Return the tree with its numbers as balls, the form that `dual` takes."""
    if isinstance(tree, Leaf):
        return tree._replace(scale=number(tree.scale), bias=number(tree.bias))
    return tree._replace(
        children=tuple(in_balls(c) for c in tree.children),
        weights=tuple(number(w) for w in tree.weights),
        bias=number(tree.bias),
    )


def dual(tree: Any, u: Mapping[int, arb], slopes: bool = True) -> tuple[arb, Gradient]:
    """Enclose value and gradient of a smooth tree over a box, where f(u) ∈ f(m) + gradient·(u − m)."""
    if isinstance(tree, Leaf):
        if tree.form is None:
            return tree.bias, {}
        return tree.scale * u[tree.form] + tree.bias, {tree.form: tree.scale} if slopes else {}
    parts = [dual(child, u, slopes) for child in tree.children]
    match tree.op:
        case "linear":
            value: Any = sum((w * v for w, (v, _) in zip(tree.weights, parts, strict=True)), tree.bias)
            return value, _total([(w, g) for w, (_, g) in zip(tree.weights, parts, strict=True)])
        case "product":
            return reduce(lambda a, b: (a[0] * b[0], _total([(b[0], a[1]), (a[0], b[1])])), parts)
        case _:
            (v, g), k = parts[0], tree.exponent
            value, slope = _unary(tree.op, v, k)
            return value, _total([(slope, g)])


def _unary(op: str, v: arb, k: int) -> tuple[arb, arb]:
    """Enclose φ and φ' over a ball."""
    match op:
        case "power":
            return power(v, k), k * power(v, k - 1) if k > 1 else arb(1)
        case "exp":
            value = monotone(v, lambda t: t.exp())
            return value, value
        case "tanh":
            low, high = v.abs_lower().sech() ** 2, v.abs_upper().sech() ** 2
            return monotone(v, lambda t: t.tanh()), low.union(high)
        case "softplus":
            return monotone(v, softplus), monotone(v, lambda t: ((t / 2).tanh() + 1) / 2)
        case _:
            raise ValueError(f"{op} has kinks: only smooth expressions can be verified")


def _total(parts: list[tuple[arb, Gradient]]) -> Gradient:
    sums: Gradient = {}
    for w, g in parts:
        for k, v in g.items():
            sums[k] = sums[k] + w * v if k in sums else w * v
    return sums
