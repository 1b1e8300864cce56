"""Settings of training on real data, and the protocol that such data must implement."""

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
"""X, y and the mask (True on real tokens; None if all tokens are real)."""
PartName = Literal["train", "validation"]


class RealTrain(Spec):
    """How one encoder is trained on real data: AdamW, linear warm-up, then a cosine to zero."""

    optimiser: Literal["adamw"] = "adamw"
    learning_rate: float = Field(default=1e-3, gt=0, le=10)
    weight_decay: float = Field(default=0.05, ge=0)
    """Applies to the matrices of linear maps only: not to biases, layer norms, positions or the class token."""
    warmup: int = Field(default=100, ge=0)
    steps: int = Field(default=2000, ge=1, le=100_000_000)
    batch: int = Field(default=128, ge=1)
    precision: Literal["float32", "bf16", "auto"] = "auto"
    """auto: bf16 on CUDA, float32 on a CPU; weights, moments and gradient norms are float32 in both cases.

    Trials are identified by the hash of their settings, so a run resolves "auto" first: see `on`.
    """
    evaluations: int = Field(default=8, ge=1)
    """Number of points on the validation curve."""
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    clip: float = Field(default=1.0, gt=0)
    """Maximum norm of a model's gradient; larger gradients are scaled down to it."""
    data_seed: int = Field(default=0, ge=0)
    """Seed of what all trials share: the selection and the fixed placement of the data."""

    @model_validator(mode="after")
    def _fits(self) -> RealTrain:
        if self.warmup > self.steps:
            raise ValueError(f"warmup must be at most steps = {self.steps}, not {self.warmup}")
        return self

    def rate(self, step: int) -> float:
        """Return the learning rate of a step (counted from 0)."""
        if step < self.warmup:
            return self.learning_rate * (step + 1) / self.warmup
        decay_steps = max(1, self.steps - self.warmup)
        return self.learning_rate * 0.5 * (1.0 + math.cos(math.pi * min(1.0, (step - self.warmup) / decay_steps)))

    def on(self, device: torch.device) -> RealTrain:
        """Return the settings with precision "auto" replaced by the one used on a device."""
        if self.precision != "auto":
            return self
        return self.model_copy(update={"precision": "bf16" if device.type == "cuda" else "float32"})

    def stream_dtype(self, device: torch.device, weights: torch.dtype = torch.float32) -> torch.dtype:
        """Return the dtype of the residual stream and the matrix products on a device."""
        return torch.bfloat16 if self.on(device).precision == "bf16" else weights


@runtime_checkable
class Feed(Protocol):
    """Data on a device, in the form that the trainer needs.

    A feed may also have `read`, a tensor of the positions whose scores count if readout is "each" (default: all), and
    `captured`, True if `train` accepts the step as a tensor on the device and copies nothing from the host, so that it
    can be part of the captured step.
    """

    @property
    def inputs(self) -> int:
        """Numbers per token."""
        ...

    @property
    def tokens(self) -> int:
        """Length of the sequence that attends, including the class token if there is one."""
        ...

    @property
    def outputs(self) -> int:
        """Number of classes; 1 if every token gets a score."""
        ...

    @property
    def readout(self) -> Readout:
        """Whether the class token is read, or each token."""
        ...

    @property
    def length(self) -> int:
        """The length T of the tables."""
        ...

    @property
    def train_size(self) -> int:
        """Number of training samples."""
        ...

    @property
    def validation_size(self) -> int:
        """Number of validation samples."""
        ...

    def train(self, index: Tensor, step: int, seeds: Sequence[int]) -> Batch:
        """Return X[models, batch, tokens_in, inputs], y[models, batch] and mask[models, batch, tokens_in] or None.

        Row m holds the samples index[m]; their augmentation depends only on (seeds[m], step), not on the other rows.
        """
        ...

    def part(self, name: PartName, first: int, count: int) -> Batch:
        """Return X[b, tokens_in, inputs], y[b] and mask[b, tokens_in] or None of up to `count` samples from `first`."""
        ...
