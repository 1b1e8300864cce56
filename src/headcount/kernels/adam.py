"""One step of Adam or AdamW on flat weights, each model with its own rates: one pass over memory on a GPU.

With size = rate/(1 − 0.9^s), root = 1/sqrt(1 − 0.999^s) of step s, Adam has shrink = 1 and pull = decay, AdamW has
shrink = 1 − rate·decay and pull = 0. A model that is not alive keeps its weights and moments to the bit.
"""

# pyright: basic
from __future__ import annotations

import importlib.util
from functools import cache
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

BETA1, BETA2, EPS = 0.9, 0.999, 1e-8


def adam(
    theta: Float[Tensor, "models size"],
    grad: Float[Tensor, "models size"],
    first: Float[Tensor, "models size"],
    second: Float[Tensor, "models size"],
    rates: Float[Tensor, "4 models"],
    alive: Bool[Tensor, " models"],
) -> None:
    """Update theta and the moments in place; rates has the rows size, root, shrink and pull."""
    if theta.device.type == "cuda" and theta.dtype == torch.float32 and importlib.util.find_spec("triton"):
        grid = (theta.shape[0], -(-theta.shape[1] // 1024))
        _kernel()[grid](theta, grad, first, second, rates, alive, theta.shape[1], theta.shape[0], BLOCK=1024)
    else:
        adam_plain(theta, grad, first, second, rates, alive)


def adam_plain(
    theta: Float[Tensor, "models size"],
    grad: Float[Tensor, "models size"],
    first: Float[Tensor, "models size"],
    second: Float[Tensor, "models size"],
    rates: Float[Tensor, "4 models"],
    alive: Bool[Tensor, " models"],
) -> None:
    """The readable twin, in the order of operations of `cpu_step.adam`."""
    size, root, shrink, pull = rates[:, :, None]
    old, live = theta.clone(), alive[:, None]
    g = grad + pull * old
    m = BETA1 * first + (1 - BETA1) * g
    v = BETA2 * second + (1 - BETA2) * g * g
    theta.copy_(torch.where(live, old * shrink - size * m / (v.sqrt() * root + EPS), old))
    first.copy_(torch.where(live, m, first))
    second.copy_(torch.where(live, v, second))


@cache
def _kernel() -> Any:
    """Build the kernel at its first use, so that importing this module needs no triton."""
    import triton
    import triton.language as tl

    @triton.jit
    def step(theta, grad, first, second, rates, alive, size, models, BLOCK: tl.constexpr):
        model = tl.program_id(0)
        at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        live = (at < size) & tl.load(alive + model).to(tl.int1)
        step_size, root = tl.load(rates + model), tl.load(rates + models + model)
        shrink, pull = tl.load(rates + 2 * models + model), tl.load(rates + 3 * models + model)
        at = model.to(tl.int64) * size + at
        old = tl.load(theta + at, live, 0.0)
        g = tl.load(grad + at, live, 0.0) + pull * old
        m = 0.9 * tl.load(first + at, live, 0.0) + 0.1 * g
        v = 0.999 * tl.load(second + at, live, 0.0) + 0.001 * g * g
        tl.store(theta + at, old * shrink - step_size * m / (tl.sqrt_rn(v) * root + 1e-8), live)
        tl.store(first + at, m, live)
        tl.store(second + at, v, live)

    return step
