"""What every session must do, whatever it trains: a class of tests for which a new kind supplies two methods.

Derive from `SessionSuite`, name the class `Test…`, and say how members are made and how a session begins with them.
What a kind cannot do it states in `RESUMES`, `COUNTS_WHEN_CUT` and `TOLERANCE`; everything else is the same for all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from headcount.store import Trial
from headcount.training.checkpoint import Moments
from headcount.training.session import Ending, Session, Stopped

Members = list[tuple[str, Any]]
Begin = Callable[[Members], Session[Any]]
MAX_WINDOWS = 500


def run(session: Session[Any], windows: int = MAX_WINDOWS, window: int | None = None) -> dict[str, Ending]:
    """Drive a session as the runner does, for at most this many windows; return how its trials ended."""
    ended: dict[str, Ending] = {}
    stop = threading.Event()
    for _ in range(windows):
        if not session.unfinished:
            break
        if window is not None:
            session.window = window
        before = session.steps
        session.launch(stop)
        while not session.ready():
            pass
        found = session.collect()
        assert session.steps >= before, "steps are never taken back"
        for one in found:
            assert one.name not in ended, "a trial ends once"
            assert one.name not in [name for name, _ in session.unfinished_members()], "what has ended is not left"
            ended[one.name] = one
    return ended


def check_ends(members: Members, begin: Begin) -> None:
    """Check that every trial ends exactly once, with its record, and that no trial remains."""
    session = begin(members)
    assert [name for name, _ in session.unfinished_members()] == [name for name, _ in members]
    ended = run(session)
    session.close()
    assert sorted(ended) == sorted(name for name, _ in members)
    assert session.unfinished_members() == []
    for one in ended.values():
        assert isinstance(one.outcome, Trial)
        assert one.outcome.state == "done"
        assert one.outcome.seconds > 0
        steps = [step for step, _ in one.outcome.curve]
        assert steps == sorted(set(steps)), "a curve goes on and never back"
        assert not steps or steps[-1] <= one.outcome.steps


def check_windows(members: Members, begin: Begin) -> None:
    """Check that trials end with the same bits for any length of the windows."""
    one, other = (run(begin(members), window=window) for window in (3, 1000))
    for name, ending in one.items():
        assert_same(ending, other[name])


def check_resumes(members: Members, begin: Begin) -> None:
    """Check that a trial resumed from its checkpoint ends with the same bits as an uninterrupted one."""
    whole, first = run(begin(members)), begin(members)
    run(first, windows=2, window=3)
    assert first.unfinished, "too short to be interrupted: give the trials more steps"
    assert first.steps > 0
    saved = dict(first.snapshots())
    assert sorted(saved) == sorted(name for name, _ in first.unfinished_members())
    rest = [(name, replace(job, moments=read_back(saved[name]))) for name, job in members]
    assert [name for name, _ in first.resumable_members()] == [name for name, _ in rest]
    first.close()
    again = begin(rest)
    assert again.steps == next(iter(saved.values())).step
    for name, ending in run(again).items():
        assert_same(ending, whole[name])


def read_back(moments: Moments) -> Moments:
    """Return a checkpoint as a store would return it."""
    arrays = {name: np.array(values) for name, values in moments.arrays().items()}
    return Moments.of(moments.step, arrays, list(moments.curve))


def check_snapshots(members: Members, begin: Begin) -> None:
    """Check that snapshots do not change when training continues."""
    session = begin(members)
    run(session, windows=2, window=3)
    saved = dict(session.snapshots())
    kept = {name: one.copy() for name, one in saved.items()}
    run(session, windows=2, window=3)
    session.close()
    for name, one in saved.items():
        assert np.array_equal(one.theta, kept[name].theta)
        assert np.array_equal(one.first, kept[name].first)
        assert one.curve == kept[name].curve
        assert one.step == kept[name].step


def check_company(members: Members, begin: Begin, tolerance: float) -> None:
    """Check that a trial ends the same alone and together with others."""
    together = run(begin(members))
    for member in members:
        ((name, alone),) = run(begin([member])).items()
        assert isinstance(alone.outcome, Trial)
        assert isinstance(together[name].outcome, Trial)
        assert together[name].outcome.nmse == pytest.approx(alone.outcome.nmse, rel=tolerance, abs=0)
        assert together[name].outcome.steps == alone.outcome.steps


def check_stop(members: Members, begin: Begin, counts: bool) -> None:
    """Check that a session stopped between two windows gives checkpoints, or results if unfinished trials count."""
    session = begin(members)
    run(session, windows=2, window=3)
    stop = threading.Event()
    stop.set()
    try:
        session.launch(stop)
        assert not session.collect()
    except Stopped:
        pass
    left = [name for name, _ in session.unfinished_members()]
    cut = session.cut_short()
    if counts:
        assert [one.name for one in cut] == left
        assert session.unfinished_members() == []
        assert all(isinstance(one.outcome, Trial) for one in cut)
    else:
        assert cut == []
        assert [name for name, _ in session.snapshots()] == left
    session.close()


def assert_same(one: Ending, other: Ending) -> None:
    """Compare two endings of one trial in everything but the time."""
    assert isinstance(one.outcome, Trial)
    assert isinstance(other.outcome, Trial)
    assert one.outcome.model_copy(update={"seconds": 0}) == other.outcome.model_copy(update={"seconds": 0})
    assert (one.moments is None) == (other.moments is None)
    if one.moments is not None and other.moments is not None:
        assert np.array_equal(one.moments.theta, other.moments.theta)
        assert one.moments.step == other.moments.step


class SessionSuite:
    """The tests; each kind of session implements `members` and `begin`."""

    RESUMES = True
    """Whether the session has checkpoints."""
    COUNTS_WHEN_CUT = False
    """Whether a trial that is stopped early counts as a result instead of being resumed later."""
    TOLERANCE = 0.0
    """Relative difference allowed between a trial alone and together with others."""

    def members(self) -> Members:
        """Return trials that can train together from the beginning; none of them diverges."""
        raise NotImplementedError

    def begin(self, members: Members) -> Session[Any]:
        """Begin a session with trials."""
        raise NotImplementedError

    def test_every_trial_ends_once(self) -> None:
        check_ends(self.members(), self.begin)

    def test_windows_do_not_matter(self) -> None:
        check_windows(self.members(), self.begin)

    def test_resumed_equals_undisturbed(self) -> None:
        if self.RESUMES:
            check_resumes(self.members(), self.begin)

    def test_snapshots_are_copies(self) -> None:
        if self.RESUMES:
            check_snapshots(self.members(), self.begin)

    def test_company_does_not_matter(self) -> None:
        check_company(self.members(), self.begin, self.TOLERANCE)

    def test_stopped_between_two_windows(self) -> None:
        if self.RESUMES or self.COUNTS_WHEN_CUT:
            check_stop(self.members(), self.begin, self.COUNTS_WHEN_CUT)


def named(jobs: Sequence[Any]) -> Members:
    """Return jobs by name."""
    return [(f"trial {number}", job) for number, job in enumerate(jobs)]
