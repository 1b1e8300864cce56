"""The hot operation on a GPU, in Triton: forward and backward on tensor cores, with float32 accuracy.

A program processes some sequences of one model, a tile of tokens at a time: several short sequences, or part of a long
one. Row k of the tile is a token; column c = (sequence, head) is a softmax. Every token is multiplied with the columns
of all sequences of its tile, and a block mask keeps those of its own; so scores, pooling and gradients are small matrix
products:

    r  = u scoreᵀ                    [tokens, columns]      p  = aᵀ u                        [columns, hidden]
    da = u dpᵀ                       [tokens, columns]      dr = a (da − Σ_t a da)           [tokens, columns]
    du = a dp + dr score             [tokens, hidden]       d_score = drᵀ u                  [columns, hidden]
    d[W1; b] = [x 1]ᵀ (du where u > 0)

If a softmax is saturated, da − Σ_t a da must cancel to the last bit, because the rest is multiplied by the scores. So
the sum uses the same da as the tile; and if a sequence spans several tiles, the sum is p·dp, by the same products in
the same order as da, which for p = u gives the bits of da. For the same reason both passes compute identical bits of r:
a weight of 1 stays 1 at scores of 1000, whose rounding alone would change it by 1e-4.

A float32 is cut into three bfloat16, and six of the nine products of the parts give float32's precision; bfloat16,
since then the result of
one product lies in the registers as the next one wants its factor, and nothing goes through shared memory between
them. Nothing as large as tokens × hidden goes to memory: the backward pass makes the hidden layer again, and the
weights a from the saved maximum and sum of each softmax. No atomics: each program writes its own partial gradient,
and a sum in fixed order follows. How the batch is cut depends on the shapes of one model alone, so the number of
models cannot change a result.
"""

# pyright: basic, reportGeneralTypeIssues=false
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


@dataclass(frozen=True)
class Tiling:
    """How one of the two kernels divides a batch into tiles and programs."""

    tokens: int  # rows of a tile
    sequences: int  # sequences of a tile
    tiles: int  # tiles of a program
    programs: int  # programs of a model
    warps: int
    registers: int | None  # maximum registers per thread, None for no limit

    def settings(self, batch: int, length: int, hidden: int, heads: int, dim: int) -> dict[str, Any]:
        """Return the compile-time arguments that both kernels share."""
        chunks = 1 if self.sequences * length <= self.tokens else -(-length // self.tokens)
        return {
            "batch": batch,
            "length": length,
            "hidden": hidden,
            "heads": heads,
            "SEQUENCES": self.sequences,
            "TILES": self.tiles,
            "CHUNKS": chunks,
            "FULL": batch % (self.sequences * self.tiles) == 0,
            "TP": self.tokens,
            "NP": next_power_of_two(hidden),
            "DIM": dim,
            "DP": next_power_of_two(dim + 1, 8),
            "num_warps": self.warps,
            "num_stages": 1,
            "maxnreg": self.registers,
        }


def next_power_of_two(n: int, least: int = 16) -> int:
    """Return the smallest power of two that is at least n and `least`, as matrix units require."""
    return max(least, 1 << (n - 1).bit_length())


def choose_tiling(
    batch: int,
    length: int,
    heads: int,
    hidden: int,
    *,
    back: bool = False,
    tokens: int = 0,
    tiles: int = 0,
    warps: int = 0,
    registers: int = 0,
) -> Tiling:
    """Return the tiling of one model's batch, forward or back; the other keywords override it, for tuning.

    Measured on an H200: a program of one warp needs no barriers, and a forward tile of 32 tokens × 32 hidden units fits
    into its registers; the backward pass holds twice as much, so long sequences use two warps and 64 tokens there. Four
    warps must never be used: from four on, Triton 3.6 computes a product of 64 rows by warp-group instructions that
    read beyond their shared memory (compute-sanitizer: "invalid __shared__ read"; without them the kernel is correct).
    """
    assert warps < 4, "products of 64 rows by four warps are miscompiled"
    two = hidden > 32 or (back and length >= 32)
    tokens = tokens or (64 if two and hidden <= 32 else 32)
    columns = 32
    if back:  # columns come twice there; 8 give the smallest product if their sequences fill its 16 tokens
        columns = 8 if 8 // heads * length >= 16 else 16
    sequences = max(1, min(tokens // length, max(columns, heads) // heads, batch))
    tokens = min(tokens, next_power_of_two(sequences * length))
    tiles = tiles or min(8, -(-batch // sequences))
    programs = -(-batch // (sequences * tiles))
    return Tiling(tokens, sequences, tiles, programs, warps or (2 if two else 1), registers or None)


@triton.jit
def _upper(bits):
    """Return the upper half of a float32 as a bfloat16: truncated, not rounded, which needs no conversion."""
    if INTERPRETED:
        return (bits & -0x10000).to(tl.float32, bitcast=True)
    return (bits >> 16).to(tl.int16).to(tl.bfloat16, bitcast=True)


@triton.jit
def _thirds(v):
    """Split v = first + second + third, eight bits each: together the 24 bits of a float32.

    A NaN or an infinity gives a NaN in the second part, so it shows in the product.
    """
    bits = v.to(tl.int32, bitcast=True)
    rest = v - (bits & -0x10000).to(tl.float32, bitcast=True)
    more = rest.to(tl.int32, bitcast=True)
    last = (rest - (more & -0x10000).to(tl.float32, bitcast=True)).to(tl.int32, bitcast=True)
    return _upper(bits), _upper(more), _upper(last)


@triton.jit
def _dot(a, b, c):
    """Return c + a b; a matrix unit sums every element in the same order, which NumPy's product does not."""
    if INTERPRETED:
        return c + tl.sum(a[:, :, None] * b[None, :, :], 1)
    return tl.dot(a, b, c)


@triton.jit
def _product(a1, a2, a3, b1, b2, b3, c):
    """Return c + a b from the parts, small products first; the omitted products are below float32's rounding.

    Matrix units truncate their sums instead of rounding, so long sums are not kept in c: each product starts at 0.
    """
    c = _dot(a3, b1, c)
    c = _dot(a1, b3, c)
    c = _dot(a2, b2, c)
    c = _dot(a2, b1, c)
    c = _dot(a1, b2, c)
    return _dot(a1, b1, c)


@triton.jit
def _mirrored(a1, a2, a3, b1, b2, b3, c):
    """Return the same as `_product` with the factors exchanged: the bits of _product(b, a), transposed."""
    c = _dot(a1, b3, c)
    c = _dot(a3, b1, c)
    c = _dot(a2, b2, c)
    c = _dot(a1, b2, c)
    c = _dot(a2, b1, c)
    return _dot(a1, b1, c)


@triton.jit
def _hidden(X, token, live, W1, hidden_bias, at, n, hidden, DIM: tl.constexpr, POSITIONS: tl.constexpr):
    """Return u = relu(x W1 + b), adding one column of x at a time, in the broadcast shape of token (and at) and n.

    Called once with tokens as rows and once with tokens as columns: a matrix unit's result has the layout of the next
    product's left factor, or transposed of its right one, and computing u again costs less than transposing it.
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
    X,
    index,
    W1,
    hidden_bias,
    score,
    score_bias,
    mask,
    pooled,
    top,
    total,
    batch: tl.constexpr,
    length: tl.constexpr,
    hidden: tl.constexpr,
    heads: tl.constexpr,
    SEQUENCES: tl.constexpr,
    TILES: tl.constexpr,
    CHUNKS: tl.constexpr,
    FULL: tl.constexpr,
    TP: tl.constexpr,
    CP: tl.constexpr,
    NP: tl.constexpr,
    DIM: tl.constexpr,
    DP: tl.constexpr,  # noqa: ARG001
    POSITIONS: tl.constexpr,
    GATES: tl.constexpr,
    MASK: tl.constexpr,
):
    """Pool the sequences of one program, with an online softmax over the chunks of a long sequence."""
    program, model = tl.program_id(0), tl.program_id(1).to(tl.int64)
    k, c, n = tl.arange(0, TP), tl.arange(0, CP), tl.arange(0, NP)
    W1 += model * DIM * hidden
    b = hidden_bias + model * hidden * (length if POSITIONS else 1)
    head, pair = c % heads, c // heads
    kept = (pair < SEQUENCES)[:, None] & (n < hidden)[None, :]
    s1, s2, s3 = _thirds(tl.load(score + (model * heads + head[:, None]) * hidden + n[None, :], kept, 0.0))
    own, t = k // length if CHUNKS == 1 else k * 0, k % length if CHUNKS == 1 else k
    for tile in range(TILES):
        first = (program * TILES + tile) * SEQUENCES
        real = (own < SEQUENCES) & (FULL | (first + own < batch))
        row = tl.load(index + model * batch + first + own, real, 0)
        peak = tl.full((CP,), float("-inf"), tl.float32)
        weight = tl.zeros((CP,), tl.float32)
        p = tl.zeros((CP, NP), tl.float32)
        for chunk in range(CHUNKS):
            at = t + chunk * TP
            live = real & (at < length)
            token = row * length + at
            u = _hidden(X, token[:, None], live[:, None], W1, b, at[:, None], n[None, :], hidden, DIM, POSITIONS)
            v = _hidden(X, token[None, :], live[None, :], W1, b, at[None, :], n[:, None], hidden, DIM, POSITIONS)
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
        use = (pair < SEQUENCES) & (FULL | (first + pair < batch))
        out = (model * batch + first + pair) * heads + head
        inverse = 1.0 / tl.where(use, weight, 1.0)
        inside = use[:, None] & (n < hidden)[None, :]
        tl.store(pooled + out[:, None] * hidden + n[None, :], p * inverse[:, None], inside)
        tl.store(top + out, peak, use)
        tl.store(total + out, inverse, use)


@triton.jit
def _backward(
    X,
    index,
    W1,
    hidden_bias,
    score,
    score_bias,
    mask,
    d_pooled,
    pooled,
    top,
    total,
    d_W,
    d_score,
    d_table,
    d_gate,
    batch: tl.constexpr,
    length: tl.constexpr,
    hidden: tl.constexpr,
    heads: tl.constexpr,
    programs: tl.constexpr,
    SEQUENCES: tl.constexpr,
    TILES: tl.constexpr,
    CHUNKS: tl.constexpr,
    FULL: tl.constexpr,
    TP: tl.constexpr,
    CP: tl.constexpr,
    NP: tl.constexpr,
    DIM: tl.constexpr,
    DP: tl.constexpr,
    POSITIONS: tl.constexpr,
    GATES: tl.constexpr,
    MASK: tl.constexpr,
):
    """Write one program's part of every gradient; the outer loop is over chunks, so that tables are summed over tiles.

    The columns come twice, so that [a, dr] [dp; score] is one product; its left half is free, because the columns would
    otherwise be padded to 16.
    """
    program, model = tl.program_id(0), tl.program_id(1).to(tl.int64)
    k, c, n, j = tl.arange(0, TP), tl.arange(0, CP), tl.arange(0, NP), tl.arange(0, DP)
    W1 += model * DIM * hidden
    b = hidden_bias + model * hidden * (length if POSITIONS else 1)
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
            live = (own < SEQUENCES) & (FULL | (first + own < batch)) & (at < length)
            token = tl.load(index + model * batch + first + own, live, 0) * length + at
            u = _hidden(X, token[:, None], live[:, None], W1, b, at[:, None], n[None, :], hidden, DIM, POSITIONS)
            u1, u2, u3 = _thirds(u)
            use = (pair < SEQUENCES) & (FULL | (first + pair < batch))
            out = (model * batch + first + pair) * heads + head
            spread = out[:, None] * hidden + n[None, :]
            inside = use[:, None] & (n < hidden)[None, :]
            dp = tl.load(d_pooled + spread, inside, 0.0)
            p1, p2, p3 = _thirds(dp)
            r = _mirrored(u1, u2, u3, s1.T, s2.T, s3.T, tl.zeros((TP, CP), tl.float32))
            da = _product(u1, u2, u3, p1.T, p2.T, p3.T, tl.zeros((TP, CP), tl.float32))
            known = live
            if MASK:
                known = live & (tl.load(mask + token, live, 0) != 0)
            block = known[:, None] & (own[:, None] == pair[None, :])
            if GATES:
                r += tl.load(score_bias + (model * heads + head[None, :]) * length + at[:, None], block, 0.0)
            e = tl.exp(tl.where(block, r - tl.load(top + out, use, 0.0)[None, :], float("-inf")))
            a = e * tl.load(total + out, use, 0.0)[None, :]
            if CHUNKS == 1:
                delta = tl.sum(a * da, 0)
            else:
                o1, o2, o3 = _thirds(tl.load(pooled + spread, inside, 0.0))
                square = _product(o1, o2, o3, p1.T, p2.T, p3.T, tl.zeros((CP, CP), tl.float32))
                delta = tl.sum(tl.where(c[:, None] == c[None, :], square, 0.0), 0)
            both = a * tl.where(left[None, :], 1.0, da - delta[None, :])
            b1, b2, b3 = _thirds(both)
            q1, q2, q3 = _thirds(tl.where(left[:, None], dp, s))
            dv = _product(q1.T, q2.T, q3.T, b1.T, b2.T, b3.T, tl.zeros((NP, TP), tl.float32))
            v = _hidden(X, token[None, :], live[None, :], W1, b, at[None, :], n[:, None], hidden, DIM, POSITIONS)
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


Inputs = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None, Tensor | None]
"""x, index, W1, hidden_bias, score, score_bias and mask, as `pool_plain` takes them."""


def prepare_inputs(inputs: Inputs) -> Inputs:
    """Return the inputs as the kernels read them: contiguous, and the mask as bytes."""
    *floats, mask = (None if t is None else t.contiguous() for t in inputs)
    return (*floats, None if mask is None else mask.view(torch.uint8))  # type: ignore[return-value]


def _model_options(inputs: Inputs) -> dict[str, bool]:
    """Return which optional parts of the model the kernels have to compute."""
    bias, gates, mask = inputs[3], inputs[5], inputs[6]
    return {"POSITIONS": bias.shape[1] > 1, "GATES": gates is not None, "MASK": mask is not None}


def forward(inputs: Inputs, **tuning: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Launch the forward pass on `prepare_inputs` inputs; return pooled, and each softmax's maximum and 1/sum."""
    x, index, score = inputs[0], inputs[1], inputs[4]
    (models, batch), (_, length, dim), (heads, hidden) = index.shape, x.shape, score.shape[1:]
    p = choose_tiling(batch, length, heads, hidden, **tuning)
    pooled = torch.empty(models, batch, heads, hidden, device=x.device, dtype=x.dtype)
    top, total = pooled.new_empty(2, models, batch, heads)
    settings = p.settings(batch, length, hidden, heads, dim)
    launch: Any = _forward[(p.programs, models)]
    launch(*inputs, pooled, top, total, **settings, **_model_options(inputs), CP=next_power_of_two(p.sequences * heads))
    return pooled, top, total


@dataclass(frozen=True)
class PartialGradients:
    """Partial gradients, one per program of the backward pass; the `sequences` of a tile are adjacent."""

    W: Tensor  # [models, programs, DP, NP]: W1 in the first dim rows, the bias in the next
    score: Tensor  # [models, programs, 2·half, NP]: row half + sequence·heads + head
    table: Tensor | None  # [models, programs, rows, NP]
    gate: Tensor | None  # [models, programs, rows, 2·half]
    sequences: int
    half: int

    def positions(self, length: int, hidden: int) -> Tensor:
        """Return the gradient of a table of hidden biases, from rows of (sequence, position) or of all chunks."""
        assert self.table is not None
        S = self.sequences
        return self.table.sum(1)[:, : S * length, :hidden].unflatten(1, (S, length)).sum(1)

    def gates(self, length: int, heads: int) -> Tensor:
        """Return the gradient of score_bias."""
        assert self.gate is not None
        S = self.sequences
        used = self.gate.sum(1)[:, : S * length, self.half : self.half + S * heads]
        return used.unflatten(2, (S, heads)).unflatten(1, (S, length)).sum((1, 3)).mT


def backward(
    inputs: Inputs, d_pooled: Tensor, pooled: Tensor, top: Tensor, total: Tensor, **tuning: Any
) -> PartialGradients:
    """Launch the backward pass on `prepare_inputs` inputs and what `forward` returned."""
    models, batch, heads, hidden = pooled.shape
    _, length, dim = inputs[0].shape
    p = choose_tiling(batch, length, heads, hidden, back=True, **tuning)
    settings, half, options = (
        p.settings(batch, length, hidden, heads, dim),
        next_power_of_two(p.sequences * heads, 8),
        _model_options(inputs),
    )
    rows = (models, p.programs, settings["CHUNKS"] * p.tokens)
    parts = PartialGradients(
        pooled.new_empty(models, p.programs, settings["DP"], settings["NP"]),
        pooled.new_empty(models, p.programs, 2 * half, settings["NP"]),
        pooled.new_empty(*rows, settings["NP"]) if options["POSITIONS"] else None,
        pooled.new_empty(*rows, 2 * half) if options["GATES"] else None,
        p.sequences,
        half,
    )
    launch: Any = _backward[(p.programs, models)]
    launch(
        *inputs,
        d_pooled,
        pooled,
        top,
        total,
        parts.W,
        parts.score,
        parts.table,
        parts.gate,
        programs=p.programs,
        **settings,
        **options,
        CP=2 * half,
    )
    return parts


class _Pool(torch.autograd.Function):
    """Forward and backward of `pool_plain` with one launch each, and the sums of the partial gradients."""

    @staticmethod
    def forward(ctx: Any, tuning: dict[str, int], *inputs: Any) -> Tensor:
        inputs = prepare_inputs(inputs)  # type: ignore[arg-type]
        found = forward(inputs, **tuning)
        ctx.save_for_backward(*inputs, *found)
        ctx.tuning = tuning
        return found[0]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        *inputs, pooled, top, total = ctx.saved_tensors
        (_, length, dim), (_, _, heads, hidden) = inputs[0].shape, pooled.shape
        parts = backward(tuple(inputs), gradients[0].contiguous(), pooled, top, total, **ctx.tuning)  # type: ignore[arg-type]
        sums, used = parts.W.sum(1), parts.score[:, :, parts.half : parts.half + parts.sequences * heads, :hidden]
        by_head = used.unflatten(2, (parts.sequences, heads)).sum((1, 2))
        bias = sums[:, dim : dim + 1, :hidden] if parts.table is None else parts.positions(length, hidden)
        gates = None if parts.gate is None else parts.gates(length, heads)
        return None, None, None, sums[:, :dim, :hidden], bias, by_head, gates, None


def pool_triton(
    x: Tensor,
    index: Tensor,
    W1: Tensor,
    hidden_bias: Tensor,
    score: Tensor,
    score_bias: Tensor | None = None,
    mask: Tensor | None = None,
    **tuning: int,
) -> Tensor:
    """Compute `pool_plain` by the kernels above; `tuning` overrides `choose_tiling`."""
    return _Pool.apply(tuning, x, index, W1, hidden_bias, score, score_bias, mask)  # type: ignore[return-value]
