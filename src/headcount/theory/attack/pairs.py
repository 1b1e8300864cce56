"""Many pairs of sequences as points of one space: the difference of their attention outputs and of their targets."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from headcount.theory.attack.layer import HeadMap, StateMap
from headcount.theory.attack.target import Target

REGION_PENALTY = 4.0  # the cost of leaving the region, in units of the most that it can gain


@dataclass(frozen=True)
class Moves:
    """How tokens may move within the box: freely, along the unit sphere, or with some coordinates fixed."""

    sphere: bool = False
    fixed: tuple[int, ...] = ()


class Pairs:
    """Box, layer and target for pairs Z[batch, 2·length·dim]; `outputs` has the output of the target for each pair."""

    def __init__(
        self,
        layer: HeadMap | StateMap,
        target: Target,
        low: Tensor,
        high: Tensor,
        length: int,
        outputs: Tensor,
        moves: Moves | None = None,
    ) -> None:
        self.layer, self.target, self.outputs, self.moves = layer, target, outputs, moves or Moves()
        self.low, self.high = (side.repeat(2 * length) for side in (low, high))
        self.shape = (2, length, len(low))
        self.unit = low.new_tensor(target.unit)[outputs]

    def select(self, chosen: Tensor) -> Pairs:
        """Return the same object for a selection of the pairs."""
        part = object.__new__(Pairs)
        part.__dict__ = {**self.__dict__, "outputs": self.outputs[chosen], "unit": self.unit[chosen]}
        return part

    def split(self, Z: Tensor) -> Tensor:
        """Return X[batch, 2, length, dim]."""
        return Z.view(len(Z), *self.shape)

    def residual(self, Z: Tensor) -> tuple[Tensor, Tensor]:
        """Return o(X1) − o(X2) and its Jacobian, restricted to the directions in which tokens may move."""
        o, J = self.layer.jacobian(self.split(Z).flatten(0, 1))
        o, both = o.view(len(Z), 2, -1), J.view(len(Z), 2, *J.shape[1:])
        return o[:, 0] - o[:, 1], self.tangent(Z, torch.cat([both[:, 0], -both[:, 1]], dim=2))

    def tangent(self, Z: Tensor, rows: Tensor) -> Tensor:
        """Project rows[batch, ..., 2·length·dim] onto the directions in which tokens may move."""
        if self.moves == Moves():
            return rows
        dim = self.shape[2]
        v = rows.reshape(len(Z), -1, Z.shape[1] // dim, dim).clone()  # [batch, rows, tokens, dim]
        if self.moves.sphere:
            x = Z.view(len(Z), 1, -1, dim)
            v -= (v * x).sum(-1, keepdim=True) * x / x.square().sum(-1, keepdim=True).clamp_min(1e-300)
        v[..., list(self.moves.fixed)] = 0.0
        return v.reshape(rows.shape)

    def difference(self, Z: Tensor) -> Tensor:
        """Return o(X1) − o(X2)."""
        o = self.layer(self.split(Z).flatten(0, 1)).view(len(Z), 2, -1)
        return o[:, 0] - o[:, 1]

    def gap(self, Z: Tensor, softness: float = 0.0) -> Tensor:
        """Return H(X1) − H(X2) for every pair's output, in standard deviations."""
        y = self.target(self.split(Z).flatten(0, 1), softness).view(len(Z), 2, -1)
        return (y[:, 0] - y[:, 1]).gather(1, self.outputs[:, None])[:, 0] / self.unit

    def legal(self, Z: Tensor) -> Tensor:
        """Return which pairs lie in the region."""
        return (self.target.excess(self.split(Z).flatten(0, 1)).view(len(Z), 2) <= 0).all(1)

    def merit(self, Z: Tensor, softness: float, mix: float) -> Tensor:
        """Return the objective: gap, minus a penalty for leaving the region, plus `mix` times the attention's entropy.

        A head that attends to a single token gives n equations in the d numbers of that token, nearly singular. Heads
        that attend to several tokens leave enough freedom to solve the equations; the entropy term keeps them so
        until the fibre is reached.
        """
        X = self.split(Z).flatten(0, 1)
        value = self.gap(Z, softness)
        if self.target.region is not None:
            loss = REGION_PENALTY * max(self.target.steepness, 1e-9) * self.target.excess(X, softness)
            value = value - loss.view(len(Z), 2).sum(1) / self.unit
        if mix > 0 and isinstance(self.layer, HeadMap):
            w = self.layer.weights(X)
            entropy = -(w * (w + 1e-300).log()).sum((1, 2))
            value = value + mix * entropy.view(len(Z), 2).sum(1)
        return value

    def clamp(self, Z: Tensor) -> Tensor:
        """Return the nearest pairs on the sphere, if tokens lie on it, clamped to the box."""
        nearest = Z
        if self.moves.sphere:
            tokens = Z.view(len(Z), -1, self.shape[2])
            nearest = (tokens / tokens.norm(dim=-1, keepdim=True).clamp_min(1e-300)).view(Z.shape)
        return torch.minimum(torch.maximum(nearest, self.low), self.high)

    def free(self, Z: Tensor, direction: Tensor) -> Tensor:
        """Return which coordinates may move along a direction without leaving the box; on the sphere all may."""
        if self.moves.sphere:
            return torch.ones_like(Z, dtype=torch.bool)
        return ~(((self.low >= Z) & (direction < 0)) | ((self.high <= Z) & (direction > 0)))
