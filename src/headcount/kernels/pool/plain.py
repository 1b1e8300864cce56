"""The hot operation with a leading model axis: tokens → pooled hidden state per head.

    u(t)   = relu(x(t) W1 + hidden_bias(t))                  hidden layer of the encoder
    a_i(t) = softmax over t of score_i·u(t) + score_bias_i(t)
    p_i    = Σ_t a_i(t)·u(t)                                 pooled

The sequences are stored once, X[samples, length, dim]; every model reads its own rows by index[models, batch].
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor


def pool_plain(
    x: Float[Tensor, "samples length dim"],
    index: Int64[Tensor, "models batch"],
    W1: Float[Tensor, "models dim hidden"],
    hidden_bias: Float[Tensor, "models rows hidden"],
    score: Float[Tensor, "models heads hidden"],
    score_bias: Float[Tensor, "models heads length"] | None = None,
    mask: Bool[Tensor, "samples length"] | None = None,
) -> Float[Tensor, "models batch heads hidden"]:
    """Return the pooled states (the readable twin): any device and dtype, autograd, all intermediates in memory."""
    u = torch.relu(torch.einsum("mbtd,mdk->mbtk", x[index], W1) + hidden_bias[:, None])
    r = torch.einsum("mhk,mbtk->mbht", score, u)
    if score_bias is not None:
        r = r + score_bias[:, None]
    if mask is not None:
        r = r.masked_fill(~mask[index][:, :, None, :], -torch.inf)
    return torch.einsum("mbht,mbtk->mbhk", torch.softmax(r, dim=-1), u)
