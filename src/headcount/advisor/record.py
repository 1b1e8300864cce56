"""The record of an advice: every measured number, and the reasons, as plain data."""

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
    """Error of the best seed on sequences that it was not trained on."""
    median: float
    worst: float
    train: float
    """Error of the same model on sequences that it was trained on."""
    wrong: float | None
    """The share of wrong classes on the validation part; None for a regression."""
    excess: float
    """Above the noise floor."""
    parameters: int
    step_seconds: float | None


class Curve(Spec):
    """Error against heads, with something else held fixed."""

    kind: CurveKind
    fixed: str
    points: list[CurvePoint]


class Price(Spec):
    """What a head count other than the recommended one costs or saves."""

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
    """One head count on shortened sequences, whose targets are the best model's predictions."""

    length: int
    heads: int
    error: float


class Challenge(Spec):
    """A head count that would be called too few, given twice the hidden units and twice the training."""

    heads: int
    hidden: int
    steps: int
    before: float | None
    """The error of its best model with the usual sizes; None if it had none."""
    after: float
    passed: bool
    """Whether it was then enough."""
    hidden_alone: float | None = None
    """The error with twice the hidden units and the usual training, if the challenge was passed …"""
    steps_alone: float | None = None
    """… and with the usual hidden units and twice the training."""

    @property
    def gain(self) -> float:
        """The factor by which it divided the error; 1 if that is not known."""
        return 1.0 if self.before is None else self.before / max(self.after, 1e-300)


class AdviceRecord(Spec):
    """Everything that the advisor found out about some data."""

    name: str
    verdict: Verdict
    sentence: str
    needed: HeadsNeeded
    """What the one rule says: verdict, answer, interval, draws."""
    recommended_heads: int
    """A number for programs: the smallest head count that is enough as measured (within the margin of the best, or past
    a step); 1 if y is noise; that of the best model if the data do not say (`named` is None)."""
    interval: list[int]
    """[a, b]: fewer than a heads are shown not to be enough; b, or some smaller number, is shown to be enough."""
    interval_open: bool
    """Whether no head count is shown to be enough: the upper end is then only the largest count allowed."""
    margin: float = 0.0
    """How far above the best the error of enough heads may be, as a share of the variance of y."""
    no_transition: bool
    """Whether no step is shown: there is none, or the interval holds more than one head count."""
    confidence: float
    settled: bool
    """Whether the interval is one head count and the search ended for that reason, not because time was up."""
    interrupted: bool = False
    """Whether Ctrl-C ended the search, or what comes after it: then this is the answer so far."""
    noise_floor: float
    """Share of the variance of y that no model is expected to explain, at least; measured."""
    noise_floor_high: float
    """… and at most: the best model's validation error."""
    curve: list[CurvePoint]
    """At fixed head size: the answer rests on this curve."""
    curves: list[Curve]
    prices: list[Price]
    lengths: list[LengthPoint]
    shorter: list[ShorterPoint] = Field(default_factory=list[ShorterPoint])
    challenges: list[Challenge] = Field(default_factory=list[Challenge])
    answers: dict[str, float]
    """The share of bootstrap draws that give each head count; "none" for none."""
    reasons: list[Reason]
    settle: str
    """What would settle the answer."""
    kind: Literal["regression", "classification"]
    classes: list[Any] | None
    samples: int
    train_samples: int
    validation_samples: int
    """Sequences that decided: the held-out ones or, with several folds, all of them in turn."""
    folds: int = 1
    """Models per trial, each with another part held out; 1 if one fixed part is held out."""
    categories: str = ""
    """Which numbers were treated as categories, and why."""
    length: int
    shortest: int | None = None
    """Tokens of the shortest sequence; None if all have one length."""
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
        """The head count that the advice names; None if the data do not say."""
        return self.recommended_heads if self.needed.estimate is not None or self.verdict == "noise" else None

    @property
    def steps_on(self) -> str:
        """Where the time of a step was measured."""
        device = self.provenance.get("machine", {}).get("device", "cpu")
        return "on one core" if device == "cpu" else f"on the GPU ({device}), in plain PyTorch, one model at a time"


class WitnessRecord(Spec):
    """Two inputs in the units of the data, and what they show; if there are none, only `why` says so."""

    heads: int
    """Heads of the layer that confuses them."""
    tag: Literal["proved", "measured"] | None
    why: str
    """Why there is no witness; empty if there is one."""
    target: Literal["task", "best model"]
    gap: float | None = None
    """The gap between the two targets; a proved lower bound if the tag says so."""
    deviations: float | None = None
    """The gap in standard deviations of y over the data."""
    in_support: bool | None = None
    """Whether the two are inputs of the task, as its distribution draws them; None if only data are known."""
    starts: int = 0
    converged: int = 0
    """Starts of the search, and how many of them reached equal outputs."""
    least_error: float | None = None
    """Half the gap: every feed-forward block on top of this encoder and attention errs by this on one of the two."""
    distance: float | None = None
    """The distance of the two attention outputs, as computed in float64."""
    output: int = 0
    targets: list[float] = Field(default_factory=list[float])
    predictions: list[float] = Field(default_factory=list[float])
    """The predictions of the layer's own model for the two."""
    X1: list[list[float]] = Field(default_factory=list[list[float]])
    X2: list[list[float]] = Field(default_factory=list[list[float]])
    box: list[list[float]] = Field(default_factory=list[list[float]])
    judges: int = 0
    """Models that stand in for the task and agree on the gap."""
    file: dict[str, Any] | None = None
    """For a proved pair: what `headcount recheck` verifies together with the saved layer."""
    sentences: list[Reason] = Field(default_factory=list[Reason])
    seconds: float = 0.0
