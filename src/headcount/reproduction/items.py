"""What each name stands for, and its sweep at a scale: `specs/NAME.toml` with the changes of [scales.SCALE]."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal, get_args

from headcount.core import BadInput, nearest
from headcount.sweeps import SweepSpec

Scale = Literal["smoke", "small", "paper", "beyond"]
SCALES: tuple[Scale, ...] = get_args(Scale)
Kind = Literal["heads", "lengths", "hidden", "hidden-by-heads", "reversal", "steps", "parameters", "head_dims"]


@dataclass(frozen=True)
class Item:
    """One table or figure: which sweep it needs, what its picture shows, and the paper's table beside it."""

    spec: str
    kind: Kind
    """What the picture has on its x axis (reversal: the score against heads)."""
    table: str | None = None
    """The paper's table whose numbers stand beside ours."""
    heads: tuple[int, ...] | None = None
    """The head counts that are shown; all of the sweep's, unless stated."""
    note: str = ""


_NO_NUMBERS = "The paper's figure shows its least errors without numbers: its table 2 stands beside ours."
PAPER: dict[str, Item] = {
    "table2": Item("table2", "heads", "table2"),
    "table3": Item("table3", "heads", "table3"),
    "table4": Item("table4", "heads", "table4"),
    "table5": Item("table5", "heads", "table5"),
    "figure1a": Item(
        "table2", "heads", "table2",
        note=_NO_NUMBERS,
    ),
    "figure1b": Item(
        "figure1b", "hidden", note="The paper gives no numbers for this figure, and its range of N is unclear."
    ),
    "figure2e": Item(
        "table2", "reversal", "table2",
        note="The weighted reversal score R(h); the paper's is computed from its table 2.",
    ),
    "figure3": Item(
        "table2", "lengths", "table2", heads=(4, 5),
        note=_NO_NUMBERS,
    ),
    "figure4": Item(
        "figure1b", "hidden-by-heads",
        note="As figure 1b, one picture for each head count; the paper gives no numbers for it.",
    ),
}  # fmt: skip
BEYOND: dict[str, Item] = {
    "floor": Item("floor", "steps"),
    "fixed-size": Item("fixed-size", "heads"),
    "dimension": Item("dimension", "heads"),
    "depth": Item("depth", "heads"),
    "norm": Item("norm", "heads"),
    "beta": Item("beta", "heads"),
    "smallest": Item("smallest", "parameters"),
    "wide-head": Item("wide-head", "head_dims"),
}
ITEMS = {**PAPER, **BEYOND}
GROUPS: dict[str, tuple[str, ...]] = {"synthetic": tuple(PAPER), "beyond-the-paper": tuple(BEYOND)}


def names_of(name: str, others: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the tables and figures that a name stands for; `others` are names that may have been meant too."""
    if name in GROUPS:
        return GROUPS[name]
    if name not in ITEMS:
        raise BadInput(f"nothing is called {name!r}: {nearest(name, [*ITEMS, *GROUPS, *others])}")
    return (name,)


def sweep_of(item: Item, scale: Scale) -> SweepSpec:
    """Return the sweep of a table or figure at a scale."""
    text = (resources.files("headcount.reproduction") / "specs" / f"{item.spec}.toml").read_text(encoding="utf-8")
    stated = tomllib.loads(text)
    change: dict[str, Any] = stated.pop("scales")[scale]
    merged = {**stated, **change}
    for part in ("task", "model", "train"):
        merged[part] = {**stated.get(part, {}), **change.get(part, {})}
    return SweepSpec.parse({"name": f"{item.spec}-{scale}", **merged}, where=f"{item.spec}.toml, scale {scale}")


def scale_text(item: Item, scale: Scale) -> str:
    """Say how long the trials of a table or figure train at a scale, and how long at the paper scale."""
    return compare_scales(scale, _amounts(sweep_of(item, scale)), _amounts(sweep_of(item, "paper")), "sequences")


def compare_scales(
    scale: Scale, here: tuple[Sequence[int], Sequence[int]], paper: tuple[Sequence[int], Sequence[int]], samples: str
) -> str:  # fmt: skip
    """Put two scales side by side, each with its steps and training samples, from the least to the most."""
    (steps, sizes), (full, whole) = ((_span(one), _span(two)) for one, two in (here, paper))
    told = f"{scale}: {steps} steps" + (f" on {sizes} {samples}" if sizes else "")
    if scale == "paper":
        return f"{told}."
    if (steps, sizes) == (full, whole):
        return f"{told}, as at the paper scale."
    less = max(here[0]) < max(paper[0]) or max(here[1], default=0) < max(paper[1], default=0)
    takes = f"; the paper scale takes {full}" + (f" on {whole}" if whole else "")
    return f"{told}{takes}{': expect larger errors' if less else ''}."


def _amounts(spec: SweepSpec) -> tuple[list[int], list[int]]:
    """Return the steps of a sweep's trials, and the sizes of their fixed training sets."""
    trains = [panel.train for panel in spec.panels()]
    return [train.steps for train in trains], [train.train_size for train in trains if not train.fresh]


def _span(numbers: Sequence[int]) -> str:
    """Write 1,500, or 300 to 1,000."""
    return " to ".join(f"{n:,}" for n in sorted({min(numbers), max(numbers)})) if numbers else ""
