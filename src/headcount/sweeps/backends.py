"""The drivers of sessions: the one place where the runner and the advisor choose between them.

Single trials go to worker threads, one per core (`Cores`); stacks go to the thread that drives a device (`Engine`).
Both talk to the same listener and have the same options. `tests/sweeps/backend_suite.py` tests both alike.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch

from headcount.sweeps.cores import BeginOnCore, Cores
from headcount.sweeps.engine import Engine, KernelCompiler, Listener, SessionKind
from headcount.training import single_threaded_blas


@dataclass(frozen=True)
class DriverOptions:
    """How long a driver trains, and how often it saves."""

    stop: threading.Event
    """Set this to stop all sessions after their windows; the driver sets it at the deadline and at Ctrl-C."""
    save_every: float
    """Seconds between two checkpoints of a session; infinite for none."""
    deadline: float | None = None
    """A time of the monotonic clock."""

    def options(self) -> dict[str, Any]:
        """Return the options as the drivers' keyword arguments."""
        return {"stop": self.stop, "save_every": self.save_every, "deadline": self.deadline}


@runtime_checkable
class TrainStacks(Protocol):
    """`train_stacks` with everything filled in but the stacks."""

    def __call__(self, kind: SessionKind, stacks: Sequence[Sequence[str]], ahead: KernelCompiler | None = None) -> None:
        """Train stacks of trials, in order."""
        ...


def train_singly(
    begin: BeginOnCore, listener: Listener, names: Sequence[str], workers: int, terms: DriverOptions
) -> None:
    """Train trials in sessions of one trial each, `workers` of them at once."""
    with single_threaded_blas():
        Cores(begin, listener, names, workers, **terms.options()).run()


def train_stacks(
    kind: SessionKind,
    stacks: Sequence[Sequence[str]],
    device: torch.device,
    listener: Listener,
    terms: DriverOptions,
    ahead: KernelCompiler | None = None,
) -> None:
    """Train stacks of trials on a device, as many at once as their kind allows and the memory holds."""
    Engine(kind, device, listener, **terms.options()).run(stacks, ahead)
