"""Attention whose heads are free of the width: `nn.MultiheadAttention`, but any number of heads of any size.

    q_i = W_Q,i x + b_Q,i      k_i = W_K,i z + b_K,i      v_i = W_V,i z' + b_V,i
    o_i = softmax(q_i k_iᵀ / sqrt(n) + mask) v_i          y = Σ_i W_O,i o_i + b_O

Heads are an axis of their own in every weight, so that one can be taken out without touching the others.
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
    by_torchs_names,
    filled,
    stored_matrices,
    to_heads,
    to_matrices,
    weights_of,
)


class BadAttention(BadInput, ValueError):
    """Sizes, inputs or masks that do not fit; a ValueError too, as users of torch expect."""


class Attention(nn.Module):
    """Multi-head attention with the keywords, call and results of `nn.MultiheadAttention`, and a free head_dim.

    head_dim is embed_dim / num_heads unless stated. Weights: q_weight[heads, head_dim, embed_dim],
    k_weight[heads, head_dim, kdim], v_weight[heads, head_dim, vdim], o_weight[heads, embed_dim, head_dim]; with
    bias q_bias, k_bias, v_bias[heads, head_dim] and o_bias[embed_dim]; with add_bias_kv bias_k and
    bias_v[heads, head_dim]. Where torch's sizes hold, the same seed draws the same weights as torch does.

    What the heads give, o[batch, heads, queries, head_dim], passes through the module `head_outputs` before o_weight:
    a forward hook there sees it, and what the hook returns takes its place.

    dropout, add_zero_attn, batch_first, device and dtype are those of torch.
    """

    q_bias: nn.Parameter | None
    k_bias: nn.Parameter | None
    v_bias: nn.Parameter | None
    o_bias: nn.Parameter | None
    bias_k: nn.Parameter | None
    bias_v: nn.Parameter | None

    # torch's transformer layers look these up to see whether their fused kernel, which knows no head_dim, fits
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
            raise BadAttention(f"dropout must be from 0 to 1, not {dropout}")
        self.embed_dim, self.num_heads, self.head_dim, self.kdim, self.vdim = embed_dim, num_heads, head_dim, kdim, vdim
        self.dropout, self.batch_first, self.add_zero_attn = float(dropout), batch_first, add_zero_attn
        self.heads_before, self.kept_heads = num_heads, tuple(range(num_heads))
        """How many heads the layer had before some were removed, and which of them it has."""
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
        """Draw all weights as torch does, in its order: Xavier for the inputs, ±1/sqrt(fan-in) for the output."""
        inner, width = self.num_heads * self.head_dim, self.embed_dim
        device, dtype = self.q_weight.device, self.q_weight.dtype

        def empty(*shape: int) -> Tensor:
            return torch.empty(shape, device=device, dtype=dtype)

        out = nn.Linear(inner, width, bias=self.o_bias is not None, device=device, dtype=dtype)
        drawn = {"out_proj.weight": out.weight}
        if self.kdim == self.vdim == width:  # one packed matrix, and so a smaller bound
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
        """Return the output and, if asked, the weights, in the shapes of `nn.MultiheadAttention`.

        query[batch, queries, embed_dim] with batch_first, [queries, batch, embed_dim] without, [queries, embed_dim]
        for one sequence; key and value alike. key_padding_mask[batch, keys]; attn_mask[queries, keys] or
        [batch·heads, queries, keys], where heads are those of the layer, or those that it had before some were
        removed. A boolean mask is True where a key is hidden; a float mask joins the score.
        is_causal is only a hint that attn_mask is causal, and needs it. A query whose keys are all hidden gets what
        torch gives it: NaN if weights are asked for, else heads that return 0. need_weights: whether the weights are
        returned too, their mean over heads with average_attn_weights, else those of each head.
        """
        self._check_inputs(query, key, value)
        batched = query.dim() == 3
        if not batched:  # one sequence is a batch of one
            query, key, value = (x.unsqueeze(0) for x in (query, key, value))
            key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
        elif not self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        attn_mask = self._of_kept_heads(attn_mask, query.shape[0])
        _check_masks(key_padding_mask, attn_mask, self.num_heads, query, key)
        if is_causal and attn_mask is None:
            raise BadAttention("is_causal is a hint that attn_mask is causal: give attn_mask as well")
        q = _project(query, self.q_weight, self.q_bias)
        k = _project(key, self.k_weight, self.k_bias)
        v = _project(value, self.v_weight, self.v_bias)
        k, v = self._more_keys(k, self.bias_k), self._more_keys(v, self.bias_v)
        added = k.shape[2] - key.shape[1]
        # the causal kernel would hide the added keys as well, which the mask does not
        causal = is_causal and key_padding_mask is None and not need_weights and added == 0
        mask = None if causal else _joined(key_padding_mask, attn_mask, self.num_heads, added, q.dtype)
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

    def _more_keys(self, x: Tensor, bias: nn.Parameter | None) -> Tensor:
        """Append the learned key or value, and the zero one, to x[batch, heads, keys, head_dim]."""
        if bias is not None:
            x = torch.cat([x, bias.to(x.dtype).unsqueeze(1).expand(x.shape[0], -1, -1, -1)], dim=2)
        return nn.functional.pad(x, (0, 0, 0, 1)) if self.add_zero_attn else x

    def _of_kept_heads(self, mask: Tensor | None, batch: int) -> Tensor | None:
        """Of a mask for every head that the layer once had, take what is for the heads that it has."""
        if mask is None or mask.dim() != 3 or self.heads_before == self.num_heads:
            return mask
        if mask.shape[0] != batch * self.heads_before:
            return mask
        return mask.unflatten(0, (batch, self.heads_before))[:, list(self.kept_heads)].flatten(0, 1)

    def _check_inputs(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        """Refuse inputs that do not fit the layer or one another."""
        found = {"query": query, "key": key, "value": value}
        if any(x.is_nested for x in found.values()):
            raise BadAttention("nested tensors are not taken: pad the sequences and give key_padding_mask")
        shapes = ", ".join(f"{name} {list(x.shape)}" for name, x in found.items())
        if query.dim() not in (2, 3) or not query.dim() == key.dim() == value.dim():
            raise BadAttention(f"query, key and value must all have three axes, or two without a batch; got {shapes}")
        sizes = (self.embed_dim, self.kdim, self.vdim)
        if (query.shape[-1], key.shape[-1], value.shape[-1]) != sizes:
            raise BadAttention(f"the last axes of query, key and value must be {sizes}; got {shapes}")
        batch = 0 if self.batch_first else 1
        if key.shape[:-1] != value.shape[:-1] or (query.dim() == 3 and query.shape[batch] != key.shape[batch]):
            order = "batch first" if self.batch_first else "batch second"
            raise BadAttention(f"key and value must be of one length, and all of one batch ({order}); got {shapes}")

    @classmethod
    def from_torch(cls, module: nn.MultiheadAttention, *, copy: bool = True) -> Attention:
        """Return the same layer with the same weights, to the bit.

        They are copies; with copy=False they are the numbers of `module` itself, seen through an axis of heads.
        """
        theirs = weights_of(module)
        made = cls(
            module.embed_dim,
            module.num_heads,
            module.dropout,
            "in_proj_bias" in theirs,
            "bias_k" in theirs,
            module.add_zero_attn,
            module.kdim,
            module.vdim,
            module.batch_first,
            device="meta",
            dtype=theirs["out_proj.weight"].dtype,
        )
        return filled(made, to_heads(theirs, made.num_heads, made.head_dim), module.training, copy=copy)

    def to_torch(self) -> nn.MultiheadAttention:
        """Return the same layer as torch's own, where heads times head_dim is embed_dim."""
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
        return filled(made, to_matrices(dict(self.named_parameters()), packed), self.training)

    @torch.enable_grad()
    def without_heads(self, heads: Iterable[int]) -> Attention:
        """Return a smaller layer that computes what this one does with the outputs of these heads (from 0) at zero."""
        gone = set(heads)
        if not gone <= set(range(self.num_heads)) or len(gone) == self.num_heads:
            last = self.num_heads - 1
            raise BadAttention(f"heads to remove are some of 0 to {last}, and one must stay; got {sorted(gone)}")
        kept = [i for i in range(self.num_heads) if i not in gone]
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
        return filled(made, weights, self.training)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any, **options: Any) -> None:
        """Load weights by their names here, by torch's, or by those of probed modules before they had this layer."""
        stored = stored_matrices(state_dict, prefix)
        if stored:
            with suppress(KeyError, RuntimeError):  # of other sizes: torch says which names it misses
                mine = to_heads(by_torchs_names(stored), self.num_heads, self.head_dim)
                for name in stored:
                    del state_dict[prefix + name]
                state_dict.update({prefix + name: weight for name, weight in mine.items()})
        super()._load_from_state_dict(state_dict, prefix, *args, **options)

    def extra_repr(self) -> str:
        """The sizes, as printing a module shows them."""
        return f"embed_dim={self.embed_dim}, num_heads={self.num_heads}, head_dim={self.head_dim}"


def _positive(name: str, size: int) -> None:
    if size < 1:
        raise BadAttention(f"{name} must be at least 1, not {size}")


def _project(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """W_i x(t) + b_i for every head: x[batch, length, ·] → [batch, heads, length, head_dim]."""
    y = torch.einsum("bte,hne->bhtn", x, weight)
    return y if bias is None else y + bias[:, None, :]


def _check_masks(padding: Tensor | None, mask: Tensor | None, heads: int, query: Tensor, key: Tensor) -> None:
    """Refuse masks that do not fit the inputs, which come with the batch first."""
    for name, given in (("key_padding_mask", padding), ("attn_mask", mask)):
        if given is not None and given.dtype != torch.bool and not given.is_floating_point():
            raise BadAttention(f"{name} must hold truth values or floats, not {given.dtype}")
    batch, queries, keys = query.shape[0], query.shape[1], key.shape[1]
    if padding is not None and padding.shape != (batch, keys):
        raise BadAttention(
            f"key_padding_mask must be [batch, keys] = {[batch, keys]}, or [keys] where query has no batch; "
            f"got {list(padding.shape)}"
        )
    full = (batch * heads, queries, keys)
    if mask is not None and mask.shape not in (full, full[1:]):
        raise BadAttention(
            f"attn_mask must be [queries, keys] = {list(full[1:])} or [batch·heads, queries, keys] = {list(full)}; "
            f"got {list(mask.shape)}"
        )


def _joined(padding: Tensor | None, mask: Tensor | None, heads: int, added: int, dtype: torch.dtype) -> Tensor | None:
    """Both masks as one that joins the scores [batch, heads, queries, keys]; nothing hides the added keys."""
    joined = None
    if mask is not None:
        joined = _additive(mask if mask.dim() == 2 else mask.unflatten(0, (mask.shape[0] // heads, heads)), dtype)
    if padding is not None:
        hidden = _additive(padding, dtype)[:, None, None, :]
        joined = hidden if joined is None else joined + hidden
    return joined if joined is None else nn.functional.pad(joined, (0, added))


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A boolean mask as −∞ where it is True; a float mask as it is."""
    if mask.dtype == torch.bool:
        return torch.zeros_like(mask, dtype=dtype).masked_fill_(mask, -torch.inf)
    return mask.to(dtype)
