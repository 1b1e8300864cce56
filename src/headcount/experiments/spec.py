"""Specs of training and of an experiment: one task, several head counts, several seeds."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from headcount.base.spec import Spec
from headcount.models.spec import FeedForwardKind, ModelSpec, Positions, Size
from headcount.tasks.families import AnyFamily


class TrainSpec(Spec):
    """How one model is trained: Adam or AdamW, linear warm-up, then a cosine to zero or a constant rate."""

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
    """The seed of the data, shared by all trials; a trial's own seed draws weights and batches."""
    evaluations: int = Field(default=20, ge=1)
    """How many points the validation curve has."""
    diverged_above: float = Field(default=100.0, gt=1)
    """A validation NMSE above this, or one that is not a number, ends the trial as diverged."""
    dtype: Literal["float32", "float64"] = "float32"

    @model_validator(mode="after")
    def _fits(self) -> TrainSpec:
        if not self.fresh and self.batch > self.train_size:
            raise ValueError(f"batch must be at most train_size = {self.train_size}, not {self.batch}")
        if self.warmup > self.steps:
            raise ValueError(f"warmup must be at most steps = {self.steps}, not {self.warmup}")
        return self

    def rate(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        import math

        warm = min(1.0, (step + 1) / self.warmup) if self.warmup else 1.0
        fall = 0.5 * (1.0 + math.cos(math.pi * step / self.steps)) if self.schedule == "cosine" else 1.0
        return self.learning_rate * warm * fall


class ModelOptions(Spec):
    """A model without what the task and the sweep decide (dim, length, out_dim, heads)."""

    head_dim: Size = 8
    hidden: Size = 32
    width: Size | None = None
    hidden_ff: Size | None = None
    depth: Annotated[int, Field(ge=1, le=1000)] = 1
    positions: Positions = "none"
    beta: Literal["scaled", "learned"] | Annotated[float, Field(gt=0)] = "scaled"
    class_key: bool = False
    feedforward: FeedForwardKind = "gelu2"
    layer_norm: bool = False
    residual: bool = False

    def model(self, *, heads: int, dim: int, length: int, out_dim: int) -> ModelSpec:
        """Return the full spec of one model."""
        return ModelSpec(**self.model_dump(), heads=heads, dim=dim, length=length, out_dim=out_dim)


def _distinct(values: Any) -> Any:
    if isinstance(values, range):
        values = list(values)
    if isinstance(values, list | tuple) and len(set(values)) != len(values):
        raise ValueError("each head count may be listed once")
    return values if not isinstance(values, tuple) else list(values)


class ExperimentSpec(Spec):
    """One task trained with each head count and each seed."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    title: str = ""
    task: AnyFamily
    heads: Annotated[list[Size], BeforeValidator(_distinct), Field(min_length=1)]
    seeds: int = Field(default=3, ge=1, le=10_000)
    model: ModelOptions = ModelOptions()
    train: TrainSpec = TrainSpec()
