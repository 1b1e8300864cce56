"""Expressions: serialisable functions R^n → R^m over a small closed set of operations.

A task's f_i and F0 are trees of these nodes. The JSON of the tree is the function's identity, so a task can be
saved, hashed, moved to another machine and evaluated in torch, NumPy or ball arithmetic (`in_torch`, `in_numpy`,
`in_balls`), which the tests compare. This file needs neither torch nor flint.

    affine               W·u + b
    power, exp, tanh, softplus   of every component
    sum, product, min, max, norm   of all components of all arguments: one number
    stack                the components of all arguments, one after the other

Building them reads like the formula:

    x = variable(2)
    f = ((x - [0.3, 0.7]) ** 2).sum()          # a quadratic basin
    F0 = variable(2)[0] * variable(2)[1]       # the product of the two retrieved values
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError, model_validator

from headcount.core import BadInput, Matrix, Spec, Vector, explain


class Node(Spec):
    """Base class of nodes: dimensions, children, and the operators that build larger trees."""

    op: Any  # a literal in every node

    __array_ufunc__: ClassVar[None] = None  # a NumPy array to the left of + - * defers to the tree

    @property
    def children(self) -> tuple[Expr, ...]:
        """The arguments, in order."""
        return ()

    @property
    def in_dim(self) -> int:
        """The dimension of the variable (0 for a constant tree)."""
        return max((child.in_dim for child in self.children), default=0)

    @property
    def out_dim(self) -> int:
        """The number of components of the value."""
        return 1

    @property
    def smooth(self) -> bool:
        """Whether the tree consists only of twice differentiable operations."""
        return self.op not in ("min", "max", "norm") and all(child.smooth for child in self.children)

    def walk(self) -> Iterator[Expr]:
        """Yield this node and all nodes below it."""
        yield self
        for child in self.children:
            yield from child.walk()

    def reads(self) -> frozenset[int]:
        """Return the components of the variable on which the value can depend, by structure."""
        return frozenset().union(*self._dependencies())

    def _dependencies(self) -> list[frozenset[int]]:
        """Return, for every component of the value, the components of the variable that it reads."""
        parts = [part for child in self.children for part in child._dependencies()]
        return [frozenset().union(*parts)]

    # -- building ---------------------------------------------------------------------------------------------

    def __getitem__(self, index: int) -> Expr:
        if not -self.out_dim <= index < self.out_dim:
            raise IndexError(f"component {index} of an expression with {self.out_dim} components: out of range")
        row = [1.0 if j == index % self.out_dim else 0.0 for j in range(self.out_dim)]
        return affine([row], [0.0], self)

    def __iter__(self) -> Iterator[Expr]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return (self[i] for i in range(self.out_dim))

    def __add__(self, other: Expr | Sequence[float] | float) -> Expr:
        return _add(self, other, 1.0)

    __radd__ = __add__

    def __neg__(self) -> Expr:
        return -1.0 * self

    def __sub__(self, other: Expr | Sequence[float] | float) -> Expr:
        return _add(self, other, -1.0)

    def __rsub__(self, other: Sequence[float] | float) -> Expr:
        return _add(-self, other, 1.0)

    def __mul__(self, other: Expr | float) -> Expr:
        if isinstance(other, Node):
            if {self.out_dim, other.out_dim} == {1}:
                factors = self.args if isinstance(self, Product) else (self,)  # keep long products flat
                return Product(args=(*factors, other))
            left, right = _matched(self, other)
            return Stack(args=tuple(Product(args=pair) for pair in zip(left, right, strict=True)))
        scale = float(other)
        rows = [[scale if i == j else 0.0 for j in range(self.out_dim)] for i in range(self.out_dim)]
        return affine(rows, [0.0] * self.out_dim, self)

    __rmul__ = __mul__

    def __truediv__(self, other: float) -> Expr:
        return self * (1.0 / float(other))

    def __pow__(self, exponent: int) -> Expr:
        return Power(of=self, exponent=exponent)

    def sum(self) -> Expr:
        """Return the sum of all components."""
        return Sum(args=(self,))

    def norm(self) -> Expr:
        """Return the Euclidean norm."""
        return Norm(args=(self,))

    def dot(self, weights: Sequence[float]) -> Expr:
        """Return the inner product with these weights."""
        return affine([list(weights)], [0.0], self)


class Variable(Node):
    """The input itself."""

    op: Literal["variable"] = "variable"
    dim: int = Field(ge=1)

    @property
    def in_dim(self) -> int:
        return self.dim

    @property
    def out_dim(self) -> int:
        return self.dim

    def _dependencies(self) -> list[frozenset[int]]:
        return [frozenset({i}) for i in range(self.dim)]


class Affine(Node):
    """W·u + b."""

    op: Literal["affine"] = "affine"
    weight: Matrix
    bias: Vector
    of: Expr

    @model_validator(mode="after")
    def _shapes(self) -> Affine:
        if not self.weight or any(len(row) != self.of.out_dim for row in self.weight):
            raise ValueError(f"affine: every row of weight needs {self.of.out_dim} entries")
        if len(self.bias) != len(self.weight):
            raise ValueError(f"affine: bias has {len(self.bias)} entries, but weight has {len(self.weight)} rows")
        return self

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.of,)

    @property
    def out_dim(self) -> int:
        return len(self.weight)

    def _dependencies(self) -> list[frozenset[int]]:
        below = self.of._dependencies()
        return [frozenset().union(*(d for w, d in zip(row, below, strict=True) if w != 0.0)) for row in self.weight]


class _Unary(Node):
    """A function of every component."""

    of: Expr

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.of,)

    @property
    def out_dim(self) -> int:
        return self.of.out_dim

    def _dependencies(self) -> list[frozenset[int]]:
        return self.of._dependencies()


class Power(_Unary):
    """u^k for a whole k ≥ 1."""

    op: Literal["power"] = "power"
    exponent: int = Field(ge=1, le=64)


class Exp(_Unary):
    """exp(u)."""

    op: Literal["exp"] = "exp"


class Tanh(_Unary):
    """tanh(u)."""

    op: Literal["tanh"] = "tanh"


class Softplus(_Unary):
    """log(1 + exp(u))."""

    op: Literal["softplus"] = "softplus"


class _Many(Node):
    """A function of all components of all arguments."""

    args: Annotated[tuple[Expr, ...], BeforeValidator(lambda v: tuple(v) if isinstance(v, list) else v)]

    @model_validator(mode="after")
    def _some(self) -> _Many:
        if not self.args:
            raise ValueError(f"{self.op} needs at least one argument")
        if len({a.in_dim for a in self.args if a.in_dim}) > 1:
            raise ValueError(f"{self.op}: the arguments take variables of different dimension")
        return self

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.args


class Sum(_Many):
    """The sum of all components."""

    op: Literal["sum"] = "sum"


class Product(_Many):
    """The product of all components."""

    op: Literal["product"] = "product"


class Min(_Many):
    """The smallest component."""

    op: Literal["min"] = "min"


class Max(_Many):
    """The largest component."""

    op: Literal["max"] = "max"


class Norm(_Many):
    """The Euclidean norm."""

    op: Literal["norm"] = "norm"


class Stack(_Many):
    """All components, one after the other: makes a vector of numbers."""

    op: Literal["stack"] = "stack"

    @property
    def out_dim(self) -> int:
        return sum(a.out_dim for a in self.args)

    def _dependencies(self) -> list[frozenset[int]]:
        return [part for a in self.args for part in a._dependencies()]


if TYPE_CHECKING:
    Expr: TypeAlias = Node
else:  # pydantic reads a tree by the `op` of every node
    Expr = Annotated[
        Variable | Affine | Power | Exp | Tanh | Softplus | Sum | Product | Min | Max | Norm | Stack,
        Field(discriminator="op"),
    ]
NODES: tuple[type[Node], ...] = (Variable, Affine, Power, Exp, Tanh, Softplus, Sum, Product, Min, Max, Norm, Stack)
for _node in NODES:
    _node.model_rebuild()
_adapter: TypeAdapter[Expr] = TypeAdapter(Expr)

Function = Expr | Callable[[Any], Any]  # a bare callable can be trained on and attacked, but not built or proved


def parse_expr(value: Any) -> Expr:
    """Return the expression of JSON data."""
    try:
        return _adapter.validate_json(json.dumps(value))
    except TypeError as error:
        raise BadInput(f"expression: not JSON data: {error}") from None
    except (ValidationError, RecursionError) as error:
        if isinstance(error, RecursionError) or error.errors()[0]["type"] == "json_invalid":
            raise BadInput("expression: nested too deeply: give many arguments to one sum or product") from None
        raise BadInput(f"expression: {explain(error, Node)}") from None


def variable(dim: int) -> Variable:
    """Return the variable of a function on R^dim."""
    return Variable(dim=dim)


def constant(values: Sequence[float], dim: int) -> Expr:
    """Return a constant function on R^dim."""
    return affine([[0.0] * dim for _ in values], values, variable(dim))


def affine(weight: Any, bias: Any, of: Expr) -> Expr:
    """Return W·u + b; two affine maps in a row are merged, so the spelling of a formula does not grow its tree."""
    node = Affine(weight=weight, bias=bias, of=of)
    if not isinstance(of, Affine):
        return node
    columns = list(zip(*of.weight, strict=True))
    merged = [[sum(a * b for a, b in zip(row, col, strict=True)) for col in columns] for row in node.weight]
    shift = [
        b + sum(a * c for a, c in zip(row, of.bias, strict=True)) for row, b in zip(node.weight, node.bias, strict=True)
    ]
    return Affine(weight=tuple(map(tuple, merged)), bias=tuple(shift), of=of.of)


def smallest(*args: Expr) -> Expr:
    """Return the smallest component of all arguments."""
    return Min(args=args)


def largest(*args: Expr) -> Expr:
    """Return the largest component of all arguments."""
    return Max(args=args)


def _matched(left: Expr, right: Expr) -> tuple[list[Expr], list[Expr]]:
    """Return two expressions with the same number of components; a single number is repeated."""
    count = max(left.out_dim, right.out_dim)
    if {left.out_dim, right.out_dim} - {1, count}:
        raise BadInput(
            f"cannot combine expressions of {left.out_dim} and {right.out_dim} components: use equal numbers"
        )
    pair = [[side] * count if side.out_dim == 1 else [side[i] for i in range(count)] for side in (left, right)]
    return pair[0], pair[1]


def _terms(side: Any) -> tuple[Any, Any, tuple[Expr, ...]]:
    """Return W, b and args with side = W·stack(args) + b; sums are taken apart, which keeps long ones flat."""
    if isinstance(side, Affine) and isinstance(side.of, Stack):
        return side.weight, side.bias, side.of.args
    n = side.out_dim
    return [[1.0 if i == j else 0.0 for j in range(n)] for i in range(n)], [0.0] * n, (side,)


def _add(left: Expr, right: Expr | Sequence[float] | float, sign: float) -> Expr:
    """Return left + sign·right for a number, a list of numbers or an expression, component by component."""
    n = left.out_dim
    if isinstance(right, Node):
        m = right.out_dim
        count = max(n, m)
        if {n, m} - {1, count}:
            raise BadInput(f"cannot combine expressions of {n} and {m} components: use equal sizes")
        W, b, left_args = _terms(left)
        V, c, right_args = _terms(right)
        pairs = [(i if n > 1 else 0, i if m > 1 else 0) for i in range(count)]
        rows = [[*W[i], *(sign * v + 0.0 for v in V[j])] for i, j in pairs]  # + 0.0: no -0.0 in the JSON
        return affine(rows, [b[i] + sign * c[j] for i, j in pairs], Stack(args=(*left_args, *right_args)))
    shift = [float(right)] * n if isinstance(right, int | float | Real) else [float(v) for v in right]
    if len(shift) != n:
        raise BadInput(f"cannot add {len(shift)} numbers to an expression with {n} components")
    rows = [[1.0 if i == j else 0.0 for j in range(n)] for i in range(n)]
    return affine(rows, [sign * v for v in shift], left)
