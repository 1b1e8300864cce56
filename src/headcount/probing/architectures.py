"""Where the heads of a known architecture are: one entry a family, so that a new family is one entry more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from headcount.core import BadInput
from headcount.probing.layers import Layer, OnHeads


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
    bias: str = ""
    """An embedding with a column a head that all layers of a stack read (T5's position bias); only the first has it."""


class ConfigNames(NamedTuple):
    """What config.json calls the number of heads, of keys and values ("" where it has none) and the size of a head."""

    heads: str
    pairs: str
    size: str


class Family(NamedTuple):
    """An architecture: the `model_type` values of its config.json, and its layouts in releases of transformers."""

    name: str
    types: tuple[str, ...]
    layouts: tuple[Layout, ...]
    config: ConfigNames | None = None
    """Without names for it (None) config.json cannot state a head size: heads times size is the width."""


_SEPARATE = Layout("q_proj", "k_proj", "v_proj", "o_proj", "head_dim", counts=("num_attention_heads", "num_heads"))
_SELF = Layout(
    "self.query",
    "self.key",
    "self.value",
    "output.dense",
    "self.attention_head_size",
    counts=("self.num_attention_heads",),
    widths=("self.all_head_size",),
)
_NESTED = Layout(
    "attention.query",
    "attention.key",
    "attention.value",
    "output.dense",
    "attention.attention_head_size",
    counts=("attention.num_attention_heads",),
    widths=("attention.all_head_size",),
)
_FUSED = Layout(
    "c_attn", "c_attn", "c_attn", "c_proj", "head_dim", counts=("num_heads",), widths=("split_size", "embed_dim")
)
_FLAT = Layout(
    "query", "key", "value", "dense", "attention_head_size", counts=("num_attention_heads",), widths=("all_head_size",)
)
_LINEAR = Layout("q_lin", "k_lin", "v_lin", "out_lin", "attention_head_size", counts=("n_heads",))
_BIASED = Layout(
    "q", "k", "v", "o", "key_value_proj_dim", counts=("n_heads",), widths=("inner_dim",), bias="relative_attention_bias"
)
_GROUPED = ConfigNames("num_attention_heads", "num_key_value_heads", "head_dim")

FAMILIES = (
    Family("BERT", ("bert", "roberta", "xlm-roberta", "camembert", "electra"), (_SELF,)),
    Family("DistilBERT", ("distilbert",), (_LINEAR,)),
    Family("ALBERT", ("albert",), (_FLAT,)),
    Family("ViT", ("vit", "deit"), (_SEPARATE, _NESTED), ConfigNames("num_attention_heads", "", "head_dim")),
    Family("GPT-2", ("gpt2",), (_FUSED,)),
    Family("Llama", ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text"), (_SEPARATE,), _GROUPED),
    Family("T5", ("t5", "mt5"), (_BIASED,), ConfigNames("num_heads", "", "d_kv")),
)


def family(model_type: str) -> Family:
    """Find the family of a `model_type`; one line for the unknown."""
    for found in FAMILIES:
        if model_type in found.types:
            return found
    known = "; ".join(f"{f.name} ({', '.join(f.types)})" for f in FAMILIES)
    raise BadInput(f"the architecture {model_type!r} is not known to probe: known are {known}")


@dataclass(frozen=True)
class FamilyLayer(Layer):
    """A block of a family: its heads lie side by side at the input of the output projection."""

    layout: Layout

    @property
    def projection(self) -> nn.Module:
        """The output projection, whose input is the heads' outputs side by side."""
        return self.block.get_submodule(self.layout.output)

    def reach(self, act: OnHeads) -> RemovableHandle:
        """Let `act` change the heads' outputs until the handle is removed."""

        def change(_: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
            return (act(inputs[0].unflatten(-1, (self.heads, self.head_dim))).flatten(-2), *inputs[1:])

        return self.projection.register_forward_pre_hook(change)

    def keep(self, heads: Sequence[int]) -> None:
        """Remove all other heads, for good: cut the rows of query, key and value and the columns of the output."""
        self.arrange(sorted(heads))

    def alike(self, module: nn.Module) -> list[FamilyLayer]:
        """Find all blocks of a module that have this one's layout."""
        return find_layers(module, [self.layout])

    def arrange(self, slots: Sequence[int | None], bias: Sequence[int | None] = ()) -> None:
        """Keep the heads named in `slots`, in that order; a slot of None gets weights of zero, and does nothing.

        `bias` has the slots of the position bias, where this layer owns one for its whole stack.
        """
        shared = [None if slot is None else slot // self.group for slot in slots[:: self.group]]
        whole = [None if g is None else g * self.group + i for g in shared for i in range(self.group)]
        if all(slot is None for slot in slots) or whole != list(slots):
            raise ValueError(f"{self.name}: heads {list(slots)} cannot be kept alone (groups of {self.group})")
        layout, part = self.layout, lambda path: self.block.get_submodule(path)
        rows, pairs = self._places(slots), self._places(shared)
        if layout.query == layout.key:
            width = self.heads * self.head_dim
            _cut(part(layout.query), torch.cat([torch.where(rows < 0, rows, rows + k * width) for k in range(3)]))
        else:
            for path, places in ((layout.query, rows), (layout.key, pairs), (layout.value, pairs)):
                _cut(part(path), places)
        _cut(part(layout.output), rows, out=False)
        for paths, value in ((layout.counts, len(slots)), (layout.widths, len(rows))):
            for path in paths:
                _state(self.block, path, value)
        owned = _part(self.block, layout.bias) if layout.bias else None
        if isinstance(owned, nn.Embedding):
            owned.weight = _picked(owned.weight, 1, torch.tensor([-1 if s is None else s for s in bias or slots]))
            owned.embedding_dim = len(slots)

    def _places(self, slots: Sequence[int | None]) -> Tensor:
        """The numbers of some heads among all numbers side by side; −1 where a slot has no head."""
        starts = torch.tensor([-1 if slot is None else slot * self.head_dim for slot in slots])[:, None]
        return torch.where(starts < 0, starts, starts + torch.arange(self.head_dim)).flatten()


def find_layers(module: nn.Module, layouts: Sequence[Layout]) -> list[FamilyLayer]:
    """Find all blocks of a module that have one of the layouts, in the order of the module."""
    found: list[FamilyLayer] = []
    for name, block in module.named_modules():
        for layout in layouts:
            layer = _layer(name, block, layout)
            if layer is not None:
                found.append(layer)
                break
    return found


def _layer(name: str, block: nn.Module, layout: Layout) -> FamilyLayer | None:
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
    return FamilyLayer(name, block, output // size, size, output // key, layout)


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


def _cut(module: Any, places: Tensor, *, out: bool = True) -> None:
    """Keep some outputs (or inputs) of a linear map; its parameters are replaced, not changed."""
    axis = 0 if out != _is_turned(module) else 1
    module.weight = _picked(module.weight, axis, places)
    if out and module.bias is not None:
        module.bias = _picked(module.bias, 0, places)
    for name in ("out_features", "nf") if out else ("in_features", "nx"):
        if hasattr(module, name):
            setattr(module, name, len(places))


def _picked(weight: Tensor, axis: int, places: Tensor) -> nn.Parameter:
    """Take some places of an axis; zeros for −1."""
    places = places.to(weight.device)
    found = weight.detach().index_select(axis, places.clamp_min(0))
    empty = (places < 0).reshape([-1 if i == axis else 1 for i in range(found.dim())])
    return nn.Parameter(found.masked_fill(empty, 0.0) if bool(empty.any()) else found, weight.requires_grad)
