"""A whole training step on one core, in numba: fold; gather, pool, feed forward and back by blocks; unfold; Adam.

The only query is the constant class token, so a one-layer model collapses (W2, b2: the encoder's outer layer; F1, f1:
the first layer of F):

    score_i = β_i · W2ᵀ W_K,iᵀ W_Q,i c                      one vector per head; b2 shifts all scores and cancels
    A_i     = W_V,i W2,   v_i = W_V,i b2,   B_i = F1 W_O,i,   g = F1 c + f1
    y       = F2 act( Σ_i B_i (A_i p_i + v_i) + g ) + f2     p_i the pooled hidden state of head i

`_fold` computes score, A, v, B and g from the weights, once per step; the batch needs only these; `_unfold` applies the
chain rule, product by product in reverse, to get the gradients of the weights. Function and gradient are those of the
reference, which the tests verify. Weights, gradients and Adam's moments are flat vectors; `offsets` says where each
tensor begins (`models/transformer/flat.py`), with −1 for a tensor that the model does not have.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg.cython_blas  # noqa: F401 (else numba loads it at the first product, too late to limit its threads)
from numba import from_dtype, types

from headcount.kernels.pool.numba import (
    add_product,
    add_products_of_rows,
    block_size,
    compiled,
    inner,
    padded,
    pool_backward,
    pool_forward,
)
from headcount.kernels.step.numba_math import normal

# The order of the tensors in `offsets`.
TENSORS = (
    "class_token",
    "encoder.inner.weight",
    "encoder.inner.bias",
    "encoder.hidden_bias",
    "encoder.outer.weight",
    "encoder.outer.bias",
    "attention.query",
    "attention.key",
    "attention.value",
    "attention.output",
    "attention.gates",
    "attention.log_beta",
    "feedforward.0.weight",
    "feedforward.0.bias",
    "feedforward.1.weight",
    "feedforward.1.bias",
)
C, W1, B1, HB, W2, B2, WQ, WK, WV, WO, GATES, LOG_BETA, F1, BF1, F2, BF2 = range(16)


@inner
def _matrix(flat: Any, offset: int, rows: int, columns: int) -> Any:
    return flat[offset : offset + rows * columns].reshape(rows, columns)


@inner
def _copy(a: Any, out: Any) -> None:
    """Copy the part that both shapes share. Sums and copies are loops: numba compiles array expressions for seconds."""
    for i in range(min(a.shape[0], out.shape[0])):
        for j in range(min(a.shape[1], out.shape[1])):
            out[i, j] = a[i, j]


@inner
def _fold(theta: Any, offsets: Any, sizes: Any, beta: float) -> Any:
    """Return the folded weights that the batch needs, and the intermediate products that `_unfold` needs.

    Both functions always compute in float64: they are a small part of the work, scores are exponents, so that their
    absolute error matters, and products of several matrices lose digits.
    """
    d, T, N, E, h, n, K, _ = sizes
    hn, N4 = h * n, padded(N)
    c = theta[offsets[C] : offsets[C] + E]
    betas = np.empty(h)
    for i in range(h):
        betas[i] = np.exp(theta[offsets[LOG_BETA] + i]) if offsets[LOG_BETA] >= 0 else beta
    w1 = np.zeros((N4, padded(d)))
    _copy(_matrix(theta, offsets[W1], N, d), w1)
    rows = T if offsets[HB] >= 0 else 1
    hidden_bias = np.zeros((rows, N4))
    for t in range(rows):
        for k in range(N):
            hidden_bias[t, k] = theta[offsets[B1] + k]
            if offsets[HB] >= 0:
                hidden_bias[t, k] += theta[offsets[HB] + t * N + k]
    w2 = np.zeros((E, N4))
    _copy(_matrix(theta, offsets[W2], E, N), w2)
    wk = _matrix(theta, offsets[WK], hn, E)
    q = np.dot(_matrix(theta, offsets[WQ], hn, E), c)
    kq = np.zeros((h, E))
    for j in range(hn):
        for e in range(E):
            kq[j // n, e] += q[j] * wk[j, e]
    score = np.dot(kq, w2)
    score_bias = np.empty((h, T if offsets[GATES] >= 0 else 0))
    for i in range(h):
        for k in range(N4):
            score[i, k] *= betas[i]
        for t in range(score_bias.shape[1]):
            score_bias[i, t] = betas[i] * theta[offsets[GATES] + i * T + t]
    wo = np.empty((hn, E))  # W_O,iᵀ, head under head
    for i in range(h):
        block = _matrix(theta, offsets[WO] + i * E * n, E, n)
        for j in range(n):
            for e in range(E):
                wo[i * n + j, e] = block[e, j]
    wv, f1 = _matrix(theta, offsets[WV], hn, E), _matrix(theta, offsets[F1], K, E)
    A = np.dot(wv, w2)  # W_V,i W2, [heads·head_dim, hidden]
    B = np.dot(f1, wo.T)  # F1 W_O,i, [hidden_ff, heads·head_dim]
    v = np.dot(wv, theta[offsets[B2] : offsets[B2] + E])
    g = np.dot(f1, c)
    for k in range(K):
        g[k] += theta[offsets[BF1] + k]
    return (w1, hidden_bias, score, score_bias, A, v, B, g), (betas, w2, q, kq, wo)


@inner
def _unfold(theta: Any, offsets: Any, sizes: Any, folded: Any, between: Any, gradients: Any) -> Any:
    """Return the gradient of every weight but F's second layer, in the reverse order of `_fold`."""
    d, T, N, E, h, n, K, _ = sizes
    hn = h * n
    grad = np.zeros_like(theta)
    score, score_bias = folded[2], folded[3]
    betas, w2, q, kq, wo = between
    d_w1, d_hidden_bias, d_score, d_score_bias, d_A, d_B, d_g = gradients
    c, b2 = theta[offsets[C] : offsets[C] + E], theta[offsets[B2] : offsets[B2] + E]
    wq, wk = _matrix(theta, offsets[WQ], hn, E), _matrix(theta, offsets[WK], hn, E)
    wv, f1 = _matrix(theta, offsets[WV], hn, E), _matrix(theta, offsets[F1], K, E)
    _copy(d_w1, _matrix(grad, offsets[W1], N, d))
    for t in range(d_hidden_bias.shape[0]):
        for k in range(N):
            grad[offsets[B1] + k] += d_hidden_bias[t, k]
    if offsets[HB] >= 0:
        _copy(d_hidden_bias, _matrix(grad, offsets[HB], T, N))
    d_f1 = _matrix(grad, offsets[F1], K, E)
    np.dot(d_B, wo, d_f1)
    for k in range(K):
        for e in range(E):
            d_f1[k, e] += d_g[k] * c[e]
        grad[offsets[BF1] + k] = d_g[k]
    d_wo = np.dot(d_B.T, f1)
    for i in range(h):
        block = _matrix(grad, offsets[WO] + i * E * n, E, n)
        for j in range(n):
            for e in range(E):
                block[e, j] = d_wo[i * n + j, e]
    d_c = np.dot(d_g, f1)
    d_v = np.dot(wo, d_c)
    d_wv = _matrix(grad, offsets[WV], hn, E)
    np.dot(d_A, w2.T, d_wv)
    for j in range(hn):
        for e in range(E):
            d_wv[j, e] += d_v[j] * b2[e]
    np.dot(d_v, wv, grad[offsets[B2] : offsets[B2] + E])
    d_raw = np.empty_like(score)
    for i in range(h):
        total = 0.0
        for k in range(score.shape[1]):
            d_raw[i, k] = betas[i] * d_score[i, k]
            total += d_score[i, k] * score[i, k]
        for t in range(score_bias.shape[1]):
            total += d_score_bias[i, t] * score_bias[i, t]
            grad[offsets[GATES] + i * T + t] = betas[i] * d_score_bias[i, t]
        if offsets[LOG_BETA] >= 0:
            grad[offsets[LOG_BETA] + i] = total
    d_w2, by_value, by_key = _matrix(grad, offsets[W2], E, N), np.dot(wv.T, d_A), np.dot(kq.T, d_raw)
    for e in range(E):
        for k in range(N):
            d_w2[e, k] = by_value[e, k] + by_key[e, k]
    d_kq = np.dot(d_raw, w2.T)
    d_q = np.zeros_like(q)
    d_wk, d_wq = _matrix(grad, offsets[WK], hn, E), _matrix(grad, offsets[WQ], hn, E)
    for j in range(hn):
        for e in range(E):
            d_q[j] += wk[j, e] * d_kq[j // n, e]
            d_wk[j, e] = q[j] * d_kq[j // n, e]
        for e in range(E):
            d_wq[j, e] = d_q[j] * c[e]
    by_query = np.dot(d_q, wq)
    for e in range(E):
        grad[offsets[C] + e] = d_c[e] + by_query[e]
    return grad


@inner
def _narrow(folded: Any, dtype: Any) -> Any:
    """Return the folded weights in the precision of the batch."""
    w1, hidden_bias, score, score_bias, A, v, B, g = folded
    return (
        w1.astype(dtype),
        hidden_bias.astype(dtype),
        score.astype(dtype),
        score_bias.astype(dtype),
        A.astype(dtype),
        v.astype(dtype),
        B.astype(dtype),
        g.astype(dtype),
    )


@inner
def _work(theta: Any, sizes: Any, batch: int, length: int) -> Any:
    """Return the workspace that all blocks share; allocating it in each step would cost fresh pages."""
    d, _, N, _, h, n, K, _ = sizes
    count = block_size(batch, length)
    tokens, rest = padded(d) + padded(N) + 2 * h + 1, 2 * h * padded(N) + h * n + 2 * K + 3
    return np.empty((tokens * length + rest) * count, theta.dtype), np.empty(length * count, np.bool_)


@inner
def _cut(memory: Any, start: int, i: int, j: int, k: int) -> Any:
    return memory[start : start + i * j * k].reshape(i, j, k)


@inner
def _views(work: Any, sizes: Any, length: int, count: int) -> Any:
    """Return x, u, a, dr, du, pooled, d_pooled, o, pre, d_pre and three spare rows as views, sequences innermost."""
    d, _, N, _, h, n, K, _ = sizes
    d4, N4, tokens, memory = padded(d), padded(N), length * count, work[0]
    u = d4 * tokens
    a = u + N4 * tokens
    dr = a + h * tokens
    du = dr + h * tokens
    pooled = du + tokens
    d_pooled = pooled + h * N4 * count
    o = d_pooled + h * N4 * count
    pre = o + h * n * count
    d_pre = pre + K * count
    spare = d_pre + K * count
    return (
        _cut(memory, 0, d4, length, count),
        _cut(memory, u, N4, length, count),
        _cut(memory, a, h, length, count),
        _cut(memory, dr, h, length, count),
        _matrix(memory, du, length, count),
        _cut(memory, pooled, h, N4, count),
        _cut(memory, d_pooled, h, N4, count),
        _matrix(memory, o, h * n, count),
        _matrix(memory, pre, K, count),
        _matrix(memory, d_pre, K, count),
        _matrix(memory, spare, 3, count),
    )


@inner
def _gather(X: Any, masks: Any, rows: Any, x: Any, known: Any) -> Any:
    """Copy the chosen sequences into x[dim, length, count]; return mask[length, count], empty if there is no mask."""
    length, count, dim = x.shape[1], x.shape[2], X.shape[2]
    for t in range(length):
        for j in range(dim):
            for c in range(count):
                x[j, t, c] = X[rows[c], t, j]
    x[dim:] = 0
    mask = known[: length * count].reshape(length, count)[: length if masks.shape[0] > 0 else 0]
    for t in range(mask.shape[0]):
        for c in range(count):
            mask[t, c] = masks[rows[c], t]
    return mask


@inner
def _feed(A: Any, v: Any, B: Any, g: Any, pooled: Any, o: Any, pre: Any) -> None:
    """Fill o_i = A_i p_i + v_i and pre = B o + g (the hidden layer of F before activation) from the pooled states."""
    n = A.shape[0] // pooled.shape[0]
    for j in range(o.shape[0]):
        o[j] = v[j]
    for i in range(pooled.shape[0]):
        add_product(A[i * n : (i + 1) * n], pooled[i], o[i * n : (i + 1) * n])
    for k in range(pre.shape[0]):
        pre[k] = g[k]
    add_product(B, o, pre)


@inner
def _activate(pre: Any, slope: Any, gelu: bool) -> None:
    """Apply the activation in place, and fill `slope` with its derivative."""
    one, zero = pre.dtype.type(1), pre.dtype.type(0)
    for k in range(pre.shape[0]):
        if gelu:
            for c in range(pre.shape[1]):
                value = pre[k, c]
                below, density = normal(value)
                slope[k, c] = below + value * density
                pre[k, c] = value * below
        else:
            for c in range(pre.shape[1]):
                value = pre[k, c]
                slope[k, c] = one if value > zero else zero
                pre[k, c] = zero if value < zero else value


@inner
def _back(
    theta: Any,
    grad: Any,
    offsets: Any,
    f2: Any,
    d_f2: Any,
    gelu: bool,
    Y: Any,
    rows: Any,
    scale: float,
    A: Any,
    B: Any,
    pooled: Any,
    o: Any,
    act: Any,
    d_pre: Any,
    d_pooled: Any,
    d_A: Any,
    d_B: Any,
    d_g: Any,
) -> float:
    """Return the sum of squared errors of a block; add the gradients of F and of A, B and g, and fill d_pooled."""
    _activate(act, d_pre, gelu)
    error = np.dot(f2, act)
    loss = 0.0
    for m in range(error.shape[0]):
        total = theta.dtype.type(0)
        for c in range(error.shape[1]):
            difference = error[m, c] + theta[offsets[BF2] + m] - Y[rows[c], m]
            loss += difference * difference
            error[m, c] = scale * difference
            total += error[m, c]
        grad[offsets[BF2] + m] += total
    add_products_of_rows(error, act, d_f2)
    act[:] = 0  # the activations are not needed any more
    add_product(f2.T, error, act)
    for k in range(act.shape[0]):
        total = theta.dtype.type(0)
        for c in range(act.shape[1]):
            d_pre[k, c] *= act[k, c]
            total += d_pre[k, c]
        d_g[k] += total
    add_products_of_rows(d_pre, o, d_B)
    o[:] = 0  # from here on d_o, in the memory of o
    add_product(B.T, d_pre, o)
    d_pooled[:] = 0
    n = A.shape[0] // pooled.shape[0]
    for i in range(pooled.shape[0]):
        add_products_of_rows(o[i * n : (i + 1) * n], pooled[i], d_A[i * n : (i + 1) * n])
        add_product(A[i * n : (i + 1) * n].T, o[i * n : (i + 1) * n], d_pooled[i])
    return loss


@inner
def loss_and_gradient(
    theta: Any,
    offsets: Any,
    sizes: Any,
    beta: float,
    gelu: bool,
    X: Any,
    masks: Any,
    Y: Any,
    rows: Any,
    grad: Any,
    work: Any,
) -> float:
    """Return the mean squared error on the chosen rows of X[samples, length, dim]; fill the flat gradient."""
    exact = theta.astype(np.float64)
    folded, between = _fold(exact, offsets, sizes, beta)
    w1, hidden_bias, score, score_bias, A, v, B, g = _narrow(folded, theta.dtype)
    d_w1, d_hidden_bias = np.zeros_like(w1), np.zeros_like(hidden_bias)
    d_score, d_score_bias = np.zeros_like(score), np.zeros_like(score_bias)
    d_A, d_B, d_g = np.zeros_like(A), np.zeros_like(B), np.zeros_like(g)
    grad[:] = 0
    batch, length, K, out = rows.shape[0], X.shape[1], sizes[6], sizes[7]
    f2, d_f2 = _matrix(theta, offsets[F2], out, K), _matrix(grad, offsets[F2], out, K)
    scale = theta.dtype.type(2.0 / (batch * out))
    size = block_size(batch, length)
    loss = 0.0
    for first in range(0, batch, size):
        some = rows[first : first + size]
        x, u, a, dr, du, pooled, d_pooled, o, pre, d_pre, spare = _views(work, sizes, length, some.shape[0])
        mask = _gather(X, masks, some, x, work[1])
        pool_forward(x, w1, hidden_bias, score, score_bias, mask, u, a, pooled, spare)
        _feed(A, v, B, g, pooled, o, pre)
        loss += _back(
            theta, grad, offsets, f2, d_f2, gelu, Y, some, scale, A, B, pooled, o, pre, d_pre, d_pooled, d_A, d_B, d_g
        )
        pool_backward(x, score, u, a, d_pooled, dr, du, spare, d_w1, d_hidden_bias, d_score, d_score_bias)
    gradients = (
        d_w1.astype(np.float64),
        d_hidden_bias.astype(np.float64),
        d_score.astype(np.float64),
        d_score_bias.astype(np.float64),
        d_A.astype(np.float64),
        d_B.astype(np.float64),
        d_g.astype(np.float64),
    )
    rest = _unfold(exact, offsets, sizes, folded, between, gradients)
    for j in range(grad.shape[0]):  # at each place only one of the two is not 0
        grad[j] += rest[j]
    return loss / (batch * out)


@inner
def adam(theta: Any, grad: Any, first: Any, second: Any, step: int, rate: float, decay: float, decoupled: bool) -> None:
    """Take one step of Adam (decay is added to the gradient) or AdamW (decoupled), as torch defines them; step ≥ 1."""
    one = theta.dtype.type(1)
    beta1, beta2, eps = theta.dtype.type(0.9), theta.dtype.type(0.999), theta.dtype.type(1e-8)
    size = theta.dtype.type(rate / (1.0 - 0.9**step))
    root = theta.dtype.type(1.0 / np.sqrt(1.0 - 0.999**step))
    shrink, pull = theta.dtype.type(1.0 - rate * decay), theta.dtype.type(decay)
    for j in range(theta.shape[0]):
        g = grad[j]
        if decoupled:
            theta[j] *= shrink
        else:
            g += pull * theta[j]
        first[j] = beta1 * first[j] + (one - beta1) * g
        second[j] = beta2 * second[j] + (one - beta2) * g * g
        theta[j] -= size * first[j] / (np.sqrt(second[j]) * root + eps)


@inner
def _train(
    theta: Any,
    first: Any,
    second: Any,
    offsets: Any,
    sizes: Any,
    beta: float,
    gelu: bool,
    X: Any,
    Y: Any,
    masks: Any,
    index: Any,
    rates: Any,
    done: int,
    decay: float,
    decoupled: bool,
    losses: Any,
) -> int:
    """Take len(rates) steps on batches of X[samples, length, dim] chosen by index[steps, batch]; return how many.

    Stops before a step whose loss is not finite, and leaves the weights as they were.
    """
    work = _work(theta, sizes, index.shape[1], X.shape[1])
    grad = np.empty_like(theta)
    for s in range(index.shape[0]):
        loss = loss_and_gradient(theta, offsets, sizes, beta, gelu, X, masks, Y, index[s], grad, work)
        losses[s] = loss
        if rates.shape[0] == 0:  # only the gradient is wanted
            first[:] = grad
            return 0
        if not np.isfinite(loss):
            return s
        adam(theta, grad, first, second, done + s + 1, rates[s], decay, decoupled)
    return index.shape[0]


@inner
def _predict(theta: Any, offsets: Any, sizes: Any, beta: float, gelu: bool, X: Any, masks: Any, y: Any) -> None:
    """Fill y[samples, out_dim] for X[samples, length, dim]."""
    K, out = sizes[6], sizes[7]
    samples, length = X.shape[:2]
    folded, _ = _fold(theta.astype(np.float64), offsets, sizes, beta)
    w1, hidden_bias, score, score_bias, A, v, B, g = _narrow(folded, theta.dtype)
    work = _work(theta, sizes, samples, length)
    f2 = _matrix(theta, offsets[F2], out, K)
    every, size = np.arange(samples), block_size(samples, length)
    for start in range(0, samples, size):
        some = every[start : start + size]
        x, u, a, _, _, pooled, _, o, pre, slope, spare = _views(work, sizes, length, some.shape[0])
        mask = _gather(X, masks, some, x, work[1])
        pool_forward(x, w1, hidden_bias, score, score_bias, mask, u, a, pooled, spare)
        _feed(A, v, B, g, pooled, o, pre)
        _activate(pre, slope, gelu)
        part = np.dot(f2, pre)
        for c in range(some.shape[0]):
            for m in range(out):
                y[start + c, m] = part[m, c] + theta[offsets[BF2] + m]


@compiled
def run(
    theta: Any,
    first: Any,
    second: Any,
    offsets: Any,
    sizes: Any,
    beta: float,
    gelu: bool,
    X: Any,
    Y: Any,
    masks: Any,
    index: Any,
    rates: Any,
    done: int,
    decay: float,
    decoupled: bool,
    losses: Any,
) -> int:
    """Train; without rates put the gradient for index's single row into `first`; without index put predictions into Y.

    There is one entry point for all three, because numba links an entry point with its own, separately optimised copies
    of the functions that it calls, but a process that holds several copies of one name runs the first: with three entry
    points the last bits of a gradient depended on what had been called or compiled before.
    """
    if index.shape[0] == 0:
        _predict(theta, offsets, sizes, beta, gelu, X, masks, Y)
        return 0
    return _train(
        theta, first, second, offsets, sizes, beta, gelu, X, Y, masks, index, rates, done, decay, decoupled, losses
    )


def signature(dtype: str) -> Any:
    """Return the types of `run`'s arguments in a precision, with all arrays in C order."""
    number = from_dtype(np.dtype(dtype))
    vector, table, whole = number[::1], number[:, ::1], types.int64
    return (
        vector,
        vector,
        vector,
        whole[::1],
        types.UniTuple(whole, 8),
        types.float64,
        types.boolean,
        number[:, :, ::1],
        table,
        types.boolean[:, ::1],
        whole[:, ::1],
        types.float64[::1],
        whole,
        types.float64,
        types.boolean,
        types.float64[::1],
    )
