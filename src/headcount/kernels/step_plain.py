"""Loss and gradient of a stack of one-layer models in plain PyTorch, in as few operations as the algebra allows.

The same function as `step_triton`, with nothing to compile: for runs that are shorter than a compilation. A GPU takes
about two microseconds for every small operation, however little it does, so the gradient is written out instead of
left to autograd, sums are added in place, and products that autograd would take apart stay whole:

    score_i = β_i q_iᵀ (W_K,i W2)                        q_i = W_Q,i c
    u       = relu(x W1ᵀ + b1)      r_i = score_i·u      a = softmax(r)      p_i = Σ_t a_i u
    A_i     = W_V,i W2              B_i = W_O,iᵀ F1ᵀ     G_i = A_iᵀ B_i      v_i = W_V,i b2
    pre     = Σ_i p_i G_i + g       g   = Σ_i v_iᵀ B_i + cᵀ F1ᵀ + f1
    y       = act(pre) F2ᵀ + f2

d_z is the gradient of z. The twin is autograd through `models/stacked.collapsed`.
"""

# pyright: basic
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

# Where each tensor begins in the flat weights, in the order of `cpu_step.TENSORS`.
PLACES = ("C", "W1", "B1", "HB", "W2", "B2", "WQ", "WK", "WV", "WO", "GT", "LB", "F1", "BF1", "F2", "BF2")
ROWS = 128  # tokens of one product in the gradient of W1: one product of all would keep one multiprocessor busy
_aten: Any = torch.ops.aten


def loss_and_gradient(
    theta: Tensor, offsets: Iterable[int], sizes: tuple[int, ...], gelu: bool, beta: Tensor | float, X: Tensor,
    index: Tensor, y: Tensor, mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return the mean squared error of every model on its batch and its flat gradient; y is y[models, batch, out_dim].

    offsets and sizes as `models/flat.py` has them; beta is one number, or one a model, where it is not learned.
    """
    d, T, N, E, h, n, K, out = sizes
    m, b = index.shape
    P = {name: int(o) for name, o in zip(PLACES, offsets, strict=True) if o >= 0}
    found: dict[str, Tensor] = {}

    def weight(name: str, rows: int, columns: int) -> Tensor:
        return theta[:, P[name] : P[name] + rows * columns].unflatten(1, (rows, columns))

    c, b2, f1, f2 = weight("C", E, 1), weight("B2", E, 1), weight("BF1", 1, K), weight("BF2", 1, out)
    W1, W2, F1, F2 = weight("W1", N, d), weight("W2", E, N), weight("F1", K, E), weight("F2", out, K)
    query, key, value = (weight(name, h * n, E) for name in ("WQ", "WK", "WV"))
    output = theta[:, P["WO"] : P["WO"] + h * E * n].unflatten(1, (h, E, n)).mT.reshape(m, h * n, E)  # W_O,iᵀ
    each: Any = beta[:, None, None] if isinstance(beta, Tensor) else beta
    if "LB" in P:
        each = weight("LB", h, 1).exp()

    # fold
    q = torch.bmm(query, c)
    asked = (q.view(m, h, n) * each).view(m * h, 1, n)
    KW = torch.bmm(key, W2).view(m * h, n, N)
    score = torch.bmm(asked, KW).view(m, h, N)
    A, B = torch.bmm(value, W2).view(m * h, n, N), torch.bmm(output, F1.mT)
    v = torch.bmm(value, b2)
    G = torch.bmm(A.mT, B.view(m * h, n, K)).view(m, h * N, K)
    g = torch.bmm(c.mT, F1.mT).baddbmm_(v.mT, B).add_(f1)

    # tokens to loss
    x = X[index]
    bias = weight("B1", 1, N)
    if "HB" in P:
        bias = bias + weight("HB", T, N)
        u = torch.bmm(x.view(m, b * T, d), W1.mT).view(m, b, T, N).add_(bias[:, None]).relu_().view(m * b, T, N)
    else:
        u = torch.baddbmm(bias, x.view(m, b * T, d), W1.mT).relu_().view(m * b, T, N)
    scores = score[:, None].expand(-1, b, -1, -1).reshape(m * b, h, N)
    r = torch.bmm(scores, u.mT).view(m, b, h, T)
    gates = each * weight("GT", h, T) if "GT" in P else None
    if gates is not None:
        r += gates[:, None]
    if mask is not None:
        r.masked_fill_(~mask[index][:, :, None], -torch.inf)
    a = torch.softmax(r, dim=-1).view(m * b, h, T)
    p = torch.bmm(a, u).view(m, b, h * N)
    pre = torch.bmm(p, G).add_(g)
    act = torch.nn.functional.gelu(pre) if gelu else torch.relu(pre)
    error = torch.bmm(act, F2.mT).add_(f2).sub_(y)
    loss = error.square().mean((1, 2))

    # and back to the pooled state
    d_y = error.mul_(2.0 / (b * out))
    found["F2"], found["BF2"] = torch.bmm(d_y.mT, act), d_y.sum(1)
    d_act = torch.bmm(d_y, F2)
    d_pre = _aten.gelu_backward(d_act, pre) if gelu else _aten.threshold_backward(d_act, act, 0)
    found["BF1"] = d_g = d_pre.sum(1, keepdim=True)
    d_G = torch.bmm(p.mT, d_pre).view(m * h, N, K)
    d_p = torch.bmm(d_pre, G.mT).view(m * b, h, N)

    # to the tokens
    d_a = torch.bmm(d_p, u.mT)
    d_r = _aten._softmax_backward_data(d_a, a, -1, a.dtype)
    d_u = torch.bmm(a.mT, d_p).baddbmm_(d_r.mT, scores)
    d_score = torch.bmm(d_r, u).view(m, b, h, N).sum(1)
    d_u = _aten.threshold_backward(d_u, u, 0)
    groups = 1
    while b * T % (2 * groups) == 0 and b * T // (2 * groups) >= ROWS:
        groups *= 2
    shares = torch.bmm(d_u.view(m * groups, -1, N).mT, x.view(m * groups, -1, d))
    found["W1"] = shares.view(m, groups, N, d).sum(1)
    if "HB" in P:
        found["HB"] = d_u.view(m, b, T, N).sum(1)
        found["B1"] = found["HB"].sum(1)
    else:
        found["B1"] = d_u.view(m, b * T, N).sum(1)

    # unfold
    if "LB" in P:
        found["LB"] = (d_score * score).sum(2)
    if gates is not None:
        d_gates = d_r.view(m, b, h, T).sum(1)
        found["GT"] = d_gates * each
        if "LB" in P:
            found["LB"] += (d_gates * gates).sum(2)
    d_score = d_score.view(m * h, 1, N)
    d_q = (torch.bmm(d_score, KW.mT).view(m, h, n) * each).view(m, h * n, 1)
    d_KW = torch.bmm(asked.mT, d_score).view(m, h * n, N)
    d_A = torch.bmm(B.view(m * h, n, K), d_G.mT).view(m, h * n, N)
    d_B = torch.bmm(A, d_G).view(m, h * n, K).baddbmm_(v, d_g)
    d_v = torch.bmm(B, d_g.mT)
    found["WQ"], found["WK"] = torch.bmm(d_q, c.mT), torch.bmm(d_KW, W2.mT)
    found["WV"] = torch.bmm(d_A, W2.mT).baddbmm_(d_v, b2.mT)
    found["WO"] = torch.bmm(d_B, F1).view(m, h, n, E).mT
    found["W2"] = torch.bmm(key.mT, d_KW).baddbmm_(value.mT, d_A)
    found["B2"] = torch.bmm(value.mT, d_v)
    found["F1"] = torch.bmm(d_B.mT, output).baddbmm_(d_g.mT, c.mT)
    found["C"] = torch.bmm(query.mT, d_q).baddbmm_(F1.mT, d_g.mT)
    return loss, torch.cat([found[name].flatten(1) for name in sorted(P, key=P.__getitem__)], 1)
