"""Settings of training on real data, and what data must offer to be trained on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, Protocol, runtime_checkable

import torch
from pydantic import Field, model_validator
from torch import Tensor

from headcount.core import Spec
from headcount.models.encoder import Readout

Batch = tuple[Tensor, Tensor, Tensor | None]
"""X, y and the mask (True on real tokens), or None where all tokens are real."""
PartName = Literal["train", "validation"]


class RealTrain(Spec):
    """How one encoder is trained on real data: AdamW, linear warm-up, then a cosine to zero."""

    optimiser: Literal["adamw"] = "adamw"
    learning_rate: float = Field(default=1e-3, gt=0, le=10)
    weight_decay: float = Field(default=0.05, ge=0)
    """Pulls at the matrices of linear maps alone: not at biases, layer norms, positions or the class token."""
    warmup: int = Field(default=100, ge=0)
    steps: int = Field(default=2000, ge=1, le=100_000_000)
    batch: int = Field(default=128, ge=1)
    precision: Literal["float32", "bf16", "auto"] = "auto"
    """auto: bf16 on CUDA, float32 on a CPU; weights, moments and gradient norms are float32 in either.

    Trials are known by the hash of their settings, so a run says which of the two before it makes any: see `on`.
    """
    evaluations: int = Field(default=8, ge=1)
    """How many points the validation curve has."""
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    clip: float = Field(default=1.0, gt=0)
    """The largest norm of a model's gradient; a longer one is shortened to it."""
    data_seed: int = Field(default=0, ge=0)
    """The seed of what all trials share: the choice and the fixed placement of the data."""

    @model_validator(mode="after")
    def _fits(self) -> RealTrain:
        if self.warmup > self.steps:
            raise ValueError(f"warmup must be at most steps = {self.steps}, not {self.warmup}")
        return self

    def rate(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        if step < self.warmup:
            return self.learning_rate * (step + 1) / self.warmup
        left = max(1, self.steps - self.warmup)
        return self.learning_rate * 0.5 * (1.0 + math.cos(math.pi * min(1.0, (step - self.warmup) / left)))

    def on(self, device: torch.device) -> RealTrain:
        """Return the settings with the precision that they mean on a device."""
        if self.precision != "auto":
            return self
        return self.model_copy(update={"precision": "bf16" if device.type == "cuda" else "float32"})

    def stream_dtype(self, device: torch.device, weights: torch.dtype = torch.float32) -> torch.dtype:
        """The dtype of the stream and the products, on a device."""
        return torch.bfloat16 if self.on(device).precision == "bf16" else weights


@runtime_checkable
class Feed(Protocol):
    """Data on a device, as the trainer asks for them.

    A feed may also have `read`, a tensor of positions whose scores count where readout is "each" (without it, all do),
    and `captured`, True where `train` takes the step as a number on the device and brings nothing from the host: it is
    then part of the captured step.
    """

    @property
    def inputs(self) -> int:
        """The numbers in a token."""
        ...

    @property
    def tokens(self) -> int:
        """The length of the sequence that attends, the class token included if there is one."""
        ...

    @property
    def outputs(self) -> int:
        """The classes; 1 where every token gets a score."""
        ...

    @property
    def readout(self) -> Readout:
        """What is read: the class token, or each token."""
        ...

    @property
    def length(self) -> int:
        """What tables call T."""
        ...

    @property
    def train_size(self) -> int:
        """The training samples."""
        ...

    @property
    def validation_size(self) -> int:
        """The validation samples."""
        ...

    def train(self, index: Tensor, step: int, seeds: Sequence[int]) -> Batch:
        """Return X[models, batch, tokens_in, inputs], y[models, batch] and mask[models, batch, tokens_in] or None.

        Row m holds the samples index[m], augmented by (seeds[m], step) alone: not by what stands beside it.
        """
        ...

    def part(self, name: PartName, first: int, count: int) -> Batch:
        """Return X[b, tokens_in, inputs], y[b] and mask[b, tokens_in] or None for b ≤ count samples from `first` on."""
        ...
