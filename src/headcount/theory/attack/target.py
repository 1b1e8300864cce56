"""The target of an attack: H with softened minima, its standard deviation, and the region of typical sequences.

A trained layer can be expected to work on sequences like those that it was trained on, but the box contains others. For
example, of 16 Gaussian tokens the largest is practically never below −0.5, so training never teaches a head to order
tokens that are all lower, and it does not. An attack can therefore answer two questions: which pairs exist in
the whole box, and which exist among typical sequences, those whose every z_i lies in the range seen under the law.
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

DRAWS = 10_000  # sequences from which unit and region are measured
REGION_MARGIN = 1e-6  # the search keeps this far within the region's rounded ends


@dataclass(frozen=True)
class Region:
    """Bounds on every z_i, rounded outward to three decimals; the ends belong to the region."""

    low: tuple[float, ...]
    high: tuple[float, ...]


class Target:
    """H, and H with softened minima; `function` stands in for a task that is known only by its data."""

    def __init__(
        self, task: Task | None, function: Callable[[Tensor], Tensor] | None, draws: Tensor, typical: bool
    ) -> None:
        self.task, self.function = task, function
        with torch.no_grad():
            y = self(draws)
        self.out_dim, self.unit = int(y.shape[-1]), [float(v) or 1.0 for v in y.std(0)]
        z = task.features(draws) if isinstance(task, GeneralizedRetrieval) else y
        self.softness_unit = float(z.std(0).mean()) or 1.0  # the unit of `softness`
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
        """Return the minima z[batch, D], softened."""
        task = self.task
        assert isinstance(task, GeneralizedRetrieval)
        if softness == 0.0:
            return task.features(X)
        values = task.tokens(X).masked_fill(~task.members(X.device), torch.inf)
        return -softness * torch.logsumexp(-values / softness, dim=-1)

    def excess(self, X: Tensor, softness: float = 0.0) -> Tensor:
        """Return by how much the z_i leave the region, [batch]; 0 without a region."""
        if self.region is None:
            return X.new_zeros(len(X))
        z = self.minima(X, softness)
        low, high = z.new_tensor(self.region.low) + REGION_MARGIN, z.new_tensor(self.region.high) - REGION_MARGIN
        return (torch.relu(low - z) + torch.relu(z - high)).sum(-1)


def outer(task: GeneralizedRetrieval, z: Tensor) -> Tensor:
    """Return F0(z)[batch, out_dim]."""
    y = expr_torch.evaluate(task.F0, z) if isinstance(task.F0, Node) else task.F0(z)
    return y if y.ndim == z.ndim else y[..., None]


def _region(task: Task | None, draws: Tensor) -> Region:
    if not isinstance(task, GeneralizedRetrieval):
        raise BadInput("typical sequences are defined by their minima z_i, which only a retrieval task has")
    z = task.features(draws)
    low, high = (1000 * z.amin(0)).floor(), (1000 * z.amax(0)).ceil()
    return Region(tuple((low / 1000).tolist()), tuple((high / 1000).tolist()))


def _steepness(task: GeneralizedRetrieval, draws: Tensor) -> float:
    """Return the largest |∂F0/∂z_i| over draws: the most that a z_i can gain by leaving the region."""
    z = task.features(draws[:1000]).detach().requires_grad_(True)
    with torch.enable_grad():
        y = outer(task, z)
        if not y.requires_grad:
            return 0.0
        slopes = [torch.autograd.grad(y[:, j].sum(), z, retain_graph=True)[0] for j in range(y.shape[-1])]
    largest = float(torch.stack(slopes).abs().amax())
    return largest if math.isfinite(largest) else 0.0
