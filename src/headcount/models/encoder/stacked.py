"""Many encoders of one spec at once: the function of `encoder.py` with a leading model axis, laid out for a GPU.

These models are narrow, so a step is bound by the memory that it touches, not by its products. Hence:

- the gain and the shift of a layer norm go into the map that follows it, W(g·u + s) = (W·g) u + W s, made once a step
  from the small weights: what touches the tokens is the bare norm;
- query, key and value are one product, and fused attention reads them where it left them;
- what a block adds joins the stream in one pass with the bare norm that the next block reads;
- the class token's row is made by the embedding product itself, from a token of zeros and its own row of the table;
- where only the class token is read, the last layer asks for nothing else: its query goes through the keys' map,
  (W_Kᵀ q)ᵀ u(t), the values' map follows the mean of u, and the feed-forward block sees one row a sequence;
- a map's gradient is summed over groups of rows that fill the device, whatever the number of models.

Weights stay in the dtype of theta; `dtype` is that of the stream and the products (bfloat16 on a GPU).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from headcount.kernels import attend, grown, join
from headcount.models.encoder.reference import check
from headcount.models.encoder.spec import MAPS, EncoderSpec, shapes

Weights = dict[str, Tensor]
DrawMask = Callable[[torch.Size, torch.dtype], Tensor]
"""(shape, dtype) → 0 where what a block adds is dropped and 1 where it is kept."""

_GROUP = 2048  # rows of one product of a map's gradient, at least
_ALONE = 8192  # rows of a model from which one product a model fills a GPU, and its bias costs nothing


def split(spec: EncoderSpec, theta: Float[Tensor, "models size"]) -> Weights:
    """Return views weights[name][models, ...] of the flat vectors; query, key and value as one, `maps`."""
    merged: dict[str, tuple[int, ...]] = {}
    for name, shape in shapes(spec).items():
        stem, _, kind = name.rpartition(".")
        if kind == MAPS[0]:
            merged[f"{stem}.maps"] = (3, *shape)
        elif kind not in MAPS:
            merged[name] = shape
    counts = [math.prod(shape) for shape in merged.values()]
    parts = cast("tuple[Tensor, ...]", theta.split(counts, dim=1))
    return {name: part.unflatten(1, merged[name]) for name, part in zip(merged, parts, strict=True)}


class _Affine(torch.autograd.Function):
    """u[m, rows, i] → u Wᵀ + b with W[m, o, i], b[m, o], each model its own."""

    @staticmethod
    def forward(ctx: Any, u: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Write every model's rows into one tensor."""
        ctx.save_for_backward(u, weight)
        ctx.biased = bias is not None
        if bias is None:
            return torch.bmm(u, weight.mT)
        if (
            u.is_cuda and u.shape[1] >= _ALONE
        ):  # the bias joins in the product's last step; in a batch it is a pass more
            out = u.new_empty(*u.shape[:2], weight.shape[1])
            for m in range(len(u)):
                torch.addmm(bias[m], u[m], weight[m].mT, out=out[m])
            return out
        return torch.baddbmm(bias[:, None], u, weight.mT)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor, Tensor | None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The gradient of the weights is summed over groups: one block a result would leave most of a GPU idle."""
        (out,), (u, weight) = gradients, cast("tuple[Tensor, Tensor]", ctx.saved_tensors)
        models, rows, _ = u.shape
        groups = 1
        while rows % (2 * groups) == 0 and rows // (2 * groups) >= _GROUP:
            groups *= 2
        out = out.contiguous()
        parts = [t.reshape(models * groups, rows // groups, -1) for t in (out, u)]
        slope = torch.bmm(parts[0].mT, parts[1])
        if groups > 1:
            slope = slope.reshape(models, groups, *slope.shape[1:]).sum(1)
        before = torch.bmm(out, weight) if ctx.needs_input_grad[0] else None
        return before, slope, out.sum(1) if ctx.biased else None


def _affine(u: Float[Tensor, "m b t i"], weight: Tensor, bias: Tensor | None) -> Float[Tensor, "m b t o"]:
    """W u + b; a constant row of the weights' dtype is rounded to that of u."""
    out = _Affine.apply(u.flatten(1, 2), weight.to(u.dtype), None if bias is None else bias.to(u.dtype))
    return cast("Tensor", out).unflatten(1, u.shape[1:3])


def _bare(u: Tensor) -> Tensor:
    """Mean 0 and deviation 1 over a row; gain and shift are in the next map."""
    return nn.functional.layer_norm(u, u.shape[-1:])


def _folded(w: Weights, norm: str, weight: Float[Tensor, "m o e"]) -> tuple[Tensor, Tensor]:
    """(W·g, W s) for a map that follows a layer norm with gain g and shift s."""
    gain, shift = w[f"{norm}.weight"], w[f"{norm}.bias"]
    return weight * gain[:, None], torch.bmm(weight, shift[:, :, None])[:, :, 0]


def _attend(
    spec: EncoderSpec, w: Weights, at: str, u: Float[Tensor, "m b t e"], seen: Bool[Tensor, "m b t"] | None
) -> Float[Tensor, "m b t e"]:
    """W_O [o_1; …; o_h] of all rows, from the norms u."""
    (models, batch, T, E), h, n = u.shape, spec.heads, spec.head_dim
    weight, bias = _folded(w, f"{at}.norm_attention", w[f"{at}.attention.maps"].reshape(models, 3 * h * n, E))
    packed = _affine(u, weight, bias).reshape(models * batch, T, 3, h, n)
    allowed = None if seen is None else seen.reshape(models * batch, T)
    o = attend(packed, allowed).reshape(models, batch, T, h * n)
    return _affine(o, w[f"{at}.attention.output"].transpose(1, 2).flatten(2), None)  # W_O,i head beside head


def _ask(
    spec: EncoderSpec,
    w: Weights,
    at: str,
    u: Float[Tensor, "m b t e"],
    c: Float[Tensor, "m b 1 e"],
    seen: Bool[Tensor, "m b t"] | None,
) -> Float[Tensor, "m b 1 e"]:
    """W_O [o_1; …; o_h] of the class token's row c of the norms u alone: no other has its keys and values made.

    A query's product with the shift's part of the keys is one number for all tokens, which softmax does not see; the
    weights of a mean add up to 1, so the values' part comes whole.
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
    """W_2 gelu(W_1 LN(s) + b_1) + b_2, from the norms u."""
    weight, bias = _folded(w, f"{at}.norm_feedforward", w[f"{at}.feedforward.inner.weight"])
    hidden = nn.functional.gelu(_affine(u, weight, bias + w[f"{at}.feedforward.inner.bias"]))
    return _affine(hidden, w[f"{at}.feedforward.outer.weight"], w[f"{at}.feedforward.outer.bias"])


def _embedded(spec: EncoderSpec, w: Weights, tokens: Float[Tensor, "m b t i"]) -> Float[Tensor, "m b s e"]:
    """[c; e(1); …; e(T)] + positions: one product and one table."""
    table = w["embed.bias"][:, None].expand(-1, spec.tokens, -1)
    if spec.readout == "class":  # a token of zeros is mapped to 0: its row of the table is the class token
        tokens = nn.functional.pad(tokens, (0, 0, 1, 0))
        table = torch.cat([w["class_token"][:, None], table[:, 1:]], dim=1)
    if spec.positions:
        table = table + w["position"]
    return _affine(tokens, w["embed.weight"], None) + table[:, None].to(tokens.dtype)


def step_numbers(spec: EncoderSpec, rows: int) -> int:
    """Return how many numbers of the stream's dtype a step holds at its peak, about, for so many sequences in all.

    What each layer keeps for its gradient (two norms' inputs and outputs, query, key, value, heads, and the hidden
    layer twice), and what is being worked on; the last layer of a class token keeps a norm's input and output.
    """
    hidden = spec.expansion
    layers = spec.depth - (spec.readout == "class")
    a_token = layers * (8 + 2 * hidden) + 2 * (spec.readout == "class") + (6 + 2 * hidden)
    return rows * spec.tokens * (spec.width * a_token + 2 * spec.inputs)


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
    check(spec, X, mask)
    models, w = len(theta), split(spec, theta)
    tokens = X.to(dtype or theta.dtype)
    tokens = tokens if tokens.ndim == 4 else tokens.expand(models, *tokens.shape)
    seen = mask if mask is None or mask.ndim == 3 else mask.expand(models, *mask.shape)
    if seen is not None and spec.readout == "class":
        seen = nn.functional.pad(seen, (1, 0), value=True)

    def kept(added: Tensor) -> Tensor | None:
        return None if draw_mask is None or spec.dropout == 0.0 else draw_mask(added.shape, added.dtype)

    s, u = join(_embedded(spec, w, tokens))
    for layer in range(spec.depth):
        at, last = f"layers.{layer}", layer == spec.depth - 1
        if last and spec.readout == "class":  # both are cut once: a slice's gradient is as large as what it is cut from
            c = u[:, :, :1]
            s, added = s[:, :, :1], _ask(spec, w, at, u, c, seen)
        else:
            added = _attend(spec, w, at, u, seen)
        if last and read is not None:
            s, added = s.index_select(2, read), added.index_select(2, read)
        s, u = join(s, added, kept(added), spec.dropout)
        added = _feedforward(w, at, u)
        if last:
            s = grown(s, added, kept(added), spec.dropout)
        else:
            s, u = join(s, added, kept(added), spec.dropout)
    weight, bias = _folded(w, "norm", w["readout.weight"])
    y = _affine(_bare(s.to(theta.dtype)), weight, bias + w["readout.bias"])  # few rows: worth all their digits
    return y[:, :, 0] if spec.readout == "class" else y[..., 0]
