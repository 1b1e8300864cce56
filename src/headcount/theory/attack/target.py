"""What the layer is asked for: a target with softened minima, its unit, and the sequences that are like the data.

Trained layers answer for the sequences that they were trained on. A box holds others: with 16 Gaussian tokens the
largest of them is never below −0.5, so no training ever asks a head to order tokens that are all lower, and it does
not. So there are two questions, and both have an answer: which pairs exist in the whole box, and which among
sequences whose every z_i lies within what the task's own law gave.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from headcount.core import BadInput
from headcount.tasks import GeneralizedRetrieval, Task
from headcount.tasks.expressions import Node
from headcount.tasks.expressions import in_torch as expr_torch

DRAWS = 10_000
MARGIN = 1e-6  # within the region's rounded ends, so that the search may touch them


@dataclass(frozen=True)
class Region:
    """Bounds of every z_i; a closed box, rounded outward to three decimals."""

    low: tuple[float, ...]
    high: tuple[float, ...]


class Target:
    """H with its softened twin. `function` stands in for a task that is known by its data only."""

    def __init__(
        self, task: Task | None, function: Callable[[Tensor], Tensor] | None, draws: Tensor, typical: bool
    ) -> None:
        self.task, self.function = task, function
        with torch.no_grad():
            y = self(draws)
        self.out_dim, self.unit = int(y.shape[-1]), [float(v) or 1.0 for v in y.std(0)]
        z = task.features(draws) if isinstance(task, GeneralizedRetrieval) else y
        self.grain = float(z.std(0).mean()) or 1.0  # minima are softened in these units
        self.region = _region(task, draws) if typical else None
        self.steepness = _steepness(task, draws) if isinstance(task, GeneralizedRetrieval) else 0.0

    def __call__(self, X: Tensor, softness: float = 0.0) -> Tensor:
        """Return H(X)[batch, out_dim], its minima softened to −τ·log Σ exp(−f/τ)."""
        if isinstance(self.task, GeneralizedRetrieval) and softness > 0.0:
            return outer(self.task, self.minima(X, softness))
        if self.function is not None:
            return self.function(X)
        assert self.task is not None
        return self.task.value(X)

    def minima(self, X: Tensor, softness: float = 0.0) -> Tensor:
        """Return z[batch, D], softened."""
        task = self.task
        assert isinstance(task, GeneralizedRetrieval)
        if softness == 0.0:
            return task.features(X)
        values = task.tokens(X).masked_fill(~task.members(X.device), torch.inf)
        return -softness * torch.logsumexp(-values / softness, dim=-1)

    def excess(self, X: Tensor, softness: float = 0.0) -> Tensor:
        """Return by how much the z_i leave the region, [batch]; 0 without one."""
        if self.region is None:
            return X.new_zeros(len(X))
        z = self.minima(X, softness)
        low, high = z.new_tensor(self.region.low) + MARGIN, z.new_tensor(self.region.high) - MARGIN
        return (torch.relu(low - z) + torch.relu(z - high)).sum(-1)


def outer(task: GeneralizedRetrieval, z: Tensor) -> Tensor:
    """Return F0(z)[batch, out_dim]."""
    y = expr_torch.evaluate(task.F0, z) if isinstance(task.F0, Node) else task.F0(z)
    return y if y.ndim == z.ndim else y[..., None]


def _region(task: Task | None, draws: Tensor) -> Region:
    if not isinstance(task, GeneralizedRetrieval):
        raise BadInput("typical sequences are told by their minima z_i: only a retrieval task has them")
    z = task.features(draws)
    low, high = (1000 * z.amin(0)).floor(), (1000 * z.amax(0)).ceil()
    return Region(tuple((low / 1000).tolist()), tuple((high / 1000).tolist()))


def _steepness(task: GeneralizedRetrieval, draws: Tensor) -> float:
    """Return the largest |∂F0/∂z_i| seen: what a z_i may gain by leaving the region."""
    z = task.features(draws[:1000]).detach().requires_grad_(True)
    with torch.enable_grad():
        y = outer(task, z)
        if not y.requires_grad:
            return 0.0
        slopes = [torch.autograd.grad(y[:, j].sum(), z, retain_graph=True)[0] for j in range(y.shape[-1])]
    largest = float(torch.stack(slopes).abs().amax())
    return largest if math.isfinite(largest) else 0.0
