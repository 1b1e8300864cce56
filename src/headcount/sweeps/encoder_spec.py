"""Specs of the experiments on real data: what data, which models, how trained; a trial is known by all of it.

A spec holds a description of its data, made when the folder is read: hash, sizes, options. So panels and trials can be
rebuilt from a store without the folder, and another folder or option gives other trials.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, model_validator

from headcount.core import BadInput, Spec, provenance
from headcount.datasets.msmarco import LONGEST
from headcount.models.encoder import EncoderSpec
from headcount.models.transformer import Size
from headcount.store import Run, Trial
from headcount.sweeps.spec import Sizes
from headcount.training.encoder import MAX_TRAIN_EVALUATED, Feed, RealTrain, RealTrialSpec
from headcount.training.feeds import frame_tokens

Kind = Literal["marco", "cifar"]
Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
NAMES: dict[Kind, str] = {"marco": "MS MARCO candidates", "cifar": "CIFAR-10 frames"}


class MarcoData(Spec):
    """Candidate sets as mined, and how they enter the encoder."""

    kind: Literal["marco"] = "marco"
    content: Hash
    """Of the collection, the chosen queries, their split and what was searched; not of the length."""
    train: Size
    validation: Size
    """Queries of each part."""
    passages: Size
    """Passages that were searched."""
    seed: int = Field(ge=0)
    embeddings: Hash
    """Of the frozen tables and their vocabulary."""
    dim: Size
    """Numbers of an embedding."""
    entry: Literal["means", "tokens"] = "means"
    """A candidate is one vector, two means side by side; or it is its tokens, one after the other."""
    most: Size
    """Tokens of a candidate, special ones included; what is beyond is cut."""
    standard: bool = True
    """Inputs scaled to mean 0 and deviation 1, as measured on training queries and positives."""

    def sized(self, length: int) -> dict[str, Any]:
        """Return what an encoder must fit for sets of so many candidates."""
        if not 2 <= length <= LONGEST:
            raise BadInput(f"length {length}: a set has 2 to {LONGEST} candidates, as far as negatives are mined")
        if self.entry == "means":
            return {"inputs": 2 * self.dim, "tokens": length, "outputs": 1, "readout": "each", "positions": False}
        # all candidates begin with the same token: learned positions tell them apart
        tokens = length * self.most
        return {"inputs": self.dim, "tokens": tokens, "outputs": 1, "readout": "each", "positions": True}


class CifarData(Spec):
    """Images as read, and how they are placed and cut."""

    kind: Literal["cifar"] = "cifar"
    content: Hash
    """Of the images and labels that are used."""
    train: Size
    validation: Size
    """Images of each part; the test images validate."""
    classes: Size
    patch: Size = 4
    flips: bool = True
    """Training images are mirrored one time in two."""
    moving: bool = True
    """Training images lie at a new spot each time; else each has one spot."""

    def sized(self, length: int) -> dict[str, Any]:
        """Return what an encoder must fit for frames of this side."""
        tokens, inputs = frame_tokens(length, self.patch), 3 * self.patch**2
        return {"inputs": inputs, "tokens": tokens, "outputs": self.classes, "readout": "class", "positions": True}


RealData = Annotated[MarcoData | CifarData, Field(discriminator="kind")]


class RealModel(Spec):
    """An encoder without what the data and the sweep decide."""

    head_dim: Size
    depth: Annotated[int, Field(ge=1, le=1000)]
    expansion: Annotated[int, Field(ge=1, le=64)] = 4
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0


MODELS: dict[Kind, RealModel] = {
    "marco": RealModel(head_dim=32, depth=2),
    "cifar": RealModel(head_dim=16, depth=4, dropout=0.1),
}
"""The paper's models; it says that the second has dropout, not how much."""


class RealSpec(Spec):
    """Encoders on real data, with every listed head count, length and seed.

    `lengths` are candidates in a set (MS MARCO) or sides of a frame (CIFAR-10).
    """

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    title: str = ""
    kind: Kind
    source: RealData
    """The data, as described by who opened them."""
    heads: Sizes
    lengths: Sizes
    seeds: int = Field(default=3, ge=1, le=10_000)
    model: RealModel | None = None
    """By default the paper's for this kind."""
    train: RealTrain = RealTrain()

    @model_validator(mode="after")
    def _all_is_known(self) -> RealSpec:
        if self.source.kind != self.kind:
            raise ValueError(f"kind is {self.kind!r}, and the data are of kind {self.source.kind!r}")
        self.panels()  # a bad length is answered here, before anything runs
        return self

    def on(self, device: torch.device) -> RealSpec:
        """Return the spec as it is trained on a device: trials in bf16 are not those in float32."""
        return self.model_copy(update={"train": self.train.on(device)})

    def panels(self) -> list[RealPanel]:
        """Return the experiment as panels, one a length."""
        model = self.model or MODELS[self.kind]
        return [RealPanel(self.source, size, model, self.train, tuple(self.heads)) for size in self.lengths]


@dataclass(frozen=True)
class RealPanel:
    """What stays fixed while heads and seeds vary."""

    source: MarcoData | CifarData
    size: int
    """Candidates in a set, or the side of a frame."""
    model: RealModel
    train: RealTrain
    heads: tuple[int, ...]

    def __post_init__(self) -> None:
        self.sized(1)

    @property
    def length(self) -> int:
        """What tables call T: candidates in a set, or tokens of a frame, the class token among them."""
        return self.size if self.source.kind == "marco" else frame_tokens(self.size, self.source.patch)

    @property
    def values(self) -> dict[str, Any]:
        """What sets the panel apart from the others."""
        return {"length": self.length}

    def sized(self, heads: int) -> EncoderSpec:
        """Return the encoder with so many heads."""
        return EncoderSpec(heads=heads, **self.source.sized(self.size), **self.model.model_dump())

    def stated(self) -> dict[str, Any]:
        """Return the data as a trial states them."""
        side = {} if self.source.kind == "marco" else {"side": self.size}
        return {**self.source.data(), "length": self.length, **side}

    def trial(self, heads: int, seed: int) -> RealTrialSpec:
        """Return one trial of the panel."""
        return RealTrialSpec(real=self.stated(), model=self.sized(heads), train=self.train, seed=seed)

    def check(self, feed: Feed) -> None:
        """Refuse data that are not those of the spec: they were opened with other options, or have changed."""
        want = self.sized(1)
        pairs = {
            "training samples": (self.source.train, feed.train_size),
            "validation samples": (self.source.validation, feed.validation_size),
            "tokens": (want.tokens, feed.tokens),
            "numbers in a token": (want.inputs, feed.inputs),
            "outputs": (want.outputs, feed.outputs),
            "length": (self.length, feed.length),
        }
        for name, (stated, found) in pairs.items():
            if stated != found:
                raise BadInput(
                    f"the spec states {stated} {name}, and the data have {found}: open the data it was made of"
                )

    def run(
        self,
        name: str,
        title: str,
        about: dict[str, Any],
        trials: Sequence[Trial],
        seconds: float,
        device: str = "cpu",
    ) -> Run:
        """Put the trials of the panel into a record."""
        task = {"name": NAMES[self.source.kind], "dim": self.sized(1).inputs, **self.stated()}
        return Run(
            name=name,
            title=title,
            task=task,
            intrinsic=None,
            spec={**about, "heads": list(self.heads), "model": self.model.data(), "train": self.train.data()},
            values=self.values,
            measure="error rate",
            samples={"train": min(self.source.train, MAX_TRAIN_EVALUATED), "validation": self.source.validation},
            trials=sorted(trials, key=lambda t: (t.heads, t.seed)),
            provenance=provenance(device),
            seconds=seconds,
        )
