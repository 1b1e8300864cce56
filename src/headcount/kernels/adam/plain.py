"""One step of Adam or AdamW on flat weights, with separate rates for each model.

In step s, size = rate/(1 − 0.9^s) and root = 1/sqrt(1 − 0.999^s). Adam has shrink = 1 and pull = decay; AdamW has
shrink = 1 − rate·decay and pull = 0. The weights and moments of a model that is not alive do not change at all.
"""

# pyright: basic
from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

BETA1, BETA2, EPS = 0.9, 0.999, 1e-8


def adam_at_plain(
    theta: Float[Tensor, "models size"],
    grad: Float[Tensor, "models size"],
    first: Float[Tensor, "models size"],
    second: Float[Tensor, "models size"],
    rates: Float[Tensor, "steps 4 models"],
    alive: Bool[Tensor, " models"],
    cursor: Int64[Tensor, " 1"],
    loss: Float[Tensor, " models"],
    losses: Float[Tensor, "steps models"],
) -> None:
    """Take the step at the cursor of a block: record losses, freeze models with a non-finite loss, update the rest."""
    alive.logical_and_(loss - loss == 0)  # is finite: inf − inf and NaN − NaN are NaN
    adam_plain(theta, grad, first, second, rates.index_select(0, cursor)[0], alive)
    losses.index_copy_(0, cursor, loss[None])


def adam_plain(
    theta: Float[Tensor, "models size"],
    grad: Float[Tensor, "models size"],
    first: Float[Tensor, "models size"],
    second: Float[Tensor, "models size"],
    rates: Float[Tensor, "4 models"],
    alive: Bool[Tensor, " models"],
) -> None:
    """Update weights and moments in place (the readable twin), in few operations: each has a fixed cost on a GPU."""
    size, root, shrink, pull = rates[:, :, None]
    live = alive[:, None]
    g = torch.addcmul(grad, pull, theta)
    m = torch.lerp(first, g, 1 - BETA1)
    v = (BETA2 * second).addcmul_(g, g, value=1 - BETA2)
    new = (theta * shrink).addcdiv_(size * m, v.sqrt().mul_(root).add_(EPS), value=-1)
    for old, updated in ((theta, new), (first, m), (second, v)):
        torch.where(live, updated, old, out=old)
