"""One step of Adam or AdamW on flat weights, each model with its own rates: one pass over memory on a GPU.

With size = rate/(1 − 0.9^s), root = 1/sqrt(1 − 0.999^s) of step s, Adam has shrink = 1 and pull = decay, AdamW has
shrink = 1 − rate·decay and pull = 0. A model that is not alive keeps its weights and moments to the bit.
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
    """The step at the cursor of a block of steps: note the losses, freeze where one is not finite, move the others."""
    alive.logical_and_(loss - loss == 0)  # finite: neither inf − inf nor NaN − NaN is 0
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
    """The readable twin; on a GPU an operation costs the same however small it is, so there are few."""
    size, root, shrink, pull = rates[:, :, None]
    live = alive[:, None]
    g = torch.addcmul(grad, pull, theta)
    m = torch.lerp(first, g, 1 - BETA1)
    v = (BETA2 * second).addcmul_(g, g, value=1 - BETA2)
    new = (theta * shrink).addcdiv_(size * m, v.sqrt().mul_(root).add_(EPS), value=-1)
    for old, moved in ((theta, new), (first, m), (second, v)):
        torch.where(live, moved, old, out=old)
