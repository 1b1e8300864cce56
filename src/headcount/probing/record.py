"""The record of a probe: every number that was measured, as plain data."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from headcount.core import Spec

MIN_REDUNDANT_SIMILARITY = 0.95
"""Two heads of a layer with at least this similarity (linear CKA) are called redundant."""

AT_CHANCE_FRACTION = 0.98
"""A model whose loss is at least this fraction of the loss of guessing is at chance level."""


def is_at_chance(loss: float, chance: float | None) -> bool:
    """Whether a loss is no better than `chance`, the loss of guessing; False if that is not known."""
    return chance is not None and loss >= AT_CHANCE_FRACTION * chance


class Head(Spec):
    """One head, with its effect on the loss measured in two ways."""

    layer: int
    head: int
    gradient: float
    """Mean |∂ loss / ∂ mask| at a mask of 1."""
    ablation: float
    """Loss without the head minus the loss of the whole model."""


class LayerRecord(Spec):
    """One layer: its sizes, how many heads carry 95 % of its effect, and how similar its heads are."""

    name: str
    heads: int
    head_dim: int
    group: int
    carry_ablation: int
    carry_gradient: int
    similarity: list[list[float]]
    """Linear CKA between the outputs of every two heads."""


class Pair(Spec):
    """Two heads of a layer with similar outputs."""

    layer: int
    first: int
    second: int
    similarity: float


class Step(Spec):
    """One removal of the plan, and the loss after it."""

    layer: int
    heads: list[int]
    loss: float


class PrunePlan(Spec):
    """The heads that can be removed within a budget; each loss is measured with all heads up to there removed."""

    budget: float
    """The fraction by which the loss of the whole model may grow."""
    allowed: float
    loss: float
    steps: list[Step]
    remeasured: Literal["all", "candidates"]

    def gone(self) -> list[tuple[int, int]]:
        """Return the heads (layer, head) to remove, in order."""
        return [(step.layer, head) for step in self.steps for head in step.heads]


class CurvePoint(Spec):
    """The loss with a number of heads removed: first by the plan, then beyond its budget."""

    removed: int
    loss: float
    layer: int | None
    """The layer of the last removal; None for the whole model."""
    heads: list[int]
    within: bool
    """Whether the plan's budget allows it."""


class Pruned(Spec):
    """The results of actually removing the plan's heads."""

    difference: float
    """Largest difference between the outputs of the pruned and the masked model, relative to the largest output."""
    tolerance: float
    equal: bool
    parameters_before: int
    parameters_after: int
    seconds_before: float
    seconds_after: float
    ratio: float
    """Fastest time after divided by fastest time before; below, the lowest and highest ratio of repeated timings."""
    ratio_low: float
    ratio_high: float
    repeats: int


class Loading(Spec):
    """How to load a saved model; this was tried and gave the same outputs."""

    loader: Literal["from_pretrained", "headcount"]
    line: str
    """A line of Python to paste."""
    heads: list[int]
    """The number of heads of every attention layer in the folder."""
    zeros: int
    """How many of these heads are zeros, because config.json has one number of heads for all layers."""


class ProbeRecord(Spec):
    """Everything that was measured about a model."""

    model: str
    architecture: str
    samples: str
    """The data, in words."""
    loss_name: str
    evidence: Literal["measured"] = "measured"
    loss: float
    chance: float | None = None
    """The loss of guessing without looking at the input; None if it is not known."""
    share: float
    carry_ablation: int
    carry_gradient: int
    layers: list[LayerRecord]
    heads: list[Head]
    redundant: list[Pair]
    """Pairs with a similarity of at least 0.95, the most similar first."""
    closest: list[Pair]
    """The most similar pair of every layer with at least two heads."""
    plan: PrunePlan
    curve: list[CurvePoint] = Field(default_factory=list[CurvePoint])
    """The loss against heads removed, starting at none, as far as it was measured."""
    pruned: Pruned | None
    not_pruned: str | None
    """Why nothing was removed; None if something was."""
    saved: str | None
    loading: Loading | None = None
    notes: list[str]
    provenance: dict[str, Any]

    @property
    def at_chance(self) -> bool:
        """Whether the whole model is no better than guessing, so that effects of heads mean nothing."""
        return is_at_chance(self.loss, self.chance)

    def effects(self, way: Literal["ablation", "gradient"]) -> list[list[float]]:
        """Return the effects of all heads, layer by layer."""
        found: list[list[float]] = [[] for _ in self.layers]
        for head in self.heads:
            found[head.layer].append(getattr(head, way))
        return found
