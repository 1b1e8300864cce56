"""The hot operation on a GPU, in Triton: forward and backward on tensor cores in three-way TF32, which is float32.

A program takes some sequences of one model, a tile of tokens at a time: several short sequences, or a piece of a long
one. Row k of the tile is one token; column c = (sequence, head) one softmax. A token meets the columns of all sequences
of its tile, and a block mask keeps its own; so scores, pooling and every gradient are small matrix products:

    u  = relu([x 1] [W1; b])         [tokens, hidden]       r  = u scoreᵀ                    [tokens, columns]
    p  = aᵀ u                        [columns, hidden]      da = u dpᵀ                       [tokens, columns]
    dr = a (da − dp·p)               [tokens, columns]      du = a dp + dr score             [tokens, hidden]
    d_score = drᵀ u                  [columns, hidden]      d[W1; b] = [x 1]ᵀ (du where u > 0)

(Σ_t a da = dp·p needs no pass over the tokens.) Nothing as large as tokens × hidden goes to memory: the backward pass
makes the hidden layer again, and the weights a from the saved maximum and sum of each softmax. No atomics: each program
writes its own partial gradient, and a sum in fixed order follows. How the batch is cut depends on the shapes of one
model alone, so the number of models cannot change a result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

MAX_DIM, MAX_HIDDEN, MAX_HEADS = 31, 128, 64


@dataclass(frozen=True)
class Plan:
    """How a batch is cut: sizes that the kernels know at compile time."""

    tokens: int  # rows of a tile
    sequences: int  # sequences of a tile
    columns: int  # (sequence, head) pairs of a tile, padded
    tiles: int  # tiles of a program
    programs: int  # programs of a model
    warps: int


def power(n: int, least: int = 16) -> int:
    """The next power of two, at least `least`: what a matrix unit wants."""
    return max(least, 1 << (n - 1).bit_length())


def plan(batch: int, length: int, heads: int, hidden: int, *, tokens: int = 0, tiles: int = 0, warps: int = 0) -> Plan:
    """Choose tiles for one model's batch; the keywords override, for tuning."""
    tokens = tokens or max(16, min(64, 4096 // power(hidden)))
    sequences = max(1, min(tokens // length, max(32, power(heads)) // heads, batch))
    tokens = min(tokens, power(sequences * length))
    tiles = tiles or max(1, min(8, 1024 // tokens))
    programs = -(-batch // (sequences * tiles))
    return Plan(tokens, sequences, power(sequences * heads), tiles, programs, warps or 4)


@triton.jit
def _split(v):
    """v = high + low: high the nearest number with 11 bits, which TF32 holds exactly, low the rest.

    A NaN or an infinity leaves a NaN in low, so it is seen in the product.
    """
    high = ((v.to(tl.int32, bitcast=True) + 0x1000) & -0x2000).to(tl.float32, bitcast=True)
    return high, v - high


@triton.jit
def _dot(a, b, c):
    """c + a b by three products of TF32, the small ones first; low × low is below float32's rounding."""
    a1, a2 = _split(a)
    b1, b2 = _split(b)
    c = tl.dot(a2, b1, c, input_precision="tf32")
    c = tl.dot(a1, b2, c, input_precision="tf32")
    return tl.dot(a1, b1, c, input_precision="tf32")


@triton.jit
def _weights(W1, hidden_bias, model, dim, hidden, POSITIONS: tl.constexpr, NP: tl.constexpr, DP: tl.constexpr):
    """[W1; b], padded: row `dim` is the bias, which meets the 1 at the end of every token."""
    k, n = tl.arange(0, DP), tl.arange(0, NP)
    w = tl.load(W1 + (model * dim + k[:, None]) * hidden + n[None, :], (k[:, None] < dim) & (n[None, :] < hidden), 0.0)
    if not POSITIONS:
        b = tl.load(hidden_bias + model * hidden + n, n < hidden, 0.0)
        w = tl.where(k[:, None] == dim, b[None, :], w)
    return w


@triton.jit
def _hidden(x, w, hidden_bias, model, at, length, hidden, POSITIONS: tl.constexpr, NP: tl.constexpr):
    """U of a tile; a table of positions has a row of bias for every token."""
    z = _dot(x, w, tl.zeros((x.shape[0], NP), tl.float32))
    if POSITIONS:
        n = tl.arange(0, NP)
        table = hidden_bias + (model * length + at[:, None]) * hidden + n[None, :]
        z += tl.load(table, (at[:, None] < length) & (n[None, :] < hidden), 0.0)
    return tl.maximum(z, 0.0, propagate_nan=tl.PropagateNan.ALL)  # divergence must be seen


@triton.jit
def _forward(
    X, index, W1, hidden_bias, score, score_bias, mask, pooled, top, total,
    batch, length, dim, hidden, heads,
    SEQUENCES: tl.constexpr, TILES: tl.constexpr, CHUNKS: tl.constexpr, TP: tl.constexpr, CP: tl.constexpr,
    NP: tl.constexpr, DP: tl.constexpr, POSITIONS: tl.constexpr, GATES: tl.constexpr, MASK: tl.constexpr,
):  # fmt: skip
    """Pool the sequences of one program; softmax streamed over the chunks of a long sequence."""
    program, model = tl.program_id(0), tl.program_id(1).to(tl.int64)
    k, c, n, j = tl.arange(0, TP), tl.arange(0, CP), tl.arange(0, NP), tl.arange(0, DP)
    w = _weights(W1, hidden_bias, model, dim, hidden, POSITIONS, NP, DP)
    head, pair = c % heads, c // heads
    kept = (pair < SEQUENCES)[:, None] & (n < hidden)[None, :]
    s = tl.load(score + (model * heads + head[:, None]) * hidden + n[None, :], kept, 0.0)
    for tile in range(TILES):
        first = (program * TILES + tile) * SEQUENCES
        own, t = k // length if CHUNKS == 1 else k * 0, k % length if CHUNKS == 1 else k
        real = (own < SEQUENCES) & (first + own < batch)
        row = tl.load(index + model * batch + first + own, real, 0)
        peak = tl.full((CP,), float("-inf"), tl.float32)
        weight = tl.zeros((CP,), tl.float32)
        p = tl.zeros((CP, NP), tl.float32)
        for chunk in range(CHUNKS):
            at = t + chunk * TP
            live = real & (at < length)
            token = row * length + at
            x = tl.load(X + token[:, None] * dim + j[None, :], live[:, None] & (j < dim)[None, :], 0.0)
            x = tl.where((j == dim)[None, :], 1.0, x)
            u = _hidden(x, w, hidden_bias, model, at, length, hidden, POSITIONS, NP)
            if MASK:
                live &= tl.load(mask + token, live, 0) != 0
            r = _dot(u, tl.trans(s), tl.zeros((TP, CP), tl.float32))
            block = live[:, None] & (own[:, None] == pair[None, :])
            if GATES:
                gate = score_bias + (model * heads + head[None, :]) * length + at[:, None]
                r += tl.load(gate, block, 0.0)
            r = tl.where(block, r, float("-inf"))
            high = tl.maximum(peak, tl.max(r, 0))
            high = tl.where(high == float("-inf"), 0.0, high)  # a column without tokens so far
            e = tl.exp(r - high[None, :])
            old = tl.exp(peak - high)
            weight = weight * old + tl.sum(e, 0)
            p = p * old[:, None] + _dot(tl.trans(e), u, tl.zeros((CP, NP), tl.float32))
            peak = high
        use = (pair < SEQUENCES) & (first + pair < batch)
        out = (model * batch + first + pair) * heads + head
        inverse = 1.0 / tl.where(weight == 0.0, 1.0, weight)  # 0 in padded columns alone
        tl.store(pooled + out[:, None] * hidden + n[None, :], p * inverse[:, None], use[:, None] & (n < hidden)[None, :])
        tl.store(top + out, peak, use)
        tl.store(total + out, inverse, use)


@triton.jit
def _backward(
    X, index, W1, hidden_bias, score, score_bias, mask, d_pooled, pooled, top, total, d_W, d_score, d_table, d_gate,
    batch, length, dim, hidden, heads, programs,
    SEQUENCES: tl.constexpr, TILES: tl.constexpr, CHUNKS: tl.constexpr, TP: tl.constexpr, CP: tl.constexpr,
    NP: tl.constexpr, DP: tl.constexpr, POSITIONS: tl.constexpr, GATES: tl.constexpr, MASK: tl.constexpr,
):  # fmt: skip
    """Write one program's part of every gradient; the chunk is the outer loop, so that tables are summed over tiles."""
    program, model = tl.program_id(0), tl.program_id(1).to(tl.int64)
    k, c, n, j = tl.arange(0, TP), tl.arange(0, CP), tl.arange(0, NP), tl.arange(0, DP)
    w = _weights(W1, hidden_bias, model, dim, hidden, POSITIONS, NP, DP)
    head, pair = c % heads, c // heads
    kept = (pair < SEQUENCES)[:, None] & (n < hidden)[None, :]
    s = tl.load(score + (model * heads + head[:, None]) * hidden + n[None, :], kept, 0.0)
    sum_w, sum_s = tl.zeros((DP, NP), tl.float32), tl.zeros((CP, NP), tl.float32)
    part = model * programs + program
    for chunk in range(CHUNKS):
        sum_table = tl.zeros((TP, NP), tl.float32)
        sum_gate = tl.zeros((TP, CP), tl.float32)
        for tile in range(TILES):
            first = (program * TILES + tile) * SEQUENCES
            own, at = k // length if CHUNKS == 1 else k * 0, k % length if CHUNKS == 1 else k + chunk * TP
            live = (own < SEQUENCES) & (first + own < batch) & (at < length)
            token = tl.load(index + model * batch + first + own, live, 0) * length + at
            x = tl.load(X + token[:, None] * dim + j[None, :], live[:, None] & (j < dim)[None, :], 0.0)
            x = tl.where((j == dim)[None, :], 1.0, x)
            u = _hidden(x, w, hidden_bias, model, at, length, hidden, POSITIONS, NP)
            if MASK:
                live &= tl.load(mask + token, live, 0) != 0
            use = (pair < SEQUENCES) & (first + pair < batch)
            out = (model * batch + first + pair) * heads + head
            spread = out[:, None] * hidden + n[None, :]
            inside = use[:, None] & (n < hidden)[None, :]
            dp = tl.load(d_pooled + spread, inside, 0.0)
            delta = tl.sum(dp * tl.load(pooled + spread, inside, 0.0), 1)
            r = _dot(u, tl.trans(s), tl.zeros((TP, CP), tl.float32))
            block = live[:, None] & (own[:, None] == pair[None, :])
            if GATES:
                gate = score_bias + (model * heads + head[None, :]) * length + at[:, None]
                r += tl.load(gate, block, 0.0)
            e = tl.exp(tl.where(block, r - tl.load(top + out, use, 0.0)[None, :], float("-inf")))
            a = e * tl.load(total + out, use, 0.0)[None, :]
            dr = a * (_dot(u, tl.trans(dp), tl.zeros((TP, CP), tl.float32)) - delta[None, :])
            du = _dot(dr, s, _dot(a, dp, tl.zeros((TP, NP), tl.float32)))
            du = tl.where(u > 0.0, du, 0.0)
            sum_w += _dot(tl.trans(x), du, tl.zeros((DP, NP), tl.float32))
            sum_s += _dot(tl.trans(dr), u, tl.zeros((CP, NP), tl.float32))
            if POSITIONS:
                sum_table += du
            if GATES:
                sum_gate += dr
        rows = (part * CHUNKS + chunk) * TP + k[:, None]
        if POSITIONS:
            tl.store(d_table + rows * NP + n[None, :], sum_table)
        if GATES:
            tl.store(d_gate + rows * CP + c[None, :], sum_gate)
    tl.store(d_W + (part * DP + j[:, None]) * NP + n[None, :], sum_w)
    tl.store(d_score + (part * CP + c[:, None]) * NP + n[None, :], sum_s)


class _Pool(torch.autograd.Function):
    """Forward and backward of `pool` with one launch each, and the sums of the partial gradients."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, index: Tensor, W1: Tensor, hidden_bias: Tensor, score: Tensor,
        score_bias: Tensor | None, mask: Tensor | None, tuning: dict[str, int],
    ) -> Tensor:  # fmt: skip
        models, batch = index.shape
        (_, length, dim), (heads, hidden) = x.shape, score.shape[1:]
        p = plan(batch, length, heads, hidden, **tuning)
        x, index, W1, hidden_bias, score = (t.contiguous() for t in (x, index, W1, hidden_bias, score))
        score_bias = None if score_bias is None else score_bias.contiguous()
        mask = None if mask is None else mask.contiguous().view(torch.uint8)
        pooled = torch.empty(models, batch, heads, hidden, device=x.device, dtype=x.dtype)
        top, total = pooled.new_empty(2, models, batch, heads)
        settings = {
            "SEQUENCES": p.sequences, "TILES": p.tiles, "CHUNKS": 1 if p.sequences * length <= p.tokens else -(-length // p.tokens),
            "TP": p.tokens, "CP": p.columns, "NP": power(hidden), "DP": power(dim + 1), "POSITIONS": hidden_bias.shape[1] > 1,
            "GATES": score_bias is not None, "MASK": mask is not None, "num_warps": p.warps,
        }  # fmt: skip
        sizes = (batch, length, dim, hidden, heads)
        inputs = (x, index, W1, hidden_bias, score, score_bias, mask)
        _forward[(p.programs, models)](*inputs, pooled, top, total, *sizes, **settings)
        ctx.save_for_backward(*inputs, pooled, top, total)
        ctx.plan, ctx.settings, ctx.sizes = p, settings, sizes
        return pooled

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        *inputs, pooled, top, total = ctx.saved_tensors
        p, settings = ctx.plan, ctx.settings
        _, length, dim, hidden, heads = ctx.sizes
        models, chunks, sequences = len(inputs[1]), settings["CHUNKS"], p.sequences
        d_W = pooled.new_empty(models, p.programs, settings["DP"], settings["NP"])
        d_score = pooled.new_empty(models, p.programs, p.columns, settings["NP"])
        rows = (models, p.programs, chunks * p.tokens)
        d_table = pooled.new_empty(*rows, settings["NP"]) if settings["POSITIONS"] else None
        d_gate = pooled.new_empty(*rows, p.columns) if settings["GATES"] else None
        _backward[(p.programs, models)](
            *inputs, gradients[0].contiguous(), pooled, top, total, d_W, d_score, d_table, d_gate, *ctx.sizes, p.programs,
            **settings,
        )  # fmt: skip
        sums = d_W.sum(1)
        by_head = d_score[:, :, : sequences * heads].unflatten(2, (sequences, heads)).sum((1, 2))
        bias, gates = sums[:, dim : dim + 1, :hidden], None
        if d_table is not None:  # rows (sequence, position) of a tile, or positions of all chunks
            used = sequences * length
            bias = d_table.sum(1)[:, :used, :hidden].unflatten(1, (sequences, length)).sum(1)
        if d_gate is not None:
            used = d_gate.sum(1)[:, : sequences * length, : sequences * heads]
            gates = used.unflatten(2, (sequences, heads)).unflatten(1, (sequences, length)).sum((1, 3)).mT
        return None, None, sums[:, :dim, :hidden], bias, by_head[..., :hidden], gates, None, None


def why_not(dim: int, hidden: int, heads: int) -> str | None:
    """Say why a shape is beyond the kernel; None where it fits."""
    for name, size, most in (("dim", dim, MAX_DIM), ("hidden", hidden, MAX_HIDDEN), ("heads", heads, MAX_HEADS)):
        if size > most:
            return f"{name} = {size} is above the kernel's {most}"
    return None


def pool_triton(
    x: Tensor, index: Tensor, W1: Tensor, hidden_bias: Tensor, score: Tensor, score_bias: Tensor | None = None,
    mask: Tensor | None = None, **tuning: int,
) -> Tensor:  # fmt: skip
    """`pool` by the kernels above; tuning: tokens, tiles, warps of `plan`."""
    return _Pool.apply(x, index, W1, hidden_bias, score, score_bias, mask, tuning)  # type: ignore[return-value]
