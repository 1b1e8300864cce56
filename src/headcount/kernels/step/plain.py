"""Loss and gradient of a stack of one-layer models in plain PyTorch, in as few operations as the algebra allows.

This is the same function as `triton.py` without compilation, for runs that are shorter than compiling would take. A GPU
takes about two microseconds for every small operation, so the gradient is written out instead of left to autograd,
sums are accumulated in place, and products that autograd would split are computed at once:

    score_i = β_i q_iᵀ (W_K,i W2)                        q_i = W_Q,i c
    u       = relu(x W1ᵀ + b1)      r_i = score_i·u      a = softmax(r)      p_i = Σ_t a_i u
    A_i     = W_V,i W2              B_i = W_O,iᵀ F1ᵀ     G_i = A_iᵀ B_i      v_i = W_V,i b2
    pre     = Σ_i p_i G_i + g       g   = Σ_i v_iᵀ B_i + cᵀ F1ᵀ + f1
    y       = act(pre) F2ᵀ + f2

d_z is the gradient of z. The twin is autograd through `models/transformer/stacked.forward_collapsed`.
"""

# pyright: basic
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

# Short names of the tensors in the flat weights, in the order of `numba.TENSORS`.
SHORT_NAMES = ("C", "W1", "B1", "HB", "W2", "B2", "WQ", "WK", "WV", "WO", "GT", "LB", "F1", "BF1", "F2", "BF2")
MIN_PRODUCT_ROWS = (
    128  # minimum tokens per product in the gradient of W1; a single product would use one multiprocessor
)
_aten: Any = torch.ops.aten


@dataclass(frozen=True)
class _Weights:
    """Views of the flat weights by SHORT_NAMES, as matrices [models, rows, columns], with their sizes and β."""

    theta: Tensor
    places: dict[str, int]
    sizes: tuple[int, ...]
    beta: Tensor | float
    """Per model and head, or one number."""

    @classmethod
    def of(cls, theta: Tensor, offsets: Iterable[int], sizes: tuple[int, ...], beta: Tensor | float) -> _Weights:
        places = {name: int(o) for name, o in zip(SHORT_NAMES, offsets, strict=True) if o >= 0}
        each = beta[:, None, None] if isinstance(beta, Tensor) else beta
        one = cls(theta, places, sizes, each)
        return replace(one, beta=one("LB", sizes[4], 1).exp()) if "LB" in places else one

    def __call__(self, name: str, rows: int, columns: int) -> Tensor:
        start = self.places[name]
        return self.theta[:, start : start + rows * columns].unflatten(1, (rows, columns))


@dataclass(frozen=True)
class _Folded:
    """What a step computes from the weights alone; an axis of models·heads lists the heads of all models."""

    scaled_query: Tensor
    KW: Tensor
    score: Tensor
    output: Tensor
    A: Tensor
    B: Tensor
    v: Tensor
    G: Tensor
    g: Tensor


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
) -> tuple[Tensor, Tensor]:
    """Return the mean squared error of every model on its batch and its flat gradient; y is y[models, batch, out_dim].

    offsets and sizes are those of `models/transformer/flat.py`; beta is one number or one per model, unless it is
    learned.
    """
    w = _Weights.of(theta, offsets, sizes, beta)
    f = _fold(w)
    masks = None if mask is None else mask[index]
    loss, gradients, d_score, d_G = _tokens(w, f, gelu, X[index], y, masks)
    gradients |= _unfold(w, f, d_score, d_G, gradients["BF1"])
    return loss, torch.cat([gradients[name].flatten(1) for name in sorted(w.places, key=w.places.__getitem__)], 1)


def _fold(w: _Weights) -> _Folded:
    """Fold the maps of attention with those of the encoder and of F."""
    _, _, N, E, h, n, K, _ = w.sizes
    m, at = len(w.theta), w.places["WO"]
    c, W2, F1, value = w("C", E, 1), w("W2", E, N), w("F1", K, E), w("WV", h * n, E)
    output = w.theta[:, at : at + h * E * n].unflatten(1, (h, E, n)).mT.reshape(m, h * n, E)  # W_O,iᵀ, head under head
    q = torch.bmm(w("WQ", h * n, E), c)
    scaled_query = (q.view(m, h, n) * w.beta).view(m * h, 1, n)
    KW = torch.bmm(w("WK", h * n, E), W2).view(m * h, n, N)
    score = torch.bmm(scaled_query, KW).view(m, h, N)
    A, B, v = torch.bmm(value, W2).view(m * h, n, N), torch.bmm(output, F1.mT), torch.bmm(value, w("B2", E, 1))
    G = torch.bmm(A.mT, B.view(m * h, n, K)).view(m, h * N, K)
    g = torch.bmm(c.mT, F1.mT).baddbmm_(v.mT, B).add_(w("BF1", 1, K))
    return _Folded(scaled_query, KW, score, output, A, B, v, G, g)


def _tokens(
    w: _Weights, f: _Folded, gelu: bool, x: Tensor, y: Tensor, masks: Tensor | None
) -> tuple[Tensor, dict[str, Tensor], Tensor, Tensor]:
    """Compute from the tokens to the loss and back; return the loss, gradients by name, d_score and d_G."""
    d, T, N, _, h, _, K, out = w.sizes
    m, b, gradients = len(x), x.shape[1], dict[str, Tensor]()
    rows, W1, F2, positions = x.view(m, b * T, d), w("W1", N, d), w("F2", out, K), "HB" in w.places
    if positions:
        bias = w("B1", 1, N) + w("HB", T, N)
        u = torch.bmm(rows, W1.mT).view(m, b, T, N).add_(bias[:, None]).relu_().view(m * b, T, N)
    else:
        u = torch.baddbmm(w("B1", 1, N), rows, W1.mT).relu_().view(m * b, T, N)
    scores = f.score[:, None].expand(-1, b, -1, -1).reshape(m * b, h, N)
    r = torch.bmm(scores, u.mT).view(m, b, h, T)
    gates = w.beta * w("GT", h, T) if "GT" in w.places else None
    if gates is not None:
        r += gates[:, None]
    if masks is not None:
        r.masked_fill_(~masks[:, :, None], -torch.inf)
    a = torch.softmax(r, dim=-1).view(m * b, h, T)
    p = torch.bmm(a, u).view(m, b, h * N)
    pre = torch.bmm(p, f.G).add_(f.g)
    act = torch.nn.functional.gelu(pre) if gelu else torch.relu(pre)
    error = torch.bmm(act, F2.mT).add_(w("BF2", 1, out)).sub_(y)
    loss = error.square().mean((1, 2))

    d_y = error.mul_(2.0 / (b * out))
    gradients["F2"], gradients["BF2"] = torch.bmm(d_y.mT, act), d_y.sum(1)
    d_act = torch.bmm(d_y, F2)
    d_pre = _aten.gelu_backward(d_act, pre) if gelu else _aten.threshold_backward(d_act, act, 0)
    gradients["BF1"] = d_pre.sum(1, keepdim=True)
    d_G = torch.bmm(p.mT, d_pre).view(m * h, N, K)
    d_p = torch.bmm(d_pre, f.G.mT).view(m * b, h, N)
    d_r = _aten._softmax_backward_data(torch.bmm(d_p, u.mT), a, -1, a.dtype)
    d_score = torch.bmm(d_r, u).view(m, b, h, N).sum(1)
    d_u = _aten.threshold_backward(torch.bmm(a.mT, d_p).baddbmm_(d_r.mT, scores), u, 0)
    groups = 1
    while b * T % (2 * groups) == 0 and b * T // (2 * groups) >= MIN_PRODUCT_ROWS:
        groups *= 2
    partial = torch.bmm(d_u.view(m * groups, -1, N).mT, x.view(m * groups, -1, d))
    gradients["W1"] = partial.view(m, groups, N, d).sum(1)
    if positions:
        gradients["HB"] = d_u.view(m, b, T, N).sum(1)
    gradients["B1"] = gradients["HB"].sum(1) if positions else d_u.view(m, b * T, N).sum(1)
    if "LB" in w.places:
        gradients["LB"] = (d_score * f.score).sum(2)
    if gates is not None:
        d_gates = d_r.view(m, b, h, T).sum(1)
        gradients["GT"] = d_gates * w.beta
        if "LB" in w.places:
            gradients["LB"] += (d_gates * gates).sum(2)
    return loss, gradients, d_score.view(m * h, 1, N), d_G


def _unfold(w: _Weights, f: _Folded, d_score: Tensor, d_G: Tensor, d_g: Tensor) -> dict[str, Tensor]:
    """Return the gradients of the weights by name, from those of the folded maps."""
    _, _, N, E, h, n, K, _ = w.sizes
    m, gradients = len(w.theta), dict[str, Tensor]()
    c, b2, W2, F1 = w("C", E, 1), w("B2", E, 1), w("W2", E, N), w("F1", K, E)
    query, key, value = (w(name, h * n, E) for name in ("WQ", "WK", "WV"))
    d_q = (torch.bmm(d_score, f.KW.mT).view(m, h, n) * w.beta).view(m, h * n, 1)
    d_KW = torch.bmm(f.scaled_query.mT, d_score).view(m, h * n, N)
    d_A = torch.bmm(f.B.view(m * h, n, K), d_G.mT).view(m, h * n, N)
    d_B = torch.bmm(f.A, d_G).view(m, h * n, K).baddbmm_(f.v, d_g)
    d_v = torch.bmm(f.B, d_g.mT)
    gradients["WQ"], gradients["WK"] = torch.bmm(d_q, c.mT), torch.bmm(d_KW, W2.mT)
    gradients["WV"] = torch.bmm(d_A, W2.mT).baddbmm_(d_v, b2.mT)
    gradients["WO"] = torch.bmm(d_B, F1).view(m, h, n, E).mT
    gradients["W2"] = torch.bmm(key.mT, d_KW).baddbmm_(value.mT, d_A)
    gradients["B2"] = torch.bmm(value.mT, d_v)
    gradients["F1"] = torch.bmm(d_B.mT, f.output).baddbmm_(d_g.mT, c.mT)
    gradients["C"] = torch.bmm(query.mT, d_q).baddbmm_(F1.mT, d_g.mT)
    return gradients
