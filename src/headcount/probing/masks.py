"""A multiplier on the output of every head, by hooks on the layers: no model has to know of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Self

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from headcount.probing.layers import Layer, OnHeads


class Masks:
    """Multipliers of all heads, 1 at first; they act while the context is open."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.layers = layers
        self.values = [torch.ones(layer.heads, device=_device(layer)) for layer in layers]
        self.seen: Callable[[int, Tensor], None] | None = None
        """Is shown the heads' outputs of a layer, [..., heads, head_dim], whenever the layer is reached."""
        self._hooks: list[RemovableHandle] = []

    def __enter__(self) -> Self:
        for i, layer in enumerate(self.layers):
            self._hooks.append(layer.reach(self._multiplied(i)))
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
        """Make multipliers of 1 whose gradients can be taken."""
        self.values = [torch.ones_like(value, requires_grad=True) for value in self.values]
        return self.values

    def _multiplied(self, i: int) -> OnHeads:
        def multiply(heads: Tensor) -> Tensor:
            if self.seen is not None:
                self.seen(i, heads)
            return heads * self.values[i].to(heads.dtype)[:, None]

        return multiply


def _device(layer: Layer) -> torch.device:
    return next(layer.block.parameters()).device
