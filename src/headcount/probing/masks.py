"""A multiplier on the output of every head, applied by hooks, so that models need no support for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Self

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from headcount.probing.layers import HeadsTransform, Layer


class Masks:
    """Multipliers of all heads, initially 1; they apply while the context is open."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.layers = layers
        self.values = [torch.ones(layer.heads, device=_device(layer)) for layer in layers]
        self.observer: Callable[[int, Tensor], None] | None = None
        """Called with the layer and its heads' outputs, [..., heads, head_dim], whenever a layer runs."""
        self._hooks: list[RemovableHandle] = []

    def __enter__(self) -> Self:
        for i, layer in enumerate(self.layers):
            self._hooks.append(layer.hook_heads(self._multiplied(i)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def without(self, heads: Iterable[tuple[int, int]]) -> None:
        """Set the multipliers of some heads (layer, head) to 0 and all others to 1."""
        self.values = [torch.ones_like(value) for value in self.values]
        for layer, head in heads:
            self.values[layer][head] = 0.0

    def leaves(self) -> list[Tensor]:
        """Set all multipliers to 1 and return them as leaves that record gradients."""
        self.values = [torch.ones_like(value, requires_grad=True) for value in self.values]
        return self.values

    def _multiplied(self, i: int) -> HeadsTransform:
        def multiply(heads: Tensor) -> Tensor:
            if self.observer is not None:
                self.observer(i, heads)
            return heads * self.values[i].to(heads.dtype)[:, None]

        return multiply


def _device(layer: Layer) -> torch.device:
    return next(layer.block.parameters()).device
