"""What probe asks of an attention layer, whatever holds it: to reach its heads, and to remove some for good."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

OnHeads = Callable[[Tensor], Tensor]
"""Is given the heads' outputs, [..., heads, head_dim], and returns what takes their place."""


@dataclass(frozen=True)
class Layer(ABC):
    """The attention of one layer of a module."""

    name: str
    block: nn.Module
    heads: int
    head_dim: int
    group: int
    """So many heads share one key and value, and can only go together."""

    def units(self) -> list[tuple[int, ...]]:
        """What can be removed: single heads, or the heads of one key and value."""
        return [tuple(range(i, i + self.group)) for i in range(0, self.heads, self.group)]

    @abstractmethod
    def reach(self, act: OnHeads) -> RemovableHandle:
        """Let `act` change the heads' outputs until the handle is removed."""

    @abstractmethod
    def keep(self, heads: Sequence[int]) -> None:
        """Remove all other heads, for good."""

    @abstractmethod
    def alike(self, module: nn.Module) -> Sequence[Layer]:
        """Find all layers of a module that are held as this one is: those of a twin, say."""
