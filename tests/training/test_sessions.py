"""Every kind of session passes the common suite, and sessions that violate the interface do not."""

from __future__ import annotations

import threading
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from session_suite import (
    Members,
    SessionSuite,
    check_company,
    check_ends,
    check_resumes,
    check_snapshots,
    check_stop,
    check_windows,
    named,
)

from headcount.advisor.data import material
from headcount.advisor.measures import Measurer
from headcount.advisor.sessions import BestOnCore, BestStack, SessionTrial
from headcount.advisor.split import MIN_HOLDOUT_SAMPLES
from headcount.advisor.trials import Wanted
from headcount.models.transformer.spec import ModelSpec
from headcount.sweeps.spec import ModelOptions
from headcount.tasks.families import make_task
from headcount.training.checkpoint import Moments
from headcount.training.core_session import CoreSession
from headcount.training.data import prepare
from headcount.training.encoder.session import EncoderJob, EncoderSession, RealTrialSpec
from headcount.training.job import Job
from headcount.training.loop import PlainSession
from headcount.training.session import Session
from headcount.training.spec import TrainSpec
from headcount.training.stack_session import StackSession
from sweeps.encoder_cases import TinyFeed, tiny_spec, tiny_train

CPU = torch.device("cpu")
TASK = make_task("sum-of-maxima", intrinsic=2, dim=2, length=4)
TRAIN = TrainSpec(steps=24, warmup=3, batch=8, train_size=40, validation_size=20, evaluations=4, dtype="float64")


def jobs(change: dict[str, Any] | None = None, model: dict[str, Any] | None = None) -> list[Job]:
    train = TRAIN.model_copy(update=change or {})
    data = prepare(TASK, train)
    return [
        Job(TASK, ModelSpec(dim=2, length=4, heads=heads, head_dim=3, hidden=5, **(model or {})), train, seed, data)
        for heads, seed in ((1, 3), (2, 4))
    ]


class _Alone(SessionSuite):
    """A kind of session with a single trial: each trial gets its own session."""

    change: ClassVar[dict[str, Any]] = {}
    model: ClassVar[dict[str, Any]] = {}

    def members(self) -> Members:
        return named(jobs(self.change, self.model))[:1]


class TestPlainLoop(_Alone):
    def begin(self, members: Members) -> Session[Any]:
        return PlainSession(members)


class TestPlainLoopOnFreshData(TestPlainLoop):
    change: ClassVar = {"fresh": True, "steps": 80}


class TestPlainLoopWithAPolish(TestPlainLoop):
    change: ClassVar = {"polish": 3, "optimiser": "adamw", "weight_decay": 0.1}


class TestOnACore(_Alone):
    def begin(self, members: Members) -> Session[Any]:
        return CoreSession(members)

    def test_windows_do_not_matter(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Vary the windows in tokens, the unit of a core's windows."""
        from session_suite import assert_same, run

        from headcount.training import on_cores

        found: list[Any] = []
        for tokens in (1, 10**9):
            monkeypatch.setattr(on_cores, "WINDOW_TOKENS", tokens)
            found.append(run(self.begin(self.members())))
        for name, ending in found[0].items():
            assert_same(ending, found[1][name])


class TestOnACoreInTorch(TestOnACore):
    model: ClassVar = {"depth": 2}


class TestStack(SessionSuite):
    TOLERANCE = 1e-9

    def members(self) -> Members:
        return named(jobs())

    def begin(self, members: Members) -> Session[Any]:
        return StackSession(members, CPU)


class TestEncoders(SessionSuite):
    TOLERANCE = 1e-5

    def members(self) -> Members:
        feed = TinyFeed("class")
        spec, train = tiny_spec(feed), tiny_train(evaluations=4)
        return named([EncoderJob(RealTrialSpec(real={}, model=spec, train=train, seed=seed), feed) for seed in (1, 2)])

    def begin(self, members: Members) -> Session[Any]:
        return EncoderSession(members, CPU)


class _Best(SessionSuite):
    RESUMES, COUNTS_WHEN_CUT, TOLERANCE = False, True, 1e-4
    samples = MIN_HOLDOUT_SAMPLES

    @pytest.fixture(autouse=True)
    def _data(self) -> None:
        X = TASK.sample(self.samples, 1)
        self.data = Measurer(material(X.numpy(), TASK.value(X).numpy()), CPU)

    def members(self) -> Members:
        train = TRAIN.model_copy(update={"dtype": "float32"})
        wanted = [Wanted(h, s, ModelOptions(head_dim=2, hidden=4), train) for h, s in ((1, 0), (2, 1))]
        return named([SessionTrial(one, self.data.sized(one)) for one in wanted])


class TestAdvisorOnACore(_Best):
    def members(self) -> Members:
        return super().members()[1:]

    def begin(self, members: Members) -> Session[Any]:
        return BestOnCore(self.data, members)


class TestAdvisorInFolds(TestAdvisorOnACore):
    samples = 100


class TestAdvisorStack(_Best):
    def begin(self, members: Members) -> Session[Any]:
        return BestStack(self.data, members, CPU, plain=True)


class TestAdvisorStackInFolds(TestAdvisorStack):
    samples = 100


# -- the suite itself: violations are caught -------------------------------------------------------


class DropsMoments(PlainSession):
    """Resumes without Adam's moments."""

    def _resume(self, moments: Moments) -> None:
        super()._resume(moments)
        self.optimiser.state.clear()


class RepeatsBatches(PlainSession):
    """Resumes with the batches of the first steps."""

    def __init__(self, members: Members) -> None:
        super().__init__(members)
        self.taken = 0

    def _take_step(self, step: int) -> None:
        del step
        super()._take_step(self.taken)
        self.taken += 1


class Aliases(CoreSession):
    """Returns its own arrays instead of copies."""

    def moments(self) -> list[Moments]:
        return [self.trial.moments]


class EndsTwice(StackSession):
    """Reports every ended trial twice."""

    def collect(self) -> list[Any]:
        found = super().collect()
        return [*found, *found]


class KeepsEndedTrials(StackSession):
    """Reports endings but keeps training the trials."""

    def collect(self) -> list[Any]:
        found = super().collect()
        self.unfinished = set(range(len(self.jobs)))
        return found


class MixesWeights(StackSession):
    """Mixes the weights of neighbouring trials."""

    def launch(self, stop: threading.Event) -> None:
        super().launch(stop)
        self.trainer.theta += 1e-6 * self.trainer.theta.mean(0)


class DependsOnWindows(StackSession):
    """Changes the weights once per window."""

    def launch(self, stop: threading.Event) -> None:
        super().launch(stop)
        self.trainer.theta *= 1 + 1e-7


class AlwaysEndsEarly(StackSession):
    """Ends trials that could be resumed."""

    def cut_short(self) -> list[Any]:
        return [self.members[0]]


SABOTAGED = {
    "drops moments": lambda: check_resumes(named(jobs())[:1], DropsMoments),
    "repeats batches": lambda: check_resumes(named(jobs())[:1], RepeatsBatches),
    "aliases": lambda: check_snapshots(named(jobs())[:1], Aliases),
    "ends twice": lambda: check_ends(named(jobs()), lambda members: EndsTwice(members, CPU)),
    "keeps ended trials": lambda: check_ends(named(jobs()), lambda members: KeepsEndedTrials(members, CPU)),
    "mixes weights": lambda: check_company(named(jobs()), lambda members: MixesWeights(members, CPU), 1e-9),
    "depends on windows": lambda: check_windows(named(jobs()), lambda members: DependsOnWindows(members, CPU)),
    "always ends early": lambda: check_stop(named(jobs()), lambda members: AlwaysEndsEarly(members, CPU), counts=False),
}


@pytest.mark.parametrize("name", SABOTAGED)
def test_violations_are_caught(name: str) -> None:
    with pytest.raises(AssertionError):
        SABOTAGED[name]()


def test_all_sessions_agree_on_the_same_trial() -> None:
    """Compare the fast sessions with the plain loop: validation errors and final weights."""
    from session_suite import run

    members = named(jobs())[1:]
    plain = run(PlainSession(members))["trial 1"]
    for fast in (CoreSession(members), StackSession(members, CPU)):
        ending = run(fast)["trial 1"]
        assert plain.moments is not None
        assert ending.moments is not None
        np.testing.assert_allclose(ending.moments.theta, plain.moments.theta, rtol=1e-9, atol=1e-9)
        assert ending.outcome.curve == [(step, pytest.approx(error, rel=1e-9)) for step, error in plain.outcome.curve]
