"""Attention whose heads are independent of the width: `nn.MultiheadAttention` with any number of heads of any size.

    q_i = W_Q,i x + b_Q,i      k_i = W_K,i z + b_K,i      v_i = W_V,i z' + b_V,i
    o_i = softmax(q_i k_iᵀ / sqrt(n) + mask) v_i          y = Σ_i W_O,i o_i + b_O

Heads are a separate axis of every weight, so that one can be removed without changing the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from headcount.core import BadInput
from headcount.models.attention.torch_weights import (
    fill_parameters,
    stored_matrices,
    to_heads,
    to_matrices,
    to_torch_names,
    weights_of,
)


class BadAttention(BadInput, ValueError):
    """Sizes, inputs or masks that do not fit; also a ValueError, as users of torch expect."""


class Attention(nn.Module):
    """Multi-head attention with the arguments and results of `nn.MultiheadAttention`, and a free head_dim.

    head_dim is embed_dim / num_heads unless stated. Weights: q_weight[heads, head_dim, embed_dim],
    k_weight[heads, head_dim, kdim], v_weight[heads, head_dim, vdim], o_weight[heads, embed_dim, head_dim]; with
    bias q_bias, k_bias, v_bias[heads, head_dim] and o_bias[embed_dim]; with add_bias_kv bias_k and
    bias_v[heads, head_dim]. If heads · head_dim = embed_dim, the same seed draws the same weights as in torch.

    The outputs of the heads, o[batch, heads, queries, head_dim], pass through the module `head_outputs` before
    o_weight: a forward hook there can read and replace them.

    dropout, add_zero_attn, batch_first, device and dtype are as in torch.
    """

    q_bias: nn.Parameter | None
    k_bias: nn.Parameter | None
    v_bias: nn.Parameter | None
    o_bias: nn.Parameter | None
    bias_k: nn.Parameter | None
    bias_v: nn.Parameter | None

    # torch's transformer layers read these to decide on their fused kernel, which does not support a free head_dim
    in_proj_weight: None = None
    in_proj_bias: None = None
    _qkv_same_embed_dim: bool = False

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        head_dim: int | None = None,
    ) -> None:
        super().__init__()
        kdim, vdim = embed_dim if kdim is None else kdim, embed_dim if vdim is None else vdim
        for name, size in (("embed_dim", embed_dim), ("num_heads", num_heads), ("kdim", kdim), ("vdim", vdim)):
            _positive(name, size)
        if head_dim is None:
            if embed_dim % num_heads:
                raise BadAttention(f"{num_heads} heads do not divide embed_dim {embed_dim}: give head_dim, any size")
            head_dim = embed_dim // num_heads
        _positive("head_dim", head_dim)
        if not 0 <= dropout <= 1:
            raise BadAttention(f"dropout must be between 0 and 1, not {dropout}")
        self.embed_dim, self.num_heads, self.head_dim, self.kdim, self.vdim = embed_dim, num_heads, head_dim, kdim, vdim
        self.dropout, self.batch_first, self.add_zero_attn = float(dropout), batch_first, add_zero_attn
        self.heads_before, self.kept_heads = num_heads, tuple(range(num_heads))
        """The number of heads before any were removed, and the original indices of those that remain."""
        self.head_outputs = nn.Identity()

        def weight(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(shape, device=device, dtype=dtype))

        self.q_weight = weight(num_heads, head_dim, embed_dim)
        self.k_weight = weight(num_heads, head_dim, kdim)
        self.v_weight = weight(num_heads, head_dim, vdim)
        self.o_weight = weight(num_heads, embed_dim, head_dim)
        for name in ("q_bias", "k_bias", "v_bias"):
            self.register_parameter(name, weight(num_heads, head_dim) if bias else None)
        self.register_parameter("o_bias", weight(embed_dim) if bias else None)
        for name in ("bias_k", "bias_v"):
            self.register_parameter(name, weight(num_heads, head_dim) if add_bias_kv else None)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw all weights as torch does, in the same order: Xavier for the inputs, ±1/sqrt(fan-in) for the output."""
        inner, width = self.num_heads * self.head_dim, self.embed_dim
        device, dtype = self.q_weight.device, self.q_weight.dtype

        def empty(*shape: int) -> Tensor:
            return torch.empty(shape, device=device, dtype=dtype)

        out = nn.Linear(inner, width, bias=self.o_bias is not None, device=device, dtype=dtype)
        drawn = {"out_proj.weight": out.weight}
        if self.kdim == self.vdim == width:  # torch draws one packed matrix, with a smaller bound
            drawn["in_proj_weight"] = nn.init.xavier_uniform_(empty(3 * inner, width))
        else:
            for name, size in (("q", width), ("k", self.kdim), ("v", self.vdim)):
                drawn[f"{name}_proj_weight"] = nn.init.xavier_uniform_(empty(inner, size))
        if self.bias_k is not None:
            drawn |= {name: nn.init.xavier_normal_(empty(1, 1, inner)) for name in ("bias_k", "bias_v")}
        weights = to_heads(drawn, self.num_heads, self.head_dim)
        for name, parameter in self.named_parameters():
            parameter.copy_(weights[name] if name in weights else torch.zeros_like(parameter))

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the output and, if requested, the weights, in the shapes of `nn.MultiheadAttention`.

        query[batch, queries, embed_dim] with batch_first, [queries, batch, embed_dim] without, [queries, embed_dim]
        for one sequence; key and value likewise. key_padding_mask[batch, keys]; attn_mask[queries, keys] or
        [batch·heads, queries, keys], for the heads of the layer or for those that it had before some were removed.
        A boolean mask is True where a key is hidden; a float mask is added to the score. is_causal is only a hint that
        attn_mask is causal, and requires attn_mask. A query whose keys are all hidden behaves as in torch: NaN if
        weights are requested, otherwise head outputs of 0. need_weights: whether to return the weights as well,
        averaged over heads with average_attn_weights, otherwise per head.
        """
        self._check_inputs(query, key, value)
        batched = query.dim() == 3
        if not batched:  # treat one sequence as a batch of one
            query, key, value = (x.unsqueeze(0) for x in (query, key, value))
            key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
        elif not self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        attn_mask = self._select_kept_heads(attn_mask, query.shape[0])
        _check_masks(key_padding_mask, attn_mask, self.num_heads, query, key)
        if is_causal and attn_mask is None:
            raise BadAttention("is_causal only tells that attn_mask is causal: pass attn_mask as well")
        q = _project(query, self.q_weight, self.q_bias)
        k = _project(key, self.k_weight, self.k_bias)
        v = _project(value, self.v_weight, self.v_bias)
        k, v = self._append_keys(k, self.bias_k), self._append_keys(v, self.bias_v)
        added = k.shape[2] - key.shape[1]
        # the causal kernel would hide the added keys as well, which the mask does not
        causal = is_causal and key_padding_mask is None and not need_weights and added == 0
        mask = None if causal else _merge_masks(key_padding_mask, attn_mask, self.num_heads, added, q.dtype)
        dropout = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            scores = q @ k.transpose(-2, -1) / math.sqrt(self.head_dim)
            weights = torch.softmax(scores if mask is None else scores + mask, dim=-1)
            weights = nn.functional.dropout(weights, dropout)
            o = weights @ v
        else:
            o = nn.functional.scaled_dot_product_attention(q, k, v, mask, dropout, causal)
        o = self.head_outputs(o)
        first = batched and not self.batch_first
        y = torch.einsum("bhqn,hen->qbe" if first else "bhqn,hen->bqe", o, self.o_weight)
        y = (y if self.o_bias is None else y + self.o_bias).contiguous()
        if weights is not None and average_attn_weights:
            weights = weights.mean(dim=1)
        if batched:
            return y, weights
        return y.squeeze(0), None if weights is None else weights.squeeze(0)

    def _append_keys(self, x: Tensor, bias: nn.Parameter | None) -> Tensor:
        """Append the learned key or value (add_bias_kv) and the zero one to x[batch, heads, keys, head_dim]."""
        if bias is not None:
            x = torch.cat([x, bias.to(x.dtype).unsqueeze(1).expand(x.shape[0], -1, -1, -1)], dim=2)
        return nn.functional.pad(x, (0, 0, 0, 1)) if self.add_zero_attn else x

    def _select_kept_heads(self, mask: Tensor | None, batch: int) -> Tensor | None:
        """Return a mask for the remaining heads, if it was given for all heads that the layer once had."""
        if mask is None or mask.dim() != 3 or self.heads_before == self.num_heads:
            return mask
        if mask.shape[0] != batch * self.heads_before:
            return mask
        return mask.unflatten(0, (batch, self.heads_before))[:, list(self.kept_heads)].flatten(0, 1)

    def _check_inputs(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        """Raise BadAttention if the inputs do not fit the layer or each other."""
        inputs = {"query": query, "key": key, "value": value}
        if any(x.is_nested for x in inputs.values()):
            raise BadAttention("nested tensors are not supported: pad the sequences and pass key_padding_mask")
        shapes = ", ".join(f"{name} {list(x.shape)}" for name, x in inputs.items())
        if query.dim() not in (2, 3) or not query.dim() == key.dim() == value.dim():
            raise BadAttention(f"query, key and value must all have three axes, or two without a batch; got {shapes}")
        sizes = (self.embed_dim, self.kdim, self.vdim)
        if (query.shape[-1], key.shape[-1], value.shape[-1]) != sizes:
            raise BadAttention(f"the last axes of query, key and value must be {sizes}; got {shapes}")
        batch = 0 if self.batch_first else 1
        if key.shape[:-1] != value.shape[:-1] or (query.dim() == 3 and query.shape[batch] != key.shape[batch]):
            order = "batch first" if self.batch_first else "batch second"
            raise BadAttention(
                f"key and value must have the same length, and all the same batch ({order}); got {shapes}"
            )

    @classmethod
    def from_torch(cls, module: nn.MultiheadAttention, *, copy: bool = True) -> Attention:
        """Return a layer with exactly the weights of torch's layer.

        copy: whether to copy the weights (default); otherwise they are views of those of `module`.
        """
        torch_weights = weights_of(module)
        made = cls(
            module.embed_dim,
            module.num_heads,
            module.dropout,
            "in_proj_bias" in torch_weights,
            "bias_k" in torch_weights,
            module.add_zero_attn,
            module.kdim,
            module.vdim,
            module.batch_first,
            device="meta",
            dtype=torch_weights["out_proj.weight"].dtype,
        )
        return fill_parameters(made, to_heads(torch_weights, made.num_heads, made.head_dim), module.training, copy=copy)

    def to_torch(self) -> nn.MultiheadAttention:
        """Return torch's layer with the same weights; requires heads · head_dim = embed_dim."""
        h, n, width = self.num_heads, self.head_dim, self.embed_dim
        if h * n != width:
            raise BadAttention(f"torch's layer needs heads · head_dim = embed_dim, but {h} · {n} is not {width}")
        made = nn.MultiheadAttention(
            width,
            h,
            self.dropout,
            self.o_bias is not None,
            self.bias_k is not None,
            self.add_zero_attn,
            self.kdim,
            self.vdim,
            self.batch_first,
            device="meta",
            dtype=self.q_weight.dtype,
        )
        packed = self.kdim == self.vdim == width
        return fill_parameters(made, to_matrices(dict(self.named_parameters()), packed), self.training)

    @torch.enable_grad()
    def without_heads(self, heads: Iterable[int]) -> Attention:
        """Return a smaller layer that computes what this one computes with the outputs of these heads (from 0) at 0."""
        removed = set(heads)
        if not removed <= set(range(self.num_heads)) or len(removed) == self.num_heads:
            last = self.num_heads - 1
            raise BadAttention(f"heads to remove must be from 0 to {last}, and one must stay; got {sorted(removed)}")
        kept = [i for i in range(self.num_heads) if i not in removed]
        made = Attention(
            self.embed_dim,
            len(kept),
            self.dropout,
            self.o_bias is not None,
            self.bias_k is not None,
            self.add_zero_attn,
            self.kdim,
            self.vdim,
            self.batch_first,
            device="meta",
            dtype=self.q_weight.dtype,
            head_dim=self.head_dim,
        )
        weights = {name: w if name == "o_bias" else w[kept] for name, w in self.named_parameters()}
        made.heads_before, made.kept_heads = self.heads_before, tuple(self.kept_heads[i] for i in kept)
        return fill_parameters(made, weights, self.training)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any, **options: Any) -> None:
        """Load weights stored by the names of this layer, of torch's, or of the layer that probe once used."""
        stored = stored_matrices(state_dict, prefix)
        if stored:
            with suppress(KeyError, RuntimeError):  # wrong sizes: torch reports the names that are missing
                weights = to_heads(to_torch_names(stored), self.num_heads, self.head_dim)
                for name in stored:
                    del state_dict[prefix + name]
                state_dict.update({prefix + name: weight for name, weight in weights.items()})
        super()._load_from_state_dict(state_dict, prefix, *args, **options)

    def extra_repr(self) -> str:
        """Return the sizes, for printing the module."""
        return f"embed_dim={self.embed_dim}, num_heads={self.num_heads}, head_dim={self.head_dim}"


def _positive(name: str, size: int) -> None:
    if size < 1:
        raise BadAttention(f"{name} must be at least 1, not {size}")


def _project(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return W_i x(t) + b_i for every head: x[batch, length, ·] → [batch, heads, length, head_dim]."""
    y = torch.einsum("bte,hne->bhtn", x, weight)
    return y if bias is None else y + bias[:, None, :]


def _check_masks(padding: Tensor | None, mask: Tensor | None, heads: int, query: Tensor, key: Tensor) -> None:
    """Raise BadAttention if the masks do not fit the inputs, whose first axis is the batch."""
    for name, value in (("key_padding_mask", padding), ("attn_mask", mask)):
        if value is not None and value.dtype != torch.bool and not value.is_floating_point():
            raise BadAttention(f"{name} must be boolean or floating point, not {value.dtype}")
    batch, queries, keys = query.shape[0], query.shape[1], key.shape[1]
    if padding is not None and padding.shape != (batch, keys):
        raise BadAttention(
            f"key_padding_mask must be [batch, keys] = {[batch, keys]}, or [keys] if query has no batch; "
            f"got {list(padding.shape)}"
        )
    full = (batch * heads, queries, keys)
    if mask is not None and mask.shape not in (full, full[1:]):
        raise BadAttention(
            f"attn_mask must be [queries, keys] = {list(full[1:])} or [batch·heads, queries, keys] = {list(full)}; "
            f"got {list(mask.shape)}"
        )


def _merge_masks(
    padding: Tensor | None, mask: Tensor | None, heads: int, added: int, dtype: torch.dtype
) -> Tensor | None:
    """Return both masks as one to add to the scores [batch, heads, queries, keys]; the added keys are never hidden."""
    merged = None
    if mask is not None:
        merged = _as_additive(mask if mask.dim() == 2 else mask.unflatten(0, (mask.shape[0] // heads, heads)), dtype)
    if padding is not None:
        hidden = _as_additive(padding, dtype)[:, None, None, :]
        merged = hidden if merged is None else merged + hidden
    return merged if merged is None else nn.functional.pad(merged, (0, added))


def _as_additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a boolean mask as −∞ where it is True, and a float mask unchanged."""
    if mask.dtype == torch.bool:
        return torch.zeros_like(mask, dtype=dtype).masked_fill_(mask, -torch.inf)
    return mask.to(dtype)
