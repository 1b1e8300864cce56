"""A whole training step on one core, in numba: gather, fold, pool, feed forward, back, unfold, Adam.

Attention asks with the constant class token only, so a one-layer model collapses (W2, b2 the encoder's outer layer,
F1, f1 the first layer of F):

    score_i = β_i · W2ᵀ W_K,iᵀ W_Q,i c                      one vector a head; b2 shifts all scores alike and drops out
    G_i     = F1 W_O,i W_V,i W2,   g = F1 (c + Σ_i W_O,i W_V,i b2) + f1
    y       = F2 act( Σ_i G_i p_i + g ) + f2                 p_i the pooled hidden state of head i

`_fold` makes score, G and g from the weights, once a step; the batch meets these alone; `_unfold` takes their
gradients back to the weights by the chain rule, product by product in reverse. It is the same function and the same
gradient as the reference's, and the tests compare both. Weights, gradients and Adam's moments are flat vectors;
`offsets` says where each tensor begins (`models/flat.py`), −1 for one that the model does not have.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from headcount.kernels.cpu_math import normal
from headcount.kernels.cpu_pool import MATHS, pool_backward, pool_forward

# The order of the tensors in `offsets`.
TENSORS = (
    "class_token", "encoder.inner.weight", "encoder.inner.bias", "encoder.hidden_bias", "encoder.outer.weight",
    "encoder.outer.bias", "attention.query", "attention.key", "attention.value", "attention.output",
    "attention.gates", "attention.log_beta", "feedforward.0.weight", "feedforward.0.bias", "feedforward.1.weight",
    "feedforward.1.bias",
)  # fmt: skip
C, W1, B1, HB, W2, B2, WQ, WK, WV, WO, GATES, LOG_BETA, F1, BF1, F2, BF2 = range(16)


@njit(cache=True, nogil=True, fastmath=MATHS)
def _matrix(flat: Any, offset: int, rows: int, columns: int) -> Any:
    return flat[offset : offset + rows * columns].reshape(rows, columns)


@njit(cache=True, nogil=True, fastmath=MATHS)
def _betas(theta: Any, offsets: Any, heads: int, beta: float) -> Any:
    """β_i: the fixed number, or e to the learned logarithm."""
    out = np.empty(heads, theta.dtype)
    for i in range(heads):
        out[i] = np.exp(theta[offsets[LOG_BETA] + i]) if offsets[LOG_BETA] >= 0 else beta
    return out


@njit(cache=True, nogil=True, fastmath=MATHS)
def _fold(theta: Any, offsets: Any, sizes: Any, betas: Any) -> Any:
    """Return what the batch meets, and the intermediate products that `_unfold` needs."""
    d, T, N, E, h, n, K, _ = sizes
    hn = h * n
    c = theta[offsets[C] : offsets[C] + E]
    w1 = np.ascontiguousarray(_matrix(theta, offsets[W1], N, d).T)
    rows = T if offsets[HB] >= 0 else 1
    hidden_bias = np.empty((rows, N), theta.dtype)
    for t in range(rows):
        for k in range(N):
            hidden_bias[t, k] = theta[offsets[B1] + k]
            if offsets[HB] >= 0:
                hidden_bias[t, k] += theta[offsets[HB] + t * N + k]
    w2 = _matrix(theta, offsets[W2], E, N)
    wq, wk, wv = (
        _matrix(theta, offsets[WQ], hn, E),
        _matrix(theta, offsets[WK], hn, E),
        _matrix(theta, offsets[WV], hn, E),
    )
    q = np.dot(wq, c)
    kq = np.empty((h, E), theta.dtype)
    for i in range(h):
        kq[i] = np.dot(q[i * n : (i + 1) * n], wk[i * n : (i + 1) * n])
    score = np.dot(kq, w2)
    for i in range(h):
        score[i] *= betas[i]
    score_bias = np.empty((h, T if offsets[GATES] >= 0 else 0), theta.dtype)
    for i in range(h):
        for t in range(score_bias.shape[1]):
            score_bias[i, t] = betas[i] * theta[offsets[GATES] + i * T + t]
    wo = np.empty((hn, E), theta.dtype)  # W_O,iᵀ, head under head
    for i in range(h):
        block = _matrix(theta, offsets[WO] + i * E * n, E, n)
        for j in range(n):
            for e in range(E):
                wo[i * n + j, e] = block[e, j]
    f1 = _matrix(theta, offsets[F1], K, E)
    A = np.dot(wv, w2)  # W_V,i W2, [heads·head_dim, hidden]
    B = np.dot(wo, f1.T)  # (F1 W_O,i)ᵀ, [heads·head_dim, hidden_ff]
    G = np.empty((h * N, K), theta.dtype)
    for i in range(h):
        G[i * N : (i + 1) * N] = np.dot(A[i * n : (i + 1) * n].T, B[i * n : (i + 1) * n])
    v = np.dot(wv, theta[offsets[B2] : offsets[B2] + E])
    w = c + np.dot(v, wo)
    g = np.dot(f1, w) + theta[offsets[BF1] : offsets[BF1] + K]
    return w1, hidden_bias, score, score_bias, G, g, q, kq, wo, A, B, v, w


@njit(cache=True, nogil=True, fastmath=MATHS)
def _unfold(
    theta: Any, grad: Any, offsets: Any, sizes: Any, betas: Any, folded: Any, d_w1: Any, d_hidden_bias: Any,
    d_score: Any, d_score_bias: Any, d_G: Any, d_g: Any,
) -> None:  # fmt: skip
    """Fill the gradient of every weight but F's second layer, in the reverse order of `_fold`."""
    d, T, N, E, h, n, K, _ = sizes
    hn = h * n
    _, _, score, score_bias, _, _, q, kq, wo, A, B, v, w = folded
    c = theta[offsets[C] : offsets[C] + E]
    b2 = theta[offsets[B2] : offsets[B2] + E]
    w2, f1 = _matrix(theta, offsets[W2], E, N), _matrix(theta, offsets[F1], K, E)
    wq, wk, wv = (
        _matrix(theta, offsets[WQ], hn, E),
        _matrix(theta, offsets[WK], hn, E),
        _matrix(theta, offsets[WV], hn, E),
    )
    _matrix(grad, offsets[W1], N, d)[:] = d_w1.T
    for k in range(N):
        total = grad.dtype.type(0)
        for t in range(d_hidden_bias.shape[0]):
            total += d_hidden_bias[t, k]
        grad[offsets[B1] + k] = total
    if offsets[HB] >= 0:
        _matrix(grad, offsets[HB], T, N)[:] = d_hidden_bias
    d_A, d_B = np.empty_like(A), np.empty_like(B)
    for i in range(h):
        block = d_G[i * N : (i + 1) * N]
        d_A[i * n : (i + 1) * n] = np.dot(B[i * n : (i + 1) * n], block.T)
        d_B[i * n : (i + 1) * n] = np.dot(A[i * n : (i + 1) * n], block)
    d_w = np.dot(d_g, f1)
    d_v = np.dot(wo, d_w)
    d_wo = np.dot(d_B, f1)
    d_f1 = np.dot(d_B.T, wo)
    for k in range(K):
        for e in range(E):
            d_f1[k, e] += d_g[k] * w[e]
    _matrix(grad, offsets[F1], K, E)[:] = d_f1
    grad[offsets[BF1] : offsets[BF1] + K] = d_g
    for i in range(h):
        block = _matrix(grad, offsets[WO] + i * E * n, E, n)
        for j in range(n):
            for e in range(E):
                block[e, j] = d_wo[i * n + j, e] + v[i * n + j] * d_w[e]
    d_wv = np.dot(d_A, w2.T)
    for j in range(hn):
        for e in range(E):
            d_wv[j, e] += d_v[j] * b2[e]
    _matrix(grad, offsets[WV], hn, E)[:] = d_wv
    grad[offsets[B2] : offsets[B2] + E] = np.dot(d_v, wv)
    d_raw = np.empty_like(score)
    for i in range(h):
        d_raw[i] = betas[i] * d_score[i]
        if offsets[LOG_BETA] >= 0:
            total = np.dot(d_score[i], score[i])
            for t in range(score_bias.shape[1]):
                total += d_score_bias[i, t] * score_bias[i, t]
            grad[offsets[LOG_BETA] + i] = total
        for t in range(score_bias.shape[1]):
            grad[offsets[GATES] + i * T + t] = betas[i] * d_score_bias[i, t]
    _matrix(grad, offsets[W2], E, N)[:] = np.dot(wv.T, d_A) + np.dot(kq.T, d_raw)
    d_kq = np.dot(d_raw, w2.T)
    d_q = np.empty_like(q)
    d_wk = _matrix(grad, offsets[WK], hn, E)
    d_wq = _matrix(grad, offsets[WQ], hn, E)
    for i in range(h):
        d_q[i * n : (i + 1) * n] = np.dot(wk[i * n : (i + 1) * n], d_kq[i])
    for j in range(hn):
        for e in range(E):
            d_wk[j, e] = q[j] * d_kq[j // n, e]
            d_wq[j, e] = d_q[j] * c[e]
    grad[offsets[C] : offsets[C] + E] = d_w + np.dot(d_q, wq)


@njit(cache=True, nogil=True, fastmath=MATHS)
def _feedforward(pooled: Any, folded: Any, theta: Any, grad: Any, offsets: Any, sizes: Any, y: Any, gelu: bool) -> Any:
    """Return the loss, d_pooled, d_G and d_g; fill the gradient of F's second layer."""
    K, out = sizes[6], sizes[7]
    G, g = folded[4], folded[5]
    f2 = _matrix(theta, offsets[F2], out, K)
    batch = pooled.shape[0]
    one, zero = theta.dtype.type(1), theta.dtype.type(0)
    pre = np.dot(pooled, G)
    slope = np.empty_like(pre)
    for b in range(batch):
        for k in range(K):
            value = pre[b, k] + g[k]
            if gelu:
                below, density = normal(value)
                slope[b, k] = below + value * density
                pre[b, k] = value * below
            else:
                slope[b, k] = one if value > zero else zero
                pre[b, k] = max(value, zero)
    error = np.dot(pre, f2.T)
    loss = 0.0
    scale = theta.dtype.type(2.0 / (batch * out))
    for b in range(batch):
        for o in range(out):
            difference = error[b, o] + theta[offsets[BF2] + o] - y[b, o]
            loss += difference * difference
            error[b, o] = scale * difference
    _matrix(grad, offsets[F2], out, K)[:] = np.dot(error.T, pre)
    for o in range(out):
        grad[offsets[BF2] + o] = error[:, o].sum()
    d_pre = np.dot(error, f2)
    d_g = np.zeros_like(g)
    for b in range(batch):
        for k in range(K):
            d_pre[b, k] *= slope[b, k]
            d_g[k] += d_pre[b, k]
    return loss / (batch * out), np.dot(d_pre, G.T), np.dot(pooled.T, d_pre), d_g


@njit(cache=True, nogil=True, fastmath=MATHS)
def loss_and_gradient(
    theta: Any, offsets: Any, sizes: Any, beta: float, gelu: bool, x: Any, mask: Any, y: Any, grad: Any
) -> float:
    """Return the mean squared error on a batch x[batch·length, dim], y[batch, out_dim]; fill the flat gradient."""
    N, h = sizes[2], sizes[4]
    batch = y.shape[0]
    betas = _betas(theta, offsets, h, beta)
    folded = _fold(theta, offsets, sizes, betas)
    w1, hidden_bias, score, score_bias = folded[0], folded[1], folded[2], folded[3]
    pooled = np.empty((batch, h, N), theta.dtype)
    a = np.empty((batch, h * (x.shape[0] // batch)), theta.dtype)
    pool_forward(x, w1, hidden_bias, score, score_bias, mask, pooled, a)
    loss, d_pooled, d_G, d_g = _feedforward(pooled.reshape(batch, h * N), folded, theta, grad, offsets, sizes, y, gelu)
    d_w1, d_hidden_bias = np.empty_like(w1), np.empty_like(hidden_bias)
    d_score, d_score_bias = np.empty_like(score), np.empty_like(score_bias)
    pool_backward(
        x, w1, hidden_bias, score, a, d_pooled.reshape(batch, h, N), d_w1, d_hidden_bias, d_score, d_score_bias
    )
    _unfold(theta, grad, offsets, sizes, betas, folded, d_w1, d_hidden_bias, d_score, d_score_bias, d_G, d_g)
    return loss


@njit(cache=True, nogil=True, fastmath=MATHS)
def adam(theta: Any, grad: Any, first: Any, second: Any, step: int, rate: float, decay: float, decoupled: bool) -> None:
    """One step of Adam (decay joins the gradient) or AdamW (decoupled), as torch counts them; `step` from 1."""
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


@njit(cache=True, nogil=True, fastmath=MATHS)
def train_steps(
    theta: Any, first: Any, second: Any, offsets: Any, sizes: Any, beta: float, gelu: bool,
    X: Any, Y: Any, masks: Any, index: Any, rates: Any, done: int, decay: float, decoupled: bool, losses: Any,
) -> int:  # fmt: skip
    """Take len(rates) steps on batches of X[samples, length, dim] chosen by index[steps, batch]; return how many.

    Stops before a step whose loss is not finite, and leaves the weights as they were.
    """
    batch, length, dim = index.shape[1], X.shape[1], X.shape[2]
    x = np.empty((batch, length, dim), X.dtype)
    y = np.empty((batch, Y.shape[1]), Y.dtype)
    mask = np.empty((batch if masks.shape[0] > 0 else 0, length), np.bool_)
    grad = np.zeros_like(theta)
    for s in range(index.shape[0]):
        for b in range(batch):
            row = index[s, b]
            x[b] = X[row]
            y[b] = Y[row]
            if masks.shape[0] > 0:
                mask[b] = masks[row]
        flat = x.reshape(batch * length, dim)
        loss = loss_and_gradient(theta, offsets, sizes, beta, gelu, flat, mask, y, grad)
        losses[s] = loss
        if not np.isfinite(loss):
            return s
        adam(theta, grad, first, second, done + s + 1, rates[s], decay, decoupled)
    return index.shape[0]


@njit(cache=True, nogil=True, fastmath=MATHS)
def predict(theta: Any, offsets: Any, sizes: Any, beta: float, gelu: bool, X: Any, masks: Any) -> Any:
    """Return y[samples, out_dim] for X[samples, length, dim]."""
    N, h, K, out = sizes[2], sizes[4], sizes[6], sizes[7]
    samples, length, dim = X.shape
    betas = _betas(theta, offsets, h, beta)
    folded = _fold(theta, offsets, sizes, betas)
    pooled = np.empty((samples, h, N), theta.dtype)
    a = np.empty((samples, h * length), theta.dtype)
    flat = X.reshape(samples * length, dim)
    pool_forward(flat, folded[0], folded[1], folded[2], folded[3], masks, pooled, a)
    act = np.dot(pooled.reshape(samples, h * N), folded[4])
    zero = theta.dtype.type(0)
    for b in range(samples):
        for k in range(K):
            value = act[b, k] + folded[5][k]
            act[b, k] = value * normal(value)[0] if gelu else max(value, zero)
    y = np.dot(act, _matrix(theta, offsets[F2], out, K).T)
    for b in range(samples):
        for o in range(out):
            y[b, o] += theta[offsets[BF2] + o]
    return y
