"""The weights of `Attention` and of `nn.MultiheadAttention`, each in the other's form.

Torch packs the heads into the rows of its matrices (the columns of the last one): first the numbers of head 0, then
those of head 1, and so on. This is the one place where that order is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import torch
from torch import Tensor, nn

Weights = Mapping[str, Tensor]
Module = TypeVar("Module", bound=nn.Module)

_INPUTS = ("q", "k", "v")
_OWN = ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight", "in_proj_bias", "bias_k", "bias_v")
_PROBED = ("query", "key", "value")
"""The input matrices of the layer that probe put into modules before it put `Attention` there."""


@torch.enable_grad()  # so that a piece of a frozen matrix is frozen, and one of a trained matrix is not
def to_heads(theirs: Weights, heads: int, head_dim: int) -> dict[str, Tensor]:
    """Return torch's parameters by our names, with an axis of heads."""
    split = (heads, head_dim)
    if "in_proj_weight" in theirs:
        matrices = theirs["in_proj_weight"].chunk(3)
    else:
        matrices = [theirs[f"{x}_proj_weight"] for x in _INPUTS]
    mine = {f"{x}_weight": matrix.unflatten(0, split) for x, matrix in zip(_INPUTS, matrices, strict=True)}
    mine["o_weight"] = theirs["out_proj.weight"].unflatten(1, split).transpose(0, 1)
    if "in_proj_bias" in theirs:
        vectors = theirs["in_proj_bias"].chunk(3)
        mine |= {f"{x}_bias": vector.unflatten(0, split) for x, vector in zip(_INPUTS, vectors, strict=True)}
        mine["o_bias"] = theirs["out_proj.bias"]
    return mine | {name: theirs[name].reshape(split) for name in ("bias_k", "bias_v") if name in theirs}


@torch.enable_grad()
def to_matrices(mine: Weights, packed: bool) -> dict[str, Tensor]:
    """Return our parameters by torch's names; `packed` where its three inputs have the same width."""
    matrices = [mine[f"{x}_weight"].flatten(0, 1) for x in _INPUTS]
    if packed:
        theirs = {"in_proj_weight": torch.cat(matrices)}
    else:
        theirs = {f"{x}_proj_weight": matrix for x, matrix in zip(_INPUTS, matrices, strict=True)}
    theirs["out_proj.weight"] = mine["o_weight"].transpose(0, 1).flatten(1)
    if "o_bias" in mine:
        theirs["in_proj_bias"] = torch.cat([mine[f"{x}_bias"].flatten() for x in _INPUTS])
        theirs["out_proj.bias"] = mine["o_bias"]
    return theirs | {name: mine[name].reshape(1, 1, -1) for name in ("bias_k", "bias_v") if name in mine}


def weights_of(module: nn.MultiheadAttention) -> dict[str, Tensor]:
    """Return the parameters of torch's layer by their names, as its forward reads them: parametrized ones as well."""
    found = {name: getattr(module, name) for name in _OWN} | {
        "out_proj.weight": module.out_proj.weight,
        "out_proj.bias": module.out_proj.bias,
    }
    return {name: weight for name, weight in found.items() if weight is not None}


def stored_matrices(stored: Weights, prefix: str) -> dict[str, Tensor]:
    """Return what a state dict has under a prefix by the names of torch's layer, or of the layer that probe once had.

    It is empty where the heads are an axis already.
    """
    known = (*_OWN, *(f"{part}.{what}" for part in (*_PROBED, "out_proj") for what in ("weight", "bias")))
    found = {name: stored[prefix + name] for name in known if prefix + name in stored}
    return found if "out_proj.weight" in found and prefix + "q_weight" not in stored else {}


def by_torchs_names(stored: Weights) -> dict[str, Tensor]:
    """Return weights that are stored as matrices by the names that torch gives them."""
    if "query.weight" not in stored:
        return dict(stored)
    found = {f"{x}_proj_weight": stored[f"{part}.weight"] for x, part in zip(_INPUTS, _PROBED, strict=True)}
    if "query.bias" in stored:
        found["in_proj_bias"] = torch.cat([stored[f"{part}.bias"] for part in _PROBED])
    return found | {name: weight for name, weight in stored.items() if name.startswith("out_proj.")}


@torch.no_grad()
def filled(made: Module, weights: Weights, training: bool, *, copy: bool = True) -> Module:
    """Give a module that was made on the meta device, where nothing is drawn, these weights, or copies of them."""
    for path, _ in [*made.named_parameters()]:
        owner, _, name = path.rpartition(".")
        weight = weights[path]
        numbers = weight.clone(memory_format=torch.contiguous_format) if copy else weight.detach()
        made.get_submodule(owner).register_parameter(name, nn.Parameter(numbers, weight.requires_grad))
    return made.train(training)
