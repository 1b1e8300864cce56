"""The only place where the golden test names modules inside the package.

When a module moves, only the imports below change; what the names return must not change.
"""

from __future__ import annotations

from typing import Any

from headcount.cli.main import main
from headcount.reproduction.items import ITEMS as ALL_ITEMS
from headcount.reproduction.items import Item
from headcount.reproduction.plan import SCALES, Scale, plan_of
from headcount.store.store import Store
from headcount.sweeps.attack_trials import IrreducibleSpec
from headcount.sweeps.encoder_spec import CifarData, MarcoData, RealModel, RealSpec
from headcount.sweeps.file import read_sweep
from headcount.sweeps.open_data import open_cifar, open_marco
from headcount.sweeps.run import run_on_store
from headcount.training import session
from headcount.training.core_session import CoreSession
from headcount.training.data import prepare
from headcount.training.encoder.settings import RealTrain
from headcount.training.encoder.stacked import EncoderTrainer
from headcount.training.job import Job
from headcount.training.session import Stopped

ITEMS = {name: item for name, item in ALL_ITEMS.items() if item.data is None}


def sweep_of(item: Item, scale: Scale) -> Any:
    """Return the sweep of a table or figure on a task."""
    return plan_of(item.spec, scale).sweep()


class _RealPlan:
    """A run on real data, whose spec needs its data."""

    def __init__(self, kind: str, scale: Scale) -> None:
        self.spec = plan_of(kind, scale).on_data


real_plan = _RealPlan
__all__ = [
    "ITEMS",
    "SCALES",
    "CifarData",
    "CoreSession",
    "EncoderTrainer",
    "IrreducibleSpec",
    "Job",
    "MarcoData",
    "RealModel",
    "RealSpec",
    "RealTrain",
    "Stopped",
    "Store",
    "main",
    "open_cifar",
    "open_marco",
    "prepare",
    "read_sweep",
    "real_plan",
    "run_on_store",
    "session",
    "sweep_of",
]
