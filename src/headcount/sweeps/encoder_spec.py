"""Specs of experiments on real data: the data, the models and the training, all of which identify a trial.

A spec holds a description of its data (hash, sizes, options), which is made when the folder is read. So panels and
trials can be rebuilt from a store without the folder, and another folder or option gives other trials.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, model_validator

from headcount.core import BadInput, Spec, provenance
from headcount.models.encoder import EncoderSpec
from headcount.models.transformer import Size
from headcount.store import Run, Trial
from headcount.sweeps.spec import Sizes
from headcount.training.encoder import MAX_TRAIN_EVALUATED, Feed, RealTrain, RealTrialSpec
from headcount.training.feeds import frame_tokens

DatasetKind = Literal["marco", "cifar"]
Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
DATASET_NAMES: dict[DatasetKind, str] = {"marco": "MS MARCO candidates", "cifar": "CIFAR-10 frames"}


class MarcoData(Spec):
    """Mined candidate sets, and how they enter the encoder."""

    kind: Literal["marco"] = "marco"
    content: Hash
    """Hash of the collection and the version of the mining; the same for all lengths."""
    train: Size
    validation: Size
    """Number of queries in each part."""
    passages: Size
    """Number of passages that were searched."""
    seed: int = Field(ge=0)
    embeddings: Hash
    """Hash of the frozen tables and their vocabulary."""
    dim: Size
    """Numbers in an embedding."""
    entry: Literal["means", "tokens"] = "means"
    """Whether a candidate enters as one vector, two means side by side, or as its tokens, one after the other."""
    most: Size
    """The most tokens of a candidate, special tokens included; the rest is cut off."""
    standard: bool = True
    """Whether inputs are scaled to mean 0 and deviation 1, as measured on training queries and positives."""

    def sized(self, length: int) -> dict[str, Any]:
        """Return the encoder's sizes for sets of this many candidates."""
        from headcount.datasets.msmarco import MAX_CANDIDATES  # here: every sweep would wait for the mining's imports

        if not 2 <= length <= MAX_CANDIDATES:
            raise BadInput(
                f"length {length}: a set has 2 to {MAX_CANDIDATES} candidates, as far as negatives are mined"
            )
        if self.entry == "means":
            return {"inputs": 2 * self.dim, "tokens": length, "outputs": 1, "readout": "each", "positions": False}
        # all candidates begin with the same token: learned positions tell them apart
        tokens = length * self.most
        return {"inputs": self.dim, "tokens": tokens, "outputs": 1, "readout": "each", "positions": True}


class CifarData(Spec):
    """Images, and how they are placed in frames and cut into patches."""

    kind: Literal["cifar"] = "cifar"
    content: Hash
    """Hash of the images and labels that are used."""
    train: Size
    validation: Size
    """Number of images in each part; the test images validate."""
    classes: Size
    patch: Size = 4
    flips: bool = True
    """Whether training images are mirrored with probability 1/2."""
    moving: bool = True
    """Whether training images are placed anew each time; otherwise each has a fixed position."""

    def sized(self, length: int) -> dict[str, Any]:
        """Return the encoder's sizes for frames of this side."""
        tokens, inputs = frame_tokens(length, self.patch), 3 * self.patch**2
        return {"inputs": inputs, "tokens": tokens, "outputs": self.classes, "readout": "class", "positions": True}


RealData = Annotated[MarcoData | CifarData, Field(discriminator="kind")]


class RealModel(Spec):
    """The options of an encoder that neither the data nor the sweep decides."""

    head_dim: Size
    depth: Annotated[int, Field(ge=1, le=1000)]
    expansion: Annotated[int, Field(ge=1, le=64)] = 4
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0


PAPER_MODELS: dict[DatasetKind, RealModel] = {
    "marco": RealModel(head_dim=32, depth=2),
    "cifar": RealModel(head_dim=16, depth=4, dropout=0.1),
}
"""The paper's models; for the second it mentions dropout without giving the rate."""


class RealSpec(Spec):
    """Encoders on real data, with every listed head count, length and seed.

    `lengths` are numbers of candidates in a set (MS MARCO) or sides of a frame in pixels (CIFAR-10).
    """

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    title: str = ""
    kind: DatasetKind
    source: RealData
    """The description of the data, as made by `open_marco` or `open_cifar`."""
    heads: Sizes
    lengths: Sizes
    seeds: int = Field(default=3, ge=1, le=10_000)
    model: RealModel | None = None
    """By default the paper's model for this kind."""
    train: RealTrain = RealTrain()

    @model_validator(mode="after")
    def _check(self) -> RealSpec:
        if self.source.kind != self.kind:
            raise ValueError(f"kind is {self.kind!r}, but the data are of kind {self.source.kind!r}")
        self.panels()  # reports a bad length here, before anything runs
        return self

    def on(self, device: torch.device) -> RealSpec:
        """Return the spec with the precision of a device: trials in bf16 and in float32 are different trials."""
        return self.model_copy(update={"train": self.train.on(device)})

    def panels(self) -> list[RealPanel]:
        """Return the experiment as panels, one per length."""
        model = self.model or PAPER_MODELS[self.kind]
        return [RealPanel(self.source, size, model, self.train, tuple(self.heads)) for size in self.lengths]


@dataclass(frozen=True)
class RealPanel:
    """The part of an experiment in which only heads and seeds vary."""

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
        """The length T: candidates in a set, or tokens of a frame including the class token."""
        return self.size if self.source.kind == "marco" else frame_tokens(self.size, self.source.patch)

    @property
    def values(self) -> dict[str, Any]:
        """The values that distinguish the panel from the others."""
        return {"length": self.length}

    def sized(self, heads: int) -> EncoderSpec:
        """Return the encoder with this number of heads."""
        return EncoderSpec(heads=heads, **self.source.sized(self.size), **self.model.model_dump())

    def trial_source(self) -> dict[str, Any]:
        """Return the description of the data in a trial's spec."""
        side = {} if self.source.kind == "marco" else {"side": self.size}
        return {**self.source.data(), "length": self.length, **side}

    def trial(self, heads: int, seed: int) -> RealTrialSpec:
        """Return one trial of the panel."""
        return RealTrialSpec(real=self.trial_source(), model=self.sized(heads), train=self.train, seed=seed)

    def check(self, feed: Feed) -> None:
        """Raise BadInput unless the data match the spec: they may have changed, or been opened with other options."""
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
                raise BadInput(f"the spec states {stated} {name}, but the data have {found}: open the data of the spec")

    def run(
        self,
        name: str,
        title: str,
        about: dict[str, Any],
        trials: Sequence[Trial],
        seconds: float,
        device: str = "cpu",
    ) -> Run:
        """Return the record of the panel with these trials."""
        task = {"name": DATASET_NAMES[self.source.kind], "dim": self.sized(1).inputs, **self.trial_source()}
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
