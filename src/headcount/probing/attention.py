"""Open modules with nn.MultiheadAttention: the same weights in layers whose heads can be hooked and removed."""

from __future__ import annotations

import copy
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from headcount.core import BadInput
from headcount.models.attention import Attention
from headcount.probing.layers import HeadsTransform, Layer

MAX_ONE_THREAD_PARAMETERS = 2_000_000
"""Smaller models run faster on one thread."""

ATTENTION_KINDS = {nn.MultiheadAttention: "nn.MultiheadAttention", Attention: "headcount.Attention"}
"""The layers whose heads are found in any module, and their names."""


@dataclass(frozen=True)
class OpenLayer(Layer):
    """An `Attention` layer of a module."""

    block: Attention
    module: nn.Module
    """The module that contains the layer."""

    def hook_heads(self, transform: HeadsTransform) -> RemovableHandle:
        """Apply `transform` to the heads' outputs until the handle is removed."""

        def change(_module: nn.Module, _inputs: object, outputs: Tensor) -> Tensor:
            return transform(outputs.transpose(1, 2)).transpose(1, 2)

        return self.block.head_outputs.register_forward_hook(change)

    def keep_only(self, heads: Sequence[int]) -> None:
        """Remove all other heads permanently: the module gets a smaller layer."""
        _replace(self.module, self.block, self.block.without_heads({*range(self.heads)} - {*heads}))

    def matching_layers(self, module: nn.Module) -> list[OpenLayer]:
        """Return all `Attention` layers of a module."""
        return open_layers(module)


def open_layers(module: nn.Module) -> list[OpenLayer]:
    """Return the `Attention` layers of a module, in its order."""
    return [
        OpenLayer(name, part, part.num_heads, part.head_dim, 1, module)
        for name, part in module.named_modules()
        if isinstance(part, Attention)
    ]


def twin(module: nn.Module) -> nn.Module:
    """Copy a module but share its tensors; replacing a part of the copy leaves the module unchanged."""
    tensors = [*module.parameters(), *module.buffers()]
    return copy.deepcopy(module, {id(t): t for t in tensors})


def open_module(module: nn.Module) -> nn.Module:
    """Return a twin whose nn.MultiheadAttention layers are `Attention`; the module itself is not changed."""
    made = twin(module)
    for name, layer in [*made.named_modules()]:
        if isinstance(layer, nn.TransformerEncoder):
            layer.use_nested_tensor = False  # only the fused path supports nested tensors
        kind = next((kind for kind in ATTENTION_KINDS if isinstance(layer, kind)), None)
        if kind is None:
            continue
        if layer is made:
            raise BadInput(f"the module is a bare {ATTENTION_KINDS[kind]}: wrap it in a module that calls it")
        if type(layer).forward is not kind.forward:
            raise BadInput(f"{name}: {type(layer).__name__} overrides forward, so probe cannot reach its heads")
        if isinstance(layer, nn.MultiheadAttention):
            _replace(made, layer, Attention.from_torch(layer, copy=False))
    return made


def _replace(module: nn.Module, old: nn.Module, new: nn.Module) -> None:
    """Replace a part everywhere in the module: a layer may be used twice."""
    for name, part in [*module.named_modules(remove_duplicate=False)]:
        if part is old:
            module.set_submodule(name, new)


@contextmanager
def one_thread_if_small(module: nn.Module) -> Generator[None]:
    """Run a small model on one thread: several threads would wait for each other longer than they work."""
    before = torch.get_num_threads()
    if sum(p.numel() for p in module.parameters()) < MAX_ONE_THREAD_PARAMETERS:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def without_fast_path() -> Generator[None]:
    """Switch off the fast path of torch's own layers, which sets padded positions to zero."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
