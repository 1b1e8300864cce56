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

import os
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

# Triton's interpreter multiplies bfloat16 wrongly: there the parts stay float32 with the same values.
INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")
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
    registers: int | None  # most registers a thread, None for no limit


def power(n: int, least: int = 16) -> int:
    """The next power of two, at least `least`: what a matrix unit wants."""
    return max(least, 1 << (n - 1).bit_length())


def plan(
    batch: int, length: int, heads: int, hidden: int, *, tokens: int = 0, tiles: int = 0, warps: int = 0,
    registers: int = 0,
) -> Plan:  # fmt: skip
    """Choose tiles for one model's batch; the keywords override, for tuning.

    One warp a program needs no barriers, and all it holds of a tile of 32 tokens × 32 hidden units fits its registers.
    """
    small = hidden <= 32
    tokens = tokens or 32
    sequences = max(1, min(tokens // length, max(32, power(heads)) // heads, batch))
    tokens = min(tokens, power(sequences * length))
    tiles = tiles or 8
    programs = -(-batch // (sequences * tiles))
    columns = power(sequences * heads)
    return Plan(tokens, sequences, columns, tiles, programs, warps or (1 if small else 2), registers or None)


@triton.jit
def _upper(bits):
    """The upper half of a float32 is a bfloat16: cut, not rounded, which costs no conversion."""
    if INTERPRETED:
        return (bits & -0x10000).to(tl.float32, bitcast=True)
    return (bits >> 16).to(tl.int16).to(tl.bfloat16, bitcast=True)


@triton.jit
def _thirds(v):
    """v = first + second + third, eight bits each: together the 24 bits of a float32.

    A NaN or an infinity leaves a NaN in the second part, so it is seen in the product.
    """
    bits = v.to(tl.int32, bitcast=True)
    rest = v - (bits & -0x10000).to(tl.float32, bitcast=True)
    more = rest.to(tl.int32, bitcast=True)
    last = (rest - (more & -0x10000).to(tl.float32, bitcast=True)).to(tl.int32, bitcast=True)
    return _upper(bits), _upper(more), _upper(last)


@triton.jit
def _product(a1, a2, a3, b1, b2, b3, c):
    """c + a b from the parts, the small products first; what is left out lies below float32's rounding.

    Matrix units cut their sums where an adder rounds, so long sums are not kept in c: each product starts at 0.
    """
    c = tl.dot(a3, b1, c)
    c = tl.dot(a1, b3, c)
    c = tl.dot(a2, b2, c)
    c = tl.dot(a2, b1, c)
    c = tl.dot(a1, b2, c)
    return tl.dot(a1, b1, c)


@triton.jit
def _hidden(
    X, token, live, W1, hidden_bias, at, n, hidden, DIM: tl.constexpr, POSITIONS: tl.constexpr
):  # fmt: skip
    """u = relu(x W1 + b), one column of x after the other, in the shape that token (and at) and n span.

    Called once with tokens down and once with tokens across: a matrix unit holds its results as the next product wants
    its left factor, or transposed its right one, and computing u anew in the other order costs less than turning it.
    """
    if POSITIONS:
        z = tl.load(hidden_bias + at * hidden + n, live & (n < hidden), 0.0)
    else:
        z = tl.load(hidden_bias + n, n < hidden, 0.0) + tl.zeros(token.shape, tl.float32)
    for j in tl.static_range(DIM):
        z += tl.load(X + token * DIM + j, live, 0.0) * tl.load(W1 + j * hidden + n, n < hidden, 0.0)
    return tl.maximum(z, 0.0, propagate_nan=tl.PropagateNan.ALL)  # divergence must be seen


@triton.jit
def _forward(
    X, index, W1, hidden_bias, score, score_bias, mask, pooled, top, total,
    batch, length, hidden, heads,
    SEQUENCES: tl.constexpr, TILES: tl.constexpr, CHUNKS: tl.constexpr, TP: tl.constexpr, CP: tl.constexpr,
    NP: tl.constexpr, DIM: tl.constexpr, DP: tl.constexpr, POSITIONS: tl.constexpr, GATES: tl.constexpr, MASK: tl.constexpr,
):  # fmt: skip
    """Pool the sequences of one program; softmax streamed over the chunks of a long sequence."""
    program, model = tl.program_id(0), tl.program_id(1).to(tl.int64)
    k, c, n = tl.arange(0, TP), tl.arange(0, CP), tl.arange(0, NP)
    W1 += model * DIM * hidden
    hidden_bias += model * hidden * (length if POSITIONS else 1)
    head, pair = c % heads, c // heads
    kept = (pair < SEQUENCES)[:, None] & (n < hidden)[None, :]
    s1, s2, s3 = _thirds(tl.load(score + (model * heads + head[:, None]) * hidden + n[None, :], kept, 0.0))
    own, t = k // length if CHUNKS == 1 else k * 0, k % length if CHUNKS == 1 else k
    for tile in range(TILES):
        first = (program * TILES + tile) * SEQUENCES
        real = (own < SEQUENCES) & (first + own < batch)
        row = tl.load(index + model * batch + first + own, real, 0)
        peak = tl.full((CP,), float("-inf"), tl.float32)
        weight = tl.zeros((CP,), tl.float32)
        p = tl.zeros((CP, NP), tl.float32)
        for chunk in range(CHUNKS):
            at = t + chunk * TP
            live = real & (at < length)
            token = row * length + at
            u = _hidden(X, token[:, None], live[:, None], W1, hidden_bias, at[:, None], n[None, :], hidden, DIM, POSITIONS)
            v = _hidden(X, token[None, :], live[None, :], W1, hidden_bias, at[None, :], n[:, None], hidden, DIM, POSITIONS)
            u1, u2, u3 = _thirds(u)
            v1, v2, v3 = _thirds(v)
            if MASK:
                live &= tl.load(mask + token, live, 0) != 0
            r = _product(s1, s2, s3, u1.T, u2.T, u3.T, tl.zeros((CP, TP), tl.float32))
            block = live[None, :] & (own[None, :] == pair[:, None])
            if GATES:
                r += tl.load(score_bias + (model * heads + head[:, None]) * length + at[None, :], block, 0.0)
            r = tl.where(block, r, float("-inf"))
            high = tl.maximum(peak, tl.max(r, 1))
            high = tl.where(high == float("-inf"), 0.0, high)  # a column without tokens so far
            e = tl.exp(r - high[:, None])
            old = tl.exp(peak - high)
            weight = weight * old + tl.sum(e, 1)
            e1, e2, e3 = _thirds(e)
            p = p * old[:, None] + _product(e1, e2, e3, v1.T, v2.T, v3.T, tl.zeros((CP, NP), tl.float32))
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
    batch, length, hidden, heads, programs,
    SEQUENCES: tl.constexpr, TILES: tl.constexpr, CHUNKS: tl.constexpr, TP: tl.constexpr, CP: tl.constexpr,
    NP: tl.constexpr, DIM: tl.constexpr, DP: tl.constexpr, POSITIONS: tl.constexpr, GATES: tl.constexpr,
    MASK: tl.constexpr,
):  # fmt: skip
    """Write one program's part of every gradient; the chunk is the outer loop, so that tables are summed over tiles.

    The columns come twice: [a, dr] [dp; score] is then one product, and its left half costs nothing that padding to 16
    columns did not cost before.
    """
    program, model = tl.program_id(0), tl.program_id(1).to(tl.int64)
    k, c, n, j = tl.arange(0, TP), tl.arange(0, CP), tl.arange(0, NP), tl.arange(0, DP)
    W1 += model * DIM * hidden
    hidden_bias += model * hidden * (length if POSITIONS else 1)
    head, pair, left = (c % (CP // 2)) % heads, (c % (CP // 2)) // heads, c < CP // 2
    kept = (pair < SEQUENCES)[:, None] & (n < hidden)[None, :]
    s = tl.load(score + (model * heads + head[:, None]) * hidden + n[None, :], kept, 0.0)
    s1, s2, s3 = _thirds(s)
    sum_w, sum_s = tl.zeros((NP, DP), tl.float32), tl.zeros((CP, NP), tl.float32)
    part = model * programs + program
    for chunk in range(CHUNKS):
        sum_table = tl.zeros((NP, TP), tl.float32)
        sum_gate = tl.zeros((TP, CP), tl.float32)
        own, at = k // length if CHUNKS == 1 else k * 0, k % length if CHUNKS == 1 else k + chunk * TP
        for tile in range(TILES):
            first = (program * TILES + tile) * SEQUENCES
            live = (own < SEQUENCES) & (first + own < batch) & (at < length)
            token = tl.load(index + model * batch + first + own, live, 0) * length + at
            u = _hidden(X, token[:, None], live[:, None], W1, hidden_bias, at[:, None], n[None, :], hidden, DIM, POSITIONS)
            u1, u2, u3 = _thirds(u)
            use = (pair < SEQUENCES) & (first + pair < batch)
            out = (model * batch + first + pair) * heads + head
            spread = out[:, None] * hidden + n[None, :]
            inside = use[:, None] & (n < hidden)[None, :]
            dp = tl.load(d_pooled + spread, inside, 0.0)
            delta = tl.sum(dp * tl.load(pooled + spread, inside, 0.0), 1)
            p1, p2, p3 = _thirds(dp)
            r = _product(u1, u2, u3, s1.T, s2.T, s3.T, tl.zeros((TP, CP), tl.float32))
            da = _product(u1, u2, u3, p1.T, p2.T, p3.T, tl.zeros((TP, CP), tl.float32))
            known = live
            if MASK:
                known = live & (tl.load(mask + token, live, 0) != 0)
            block = known[:, None] & (own[:, None] == pair[None, :])
            if GATES:
                r += tl.load(score_bias + (model * heads + head[None, :]) * length + at[:, None], block, 0.0)
            e = tl.exp(tl.where(block, r - tl.load(top + out, use, 0.0)[None, :], float("-inf")))
            both = e * tl.load(total + out, use, 0.0)[None, :] * tl.where(left[None, :], 1.0, da - delta[None, :])
            b1, b2, b3 = _thirds(both)
            q1, q2, q3 = _thirds(tl.where(left[:, None], dp, s))
            dv = _product(q1.T, q2.T, q3.T, b1.T, b2.T, b3.T, tl.zeros((NP, TP), tl.float32))
            v = _hidden(X, token[None, :], live[None, :], W1, hidden_bias, at[None, :], n[:, None], hidden, DIM, POSITIONS)
            dv = tl.where(v > 0.0, dv, 0.0)
            v1, v2, v3 = _thirds(v)
            sum_s += _product(b1.T, b2.T, b3.T, v1.T, v2.T, v3.T, tl.zeros((CP, NP), tl.float32))
            x = tl.load(X + token[:, None] * DIM + j[None, :], live[:, None] & (j < DIM)[None, :], 0.0)
            x1, x2, x3 = _thirds(tl.where((j == DIM)[None, :], 1.0, x))
            d1, d2, d3 = _thirds(dv)
            sum_w += _product(d1, d2, d3, x1, x2, x3, tl.zeros((NP, DP), tl.float32))
            if POSITIONS:
                sum_table += dv
            if GATES:
                sum_gate += both
        rows = (part * CHUNKS + chunk) * TP + k
        if POSITIONS:
            tl.store(d_table + rows[None, :] * NP + n[:, None], sum_table)
        if GATES:
            tl.store(d_gate + rows[:, None] * CP + c[None, :], sum_gate)
    tl.store(d_W + (part * DP + j[None, :]) * NP + n[:, None], sum_w)
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
            "TP": p.tokens, "CP": p.columns, "NP": power(hidden), "DIM": dim, "DP": power(dim + 1, 8), "POSITIONS": hidden_bias.shape[1] > 1,
            "GATES": score_bias is not None, "MASK": mask is not None, "num_warps": p.warps, "num_stages": 1, "maxnreg": p.registers,
        }  # fmt: skip
        sizes = (batch, length, hidden, heads)
        inputs = (x, index, W1, hidden_bias, score, score_bias, mask)
        _forward[(p.programs, models)](*inputs, pooled, top, total, *sizes, **settings)
        ctx.save_for_backward(*inputs, pooled, top, total)
        ctx.plan, ctx.settings, ctx.sizes = p, settings, sizes
        return pooled

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        *inputs, pooled, top, total = ctx.saved_tensors
        p, settings = ctx.plan, ctx.settings
        _, length, hidden, heads = ctx.sizes
        dim = settings["DIM"]
        models, chunks, sequences = len(inputs[1]), settings["CHUNKS"], p.sequences
        d_W = pooled.new_empty(models, p.programs, settings["DP"], settings["NP"])
        half = power(sequences * heads, 8)
        d_score = pooled.new_empty(models, p.programs, 2 * half, settings["NP"])
        rows = (models, p.programs, chunks * p.tokens)
        d_table = pooled.new_empty(*rows, settings["NP"]) if settings["POSITIONS"] else None
        d_gate = pooled.new_empty(*rows, 2 * half) if settings["GATES"] else None
        _backward[(p.programs, models)](
            *inputs, gradients[0].contiguous(), pooled, top, total, d_W, d_score, d_table, d_gate, *ctx.sizes, p.programs,
            **{**settings, "CP": 2 * half},
        )  # fmt: skip
        sums = d_W.sum(1)
        by_head = d_score[:, :, half : half + sequences * heads].unflatten(2, (sequences, heads)).sum((1, 2))
        bias, gates = sums[:, dim : dim + 1, :hidden], None
        if d_table is not None:  # rows (sequence, position) of a tile, or positions of all chunks
            used = sequences * length
            bias = d_table.sum(1)[:, :used, :hidden].unflatten(1, (sequences, length)).sum(1)
        if d_gate is not None:
            used = d_gate.sum(1)[:, : sequences * length, half : half + sequences * heads]
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
