"""Training: the plain loop, one trial per core, stacks; batches, data, checkpoints, memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.core import open_door

if TYPE_CHECKING:
    from headcount.training.batches import FRESH_STEPS as FRESH_STEPS
    from headcount.training.batches import batch_indices as batch_indices
    from headcount.training.batches import stacked_indices as stacked_indices
    from headcount.training.batches import stream_keys as stream_keys
    from headcount.training.checkpoint import Moments as Moments
    from headcount.training.core_session import CoreSession as CoreSession
    from headcount.training.core_session import train_fast as train_fast
    from headcount.training.data import DTYPES as DTYPES
    from headcount.training.data import Dataset as Dataset
    from headcount.training.data import Part as Part
    from headcount.training.data import draw_inputs as draw_inputs
    from headcount.training.data import prepare as prepare
    from headcount.training.devices import compiles_kernels as compiles_kernels
    from headcount.training.devices import device_name as device_name
    from headcount.training.devices import find_device as find_device
    from headcount.training.devices import warm_up_device as warm_up_device
    from headcount.training.job import Job as Job
    from headcount.training.loop import Trained as Trained
    from headcount.training.loop import check_seed as check_seed
    from headcount.training.loop import check_task as check_task
    from headcount.training.loop import record as record
    from headcount.training.loop import saved_model as saved_model
    from headcount.training.memory import check_memory as check_memory
    from headcount.training.on_cores import polish_steps as polish_steps
    from headcount.training.on_cores import single_threaded_blas as single_threaded_blas
    from headcount.training.on_cores import start_kernels as start_kernels
    from headcount.training.on_cores import stepper_for as stepper_for
    from headcount.training.on_cores import torch_threads as torch_threads
    from headcount.training.session import Ending as Ending
    from headcount.training.session import OnStep as OnStep
    from headcount.training.session import Session as Session
    from headcount.training.session import Stopped as Stopped
    from headcount.training.spec import TrainSpec as TrainSpec
    from headcount.training.stack_session import StackSession as StackSession
    from headcount.training.stacked import StackTrainer as StackTrainer
    from headcount.training.stacked import full_precision as full_precision

__getattr__, __dir__ = open_door(__name__)
