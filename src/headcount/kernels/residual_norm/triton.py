"""The operation of `plain.py` in Triton: each row is read and written once, forward and back.

The gradient of the norm needs its result and one number per row, 1/deviation:

    ds = ds' + (du − mean du − u · mean(u·du)) / deviation          d_added = ds · keep / (1 − dropout)
"""

# pyright: basic, reportGeneralTypeIssues=false
from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from headcount.kernels.pool.triton import next_power_of_two
from headcount.kernels.residual_norm.plain import EPSILON

_TILE = 2048  # numbers per program


@triton.jit
def _at(rows, E, ROWS: tl.constexpr, WIDE: tl.constexpr):
    """Return the rows of a program, the offsets of their numbers, and a mask of those that exist."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, WIDE)
    inside = (row < rows)[:, None] & (column < E)[None, :]
    return row, row.to(tl.int64)[:, None] * E + column[None, :], inside


@triton.jit
def forward_kernel(s, added, keep, out, u, slope, rows, E, factor, epsilon, ROWS: tl.constexpr, WIDE: tl.constexpr):
    """Compute the sum and its norm; the sum is rounded first, as if it had been written to memory."""
    row, at, inside = _at(rows, E, ROWS, WIDE)
    x = tl.load(s + at, inside, 0.0).to(tl.float32)
    if added is not None:
        more = tl.load(added + at, inside, 0.0).to(tl.float32)
        if keep is not None:
            more = more * tl.load(keep + at, inside, 0.0).to(tl.float32) * factor
        rounded = (x + more).to(out.dtype.element_ty)
        tl.store(out + at, rounded, inside)
        x = rounded.to(tl.float32)
    centred = tl.where(inside, x - (tl.sum(x, 1) / E)[:, None], 0.0)
    steep = 1.0 / tl.sqrt(tl.sum(centred * centred, 1) / E + epsilon)
    tl.store(u + at, (centred * steep[:, None]).to(u.dtype.element_ty), inside)
    tl.store(slope + row, steep, row < rows)


@triton.jit
def backward_kernel(
    pull_s, pull_u, u, slope, keep, ds, dadded, rows, E, factor, ROWS: tl.constexpr, WIDE: tl.constexpr
):
    """Combine both gradients; without dropout the gradient of `added` is that of the stream."""
    row, at, inside = _at(rows, E, ROWS, WIDE)
    du, v = tl.load(pull_u + at, inside, 0.0).to(tl.float32), tl.load(u + at, inside, 0.0).to(tl.float32)
    steep = tl.load(slope + row, row < rows, 0.0)
    x = (du - (tl.sum(du, 1) / E)[:, None] - v * (tl.sum(du * v, 1) / E)[:, None]) * steep[:, None]
    if pull_s is not None:
        x += tl.load(pull_s + at, inside, 0.0).to(tl.float32)
    tl.store(ds + at, x.to(ds.dtype.element_ty), inside)
    if keep is not None:
        dropped = x * tl.load(keep + at, inside, 0.0).to(tl.float32) * factor
        tl.store(dadded + at, dropped.to(dadded.dtype.element_ty), inside)


def _settings(E: int) -> dict[str, Any]:
    """Return the number of rows per program, their padded width, and the number of warps."""
    wide = next_power_of_two(E)
    return {"ROWS": max(1, _TILE // wide), "WIDE": wide, "num_warps": 4}


class AddNorm(torch.autograd.Function):
    """(s, added, keep) → (s', u); without `added`, s → u."""

    @staticmethod
    def forward(
        ctx: Any, s: Tensor, added: Tensor | None, keep: Tensor | None, dropout: float
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Compute the sum and its norm; save the norm and one number per row."""
        E, settings = s.shape[-1], _settings(s.shape[-1])
        s, added = s.contiguous(), None if added is None else added.contiguous()
        rows = s.numel() // E
        out, u = None if added is None else torch.empty_like(s), torch.empty_like(s)
        slope = torch.empty(rows, dtype=torch.float32, device=s.device)
        grid = (triton.cdiv(rows, settings["ROWS"]),)
        ctx.factor = 1.0 / (1.0 - dropout)
        forward_kernel[grid](s, added, keep, out, u, slope, rows, E, ctx.factor, EPSILON, **settings)
        ctx.save_for_backward(u, slope, keep)
        return u if out is None else (out, u)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Compute both gradients in one pass."""
        u, slope, keep = ctx.saved_tensors
        pull_s = gradients[0].contiguous() if len(gradients) == 2 else None
        pull_u, E, settings = gradients[-1].contiguous(), u.shape[-1], _settings(u.shape[-1])
        ds = torch.empty_like(u)
        dadded = ds if keep is None else torch.empty_like(u)
        grid = (triton.cdiv(len(slope), settings["ROWS"]),)
        backward_kernel[grid](pull_s, pull_u, u, slope, keep, ds, dadded, len(slope), E, ctx.factor, **settings)
        return ds, None if pull_s is None else dadded, None, None


def add_norm_triton(
    s: Tensor, added: Tensor | None = None, keep: Tensor | None = None, dropout: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Compute `add_norm_plain` by the kernels above."""
    result = AddNorm.apply(s, added, keep, dropout)
    return (s, result) if added is None else result  # pyright: ignore[reportReturnType]
