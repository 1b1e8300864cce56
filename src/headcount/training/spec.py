"""The spec of training one model on a task."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field, model_validator

from headcount.core import Spec


class TrainSpec(Spec):
    """How one model is trained.

    optimiser: adam or adamw, with its learning_rate and weight_decay. warmup: steps of linear warm-up. schedule: the
    learning rate after the warm-up, a cosine to zero or constant. steps: the number of steps. batch: sequences per
    step. train_size, validation_size: sequences in the two sets. dtype: the precision of the arithmetic.
    """

    optimiser: Literal["adam", "adamw"] = "adam"
    learning_rate: float = Field(default=1e-2, gt=0, le=10)
    weight_decay: float = Field(default=0.0, ge=0)
    warmup: int = Field(default=200, ge=0)
    schedule: Literal["cosine", "constant"] = "cosine"
    steps: int = Field(default=8000, ge=1, le=100_000_000)
    batch: int = Field(default=256, ge=1)
    train_size: int = Field(default=8000, ge=2)
    validation_size: int = Field(default=2000, ge=2)
    fresh: bool = False
    """Draw new sequences for every batch instead of reading a fixed training set."""
    data_seed: int = Field(default=0, ge=0)
    """Seed of the data, shared by all trials; a trial's own seed draws its weights and batches."""
    polish: int = Field(default=0, ge=0, le=100_000)
    """Iterations of L-BFGS on the full training set after the last step, to gain the last digits."""
    evaluations: int = Field(default=20, ge=1)
    """Number of points on the validation curve."""
    diverged_above: float = Field(default=100.0, gt=1)
    """A validation NMSE above this, or NaN, ends the trial as diverged."""
    dtype: Literal["float32", "float64"] = "float32"

    @model_validator(mode="after")
    def _fits(self) -> TrainSpec:
        if not self.fresh and self.batch > self.train_size:
            raise ValueError(f"batch must be at most train_size = {self.train_size}, not {self.batch}")
        if self.warmup > self.steps:
            raise ValueError(f"warmup must be at most steps = {self.steps}, not {self.warmup}")
        if self.fresh and self.polish:
            raise ValueError("polish needs a fixed training set: use fresh = false, or polish = 0")
        return self

    def rate(self, step: int) -> float:
        """Return the learning rate of a step (counted from 0)."""
        warmup = min(1.0, (step + 1) / self.warmup) if self.warmup else 1.0
        decay = 0.5 * (1.0 + math.cos(math.pi * step / self.steps)) if self.schedule == "cosine" else 1.0
        return self.learning_rate * warmup * decay
