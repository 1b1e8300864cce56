"""Expressions in NumPy: x[..., in_dim] → value[..., out_dim]."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headcount.tasks.expressions import tree as e


def evaluate(node: e.Expr, x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the values of a tree on a batch of points."""
    match node:
        case e.Variable():
            return x
        case e.Affine():
            return evaluate(node.of, x) @ np.asarray(node.weight).T + np.asarray(node.bias)
        case e.Power():
            return evaluate(node.of, x) ** node.exponent
        case e.Exp():
            return np.exp(evaluate(node.of, x))
        case e.Tanh():
            return np.tanh(evaluate(node.of, x))
        case e.Softplus():
            return np.logaddexp(0.0, evaluate(node.of, x))
        case _:
            parts = np.concatenate([evaluate(a, x) for a in node.children], axis=-1)
    match node:
        case e.Sum():
            return parts.sum(-1, keepdims=True)
        case e.Product():
            return parts.prod(-1, keepdims=True)
        case e.Min():
            return parts.min(-1, keepdims=True)
        case e.Max():
            return parts.max(-1, keepdims=True)
        case e.Norm():
            return np.sqrt((parts**2).sum(-1, keepdims=True))
        case e.Stack():
            return parts
        case _:
            raise TypeError(f"unknown node {node.op!r}")
