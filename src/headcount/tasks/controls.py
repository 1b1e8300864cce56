"""Tasks without retrieval structure: controls for which the number of heads must not matter, and a hard one."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headcount.core import BadInput, Matrix, Spec
from headcount.tasks.expressions import in_torch as expr_torch
from headcount.tasks.expressions.tree import Expr
from headcount.tasks.sampling import Gaussian, Law, Sphere, Uniform
from headcount.tasks.task import Task


class MeanTask(Task):
    """y = the mean over t of g(x(t)): one head with uniform attention computes it, whatever g."""

    def __init__(self, g: Expr, *, length: int, law: Law | None = None, name: str = "mean") -> None:
        self.g = g
        super().__init__(name=name, length=length, dim=g.in_dim, out_dim=g.out_dim, law=law or Uniform())

    def value(self, X: Tensor) -> Tensor:
        """Return the mean of g over the tokens."""
        self.check_input(X)
        return expr_torch.evaluate(self.g, X).mean(-2)

    def data(self) -> dict[str, Any]:
        """Return the task as JSON data."""
        return {"kind": "mean", **self._common(), "g": self.g.data()}


class _Weights(Spec):
    """The coefficients of a linear task."""

    weight: Matrix


class LinearTask(Task):
    """y = sum over t of w(t)·x(t): needs positions, but no retrieval."""

    def __init__(self, weight: Any, *, law: Law | None = None, name: str = "linear") -> None:
        rows = _Weights(weight=weight).weight
        if not rows or not rows[0] or len({len(row) for row in rows}) != 1:
            raise BadInput("linear: weight must be a rectangular table [length, dim]")
        self.weight = rows
        super().__init__(name=name, length=len(rows), dim=len(rows[0]), out_dim=1, law=law or Gaussian())

    @property
    def positional(self) -> bool:
        """Whether the weights differ between positions."""
        return len(set(self.weight)) > 1

    def value(self, X: Tensor) -> Tensor:
        """Return the weighted sum of all coordinates."""
        self.check_input(X)
        return (X * X.new_tensor(self.weight)).sum((-2, -1))[..., None]

    def data(self) -> dict[str, Any]:
        """Return the task as JSON data."""
        return {"kind": "linear", **self._common(), "weight": [list(row) for row in self.weight]}


class NearestNeighbour(Task):
    """Nearest neighbour on the sphere (Amsel et al.): the last token is the query, y the nearest earlier token.

    Not a D-retrieval task, since the query is part of the input: D is not defined. It is known that attention of
    rank r below the dimension d needs exp(Ω(d − r)) heads.
    """

    def __init__(self, *, length: int, dim: int, name: str = "nearest-neighbour") -> None:
        if length < 2:
            raise BadInput(f"nearest-neighbour: length must be at least 2 (a point and the query), not {length}")
        super().__init__(name=name, length=length, dim=dim, out_dim=dim, law=Sphere())

    @property
    def positional(self) -> bool:
        """True: the last token is the query."""
        return True

    def value(self, X: Tensor) -> Tensor:
        """Return the point with the largest inner product with the query."""
        self.check_input(X)
        points, query = X[..., :-1, :], X[..., -1:, :]
        best = (points * query).sum(-1).argmax(-1)
        index = best[..., None, None].expand(*best.shape, 1, self.dim)
        return torch.gather(points, -2, index)[..., 0, :]

    def data(self) -> dict[str, Any]:
        """Return the task as JSON data."""
        return {"kind": "nearest-neighbour", **self._common()}
