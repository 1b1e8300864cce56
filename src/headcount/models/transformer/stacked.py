"""Many models of one spec at once: the reference's function with a leading model axis, from flat weights.

A one-layer model pools (`kernels/step/numba.py` has the algebra): scores and values are folded through the pooling once
per step, `kernels/pool/` processes the tokens, and F gets the pooled state. All other options use the general forward,
the reference with a leading model axis, which keeps the class token and the tokens apart: the tokens attend to each
other in a fused kernel, and the class token, one query per sequence, is computed separately. The data are stored once:
model m reads the rows index[m] of X.
"""

from __future__ import annotations

import math
from typing import cast

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from headcount.kernels import pool_tokens, whole_step
from headcount.models.transformer.flat import Flat, why_not_collapsed, why_not_pooled
from headcount.models.transformer.spec import ModelSpec

Weights = dict[str, Tensor]

_HEAD_ALIGNMENT = 4  # float32 numbers of a head that fused attention loads at once
_MAX_UNFUSED_TOKENS = (
    32  # up to this length plain attention is faster than the fused kernel, whose tiles stay mostly empty
)
_MIN_GROUP_ROWS = 512  # minimum rows per product; larger groups leave most of a GPU idle in the gradient of the weights


def split(flat: Flat, theta: Float[Tensor, "models size"]) -> Weights:
    """Return views weights[name][models, ...] of the flat vectors, with a single autograd node for all of them."""
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
    """Return y of every model on its own rows of X, by pooling if the spec allows it.

    betas: for padded (so collapsed) models, the inverse temperatures that belong to their own head_dim.
    """
    if why_not_pooled(flat.spec) is None:
        return forward_collapsed(flat, theta, X, index, mask, betas)
    return forward_general(flat, theta, X, index, mask)


def loss_and_gradient(
    flat: Flat,
    theta: Float[Tensor, "models size"],
    X: Float[Tensor, "samples length dim"],
    index: Int64[Tensor, "models batch"],
    y: Float[Tensor, "models batch out_dim"],
    mask: Bool[Tensor, "samples length"] | None = None,
    betas: Float[Tensor, " models"] | None = None,
) -> tuple[Float[Tensor, " models"], Float[Tensor, "models size"]]:
    """Return every model's mean squared error on its own batch, and its gradient."""
    step = whole_step(theta, flat.sizes()) if why_not_collapsed(flat.spec) is None else None
    if step is not None:
        beta = betas if betas is not None and flat.spec.beta == "scaled" else _beta(flat.spec, None)
        return step(theta, flat.offsets(), flat.sizes(), flat.spec.feedforward == "gelu2", beta, X, index, y, mask)
    with torch.enable_grad():
        leaf = theta.detach().requires_grad_()
        loss = (forward(flat, leaf, X, index, mask, betas) - y).square().mean((1, 2))
        (gradient,) = torch.autograd.grad(loss.sum(), leaf)
    return loss.detach(), gradient


def _beta(spec: ModelSpec, log_beta: Tensor | None) -> Tensor | float:
    """Return the inverse temperature: beta[models, heads], or one number."""
    if log_beta is not None:
        return log_beta.exp()
    return spec.beta if isinstance(spec.beta, float) else 1.0 / math.sqrt(spec.head_dim)


def _scale_by(beta: Tensor | float, r: Tensor) -> Tensor:
    """Return beta·r for r[models, heads, ...]."""
    return beta.reshape(beta.shape + (1,) * (r.ndim - 2)) * r if isinstance(beta, Tensor) else beta * r


def forward_collapsed(
    flat: Flat,
    theta: Float[Tensor, "models size"],
    X: Float[Tensor, "samples length dim"],
    index: Int64[Tensor, "models batch"],
    mask: Bool[Tensor, "samples length"] | None = None,
    betas: Float[Tensor, " models"] | None = None,
) -> Float[Tensor, "models batch out_dim"]:
    """Return y = F2 act(Σ_i G_i p_i + g) + f2 for models that pool; F may have more layers."""
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
    score = _scale_by(beta, torch.bmm(kq, W2))
    gates = w.get("attention.gates")
    hidden_bias = w["encoder.inner.bias"][:, None]
    if "encoder.hidden_bias" in w:
        hidden_bias = hidden_bias + w["encoder.hidden_bias"]
    pooled = pool_tokens(
        X,
        index,
        w["encoder.inner.weight"].mT,
        hidden_bias,
        score,
        None if gates is None else _scale_by(beta, gates),
        mask,
    )
    # G_i = F1 W_O,i W_V,i W2, stored as Gᵀ[heads·hidden, hidden_ff]; g = F1 (c + Σ_i W_O,i W_V,i b2) + f1
    F1, f1 = w["feedforward.layers.0.weight"], w["feedforward.layers.0.bias"]
    output = w["attention.output"].mT.reshape(models, hn, E)  # W_O,iᵀ, head under head
    A, B = torch.bmm(value, W2), torch.bmm(output, F1.mT)
    G = torch.bmm(A.reshape(-1, flat.spec.head_dim, N).mT, B.reshape(-1, flat.spec.head_dim, F1.shape[1]))
    g = torch.bmm(F1, c + torch.bmm(output.mT, torch.bmm(value, b2))).mT + f1[:, None]
    pre = torch.baddbmm(g, pooled.flatten(2), G.reshape(models, -1, F1.shape[1]))
    return _feedforward_from_hidden(flat.spec, w, "feedforward", pre[:, :, None])[:, :, 0]


def _product(
    u: Float[Tensor, "m b s i"], weight: Float[Tensor, "m o i"], bias: Float[Tensor, "m o"] | None = None
) -> Float[Tensor, "m b s o"]:
    """Return W u + b, computed in groups of rows.

    The gradient of the weights is a product over all rows with a small result, which a GPU computes in one block per
    product: a stack of 16 models would keep only 16 of 132 multiprocessors busy. With groups each gradient is several
    products, which autograd adds up. The groups depend only on the shape of one model's batch.
    """
    models, batch, length, inputs = u.shape
    rows, groups = batch * length, 1
    while rows % (2 * groups) == 0 and rows // (2 * groups) >= _MIN_GROUP_ROWS:
        groups *= 2
    grouped = u.reshape(models * groups, rows // groups, inputs)
    shared = weight[:, None].expand(-1, groups, -1, -1).flatten(0, 1).mT
    if bias is None:
        out = torch.bmm(grouped, shared)
    else:
        out = torch.baddbmm(bias[:, None, None].expand(-1, groups, -1, -1).flatten(0, 1), grouped, shared)
    return out.reshape(models, batch, length, -1)


def _affine(w: Weights, name: str, u: Float[Tensor, "m b s i"]) -> Float[Tensor, "m b s o"]:
    """Return W u + b with the weights of one layer."""
    return _product(u, w[f"{name}.weight"], w[f"{name}.bias"])


def _norm(spec: ModelSpec, w: Weights, name: str, u: Float[Tensor, "m b s e"]) -> Float[Tensor, "m b s e"]:
    """Return the layer norm of u with each model's gain and shift, or u itself if the spec has no layer norms."""
    if not spec.layer_norm:
        return u
    return (
        nn.functional.layer_norm(u, u.shape[-1:]) * w[f"{name}.weight"][:, None, None]
        + w[f"{name}.bias"][:, None, None]
    )


def _feedforward_from_hidden(
    spec: ModelSpec, w: Weights, name: str, u: Float[Tensor, "m b s k"]
) -> Float[Tensor, "m b s o"]:
    """Return F, given the output of its first affine map."""
    for layer in range(1, 5 if spec.feedforward == "relu5" else 2):
        u = nn.functional.gelu(u) if spec.feedforward == "gelu2" else torch.relu(u)
        u = _affine(w, f"{name}.layers.{layer}", u)
    return u


def _feedforward(spec: ModelSpec, w: Weights, name: str, u: Float[Tensor, "m b s e"]) -> Float[Tensor, "m b s o"]:
    """Return F of u, as the reference's FeedForward does."""
    return _feedforward_from_hidden(spec, w, name, _affine(w, f"{name}.layers.0", u))


def _gates(w: Weights, name: str, beta: Tensor | float, positions: int) -> Float[Tensor, "m h s"] | None:
    """Return what gates add to the scores of all positions; a class token among the keys comes first and has none."""
    gates = w.get(f"{name}.gates")
    return None if gates is None else nn.functional.pad(_scale_by(beta, gates), (positions - gates.shape[2], 0))


def _attend_from_class_token(
    spec: ModelSpec,
    w: Weights,
    name: str,
    query: Float[Tensor, "m b 1 e"],
    keys: Float[Tensor, "m b s e"],
    mask: Bool[Tensor, "m b s"] | None,
) -> Float[Tensor, "m b 1 e"]:
    """Return W_O [o_1; …; o_h] of the reference's Attention for the class token only.

    The query goes through the keys' map, (W_Kᵀ W_Q c)ᵀ e(t), and the values' map is applied to the mean of e, as in
    `forward_collapsed`: keys and values of the tokens are never computed, and the stream is read just twice. The
    softmax, one number per head and token, is small in comparison.
    """
    models, batch, positions, E = keys.shape
    beta, maps = _beta(spec, w.get(f"{name}.log_beta")), {k: w[f"{name}.{k}"] for k in ("query", "key", "value")}
    q = torch.matmul(
        query.transpose(1, 2), _scale_by(beta, maps["query"]).mT
    )  # [m, h, b, n]: a head's product is its own
    through = torch.matmul(q, maps["key"]).transpose(1, 2).reshape(models * batch, -1, E)
    rows = keys.flatten(0, 1)
    r = torch.bmm(through, rows.mT).unflatten(0, (models, batch))
    gates = _gates(w, name, beta, positions)
    if gates is not None:
        r = r + gates[:, None]
    if mask is not None:
        r = r.masked_fill(~mask[:, :, None], -torch.inf)
    mean = torch.bmm(torch.softmax(r, dim=-1).flatten(0, 1), rows).reshape(models, batch, -1, E)
    o = torch.matmul(mean.transpose(1, 2), maps["value"].mT)  # [m, h, b, n]
    output = w[f"{name}.output"].mT.flatten(1, 2)  # W_O,iᵀ, head under head
    return torch.bmm(o.transpose(1, 2).flatten(2), output)[:, :, None]


def _attend(
    spec: ModelSpec,
    w: Weights,
    name: str,
    length: int,
    keys: Float[Tensor, "m b s e"],
    mask: Bool[Tensor, "m b s"] | None,
) -> Float[Tensor, "m b length e"]:
    """Return W_O [o_1; …; o_h] of the reference's Attention for the last `length` keys: the tokens among themselves.

    The fused kernel reads q, k and v in place from one product and never writes the scores to memory; short sequences
    do without it. Heads are padded with zeros to the alignment it needs, which changes neither scores nor values; the
    padding is applied to the weights, so the product yields padded rows. Gates are one more coordinate, in which every
    query has a 1. The kernel multiplies float32 numbers in three parts, whatever the TF32 setting.
    """
    models, batch, positions, _ = keys.shape
    beta, n, h = _beta(spec, w.get(f"{name}.log_beta")), spec.head_dim, spec.heads
    gates = _gates(w, name, beta, positions)
    size = -(-(n + (gates is not None)) // _HEAD_ALIGNMENT) * _HEAD_ALIGNMENT
    maps = [_scale_by(beta, w[f"{name}.query"]), w[f"{name}.key"], w[f"{name}.value"]]
    weight = nn.functional.pad(torch.cat(maps, dim=1), (0, 0, 0, size - n)).flatten(1, 2)
    q, k, v = _product(keys, weight).reshape(models * batch, positions, 3, h, size).unbind(2)
    q = q[:, positions - length :]
    if gates is not None:
        place = (n, size - n - 1)
        q = q + nn.functional.pad(q.new_ones(1), place)
        gate = nn.functional.pad(gates.mT[..., None], place)
        k = (k.unflatten(0, (models, batch)) + gate[:, None]).flatten(0, 1)
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    seen = None if mask is None else mask.flatten(0, 1)[:, None, None]
    if positions > _MAX_UNFUSED_TOKENS:
        o = nn.functional.scaled_dot_product_attention(q, k, v, seen, scale=1.0)
    else:
        r = q @ k.mT
        o = torch.softmax(r if seen is None else r.masked_fill(~seen, -torch.inf), dim=-1) @ v
    o = o.transpose(1, 2).reshape(models, batch, length, h * size)
    output = nn.functional.pad(w[f"{name}.output"], (0, size - n))  # [m, h, e, size]
    return _product(o, output.transpose(1, 2).flatten(2))


def forward_general(
    flat: Flat,
    theta: Float[Tensor, "models size"],
    X: Float[Tensor, "samples length dim"],
    index: Int64[Tensor, "models batch"],
    mask: Bool[Tensor, "samples length"] | None = None,
) -> Float[Tensor, "models batch out_dim"]:
    """Return y for any options; the class token c and the tokens e(1) … e(T) are two tensors, not one stream."""
    spec, w = flat.spec, split(flat, theta)
    pre = _affine(w, "encoder.inner", X[index])
    if "encoder.hidden_bias" in w:
        pre = pre + w["encoder.hidden_bias"][:, None]
    e = _affine(w, "encoder.outer", torch.relu(pre))
    if "encoder.position" in w:
        e = e + w["encoder.position"][:, None]
    c = w["class_token"][:, None, None].expand(-1, e.shape[1], 1, -1)
    rows = None if mask is None else mask[index]
    if rows is not None and spec.class_key:
        rows = nn.functional.pad(rows, (1, 0), value=True)
    for depth in range(spec.depth):
        at = f"layers.{depth}"
        asking, keys = (_norm(spec, w, f"{at}.norm_attention", u) for u in (c, e))
        if spec.class_key:
            keys = torch.cat([asking, keys], dim=2)
        u = c + _attend_from_class_token(spec, w, f"{at}.attention", asking, keys, rows)
        c = _feedforward(spec, w, f"{at}.feedforward", _norm(spec, w, f"{at}.norm_feedforward", u))
        if depth == spec.depth - 1:  # the tokens are not needed any more
            break
        attended = _attend(spec, w, f"{at}.attention", e.shape[2], keys, rows)
        v = e + attended if spec.residual else attended
        e = _feedforward(spec, w, f"{at}.feedforward", _norm(spec, w, f"{at}.norm_feedforward", v))
        if spec.residual:
            c, e = c + u, e + v
    return c[:, :, 0]
