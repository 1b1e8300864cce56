"""Conversion of weights between `Attention` and `nn.MultiheadAttention`.

Torch packs the heads into the rows of its matrices (for the output matrix, the columns): first head 0, then head 1, and
so on. Only this module knows that order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import torch
from torch import Tensor, nn

Weights = Mapping[str, Tensor]
Module = TypeVar("Module", bound=nn.Module)

_INPUTS = ("q", "k", "v")
_TORCH_NAMES = ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight", "in_proj_bias", "bias_k", "bias_v")
_LEGACY_MAPS = ("query", "key", "value")
"""The input matrices of the layer that probe used before `Attention`."""


@torch.enable_grad()  # so that slices require gradients exactly if their matrix does
def to_heads(torch_weights: Weights, heads: int, head_dim: int) -> dict[str, Tensor]:
    """Return torch's parameters by the names of `Attention`, with an axis of heads."""
    split = (heads, head_dim)
    if "in_proj_weight" in torch_weights:
        matrices = torch_weights["in_proj_weight"].chunk(3)
    else:
        matrices = [torch_weights[f"{x}_proj_weight"] for x in _INPUTS]
    weights = {f"{x}_weight": matrix.unflatten(0, split) for x, matrix in zip(_INPUTS, matrices, strict=True)}
    weights["o_weight"] = torch_weights["out_proj.weight"].unflatten(1, split).transpose(0, 1)
    if "in_proj_bias" in torch_weights:
        vectors = torch_weights["in_proj_bias"].chunk(3)
        weights |= {f"{x}_bias": vector.unflatten(0, split) for x, vector in zip(_INPUTS, vectors, strict=True)}
        weights["o_bias"] = torch_weights["out_proj.bias"]
    return weights | {
        name: torch_weights[name].reshape(split) for name in ("bias_k", "bias_v") if name in torch_weights
    }


@torch.enable_grad()
def to_matrices(weights: Weights, packed: bool) -> dict[str, Tensor]:
    """Return the parameters of `Attention` by torch's names; `packed` if the three inputs have the same width."""
    matrices = [weights[f"{x}_weight"].flatten(0, 1) for x in _INPUTS]
    if packed:
        torch_weights = {"in_proj_weight": torch.cat(matrices)}
    else:
        torch_weights = {f"{x}_proj_weight": matrix for x, matrix in zip(_INPUTS, matrices, strict=True)}
    torch_weights["out_proj.weight"] = weights["o_weight"].transpose(0, 1).flatten(1)
    if "o_bias" in weights:
        torch_weights["in_proj_bias"] = torch.cat([weights[f"{x}_bias"].flatten() for x in _INPUTS])
        torch_weights["out_proj.bias"] = weights["o_bias"]
    return torch_weights | {name: weights[name].reshape(1, 1, -1) for name in ("bias_k", "bias_v") if name in weights}


def weights_of(module: nn.MultiheadAttention) -> dict[str, Tensor]:
    """Return the parameters of torch's layer by name, as its forward reads them (parametrizations applied)."""
    found = {name: getattr(module, name) for name in _TORCH_NAMES} | {
        "out_proj.weight": module.out_proj.weight,
        "out_proj.bias": module.out_proj.bias,
    }
    return {name: weight for name, weight in found.items() if weight is not None}


def stored_matrices(stored: Weights, prefix: str) -> dict[str, Tensor]:
    """Return a state dict's entries under a prefix that have the names of torch's layer or of probe's former layer.

    The result is empty if the weights already have an axis of heads.
    """
    known = (*_TORCH_NAMES, *(f"{part}.{what}" for part in (*_LEGACY_MAPS, "out_proj") for what in ("weight", "bias")))
    found = {name: stored[prefix + name] for name in known if prefix + name in stored}
    return found if "out_proj.weight" in found and prefix + "q_weight" not in stored else {}


def to_torch_names(stored: Weights) -> dict[str, Tensor]:
    """Return weights stored as matrices by torch's names."""
    if "query.weight" not in stored:
        return dict(stored)
    found = {f"{x}_proj_weight": stored[f"{part}.weight"] for x, part in zip(_INPUTS, _LEGACY_MAPS, strict=True)}
    if "query.bias" in stored:
        found["in_proj_bias"] = torch.cat([stored[f"{part}.bias"] for part in _LEGACY_MAPS])
    return found | {name: weight for name, weight in stored.items() if name.startswith("out_proj.")}


@torch.no_grad()
def fill_parameters(made: Module, weights: Weights, training: bool, *, copy: bool = True) -> Module:
    """Return a module made on the meta device (where nothing is drawn) with these weights, or copies of them."""
    for path, _ in [*made.named_parameters()]:
        owner, _, name = path.rpartition(".")
        weight = weights[path]
        numbers = weight.clone(memory_format=torch.contiguous_format) if copy else weight.detach()
        made.get_submodule(owner).register_parameter(name, nn.Parameter(numbers, weight.requires_grad))
    return made.train(training)
