"""The record of an advice: every number that was measured, and the reasons, as plain data."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from headcount.base.spec import Spec

Tag = Literal["proved", "measured", "extrapolated"]
Verdict = Literal["transition", "one-head", "gentle", "more", "failed", "noise", "budget"]
CurveKind = Literal["head-size", "width", "parameters"]


class Reason(Spec):
    """A sentence, and what it rests on."""

    tag: Tag
    text: str


class CurvePoint(Spec):
    """One head count of a curve: errors as shares of the variance of y, 0 for perfect and 1 for a constant."""

    heads: int
    head_dim: int
    hidden: int
    seeds: int
    validation: float
    """Of the best seed, on sequences that were not trained on."""
    median: float
    worst: float
    train: float
    """Of that same model, on the sequences that were trained on."""
    wrong: float | None
    """The share of wrong classes on the validation part; None for a regression."""
    excess: float
    """Above the noise floor."""
    parameters: int
    step_seconds: float | None


class Curve(Spec):
    """Error against heads, with what was kept fixed."""

    kind: CurveKind
    fixed: str
    points: list[CurvePoint]


class Price(Spec):
    """What another head count than the recommended one costs or saves."""

    heads: int
    error: float
    error_ratio: float
    """Its error over that of the recommended head count."""
    told_apart: bool
    """Whether the validation samples tell the two apart at the stated confidence."""
    parameters: int
    parameters_ratio: float
    step_seconds: float | None
    step_ratio: float | None


class LengthPoint(Spec):
    """Sequences of about one length in the validation part, and the best model's error on them."""

    shortest: int
    longest: int
    samples: int
    error: float


class ShorterPoint(Spec):
    """One head count on shorter sequences, for which the best model's predictions stand in."""

    length: int
    heads: int
    error: float


class AdviceRecord(Spec):
    """All that the advisor found out about some data."""

    name: str
    verdict: Verdict
    sentence: str
    recommended_heads: int | None
    """The smallest head count whose excess over the noise floor cannot be told from the best one's."""
    interval: list[int]
    interval_open: bool
    """Whether the upper end is only the largest head count that was tried."""
    no_transition: bool
    confidence: float
    settled: bool
    """Whether the search ended because the answer was sure, not because the time was over."""
    interrupted: bool = False
    """Whether Ctrl-C ended the search, or what comes after it: then this is the answer so far."""
    noise_floor: float
    """Share of the variance of y that no model is expected to explain, at least; measured."""
    noise_floor_high: float
    """… and at most: the best model's validation error."""
    curve: list[CurvePoint]
    """At fixed head size, which is what the answer rests on."""
    curves: list[Curve]
    prices: list[Price]
    lengths: list[LengthPoint]
    shorter: list[ShorterPoint] = Field(default_factory=list[ShorterPoint])
    answers: dict[str, float]
    """How many of the bootstrap's draws give which head count; "none" for none."""
    reasons: list[Reason]
    settle: str
    """What would settle what is open."""
    kind: Literal["regression", "classification"]
    classes: list[Any] | None
    samples: int
    train_samples: int
    validation_samples: int
    length: int
    shortest: int | None = None
    """Tokens of the shortest sequence, where lengths differ."""
    dim: int
    out_dim: int
    model: dict[str, Any]
    train: dict[str, Any]
    trials: int
    seconds: float
    budget: float
    seed: int
    provenance: dict[str, Any]

    @property
    def steps_on(self) -> str:
        """Where the time of a step was measured."""
        device = self.provenance.get("machine", {}).get("device", "cpu")
        return "on one core" if device == "cpu" else f"on the GPU ({device}), in plain PyTorch, one model at a time"
