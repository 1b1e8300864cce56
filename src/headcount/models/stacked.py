"""Many models of one spec at once: the reference's function with a leading model axis, from flat weights.

A one-layer model collapses (the head of `kernels/cpu_step.py` has the algebra): scores and values are folded through
the pooling once a step, `kernels.pool` meets the tokens, and F meets the pooled state. Every other option goes through
the general forward, which is the reference line by line with an m in front. The data are held once: model m reads the
rows index[m] of X.
"""

from __future__ import annotations

import math
from typing import cast

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from headcount.kernels.adam import adam_at
from headcount.kernels.pool import pool, whole_step
from headcount.models.flat import Flat, collapses
from headcount.models.spec import ModelSpec

__all__ = ["adam_at", "collapsed", "forward", "general", "loss_and_gradient", "split"]

Weights = dict[str, Tensor]


def split(flat: Flat, theta: Float[Tensor, "models size"]) -> Weights:
    """Return views weights[name][models, ...] of the flat vectors; one node of autograd for all of them."""
    counts = [math.prod(shape) for shape in flat.shapes.values()]
    parts = cast("tuple[Tensor, ...]", theta.split(counts, dim=1))  # pyright: ignore[reportUnknownMemberType]
    return {
        name: part.unflatten(1, shape) if len(shape) > 1 else part
        for (name, shape), part in zip(flat.shapes.items(), parts, strict=True)
    }


def forward(
    flat: Flat,
    theta: Float[Tensor, "models size"],
    X: Float[Tensor, "samples length dim"],
    index: Int64[Tensor, "models batch"],
    mask: Bool[Tensor, "samples length"] | None = None,
    betas: Float[Tensor, " models"] | None = None,
) -> Float[Tensor, "models batch out_dim"]:
    """Return y of every model on its own rows of X, collapsed where the spec allows it.

    `betas` gives padded models the inverse temperature of their own head_dim; it is for collapsed models alone.
    """
    if collapses(flat.spec) is None:
        return collapsed(flat, theta, X, index, mask, betas)
    return general(flat, theta, X, index, mask)


def loss_and_gradient(
    flat: Flat,
    theta: Float[Tensor, "models size"],
    X: Float[Tensor, "samples length dim"],
    index: Int64[Tensor, "models batch"],
    y: Float[Tensor, "models batch out_dim"],
    mask: Bool[Tensor, "samples length"] | None = None,
    betas: Float[Tensor, " models"] | None = None,
) -> tuple[Float[Tensor, " models"], Float[Tensor, "models size"]]:
    """Return the mean squared error of every model on its batch, and its gradient; no model touches another's."""
    step = whole_step(theta, flat.sizes()) if collapses(flat.spec) is None else None
    if step is not None:
        beta = betas if betas is not None and flat.spec.beta == "scaled" else _beta(flat.spec, None)
        return step(theta, flat.offsets(), flat.sizes(), flat.spec.feedforward == "gelu2", beta, X, index, y, mask)
    with torch.enable_grad():
        leaf = theta.detach().requires_grad_()
        loss = (forward(flat, leaf, X, index, mask, betas) - y).square().mean((1, 2))
        (gradient,) = torch.autograd.grad(loss.sum(), leaf)
    return loss.detach(), gradient


def _beta(spec: ModelSpec, log_beta: Tensor | None) -> Tensor | float:
    """The inverse temperature: beta[models, heads], or one number."""
    if log_beta is not None:
        return log_beta.exp()
    return spec.beta if isinstance(spec.beta, float) else 1.0 / math.sqrt(spec.head_dim)


def _times(beta: Tensor | float, r: Tensor) -> Tensor:
    """beta·r for r[models, heads, ...]."""
    return beta.reshape(beta.shape + (1,) * (r.ndim - 2)) * r if isinstance(beta, Tensor) else beta * r


def collapsed(
    flat: Flat,
    theta: Float[Tensor, "models size"],
    X: Float[Tensor, "samples length dim"],
    index: Int64[Tensor, "models batch"],
    mask: Bool[Tensor, "samples length"] | None = None,
    betas: Float[Tensor, " models"] | None = None,
) -> Float[Tensor, "models batch out_dim"]:
    """Fold, pool, feed forward: y = F2 act(Σ_i G_i p_i + g) + f2, for one-layer models without layer norm."""
    w = {name.removeprefix("layers.0."): tensor for name, tensor in split(flat, theta).items()}
    models, (E, N), hn = len(theta), w["encoder.outer.weight"].shape[1:], flat.spec.heads * flat.spec.head_dim
    c, W2, b2 = w["class_token"][:, :, None], w["encoder.outer.weight"], w["encoder.outer.bias"][:, :, None]
    query, key, value = (w[f"attention.{name}"].reshape(models, hn, E) for name in ("query", "key", "value"))
    beta = _beta(flat.spec, w.get("attention.log_beta"))
    if betas is not None and flat.spec.beta == "scaled":
        beta = betas[:, None]
    # score_i = β_i (q_iᵀ W_K,i) W2: one head's q against its own rows of the keys
    q = torch.bmm(query, c).reshape(-1, 1, flat.spec.head_dim)
    kq = torch.bmm(q, key.reshape(-1, flat.spec.head_dim, E)).reshape(models, -1, E)
    score = _times(beta, torch.bmm(kq, W2))
    gates = w.get("attention.gates")
    hidden_bias = w["encoder.inner.bias"][:, None]
    if "encoder.hidden_bias" in w:
        hidden_bias = hidden_bias + w["encoder.hidden_bias"]
    pooled = pool(
        X, index, w["encoder.inner.weight"].mT, hidden_bias, score, None if gates is None else _times(beta, gates), mask
    )
    # G_i = F1 W_O,i W_V,i W2, stored as Gᵀ[heads·hidden, hidden_ff]; g = F1 (c + Σ_i W_O,i W_V,i b2) + f1
    F1, f1 = w["feedforward.layers.0.weight"], w["feedforward.layers.0.bias"]
    output = w["attention.output"].mT.reshape(models, hn, E)  # W_O,iᵀ, head under head
    A, B = torch.bmm(value, W2), torch.bmm(output, F1.mT)
    G = torch.bmm(A.reshape(-1, flat.spec.head_dim, N).mT, B.reshape(-1, flat.spec.head_dim, F1.shape[1]))
    g = torch.bmm(F1, c + torch.bmm(output.mT, torch.bmm(value, b2))).mT + f1[:, None]
    pre = torch.baddbmm(g, pooled.flatten(2), G.reshape(models, -1, F1.shape[1]))
    hidden = nn.functional.gelu(pre) if flat.spec.feedforward == "gelu2" else torch.relu(pre)
    return torch.baddbmm(w["feedforward.layers.1.bias"][:, None], hidden, w["feedforward.layers.1.weight"].mT)


def _affine(w: Weights, name: str, u: Tensor) -> Tensor:
    """W u + b for u[models, ..., inputs]."""
    rows = u.flatten(1, -2)
    out = torch.baddbmm(w[f"{name}.bias"][:, None], rows, w[f"{name}.weight"].mT)
    return out.reshape(*u.shape[:-1], -1)


def _norm(spec: ModelSpec, w: Weights, name: str, u: Float[Tensor, "m b s e"]) -> Float[Tensor, "m b s e"]:
    """Layer norm with each model's own gain and shift, or nothing."""
    if not spec.layer_norm:
        return u
    return (
        nn.functional.layer_norm(u, u.shape[-1:]) * w[f"{name}.weight"][:, None, None]
        + w[f"{name}.bias"][:, None, None]
    )


def _feedforward(spec: ModelSpec, w: Weights, name: str, u: Tensor) -> Tensor:
    """F, as the reference's FeedForward."""
    count = 5 if spec.feedforward == "relu5" else 2
    for layer in range(count - 1):
        u = _affine(w, f"{name}.layers.{layer}", u)
        u = nn.functional.gelu(u) if spec.feedforward == "gelu2" else torch.relu(u)
    return _affine(w, f"{name}.layers.{count - 1}", u)


def _attention(
    spec: ModelSpec,
    w: Weights,
    name: str,
    queries: Float[Tensor, "m b q e"],
    keys: Float[Tensor, "m b s e"],
    mask: Bool[Tensor, "m b s"] | None,
) -> Float[Tensor, "m b q e"]:
    """W_O [o_1; …; o_h], as the reference's Attention."""
    q = torch.einsum("mhne,mbqe->mbhqn", w[f"{name}.query"], queries)
    k = torch.einsum("mhne,mbse->mbhsn", w[f"{name}.key"], keys)
    v = torch.einsum("mhne,mbse->mbhsn", w[f"{name}.value"], keys)
    r = torch.einsum("mbhqn,mbhsn->mhbqs", q, k)
    gates = w.get(f"{name}.gates")
    if gates is not None:  # a class token among the keys comes first and has no gate
        r = r + nn.functional.pad(gates, (keys.shape[2] - gates.shape[2], 0))[:, :, None, None]
    r = _times(_beta(spec, w.get(f"{name}.log_beta")), r)
    if mask is not None:
        r = r.masked_fill(~mask[:, None, :, None, :], -torch.inf)
    o = torch.einsum("mhbqs,mbhsn->mbhqn", torch.softmax(r, dim=-1), v)
    return torch.einsum("mhen,mbhqn->mbqe", w[f"{name}.output"], o)


def general(
    flat: Flat,
    theta: Float[Tensor, "models size"],
    X: Float[Tensor, "samples length dim"],
    index: Int64[Tensor, "models batch"],
    mask: Bool[Tensor, "samples length"] | None = None,
) -> Float[Tensor, "models batch out_dim"]:
    """Every option of the reference: the stream [c; e(1); …; e(T)], as `Transformer.forward` builds it."""
    spec, w = flat.spec, split(flat, theta)
    pre = _affine(w, "encoder.inner", X[index])
    if "encoder.hidden_bias" in w:
        pre = pre + w["encoder.hidden_bias"][:, None]
    e = _affine(w, "encoder.outer", torch.relu(pre))
    if "encoder.position" in w:
        e = e + w["encoder.position"][:, None]
    skip = 0 if spec.class_key else 1  # rows of the stream that are no keys
    c = w["class_token"][:, None, None].expand(-1, e.shape[1], 1, -1)
    stream = torch.cat([c, e], dim=2)
    rows = None if mask is None else mask[index]
    if rows is not None and spec.class_key:
        rows = nn.functional.pad(rows, (1, 0), value=True)
    keep = 1.0 if spec.residual else 0.0
    for depth in range(spec.depth - 1):
        at = f"layers.{depth}"
        normed = _norm(spec, w, f"{at}.norm_attention", stream)
        attended = _attention(spec, w, f"{at}.attention", normed, normed[:, :, skip:], rows)
        stream = torch.cat([stream[:, :, :1], keep * stream[:, :, 1:]], dim=2) + attended
        normed = _norm(spec, w, f"{at}.norm_feedforward", stream)
        stream = keep * stream + _feedforward(spec, w, f"{at}.feedforward", normed)
    at = f"layers.{spec.depth - 1}"
    normed = _norm(spec, w, f"{at}.norm_attention", stream)
    u = stream[:, :, :1] + _attention(spec, w, f"{at}.attention", normed[:, :, :1], normed[:, :, skip:], rows)
    return _feedforward(spec, w, f"{at}.feedforward", _norm(spec, w, f"{at}.norm_feedforward", u))[:, :, 0]
