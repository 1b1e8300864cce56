"""The hot operation on a CPU, in numba: tokens → each head's pooled hidden state, forward and backward.

    u(t)    = relu(W1 x(t) + hidden_bias(t))                 hidden layer of the encoder, [hidden]
    a_i(t)  = softmax over t of score_i·u(t) + score_bias_i(t)
    p_i     = Σ_t a_i(t)·u(t)                                pooled, [heads, hidden]

A call processes a block of sequences that fits into the cache. The sequences are the innermost axis,
[..., length, count]: a sum over the positions of one sequence becomes a sum of rows over many sequences, and LLVM
vectorises these loops along contiguous memory even if sequences have only a few tokens. Four terms are added at a time,
which quarters the memory traffic of the sum; with more, LLVM would give up on the necessary checks for overlap. For the
same reason dim and hidden are padded with zeros to multiples of four (`padded`): there are no remainders, and zeros
change no sum. The second innermost loop moves the row that is written, so that LLVM checks for overlap once for both
loops.

Fast-math options that could hide a NaN are off, because divergence must be noticed. A call runs on one core and
releases the GIL (`nogil`): the engine runs one trial per core, so a trial never depends on the others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from headcount.core import cached_njit
from headcount.kernels.step.numba_math import exp

BLOCK_TOKENS = 2048  # 2048 tokens × 32 hidden units × 4 bytes = 256 KB: half of an L2 cache
MIN_BLOCK = 32  # minimum number of sequences in a block: the innermost loops must not get too short
FASTMATH_FLAGS = {"contract", "reassoc", "nsz", "arcp"}
# Division by 0 gives inf or NaN, as in torch; raising an exception would need a branch in every vector loop.
JIT_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "fastmath": FASTMATH_FLAGS,
    "error_model": "numpy",
    "no_cfunc_wrapper": True,
}
compiled = cached_njit(**JIT_OPTIONS)
# for functions called only by kernels: without a Python wrapper, which would have to be compiled too, and not cached
INNER_JIT_OPTIONS: dict[str, Any] = {**JIT_OPTIONS, "no_cpython_wrapper": True}
inner = njit(**INNER_JIT_OPTIONS)


@inner
def padded(size: int) -> int:
    """Return the size rounded up to a multiple of four."""
    return (size + 3) // 4 * 4


@inner
def block_size(batch: int, length: int) -> int:
    """Return how many sequences to process at once; it depends only on the shapes, so that a trial's bits do too."""
    return min(batch, max(MIN_BLOCK, BLOCK_TOKENS // length))


@inner
def add_product(W: Any, u: Any, out: Any) -> None:
    """Compute out[j, c] += Σ_k W[j, k]·u[k, c]; BLAS takes twice as long for products of this size."""
    terms, count = u.shape
    for j in range(out.shape[0]):
        for k in range(0, terms - 3, 4):
            w0, w1, w2, w3 = W[j, k], W[j, k + 1], W[j, k + 2], W[j, k + 3]
            for c in range(count):
                out[j, c] += w0 * u[k, c] + w1 * u[k + 1, c] + w2 * u[k + 2, c] + w3 * u[k + 3, c]
        for k in range(terms - terms % 4, terms):
            w0 = W[j, k]
            for c in range(count):
                out[j, c] += w0 * u[k, c]


@inner
def add_products_of_rows(a: Any, b: Any, out: Any) -> None:
    """Compute out[j, k] += Σ_c a[j, c]·b[k, c], four sums at a time."""
    rows, count = b.shape
    zero = out.dtype.type(0)
    for j in range(a.shape[0]):
        for k in range(0, rows - 3, 4):
            s0, s1, s2, s3 = zero, zero, zero, zero
            for c in range(count):
                value = a[j, c]
                s0 += value * b[k, c]
                s1 += value * b[k + 1, c]
                s2 += value * b[k + 2, c]
                s3 += value * b[k + 3, c]
            out[j, k] += s0
            out[j, k + 1] += s1
            out[j, k + 2] += s2
            out[j, k + 3] += s3
        for k in range(rows - rows % 4, rows):
            s0 = zero
            for c in range(count):
                s0 += a[j, c] * b[k, c]
            out[j, k] += s0


@inner
def _hidden(x: Any, W1: Any, hidden_bias: Any, k: int, u: Any) -> None:
    """Fill row k of u = relu(W1 x + hidden_bias); hidden_bias has one row for all positions, or one per position."""
    rows = hidden_bias.shape[0]
    dim, zero = x.shape[0], u.dtype.type(0)
    low = u.dtype.type(-np.inf)
    # with a single bias the whole block is one long row; with a bias per position there is one row per position
    xs, us = x.reshape(dim, rows, -1), u.reshape(u.shape[0], rows, -1)
    for s in range(rows):
        bias = hidden_bias[s, k]
        w0, w1, w2, w3 = W1[k, 0], W1[k, 1], W1[k, 2], W1[k, 3]
        floor = zero if dim == 4 else low
        for c in range(us.shape[2]):
            value = bias + w0 * xs[0, s, c] + w1 * xs[1, s, c] + w2 * xs[2, s, c] + w3 * xs[3, s, c]
            us[k, s, c] = floor if value < floor else value
        for j in range(4, dim, 4):
            w0, w1, w2, w3 = W1[k, j], W1[k, j + 1], W1[k, j + 2], W1[k, j + 3]
            floor = zero if j + 4 == dim else low
            for c in range(us.shape[2]):
                value = w0 * xs[j, s, c] + w1 * xs[j + 1, s, c] + w2 * xs[j + 2, s, c] + w3 * xs[j + 3, s, c]
                value += us[k, s, c]
                us[k, s, c] = floor if value < floor else value


@inner
def _weights(r: Any, bias: Any, mask: Any, top: Any, total: Any) -> None:
    """Turn one head's scores r[length, count] into softmax weights, in place."""
    length, count = r.shape
    if bias.shape[0] > 0:
        for t in range(length):
            b = bias[t]
            for c in range(count):
                r[t, c] += b
    if mask.shape[0] > 0:
        for t in range(length):
            for c in range(count):
                if not mask[t, c]:
                    r[t, c] = -np.inf
    for c in range(count):
        top[c] = r[0, c]
        total[c] = 0
    for t in range(1, length):
        for c in range(count):
            top[c] = max(top[c], r[t, c])
    for t in range(length):
        for c in range(count):
            value = exp(r[t, c] - top[c])
            r[t, c] = value
            total[c] += value
    for c in range(count):
        total[c] = total.dtype.type(1) / total[c]
    for t in range(length):
        for c in range(count):
            r[t, c] *= total[c]


@inner
def pool_forward(
    x: Any, W1: Any, hidden_bias: Any, score: Any, score_bias: Any, mask: Any, u: Any, a: Any, pooled: Any, spare: Any
) -> None:
    """Fill u[hidden, length, count], the weights a[heads, length, count] and pooled[heads, hidden, count].

    x[dim, length, count], W1[hidden, dim], hidden_bias[1 or length, hidden], score[heads, hidden],
    score_bias[heads, length] or [heads, 0], mask[length, count] or [0, 0]; spare[2 or more, count] is scratch.
    """
    hidden, length, count = u.shape
    heads, n = a.shape[0], length * count
    rows, r = u.reshape(hidden, n), a.reshape(heads, n)
    for k in range(0, hidden, 4):
        for m in range(k, k + 4):
            _hidden(x, W1, hidden_bias, m, u)
        for i in range(heads):
            s0, s1, s2, s3 = score[i, k], score[i, k + 1], score[i, k + 2], score[i, k + 3]
            if k == 0:
                for c in range(n):
                    r[i, c] = s0 * rows[k, c] + s1 * rows[k + 1, c] + s2 * rows[k + 2, c] + s3 * rows[k + 3, c]
            else:
                for c in range(n):
                    r[i, c] += s0 * rows[k, c] + s1 * rows[k + 1, c] + s2 * rows[k + 2, c] + s3 * rows[k + 3, c]
    for i in range(heads):
        _weights(a[i], score_bias[i], mask, spare[0], spare[1])
    pooled[:] = 0
    for t in range(0, length - 3, 4):
        for i in range(heads):
            for k in range(hidden):
                for c in range(count):
                    pooled[i, k, c] += (
                        a[i, t, c] * u[k, t, c]
                        + a[i, t + 1, c] * u[k, t + 1, c]
                        + a[i, t + 2, c] * u[k, t + 2, c]
                        + a[i, t + 3, c] * u[k, t + 3, c]
                    )
    for t in range(length - length % 4, length):
        for i in range(heads):
            for k in range(hidden):
                for c in range(count):
                    pooled[i, k, c] += a[i, t, c] * u[k, t, c]


@inner
def _score_gradient(a: Any, dr: Any, best: Any, at_best: Any, total: Any) -> None:
    """Turn da[length, count] of one head into dr(t) = a(t)·(da(t) − Σ_s a(s) da(s)), in place.

    First the da of the token with the largest weight is subtracted from all, which changes nothing in exact arithmetic.
    Without this a saturated head would subtract two nearly equal numbers and keep only rounding errors.
    """
    length, count = a.shape
    for c in range(count):
        best[c], at_best[c], total[c] = a[0, c], dr[0, c], 0
    for t in range(1, length):
        for c in range(count):
            heavier = a[t, c] > best[c]
            best[c] = a[t, c] if heavier else best[c]
            at_best[c] = dr[t, c] if heavier else at_best[c]
    for t in range(length):
        for c in range(count):
            value = dr[t, c] - at_best[c]
            dr[t, c] = value
            total[c] += a[t, c] * value
    for t in range(length):
        for c in range(count):
            dr[t, c] = a[t, c] * (dr[t, c] - total[c])


@inner
def pool_backward(
    x: Any,
    score: Any,
    u: Any,
    a: Any,
    d_pooled: Any,
    dr: Any,
    du: Any,
    spare: Any,
    d_W1: Any,
    d_hidden_bias: Any,
    d_score: Any,
    d_score_bias: Any,
) -> None:
    """Add the block's gradients of W1, hidden_bias, score and score_bias, given d_pooled[heads, hidden, count].

    With da_i(t) = dp_i·u(t):  dr_i(t) = a_i(t)·(da_i(t) − Σ a_i da_i),  du(t) = Σ_i a_i(t)·dp_i + dr_i(t)·score_i
    where u(t) > 0, and 0 elsewhere. dr[heads, length, count], du[length, count] and spare[3, count] are scratch.
    """
    hidden, length, count = u.shape
    heads, dim, zero = a.shape[0], x.shape[0], u.dtype.type(0)
    dr[:] = 0
    for k in range(0, hidden, 4):
        for i in range(heads):
            for t in range(length):
                for c in range(count):
                    dr[i, t, c] += (
                        d_pooled[i, k, c] * u[k, t, c]
                        + d_pooled[i, k + 1, c] * u[k + 1, t, c]
                        + d_pooled[i, k + 2, c] * u[k + 2, t, c]
                        + d_pooled[i, k + 3, c] * u[k + 3, t, c]
                    )
    for i in range(heads):
        _score_gradient(a[i], dr[i], spare[0], spare[1], spare[2])
        for t in range(d_score_bias.shape[1]):
            total = zero
            for c in range(count):
                total += dr[i, t, c]
            d_score_bias[i, t] += total
    parts, n = d_hidden_bias.shape[0], length * count
    xs, us, dus = x.reshape(dim, parts, -1), u.reshape(hidden, parts, -1), du.reshape(parts, -1)
    add_products_of_rows(dr.reshape(heads, n), u.reshape(hidden, n), d_score)
    for k in range(hidden):
        du[:] = 0
        for i in range(0, heads - 1, 2):
            s0, s1 = score[i, k], score[i + 1, k]
            for t in range(length):
                for c in range(count):
                    du[t, c] += (
                        a[i, t, c] * d_pooled[i, k, c]
                        + dr[i, t, c] * s0
                        + a[i + 1, t, c] * d_pooled[i + 1, k, c]
                        + dr[i + 1, t, c] * s1
                    )
        for i in range(heads - heads % 2, heads):
            s0 = score[i, k]
            for t in range(length):
                for c in range(count):
                    du[t, c] += a[i, t, c] * d_pooled[i, k, c] + dr[i, t, c] * s0
        for s in range(parts):
            total = zero
            for j in range(0, dim, 4):
                g0, g1, g2, g3, total = zero, zero, zero, zero, zero
                for c in range(dus.shape[1]):
                    value = dus[s, c] if us[k, s, c] > zero else zero
                    total += value
                    g0 += value * xs[j, s, c]
                    g1 += value * xs[j + 1, s, c]
                    g2 += value * xs[j + 2, s, c]
                    g3 += value * xs[j + 3, s, c]
                d_W1[k, j] += g0
                d_W1[k, j + 1] += g1
                d_W1[k, j + 2] += g2
                d_W1[k, j + 3] += g3
            d_hidden_bias[s, k] += total
