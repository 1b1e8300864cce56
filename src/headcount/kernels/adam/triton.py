"""One step of Adam or AdamW in Triton: one pass over the weights, moments and gradients of all models.

Division and square root are rounded as IEEE 754 requires; Triton's own division is only accurate to two units in the
last place. Errors are a few units in the last place of the largest term, so they are large if the step is divided by a
small root.
"""

# pyright: basic, reportGeneralTypeIssues=false
from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def step(theta, grad, first, second, rates, alive, cursor, loss, losses, size, models, BLOCK: tl.constexpr):
    """Update one block of one model's weights; nothing is written for a model that is not alive.

    With a cursor, rates and losses are those of a block of steps, and a non-finite loss freezes the model: every
    program of the model checks this for itself, and the first one records it.
    """
    model, block = tl.program_id(0), tl.program_id(1)
    alive += model
    lives = tl.load(alive) != 0
    if cursor is not None:
        now = tl.load(cursor)
        rates += now * 4 * models
        value = tl.load(loss + model)
        lives = lives & (tl.abs(value) < float("inf"))
        if block == 0:
            tl.store(losses + now * models + model, value)
            tl.store(alive, lives.to(tl.uint8))
    at = block * BLOCK + tl.arange(0, BLOCK)
    live = (at < size) & lives
    step_size, root = tl.load(rates + model), tl.load(rates + models + model)
    shrink, pull = tl.load(rates + 2 * models + model), tl.load(rates + 3 * models + model)
    at = model.to(tl.int64) * size + at
    old = tl.load(theta + at, live, 0.0)
    g = tl.load(grad + at, live, 0.0) + pull * old
    m = 0.9 * tl.load(first + at, live, 0.0) + 0.1 * g
    v = 0.999 * tl.load(second + at, live, 0.0) + 0.001 * g * g
    tl.store(theta + at, old * shrink - tl.div_rn(step_size * m, tl.sqrt_rn(v) * root + 1e-8), live)
    tl.store(first + at, m, live)
    tl.store(second + at, v, live)


def adam_triton(
    theta: Tensor,
    grad: Tensor,
    first: Tensor,
    second: Tensor,
    rates: Tensor,
    alive: Tensor,
    cursor: Tensor | None = None,
    loss: Tensor | None = None,
    losses: Tensor | None = None,
) -> None:
    """Launch the kernel on all weights of all models; without a cursor rates[4, models] are those of one step."""
    models, size = theta.shape
    launch: Any = step[(models, -(-size // 1024))]
    launch(theta, grad, first, second, rates, alive.view(torch.uint8), cursor, loss, losses, size, models, BLOCK=1024)
