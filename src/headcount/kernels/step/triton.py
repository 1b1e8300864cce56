"""Loss and gradient of a stack of one-layer models on a GPU, from flat weights to flat gradient, in five launches.

The algebra is that of `numba.py`, with the products of a head combined, G_i = F1 W_O,i W_V,i W2 and
g = F1 (c + Σ_i W_O,i W_V,i b2) + f1. `_fold` computes score, G and g from the weights, `pool_triton` processes the
tokens, `_feed` takes a tile of the batch through F and back,

    pre   = Σ_i p_i G_i + g              y     = act(pre) F2ᵀ + f2
    d_pre = act'(pre)·(d_y F2)           d_p_i = d_pre G_iᵀ            d_G_i = p_iᵀ d_pre

`pool_triton` goes back over the tokens, and `_unfold` sums the programs' partial gradients in fixed order and derives
the gradients of the weights. Matrix products are those of `pool_triton`, with float32 accuracy. Each program writes its
own part, and the division of work depends only on the shapes of one model: there are no atomics, and a model's bits do
not depend on the others. The plain twin is autograd through `models/transformer/stacked.forward_collapsed`.
"""

# pyright: basic, reportGeneralTypeIssues=false
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra import libdevice

from headcount.kernels.pool import triton as pool_triton
from headcount.kernels.pool.triton import INTERPRETED, _product, _thirds, next_power_of_two
from headcount.kernels.step.plain import SHORT_NAMES


@triton.jit
def _matmul(a, b):
    """Return the product of two matrices with float32 accuracy."""
    a1, a2, a3 = _thirds(a)
    b1, b2, b3 = _thirds(b)
    return _product(a1, a2, a3, b1, b2, b3, tl.zeros((a.shape[0], b.shape[1]), tl.float32))


@triton.jit
def _load(base, row, column, rows, columns, row_step, column_step):
    """Load the matrix base[row, column] for the index vectors row and column, with 0 beyond its size."""
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    return tl.load(base + row[:, None] * row_step + column[None, :] * column_step, inside, 0.0)


@triton.jit
def _beta(weights, betas, beta, model, i, LB: tl.constexpr):
    """Return β of head i: learned, one per model, or one for all."""
    if LB >= 0:
        return tl.exp(tl.load(weights + LB + i))
    if betas is not None:
        return tl.load(betas + model)
    return beta


@triton.jit
def _fold(
    theta,
    betas,
    beta,
    w1,
    bias,
    score,
    G,
    g,
    A,
    B,
    q,
    v,
    w,
    size: tl.constexpr,
    d: tl.constexpr,
    N: tl.constexpr,
    E: tl.constexpr,
    h: tl.constexpr,
    n: tl.constexpr,
    K: tl.constexpr,
    DP: tl.constexpr,
    NP: tl.constexpr,
    EC: tl.constexpr,
    HP: tl.constexpr,
    KP: tl.constexpr,
    C: tl.constexpr,
    W1: tl.constexpr,
    B1: tl.constexpr,
    W2: tl.constexpr,
    B2: tl.constexpr,
    WQ: tl.constexpr,
    WK: tl.constexpr,
    WV: tl.constexpr,
    WO: tl.constexpr,
    LB: tl.constexpr,
    F1: tl.constexpr,
    BF1: tl.constexpr,
):
    """For one head of one model, compute score, G, its part of g, and what `_unfold` reuses; EC of E at a time."""
    i, model = tl.program_id(0), tl.program_id(1).to(tl.int64)
    j, m, k = tl.arange(0, HP), tl.arange(0, NP), tl.arange(0, KP)
    weights, head, at = theta + model * size, i * n * E, model * h + i
    asked, held = tl.zeros((HP,), tl.float32), tl.zeros((HP,), tl.float32)  # q_i = W_Q,i c and v_i = W_V,i b2
    for start in range(0, E, EC):
        e = start + tl.arange(0, EC)
        c, b2 = tl.load(weights + C + e, e < E, 0.0), tl.load(weights + B2 + e, e < E, 0.0)
        asked += tl.sum(_load(weights + WQ + head, j, e, n, E, E, 1) * c[None, :], 1)
        held += tl.sum(_load(weights + WV + head, j, e, n, E, E, 1) * b2[None, :], 1)
    tl.store(q + at * n + j, asked, j < n)
    tl.store(v + at * n + j, held, j < n)
    s = tl.zeros((NP,), tl.float32)
    a, b = tl.zeros((HP, NP), tl.float32), tl.zeros((HP, KP), tl.float32)
    shift = tl.load(weights + BF1 + k, (k < K) & (i == 0), 0.0)
    for start in range(0, E, EC):
        e = start + tl.arange(0, EC)
        w2 = _load(weights + W2, e, m, E, N, N, 1)
        kq = tl.sum(_load(weights + WK + head, j, e, n, E, E, 1) * asked[:, None], 0)
        s += tl.sum(kq[:, None] * w2, 0)
        wo = _load(weights + WO + head, j, e, n, E, 1, n)  # W_O,iᵀ
        f1 = _load(weights + F1, e, k, E, K, 1, E)  # F1ᵀ
        a += _matmul(_load(weights + WV + head, j, e, n, E, E, 1), w2)
        b += _matmul(wo, f1)
        sent = tl.sum(wo * held[:, None], 0) + tl.load(weights + C + e, (e < E) & (i == 0), 0.0)
        tl.store(w + at * E + e, sent, e < E)
        shift += tl.sum(f1 * sent[:, None], 0)
    tl.store(score + at * N + m, _beta(weights, betas, beta, model, i, LB) * s, m < N)
    tl.store(g + at * K + k, shift, k < K)
    tl.store(A + at * n * N + j[:, None] * N + m[None, :], a, (j < n)[:, None] & (m < N)[None, :])
    tl.store(B + at * n * K + j[:, None] * K + k[None, :], b, (j < n)[:, None] & (k < K)[None, :])
    tl.store(G + at * N * K + m[:, None] * K + k[None, :], _matmul(a.T, b), (m < N)[:, None] & (k < K)[None, :])
    if i == 0:
        r = tl.arange(0, DP)
        here = (r < d)[:, None] & (m < N)[None, :]
        tl.store(w1 + (model * d + r[:, None]) * N + m[None, :], _load(weights + W1, r, m, d, N, 1, d), here)
        tl.store(bias + model * N + m, tl.load(weights + B1 + m, m < N, 0.0), m < N)


@triton.jit
def _below(v):
    """Return Φ(v) with float32's relative accuracy, also far below 0, where 1 + erf cancels and GELU needs it."""
    if INTERPRETED:
        return (0.5 * (1.0 + tl.math.erf(v.to(tl.float64) * 0.7071067811865476))).to(tl.float32)
    return 0.5 * libdevice.erfc(v * -0.7071067811865476)  # pyright: ignore[reportOperatorIssue]


@triton.jit
def _feed(
    theta,
    pooled,
    G,
    g,
    y,
    d_pooled,
    d_G,
    d_g,
    d_F2,
    d_f2,
    losses,
    size: tl.constexpr,
    batch: tl.constexpr,
    tiles: tl.constexpr,
    N: tl.constexpr,
    h: tl.constexpr,
    K: tl.constexpr,
    out: tl.constexpr,
    R: tl.constexpr,
    NP: tl.constexpr,
    KP: tl.constexpr,
    F2: tl.constexpr,
    BF2: tl.constexpr,
    GELU: tl.constexpr,
):
    """For one tile of one model's batch, compute loss, d_pooled, and its part of the gradients of G, g, F2 and f2."""
    tile, model = tl.program_id(0), tl.program_id(1).to(tl.int64)
    r, m, k = tile * R + tl.arange(0, R), tl.arange(0, NP), tl.arange(0, KP)
    real, at = r < batch, model * tiles + tile
    weights, first = theta + model * size, model * batch * h * N
    pre = tl.zeros((R, KP), tl.float32)
    for i in range(h):
        p = _load(pooled + first + i * N, r, m, batch, N, h * N, 1)
        pre += _matmul(p, _load(G + (model * h + i) * N * K, m, k, N, K, K, 1))
        pre += tl.load(g + (model * h + i) * K + k, k < K, 0.0)[None, :]
    if GELU:
        below = _below(pre)
        act, slope = pre * below, below + pre * 0.3989422804014327 * tl.exp(-0.5 * pre * pre)
    else:
        act, slope = tl.maximum(pre, 0.0, propagate_nan=tl.PropagateNan.ALL), tl.where(pre > 0.0, 1.0, 0.0)
    d_act = tl.zeros((R, KP), tl.float32)
    loss = tl.zeros((R,), tl.float32)
    for o in range(out):
        f2 = tl.load(weights + F2 + o * K + k, k < K, 0.0)
        miss = tl.sum(act * f2[None, :], 1) + tl.load(weights + BF2 + o)
        miss = tl.where(real, miss - tl.load(y + (model * batch + r) * out + o, real, 0.0), 0.0)
        loss += miss * miss
        miss *= 2.0 / (batch * out)
        d_act += miss[:, None] * f2[None, :]
        tl.store(d_F2 + (at * out + o) * K + k, tl.sum(miss[:, None] * act, 0), k < K)
        tl.store(d_f2 + at * out + o, tl.sum(miss, 0))
    tl.store(losses + at, tl.sum(loss, 0) / (batch * out))
    d_pre = d_act * slope
    tl.store(d_g + at * K + k, tl.sum(d_pre, 0), k < K)
    for i in range(h):
        back = _matmul(d_pre, _load(G + (model * h + i) * N * K, k, m, K, N, 1, K))
        place = first + r[:, None] * (h * N) + i * N + m[None, :]
        tl.store(d_pooled + place, back, real[:, None] & (m < N)[None, :])
        p = _load(pooled + first + i * N, m, r, N, batch, 1, h * N)
        share = _matmul(p, d_pre)
        tl.store(d_G + (at * h + i) * N * K + m[:, None] * K + k[None, :], share, (m < N)[:, None] & (k < K)[None, :])


@triton.jit
def _total(parts, count: tl.constexpr, step: tl.constexpr, l, length, ROWS: tl.constexpr):
    """Return Σ over `count` rows, `step` apart, of parts[row, l], adding ROWS at a time."""
    row, total = tl.arange(0, ROWS), tl.zeros(l.shape, tl.float32)
    for start in range(0, count, ROWS):
        total += tl.sum(_load(parts, start + row, l, count, length, step, 1), 0)
    return total


@triton.jit
def _unfold(
    theta,
    betas,
    beta,
    score,
    A,
    B,
    q,
    v,
    w,
    part_W,
    part_s,
    d_G,
    d_g,
    d_F2,
    d_f2,
    losses,
    gradient,
    loss,
    size: tl.constexpr,
    tiles: tl.constexpr,
    programs: tl.constexpr,
    d: tl.constexpr,
    N: tl.constexpr,
    E: tl.constexpr,
    h: tl.constexpr,
    n: tl.constexpr,
    K: tl.constexpr,
    out: tl.constexpr,
    half: tl.constexpr,
    sequences: tl.constexpr,
    DP: tl.constexpr,
    NP: tl.constexpr,
    EC: tl.constexpr,
    HP: tl.constexpr,
    KP: tl.constexpr,
    OP: tl.constexpr,
    ROWS: tl.constexpr,
    C: tl.constexpr,
    W1: tl.constexpr,
    B1: tl.constexpr,
    W2: tl.constexpr,
    B2: tl.constexpr,
    WQ: tl.constexpr,
    WK: tl.constexpr,
    WV: tl.constexpr,
    WO: tl.constexpr,
    LB: tl.constexpr,
    F1: tl.constexpr,
    BF1: tl.constexpr,
    F2: tl.constexpr,
    BF2: tl.constexpr,
):
    """Sum the partial gradients, and derive the gradients of the weights from those of score, G and g.

    The first program of a model computes the gradients that are plain sums; each other one, EC of the E columns of the
    embedding.
    """
    part, model = tl.program_id(0), tl.program_id(1).to(tl.int64)
    j, m, k = tl.arange(0, HP), tl.arange(0, NP), tl.arange(0, KP)
    weights, grad = theta + model * size, gradient + model * size
    dg = _total(d_g + model * tiles * K, tiles, K, k, K, 4)
    if part == 0:
        flat = tl.arange(0, DP * NP)
        sums = _total(part_W + model * programs * DP * NP, programs, DP * NP, flat, DP * NP, ROWS)
        down, column = flat // NP, flat % NP
        tl.store(grad + W1 + column * d + down, sums, (down < d) & (column < N))
        tl.store(grad + B1 + column, sums, (down == d) & (column < N))
        tl.store(grad + BF1 + k, dg, k < K)
        for o in range(out):
            f2 = _total(d_F2 + (model * tiles * out + o) * K, tiles, out * K, k, K, 4)
            tl.store(grad + F2 + o * K + k, f2, k < K)
        last = tl.arange(0, OP)
        tl.store(grad + BF2 + last, _total(d_f2 + model * tiles * out, tiles, out, last, out, 4), last < out)
        tl.store(loss + model + last, _total(losses + model * tiles, tiles, 1, last, 1, 4), last < 1)
    else:
        e = (part - 1) * EC + tl.arange(0, EC)
        c, b2 = tl.load(weights + C + e, e < E, 0.0), tl.load(weights + B2 + e, e < E, 0.0)
        w2, f1 = _load(weights + W2, e, m, E, N, N, 1), _load(weights + F1, k, e, K, E, E, 1)
        sent, d_sent = _total(w + model * h * E, h, E, e, E, 4), tl.sum(dg[:, None] * f1, 0)
        d_f1, d_w2 = dg[:, None] * sent[None, :], tl.zeros((EC, NP), tl.float32)
        d_c, d_b2 = d_sent, tl.zeros((EC,), tl.float32)
        row = tl.arange(0, 32)
        inside = (j < n)[:, None] & (e < E)[None, :]
        spread, turned = j[:, None] * E + e[None, :], j[:, None] + e[None, :] * n
        for i in range(h):
            head, at = i * n * E, model * h + i
            dG = tl.zeros((NP, KP), tl.float32)
            for tile in range(tiles):
                dG += _load(d_G + ((model * tiles + tile) * h + i) * N * K, m, k, N, K, K, 1)
            ds = tl.zeros((NP,), tl.float32)
            for start in range(0, programs * sequences, 32):
                s = start + row
                line = (s // sequences) * (2 * half) + half + (s % sequences) * h + i
                kept = (s < programs * sequences)[:, None] & (m < N)[None, :]
                from_program = part_s + model * programs * (2 * half * NP) + line[:, None] * NP + m[None, :]
                ds += tl.sum(tl.load(from_program, kept, 0.0), 0)
            raw = _beta(weights, betas, beta, model, i, LB) * ds
            d_v, d_q = tl.zeros((HP,), tl.float32), tl.zeros((HP,), tl.float32)
            for start in range(0, E, EC):  # sums over all of E, which every program of the model computes
                ee = start + tl.arange(0, EC)
                back = tl.sum(dg[:, None] * _load(weights + F1, k, ee, K, E, E, 1), 0)
                d_v += tl.sum(_load(weights + WO + head, j, ee, n, E, 1, n) * back[None, :], 1)
                to_key = tl.sum(_load(weights + W2, ee, m, E, N, N, 1) * raw[None, :], 1)
                d_q += tl.sum(_load(weights + WK + head, j, ee, n, E, E, 1) * to_key[None, :], 1)
            wq, wk = _load(weights + WQ + head, j, e, n, E, E, 1), _load(weights + WK + head, j, e, n, E, E, 1)
            wv, wo = _load(weights + WV + head, j, e, n, E, E, 1), _load(weights + WO + head, j, e, n, E, 1, n)
            # G_i = A_iᵀ B_i,  A_i = W_V,i W2,  B_i = W_O,iᵀ F1ᵀ
            d_a = _matmul(_load(B + at * n * K, j, k, n, K, K, 1), dG.T)
            d_b = _matmul(_load(A + at * n * N, j, m, n, N, N, 1), dG)
            held, asked = tl.load(v + at * n + j, j < n, 0.0), tl.load(q + at * n + j, j < n, 0.0)
            tl.store(grad + WO + head + turned, _matmul(d_b, f1) + held[:, None] * d_sent[None, :], inside)
            tl.store(grad + WV + head + spread, _matmul(d_a, w2.T) + d_v[:, None] * b2[None, :], inside)
            d_f1 += _matmul(d_b.T, wo)
            d_w2 += _matmul(wv.T, d_a)
            d_b2 += tl.sum(d_v[:, None] * wv, 0)
            # score_i = β_i W2ᵀ kq_i,  kq_i = W_K,iᵀ q_i,  q_i = W_Q,i c
            if LB >= 0:
                tl.store(grad + LB + i, tl.sum(ds * tl.load(score + at * N + m, m < N, 0.0), 0))
            d_w2 += tl.sum(wk * asked[:, None], 0)[:, None] * raw[None, :]
            d_kq = tl.sum(w2 * raw[None, :], 1)
            tl.store(grad + WK + head + spread, asked[:, None] * d_kq[None, :], inside)
            tl.store(grad + WQ + head + spread, d_q[:, None] * c[None, :], inside)
            d_c += tl.sum(d_q[:, None] * wq, 0)
        tl.store(grad + F1 + k[:, None] * E + e[None, :], d_f1, (k < K)[:, None] & (e < E)[None, :])
        tl.store(grad + W2 + e[:, None] * N + m[None, :], d_w2, (e < E)[:, None] & (m < N)[None, :])
        tl.store(grad + C + e, d_c, e < E)
        tl.store(grad + B2 + e, d_b2, e < E)


def loss_and_gradient(
    theta: Tensor,
    offsets: Iterable[int],
    sizes: tuple[int, ...],
    gelu: bool,
    beta: Tensor | float,
    X: Tensor,
    index: Tensor,
    y: Tensor,
    mask: Tensor | None = None,
    *,
    rows: int = 0,
    warps: int = 0,
    fold_warps: int = 0,
    chunk: int = 0,
) -> tuple[Tensor, Tensor]:
    """Return the mean squared error of every model on its batch and its flat gradient; y is y[models, batch, out_dim].

    offsets and sizes are those of `models/transformer/flat.py`; beta is one number or one per model, unless it is
    learned. rows (of a tile of the batch), the numbers of warps and chunk (columns of E) are for tuning.
    """
    d, T, N, E, h, n, K, out = sizes
    (models, size), batch = theta.shape, index.shape[1]
    P: dict[str, int] = dict(zip(SHORT_NAMES, (int(o) for o in offsets), strict=True))
    rows, warps = (
        rows or (64 if max(N, K) <= 32 else 32),
        warps or 2,
    )  # four would be miscompiled: `pool_triton.choose_tiling`
    theta, y, tiles = theta.contiguous(), y.contiguous(), -(-batch // rows)
    betas = beta.contiguous() if isinstance(beta, Tensor) else None
    fixed = 1.0 if isinstance(beta, Tensor) else beta

    def new(*shape: int) -> Tensor:
        return theta.new_empty(models, *shape)

    NP, HP, KP, EC = (
        next_power_of_two(N),
        next_power_of_two(n),
        next_power_of_two(K),
        chunk or min(32, next_power_of_two(E)),
    )
    shapes = {"size": size, "N": N, "h": h, "K": K, "NP": NP, "KP": KP}
    attention = {"d": d, "E": E, "n": n, "DP": next_power_of_two(d + 1, 8), "EC": EC, "HP": HP}
    places = {k: P[k] for k in ("C", "W1", "B1", "W2", "B2", "WQ", "WK", "WV", "WO", "LB", "F1", "BF1")}
    least = fold_warps or (1 if max(NP, HP, KP) < 64 else 2)
    w1, bias, score, G, g = new(d, N), new(1, N), new(h, N), new(h, N, K), new(h, K)
    A, B, q, v, w = new(h, n, N), new(h, n, K), new(h, n), new(h, n), new(h, E)
    launch: Any = _fold[(h, models)]
    launch(
        theta,
        betas,
        fixed,
        w1,
        bias,
        score,
        G,
        g,
        A,
        B,
        q,
        v,
        w,
        **shapes,
        **attention,
        **places,
        num_warps=least,
        num_stages=1,
    )

    def weights(name: str, *shape: int) -> Tensor:
        return theta[:, P[name] : P[name] + shape[0] * shape[1]].unflatten(1, shape)

    gates, each = None, beta
    if P["HB"] >= 0:
        bias = bias + weights("HB", T, N)
    if P["GT"] >= 0:
        if P["LB"] >= 0:
            each = weights("LB", h, 1).exp()
        elif isinstance(beta, Tensor):
            each = beta[:, None, None]
        gates = each * weights("GT", h, T)
    inputs = pool_triton.prepare_inputs((X, index, w1, bias, score, gates, mask))
    found = pool_triton.forward(inputs)
    d_pooled = torch.empty_like(found[0])
    d_G, d_g, d_F2, d_f2, losses = new(tiles, h, N, K), new(tiles, K), new(tiles, out, K), new(tiles, out), new(tiles)
    launch = _feed[(tiles, models)]
    launch(
        theta,
        found[0],
        G,
        g,
        y,
        d_pooled,
        d_G,
        d_g,
        d_F2,
        d_f2,
        losses,
        **shapes,
        batch=batch,
        tiles=tiles,
        out=out,
        R=rows,
        F2=P["F2"],
        BF2=P["BF2"],
        GELU=gelu,
        num_warps=warps,
        num_stages=1,
    )
    parts = pool_triton.backward(inputs, d_pooled, *found)
    gradient, loss = torch.empty_like(theta), new()
    launch = _unfold[(1 + -(-E // EC), models)]
    launch(
        theta,
        betas,
        fixed,
        score,
        A,
        B,
        q,
        v,
        w,
        parts.W,
        parts.score,
        d_G,
        d_g,
        d_F2,
        d_f2,
        losses,
        gradient,
        loss,
        **shapes,
        **attention,
        **places,
        F2=P["F2"],
        BF2=P["BF2"],
        tiles=tiles,
        programs=parts.W.shape[1],
        out=out,
        OP=next_power_of_two(out, 1),
        half=parts.half,
        sequences=parts.sequences,
        ROWS=max(1, min(32, 4096 // (NP * attention["DP"]))),
        num_warps=2,
        num_stages=1,
    )
    if parts.table is not None:
        gradient[:, P["HB"] : P["HB"] + T * N] = parts.positions(T, N).flatten(1)
    if parts.gate is not None and gates is not None:
        d_gates = parts.gates(T, h)
        gradient[:, P["GT"] : P["GT"] + h * T] = (each * d_gates).flatten(1)
        if P["LB"] >= 0:
            gradient[:, P["LB"] : P["LB"] + h] += (d_gates * gates).sum(2)
    return loss, gradient
