"""Many trials: the spec, the plan of stacks, the runner, results read back from a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.core import open_door

if TYPE_CHECKING:
    from headcount.sweeps.attack_trials import IrreducibleSpec as IrreducibleSpec
    from headcount.sweeps.attack_trials import attack_rows as attack_rows
    from headcount.sweeps.attack_trials import save_witnesses as save_witnesses
    from headcount.sweeps.backends import DriverOptions as DriverOptions
    from headcount.sweeps.backends import train_singly as train_singly
    from headcount.sweeps.backends import train_stacks as train_stacks
    from headcount.sweeps.encoder_spec import CifarData as CifarData
    from headcount.sweeps.encoder_spec import MarcoData as MarcoData
    from headcount.sweeps.encoder_spec import RealSpec as RealSpec
    from headcount.sweeps.engine import CutShort as CutShort
    from headcount.sweeps.engine import Failure as Failure
    from headcount.sweeps.engine import Member as Member
    from headcount.sweeps.engine import SessionKind as SessionKind
    from headcount.sweeps.file import check_overridden as check_overridden
    from headcount.sweeps.file import choose_positions as choose_positions
    from headcount.sweeps.file import default_positions as default_positions
    from headcount.sweeps.file import read_sweep as read_sweep
    from headcount.sweeps.file import sweep_toml as sweep_toml
    from headcount.sweeps.open_data import CifarSource as CifarSource
    from headcount.sweeps.open_data import MarcoSource as MarcoSource
    from headcount.sweeps.open_data import open_cifar as open_cifar
    from headcount.sweeps.open_data import open_marco as open_marco
    from headcount.sweeps.plan import model_bytes as model_bytes
    from headcount.sweeps.results import stored_model as stored_model
    from headcount.sweeps.results import stored_runs as stored_runs
    from headcount.sweeps.results import stored_spec as stored_spec
    from headcount.sweeps.run import run_on_store as run_on_store
    from headcount.sweeps.run import run_panels as run_panels
    from headcount.sweeps.run import run_sweep as run_sweep
    from headcount.sweeps.run import train_jobs as train_jobs
    from headcount.sweeps.spec import ModelOptions as ModelOptions
    from headcount.sweeps.spec import Panel as Panel
    from headcount.sweeps.spec import SweepSpec as SweepSpec
    from headcount.sweeps.spec import has_serial_form as has_serial_form

__getattr__, __dir__ = open_door(__name__)
