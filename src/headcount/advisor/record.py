"""The record of an advice: every number that was measured, and the reasons, as plain data."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from headcount.analysis import HeadsNeeded, Reason, Verdict
from headcount.core import Spec

CurveKind = Literal["head-size", "width", "parameters"]


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


class Challenge(Spec):
    """A head count that was to be called too few, given twice the hidden units and twice the training."""

    heads: int
    hidden: int
    steps: int
    before: float | None
    """The error of its best model with the usual sizes; None where it had none before."""
    after: float
    passed: bool
    """Whether it was enough then."""
    hidden_alone: float | None = None
    """The error with twice the hidden units and the usual training, where the challenge was passed …"""
    steps_alone: float | None = None
    """… and with the usual hidden units and twice the training."""

    @property
    def gain(self) -> float:
        """By what it divided the error; 1 where that is not known."""
        return 1.0 if self.before is None else self.before / max(self.after, 1e-300)


class AdviceRecord(Spec):
    """All that the advisor found out about some data."""

    name: str
    verdict: Verdict
    sentence: str
    needed: HeadsNeeded
    """What the one rule says: verdict, answer, interval, draws."""
    recommended_heads: int
    """A number for programs: the smallest head count that is enough, as measured (within the margin of the best, or
    past a step); one where y is noise; where the data do not say (`named` is None), that of the best model."""
    interval: list[int]
    """[a, b]: fewer than a are shown not to be enough, b are shown to be."""
    interval_open: bool
    """Whether nothing is shown to be enough: the upper end is only the largest head count that was allowed."""
    margin: float = 0.0
    """What a head count may err more than the best and still be enough, as a share of the variance of y."""
    no_transition: bool
    """Whether no step is shown: there is none, or the interval holds more than one head count."""
    confidence: float
    settled: bool
    """Whether the interval is one head count, and the search ended for that and not because the time was over."""
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
    challenges: list[Challenge] = Field(default_factory=list[Challenge])
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
    """Sequences that decided: held back, or with several folds all of them in turn."""
    folds: int = 1
    """Models a trial, each with another part held back; 1 where one part is held back for good."""
    categories: str = ""
    """Which numbers were taken for categories, and why."""
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
    def named(self) -> int | None:
        """The head count that the advice names; None where the data do not say."""
        return self.recommended_heads if self.needed.estimate is not None or self.verdict == "noise" else None

    @property
    def steps_on(self) -> str:
        """Where the time of a step was measured."""
        device = self.provenance.get("machine", {}).get("device", "cpu")
        return "on one core" if device == "cpu" else f"on the GPU ({device}), in plain PyTorch, one model at a time"


class WitnessRecord(Spec):
    """Two inputs in the units of the data, and what they show; where there are none only `why`."""

    heads: int
    """Of the layer that confuses them."""
    tag: Literal["proved", "measured"] | None
    why: str
    """Why there is no witness; empty where there is one."""
    target: Literal["task", "best model"]
    gap: float | None = None
    """Between the two targets; a proved lower bound where the tag says so."""
    deviations: float | None = None
    """The gap in standard deviations of y over the data."""
    in_support: bool | None = None
    """Whether the two are inputs of the task, as its law draws them; None where only data are known."""
    starts: int = 0
    converged: int = 0
    """Starts of the search, and how many of them reached equal outputs."""
    least_error: float | None = None
    """Half the gap: what every feed-forward block on top of this encoder and attention misses one of the two by."""
    distance: float | None = None
    """Between the two outputs of attention as computed in float64."""
    output: int = 0
    targets: list[float] = Field(default_factory=list[float])
    predictions: list[float] = Field(default_factory=list[float])
    """What the layer's own model says of the two."""
    X1: list[list[float]] = Field(default_factory=list[list[float]])
    X2: list[list[float]] = Field(default_factory=list[list[float]])
    box: list[list[float]] = Field(default_factory=list[list[float]])
    judges: int = 0
    """Models that stand in for the task and agree on the gap."""
    file: dict[str, Any] | None = None
    """Of a proved pair: what `headcount recheck` verifies beside the saved layer."""
    sentences: list[Reason] = Field(default_factory=list[Reason])
    seconds: float = 0.0
