"""Add a block's output to the residual stream, and normalise the sum for the next block.

    s' = s + keep · added / (1 − dropout)          u = (s' − mean s') / deviation of s', per row

A kernel does this in one pass, because steps of narrow models are limited by memory traffic.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

EPSILON = 1e-5


def add_norm_plain(
    s: Float[Tensor, "*rows e"],
    added: Float[Tensor, "*rows e"] | None = None,
    keep: Float[Tensor, "*rows e"] | None = None,
    dropout: float = 0.0,
) -> tuple[Float[Tensor, "*rows e"], Float[Tensor, "*rows e"]]:
    """Return s' and u (the readable twin): any device and dtype; `keep` is 1 for kept numbers, 0 for dropped ones."""
    s = add_residual(s, added, keep, dropout)
    return s, nn.functional.layer_norm(s, s.shape[-1:], eps=EPSILON)


def add_residual(s: Tensor, added: Tensor | None, keep: Tensor | None, dropout: float) -> Tensor:
    """Return only the sum s', for when its norm is not needed."""
    if added is None:
        return s
    return s + added if keep is None else torch.addcmul(s, added, keep, value=1.0 / (1.0 - dropout))
