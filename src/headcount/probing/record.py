"""The record of a probe: every number that was measured, as plain data."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from headcount.core import Spec

REDUNDANT = 0.95
"""Heads whose outputs are at least this similar are called redundant."""

CHANCE_SHARE = 0.98
"""From this share of the loss of guessing on, a model is called at chance level."""


def is_at_chance(loss: float, chance: float | None) -> bool:
    """Whether a loss is no better than `chance`, that of guessing; False where guessing has none."""
    return chance is not None and loss >= CHANCE_SHARE * chance


class Head(Spec):
    """One head, and what it is worth."""

    layer: int
    head: int
    gradient: float
    """Mean |∂ loss / ∂ mask| at a mask of 1."""
    ablation: float
    """Loss without the head minus loss with it."""


class LayerRecord(Spec):
    """One layer: its sizes, how many heads carry 95 % of its effect, how similar its heads are."""

    name: str
    heads: int
    head_dim: int
    group: int
    carry_ablation: int
    carry_gradient: int
    similarity: list[list[float]]
    """Linear CKA between the outputs of each two heads."""


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


class Plan(Spec):
    """Which heads can go within a budget; losses are measured with all heads so far gone."""

    budget: float
    """As a share of the full model's loss."""
    allowed: float
    loss: float
    steps: list[Step]
    remeasured: Literal["all", "candidates"]

    def gone(self) -> list[tuple[int, int]]:
        """The heads (layer, head) that go."""
        return [(step.layer, head) for step in self.steps for head in step.heads]


class CurvePoint(Spec):
    """The loss with so many heads gone; the plan's own removals first, then those beyond its budget."""

    removed: int
    loss: float
    layer: int | None
    """Where the last heads went; None for the whole model."""
    heads: list[int]
    within: bool
    """Whether the plan's budget allows it."""


class Pruned(Spec):
    """What the real removal of the plan's heads gave."""

    difference: float
    """Largest difference between outputs of the pruned and the masked model, over the largest output."""
    tolerance: float
    equal: bool
    parameters_before: int
    parameters_after: int
    seconds_before: float
    seconds_after: float
    ratio: float
    """Fastest time after over fastest time before; then the lowest and the highest of interleaved repetitions."""
    ratio_low: float
    ratio_high: float
    repeats: int


class Loading(Spec):
    """How a saved model is loaded again; both were tried, and gave the same outputs."""

    loader: Literal["from_pretrained", "headcount"]
    line: str
    """Python to paste."""
    heads: list[int]
    """The number of heads of every attention layer in the folder."""
    zeros: int
    """Heads among them whose weights are zero, because config.json states one number for all layers."""


class ProbeRecord(Spec):
    """All that was found out about a model."""

    model: str
    architecture: str
    samples: str
    """The data, in words."""
    loss_name: str
    evidence: Literal["measured"] = "measured"
    loss: float
    chance: float | None = None
    """The loss of guessing without a look at the input; None where it is not known."""
    share: float
    carry_ablation: int
    carry_gradient: int
    layers: list[LayerRecord]
    heads: list[Head]
    redundant: list[Pair]
    """Pairs with a similarity of at least 0.95, the most similar first."""
    closest: list[Pair]
    """The most similar pair of each layer with two heads or more."""
    plan: Plan
    curve: list[CurvePoint] = Field(default_factory=list[CurvePoint])
    """Loss against heads removed, from none on, as far as it was measured."""
    pruned: Pruned | None
    not_pruned: str | None
    """Why nothing was removed, where nothing was."""
    saved: str | None
    loading: Loading | None = None
    notes: list[str]
    provenance: dict[str, Any]

    @property
    def at_chance(self) -> bool:
        """Whether the whole model is no better than guessing: then its heads cannot be told apart."""
        return is_at_chance(self.loss, self.chance)

    def effects(self, way: Literal["ablation", "gradient"]) -> list[list[float]]:
        """The worth of all heads, layer by layer."""
        found: list[list[float]] = [[] for _ in self.layers]
        for head in self.heads:
            found[head.layer].append(getattr(head, way))
        return found
