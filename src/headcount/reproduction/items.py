"""What can be reproduced: the list of the paper's tables and figures, and of the questions beyond it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from headcount.core import BadInput, nearest

if TYPE_CHECKING:
    from headcount.analysis import Part

Picture = Literal[
    "heads",
    "lengths",
    "hidden",
    "hidden-by-heads",
    "steps",
    "parameters",
    "head_dims",  # errors on a task
    "accuracy",
    "accuracy-by-length",
    "law",
    "mrr",  # on real data
    "reversal",
]


@dataclass(frozen=True)
class RealData:
    """One of the paper's real data sets: its name, what its folder must hold, and how much of it the paper used."""

    name: str
    folder: str
    """The name of its folder inside --data if both data sets are needed."""
    holds: str
    """What its folder must hold."""
    samples: str
    sizes: dict[Part, int]
    """The number of samples that the paper used."""
    unit: float
    """The factor of accuracies in the paper's tables: 100 for percent."""


DATA: dict[str, RealData] = {
    "marco": RealData(
        "MS MARCO",
        "msmarco",
        "collection.tsv with queries and qrels, Hugging Face's Parquet files, or passages.jsonl.gz and "
        "queries.jsonl.gz",
        samples="queries",
        sizes={"train": 28_000, "validation": 2_000},
        unit=1.0,
    ),
    "cifar": RealData(
        "CIFAR-10",
        "cifar10",
        "the official archive or its files, train/ and test/ with a folder a class, or train.npz and test.npz",
        samples="images",
        sizes={"train": 50_000, "validation": 10_000},
        unit=100.0,
    ),
}
"""The data that a spec file needs, by its name; all other specs are sweeps over a task and need none."""


@dataclass(frozen=True)
class Item:
    """One table or figure: the spec file it needs, what its picture shows, and the paper's table beside it."""

    spec: str
    picture: Picture
    """What the picture has on its x axis, or what it shows."""
    table: str | None = None
    """The paper's table whose numbers are shown beside ours."""
    part: Part = "validation"
    """The part of the data that it is about; sweeps over tasks are validated on fresh sequences."""
    heads: tuple[int, ...] | None = None
    """The head counts that are shown; None for all of the sweep's."""
    note: str = ""

    @property
    def data(self) -> RealData | None:
        """The real data that it needs; None for a sweep over a task."""
        return DATA.get(self.spec)


_NO_NUMBERS = "The paper's figure shows its least errors without numbers: its table 2 stands beside ours."
_AXES = "What the axes of the paper's figure are is not on record here; ours show {}."
ITEMS: dict[str, Item] = {
    "table2": Item("table2", "heads", "table2"),
    "table3": Item("table3", "heads", "table3"),
    "table4": Item("table4", "heads", "table4"),
    "table5": Item("table5", "heads", "table5"),
    "figure1a": Item("table2", "heads", "table2", note=_NO_NUMBERS),
    "figure1b": Item(
        "figure1b", "hidden", note="The paper gives no numbers for this figure, and its range of N is unclear."
    ),
    "figure2e": Item(
        "table2",
        "reversal",
        "table2",
        note="The weighted reversal score R(h); the paper's is computed from its table 2.",
    ),
    "figure3": Item("table2", "lengths", "table2", heads=(4, 5), note=_NO_NUMBERS),
    "figure4": Item(
        "figure1b",
        "hidden-by-heads",
        note="As figure 1b, one picture for each head count; the paper gives no numbers for it.",
    ),
    "table6": Item("marco", "accuracy", "table6", "train"),
    "table7": Item("marco", "accuracy", "table7"),
    "figure2a": Item(
        "marco", "accuracy", "table6", "train", note="The paper has h = 10 and 14 in its figures only, without numbers."
    ),
    "figure2b": Item(
        "marco", "law", "table6", "train", note=_AXES.format("the training error against heads with the fitted law")
    ),
    "figure5": Item("marco", "mrr", "table6", "train", note="The paper gives no numbers for its mean reciprocal rank."),
    "table8": Item("cifar", "accuracy", "table8", "train"),
    "table9": Item("cifar", "accuracy", "table9"),
    "figure2c": Item("cifar", "accuracy", "table8", "train"),
    "figure2d": Item(
        "cifar",
        "reversal",
        "table8",
        "train",
        note=_AXES.format("the weighted reversal score of the errors against heads"),
    ),
    "figure6": Item(
        "cifar",
        "accuracy-by-length",
        "table8",
        "train",
        note=_AXES.format("accuracy against the length, a line a head count"),
    ),
    "floor": Item("floor", "steps"),
    "fixed-size": Item("fixed-size", "heads"),
    "dimension": Item("dimension", "heads"),
    "depth": Item("depth", "heads"),
    "norm": Item("norm", "heads"),
    "beta": Item("beta", "heads"),
    "smallest": Item("smallest", "parameters"),
    "wide-head": Item("wide-head", "head_dims"),
}


def _group(name: str, item: Item) -> str:
    if item.data is not None:
        return "real"
    return "synthetic" if name.startswith(("table", "figure")) else "beyond-the-paper"


GROUPS: dict[str, tuple[str, ...]] = {
    group: tuple(name for name, item in ITEMS.items() if group in (_group(name, item), item.spec))
    for group in ("synthetic", "beyond-the-paper", *DATA, "real")
}
"""Names of several tables and figures together."""


def names_of(name: str) -> tuple[str, ...]:
    """Return the tables and figures that a name means."""
    names = [*ITEMS, *GROUPS]
    if name not in names:  # a list: what cannot be hashed is an unknown name too
        raise BadInput(f"unknown table or figure {name!r}: {nearest(name, names)}")
    return GROUPS.get(name, (name,))


def paper_tables(spec: str) -> dict[Part, str]:
    """Return the paper's tables about what a spec file trains, by the part of the data they are about."""
    return {item.part: item.table for item in ITEMS.values() if item.spec == spec and item.table is not None}
