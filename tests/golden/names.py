"""The only place where the golden test names modules inside the package.

Whoever moves a module changes the lines below and nothing else here: what the names return may not change.
"""

from __future__ import annotations

from headcount.cli.main import main
from headcount.experiments import real_stack
from headcount.experiments.cpu import Stopped, run_trial
from headcount.experiments.data import prepare
from headcount.experiments.encoder_settings import RealTrain
from headcount.experiments.encoder_train import EncoderTrainer
from headcount.experiments.irreducible import IrreducibleSpec
from headcount.experiments.job import Job
from headcount.experiments.real_data import open_cifar, open_marco
from headcount.experiments.real_runner import run_real
from headcount.experiments.real_spec import CifarData, MarcoData, RealModel, RealSpec
from headcount.experiments.sweep_file import read_sweep
from headcount.paper.plan import ITEMS, SCALES, sweep_of
from headcount.paper.real_plan import real_plan
from headcount.store.store import Store

__all__ = [
    "ITEMS", "SCALES", "CifarData", "EncoderTrainer", "IrreducibleSpec", "Job", "MarcoData", "RealModel",
    "RealSpec", "RealTrain", "Stopped", "Store", "main", "open_cifar", "open_marco", "prepare",
    "read_sweep", "real_plan", "real_stack", "run_real", "run_trial", "sweep_of",
]  # fmt: skip
