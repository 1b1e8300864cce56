"""Pairs of sequences as points of one space, many at once: their difference after attention and in their targets."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from headcount.theory.attack.layer import HeadMap, StateMap
from headcount.theory.attack.target import Target

OUTSIDE = 4.0  # what leaving the region costs, in units of what it can gain


@dataclass(frozen=True)
class Moves:
    """How tokens may move beside keeping to the box: along the unit sphere, or with some coordinates held."""

    sphere: bool = False
    fixed: tuple[int, ...] = ()


class Pairs:
    """The box, the layer and the target for pairs Z[batch, 2·length·dim]; `outputs` says which output each is about."""

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

    def keep(self, chosen: Tensor) -> Pairs:
        """Return the same for some of the pairs."""
        part = object.__new__(Pairs)
        part.__dict__ = {**self.__dict__, "outputs": self.outputs[chosen], "unit": self.unit[chosen]}
        return part

    def split(self, Z: Tensor) -> Tensor:
        """Return X[batch, 2, length, dim]."""
        return Z.view(len(Z), *self.shape)

    def residual(self, Z: Tensor) -> tuple[Tensor, Tensor]:
        """Return o(X1) − o(X2) and its Jacobian, along the directions in which tokens may move."""
        o, J = self.layer.jacobian(self.split(Z).flatten(0, 1))
        o, both = o.view(len(Z), 2, -1), J.view(len(Z), 2, *J.shape[1:])
        return o[:, 0] - o[:, 1], self.tangent(Z, torch.cat([both[:, 0], -both[:, 1]], dim=2))

    def tangent(self, Z: Tensor, rows: Tensor) -> Tensor:
        """Return the part of rows[batch, ..., 2·length·dim] along which tokens may move."""
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
        """Return H(X1) − H(X2) at every pair's own output, in standard deviations."""
        y = self.target(self.split(Z).flatten(0, 1), softness).view(len(Z), 2, -1)
        return (y[:, 0] - y[:, 1]).gather(1, self.outputs[:, None])[:, 0] / self.unit

    def legal(self, Z: Tensor) -> Tensor:
        """Say which pairs keep to the region."""
        return (self.target.excess(self.split(Z).flatten(0, 1)).view(len(Z), 2) <= 0).all(1)

    def merit(self, Z: Tensor, softness: float, mix: float) -> Tensor:
        """Return what is climbed: the gap, less what leaves the region, and `mix` times the entropy of the attention.

        A head that looks at one token gives n equations in the d numbers of that token: all but singular. Heads that
        look at several tokens leave room to meet them exactly; `mix` keeps them so until the fibre is reached.
        """
        X = self.split(Z).flatten(0, 1)
        value = self.gap(Z, softness)
        if self.target.region is not None:
            loss = OUTSIDE * max(self.target.steepness, 1e-9) * self.target.excess(X, softness)
            value = value - loss.view(len(Z), 2).sum(1) / self.unit
        if mix > 0 and isinstance(self.layer, HeadMap):
            w = self.layer.weights(X)
            entropy = -(w * (w + 1e-300).log()).sum((1, 2))
            value = value + mix * entropy.view(len(Z), 2).sum(1)
        return value

    def clamp(self, Z: Tensor) -> Tensor:
        """Return the nearest pairs of the box, and of the sphere where tokens lie on it."""
        near = Z
        if self.moves.sphere:
            tokens = Z.view(len(Z), -1, self.shape[2])
            near = (tokens / tokens.norm(dim=-1, keepdim=True).clamp_min(1e-300)).view(Z.shape)
        return torch.minimum(torch.maximum(near, self.low), self.high)

    def free(self, Z: Tensor, direction: Tensor) -> Tensor:
        """Say which coordinates may move along a direction without leaving the box at once; the sphere has no faces."""
        if self.moves.sphere:
            return torch.ones_like(Z, dtype=torch.bool)
        return ~(((self.low >= Z) & (direction < 0)) | ((self.high <= Z) & (direction > 0)))
