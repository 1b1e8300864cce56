"""How many attention heads does a task need, and what does it cost to have fewer?

    import headcount as hc

    task = hc.make_task("sum-of-maxima", intrinsic=3, dim=3, length=8)
    hc.sweep(task, heads=range(1, 6), seeds=8).plot()

Every name below is imported on first use, so that `import headcount` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from headcount.core.shown import set_view_maker

__version__ = "0.1.0"

_HOME = {
    "Advice": "advisor.advice",
    "ArrayTask": "tasks.arrays.task",
    "AttackResult": "api",
    "Attention": "models.attention.layer",
    "BadInput": "core.errors",
    "GeneralizedRetrieval": "tasks.retrieval",
    "HeadCountAdvisor": "advisor.sklearn",
    "HeadcountError": "core.errors",
    "ModelSpec": "models.transformer.spec",
    "SavedModel": "models.files",
    "SweepResult": "api",
    "SweepSpec": "sweeps.spec",
    "TrainSpec": "sweeps.spec",
    "Transformer": "models.transformer.reference",
    "advise": "advisor.advice",
    "attack": "api",
    "build": "theory.construct.enough_heads",
    "check_assumptions": "tasks.assumptions.check",
    "find_transition": "analysis.of_runs",
    "index_sets": "tasks.sets",
    "load_model": "models.files",
    "load_pruned": "probing.load",
    "make_task": "tasks.families",
    "parse_task": "tasks.serial",
    "probe": "probing.of_model",
    "probe_folder": "probing.of_folder",
    "sweep": "api",
    "train": "api",
    "variable": "tasks.expressions.tree",
    "verify": "recheck.certificate",
    "verify_witness": "recheck.witness",
    "write_report": "render.pages",
}

__all__ = ["__version__", *_HOME]  # pyright: ignore[reportUnsupportedDunderAll]

if TYPE_CHECKING:
    from headcount.advisor.advice import Advice as Advice
    from headcount.advisor.advice import advise as advise
    from headcount.advisor.sklearn import HeadCountAdvisor as HeadCountAdvisor
    from headcount.analysis.of_runs import find_transition as find_transition
    from headcount.api import AttackResult as AttackResult
    from headcount.api import SweepResult as SweepResult
    from headcount.api import attack as attack
    from headcount.api import sweep as sweep
    from headcount.api import train as train
    from headcount.core.errors import BadInput as BadInput
    from headcount.core.errors import HeadcountError as HeadcountError
    from headcount.models.attention.layer import Attention as Attention
    from headcount.models.files import SavedModel as SavedModel
    from headcount.models.files import load_model as load_model
    from headcount.models.transformer.reference import Transformer as Transformer
    from headcount.models.transformer.spec import ModelSpec as ModelSpec
    from headcount.probing.load import load_pruned as load_pruned
    from headcount.probing.of_folder import probe_folder as probe_folder
    from headcount.probing.of_model import probe as probe
    from headcount.recheck.certificate import verify as verify
    from headcount.recheck.witness import verify_witness as verify_witness
    from headcount.render.pages import write_report as write_report
    from headcount.sweeps.spec import SweepSpec as SweepSpec
    from headcount.sweeps.spec import TrainSpec as TrainSpec
    from headcount.tasks.arrays.task import ArrayTask as ArrayTask
    from headcount.tasks.assumptions.check import check_assumptions as check_assumptions
    from headcount.tasks.expressions.tree import variable as variable
    from headcount.tasks.families import make_task as make_task
    from headcount.tasks.retrieval import GeneralizedRetrieval as GeneralizedRetrieval
    from headcount.tasks.serial import parse_task as parse_task
    from headcount.tasks.sets import index_sets as index_sets
    from headcount.theory.construct.enough_heads import build as build


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'headcount' has no attribute {name!r}")
    return getattr(importlib.import_module(f"headcount.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)


set_view_maker(lambda result: importlib.import_module("headcount.views").view_of(result))
