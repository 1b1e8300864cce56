"""The encoder of the real experiments: its sizes, the order of its tensors and its initial weights.

A token of `inputs` numbers is mapped to a row of `width` = heads·head_dim numbers; learned positions are added, and a
class token may be prepended. `depth` pre-norm layers follow, and a linear map reads either the class token (classes)
or every token (one score each). The attention maps have no biases, as in equation 4: the shift of the preceding layer
norm takes their place.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from headcount.core import Spec, generator
from headcount.models.transformer.spec import Size

Readout = Literal["class", "each"]

MAPS = ("query", "key", "value")
"""The input maps of attention; they are adjacent in the flat vector, so that one product computes all three."""

_SMALL_DEVIATION = 0.02  # of the initial positions, class token and readout


class EncoderSpec(Spec):
    """One encoder.

    tokens: the length of the sequence that attends, including the class token if readout is "class".
    readout: "class" gives logits[outputs] from the class token, "each" one score per token (outputs = 1).
    expansion: hidden units of a feed-forward block, as a multiple of the width. dropout: applied to each block's
    addition to the residual stream.
    """

    heads: Size
    head_dim: Size
    depth: Annotated[int, Field(ge=1, le=1000)]
    inputs: Size
    tokens: Size
    outputs: Size = 1
    readout: Readout
    positions: bool = True
    expansion: Annotated[int, Field(ge=1, le=64)] = 4
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0

    @model_validator(mode="after")
    def _fits(self) -> EncoderSpec:
        if self.readout == "each" and self.outputs != 1:
            raise ValueError(f'readout "each" gives one score per token: outputs must be 1, not {self.outputs}')
        if self.readout == "class" and self.tokens < 2:
            raise ValueError('readout "class" needs the class token and at least one other: tokens must be at least 2')
        return self

    @property
    def width(self) -> int:
        """The width E of the residual stream."""
        return self.heads * self.head_dim

    @property
    def tokens_in(self) -> int:
        """The number of tokens in the data: all but the class token."""
        return self.tokens - (self.readout == "class")


def tensor_shapes(spec: EncoderSpec) -> dict[str, tuple[int, ...]]:
    """Return the shape of every tensor, in the order of the flat vector."""
    h, n, E, N = spec.heads, spec.head_dim, spec.width, spec.expansion * spec.width
    found: dict[str, tuple[int, ...]] = {"embed.weight": (E, spec.inputs), "embed.bias": (E,)}
    if spec.readout == "class":
        found["class_token"] = (E,)
    if spec.positions:
        found["position"] = (spec.tokens, E)
    for layer in range(spec.depth):
        at = f"layers.{layer}"
        found |= {f"{at}.norm_attention.weight": (E,), f"{at}.norm_attention.bias": (E,)}
        found |= {f"{at}.attention.{name}": (h, n, E) for name in MAPS}
        found |= {f"{at}.attention.output": (h, E, n)}
        found |= {f"{at}.norm_feedforward.weight": (E,), f"{at}.norm_feedforward.bias": (E,)}
        found |= {f"{at}.feedforward.inner.weight": (N, E), f"{at}.feedforward.inner.bias": (N,)}
        found |= {f"{at}.feedforward.outer.weight": (E, N), f"{at}.feedforward.outer.bias": (E,)}
    found |= {"norm.weight": (E,), "norm.bias": (E,)}
    return found | {"readout.weight": (spec.outputs, E), "readout.bias": (spec.outputs,)}


def flat_size(spec: EncoderSpec) -> int:
    """Return the length of the flat vector."""
    return sum(math.prod(shape) for shape in tensor_shapes(spec).values())


def has_weight_decay(name: str) -> bool:
    """Return whether weight decay applies to a tensor: only to the matrices of linear maps."""
    return name.endswith(("embed.weight", "inner.weight", "outer.weight", "readout.weight")) or ".attention." in name


def initial_weights(spec: EncoderSpec, seed: int) -> dict[str, Tensor]:
    """Return initial weights drawn by seed, each tensor from its own random stream.

    Matrices are normal with deviation 1/sqrt(fan-in), divided by sqrt(2·depth) for those that write to the residual
    stream, so that its initial scale does not depend on the depth. Positions, the class token and the readout start
    small, biases at 0.
    """
    return {name: _draw(spec, name, shape, seed) for name, shape in tensor_shapes(spec).items()}


def _draw(spec: EncoderSpec, name: str, shape: tuple[int, ...], seed: int) -> Tensor:
    """Return one tensor of `initial_weights`."""
    if name.endswith(".bias"):
        return torch.zeros(shape)
    if "norm" in name:
        return torch.ones(shape)
    fan_in = spec.heads * spec.head_dim if name.endswith("output") else shape[-1]
    deviation = 1.0 / math.sqrt(fan_in)
    if name.endswith(("attention.output", "outer.weight")):
        deviation /= math.sqrt(2 * spec.depth)
    if name in ("class_token", "position", "readout.weight"):
        deviation = _SMALL_DEVIATION
    return torch.from_numpy(deviation * generator(seed, f"weights {name}").standard_normal(shape)).float()


def pack(spec: EncoderSpec, weights: dict[str, Tensor]) -> Tensor:
    """Return the weights as one vector, in the order of `tensor_shapes`."""
    return torch.cat([weights[name].reshape(-1) for name in tensor_shapes(spec)])


def unpack(spec: EncoderSpec, theta: Tensor) -> dict[str, Tensor]:
    """Return views weights[name][..., shape] of flat vectors theta[..., size]."""
    named, parts, position = tensor_shapes(spec), dict[str, Tensor](), 0
    for name, shape in named.items():
        count = math.prod(shape)
        parts[name] = theta[..., position : position + count].unflatten(-1, shape)
        position += count
    return parts


def parameter_counts(spec: EncoderSpec) -> dict[str, int]:
    """Return parameter counts: `paper` without attention and its layer norms, `total` with everything."""
    sizes = {name: math.prod(shape) for name, shape in tensor_shapes(spec).items()}
    paper = sum(count for name, count in sizes.items() if ".attention." not in name and "norm_attention" not in name)
    return {"paper": paper, "total": sum(sizes.values())}
