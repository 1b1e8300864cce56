"""What every backend must do, whatever it trains on: a class of tests that a new one passes by supplying one method.

Derive from `BackendSuite`, name the class `Test…`, and say how trials are trained. The trials here count to a number.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from headcount.core.errors import HeadcountError
from headcount.store import Trial
from headcount.sweeps.backends import DriverOptions
from headcount.sweeps.engine import Member
from headcount.training import Ending, Moments, Session, Stopped

Begin = Callable[[Sequence[Member], Callable[[int, float | None], None]], Session[Any]]
Train = Callable[[Begin, "Recorder", Sequence[str], DriverOptions], None]
"""Trains trials by name, in sessions of one that `begin` begins, until the terms end."""
WINDOW_SECONDS = 0.002
ENDLESS = 10**6
MAX_WINDOWS = 500
"""A session that nobody stops fails, so that a backend that never stops is noticed and not waited for."""


@dataclass(frozen=True)
class Counting:
    """A trial that counts to `steps`."""

    number: int
    steps: int = 5
    moments: Moments | None = None
    fails_at: int | None = None
    raises: bool = False
    """Whether it raises Stopped where it is told to stop, as sessions do whose windows are long."""
    counts_as_it_is: bool = False


class CountingSession(Session[Counting]):
    """Counts one step a window."""

    def __init__(self, members: Sequence[Member], on_step: Callable[[int, float | None], None]) -> None:
        super().__init__(members, window=1)
        (job,) = self.jobs
        self._step, self._on_step = 0 if job.moments is None else job.moments.step, on_step
        self.launched, self.closed = 0, 0
        if job.fails_at == 0:
            raise HeadcountError("it cannot begin")

    @property
    def steps(self) -> int:
        return self._step

    def launch(self, stop: threading.Event) -> None:
        (job,) = self.jobs
        if stop.is_set() and job.raises:
            raise Stopped
        time.sleep(WINDOW_SECONDS)
        self.launched += 1
        self._step += 1
        if self.launched > MAX_WINDOWS:
            raise RuntimeError("nobody stops it")
        if self._step == job.fails_at:
            raise RuntimeError("it cannot go on")
        self._on_step(self._step, None)
        if stop.is_set() and job.raises:
            raise Stopped

    def _record(self) -> list[Ending]:
        self.unfinished.clear()
        found = Trial(
            heads=self.jobs[0].number,
            seed=0,
            state="done",
            nmse=1.0,
            train_nmse=1.0,
            steps=self._step,
            seconds=0.0,
            parameters=1,
            parameters_total=1,
        )
        return [Ending(self.members[0][0], found)]

    def collect(self) -> list[Ending]:
        return self._record() if self._step >= self.jobs[0].steps else []

    def cut_short(self) -> list[Ending]:
        return self._record() if self.jobs[0].counts_as_it_is else []

    def moments(self) -> list[Moments]:
        return [Moments(*np.zeros((3, 1)), self._step)]

    def close(self) -> None:
        self.closed += 1


@dataclass
class Recorder:
    """The listener: hands out trials, and keeps what it is told; calls come from the thread that drives alone."""

    jobs: dict[str, Counting]
    elsewhere: frozenset[str] = frozenset()
    stop_at: int | None = None
    """The step of any trial at which all is told to stop."""
    stop: threading.Event = field(default_factory=threading.Event)
    handed: list[str] = field(default_factory=list[str])
    found: dict[str, Trial | str] = field(default_factory=dict[str, "Trial | str"])
    kept: dict[str, int] = field(default_factory=dict[str, int])
    begun: dict[str, CountingSession] = field(default_factory=dict[str, CountingSession])

    def __post_init__(self) -> None:
        self._thread = threading.get_ident()

    def _check(self, name: str) -> None:
        assert threading.get_ident() == self._thread, "the listener is called from the thread that drives alone"
        assert name not in self.found, "nothing is told of a trial that has ended"

    def begin(self, members: Sequence[Member], on_step: Callable[[int, float | None], None]) -> CountingSession:
        session = CountingSession(members, on_step)
        self.begun[members[0][0]] = session
        return session

    def start(self, members: Sequence[str]) -> list[Member]:
        for name in members:
            self._check(name)
        ours = [name for name in members if name not in self.elsewhere]
        self.handed += ours
        return [(name, self.jobs[name]) for name in ours]

    def reload(self, members: Sequence[str]) -> list[Member]:
        return [(name, self.jobs[name]) for name in members]

    def refused(self, member: str, error: Exception) -> None:
        raise AssertionError(f"{member}: {error}")

    def steps(self, member: str, step: int) -> None:
        if member in self.handed and self.stop_at is not None and step >= self.stop_at:
            self.stop.set()

    def saved(self, snapshots: Sequence[tuple[str, Moments]]) -> None:
        for name, moments in snapshots:
            self._check(name)
            assert moments.step >= self.kept.get(name, 0), "a checkpoint goes on and never back"
            self.kept[name] = moments.step

    def ended(self, endings: Sequence[Ending]) -> None:
        for one in endings:
            self._check(one.name)
            self.found[one.name] = one.outcome

    def left(self) -> set[str]:
        """Those that were handed out and have not ended."""
        return set(self.handed) - self.found.keys()


def trained(train: Train, jobs: Sequence[Counting], *, save_every: float = 1e9, **options: Any) -> Recorder:
    """Train trials with a backend, and return what it told; all that began is closed."""
    seconds = options.pop("seconds", None)
    recorder = Recorder({str(job.number): job for job in jobs}, **options)
    deadline = None if seconds is None else time.monotonic() + seconds
    train(recorder.begin, recorder, list(recorder.jobs), DriverOptions(recorder.stop, save_every, deadline))
    assert all(session.closed for session in recorder.begun.values()), "a session is closed"
    return recorder


def numbered(count: int, **options: Any) -> list[Counting]:
    return [Counting(number, **options) for number in range(1, count + 1)]


def check_ends(train: Train) -> None:
    """Every trial ends exactly once, with the record of its own session; stopped by nobody, none is kept."""
    found = trained(train, numbered(7)).found
    assert {name: one if isinstance(one, str) else one.heads for name, one in found.items()} == {
        str(number): number for number in range(1, 8)
    }


def check_failures(train: Train) -> None:
    """A trial that cannot begin or go on is told of with its reason, and ends nothing but itself."""
    jobs = numbered(6)
    jobs[1], jobs[3] = replace(jobs[1], fails_at=0), replace(jobs[3], fails_at=2)
    found = trained(train, jobs).found
    assert {name for name, one in found.items() if isinstance(one, Trial)} == {"1", "3", "5", "6"}
    assert (found["2"], found["4"]) == ("it cannot begin", "RuntimeError: it cannot go on")


def check_elsewhere(train: Train) -> None:
    """What the listener does not hand out, since another process has it, is not trained."""
    found = trained(train, numbered(5), elsewhere=frozenset({"1", "4"}))
    assert found.found.keys() == {"2", "3", "5"}
    assert found.begun.keys() == {"2", "3", "5"}


def check_stop(train: Train) -> None:
    """Told to stop, nothing more begins, nothing fails, and what was in training leaves its checkpoint."""
    for raises in (False, True):
        found = trained(train, numbered(6, steps=ENDLESS, raises=raises), stop_at=4)
        assert found.found == {}
        assert 0 < len(found.handed) < 6
        begun = {name for name, session in found.begun.items() if session.steps}
        assert found.kept.keys() == begun
        assert max(found.kept.values()) >= 4


def check_counts_when_cut(train: Train) -> None:
    """Told to stop, trials that count as they stand have ended, and leave no checkpoint."""
    found = trained(train, numbered(6, steps=ENDLESS, counts_as_it_is=True), stop_at=4)
    assert found.kept == {}
    assert found.left() <= {name for name in found.handed if name not in found.begun or not found.begun[name].steps}
    assert any(isinstance(one, Trial) and one.steps >= 4 for one in found.found.values())


def check_deadline(train: Train) -> None:
    """At the deadline all stops, as if told."""
    before = time.monotonic()
    found = trained(train, numbered(6, steps=ENDLESS), seconds=0.3)
    assert time.monotonic() - before < 20
    assert found.found == {}
    assert found.kept
    assert found.stop.is_set()
    late = trained(train, numbered(3), seconds=-1.0)
    assert late.begun == {}, "nothing begins after the deadline"


def check_checkpoints(train: Train) -> None:
    """Every so many seconds a trial is saved while it goes on."""
    found = trained(train, numbered(3, steps=40), save_every=0.0)
    assert found.kept.keys() == found.found.keys() == {"1", "2", "3"}
    assert all(0 < step < 40 for step in found.kept.values())


def check_resumes(train: Train) -> None:
    """A trial goes on from the checkpoint that it is handed out with."""
    jobs = [replace(job, steps=9, moments=Moments(*np.zeros((3, 1)), 6)) for job in numbered(3)]
    found = trained(train, jobs)
    assert [session.launched for session in found.begun.values()] == [3, 3, 3]


class BackendSuite:
    """The tests; `train` is the backend's own."""

    def train(self, begin: Begin, listener: Recorder, names: Sequence[str], terms: DriverOptions) -> None:
        """Train trials in sessions of one until the terms end."""
        raise NotImplementedError

    def test_every_trial_ends_once(self) -> None:
        check_ends(self.train)

    def test_a_failure_ends_nothing_else(self) -> None:
        check_failures(self.train)

    def test_trials_claimed_by_another_process_are_left_to_it(self) -> None:
        check_elsewhere(self.train)

    def test_a_stop_request_ends_the_sweep(self) -> None:
        check_stop(self.train)

    def test_a_stop_request_where_unfinished_trials_count(self) -> None:
        check_counts_when_cut(self.train)

    def test_the_deadline(self) -> None:
        check_deadline(self.train)

    def test_checkpoints(self) -> None:
        check_checkpoints(self.train)

    def test_resumed(self) -> None:
        check_resumes(self.train)
