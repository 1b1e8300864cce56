"""The advisor's stacks of a GPU, here on a CPU: the same trials as on cores, kernels or not."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

import pytest
import torch
from advisor_cases import arrays

from headcount.advisor import engine as advisor_engine
from headcount.advisor.data import material
from headcount.advisor.engine import TrialEngine
from headcount.advisor.measures import Measurer
from headcount.advisor.sessions import BestStack
from headcount.advisor.split import FEW
from headcount.advisor.trials import Outcome, Wanted
from headcount.core.concurrent import run_concurrently
from headcount.core.errors import HeadcountError
from headcount.kernels import dispatch, explain, pool_tokens, whole_step, without_kernels
from headcount.kernels.step import plain as step_plain
from headcount.sweeps.engine import Engine as Driver
from headcount.sweeps.engine import Member
from headcount.sweeps.spec import ModelOptions
from headcount.training.spec import TrainSpec
from headcount.training.stacked import StackTrainer

RECIPE = TrainSpec(steps=40, batch=32, warmup=4, evaluations=4, train_size=160, validation_size=40)


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> tuple[TrialEngine, TrialEngine]:
    """The same data on cores, and in stacks; so many sequences that a part is held back, unless the test says else."""
    stuff = material(*arrays(samples=getattr(request, "param", FEW), length=6), kind="regression", seed=0)
    cores, stacks = TrialEngine(stuff), TrialEngine(stuff)
    monkeypatch.setattr(TrialEngine, "gpu", property(lambda self: self is stacks))
    return cores, stacks


def wanted(options: dict[str, object], heads: tuple[int, ...] = (1, 2, 3)) -> list[Wanted]:
    return [Wanted(h, s, ModelOptions(head_dim=2, hidden=8, **options), RECIPE) for h in heads for s in (0, 1)]


def by_place(found):
    return {(one.heads, one.wanted.seed, str(one.wanted.options)): one for one in found}


@pytest.mark.parametrize("engines", [200, FEW], indirect=True, ids=["in folds", "held back"])
def test_what_is_tried_out_in_stacks_is_what_cores_train(engines: tuple[TrialEngine, TrialEngine]) -> None:
    cores, stacks = engines
    asked = [
        *wanted({"positions": "none"}),
        *wanted({"positions": "concatenated"}),
        *wanted({"positions": "gates"}),
        *wanted({"total_head_dim": 4}),
        *wanted({"parameters": 400}),
    ]
    one, other = by_place(cores.try_out(asked)), by_place(stacks.try_out(asked))
    assert len(one) == len(asked)
    assert list(one) == list(by_place(cores.try_out(asked)))  # in the order in which they were asked for
    assert one.keys() == other.keys()
    for place, alone in one.items():
        mine = other[place]
        assert mine.validation == pytest.approx(alone.validation, rel=2e-3), place
        assert mine.squares == pytest.approx(alone.squares, rel=0.1, abs=2e-3), place
        assert (mine.parameters, mine.steps, mine.whole) == (alone.parameters, 40, True)
        assert (mine.train, mine.fitted) == pytest.approx((alone.train, alone.fitted), rel=2e-3), place
        assert [step for step, _ in mine.curve] == [step for step, _ in alone.curve] == [10, 20, 30, 40]
        assert [error for _, error in mine.curve] == pytest.approx([error for _, error in alone.curve], rel=2e-3)
    apart = cores.folds == 1 or [a for a in one.values() if abs(a.train / a.fitted - 1) > 0.01]
    assert apart, "the best point is the last of all trials: what is measured where cannot be told"


def test_what_diverges_is_cut_off_in_stacks_as_on_cores(engines: tuple[TrialEngine, TrialEngine]) -> None:
    """At a large rate some diverge after an evaluation, and count up to there; some before any, and are failures.

    Which ones is a matter of the last bits, so that the two are not compared trial by trial.
    """
    change = {"learning_rate": 0.6, "warmup": 10, "diverged_above": 1.5, "evaluations": 8, "steps": 80}
    wild = RECIPE.model_copy(update=change)
    asked = [Wanted(h, s, ModelOptions(head_dim=2, hidden=8), wild) for h in (1, 2) for s in range(8)]
    for engine in engines:
        found = engine.train(asked)
        cut = [one for one in found if not one.whole]
        assert cut
        assert len(engine.failures) == len(asked) - len(found) > 0
        assert all("beyond all bounds" in line for line in engine.failures)
        for one in found:
            assert one.whole == (one.steps == 80)
            assert len(one.curve) == (8 if one.whole else (one.steps - 1) // 10)  # the last evaluation does not count
            assert one.validation == pytest.approx(min(error for _, error in one.curve), rel=1e-3)
            assert max(error for _, error in one.curve) <= 1.5


@pytest.mark.parametrize("room", [True, False])
def test_small_stacks_go_side_by_side(
    engines: tuple[TrialEngine, TrialEngine], monkeypatch: pytest.MonkeyPatch, room: bool
):
    """One for each curve; where they are large, one after the other. Every trial is told of."""
    _, stacks = engines
    ways, heard = list[int](), list[float]()
    begin = Driver._begin

    def noted(self: Driver, members: list[Member]) -> None:
        begin(self, members)
        ways.append(len(self.running))

    monkeypatch.setattr(Driver, "_begin", noted)
    asked = [
        replace(w, tag=tag)
        for tag, w in zip(["width", "parameters"] * 3, wanted({"positions": "none"}, (1, 2, 3)), strict=True)
    ]
    needed = sum(3 * RECIPE.batch * 6 * (8 + 3) for _ in range(2))
    monkeypatch.setattr(advisor_engine, "PLAIN_STEP", needed - (not room))
    stacks.told = heard.append
    found = stacks.try_out(asked)
    assert ways == ([1, 2] if room else [1, 1])
    assert len(found) == len(heard) == 6


def test_one_stack_has_one_recipe(engines: tuple[TrialEngine, TrialEngine]) -> None:
    _, stacks = engines
    with pytest.raises(HeadcountError, match="one recipe"):
        stacks.train([*wanted({"positions": "none"}), *wanted({"positions": "gates"})])


def test_a_step_is_timed_where_the_models_train(engines: tuple[TrialEngine, TrialEngine]) -> None:
    for engine in engines:
        assert 0 < engine.step_seconds(ModelOptions(head_dim=2, hidden=8), 2, RECIPE, steps=2) < 60


def test_after_the_deadline_nothing_is_tried_out(engines: tuple[TrialEngine, TrialEngine]) -> None:
    for engine in engines:
        engine.deadline = 0.0
        assert engine.try_out(wanted({})) == []


def test_without_kernels_nothing_is_compiled(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Where kernels are not wanted nothing is said of it; elsewhere one line says why there are none."""
    dispatch._say_once.cache_clear()  # a test: what was said before is said again
    theta = torch.zeros(1, 4)
    with caplog.at_level("INFO", logger=dispatch.__name__):
        with without_kernels():
            assert explain("whole_step", theta, (1,) * 8)[0].why_not == dispatch.UNWANTED
            assert whole_step(theta, (1, 1, 1, 1, 1, 1, 1, 1)) is step_plain.loss_and_gradient
            x, index = torch.randn(3, 4, 2), torch.zeros(1, 2, dtype=torch.int64)
            pool_tokens(x, index, torch.randn(1, 2, 5), torch.zeros(1, 1, 5), torch.randn(1, 2, 5))
        assert caplog.records == []
        assert explain("whole_step", theta, (1,) * 8)[0].why_not != dispatch.UNWANTED
        assert whole_step(theta, (1, 1, 1, 1, 1, 1, 1, 1)) is None
    assert [record.getMessage() for record in caplog.records] == [
        "the step goes through autograd: the tensors are on the cpu"
    ]


def test_a_stack_is_plain_until_kernels_pay(
    engines: tuple[TrialEngine, TrialEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By size alone: so many numbers a step, or a run; and what is compiled stays in use."""
    _, stacks = engines
    ways: list[bool] = []
    monkeypatch.setattr(TrialEngine, "_stacked", lambda self, order, plain: ways.append(plain) or [])
    few, many = wanted({}, (1, 2)), wanted({}, (1, 2, 3, 4))
    each = len(many) * RECIPE.batch * 6 * (8 + 4)  # models, sequences, tokens, hidden units and heads
    for limit, value in (("PLAIN_STEP", each), ("PLAIN_RUN", each * RECIPE.steps)):
        stacks.compiled = False
        monkeypatch.setattr(advisor_engine, limit, value)
        stacks.train(many)
        monkeypatch.setattr(advisor_engine, limit, value - 1)
        stacks.train(few)
        stacks.train(many)
        stacks.train(few)
        monkeypatch.setattr(advisor_engine, limit, 1e12)
    assert ways == 2 * [True, True, False, False]


@pytest.mark.parametrize("late", [False, True])
def test_a_failure_ends_what_runs_beside_it(
    engines: tuple[TrialEngine, TrialEngine], monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    """The other stack would take minutes; it ends at its next evaluation, whichever of the two is waited for first."""
    _, stacks = engines
    long = RECIPE.model_copy(update={"steps": 20_000, "evaluations": 400})
    slow = [Wanted(1, 0, ModelOptions(head_dim=2, hidden=8), long)]
    trains, right = threading.Event(), StackTrainer.nmse
    monkeypatch.setattr(StackTrainer, "nmse", lambda *a: (trains.set(), right(*a))[1])
    ended: list[Outcome] = []

    def fails() -> None:
        assert trains.wait(60)  # it is under way
        raise HeadcountError("broken")

    calls = [fails, lambda: ended.extend(stacks.try_out(slow))]
    start = time.monotonic()
    with pytest.raises(HeadcountError, match="broken"):
        run_concurrently(calls[::-1] if late else calls, threaded=True, on_failure=stacks.halt.set)
    assert stacks.left() == 0
    assert [one.whole for one in ended] == [False]
    assert time.monotonic() - start < 30


def test_work_side_by_side_keeps_its_order() -> None:
    meet = threading.Barrier(2, timeout=30)  # passed by two at once alone
    calls = [lambda n=n: (meet.wait(), n)[1] for n in (1, 2)]
    assert run_concurrently(calls, threaded=True, on_failure=lambda: None) == [1, 2]
    order: list[int] = []
    assert (
        run_concurrently([lambda: order.append(1), lambda: order.append(2)], threaded=False, on_failure=lambda: None)
        == [None] * 2
    )
    assert order == [1, 2]


def test_a_stack_that_does_not_fit_is_halved(
    engines: tuple[TrialEngine, TrialEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The allocator is made up; how the trials come out is not."""
    _, stacks = engines
    asked, right, sizes = wanted({}), BestStack.__init__, list[int]()
    whole = by_place(stacks.try_out(asked))

    def full(self: BestStack, data: Measurer, members: list[Member], device: torch.device, **options: Any) -> None:
        sizes.append(len(members))
        if len(members) > most:
            kinds = torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("CUBLAS_STATUS_ALLOC_FAILED")
            raise kinds[len(sizes) % 2]
        right(self, data, members, device, **options)

    most = 2
    monkeypatch.setattr(BestStack, "__init__", full)
    halves = by_place(stacks.try_out(asked))
    assert sizes == [6, 3, 1, 2, 3, 1, 2]
    assert halves.keys() == whole.keys()
    for place, one in halves.items():
        assert one.validation == pytest.approx(whole[place].validation, rel=1e-3)
    most = 0
    assert stacks.try_out(asked[:2]) == []
    assert stacks.failures == ["1 head: one model does not fit into the device's memory"] * 2
    monkeypatch.setattr(BestStack, "__init__", lambda *_, **__: 1 / torch.zeros(2, 3) @ torch.zeros(2))
    assert stacks.try_out(asked[:2]) == []
    assert all("RuntimeError: size mismatch" in line for line in stacks.failures[2:])  # another error is not hidden
    assert len(stacks.failures) == 4
