"""Read and write sweep files, and choose the `positions` of models where the user does not.

A model without positions cannot learn a task whose target depends on the positions of tokens. So `hc.sweep`,
`headcount sweep` and `headcount train` choose positions from the task unless the user states them, and the choice is
written into the spec that is run and stored. A spec that states its positions is never changed, nor are its hashes.
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

DEFAULT_POSITIONS: Positions = "concatenated"
"""The choice for positional tasks: with D heads it learns best, and gates show a false step on the linear control."""

LIST_OF_OPTION = {
    "length": "lengths",
    "seed": "targets",
    "hidden": "hidden",
    "head_dim": "head_dims",
    "learning_rate": "learning_rates",
}
"""For each option with one value, the list of a sweep that overrides it."""
LIST_DECIDED_BY_OPTION = {"total_head_dim": "head_dims", "parameters": "hidden"}
"""For each option that decides sizes itself, the list that would have no effect beside it."""


def check_overridden(options: Mapping[str, Any], lists: Mapping[str, Any], where: str = "") -> None:
    """Raise BadInput if an option is given together with the list of its values, since one would be ignored."""
    for option, name in LIST_OF_OPTION.items():
        if options.get(option) is not None and lists.get(name) is not None:
            advice = f"give {option} for one value, {name} for several"
            raise BadInput(f"{option}{where} and {name} exclude each other: {advice}")
    for option, name in LIST_DECIDED_BY_OPTION.items():
        if options.get(option) is not None and isinstance(lists.get(name), Iterable):
            advice = f"{option} decides what {name} lists; give one of the two"
            raise BadInput(f"{option}{where} and {name} exclude each other: {advice}")


def default_positions(task: Task | ArrayTask) -> Positions:
    """Return how models of a task see positions by default; for arrays, where it cannot be known, not at all."""
    return DEFAULT_POSITIONS if isinstance(task, Task) and task.positional else "none"


def choose_positions(spec: SweepSpec) -> SweepSpec:
    """Return the sweep with positions chosen from its tasks, setting by setting, unless it states them."""
    if "positions" in spec.model.model_fields_set:
        return spec
    positional = {panel.values.get("setting") for panel in spec.panels() if default_positions(panel.task) != "none"}
    if not positional:
        return spec
    if not spec.settings:
        return spec.model_copy(update={"model": spec.model.model_copy(update={"positions": DEFAULT_POSITIONS})})

    def chosen(setting: Setting) -> Setting:
        if setting.name not in positional or "positions" in setting.model:
            return setting
        return setting.model_copy(update={"model": {**setting.model, "positions": DEFAULT_POSITIONS}})

    return spec.model_copy(update={"settings": [chosen(setting) for setting in spec.settings]})


def read_sweep(path: Path) -> SweepSpec:
    """Read a sweep's TOML file and choose positions unless it states them; reject values that a list would override."""
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
    """Return the values that the user chose: those that are neither defaults nor in their list.

    A file that `sweep_toml` wrote states every default, even beside a list.
    """
    return {
        key: value
        for key, value in stated.items()
        if value != owner.model_fields[key].default
        and (key not in LIST_OF_OPTION or value not in (getattr(spec, LIST_OF_OPTION[key]) or ()))
    }


def sweep_toml(spec: SweepSpec, comment: str = "") -> str:
    """Return a sweep file with every default written out, from which `headcount sweep` runs the same trials."""
    return toml_text(spec.data(), comment)
