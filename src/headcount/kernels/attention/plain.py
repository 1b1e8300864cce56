"""Attention from the packed product of its three maps, and who computes it.

o_i(t) = Σ_s softmax over s of (q_i(t)·k_i(s)/√n) · v_i(s), with q, k, v = packed[sequence, token, 0 to 2, head i].
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headcount.kernels.pool.plain import has_triton


def why_not_narrow(packed: Float[Tensor, "sequences tokens 3 heads n"]) -> str | None:
    """Say why the kernel for narrow heads does not apply; None where it does."""
    if packed.device.type != "cuda":
        return f"the tensors are on the {packed.device.type}"
    if not has_triton():
        return "triton is not installed"
    from headcount.kernels.attention.triton import why_not

    return why_not(packed)


def attend_narrow(
    packed: Float[Tensor, "sequences tokens 3 heads n"], seen: Bool[Tensor, "sequences tokens"] | None = None
) -> Float[Tensor, "sequences tokens heads n"]:
    """Return what every head reads, by the kernel; keys where `seen` is False are not read."""
    from headcount.kernels.attention.triton import NarrowAttention

    return NarrowAttention.apply(packed.contiguous(), None if seen is None else seen.contiguous())  # pyright: ignore[reportReturnType]


def attend_plain(
    packed: Float[Tensor, "sequences tokens 3 heads n"], seen: Bool[Tensor, "sequences tokens"] | None = None
) -> Float[Tensor, "sequences tokens heads n"]:
    """The readable twin: any device, any dtype, all scores written to memory; their digits are at least float32."""
    wide = torch.promote_types(packed.dtype, torch.float32)
    q, k, v = (part.transpose(1, 2) for part in packed.unbind(2))
    r = (q.to(wide) / math.sqrt(packed.shape[-1])) @ k.to(wide).mT
    if seen is not None:
        r = r.masked_fill(~seen[:, None, None, :], -torch.inf)
    return (torch.softmax(r, dim=-1).to(packed.dtype) @ v).transpose(1, 2)
