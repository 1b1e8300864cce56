"""The interface of an attention layer to probe: hook its heads, and remove some of them permanently."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

HeadsTransform = Callable[[Tensor], Tensor]
"""Takes the heads' outputs, [..., heads, head_dim], and returns their replacement."""


@dataclass(frozen=True)
class Layer(ABC):
    """The attention of one layer of a module."""

    name: str
    block: nn.Module
    heads: int
    head_dim: int
    group: int
    """The number of heads that share one key and value, and can only be removed together."""

    def units(self) -> list[tuple[int, ...]]:
        """Return the smallest sets of heads that can be removed: single heads, or the heads of one key and value."""
        return [tuple(range(i, i + self.group)) for i in range(0, self.heads, self.group)]

    @abstractmethod
    def hook_heads(self, transform: HeadsTransform) -> RemovableHandle:
        """Apply `transform` to the heads' outputs until the handle is removed."""

    @abstractmethod
    def keep_only(self, heads: Sequence[int]) -> None:
        """Remove all other heads permanently."""

    @abstractmethod
    def matching_layers(self, module: nn.Module) -> Sequence[Layer]:
        """Return all layers of this kind in another module, such as a twin."""
