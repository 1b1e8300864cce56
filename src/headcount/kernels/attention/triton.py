"""Attention with narrow heads on a GPU, in Triton: forward and gradient, in bfloat16 with sums in float32.

Libraries' fused kernels are made for heads of 64 numbers or more: they pad heads of 16 or 32 with zeros and a sequence
of 257 tokens with empty rows, and return the gradient in three pieces that must be copied together. Here

- a tile is as wide as the head, and the tokens after the last full tile get a smaller tile of their own;
- query, key and value are read from the output of the preceding product, packed[sequence, token, 3, head, n], and
  their gradients are written to a tensor of the same layout;
- the gradient recomputes the weights from the saved log-sum-exp, once for the queries and once for keys and values,
  without atomics, so results do not depend on the order of programs.

The exponentials, one per score and pass, dominate the time; scores are in units of log 2, because the hardware computes
powers of 2.
"""

# pyright: basic, reportGeneralTypeIssues=false
from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from headcount.kernels.pool.triton import INTERPRETED, next_power_of_two

_FAR = tl.constexpr(-1e30)  # below every score but finite: −inf − (−inf) would be NaN


@triton.jit
def _dot(a, b):
    """Return the product of two tiles; in Triton's interpreter, computed in float32."""
    if INTERPRETED:
        return tl.sum(a.to(tl.float32)[:, :, None] * b.to(tl.float32)[None, :, :], 1)
    return tl.dot(a, b)


@triton.jit
def _place(blocks, heads):
    """Return sequence, block and head of a program; heads of the same tokens are adjacent in memory."""
    program = tl.program_id(0)
    return (program // heads // blocks).to(tl.int64), program // heads % blocks, program % heads


@triton.jit
def _rows(base, at, stride, length, N: tl.constexpr, WHOLE: tl.constexpr):
    """Load a tile of rows, with 0 beyond the end."""
    where = base + at[:, None] * stride + tl.arange(0, N)[None, :]
    if WHOLE:
        return tl.load(where)
    return tl.load(where, at[:, None] < length, 0.0)


@triton.jit
def _hidden(scores, seen, at, length, MASKED: tl.constexpr, WHOLE: tl.constexpr):
    """Set scores to −inf where a key (a column) is beyond the end or masked."""
    if MASKED:
        allowed = tl.load(seen + at, at < length, 0) != 0
        return tl.where(allowed[None, :], scores, float("-inf"))
    if WHOLE:
        return scores
    return tl.where((at < length)[None, :], scores, float("-inf"))


@triton.jit
def _meet(
    q,
    total,
    largest,
    sums,
    key,
    stride,
    seen,
    start,
    length,
    to_log2,
    V,
    N: tl.constexpr,
    BLOCK: tl.constexpr,
    MASKED: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """Update the running softmax of a tile of queries with a tile of keys."""
    at = start + tl.arange(0, BLOCK)
    k, v = _rows(key, at, stride, length, N, WHOLE), _rows(key + V, at, stride, length, N, WHOLE)
    r = _hidden(_dot(q, tl.trans(k)) * to_log2, seen, at, length, MASKED, WHOLE)
    now = tl.maximum(largest, tl.max(r, 1))
    a, shrink = tl.exp2(r - now[:, None]), tl.exp2(largest - now)
    total = total * shrink[:, None] + _dot(a.to(v.dtype), v)
    return total, now, sums * shrink + tl.sum(a, 1)


@triton.jit
def forward_kernel(
    packed,
    seen,
    out,
    level,
    first,
    blocks,
    length,
    heads,
    to_log2,
    N: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    TILES: tl.constexpr,
    REST: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Compute the outputs of a tile of queries of one head, and log2 of the sum of their exponentials."""
    sequence, block, head = _place(blocks, heads)
    stride = 3 * heads * N
    at = first + block * ROWS + tl.arange(0, ROWS)
    query = packed + sequence * length * stride + head * N
    key = query + heads * N
    if MASKED:
        seen += sequence * length
    q = _rows(query, at, stride, length, N, False)
    total = tl.zeros((ROWS, N), tl.float32)
    largest, sums = tl.full((ROWS,), _FAR, tl.float32), tl.zeros((ROWS,), tl.float32)
    for tile in range(TILES):
        total, largest, sums = _meet(
            q, total, largest, sums, key, stride, seen, tile * BLOCK, length, to_log2, heads * N, N, BLOCK, MASKED, True
        )
    if REST > 0:
        total, largest, sums = _meet(
            q,
            total,
            largest,
            sums,
            key,
            stride,
            seen,
            TILES * BLOCK,
            length,
            to_log2,
            heads * N,
            N,
            REST,
            MASKED,
            False,
        )
    sums = tl.maximum(sums, 1e-30)  # the output of a query whose keys are all masked is 0
    out += sequence * length * heads * N + head * N
    inside = at < length
    o = (total / sums[:, None]).to(out.dtype.element_ty)
    tl.store(out + at[:, None] * (heads * N) + tl.arange(0, N)[None, :], o, inside[:, None])
    tl.store(level + (sequence * heads + head) * length + at, largest + tl.log2(sums), inside)


@triton.jit
def _pull_query(
    dq,
    q,
    do,
    level,
    delta,
    key,
    stride,
    seen,
    start,
    length,
    to_log2,
    V,
    N: tl.constexpr,
    BLOCK: tl.constexpr,
    MASKED: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """Add a tile of keys' contribution to the gradient of a tile of queries."""
    at = start + tl.arange(0, BLOCK)
    k, v = _rows(key, at, stride, length, N, WHOLE), _rows(key + V, at, stride, length, N, WHOLE)
    r = _hidden(_dot(q, tl.trans(k)) * to_log2, seen, at, length, MASKED, WHOLE)
    dr = tl.exp2(r - level[:, None]) * (_dot(do, tl.trans(v)) - delta[:, None])
    return dq + _dot(dr.to(k.dtype), k)


@triton.jit
def query_kernel(
    packed,
    seen,
    out,
    pull,
    level,
    delta,
    gradient,
    first,
    blocks,
    length,
    heads,
    to_log2,
    scale,
    N: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    TILES: tl.constexpr,
    REST: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Compute the gradient of a tile of queries, and delta = Σ o·do, which `key_kernel` needs too."""
    sequence, block, head = _place(blocks, heads)
    stride, narrow = 3 * heads * N, heads * N
    at = first + block * ROWS + tl.arange(0, ROWS)
    inside = at < length
    query = packed + sequence * length * stride + head * N
    key = query + narrow
    if MASKED:
        seen += sequence * length
    q = _rows(query, at, stride, length, N, False)
    mine = sequence * length * narrow + head * N
    o, do = _rows(out + mine, at, narrow, length, N, False), _rows(pull + mine, at, narrow, length, N, False)
    each = (sequence * heads + head) * length
    known = tl.load(level + each + at, inside, float("inf"))
    product = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1)
    tl.store(delta + each + at, product, inside)
    dq = tl.zeros((ROWS, N), tl.float32)
    for tile in range(TILES):
        dq = _pull_query(
            dq, q, do, known, product, key, stride, seen, tile * BLOCK, length, to_log2, narrow, N, BLOCK, MASKED, True
        )
    if REST > 0:
        dq = _pull_query(
            dq, q, do, known, product, key, stride, seen, TILES * BLOCK, length, to_log2, narrow, N, REST, MASKED, False
        )
    gradient += sequence * length * stride + head * N
    dq = (dq * scale).to(gradient.dtype.element_ty)
    tl.store(gradient + at[:, None] * stride + tl.arange(0, N)[None, :], dq, inside[:, None])


@triton.jit
def _pull_key(
    dk,
    dv,
    k,
    v,
    allowed,
    query,
    pull,
    stride,
    narrow,
    level,
    delta,
    start,
    length,
    to_log2,
    N: tl.constexpr,
    BLOCK: tl.constexpr,
    MASKED: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """Add a tile of queries' contribution to the gradients of a tile of keys and values; here keys are the rows."""
    at = start + tl.arange(0, BLOCK)
    q, do = _rows(query, at, stride, length, N, WHOLE), _rows(pull, at, narrow, length, N, WHOLE)
    if WHOLE:
        known, product = tl.load(level + at), tl.load(delta + at)
    else:  # a query beyond the end has weights 0
        known, product = tl.load(level + at, at < length, float("inf")), tl.load(delta + at, at < length, 0.0)
    a = tl.exp2(_dot(k, tl.trans(q)) * to_log2 - known[None, :])
    if MASKED:
        a = tl.where(allowed[:, None], a, 0.0)
    dv += _dot(a.to(do.dtype), do)
    dr = a * (_dot(v, tl.trans(do)) - product[None, :])
    return dk + _dot(dr.to(q.dtype), q), dv


@triton.jit
def key_kernel(
    packed,
    seen,
    pull,
    level,
    delta,
    gradient,
    first,
    blocks,
    length,
    heads,
    to_log2,
    scale,
    N: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    TILES: tl.constexpr,
    REST: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Compute the gradients of a tile of keys and values."""
    sequence, block, head = _place(blocks, heads)
    stride, narrow = 3 * heads * N, heads * N
    at = first + block * ROWS + tl.arange(0, ROWS)
    inside = at < length
    query = packed + sequence * length * stride + head * N
    k, v = _rows(query + narrow, at, stride, length, N, False), _rows(query + 2 * narrow, at, stride, length, N, False)
    allowed = inside
    if MASKED:
        allowed = tl.load(seen + sequence * length + at, inside, 0) != 0
    pull += sequence * length * narrow + head * N
    each = (sequence * heads + head) * length
    level += each
    delta += each
    dk, dv = tl.zeros((ROWS, N), tl.float32), tl.zeros((ROWS, N), tl.float32)
    for tile in range(TILES):
        dk, dv = _pull_key(
            dk,
            dv,
            k,
            v,
            allowed,
            query,
            pull,
            stride,
            narrow,
            level,
            delta,
            tile * BLOCK,
            length,
            to_log2,
            N,
            BLOCK,
            MASKED,
            True,
        )
    if REST > 0:
        dk, dv = _pull_key(
            dk,
            dv,
            k,
            v,
            allowed,
            query,
            pull,
            stride,
            narrow,
            level,
            delta,
            TILES * BLOCK,
            length,
            to_log2,
            N,
            REST,
            MASKED,
            False,
        )
    gradient += sequence * length * stride + head * N + narrow
    where = gradient + at[:, None] * stride + tl.arange(0, N)[None, :]
    tl.store(where, (dk * scale).to(gradient.dtype.element_ty), inside[:, None])
    tl.store(where + narrow, dv.to(gradient.dtype.element_ty), inside[:, None])


def _launch(
    kernel: Any,
    tensors: tuple[Tensor | None, ...],
    packed: Tensor,
    numbers: tuple[float, ...],
    settings: dict[str, int],
) -> None:
    """Run a kernel over all full tiles of rows, and once more over a smaller tile for the remaining rows."""
    sequences, length, _, heads, n = packed.shape
    tile, block, warps = settings["rows"], settings["block"], settings["warps"]
    whole, rest = divmod(length, tile)
    stages = settings["stages"]
    for rows, first, blocks in ((tile, 0, whole), (next_power_of_two(rest), whole * tile, 1 if rest else 0)):
        if blocks:
            kernel[(sequences * blocks * heads,)](
                *tensors,
                first,
                blocks,
                length,
                heads,
                *numbers,
                N=n,
                ROWS=rows,
                BLOCK=block,
                TILES=length // block,
                REST=next_power_of_two(length % block) if length % block else 0,
                MASKED=tensors[1] is not None,
                num_warps=min(warps, max(1, rows // 32)),
                num_stages=stages,
            )


LAUNCH_SETTINGS: dict[str, dict[str, int]] = {
    "forward": {"rows": 64, "block": 64, "warps": 2, "stages": 3},
    "query": {"rows": 64, "block": 64, "warps": 2, "stages": 3},
    "key": {"rows": 64, "block": 64, "warps": 2, "stages": 3},
}
"""Launch settings of each kernel. rows: of the tile that a program keeps; block: of the tiles that it loops over.

The best of 14 settings, measured on an H200 at 257 and 1025 tokens. Never four warps: see `pool_triton.choose_tiling`.
"""


class NarrowAttention(torch.autograd.Function):
    """packed[s, t, 3, h, n] → o[s, t, h, n]; keys where seen[s, t] is False are ignored."""

    @staticmethod
    def forward(ctx: Any, packed: Tensor, seen: Tensor | None) -> Tensor:
        """Compute the outputs; save the inputs, the outputs and one number per query."""
        sequences, length, _, heads, n = packed.shape
        out = packed.new_empty(sequences, length, heads, n)
        level = packed.new_empty(sequences, heads, length, dtype=torch.float32)
        numbers = (math.log2(math.e) / math.sqrt(n),)
        _launch(forward_kernel, (packed, seen, out, level), packed, numbers, LAUNCH_SETTINGS["forward"])
        ctx.save_for_backward(packed, seen, out, level)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Compute the gradient of the queries first: their kernel writes delta for the keys."""
        packed, seen, out, level = ctx.saved_tensors
        pull, n = gradients[0].contiguous(), packed.shape[-1]
        gradient, delta = torch.empty_like(packed), torch.empty_like(level)
        numbers = (math.log2(math.e) / math.sqrt(n), 1.0 / math.sqrt(n))
        _launch(
            query_kernel, (packed, seen, out, pull, level, delta, gradient), packed, numbers, LAUNCH_SETTINGS["query"]
        )
        _launch(key_kernel, (packed, seen, pull, level, delta, gradient), packed, numbers, LAUNCH_SETTINGS["key"])
        return gradient, None


def attend_narrow(packed: Tensor, seen: Tensor | None = None) -> Tensor:
    """`attend_plain` by the kernels above, for heads of 16, 32 or 64 numbers."""
    return NarrowAttention.apply(packed.contiguous(), None if seen is None else seen.contiguous())  # pyright: ignore[reportReturnType]
