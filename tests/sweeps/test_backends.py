"""Every backend passes the one suite, a toy one of forty lines too, and backends that break a promise do not."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from backend_suite import (
    BackendSuite,
    Begin,
    Recorder,
    Train,
    check_checkpoints,
    check_counts_when_cut,
    check_deadline,
    check_elsewhere,
    check_ends,
    check_failures,
    check_resumes,
    check_stop,
)

from headcount.sweeps.backends import DriverOptions, train_singly, train_stacks
from headcount.sweeps.engine import Failure, Member, SessionKind
from headcount.training import Ending, Session, Stopped

CPU = torch.device("cpu")


class TestOneCore(BackendSuite):
    workers = 1

    def train(self, begin: Begin, listener: Recorder, names: Sequence[str], terms: DriverOptions) -> None:
        train_singly(begin, listener, names, self.workers, terms)


class TestThreeCores(TestOneCore):
    workers = 3


class TestOneStack(BackendSuite):
    max_sessions = 1

    def train(self, begin: Begin, listener: Recorder, names: Sequence[str], terms: DriverOptions) -> None:
        kind = SessionKind(lambda members, _: begin(members, lambda *_: None), lambda *_: 0, self.max_sessions)
        train_stacks(kind, [[name] for name in names], CPU, listener, terms)


class TestThreeStacks(TestOneStack):
    max_sessions = 3


class Serial:
    """A toy backend: one trial after the other, in the caller's thread."""

    def __init__(self, begin: Begin, listener: Recorder, terms: DriverOptions) -> None:
        self.begin, self.listener, self.terms = begin, listener, terms

    def run(self, names: Sequence[str]) -> None:
        for name in names:
            if self.over():
                break
            for member in self.start(name):
                self.one(member)

    def over(self) -> bool:
        if self.terms.deadline is not None and time.monotonic() > self.terms.deadline:
            self.terms.stop.set()
        return self.terms.stop.is_set()

    def start(self, name: str) -> list[Member]:
        return self.listener.start([name])

    def one(self, member: Member) -> None:
        session: Session[Any] | None = None
        try:
            session = self.begin([member], lambda step, _: self.listener.steps(member[0], step))
            while session.unfinished and not self.over():
                session.launch(self.terms.stop)
                self.tell(session.collect())
                if session.unfinished and time.perf_counter() - session.last_saved > self.terms.save_every:
                    self.listener.saved(session.snapshots())
            if session.unfinished:
                self.leave(session)
        except Stopped:
            assert session is not None
            self.leave(session)
        except Exception as error:
            self.failed(member, error)
        finally:
            self.close(session)

    def tell(self, ended: list[Ending]) -> None:
        self.listener.ended(ended)

    def leave(self, session: Session[Any]) -> None:
        ended = session.cut_short()
        if ended:
            self.tell(ended)
        elif session.steps:
            self.listener.saved(session.snapshots())

    def failed(self, member: Member, error: Exception) -> None:
        self.tell([Ending(member[0], Failure.of(error).line)])

    def close(self, session: Session[Any] | None) -> None:
        if session is not None:
            session.close()


def train_with(kind: type[Serial]) -> Train:
    return lambda begin, listener, names, terms: kind(begin, listener, terms).run(names)


class TestSerial(BackendSuite):
    def train(self, begin: Begin, listener: Recorder, names: Sequence[str], terms: DriverOptions) -> None:
        train_with(Serial)(begin, listener, names, terms)


# -- sabotage -----------------------------------------------------------------------------------------------


class ForgetsOne(Serial):
    def run(self, names: Sequence[str]) -> None:
        super().run(names[:-1])


class TellsTwice(Serial):
    def tell(self, ended: list[Ending]) -> None:
        super().tell(ended)
        super().tell(ended)


class TellsFromElsewhere(Serial):
    def tell(self, ended: list[Ending]) -> None:
        raised: list[BaseException] = []

        def told() -> None:
            try:
                self.listener.ended(ended)
            except AssertionError as error:
                raised.append(error)

        thread = threading.Thread(target=told)
        thread.start()
        thread.join()
        if raised:
            raise raised[0]


class EndsAllAtAFailure(Serial):
    def failed(self, member: Member, error: Exception) -> None:
        super().failed(member, error)
        self.terms.stop.set()


class TakesWhatAnotherHas(Serial):
    def start(self, name: str) -> list[Member]:
        self.listener.start([name])
        return [(name, self.listener.jobs[name])]


class LeavesNothing(Serial):
    def leave(self, session: Session[Any]) -> None:
        """No checkpoint."""


class NeverAsksWhatCounts(Serial):
    def leave(self, session: Session[Any]) -> None:
        self.listener.saved(session.snapshots())


class TakesAStopForAFailure(Serial):
    def leave(self, session: Session[Any]) -> None:
        self.tell([Ending(session.members[0][0], "Stopped: ")])


class GoesOnAfterAStop(Serial):
    def run(self, names: Sequence[str]) -> None:
        for name in names:
            self.over()
            for member in self.start(name):
                self.one(member)


class LeavesTheStopToSessions(Serial):
    def over(self) -> bool:
        return False


class NeverSaves(Serial):
    def __init__(self, begin: Begin, listener: Recorder, terms: DriverOptions) -> None:
        super().__init__(begin, listener, DriverOptions(terms.stop, float("inf"), terms.deadline))


class BeginsAnew(Serial):
    def start(self, name: str) -> list[Member]:
        return [(name, replace(job, moments=None)) for name, job in super().start(name)]


class ClosesNothing(Serial):
    def close(self, session: Session[Any] | None) -> None:
        """What it holds stays held."""


SABOTAGED: list[tuple[type[Serial], Callable[[Train], None]]] = [
    (ForgetsOne, check_ends),
    (TellsTwice, check_ends),
    (TellsFromElsewhere, check_ends),
    (ClosesNothing, check_ends),
    (EndsAllAtAFailure, check_failures),
    (TakesWhatAnotherHas, check_elsewhere),
    (LeavesNothing, check_stop),
    (TakesAStopForAFailure, check_stop),
    (GoesOnAfterAStop, check_stop),
    (LeavesTheStopToSessions, check_stop),
    (LeavesTheStopToSessions, check_deadline),
    (NeverAsksWhatCounts, check_counts_when_cut),
    (GoesOnAfterAStop, check_deadline),
    (NeverSaves, check_checkpoints),
    (BeginsAnew, check_resumes),
]


@pytest.mark.parametrize(("kind", "check"), SABOTAGED)
def test_a_backend_that_breaks_its_contract_is_detected(kind: type[Serial], check: Callable[[Train], None]) -> None:
    check(train_with(Serial))
    with pytest.raises(AssertionError):
        check(train_with(kind))
