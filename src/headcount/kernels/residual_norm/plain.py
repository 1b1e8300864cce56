"""Where a block's addition joins the stream, with the bare norm that the next block reads, and who computes it.

    s' = s + keep · added / (1 − dropout)          u = (s' − mean s') / deviation of s', over a row

In one pass where there is a kernel: a step of narrow models is bound by the memory that it touches.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headcount.kernels.pool.plain import has_triton

EPSILON = 1e-5


def join(
    s: Float[Tensor, "*rows e"],
    added: Float[Tensor, "*rows e"] | None = None,
    keep: Float[Tensor, "*rows e"] | None = None,
    dropout: float = 0.0,
) -> tuple[Float[Tensor, "*rows e"], Float[Tensor, "*rows e"]]:
    """Return s' and u; `keep` is 1 where a number is kept and 0 where it is dropped."""
    if s.device.type == "cuda" and s.dtype == torch.bfloat16 and has_triton():
        from headcount.kernels.residual_norm.triton import MOST, Join

        if s.shape[-1] <= MOST:
            found = Join.apply(s, added, keep, dropout)
            return (s, found) if added is None else found  # pyright: ignore[reportReturnType]
    return join_plain(s, added, keep, dropout)


def join_plain(
    s: Float[Tensor, "*rows e"],
    added: Float[Tensor, "*rows e"] | None = None,
    keep: Float[Tensor, "*rows e"] | None = None,
    dropout: float = 0.0,
) -> tuple[Float[Tensor, "*rows e"], Float[Tensor, "*rows e"]]:
    """The readable twin: any device, any dtype."""
    s = grown(s, added, keep, dropout)
    return s, nn.functional.layer_norm(s, s.shape[-1:], eps=EPSILON)


def grown(s: Tensor, added: Tensor | None, keep: Tensor | None, dropout: float) -> Tensor:
    """The sum alone, where nobody reads its norm."""
    if added is None:
        return s
    return s + added if keep is None else torch.addcmul(s, added, keep, value=1.0 / (1.0 - dropout))
