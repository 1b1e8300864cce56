"""nn.MultiheadAttention with its heads in the open: the same numbers, projections that hooks can reach."""

from __future__ import annotations

import copy
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from headcount.core import BadInput

SMALL = 2_000_000
"""Parameters of a model that is not worth a second core."""


class OpenAttention(nn.Module):
    """What nn.MultiheadAttention computes, called in the same way; heads can be fewer than width / head size.

    It stands in for a layer that exists: made from its weights, by `OpenAttention(layer)`.
    """

    in_proj_bias: Tensor | None = None
    _qkv_same_embed_dim = False  # both say to nn.TransformerEncoderLayer: no fused path here

    def __init__(self, layer: nn.MultiheadAttention) -> None:
        super().__init__()
        self.embed_dim, self.num_heads, self.head_dim = layer.embed_dim, layer.num_heads, layer.head_dim
        self.batch_first, self.dropout, self.add_zero_attn = layer.batch_first, layer.dropout, layer.add_zero_attn
        packed: Any = layer.in_proj_weight
        bias: Any = layer.in_proj_bias
        weights = (layer.q_proj_weight, layer.k_proj_weight, layer.v_proj_weight) if packed is None else packed.chunk(3)
        biases = (None,) * 3 if bias is None else bias.chunk(3)
        projections = [_linear(w, b) for w, b in zip(weights, biases, strict=True)]
        self.query, self.key, self.value = projections
        self.out_proj = _linear(layer.out_proj.weight, layer.out_proj.bias)
        self.train(layer.training)

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
        """Attend; arguments and results are those of nn.MultiheadAttention."""
        del is_causal  # a hint there; the mask itself is always given
        single = query.dim() == 2
        first = 0 if self.batch_first or single else 1
        inputs = [x.unsqueeze(0) if single else x.transpose(0, first) for x in (query, key, value)]
        q, k, v = (
            project(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for project, x in zip((self.query, self.key, self.value), inputs, strict=True)
        )  # [batch, heads, length, head_dim]
        added = int(self.add_zero_attn)
        if added:
            k, v = (functional.pad(x, (0, 0, 0, 1)) for x in (k, v))
        bias = self._bias(key_padding_mask, attn_mask, q, k.shape[2] - added)
        bias = functional.pad(bias, (0, added)) if bias is not None else None
        scores = q @ k.transpose(-2, -1) * self.head_dim**-0.5
        weights = torch.softmax(scores if bias is None else scores + bias, -1)
        weights = functional.dropout(weights, self.dropout, self.training)
        out = self.out_proj((weights @ v).transpose(1, 2).flatten(-2))
        shown = (weights.mean(1) if average_attn_weights else weights) if need_weights else None
        if single:
            return out[0], None if shown is None else shown[0]
        return out.transpose(0, first), shown

    def _bias(self, padding: Tensor | None, mask: Tensor | None, q: Tensor, length: int) -> Tensor | None:
        """Both masks as one summand of the scores, over [batch, heads, queries, keys]."""
        total: Tensor | None = None
        if mask is not None:
            total = _summand(mask, q)
            if total.dim() == 3:  # a mask for every sequence and every head there was
                total = total.unflatten(0, (q.shape[0], -1))
                if total.shape[1] != q.shape[1]:
                    raise BadInput("an attn_mask per head does not fit a layer whose heads were removed")
        if padding is not None:
            hidden = _summand(padding, q).reshape(-1, 1, 1, length)
            total = hidden if total is None else total + hidden
        return total


def _summand(mask: Tensor, like: Tensor) -> Tensor:
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros(mask.shape, dtype=like.dtype, device=like.device).masked_fill_(mask, -torch.inf)


def _linear(weight: Any, bias: Any) -> nn.Linear:
    """A linear map around weights that exist."""
    made = nn.Linear(1, 1, bias=bias is not None, device="meta")
    made.in_features, made.out_features = int(weight.shape[1]), int(weight.shape[0])
    made.weight = nn.Parameter(weight.detach(), weight.requires_grad)
    if bias is not None:
        made.bias = nn.Parameter(bias.detach(), bias.requires_grad)
    return made


def twin(module: nn.Module) -> nn.Module:
    """Copy a module, but not its numbers: what is then replaced in the copy stays as it was in the module."""
    tensors = [*module.parameters(), *module.buffers()]
    return copy.deepcopy(module, {id(t): t for t in tensors})


def opened(module: nn.Module) -> nn.Module:
    """Return a twin whose nn.MultiheadAttention layers are open; the module itself is left as it is."""
    made = twin(module)
    if isinstance(made, nn.MultiheadAttention):
        raise BadInput("the module is a bare nn.MultiheadAttention: put it into a module that calls it")
    for name, layer in list(made.named_modules()):
        if isinstance(layer, nn.TransformerEncoder):
            layer.use_nested_tensor = False  # a form of tensors that only the fused path understands
        if not isinstance(layer, nn.MultiheadAttention):
            continue
        if type(layer).forward is not nn.MultiheadAttention.forward:
            raise BadInput(f"{name}: {type(layer).__name__} has a forward of its own, which probe cannot open")
        if layer.bias_k is not None:
            raise BadInput(f"{name}: attention with add_bias_kv is not supported")
        made.set_submodule(name, OpenAttention(layer))
    return made


@contextmanager
def few_threads(module: nn.Module) -> Generator[None]:
    """Compute a small model on one core: threads would wait for each other longer than they work."""
    before = torch.get_num_threads()
    if sum(p.numel() for p in module.parameters()) < SMALL:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def plain_paths() -> Generator[None]:
    """Let torch's own layers take the readable path, whose padded positions hold numbers and not zeros."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
