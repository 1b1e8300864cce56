"""What a spec file trains at a scale: `specs/SPEC.toml` with the changes of [scales.SCALE]; no data are opened yet."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from headcount.core import BadInput, nearest, option, working, write_text
from headcount.reproduction.items import DATA, GROUPS, ITEMS, RealData, names_of

if TYPE_CHECKING:
    from headcount.sweeps import CifarData, CifarSource, MarcoData, MarcoSource, RealSpec, SweepSpec

Scale = Literal["smoke", "small", "paper", "beyond"]
SCALES: tuple[Scale, ...] = get_args(Scale)
Entry = Literal["means", "tokens"]
"""How candidates enter the encoder: one vector each, or all their tokens in one sequence."""
ENTRIES: tuple[Entry, ...] = get_args(Entry)


@dataclass(frozen=True)
class PaperPlan:
    """The run of a spec file at a scale."""

    spec: str
    scale: Scale
    stated: dict[str, Any]
    """The fields of the sweep; on real data those of its spec without the description of the data."""
    opened_with: dict[str, Any]
    """How much real data is read: queries and validation, or train, validation and patch."""

    @property
    def name(self) -> str:
        """The name of the run in a store."""
        return str(self.stated["name"])

    @property
    def title(self) -> str:
        """The title of the run."""
        return str(self.stated["title"])

    @property
    def data(self) -> RealData | None:
        """The real data that it needs; None for a sweep over a task."""
        return DATA.get(self.spec)

    def sweep(self) -> SweepSpec:
        """Return the sweep over a task."""
        from headcount.sweeps import SweepSpec

        return SweepSpec.parse(self.stated, where=f"{self.spec}.toml, scale {self.scale}")

    def on_data(self, source: MarcoData | CifarData) -> RealSpec:
        """Return the spec on real data; `source` describes the data that were opened."""
        from headcount.sweeps import RealSpec

        return RealSpec.parse({**self.stated, "source": source.data()}, where=f"{self.spec}.toml, scale {self.scale}")

    def trials(self) -> int:
        """Count the trials."""
        if self.data is None:
            sweep = self.sweep()
            return sum(len(panel.heads) * sweep.seeds for panel in sweep.panels())
        return len(self.stated["heads"]) * len(self.stated["lengths"]) * int(self.stated["seeds"])

    def amounts(self) -> tuple[list[int], list[int]]:
        """Return the steps of its trials and the sizes of their fixed training sets."""
        if self.data is None:
            trains = [panel.train for panel in self.sweep().panels()]
            return [train.steps for train in trains], [train.train_size for train in trains if not train.fresh]
        given = self.opened_with
        return [int(self.stated["train"]["steps"])], [given.get("train") or given["queries"] - given["validation"]]


def plan_of(spec: str, scale: Scale) -> PaperPlan:
    """Return the plan of a spec file at a scale."""
    if scale not in SCALES:
        raise BadInput(f"unknown scale {scale!r}: {nearest(str(scale), SCALES)}")
    text = (resources.files("headcount.reproduction") / "specs" / f"{spec}.toml").read_text(encoding="utf-8")
    stated = tomllib.loads(text)
    change: dict[str, Any] = stated.pop("scales")[scale]
    merged: dict[str, Any] = {"name": f"{spec}-{scale}", **stated, **change}
    for part in ("task", "data", "model", "train"):
        if part in merged:
            merged[part] = {**stated.get(part, {}), **change.get(part, {})}
    return PaperPlan(spec, scale, stated=merged, opened_with=merged.pop("data", {}))


def sweep_of(name: str, scale: Scale) -> SweepSpec:
    """Return the sweep of a table or figure on a task at a scale."""
    return plan_of(ITEMS[name].spec, scale).sweep()


def write_sweep(name: str, scale: Scale, path: Path) -> SweepSpec:
    """Write the sweep of one table or figure on a task as a file, and return it."""
    from headcount.sweeps import sweep_toml

    names = names_of(name)
    if any(ITEMS[one].data is not None for one in names):
        raise BadInput(f"{option('spec')} writes sweeps over tasks, and {name} is on real data: leave it out to train")
    if name in GROUPS:
        raise BadInput(f"{option('spec')} writes one sweep, and {name} has several: name one of {', '.join(names)}")
    if path.exists():
        raise BadInput(f"{path} exists already: choose another name")
    sweep = sweep_of(name, scale)
    write_text(path, sweep_toml(sweep, f"headcount reproduce {name} --scale {scale}"))
    return sweep


# -- real data ----------------------------------------------------------------------------------------------

_ONLY_FOR = {"embeddings": "marco", "entry": "marco", "patch": "cifar"}
"""Options of one data set."""


@dataclass(frozen=True)
class RealDataOptions:
    """Where real data are and how much of them is used; None leaves a value to the scale."""

    data: Path | None = None
    """The folder of the data, or of the folders of both data sets."""
    embeddings: Path | None = None
    entry: Entry = "means"
    patch: int | None = None
    train: int | None = None
    validation: int | None = None

    def check(self, name: str, specs: Collection[str]) -> None:
        """Refuse options for data that a name does not need, and values that are not allowed."""
        if self.entry not in ENTRIES:
            raise BadInput(f"unknown {option('entry')} {self.entry!r}: {nearest(str(self.entry), ENTRIES)}")
        given = {
            "data": self.data,
            "embeddings": self.embeddings,
            "entry": None if self.entry == "means" else self.entry,
            "patch": self.patch,
            "train": self.train,
            "validation": self.validation,
        }
        for key, value in given.items():
            if value is None:
                continue
            if not any(spec in DATA for spec in specs):
                raise BadInput(f"{option(key)} is for the tables and figures on real data, not for {name}")
            if (only := _ONLY_FOR.get(key)) and only not in specs:
                raise BadInput(f"{option(key)} is for {DATA[only].folder} alone: leave it out here")
            if key in ("patch", "train", "validation"):
                check_count(value, key)

    def applied(self, plan: PaperPlan) -> PaperPlan:
        """Return a plan with these options; if they change the scale's data, the run gets another name."""
        if plan.data is None:
            return plan
        data, suffixes = dict(plan.opened_with), list[str]()
        validation = self.validation or data["validation"]
        if plan.spec == "marco":
            train = self.train or data["queries"] - data["validation"]
            sizes = {"queries": train + validation, "validation": validation}
            suffixes += [self.entry] if self.entry != "means" else []
        else:
            sizes = {"train": self.train or data["train"], "validation": validation}
            if self.patch is not None and self.patch != data["patch"]:
                _check_patch(self.patch, plan.stated["lengths"])
                data["patch"] = self.patch
                suffixes.append(f"patch{self.patch}")
        if {k: data[k] for k in sizes} != sizes:
            suffixes.append("-".join(map(str, sizes.values())))
        return replace(
            plan, opened_with={**data, **sizes}, stated={**plan.stated, "name": "-".join([plan.name, *suffixes])}
        )

    def open(
        self, plan: PaperPlan, cache: Path, *, several: bool, quiet: bool = False
    ) -> MarcoSource | CifarSource | None:
        """Open the data of a plan; return None if it needs none or no folder is given.

        With `several` data sets, its folder is one inside `data`. Candidate sets are mined once and kept in `cache`.
        quiet: no progress.
        """
        from headcount.sweeps import open_cifar, open_marco

        if plan.data is None or self.data is None:
            return None
        folder = self.data / plan.data.folder if several else self.data
        if plan.spec == "cifar":
            with working("reading CIFAR-10", quiet=quiet):
                return open_cifar(folder, **plan.opened_with)
        lengths = plan.stated["lengths"]
        return open_marco(
            folder,
            self.embeddings,
            lengths=lengths,
            entry=self.entry,
            cache=cache,
            quiet=quiet,
            **plan.opened_with,
        )


def check_count(value: Any, name: str) -> None:
    """Refuse a value of an option that is not a whole number from 1 on."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadInput(f"{option(name)} must be a whole number, not {value!r}")
    if value < 1:
        raise BadInput(f"{option(name)} must be at least 1, not {value}")


def _check_patch(patch: int, sides: Sequence[int]) -> None:
    if any(side % patch for side in sides):
        listed = ", ".join(map(str, sides))
        raise BadInput(f"{option('patch')} {patch} does not divide all sides of the frames ({listed}): use 2, 4 or 8")
