"""Random expressions for the tests of tasks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from headcount.tasks.expressions.tree import (
    NODES,
    Affine,
    Exp,
    Expr,
    Max,
    Min,
    Norm,
    Power,
    Product,
    Softplus,
    Stack,
    Sum,
    Tanh,
    variable,
)

pytest.register_assert_rewrite("task_suite")

KINDS = [node.__name__ for node in NODES]
DIM = 3


@pytest.fixture
def tree() -> Callable[[np.random.Generator, str, int], Expr]:
    """How a random tree on R^3 is drawn: generator, kind of the root, depth."""
    return draw


def draw(rng: np.random.Generator, kind: str, depth: int) -> Expr:
    """Draw a tree whose root is of this kind; arguments of growing functions stay within [−2, 2]."""

    def below() -> Expr:
        return variable(DIM) if depth <= 1 else draw(rng, str(rng.choice(KINDS)), depth - 1)

    def small() -> Expr:
        return 2.0 * Tanh(of=below())

    many = {"Sum": Sum, "Min": Min, "Max": Max, "Stack": Stack}
    args = int(rng.integers(1, 4))
    match kind:
        case "Variable":
            return variable(DIM)
        case "Affine":
            of, rows = below(), int(rng.integers(1, 4))
            return Affine(weight=rng.uniform(-1, 1, (rows, of.out_dim)), bias=rng.uniform(-1, 1, rows), of=of)
        case "Power":
            return Power(of=small(), exponent=int(rng.integers(1, 6)))
        case "Exp":
            return Exp(of=small())
        case "Tanh":
            return Tanh(of=below())
        case "Softplus":
            return Softplus(of=below())
        case "Product":
            return Product(args=tuple(small() for _ in range(args)))
        case "Norm":
            return Norm(args=tuple(small() for _ in range(args)))
        case _:
            return many[kind](args=tuple(below() for _ in range(args)))
