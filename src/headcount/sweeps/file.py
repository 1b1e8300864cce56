"""Sweep files, and the positions that a sweep gets where nobody states them.

A model without positions cannot learn a task whose answer depends on where tokens stand. So the front door
(`hc.sweep`, `headcount sweep`, `headcount train`) chooses positions from the task wherever the caller leaves them
open, and the choice stands in the spec that is run and kept. A spec that states its positions is never changed, and
neither are its hashes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from headcount.core import BadInput, Spec
from headcount.core.readers import read_toml, toml_text
from headcount.models.transformer import Positions
from headcount.sweeps.spec import ModelOptions, Setting, SweepSpec
from headcount.tasks import FAMILIES, Task
from headcount.tasks.arrays import ArrayTask
from headcount.training import TrainSpec

SEEN: Positions = "concatenated"
"""What a positional task gets: with D heads it learns best, and on the linear control gates show a false step."""

LISTS = {
    "length": "lengths",
    "seed": "targets",
    "hidden": "hidden",
    "head_dim": "head_dims",
    "learning_rate": "learning_rates",
}
"""The list of a sweep that overrides each option for one value."""
DECIDED = {"total_head_dim": "head_dims", "parameters": "hidden"}
"""The list that has no effect beside each option, since the option decides the sizes itself."""


def check_overridden(options: Mapping[str, Any], lists: Mapping[str, Any], where: str = "") -> None:
    """Refuse an option for one value beside the list of the same: one of the two would be ignored."""
    for option, name in LISTS.items():
        if options.get(option) is not None and lists.get(name) is not None:
            told = f"give {option} for one value, {name} for several"
            raise BadInput(f"{option}{where} and {name} exclude each other: {told}")
    for option, name in DECIDED.items():
        if options.get(option) is not None and isinstance(lists.get(name), Iterable):
            told = f"{option} decides what {name} lists; give one of the two"
            raise BadInput(f"{option}{where} and {name} exclude each other: {told}")


def default_positions(task: Task | ArrayTask) -> Positions:
    """Return how models of a task see positions where nobody says; arrays do not tell, so theirs see none."""
    return SEEN if isinstance(task, Task) and task.positional else "none"


def choose_positions(spec: SweepSpec) -> SweepSpec:
    """Return the sweep with positions chosen from its tasks, setting by setting, where it does not state them."""
    if "positions" in spec.model.model_fields_set:
        return spec
    positional = {panel.values.get("setting") for panel in spec.panels() if default_positions(panel.task) != "none"}
    if not positional:
        return spec
    if not spec.settings:
        return spec.model_copy(update={"model": spec.model.model_copy(update={"positions": SEEN})})

    def chosen(setting: Setting) -> Setting:
        if setting.name not in positional or "positions" in setting.model:
            return setting
        return setting.model_copy(update={"model": {**setting.model, "positions": SEEN}})

    return spec.model_copy(update={"settings": [chosen(setting) for setting in spec.settings]})


def read_sweep(path: Path) -> SweepSpec:
    """Read a sweep's TOML file, and choose positions where it states none; what a list would override is refused."""
    data = read_toml(path)
    spec = SweepSpec.parse(data, where=str(path))
    family = FAMILIES.get(str(spec.task.get("family")))
    parts = {"task": family, "model": ModelOptions, "train": TrainSpec}
    for part, owner in parts.items():
        if owner is not None:
            stated = _without_defaults(data.get(part, {}), owner, spec)
            check_overridden(stated, data, where=f" of [{part}] in {path}")
    return choose_positions(spec)


def _without_defaults(stated: Mapping[str, Any], owner: type[Spec], spec: SweepSpec) -> dict[str, Any]:
    """Return what somebody chose: values that are neither defaults nor part of their list.

    A file that was written out (`sweep_toml`) states every default, beside lists too.
    """
    return {
        key: value
        for key, value in stated.items()
        if value != owner.model_fields[key].default
        and (key not in LISTS or value not in (getattr(spec, LISTS[key]) or ()))
    }


def sweep_toml(spec: SweepSpec, comment: str = "") -> str:
    """Return the file of a sweep, every default written out: `headcount sweep` runs the same trials from it."""
    return toml_text(spec.data(), comment)
