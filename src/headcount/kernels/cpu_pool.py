"""The hot operation on a CPU, in numba: tokens → pooled hidden state per head, forward and backward.

    u(t)    = relu(W1 x(t) + hidden_bias(t))                 hidden layer of the encoder, [hidden]
    a_i(t)  = softmax over t of score_i·u(t) + score_bias_i(t)
    p_i     = Σ_t a_i(t)·u(t)                                pooled, [heads, hidden]

The hidden layer is made for a block of sequences at a time, small enough for the cache, and made again in the
backward pass; only the weights a[heads, batch·length] are kept. Products of matrices go to BLAS; what is left are
loops along contiguous memory, which LLVM vectorises. No fast-math that could hide a NaN: divergence must be seen.
One call runs on one core (`nogil`): the engine runs a trial a core, so a trial never depends on its neighbours.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from headcount.kernels.cpu_math import exp

BLOCK_TOKENS = 1024  # 1024 tokens × 32 hidden units × 4 bytes = 128 KB: half of a small L2 cache
MATHS = {"contract", "reassoc", "nsz", "arcp"}


@njit(cache=True, nogil=True, fastmath=MATHS)
def _hidden(x: Any, W1: Any, hidden_bias: Any, length: int, u: Any) -> None:
    """U = relu(x W1 + hidden_bias); hidden_bias has one row for all positions, or one for each."""
    np.dot(x, W1, u)
    rows = hidden_bias.shape[0]
    zero = u.dtype.type(0)
    for t in range(u.shape[0]):
        row = t % length if rows > 1 else 0
        for k in range(u.shape[1]):
            u[t, k] = max(u[t, k] + hidden_bias[row, k], zero)


@njit(cache=True, nogil=True, fastmath=MATHS)
def _weights(a: Any, score_bias: Any, mask: Any, first: int, count: int, length: int) -> None:
    """Turn scores a[heads, tokens] of a block of sequences into softmax weights, in place."""
    for i in range(a.shape[0]):
        row = a[i]
        for c in range(count):
            start = c * length
            if score_bias.shape[1] > 0:
                for t in range(length):
                    row[start + t] += score_bias[i, t]
            if mask.shape[0] > 0:
                for t in range(length):
                    if not mask[first + c, t]:
                        row[start + t] = -np.inf
            top = row[start]
            for t in range(1, length):
                top = max(top, row[start + t])
            for t in range(length):
                row[start + t] -= top
        for t in range(count * length):
            row[t] = exp(row[t])
        for c in range(count):
            start = c * length
            if mask.shape[0] > 0:
                for t in range(length):
                    if not mask[first + c, t]:
                        row[start + t] = 0
            total = row[start]
            for t in range(1, length):
                total += row[start + t]
            scale = row.dtype.type(1) / total
            for t in range(length):
                row[start + t] *= scale


@njit(cache=True, nogil=True, fastmath=MATHS)
def pool_forward(
    x: Any, W1: Any, hidden_bias: Any, score: Any, score_bias: Any, mask: Any, pooled: Any, a: Any
) -> None:
    """Fill pooled[batch, heads, hidden] and the weights a[batch, heads·length].

    x[batch·length, dim], W1[dim, hidden], hidden_bias[1 or length, hidden], score[heads, hidden],
    score_bias[heads, length] or [heads, 0], mask[batch, length] or [0, 0].
    """
    batch, heads, hidden = pooled.shape
    length = x.shape[0] // batch
    block = max(1, BLOCK_TOKENS // length)
    u = np.empty((block * length, hidden), x.dtype)
    r = np.empty((heads, block * length), x.dtype)
    for first in range(0, batch, block):
        count = min(block, batch - first)
        n = count * length
        ub = u[:n]
        _hidden(x[first * length : first * length + n], W1, hidden_bias, length, ub)
        rb = r if count == block else np.empty((heads, n), x.dtype)
        np.dot(score, ub.T, rb)
        _weights(rb, score_bias, mask, first, count, length)
        for c in range(count):
            for i in range(heads):
                p = pooled[first + c, i]
                w = a[first + c, i * length : (i + 1) * length]
                for k in range(hidden):
                    p[k] = 0
                for t in range(length):
                    w[t] = rb[i, c * length + t]
                t = 0
                while t + 4 <= length:  # four tokens at a time: a quarter of the traffic on p
                    o = c * length + t
                    w0, w1, w2, w3 = w[t], w[t + 1], w[t + 2], w[t + 3]
                    for k in range(hidden):
                        p[k] += w0 * ub[o, k] + w1 * ub[o + 1, k] + w2 * ub[o + 2, k] + w3 * ub[o + 3, k]
                    t += 4
                while t < length:
                    w0 = w[t]
                    for k in range(hidden):
                        p[k] += w0 * ub[c * length + t, k]
                    t += 1


@njit(cache=True, nogil=True, fastmath=MATHS)
def pool_backward(
    x: Any, W1: Any, hidden_bias: Any, score: Any, a: Any, d_pooled: Any,
    d_W1: Any, d_hidden_bias: Any, d_score: Any, d_score_bias: Any,
) -> None:  # fmt: skip
    """Fill the gradients of W1[dim, hidden], hidden_bias, score and score_bias from d_pooled[batch, heads, hidden].

    With da_i(t) = dp_i·u(t):  dr_i(t) = a_i(t)·(da_i(t) − Σ a_i da_i),  du(t) = Σ_i a_i(t)·dp_i + dr_i(t)·score_i
    where u(t) > 0, and 0 elsewhere.
    """
    batch, heads, hidden = d_pooled.shape
    length = x.shape[0] // batch
    block = max(1, BLOCK_TOKENS // length)
    u = np.empty((block * length, hidden), x.dtype)
    du = np.empty((block * length, hidden), x.dtype)
    d_W1[:] = 0
    d_hidden_bias[:] = 0
    d_score[:] = 0
    d_score_bias[:] = 0
    part_W1, part_score = np.empty_like(d_W1), np.empty_like(d_score)
    r = np.empty((heads, block * length), x.dtype)
    for first in range(0, batch, block):
        count = min(block, batch - first)
        n = count * length
        ub, db = u[:n], du[:n]
        xb = x[first * length : first * length + n]
        _hidden(xb, W1, hidden_bias, length, ub)
        dr = r if count == block else np.empty((heads, n), x.dtype)
        for c in range(count):
            for i in range(heads):
                _score_gradient(a[first + c, i * length : (i + 1) * length], ub[c * length : (c + 1) * length],
                                d_pooled[first + c, i], dr[i, c * length : (c + 1) * length])  # fmt: skip
        np.dot(dr.T, score, db)
        for c in range(count):
            _spread(a[first + c], d_pooled[first + c], db[c * length : (c + 1) * length])
        rows = hidden_bias.shape[0]
        for t in range(n):
            row = t % length if rows > 1 else 0
            for k in range(hidden):
                value = db[t, k] if ub[t, k] > 0 else db.dtype.type(0)
                db[t, k] = value
                d_hidden_bias[row, k] += value
        np.dot(xb.T, db, part_W1)
        d_W1 += part_W1
        np.dot(dr, ub, part_score)
        d_score += part_score
        if d_score_bias.shape[1] > 0:
            for i in range(heads):
                for c in range(count):
                    for t in range(length):
                        d_score_bias[i, t] += dr[i, c * length + t]


@njit(cache=True, nogil=True, fastmath=MATHS)
def _score_gradient(a: Any, u: Any, dp: Any, dr: Any) -> None:
    """dr(t) = a(t)·(da(t) − Σ a da) with da(t) = dp·u(t), for one sequence and one head."""
    total = dr.dtype.type(0)
    for t in range(a.shape[0]):
        da = dr.dtype.type(0)
        for k in range(dp.shape[0]):
            da += dp[k] * u[t, k]
        dr[t] = da
        total += a[t] * da
    for t in range(a.shape[0]):
        dr[t] = a[t] * (dr[t] - total)


@njit(cache=True, nogil=True, fastmath=MATHS)
def _spread(a: Any, dp: Any, du: Any) -> None:
    """du(t) += Σ_i a_i(t)·dp_i for one sequence: what pooling passes down directly."""
    heads, hidden = dp.shape
    length = du.shape[0]
    for t in range(length):
        row = du[t]
        i = 0
        while i + 2 <= heads:
            w0, w1, p0, p1 = a[i * length + t], a[(i + 1) * length + t], dp[i], dp[i + 1]
            for k in range(hidden):
                row[k] += w0 * p0[k] + w1 * p1[k]
            i += 2
        if i < heads:
            w0, p0 = a[i * length + t], dp[i]
            for k in range(hidden):
                row[k] += w0 * p0[k]
