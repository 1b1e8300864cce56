"""Kernels compiled ahead: what a process is told, that stacks wait for it, and that its failure costs nothing."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from test_stacks import CPU, Told, alone, job

from headcount.sweeps import precompile as ahead
from headcount.sweeps.engine import Engine
from headcount.sweeps.experiments import STACKS
from headcount.sweeps.precompile import AheadCompiler, Shape, serve
from headcount.training import devices


@pytest.mark.parametrize(
    "jobs",
    [
        [job(1), job(3, 1, model={"hidden": 9})],
        [job(2), job(2, 1, target=1)],
        [job(2, model={"depth": 2}), job(2, 1, model={"depth": 2})],
        [job(2, fresh=True)],
    ],
)
def test_a_process_takes_the_stacks_own_step(jobs: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The calls of a real stack and those of the process have the same shapes: that is what Triton's cache goes by."""
    seen: list[tuple[Any, ...]] = []
    right = ahead.StackTrainer._step

    def step(self: Any) -> None:
        parts = (self.theta, self.X, self.y, self._index, self.betas)
        seen.append(tuple(None if t is None else (tuple(t.shape), t.dtype) for t in parts))
        right(self)

    monkeypatch.setattr(ahead.StackTrainer, "_step", step)
    Told(jobs).run([list(range(len(jobs)))])
    real = set(seen)
    seen.clear()
    serve(json.dumps({"shape": Shape.of(jobs).data(), "device": "cpu"}))
    assert set(seen) == real
    assert len(seen) == 1


def test_rates_and_targets_do_not_change_the_shape() -> None:
    same = [Shape.of([job(2, learning_rate=r)]).hash() for r in (1e-3, 1e-2)]
    assert same[0] == same[1]
    assert Shape.of([job(2)]).hash() != Shape.of([job(2, length=5)]).hash()
    assert Shape.of([job(2)]).hash() != Shape.of([job(2), job(2, 1)]).hash()


class Script(AheadCompiler):
    """Stands for the processes: stack 1 is ready when the trials of stack 0 have ended."""

    def __init__(self, told: Told) -> None:
        self.told, self.closed, self.asked = told, False, 0

    def ready(self, number: int) -> bool:
        self.asked += number == 1
        return number == 0 or 0 in self.told.outcomes

    def close(self) -> None:
        self.closed = True


class Never(Script):
    """Compiles for ever."""

    def ready(self, number: int) -> bool:
        del number
        return False


def test_a_stack_waits_for_its_kernels_while_another_trains() -> None:
    jobs = [job(1, length=4), job(1, length=5)]
    told = Told(jobs)
    script = Script(told)
    Engine(STACKS, CPU, told, stop=told.stop).run([["0"], ["1"]], script)
    assert list(told.outcomes) == [0, 1]
    assert script.asked > 1
    assert script.closed
    assert told.outcomes[1].nmse == pytest.approx(alone(jobs[1]).nmse, rel=1e-9)


def test_a_stop_ends_the_waiting() -> None:
    told = Told([job(1)])
    never = Never(told)
    threading.Timer(0.3, told.stop.set).start()
    Engine(STACKS, CPU, told, stop=told.stop).run([["0"]], never)
    assert told.outcomes == {}
    assert never.closed


def test_a_process_that_fails_leaves_the_work_to_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no GPU here, so the real process fails; the stack is then ready, and compiles for itself."""
    if torch.cuda.is_available():
        pytest.skip("here the process would succeed")
    monkeypatch.setattr(ahead, "cores", lambda: 4)
    found = AheadCompiler([[job(1)], [job(1, length=5)], [job(1)]], torch.device("cuda", 0), 10**12)
    try:
        assert found.ready(0)
        assert found.ready(2)  # of the same shape as stack 0
        assert not found.ready(1)
        (process,) = found._running.values()
        assert process.wait(60) != 0
        assert found.ready(1)
    finally:
        found.close()


def test_nothing_is_compiled_ahead_without_memory_cores_or_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    stacks = [[job(1)], [job(1, length=5)]]
    monkeypatch.setattr(ahead, "cores", lambda: 4)
    assert AheadCompiler(stacks, torch.device("cuda", 0), 2**20).ready(1)
    monkeypatch.setattr(ahead, "cores", lambda: 2)
    assert AheadCompiler(stacks, torch.device("cuda", 0), 10**12).ready(1)
    assert AheadCompiler(stacks, CPU, None).ready(1)
    monkeypatch.setattr(ahead, "cores", lambda: 4)
    monkeypatch.setattr(devices, "has_triton", lambda: False)
    assert AheadCompiler(stacks, torch.device("cuda", 0), 10**12).ready(1)


def test_compiled_kernels_are_not_compiled_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A process leaves a note when it has taken the step; a shape with a note waits for nobody."""
    monkeypatch.setattr(ahead, "cores", lambda: 4)
    monkeypatch.setattr(ahead, "_note", lambda shape, _: tmp_path / "notes" / shape)
    stacks = [[job(1)], [job(1, length=5)], [job(1, length=6)]]
    serve(json.dumps({"shape": Shape.of(stacks[1]).data(), "device": "cpu"}))
    found = AheadCompiler(stacks, torch.device("cuda", 0), 10**12)
    try:
        assert found.ready(1)
        assert not found.ready(2)  # the twin, which nobody has compiled
        assert list(found._running) == [Shape.of(stacks[2]).hash()]
    finally:
        found.close()


def test_a_step_that_fails_leaves_no_note(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ahead, "_note", lambda shape, _: tmp_path / shape)
    monkeypatch.setattr(ahead.StackTrainer, "run", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        serve(json.dumps({"shape": Shape.of([job(1)]).data(), "device": "cpu"}))
    assert list(tmp_path.iterdir()) == []


def test_a_note_is_valid_for_these_kernels_on_this_gpu_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "a GPU")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    device, sources = torch.device("cuda", 0), ahead._kernel_sources()
    assert len(sources) >= 4  # every operation's Triton file
    first = ahead._note("shape", device)
    assert first == ahead._note("shape", device)
    assert first is not None
    assert tmp_path in first.parents
    names = {first, ahead._note("another", device)}
    monkeypatch.setattr(ahead, "_kernel_sources", lambda: [*sources[1:], "edited"])
    names.add(ahead._note("shape", device))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "another GPU")
    names.add(ahead._note("shape", device))
    assert len(names) == 4
    assert ahead._note("shape", CPU) is None
