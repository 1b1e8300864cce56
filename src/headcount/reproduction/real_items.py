"""The tables and figures on real data, and their runs at a scale: `specs/marco.toml` and `specs/cifar.toml`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any, Literal

from headcount.analysis import Part
from headcount.core import BadInput
from headcount.reproduction.items import SCALES, Scale, compare_scales

if TYPE_CHECKING:
    from headcount.sweeps import CifarData, MarcoData, RealSpec

RealKind = Literal["marco", "cifar"]
Picture = Literal["heads", "law", "mrr", "reversal", "lengths"]


@dataclass(frozen=True)
class RealItem:
    """One table or figure: which data it needs, what its picture shows, and whose part of the data comes first."""

    spec: RealKind
    picture: Picture
    """heads: accuracy against heads; law: error against heads, with the fitted law; mrr: the mean reciprocal rank."""
    part: Part = "train"
    note: str = ""


_TABLES: dict[RealKind, dict[Part, str]] = {
    "marco": {"train": "table6", "validation": "table7"},
    "cifar": {"train": "table8", "validation": "table9"},
}
_AXES = "What the axes of the paper's figure are is not on record here; ours show {}."
REAL: dict[str, RealItem] = {
    "table6": RealItem("marco", "heads"),
    "table7": RealItem("marco", "heads", "validation"),
    "figure2a": RealItem("marco", "heads", note="The paper has h = 10 and 14 in its figures only, without numbers."),
    "figure2b": RealItem("marco", "law", note=_AXES.format("the training error against heads with the fitted law")),
    "figure5": RealItem("marco", "mrr", note="The paper gives no numbers for its mean reciprocal rank."),
    "table8": RealItem("cifar", "heads"),
    "table9": RealItem("cifar", "heads", "validation"),
    "figure2c": RealItem("cifar", "heads"),
    "figure2d": RealItem(
        "cifar", "reversal", note=_AXES.format("the weighted reversal score of the errors against heads")
    ),
    "figure6": RealItem("cifar", "lengths", note=_AXES.format("accuracy against the length, a line a head count")),
}
REAL_GROUPS: dict[str, tuple[str, ...]] = {
    "marco": tuple(name for name, item in REAL.items() if item.spec == "marco"),
    "cifar": tuple(name for name, item in REAL.items() if item.spec == "cifar"),
    "real": tuple(REAL),
}


def paper_table(kind: RealKind, part: Part) -> str:
    """Return the paper's table of accuracies on a part of the data."""
    return _TABLES[kind][part]


def real_names(name: str) -> tuple[str, ...]:
    """Return the tables and figures on real data that a name stands for; none where it stands for something else."""
    return REAL_GROUPS.get(name, (name,) if name in REAL else ())


@dataclass(frozen=True)
class RealPlan:
    """A run on real data at a scale, before the folder is opened."""

    kind: RealKind
    data: dict[str, Any]
    """What the folder is opened with: queries and validation, or train, validation and patch."""
    stated: dict[str, Any]
    """The fields of the spec, but for the description of the data."""

    @property
    def name(self) -> str:
        """The name of the run in a store."""
        return str(self.stated["name"])

    def spec(self, source: MarcoData | CifarData) -> RealSpec:
        """Return the whole spec, with the data as described by who opened them."""
        from headcount.sweeps import RealSpec

        return RealSpec.parse({**self.stated, "source": source.data()}, where=f"{self.kind}.toml")


def real_scale_text(plan: RealPlan, scale: Scale) -> str:
    """Say how long the trials of a plan train, and how long at the paper scale."""
    paper = real_plan(plan.kind, "paper")
    return compare_scales(scale, _amounts(plan), _amounts(paper), "queries" if plan.kind == "marco" else "images")


def _amounts(plan: RealPlan) -> tuple[list[int], list[int]]:
    """Return a plan's steps, and its training queries or images."""
    from headcount.training.encoder import RealTrain

    data, stated = plan.data, plan.stated["train"]
    size = data["queries"] - data["validation"] if plan.kind == "marco" else data["train"]
    return [int(stated.get("steps", RealTrain.model_fields["steps"].default))], [int(size)]


def real_plan(kind: RealKind, scale: Scale) -> RealPlan:
    """Return the run that tables and figures of a kind need at a scale."""
    if scale not in SCALES:
        raise BadInput(f"there is no scale {scale!r}: {', '.join(SCALES)} are")
    text = (resources.files("headcount.reproduction") / "specs" / f"{kind}.toml").read_text(encoding="utf-8")
    stated = tomllib.loads(text)
    change: dict[str, Any] = stated.pop("scales")[scale]
    merged: dict[str, Any] = {"name": f"{kind}-{scale}", **stated, **change}
    for part in ("data", "model", "train"):
        merged[part] = {**stated.get(part, {}), **change.get(part, {})}
    return RealPlan(kind, merged.pop("data"), merged)
