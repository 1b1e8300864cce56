"""Attention on packed queries, keys and values, in PyTorch.

o_i(t) = Σ_s softmax over s of (q_i(t)·k_i(s)/√n) · v_i(s), with q, k, v = packed[sequence, token, 0 to 2, head i].
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn


def attend_plain(
    packed: Float[Tensor, "sequences tokens 3 heads n"], seen: Bool[Tensor, "sequences tokens"] | None = None
) -> Float[Tensor, "sequences tokens heads n"]:
    """Return the heads' outputs (the readable twin): any device and dtype; scores in memory, in float32 at least."""
    wide = torch.promote_types(packed.dtype, torch.float32)
    q, k, v = (part.transpose(1, 2) for part in packed.unbind(2))
    r = (q.to(wide) / math.sqrt(packed.shape[-1])) @ k.to(wide).mT
    if seen is not None:
        r = r.masked_fill(~seen[:, None, None, :], -torch.inf)
    return (torch.softmax(r, dim=-1).to(packed.dtype) @ v).transpose(1, 2)


def attend_fused(
    packed: Float[Tensor, "sequences tokens 3 heads n"], seen: Bool[Tensor, "sequences tokens"] | None = None
) -> Float[Tensor, "sequences tokens heads n"]:
    """Return the same by torch's fused kernels; torch chooses among those allowed (`trial.py`)."""
    # unbind the packed tensor directly: its gradient is then a single copy, in the layout that the product needs
    q, k, v = (part.transpose(1, 2) for part in packed.unbind(2))
    allowed = None if seen is None else seen[:, None, None, :]
    return nn.functional.scaled_dot_product_attention(q, k, v, allowed).transpose(1, 2)
