"""The common interface of all trainers: a session trains several trials together on one device, in windows of work.

All trials of a session start at the same step. The driver launches a window, polls until the device has finished it,
and collects the results; between two windows the state of every trial is consistent and can be checkpointed. The
sessions are the plain loop (`PlainSession`), one trial on one core (`CoreSession`), a stack of transformers on a GPU
(`StackSession`) and the seeds of one encoder (`EncoderSession`). `tests/training/session_suite.py` tests what all of
them must do.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from numpy.typing import NDArray

from headcount.core import HeadcountError
from headcount.store import Trial
from headcount.training.checkpoint import Moments

WINDOW_SECONDS = 0.5
"""Target length of a window, and so the granularity of progress and of stopping."""
OnStep = Callable[[int, float | None], None]
"""Progress callback: called with the steps done and the last validation error (None before the first evaluation)."""


class Stopped(Exception):
    """The caller asked to stop; the trial's state is consistent, and the trial can be resumed."""


@runtime_checkable
class Resumable(Protocol):
    """A trial to be trained."""

    @property
    def moments(self) -> Moments | None:
        """The checkpoint to resume from; None to start from the beginning."""
        ...


J = TypeVar("J", bound=Resumable)


@dataclass(frozen=True)
class Ending:
    """How a trial ended: its record, or the reason why it failed."""

    name: str
    outcome: Trial | str
    moments: Moments | None = None
    """Its final state, if anybody can use it."""
    measured: dict[str, Any] = field(default_factory=dict[str, Any])
    """Further measurements that have no field in the record."""
    arrays: dict[str, NDArray[Any]] | None = None
    """The arrays to store, if they are not those of the final state."""


class Session(ABC, Generic[J]):
    """Trials in training: what all kinds of sessions have in common."""

    restack_when_half_done = False
    """Whether the remaining trials train faster in a new session once half of the trials have ended."""

    def __init__(self, members: Sequence[tuple[str, J]], *, window: int) -> None:
        """Take named trials, all at the same step; `window` is the length of the first window in steps."""
        self.members, self.jobs = list(members), [job for _, job in members]
        self.curves = [[] if job.moments is None else list(job.moments.curve) for job in self.jobs]
        self.unfinished = set(range(len(self.jobs)))  # places in `members` of the trials still in training
        self.window = window
        self.started = self.last_saved = time.perf_counter()
        self.checkpoint_seconds = 0.0  # time to write the last checkpoint
        self._launch_time, self._window_steps = 0.0, 0

    @property
    @abstractmethod
    def steps(self) -> int:
        """The number of steps taken so far."""

    @abstractmethod
    def launch(self, stop: threading.Event) -> None:
        """Start the next window of work without waiting for it.

        If `stop` is set, a long window ends early or raises Stopped; the state is consistent, as between windows.
        """

    def ready(self) -> bool:
        """Whether the device has finished the launched window."""
        return True

    @abstractmethod
    def collect(self) -> list[Ending]:
        """Read the results of the window; return the trials that ended in it."""

    def cut_short(self) -> list[Ending]:
        """Called between two windows when the driver is told to stop; return the trials that end early.

        Sessions whose unfinished trials are valid results end them here. The default ends none: they can be resumed.
        """
        return []

    @abstractmethod
    def moments(self) -> list[Moments]:
        """Return a copy of the current state of every trial; curve and time are filled in by `snapshots`."""

    def snapshots(self, places: Sequence[int] | None = None) -> list[tuple[str, Moments]]:
        """Return named checkpoints of the trials at these places (default: all that are still in training)."""
        states = self.moments()
        places = sorted(self.unfinished) if places is None else places
        for m in places:
            states[m].curve, states[m].seconds = list(self.curves[m]), self.seconds(m)
        return [(self.members[m][0], states[m]) for m in places]

    def seconds(self, m: int) -> float:
        """Return a trial's training time: its share of this session's time plus that of earlier sessions."""
        before = self.jobs[m].moments
        return (time.perf_counter() - self.started) / len(self.jobs) + (0.0 if before is None else before.seconds)

    def unfinished_members(self) -> list[tuple[str, J]]:
        """Return the trials that have not ended, with the jobs they were given as."""
        return [self.members[m] for m in sorted(self.unfinished)]

    def resumable_members(self) -> list[tuple[str, J]]:
        """Return the trials that have not ended, each with a job that resumes from its current state."""
        saved = dict(self.snapshots())
        jobs: list[tuple[str, Any]] = [member for member in self.members if member[0] in saved]
        return [(name, replace(job, moments=saved[name])) for name, job in jobs]

    def close(self) -> None:
        """Release resources other than memory."""

    def _next_target(self, steps: int, evaluations: int) -> int:
        """Return the step at which the next window ends: no later than the next evaluation."""
        every = evaluation_every(steps, evaluations)
        return min(steps, (self.steps // every + 1) * every, self.steps + self.window)

    def _resize_window(self) -> None:
        """Set the next window's number of steps so that it takes about WINDOW_SECONDS."""
        spent = max(time.perf_counter() - self._launch_time, 1e-4)
        self.window = max(1, min(4 * self.window, int(self._window_steps * WINDOW_SECONDS / spent)))


def drive(session: Session[Any], stop: threading.Event | None = None) -> Trial:
    """Train a session of one trial to its end in this thread and return its record; raise Stopped if `stop` is set."""
    stop, ended = stop or threading.Event(), list[Ending]()
    try:
        while session.unfinished:
            session.launch(stop)
            ended = session.collect()
    finally:
        session.close()
    (ending,) = ended
    if isinstance(ending.outcome, str):
        raise HeadcountError(ending.outcome)
    return ending.outcome


def evaluation_every(steps: int, evaluations: int) -> int:
    """Return the number of steps between two evaluations."""
    return max(1, -(-steps // evaluations))
