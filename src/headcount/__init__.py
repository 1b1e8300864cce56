"""How many attention heads does a task need, and what does it cost to have fewer?

    import headcount as hc

    task = hc.make_task("sum-of-maxima", intrinsic=3, dim=3, length=8)
    hc.sweep(task, heads=range(1, 6), seeds=8).plot()

Every name below is imported on first use, so that `import headcount` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from headcount.base.shown import set_view_maker

__version__ = "0.1.0"

_HOME = {
    "Advice": "advice.advisor",
    "ArrayTask": "tasks.arrays",
    "AttackResult": "front",
    "Attention": "models.attention",
    "BadInput": "base.errors",
    "GeneralizedRetrieval": "tasks.retrieval",
    "HeadCountAdvisor": "advice.estimator",
    "HeadcountError": "base.errors",
    "ModelSpec": "models.spec",
    "SavedModel": "models.files",
    "SweepResult": "front",
    "SweepSpec": "experiments.spec",
    "TrainSpec": "experiments.spec",
    "Transformer": "models.reference",
    "advise": "advice.advisor",
    "attack": "front",
    "build": "theory.build",
    "check_assumptions": "tasks.assumptions",
    "find_transition": "analysis.analyse",
    "index_sets": "tasks.sets",
    "load_model": "models.files",
    "load_pruned": "advice.probe_load",
    "make_task": "tasks.families",
    "parse_task": "tasks.serial",
    "probe": "advice.probe",
    "probe_folder": "advice.probe_folder",
    "sweep": "front",
    "train": "front",
    "variable": "tasks.expr",
    "verify": "recheck.certificate",
    "verify_witness": "recheck.witness",
    "write_report": "report.page",
}

__all__ = ["__version__", *_HOME]  # pyright: ignore[reportUnsupportedDunderAll]

if TYPE_CHECKING:
    from headcount.advice.advisor import Advice as Advice
    from headcount.advice.advisor import advise as advise
    from headcount.advice.estimator import HeadCountAdvisor as HeadCountAdvisor
    from headcount.advice.probe import probe as probe
    from headcount.advice.probe_folder import probe_folder as probe_folder
    from headcount.advice.probe_load import load_pruned as load_pruned
    from headcount.analysis.analyse import find_transition as find_transition
    from headcount.base.errors import BadInput as BadInput
    from headcount.base.errors import HeadcountError as HeadcountError
    from headcount.experiments.spec import SweepSpec as SweepSpec
    from headcount.experiments.spec import TrainSpec as TrainSpec
    from headcount.front import AttackResult as AttackResult
    from headcount.front import SweepResult as SweepResult
    from headcount.front import attack as attack
    from headcount.front import sweep as sweep
    from headcount.front import train as train
    from headcount.models.attention import Attention as Attention
    from headcount.models.files import SavedModel as SavedModel
    from headcount.models.files import load_model as load_model
    from headcount.models.reference import Transformer as Transformer
    from headcount.models.spec import ModelSpec as ModelSpec
    from headcount.recheck.certificate import verify as verify
    from headcount.recheck.witness import verify_witness as verify_witness
    from headcount.report.page import write_report as write_report
    from headcount.tasks.arrays import ArrayTask as ArrayTask
    from headcount.tasks.assumptions import check_assumptions as check_assumptions
    from headcount.tasks.expr import variable as variable
    from headcount.tasks.families import make_task as make_task
    from headcount.tasks.retrieval import GeneralizedRetrieval as GeneralizedRetrieval
    from headcount.tasks.serial import parse_task as parse_task
    from headcount.tasks.sets import index_sets as index_sets
    from headcount.theory.build import build as build


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'headcount' has no attribute {name!r}")
    return getattr(importlib.import_module(f"headcount.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)


set_view_maker(lambda result: importlib.import_module("headcount.views").view_of(result))
