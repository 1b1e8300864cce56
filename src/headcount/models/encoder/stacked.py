"""Many encoders of one spec at once: the function of `reference.py` with a leading model axis, laid out for a GPU.

These models are narrow, so a step is limited by memory traffic, not by its products. Hence:

- the gain g and the shift s of a layer norm are folded into the map that follows, W(g·u + s) = (W·g) u + W s, once per
  step on the small weights; on the tokens only the normalisation itself is computed;
- query, key and value are one product, and fused attention reads them in place;
- one pass adds a block's output to the residual stream and normalises the sum for the next block;
- the embedding product itself makes the class token's row, from a token of zeros and its own row of the table;
- if only the class token is read, the last layer computes nothing else: its query goes through the keys' map,
  (W_Kᵀ q)ᵀ u(t), the values' map is applied to the mean of u, and the feed-forward block gets one row per sequence;
- a map's gradient is summed over groups of rows that fill the device for any number of models.

Weights keep the dtype of theta; `dtype` is that of the residual stream and the products (bfloat16 on a GPU).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from headcount.kernels import add_norm, add_residual, attend
from headcount.models.encoder.reference import check_inputs
from headcount.models.encoder.spec import MAPS, EncoderSpec, tensor_shapes

Weights = dict[str, Tensor]
DrawMask = Callable[[torch.Size, torch.dtype], Tensor]
"""(shape, dtype) → dropout mask: 0 where a block's addition is dropped and 1 where it is kept."""

_MIN_GROUP_ROWS = 2048  # minimum number of rows per product in the gradient of a map
_MIN_UNBATCHED_ROWS = 8192  # rows per model from which one product per model fills a GPU, and its bias is free


def split(spec: EncoderSpec, theta: Float[Tensor, "models size"]) -> Weights:
    """Return views weights[name][models, ...] of the flat vectors; query, key and value as one, `maps`."""
    merged: dict[str, tuple[int, ...]] = {}
    for name, shape in tensor_shapes(spec).items():
        stem, _, kind = name.rpartition(".")
        if kind == MAPS[0]:
            merged[f"{stem}.maps"] = (3, *shape)
        elif kind not in MAPS:
            merged[name] = shape
    counts = [math.prod(shape) for shape in merged.values()]
    parts = cast("tuple[Tensor, ...]", theta.split(counts, dim=1))
    return {name: part.unflatten(1, merged[name]) for name, part in zip(merged, parts, strict=True)}


class _Affine(torch.autograd.Function):
    """u[m, rows, i] → u Wᵀ + b with each model's own W[m, o, i] and b[m, o]."""

    @staticmethod
    def forward(ctx: Any, u: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Compute all models' outputs in one tensor."""
        ctx.save_for_backward(u, weight)
        ctx.biased = bias is not None
        if bias is None:
            return torch.bmm(u, weight.mT)
        if u.is_cuda and u.shape[1] >= _MIN_UNBATCHED_ROWS:
            # a single product adds the bias in its last step; a batched one needs another pass
            out = u.new_empty(*u.shape[:2], weight.shape[1])
            for m in range(len(u)):
                torch.addmm(bias[m], u[m], weight[m].mT, out=out[m])
            return out
        return torch.baddbmm(bias[:, None], u, weight.mT)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor, Tensor | None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Sum the gradient of the weights over groups of rows: one product per model would leave most of a GPU idle."""
        (out,), (u, weight) = gradients, cast("tuple[Tensor, Tensor]", ctx.saved_tensors)
        models, rows, _ = u.shape
        groups = 1
        while rows % (2 * groups) == 0 and rows // (2 * groups) >= _MIN_GROUP_ROWS:
            groups *= 2
        out = out.contiguous()
        parts = [t.reshape(models * groups, rows // groups, -1) for t in (out, u)]
        slope = torch.bmm(parts[0].mT, parts[1])
        if groups > 1:
            slope = slope.reshape(models, groups, *slope.shape[1:]).sum(1)
        before = torch.bmm(out, weight) if ctx.needs_input_grad[0] else None
        return before, slope, out.sum(1) if ctx.biased else None


def _affine(u: Float[Tensor, "m b t i"], weight: Tensor, bias: Tensor | None) -> Float[Tensor, "m b t o"]:
    """Return W u + b; weight and bias are rounded to the dtype of u."""
    out = _Affine.apply(u.flatten(1, 2), weight.to(u.dtype), None if bias is None else bias.to(u.dtype))
    return cast("Tensor", out).unflatten(1, u.shape[1:3])


def _normalise(u: Tensor) -> Tensor:
    """Scale each row to mean 0 and deviation 1; gain and shift are folded into the next map."""
    return nn.functional.layer_norm(u, u.shape[-1:])


def _fold_norm(w: Weights, norm: str, weight: Float[Tensor, "m o e"]) -> tuple[Tensor, Tensor]:
    """Return (W·g, W s) for a map W that follows a layer norm with gain g and shift s."""
    gain, shift = w[f"{norm}.weight"], w[f"{norm}.bias"]
    return weight * gain[:, None], torch.bmm(weight, shift[:, :, None])[:, :, 0]


def _attend(
    spec: EncoderSpec, w: Weights, at: str, u: Float[Tensor, "m b t e"], seen: Bool[Tensor, "m b t"] | None
) -> Float[Tensor, "m b t e"]:
    """Return W_O [o_1; …; o_h] for all rows, from the normalised stream u."""
    (models, batch, T, E), h, n = u.shape, spec.heads, spec.head_dim
    weight, bias = _fold_norm(w, f"{at}.norm_attention", w[f"{at}.attention.maps"].reshape(models, 3 * h * n, E))
    packed = _affine(u, weight, bias).reshape(models * batch, T, 3, h, n)
    allowed = None if seen is None else seen.reshape(models * batch, T)
    o = attend(packed, allowed).reshape(models, batch, T, h * n)
    return _affine(o, w[f"{at}.attention.output"].transpose(1, 2).flatten(2), None)  # W_O,i head beside head


def _attend_from_class_token(
    spec: EncoderSpec,
    w: Weights,
    at: str,
    u: Float[Tensor, "m b t e"],
    c: Float[Tensor, "m b 1 e"],
    seen: Bool[Tensor, "m b t"] | None,
) -> Float[Tensor, "m b 1 e"]:
    """Return W_O [o_1; …; o_h] for the class token's row c of the normalised stream u only.

    Keys and values of the tokens are never computed. The constant part of the keys (from the norm's shift) adds the
    same number to all scores, which softmax ignores; softmax weights sum to 1, so the constant part of the values is
    added once.
    """
    (models, batch, _, E), h, n, dtype = u.shape, spec.heads, spec.head_dim, u.dtype
    maps = w[f"{at}.attention.maps"]
    gain, shift = w[f"{at}.norm_attention.weight"], w[f"{at}.norm_attention.bias"]
    query, key, value = (maps * gain[:, None, None, None]).to(dtype).unbind(1)
    constant = torch.matmul(maps, shift[:, None, None, :, None])[..., 0].to(dtype)  # [m, 3, h, n]: W s
    q = torch.matmul(c.transpose(1, 2), query.mT) + constant[:, 0, :, None]  # [m, h, b, n]
    through = torch.matmul(q / math.sqrt(n), key).transpose(1, 2).reshape(models * batch, h, E)
    rows = u.flatten(0, 1)
    r = torch.bmm(through, rows.mT).unflatten(0, (models, batch))
    if seen is not None:
        r = r.masked_fill(~seen[:, :, None], -torch.inf)
    a = torch.softmax(r, dim=-1, dtype=torch.promote_types(dtype, torch.float32)).to(dtype)
    mean = torch.bmm(a.flatten(0, 1), rows).reshape(models, batch, h, E)
    o = torch.matmul(mean.transpose(1, 2), value.mT) + constant[:, 2, :, None]  # [m, h, b, n]
    output = w[f"{at}.attention.output"].mT.flatten(1, 2).to(dtype)  # W_O,iᵀ, head under head
    return torch.bmm(o.transpose(1, 2).flatten(2), output)[:, :, None]


def _feedforward(w: Weights, at: str, u: Float[Tensor, "m b t e"]) -> Float[Tensor, "m b t e"]:
    """Return W_2 gelu(W_1 LN(s) + b_1) + b_2, from the normalised stream u."""
    weight, bias = _fold_norm(w, f"{at}.norm_feedforward", w[f"{at}.feedforward.inner.weight"])
    hidden = nn.functional.gelu(_affine(u, weight, bias + w[f"{at}.feedforward.inner.bias"]))
    return _affine(hidden, w[f"{at}.feedforward.outer.weight"], w[f"{at}.feedforward.outer.bias"])


def _embed(spec: EncoderSpec, w: Weights, tokens: Float[Tensor, "m b t i"]) -> Float[Tensor, "m b s e"]:
    """Return [c; e(1); …; e(T)] + positions, by one product and one table."""
    table = w["embed.bias"][:, None].expand(-1, spec.tokens, -1)
    if spec.readout == "class":  # a token of zeros is mapped to 0, so its row of the table is the class token
        tokens = nn.functional.pad(tokens, (0, 0, 1, 0))
        table = torch.cat([w["class_token"][:, None], table[:, 1:]], dim=1)
    if spec.positions:
        table = table + w["position"]
    return _affine(tokens, w["embed.weight"], None) + table[:, None].to(tokens.dtype)


def step_peak_numbers(spec: EncoderSpec, rows: int) -> int:
    """Estimate the peak number of values, in the stream's dtype, that a step holds for `rows` sequences in total.

    Each layer keeps, for its gradient, the inputs and outputs of two norms, query, key, value, heads, and the hidden
    layer twice; add to this the tensors in progress. The last layer of a class token keeps only a norm's input and
    output.
    """
    hidden = spec.expansion
    layers = spec.depth - (spec.readout == "class")
    widths_per_token = layers * (8 + 2 * hidden) + 2 * (spec.readout == "class") + (6 + 2 * hidden)
    return rows * spec.tokens * (spec.width * widths_per_token + 2 * spec.inputs)


def forward(
    spec: EncoderSpec,
    theta: Float[Tensor, "models size"],
    X: Float[Tensor, "*models batch tokens_in inputs"],
    mask: Bool[Tensor, "*models batch tokens_in"] | None = None,
    *,
    dtype: torch.dtype | None = None,
    draw_mask: DrawMask | None = None,
    read: Int64[Tensor, " n"] | None = None,
) -> Float[Tensor, "models batch n"]:
    """Return logits[models, batch, outputs] or scores[models, batch, tokens] in the dtype of theta.

    X without a model axis is shared by all. `draw_mask` is called once per block, in order, for a dropout mask of its
    addition; without it nothing is dropped. With `read` only the scores of these positions are computed, in its order
    (readout "each").
    """
    check_inputs(spec, X, mask)
    models, w = len(theta), split(spec, theta)
    tokens = X.to(dtype or theta.dtype)
    tokens = tokens if tokens.ndim == 4 else tokens.expand(models, *tokens.shape)
    seen = mask if mask is None or mask.ndim == 3 else mask.expand(models, *mask.shape)
    if seen is not None and spec.readout == "class":
        seen = nn.functional.pad(seen, (1, 0), value=True)

    def mask_of(added: Tensor) -> Tensor | None:
        return None if draw_mask is None or spec.dropout == 0.0 else draw_mask(added.shape, added.dtype)

    s, u = add_norm(_embed(spec, w, tokens))
    for layer in range(spec.depth):
        at, last = f"layers.{layer}", layer == spec.depth - 1
        if last and spec.readout == "class":  # slice each only once: a slice's gradient is as large as its source
            c = u[:, :, :1]
            s, added = s[:, :, :1], _attend_from_class_token(spec, w, at, u, c, seen)
        else:
            added = _attend(spec, w, at, u, seen)
        if last and read is not None:
            s, added = s.index_select(2, read), added.index_select(2, read)
        s, u = add_norm(s, added, mask_of(added), spec.dropout)
        added = _feedforward(w, at, u)
        if last:
            s = add_residual(s, added, mask_of(added), spec.dropout)
        else:
            s, u = add_norm(s, added, mask_of(added), spec.dropout)
    weight, bias = _fold_norm(w, "norm", w["readout.weight"])
    y = _affine(_normalise(s.to(theta.dtype)), weight, bias + w["readout.bias"])  # few rows: full precision is cheap
    return y[:, :, 0] if spec.readout == "class" else y[..., 0]
