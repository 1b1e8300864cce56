"""Stacks of encoders on one device: what waits for nothing, who waits for room, what memory is given back."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from encoder_cases import TinyFeed, tiny_spec, tiny_train

from headcount.store.records import Trial
from headcount.sweeps import engine as engines
from headcount.sweeps import experiments
from headcount.sweeps.engine import Engine, Failure, Member
from headcount.sweeps.experiments import ENCODER_STACKS, Encoders
from headcount.training import session
from headcount.training.checkpoint import Moments
from headcount.training.encoder.session import EncoderJob, EncoderSession, RealTrialSpec
from headcount.training.encoder.stacked import EncoderTrainer, stack_bytes
from headcount.training.session import Ending

CPU = torch.device("cpu")


def no_room() -> torch.OutOfMemoryError:
    """A new one each time: an error that is kept keeps the frames it came through."""
    return torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")


class Told:
    """A listener without a store; trials begin anew whenever they are loaded."""

    def __init__(self, heads: Sequence[int], seeds: int = 2, **train: Any) -> None:
        feed = TinyFeed("class")
        settings = tiny_train(**{"steps": 6, "warmup": 2, "evaluations": 2, **train})
        self.jobs = {
            f"{h}-{s}": EncoderJob(RealTrialSpec(real={}, model=tiny_spec(feed, heads=h), train=settings, seed=s), feed)
            for h in heads
            for s in range(seeds)
        }
        self.stacks = [[f"{h}-{s}" for s in range(seeds)] for h in heads]
        self.endings: dict[str, Trial | str] = {}
        self.reloaded: list[list[str]] = []

    def start(self, members: Sequence[str]) -> list[Member]:
        return [(name, self.jobs[name]) for name in members]

    def reload(self, members: Sequence[str]) -> list[Member]:
        self.reloaded.append(list(members))
        return self.start(members)

    def refused(self, member: str, error: Exception) -> None:
        raise AssertionError(f"{member}: {error}")

    def steps(self, member: str, step: int) -> None:
        pass

    def saved(self, snapshots: Sequence[tuple[str, Moments]]) -> None:
        pass

    def ended(self, endings: Sequence[Ending]) -> None:
        self.endings |= {one.name: one.outcome for one in endings}


class Watched(Engine):
    """Stacks on a CPU that run side by side as on a GPU; notes how many do."""

    def __init__(self, told: Told, most: int = 3) -> None:
        super().__init__(replace(ENCODER_STACKS, max_sessions=most), CPU, told)
        self.beside: list[int] = []

    def _poll(self) -> None:
        self.beside.append(len(self.running))
        super()._poll()


def test_a_launch_reads_nothing_from_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    def reads(*_: Any, **__: Any) -> None:
        raise AssertionError("something waits for the device")

    readers = ("tolist", "item", "cpu", "numpy", "__float__", "__int__", "__bool__", "__index__")

    def launched(stack: EncoderSession) -> list[Ending]:
        stack.window = 3
        with monkeypatch.context() as patch:
            for name in readers:
                patch.setattr(torch.Tensor, name, reads)
            stack.launch(
                threading.Event()
            )  # three steps and an evaluation; the second time that of the training part too
        return stack.collect()

    told = Told([2])
    stack = EncoderSession(told.start(told.stacks[0]), CPU)
    assert launched(stack) == []
    ended = {one.name: one for one in launched(stack)}
    alone = EncoderTrainer(stack.trainer.spec, stack.train, [0, 1], stack.feed, CPU)
    alone.run(6)
    for part, before in (("validation", ""), ("train", "train_")):
        true = alone.evaluate(part)
        for m, name in enumerate(told.stacks[0]):
            found = ended[name]
            assert getattr(found.outcome, f"{before}accuracy") == pytest.approx(float(true["accuracy"][m]))
            assert getattr(found.outcome, f"{before}mrr") == pytest.approx(float(true["mrr"][m]))
            assert found.measured[f"{before}loss"] == pytest.approx(float(true["loss"][m]))
    monkeypatch.setattr(
        EncoderTrainer,
        "measure",
        lambda self, *rest, **named: torch.stack(list(self.evaluate(*rest, **named).values())),
    )
    monkeypatch.setattr(EncoderTrainer, "evaluate", lambda self, *_, **__: {"a": self.theta.sum().cpu()})
    with pytest.raises(AssertionError, match="waits for the device"):
        launched(EncoderSession(told.start(told.stacks[0]), CPU))


def test_one_more_stack_may_run_when_one_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that was short once is not short for ever."""
    make, failures = EncoderSession.__init__, [no_room()]

    def once(self: EncoderSession, members: Sequence[Member], device: torch.device) -> None:
        if members[0][0] == "2-0" and failures:
            raise failures.pop()
        make(self, members, device)

    monkeypatch.setattr(EncoderSession, "__init__", once)
    monkeypatch.setattr(session, "WINDOW_SECONDS", 1e-9)

    def run(engine: Watched, told: Told) -> tuple[int, int]:
        """The most stacks side by side before the first ending, and after it."""
        first: list[int] = []
        tell = told.ended

        def ended(endings: Sequence[Ending]) -> None:
            first.append(len(engine.beside))
            tell(endings)

        told.ended = ended  # type: ignore[method-assign]
        engine.run(told.stacks)
        assert all(isinstance(end, Trial) for end in told.endings.values())
        assert len(told.endings) == 12
        return max(engine.beside[: first[0]]), max(engine.beside[first[0] :])

    told = Told([6, 2, 1, 3, 4, 5])
    engine = Watched(told)
    assert run(engine, told) == (1, 3)
    assert told.reloaded == [["2-0", "2-1"]]

    class Never(Watched):
        """Forgets that there was room for more."""

        def _advance_or_drop(self, index: int) -> None:
            super()._advance_or_drop(index)
            self._max_running = 1

    failures.append(no_room())
    told = Told([6, 2, 1, 3, 4, 5])
    assert run(Never(told), told) == (1, 1)


@pytest.mark.parametrize(("free", "beside"), [(10**12, 3), (None, 3), (0, 1)])
def test_a_stack_waits_for_room_beside_others(free: int | None, beside: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "free_memory", lambda device: free)
    told = Told([3, 2, 1])
    engine = Watched(told)
    engine.run(told.stacks)
    assert max(engine.beside) == beside
    assert sorted(told.endings) == sorted(told.jobs)
    assert all(isinstance(end, Trial) for end in told.endings.values()), "alone, any stack may try"


def test_room_is_counted_by_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three stacks two fit: the third starts when one of them has ended, and not before."""
    told = Told([3, 2, 1])
    job = told.jobs["1-0"]
    need = stack_bytes(job.spec.model, job.spec.train, 2, job.feed, CPU)
    monkeypatch.setattr(engines, "free_memory", lambda device: need if len(engine.running) > 1 else 10**12)
    engine = Watched(told)
    engine.run(told.stacks)
    assert max(engine.beside) == 3
    monkeypatch.setattr(engines, "free_memory", lambda device: need - 1 if len(engine.running) > 1 else 10**12)
    engine = Watched(told)
    engine.run(told.stacks)
    assert max(engine.beside) == 2


def test_the_memory_of_a_stack() -> None:
    """More models, heads and digits take more; the weights of many models count, and so does an evaluation."""
    feed = TinyFeed("class")

    def need(models: int = 2, heads: int = 2, batch: int = 8, precision: str = "float32") -> int:
        return stack_bytes(
            tiny_spec(feed, heads=heads), tiny_train(batch=batch, precision=precision), models, feed, CPU
        )

    assert need(models=4) == 2 * need()
    assert need(heads=4) > 1.9 * need()
    assert 0.5 < need(precision="bf16") / need() < 0.9
    step, evaluation = need(batch=16) - need(), 4 * 4 * 2 * 96 * feed.tokens * 4 * 8
    assert need() > step + evaluation


@pytest.mark.parametrize("at", ["launch", "__init__"])
def test_a_failed_stack_is_gone_before_its_memory_is_given_back(at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one tensor of it may be held by then: emptying the cache would give back nothing."""
    seen: list[weakref.ref[EncoderTrainer]] = []
    alive: list[list[bool]] = []
    make, launch = EncoderTrainer.__init__, EncoderTrainer.launch

    def noted(self: EncoderTrainer, *rest: Any, **named: Any) -> None:
        make(self, *rest, **named)
        seen.append(weakref.ref(self))
        if at == "__init__" and len(seen) == 1:
            raise no_room()

    def full(self: EncoderTrainer, steps: int) -> Any:
        if at == "launch" and len(self.seeds) == 2 and self.steps > 1:
            raise no_room()
        return launch(self, steps)

    monkeypatch.setattr(EncoderTrainer, "__init__", noted)
    monkeypatch.setattr(EncoderTrainer, "launch", full)
    monkeypatch.setattr(Engine, "release_memory", lambda self: alive.append([one() is not None for one in seen]))
    told = Told([2])
    Engine(ENCODER_STACKS, CPU, told).run(told.stacks)
    assert alive[0] == [False]
    assert sorted(told.endings) == ["2-0", "2-1"]
    assert len(seen) == 3, "halved"
    # the twin: somebody holds the stack while its memory is given back
    held: list[Any] = []
    seen.clear(), alive.clear()
    advance = Engine._advance
    monkeypatch.setattr(Engine, "_advance", lambda self, stack: (held.append(stack), advance(self, stack))[1])
    if at == "launch":
        Engine(ENCODER_STACKS, CPU, Told([2])).run(told.stacks)
        assert alive[0] == [True]


def _caught(error: Exception, cause: Exception | None = None) -> Failure:
    try:
        try:
            if cause is not None:
                raise cause
        finally:
            raise error
    except Exception as caught:
        return Failure.of(caught)


@pytest.mark.parametrize(
    ("error", "full", "broken"),
    [
        (no_room(), True, False),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True, False),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), True, False),
        (RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"), True, False),
        (RuntimeError("CUDA error: out of memory\nCompile with TORCH_USE_CUDA_DSA"), True, False),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), False, True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`"), False, True),
        (ValueError("seed 2 is no good"), False, False),
    ],
)
def test_errors_that_count_as_out_of_memory(error: Exception, full: bool, broken: bool) -> None:
    found = _caught(error)
    assert (found.out_of_memory, found.device_broken) == (full, broken)
    assert "\n" not in found.line


def test_a_capture_that_ran_out_of_memory_counts_as_out_of_memory() -> None:
    late = "CUDA error: operation failed due to a previous error during capture"
    assert _caught(RuntimeError(late), no_room()).out_of_memory
    assert not _caught(RuntimeError(late), no_room()).device_broken
    assert _caught(RuntimeError(late)).device_broken


def test_kernels_are_chosen_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    told, order = Told([2, 1], seeds=3), list[Any]()

    def chosen(spec: Any, train: Any, models: int, feed: Any, device: torch.device) -> str:
        order.append(("chosen", spec.heads, models))
        return "efficient" if spec.heads == 2 else "cudnn"

    monkeypatch.setattr(experiments, "choose_attention", chosen)
    of_told = Encoders.__new__(Encoders)
    of_told._trials = {name: job.spec for name, job in told.jobs.items()}
    panel = SimpleNamespace(size=4)
    of_told._panels, of_told._made = dict.fromkeys(told.jobs, panel), {4: told.jobs["1-0"].feed}
    of_told._kernels = {}
    started: list[Any] = []

    def train(_kind: Any, stacks: Any, _ahead: Any = None) -> None:
        started.append((list(order), stacks))

    of_told.on_device(list(told.jobs), train, told, CPU)
    assert started == [([("chosen", 2, 3), ("chosen", 1, 3)], told.stacks)]
    found = of_told._kernels
    assert found == {name: "efficient" if name[0] == "2" else "cudnn" for name in told.jobs}
    used: list[tuple[int, int, str | None]] = []
    make = EncoderTrainer.__init__

    def noted(self: EncoderTrainer, spec: Any, train: Any, seeds: Any, *rest: Any, **named: Any) -> None:
        used.append((spec.heads, len(seeds), named["attention"]))
        if len(used) == 1:
            raise no_room()
        make(self, spec, train, seeds, *rest, **named)

    monkeypatch.setattr(EncoderTrainer, "__init__", noted)
    told.jobs = {n: EncoderJob(job.spec, job.feed, attention=found[n]) for n, job in told.jobs.items()}
    Engine(ENCODER_STACKS, CPU, told).run(told.stacks)
    halved = [(2, 3, "efficient"), (2, 1, "efficient"), (2, 2, "efficient"), (1, 3, "cudnn")]
    assert used == halved, "a halved stack keeps what was chosen for the whole"
