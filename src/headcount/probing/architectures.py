"""Where the heads of each known architecture are. To support another family, add one entry to FAMILIES."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from headcount.core import BadInput
from headcount.probing.layers import HeadsTransform, Layer


class Layout(NamedTuple):
    """The parts of an attention block, as paths from the block.

    If query, key and value have the same path, that one map holds all three side by side.
    """

    query: str
    key: str
    value: str
    output: str
    size: str
    """The attribute with the size of a head."""
    counts: tuple[str, ...] = ()
    """Attributes with the number of heads, which must be updated after a removal."""
    widths: tuple[str, ...] = ()
    """Attributes with the number of heads times the size of a head, likewise."""
    bias: str = ""
    """An embedding, one column per head, that the first layer owns and the whole stack reads (T5's position bias)."""


class ConfigNames(NamedTuple):
    """The keys of config.json for the numbers of heads and of key-value heads ("" if it has none) and the head size."""

    heads: str
    pairs: str
    size: str


class Family(NamedTuple):
    """An architecture: its `model_type` values in config.json, and its layouts in the releases of transformers."""

    name: str
    types: tuple[str, ...]
    layouts: tuple[Layout, ...]
    config: ConfigNames | None = None
    """None if config.json cannot state a head size, so that heads times size is always the width."""


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
    """Return the family of a `model_type`; raise BadInput if it is unknown."""
    for found in FAMILIES:
        if model_type in found.types:
            return found
    known = "; ".join(f"{f.name} ({', '.join(f.types)})" for f in FAMILIES)
    raise BadInput(f"unknown architecture {model_type!r}: probe supports {known}")


@dataclass(frozen=True)
class FamilyLayer(Layer):
    """An attention block of a known family, whose heads lie side by side at the input of the output projection."""

    layout: Layout

    @property
    def projection(self) -> nn.Module:
        """The output projection, whose input is the heads' outputs side by side."""
        return self.block.get_submodule(self.layout.output)

    def hook_heads(self, transform: HeadsTransform) -> RemovableHandle:
        """Apply `transform` to the heads' outputs until the handle is removed."""

        def change(_: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
            return (transform(inputs[0].unflatten(-1, (self.heads, self.head_dim))).flatten(-2), *inputs[1:])

        return self.projection.register_forward_pre_hook(change)

    def keep_only(self, heads: Sequence[int]) -> None:
        """Remove all other heads permanently: cut rows of query, key and value and columns of the output."""
        self.arrange(sorted(heads))

    def matching_layers(self, module: nn.Module) -> list[FamilyLayer]:
        """Return all blocks of a module that have the layout of this one."""
        return find_layers(module, [self.layout])

    def arrange(self, slots: Sequence[int | None], bias: Sequence[int | None] = ()) -> None:
        """Keep the heads in `slots`, in that order; a slot of None becomes a head of zeros, which has no effect.

        `bias` has the slots of the position bias if this layer owns it for its whole stack.
        """
        groups = [None if slot is None else slot // self.group for slot in slots[:: self.group]]
        complete = [None if g is None else g * self.group + i for g in groups for i in range(self.group)]
        if all(slot is None for slot in slots) or complete != list(slots):
            raise ValueError(f"{self.name}: cannot keep only the heads {list(slots)} (groups of {self.group})")
        layout, part = self.layout, lambda path: self.block.get_submodule(path)
        rows, pairs = self._indices(slots), self._indices(groups)
        if layout.query == layout.key:
            width = self.heads * self.head_dim
            _cut(part(layout.query), torch.cat([torch.where(rows < 0, rows, rows + k * width) for k in range(3)]))
        else:
            for path, places in ((layout.query, rows), (layout.key, pairs), (layout.value, pairs)):
                _cut(part(path), places)
        _cut(part(layout.output), rows, out=False)
        for paths, value in ((layout.counts, len(slots)), (layout.widths, len(rows))):
            for path in paths:
                _set_if_present(self.block, path, value)
        owned = _attribute(self.block, layout.bias) if layout.bias else None
        if isinstance(owned, nn.Embedding):
            columns = torch.tensor([-1 if slot is None else slot for slot in bias or slots])
            owned.weight = _select_or_zero(owned.weight, 1, columns)
            owned.embedding_dim = len(slots)

    def _indices(self, slots: Sequence[int | None]) -> Tensor:
        """Return the indices of some heads' numbers among those of all heads; −1 for a slot without a head."""
        starts = torch.tensor([-1 if slot is None else slot * self.head_dim for slot in slots])[:, None]
        return torch.where(starts < 0, starts, starts + torch.arange(self.head_dim)).flatten()


def find_layers(module: nn.Module, layouts: Sequence[Layout]) -> list[FamilyLayer]:
    """Return all blocks of a module that have one of the layouts, in the order of the module."""
    found: list[FamilyLayer] = []
    for name, block in module.named_modules():
        for layout in layouts:
            layer = _layer(name, block, layout)
            if layer is not None:
                found.append(layer)
                break
    return found


def _layer(name: str, block: nn.Module, layout: Layout) -> FamilyLayer | None:
    parts = [_attribute(block, path) for path in (layout.query, layout.key, layout.value, layout.output)]
    size = _attribute(block, layout.size)
    if any(not isinstance(part, nn.Module) or not isinstance(size, int) for part in parts):
        return None
    widths = [_linear_size(part, out=i < 3) for i, part in enumerate(parts)]
    if any(width is None for width in widths):
        kind = type(parts[3]).__name__
        raise BadInput(f"{name}: cannot cut weights of type {kind} (quantised?): use a model with plain float weights")
    query, key, _, output = (width or 0 for width in widths)
    if layout.query == layout.key:
        if query != 3 * output:
            return None  # cross-attention: its queries come from elsewhere
        key = output
    if not key or output % size or key % size or output % key:
        return None
    return FamilyLayer(name, block, output // size, size, output // key, layout)


def _attribute(block: nn.Module, path: str) -> Any:
    """Return the attribute at a dotted path; None if it does not exist."""
    found: Any = block
    for name in path.split("."):
        found = getattr(found, name, None)
    return found


def _set_if_present(block: nn.Module, path: str, value: int) -> None:
    """Set an int attribute, if this release of the architecture has it."""
    owner, _, name = path.rpartition(".")
    holder = _attribute(block, owner) if owner else block
    if isinstance(getattr(holder, name, None), int):
        setattr(holder, name, value)


def _is_transposed(module: Any) -> bool:
    """Whether weights are stored as [in, out], as in the Conv1D of GPT-2."""
    return type(module).__name__ == "Conv1D"


def _linear_size(module: Any, *, out: bool) -> int | None:
    """Return the size of a linear map's output or input; None for anything but a plain linear map."""
    if not isinstance(module, nn.Linear) and not _is_transposed(module):
        return None
    weight: Tensor = module.weight
    return int(weight.shape[0 if out != _is_transposed(module) else 1]) if weight.is_floating_point() else None


def _cut(module: Any, places: Tensor, *, out: bool = True) -> None:
    """Keep only some outputs (or inputs) of a linear map; its parameters are replaced, not changed in place."""
    axis = 0 if out != _is_transposed(module) else 1
    module.weight = _select_or_zero(module.weight, axis, places)
    if out and module.bias is not None:
        module.bias = _select_or_zero(module.bias, 0, places)
    for name in ("out_features", "nf") if out else ("in_features", "nx"):
        if hasattr(module, name):
            setattr(module, name, len(places))


def _select_or_zero(weight: Tensor, axis: int, places: Tensor) -> nn.Parameter:
    """Select indices of an axis; −1 selects zeros."""
    places = places.to(weight.device)
    found = weight.detach().index_select(axis, places.clamp_min(0))
    empty = (places < 0).reshape([-1 if i == axis else 1 for i in range(found.dim())])
    return nn.Parameter(found.masked_fill(empty, 0.0) if bool(empty.any()) else found, weight.requires_grad)
