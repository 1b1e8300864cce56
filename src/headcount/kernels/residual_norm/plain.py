"""Where a block's addition joins the stream, with the bare norm that the next block reads.

    s' = s + keep · added / (1 − dropout)          u = (s' − mean s') / deviation of s', over a row

In one pass where there is a kernel: a step of narrow models is bound by the memory that it touches.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

EPSILON = 1e-5


def join_plain(
    s: Float[Tensor, "*rows e"],
    added: Float[Tensor, "*rows e"] | None = None,
    keep: Float[Tensor, "*rows e"] | None = None,
    dropout: float = 0.0,
) -> tuple[Float[Tensor, "*rows e"], Float[Tensor, "*rows e"]]:
    """The readable twin: any device, any dtype; `keep` is 1 where a number is kept and 0 where it is dropped."""
    s = grown(s, added, keep, dropout)
    return s, nn.functional.layer_norm(s, s.shape[-1:], eps=EPSILON)


def grown(s: Tensor, added: Tensor | None, keep: Tensor | None, dropout: float) -> Tensor:
    """The sum alone, where nobody reads its norm."""
    if added is None:
        return s
    return s + added if keep is None else torch.addcmul(s, added, keep, value=1.0 / (1.0 - dropout))
