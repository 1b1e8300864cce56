"""Weights as one flat vector, the form in which the engines train, and the conversion in both directions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headcount.models.transformer.reference import Transformer, count_parameters
from headcount.models.transformer.spec import ModelSpec

# The tensors of `kernels/step/numba.py`, in its order, by the names of the reference model.
TENSOR_NAMES = (
    "class_token",
    "encoder.inner.weight",
    "encoder.inner.bias",
    "encoder.hidden_bias",
    "encoder.outer.weight",
    "encoder.outer.bias",
    "layers.0.attention.query",
    "layers.0.attention.key",
    "layers.0.attention.value",
    "layers.0.attention.output",
    "layers.0.attention.gates",
    "layers.0.attention.log_beta",
    "layers.0.feedforward.layers.0.weight",
    "layers.0.feedforward.layers.0.bias",
    "layers.0.feedforward.layers.1.weight",
    "layers.0.feedforward.layers.1.bias",
)


def why_not_pooled(spec: ModelSpec) -> str | None:
    """Return why attention cannot be folded into one pooling of the encoder's hidden state; None if it can.

    `stacked.forward_collapsed` needs nothing else: F may be any network.
    """
    if spec.depth > 1:
        return "depth above 1"
    if spec.layer_norm:
        return "layer norm"
    if spec.class_key:
        return "the class token among the keys"
    if spec.positions == "additive":
        return "additive positions"
    return None


def why_not_collapsed(spec: ModelSpec) -> str | None:
    """Return why the compiled steps (numba's, Triton's `whole_step`) and padding do not support a model, or None.

    They support models that pool and have the two-layer F of TENSOR_NAMES; `stacked.forward_collapsed` also takes a
    deeper F.
    """
    return why_not_pooled(spec) or ("five layers in F" if spec.feedforward == "relu5" else None)


@dataclass(frozen=True)
class Flat:
    """The layout of a model's tensors in its flat vector."""

    spec: ModelSpec
    shapes: dict[str, tuple[int, ...]]

    @classmethod
    def of(cls, spec: ModelSpec) -> Flat:
        """Return the layout for a spec, in the order of its reference model."""
        key: Any = spec  # frozen specs are hashable, which pydantic hides from type checkers
        return _lay_out(key)

    @property
    def size(self) -> int:
        """The number of weights."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    def counts(self) -> dict[str, int]:
        """Return the counts of the reference model, `Transformer.counts`."""
        return count_parameters({name: math.prod(shape) for name, shape in self.shapes.items()})

    def offsets(self) -> NDArray[np.int64]:
        """Return where each of TENSOR_NAMES begins, or −1 if the model lacks it."""
        starts: dict[str, int] = {}
        position = 0
        for name, shape in self.shapes.items():
            starts[name] = position
            position += math.prod(shape)
        return np.array([starts.get(name, -1) for name in TENSOR_NAMES], np.int64)

    def sizes(self) -> tuple[int, ...]:
        """Return (dim, length, hidden, width, heads, head_dim, hidden_ff, out_dim)."""
        s = self.spec
        return s.dim, s.length, s.hidden, s.E, s.heads, s.head_dim, s.N_ff, s.out_dim

    def pack(self, model: Transformer) -> NDArray[Any]:
        """Return a model's weights as one vector."""
        return np.concatenate([p.detach().cpu().numpy().ravel() for p in model.parameters()])

    def unpack(self, theta: NDArray[Any]) -> Transformer:
        """Return the model with these weights."""
        model = Transformer(self.spec, dtype=torch.from_numpy(theta[:1].copy()).dtype)
        position = 0
        with torch.no_grad():
            for parameter in model.parameters():
                count = parameter.numel()
                part = torch.from_numpy(theta[position : position + count].copy())
                parameter.copy_(part.reshape(parameter.shape))
                position += count
        return model

    def places(self, larger: Flat) -> NDArray[np.int64]:
        """Return the place of each weight in the vector of a larger model: every tensor goes to its first corner.

        With zeros everywhere else the larger collapsed model computes the same function, also after training: a padded
        hidden unit is relu(0), and a padded head has zero values and a zero output map, so all their gradients are 0.
        """
        parts: list[NDArray[np.int64]] = []
        position = 0
        for name, shape in larger.shapes.items():
            cells = np.arange(math.prod(shape)).reshape(shape) + position
            parts.append(cells[tuple(slice(n) for n in self.shapes[name])].ravel())
            position += math.prod(shape)
        return np.concatenate(parts)


@lru_cache(maxsize=4096)  # the stack planner and every ending trial need the same few layouts
def _lay_out(spec: ModelSpec) -> Flat:
    return Flat(spec, {name: tuple(p.shape) for name, p in Transformer(spec).named_parameters()})


PADDED_SIZES = ("heads", "head_dim", "hidden", "width", "hidden_ff")  # sizes in which padded models may differ


def covering_spec(specs: Sequence[ModelSpec]) -> ModelSpec:
    """Return the smallest spec that all of these fit into; they may differ only in the PADDED_SIZES."""
    largest = {
        "heads": max(s.heads for s in specs),
        "head_dim": max(s.head_dim for s in specs),
        "hidden": max(s.hidden for s in specs),
        "width": max(s.E for s in specs),
        "hidden_ff": max(s.N_ff for s in specs),
    }
    return specs[0].model_copy(update=largest) if len(set(specs)) > 1 else specs[0]
