"""Where the heads of a known architecture are: one entry a family, so that a new family is one entry more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from headcount.base.errors import BadInput


class Layout(NamedTuple):
    """The parts of an attention block, as paths from the block; one path thrice: query, key, value side by side."""

    query: str
    key: str
    value: str
    output: str
    size: str
    """Where the block says how wide a head is."""
    counts: tuple[str, ...] = ()
    """Numbers of heads that the block keeps, to be set after a removal."""
    widths: tuple[str, ...] = ()
    """The same times the width of a head."""


class Family(NamedTuple):
    """An architecture: the `model_type` values of its config.json, and its layouts in releases of transformers."""

    name: str
    types: tuple[str, ...]
    layouts: tuple[Layout, ...]


_SEPARATE = Layout("q_proj", "k_proj", "v_proj", "o_proj", "head_dim", counts=("num_attention_heads", "num_heads"))
_SELF = Layout(
    "self.query", "self.key", "self.value", "output.dense", "self.attention_head_size",
    counts=("self.num_attention_heads",), widths=("self.all_head_size",),
)  # fmt: skip
_NESTED = Layout(
    "attention.query", "attention.key", "attention.value", "output.dense", "attention.attention_head_size",
    counts=("attention.num_attention_heads",), widths=("attention.all_head_size",),
)  # fmt: skip
_FUSED = Layout(
    "c_attn", "c_attn", "c_attn", "c_proj", "head_dim", counts=("num_heads",), widths=("split_size", "embed_dim")
)

FAMILIES = (
    Family("BERT", ("bert", "roberta", "xlm-roberta", "camembert", "electra"), (_SELF,)),
    Family("ViT", ("vit", "deit"), (_SEPARATE, _NESTED)),
    Family("GPT-2", ("gpt2",), (_FUSED,)),
    Family("Llama", ("llama", "mistral", "qwen2"), (_SEPARATE,)),
)
OPEN = Layout("query", "key", "value", "out_proj", "head_dim", counts=("num_heads",))
"""That of `probe_attention.OpenAttention`, which stands in for nn.MultiheadAttention."""


def family(model_type: str) -> Family:
    """Find the family of a `model_type`; one line for the unknown."""
    for found in FAMILIES:
        if model_type in found.types:
            return found
    known = "; ".join(f"{f.name} ({', '.join(f.types)})" for f in FAMILIES)
    raise BadInput(f"the architecture {model_type!r} is not known to probe: known are {known}")


@dataclass(frozen=True)
class Layer:
    """The attention of one layer: heads side by side at the input of the output projection."""

    name: str
    block: nn.Module
    layout: Layout
    heads: int
    head_dim: int
    group: int
    """So many heads share one key and value, and can only go together."""

    @property
    def projection(self) -> nn.Module:
        """The output projection, whose input is the heads' outputs side by side."""
        return self.block.get_submodule(self.layout.output)

    def units(self) -> list[tuple[int, ...]]:
        """What can be removed: single heads, or the heads of one key and value."""
        return [tuple(range(i, i + self.group)) for i in range(0, self.heads, self.group)]

    def keep(self, heads: Sequence[int]) -> None:
        """Remove all other heads, for good: cut the rows of query, key and value and the columns of the output."""
        kept = sorted(heads)
        shared = sorted({h // self.group for h in kept})
        if not kept or [h for g in shared for h in range(g * self.group, (g + 1) * self.group)] != kept:
            raise ValueError(f"{self.name}: heads {kept} cannot be kept alone (groups of {self.group})")
        layout, part = self.layout, lambda path: self.block.get_submodule(path)
        rows, pairs = self._places(kept), self._places(shared)
        if layout.query == layout.key:
            width = self.heads * self.head_dim
            _cut(part(layout.query), torch.cat([rows, rows + width, rows + 2 * width]), out=True)
        else:
            for path, places in ((layout.query, rows), (layout.key, pairs), (layout.value, pairs)):
                _cut(part(path), places, out=True)
        _cut(part(layout.output), rows, out=False)
        for paths, value in ((layout.counts, len(kept)), (layout.widths, len(rows))):
            for path in paths:
                _state(self.block, path, value)

    def _places(self, heads: Sequence[int]) -> Tensor:
        """The numbers of some heads among all numbers side by side."""
        return (torch.tensor(heads)[:, None] * self.head_dim + torch.arange(self.head_dim)).flatten()


def find_layers(module: nn.Module, layouts: Sequence[Layout]) -> list[Layer]:
    """Find all blocks of a module that have one of the layouts, in the order of the module."""
    found: list[Layer] = []
    for name, block in module.named_modules():
        for layout in layouts:
            layer = _layer(name, block, layout)
            if layer is not None:
                found.append(layer)
                break
    return found


def _layer(name: str, block: nn.Module, layout: Layout) -> Layer | None:
    parts = [_part(block, path) for path in (layout.query, layout.key, layout.value, layout.output)]
    size = _part(block, layout.size)
    if any(not isinstance(part, nn.Module) or not isinstance(size, int) for part in parts):
        return None
    widths = [_width(part, out=i < 3) for i, part in enumerate(parts)]
    if any(width is None for width in widths):
        kind = type(parts[3]).__name__
        raise BadInput(f"{name}: weights of the kind {kind} (quantised?) cannot be cut: load the model in plain floats")
    query, key, _, output = (width or 0 for width in widths)
    if layout.query == layout.key:
        if query != 3 * output:
            return None  # cross-attention: its queries come from elsewhere
        key = output
    if not key or output % size or key % size or output % key:
        return None
    return Layer(name, block, layout, output // size, size, output // key)


def _part(block: nn.Module, path: str) -> Any:
    found: Any = block
    for name in path.split("."):
        found = getattr(found, name, None)
    return found


def _state(block: nn.Module, path: str, value: int) -> None:
    """Set a number that a block keeps, where this release of the architecture keeps it."""
    owner, _, name = path.rpartition(".")
    holder = _part(block, owner) if owner else block
    if isinstance(getattr(holder, name, None), int):
        setattr(holder, name, value)


def _is_turned(module: Any) -> bool:
    """Whether weights are stored as [in, out]: the Conv1D of GPT-2."""
    return type(module).__name__ == "Conv1D"


def _width(module: Any, *, out: bool) -> int | None:
    """The size of a linear map's output or input; None for what is no plain linear map."""
    if not isinstance(module, nn.Linear) and not _is_turned(module):
        return None
    weight: Tensor = module.weight
    return int(weight.shape[0 if out != _is_turned(module) else 1]) if weight.is_floating_point() else None


def _cut(module: Any, places: Tensor, *, out: bool) -> None:
    """Keep some outputs (or inputs) of a linear map; its parameters are replaced, not changed."""
    axis = 0 if out != _is_turned(module) else 1
    places = places.to(module.weight.device)
    module.weight = nn.Parameter(module.weight.detach().index_select(axis, places), module.weight.requires_grad)
    if out and module.bias is not None:
        module.bias = nn.Parameter(module.bias.detach().index_select(0, places), module.bias.requires_grad)
    for name in ("out_features", "nf") if out else ("in_features", "nx"):
        if hasattr(module, name):
            setattr(module, name, len(places))
