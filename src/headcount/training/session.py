"""The one interface of training: trials side by side on one device, in windows of work, whatever trains them.

A session begins with trials that stand at the same step. Whoever drives it launches a window, asks whether the device
has done it, and collects what it brought; between two windows the state of every trial is whole and can be kept. The
plain loop is a session (`PlainSession`), and so are one trial on one core (`CoreSession`), a stack of transformers on a
GPU (`StackSession`) and the seeds of one encoder (`EncoderSession`). `tests/training/session_suite.py` holds what all
of them must do.
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
"""The grain of progress and of stopping."""
OnStep = Callable[[int, float | None], None]
"""Is told now and then: steps done, and the last validation error, if there is one."""


class Stopped(Exception):
    """The caller asked to stop; the trial's state is whole and can go on later."""


@runtime_checkable
class Resumable(Protocol):
    """A trial to be trained."""

    @property
    def moments(self) -> Moments | None:
        """Its last checkpoint; None where it begins."""
        ...


J = TypeVar("J", bound=Resumable)


@dataclass(frozen=True)
class Ending:
    """How a trial ended: its record, or the reason why it failed."""

    name: str
    outcome: Trial | str
    moments: Moments | None = None
    """Its last state, where it is of use to anybody."""
    measured: dict[str, Any] = field(default_factory=dict[str, Any])
    """What else was measured, which the record has no place for."""
    arrays: dict[str, NDArray[Any]] | None = None
    """What is to be kept of it, where that is not its last state."""


class Session(ABC, Generic[J]):
    """Trials in training; what is common to all kinds of them."""

    thins_out = False
    """Whether trials go on faster in a session of their own when most of the others have ended."""

    def __init__(self, members: Sequence[tuple[str, J]], *, window: int) -> None:
        """Take trials by name, all at the same step; the first window has so many steps."""
        self.members, self.jobs = list(members), [job for _, job in members]
        self.curves = [[] if job.moments is None else list(job.moments.curve) for job in self.jobs]
        self.open = set(range(len(self.jobs)))
        self.window = window
        self.started = self.last_saved = time.perf_counter()
        self.saving = 0.0  # seconds that the last checkpoint took
        self._launched, self._taken = 0.0, 0

    @property
    @abstractmethod
    def steps(self) -> int:
        """How many steps the trials have behind them."""

    @abstractmethod
    def launch(self, stop: threading.Event) -> None:
        """Start the next window of work, and do not wait for it.

        Where the caller stops, a long one ends early, or raises Stopped: the state is whole, as between two windows.
        """

    def ready(self) -> bool:
        """Whether the device has done what was launched."""
        return True

    @abstractmethod
    def collect(self) -> list[Ending]:
        """Read what the window brought; return the trials that ended in it."""

    def cut_short(self) -> list[Ending]:
        """End for good what is still in training, where trials count as they stand; else none: they go on later.

        Called between two windows when the driver is told to stop.
        """
        return []

    @abstractmethod
    def moments(self) -> list[Moments]:
        """Return the state of every trial as it stands, copied; curve and time are filled in by `snapshots`."""

    def snapshots(self, which: Sequence[int] | None = None) -> list[tuple[str, Moments]]:
        """Return checkpoints of the trials that are still in training, or of those named by number."""
        found = self.moments()
        wanted = sorted(self.open) if which is None else which
        for m in wanted:
            found[m].curve, found[m].seconds = list(self.curves[m]), self.seconds(m)
        return [(self.members[m][0], found[m]) for m in wanted]

    def seconds(self, m: int) -> float:
        """A trial's share of the session's time, and what it took before it came here."""
        before = self.jobs[m].moments
        return (time.perf_counter() - self.started) / len(self.jobs) + (0.0 if before is None else before.seconds)

    def left(self) -> list[tuple[str, J]]:
        """Return the trials that have not ended, as they came."""
        return [self.members[m] for m in sorted(self.open)]

    def rest(self) -> list[tuple[str, J]]:
        """Return the trials that have not ended, each as it stands now, between two windows."""
        saved = dict(self.snapshots())
        jobs: list[tuple[str, Any]] = [member for member in self.members if member[0] in saved]
        return [(name, replace(job, moments=saved[name])) for name, job in jobs]

    def close(self) -> None:
        """Let go of what is held beside memory."""

    def _next_target(self, steps: int, evaluations: int) -> int:
        """Return the step at which the next window ends: at an evaluation at the latest."""
        every = evaluation_every(steps, evaluations)
        return min(steps, (self.steps // every + 1) * every, self.steps + self.window)

    def _resize_window(self) -> None:
        """Make the next window about as long as the grain of progress."""
        spent = max(time.perf_counter() - self._launched, 1e-4)
        self.window = max(1, min(4 * self.window, int(self._taken * WINDOW_SECONDS / spent)))


def drive(session: Session[Any], stop: threading.Event | None = None) -> Trial:
    """Train a session of one trial to its end in this thread, and return its record; raise Stopped where asked."""
    stop, ended = stop or threading.Event(), list[Ending]()
    try:
        while session.open:
            session.launch(stop)
            ended = session.collect()
    finally:
        session.close()
    (ending,) = ended
    if isinstance(ending.outcome, str):
        raise HeadcountError(ending.outcome)
    return ending.outcome


def evaluation_every(steps: int, evaluations: int) -> int:
    """Return how many steps lie between two evaluations."""
    return max(1, -(-steps // evaluations))
