"""Modules with nn.MultiheadAttention, opened: the same numbers in layers whose heads can be reached and removed."""

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
from headcount.probing.layers import Layer, OnHeads

SMALL = 2_000_000
"""Parameters of a model that is not worth a second core."""

KINDS = {nn.MultiheadAttention: "nn.MultiheadAttention", Attention: "headcount.Attention"}
"""The layers whose heads are found in a module of any make."""


@dataclass(frozen=True)
class OpenLayer(Layer):
    """An `Attention` of a module."""

    block: Attention
    module: nn.Module
    """The whole of which the layer is a part."""

    def reach(self, act: OnHeads) -> RemovableHandle:
        """Let `act` change the heads' outputs until the handle is removed."""

        def change(_module: nn.Module, _inputs: object, outputs: Tensor) -> Tensor:
            return act(outputs.transpose(1, 2)).transpose(1, 2)

        return self.block.head_outputs.register_forward_hook(change)

    def keep(self, heads: Sequence[int]) -> None:
        """Remove all other heads, for good: the module gets a smaller layer."""
        _replace(self.module, self.block, self.block.without_heads({*range(self.heads)} - {*heads}))

    def alike(self, module: nn.Module) -> list[OpenLayer]:
        """Find all open layers of a module."""
        return open_layers(module)


def open_layers(module: nn.Module) -> list[OpenLayer]:
    """Find the `Attention` layers of a module, in its order."""
    return [
        OpenLayer(name, part, part.num_heads, part.head_dim, 1, module)
        for name, part in module.named_modules()
        if isinstance(part, Attention)
    ]


def twin(module: nn.Module) -> nn.Module:
    """Copy a module, but not its numbers: what is then replaced in the copy stays as it was in the module."""
    tensors = [*module.parameters(), *module.buffers()]
    return copy.deepcopy(module, {id(t): t for t in tensors})


def opened(module: nn.Module) -> nn.Module:
    """Return a twin whose nn.MultiheadAttention layers are `Attention`; the module itself is left as it is."""
    made = twin(module)
    for name, layer in [*made.named_modules()]:
        if isinstance(layer, nn.TransformerEncoder):
            layer.use_nested_tensor = False  # a form of tensors that only the fused path understands
        kind = next((kind for kind in KINDS if isinstance(layer, kind)), None)
        if kind is None:
            continue
        if layer is made:
            raise BadInput(f"the module is a bare {KINDS[kind]}: put it into a module that calls it")
        if type(layer).forward is not kind.forward:
            raise BadInput(f"{name}: {type(layer).__name__} has a forward of its own, which probe cannot open")
        if isinstance(layer, nn.MultiheadAttention):
            _replace(made, layer, Attention.from_torch(layer, copy=False))
    return made


def _replace(module: nn.Module, old: nn.Module, new: nn.Module) -> None:
    """Put a part in another's place, wherever the module has it: a layer may serve twice."""
    for name, part in [*module.named_modules(remove_duplicate=False)]:
        if part is old:
            module.set_submodule(name, new)


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
