"""Who drives sessions: the one place where the runner and the advisor choose it.

Trials that begin one by one go to worker threads, a core each (`Cores`); stacks go to the thread that drives a device
(`Engine`). Both talk to the same listener and work until the same terms end. What any of them must do is in
`tests/sweeps/backend_suite.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch

from headcount.sweeps.cores import BeginOnCore, Cores
from headcount.sweeps.engine import Compiling, Engine, Kind, Listener
from headcount.training import single_threaded_blas


@dataclass(frozen=True)
class Terms:
    """How long is trained, and how often it is saved."""

    stop: threading.Event
    """Is set by whoever wants all to stop between two windows, and by the driver at the deadline and at Ctrl-C."""
    save_every: float
    """Seconds between two checkpoints of a session; infinite for none."""
    deadline: float | None = None
    """A time of the monotonic clock."""

    def options(self) -> dict[str, Any]:
        """Return the terms as the drivers take them."""
        return {"stop": self.stop, "save_every": self.save_every, "deadline": self.deadline}


@runtime_checkable
class TrainStacks(Protocol):
    """`train_stacks` with everything filled in but the stacks."""

    def __call__(self, kind: Kind, stacks: Sequence[Sequence[str]], ahead: Compiling | None = None) -> None:
        """Train stacks of trials, in order."""
        ...


def train_singly(begin: BeginOnCore, listener: Listener, names: Sequence[str], workers: int, terms: Terms) -> None:
    """Train trials in sessions of one, so many of them at once."""
    with single_threaded_blas():
        Cores(begin, listener, names, workers, **terms.options()).run()


def train_stacks(
    kind: Kind,
    stacks: Sequence[Sequence[str]],
    device: torch.device,
    listener: Listener,
    terms: Terms,
    ahead: Compiling | None = None,
) -> None:
    """Train stacks of trials on a device, as many at once as their kind allows and memory has room for."""
    Engine(kind, device, listener, **terms.options()).run(stacks, ahead)
