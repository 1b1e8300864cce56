"""Expressions in torch, differentiable: x[..., in_dim] → value[..., out_dim]."""

from __future__ import annotations

import torch
from torch import Tensor

from headcount.tasks.expressions import tree as e


def evaluate(node: e.Expr, x: Tensor) -> Tensor:
    """Return the values of a tree on a batch of points, in the dtype and on the device of x."""
    match node:
        case e.Variable():
            return x
        case e.Affine():
            return torch.nn.functional.linear(evaluate(node.of, x), x.new_tensor(node.weight), x.new_tensor(node.bias))
        case e.Power():
            return evaluate(node.of, x) ** node.exponent
        case e.Exp():
            return torch.exp(evaluate(node.of, x))
        case e.Tanh():
            return torch.tanh(evaluate(node.of, x))
        case e.Softplus():
            u = evaluate(node.of, x)  # torch's own softplus is linear above a threshold, so not exact
            return torch.logaddexp(torch.zeros_like(u), u)
        case _:
            parts = torch.cat([evaluate(a, x) for a in node.children], dim=-1)
    match node:
        case e.Sum():
            return parts.sum(-1, keepdim=True)
        case e.Product():
            return parts.prod(-1, keepdim=True)
        case e.Min():
            return parts.amin(-1, keepdim=True)
        case e.Max():
            return parts.amax(-1, keepdim=True)
        case e.Norm():
            return torch.linalg.vector_norm(parts, dim=-1, keepdim=True)
        case e.Stack():
            return parts
        case _:
            raise TypeError(f"unknown node {node.op!r}")
