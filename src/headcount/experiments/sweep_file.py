"""Sweep files, and the positions that a sweep gets where nobody states them.

A model without positions cannot learn a task whose answer depends on where tokens stand. So the front door
(`hc.sweep`, `headcount sweep`, `headcount train`) chooses positions from the task wherever the caller leaves them
open, and the choice stands in the spec that is run and kept. A spec that states its positions is never changed, and
neither are its hashes.
"""

from __future__ import annotations

from pathlib import Path

from headcount.base.spec import read_toml
from headcount.base.toml import toml_text
from headcount.experiments.spec import Setting, SweepSpec
from headcount.models.spec import Positions
from headcount.tasks.arrays import ArrayTask
from headcount.tasks.task import Task

SEEN: Positions = "concatenated"
"""What a positional task gets: with D heads it learns best, and on the linear control gates show a false step."""


def default_positions(task: Task | ArrayTask) -> Positions:
    """Return how models of a task see positions where nobody says; arrays do not tell, so theirs see none."""
    return SEEN if isinstance(task, Task) and task.positional else "none"


def choose_positions(spec: SweepSpec) -> SweepSpec:
    """Return the sweep with positions chosen from its tasks, setting by setting, where it does not state them."""
    if "positions" in spec.model.model_fields_set:
        return spec
    positional = {
        panel.values.get("setting") for panel in spec.panels() if default_positions(panel.task) != "none"
    }  # fmt: skip
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
    """Read a sweep's TOML file, and choose positions where it states none."""
    return choose_positions(SweepSpec.parse(read_toml(path), where=str(path)))


def sweep_toml(spec: SweepSpec, comment: str = "") -> str:
    """Return the file of a sweep, every default written out: `headcount sweep` runs the same trials from it."""
    return toml_text(spec.data(), comment)
