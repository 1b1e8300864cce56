"""The engine on a real GPU: what the CPU can only imitate. Skipped where there is none."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import headcount as hc
from headcount.kernels.dispatch import has_triton
from headcount.store.schema import DATABASE
from headcount.store.store import Store
from headcount.sweeps import engine as stacks
from headcount.sweeps import precompile
from headcount.sweeps.plan import plan
from headcount.sweeps.run import train_jobs
from headcount.training.data import prepare
from headcount.training.job import Job
from headcount.training.loop import train
from headcount.training.stacked import StackTrainer

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")

RECIPE = {"steps": 120, "warmup": 20, "batch": 64, "train_size": 500, "validation_size": 300, "evaluations": 4}
DATA: dict = {}


def job(heads: int, seed: int, length: int = 8, model: dict | None = None, **change) -> Job:
    task = hc.make_task("sum-of-maxima", intrinsic=2, dim=2, length=length)
    recipe = hc.TrainSpec(**{**RECIPE, **change})
    spec = hc.ModelSpec(dim=2, length=length, heads=heads, **{"head_dim": 4, "hidden": 16, **(model or {})})
    return Job(task, spec, recipe, seed, DATA.setdefault((length, repr(recipe)), prepare(task, recipe)))


def alone(one: Job):
    return train(one.task, one.model, one.train, seed=one.seed, data=one.data).trial


@pytest.mark.parametrize(
    "model",
    [{}, {"positions": "gates", "beta": "learned"}, {"positions": "concatenated"}, {"depth": 2, "layer_norm": True}],
)
@pytest.mark.parametrize("fresh", [False, True])
def test_float64_on_the_gpu_is_the_plain_loop(model: dict, fresh: bool) -> None:
    jobs = [
        job(h, s, T, model, dtype="float64", fresh=fresh, steps=40) for T in (5, 8) for h in (1, 3) for s in range(2)
    ]
    for one, found in zip(jobs, train_jobs(jobs, quiet=True, device="cuda"), strict=True):
        assert found.nmse == pytest.approx(alone(one).nmse, rel=1e-7)


def test_float32_trains_as_well_and_repeats_bit_for_bit() -> None:
    jobs = [job(h, s, T) for T in (5, 8, 33) for h in (1, 2, 3) for s in range(3)]
    first, again = (train_jobs(jobs, quiet=True, device="cuda") for _ in range(2))
    assert [t.curve for t in first] == [t.curve for t in again]
    for one, found in zip(jobs, first, strict=True):
        assert found.nmse == pytest.approx(alone(one).nmse, rel=0.02)  # rounding grows over the steps


def test_the_captured_step_is_the_eager_one() -> None:
    one = job(3, 0)
    part = [t.cuda() for t in (one.data.train.X, one.data.train.y)]
    specs = [one.model, replace_heads(one.model, 1)]
    captured, eager = (StackTrainer(specs, [one.train] * 2, [0, 1], *part, graph=g) for g in (None, False))
    torch.testing.assert_close(captured.run(50), eager.run(50), rtol=0, atol=0)
    assert torch.equal(captured.theta, eager.theta)


def replace_heads(spec: hc.ModelSpec, heads: int) -> hc.ModelSpec:
    return spec.model_copy(update={"heads": heads})


def test_a_step_in_a_stack_is_the_step_alone_within_rounding() -> None:
    jobs = [job(3, s) for s in range(64)]
    part = [t.cuda() for t in (jobs[0].data.train.X, jobs[0].data.train.y)]
    whole = StackTrainer([j.model for j in jobs], [j.train for j in jobs], [j.seed for j in jobs], *part)
    single = StackTrainer(jobs[7].model, [jobs[7].train], [7], *part)
    for _ in range(30):
        single.theta[0] = whole.theta[7]
        single.first[0], single.second[0] = whole.first[7], whole.second[7]
        whole.run(1)
        single.run(1)
        scale = float(whole.theta[7].abs().max())
        assert float((whole.theta[7] - single.theta[0]).abs().max()) < 1e-5 * scale


def test_diverged_models_do_not_touch_the_others() -> None:
    bad = [job(2, s, learning_rate=10.0, warmup=0, diverged_above=1.5) for s in range(4)]
    good = [job(2, s, diverged_above=1.5) for s in range(4, 8)]
    found = train_jobs([*bad, *good], quiet=True, device="cuda")
    assert any(t.state == "diverged" for t in found[:4])
    for one, trial in zip(good, found[4:], strict=True):
        assert trial.nmse == pytest.approx(alone(one).nmse, rel=0.02)


def test_polish_on_the_gpu() -> None:
    rough, fine = (job(2, 1, steps=300, polish=p, dtype="float64") for p in (0, 60))
    before, after = train_jobs([rough, fine], quiet=True, device="cuda")
    assert after.train_nmse < 0.7 * before.train_nmse


def test_a_full_memory_halves_the_stack(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real allocator refuses: what was planned for all of the card must run in a small part of it."""
    caplog.set_level(logging.INFO, logger="headcount")
    wide = {"hidden": 64, "depth": 2, "head_dim": 32}
    jobs = [replace(job(4, 0, 32, wide, steps=4, warmup=0, batch=256, evaluations=1), seed=s) for s in range(48)]
    monkeypatch.setattr(stacks, "free_memory", lambda _: None)  # the planner believes in endless memory
    assert [len(part) for part in plan(jobs)] == [48]
    torch.cuda.empty_cache()
    total = torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction(min(1.0, (2.5e9 + torch.cuda.memory_reserved()) / total))
    try:
        found = train_jobs(jobs, quiet=True, device="cuda")
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert [t.state for t in found] == ["done"] * 48
    assert "halved" in caplog.text


def test_kill_and_go_on(tmp_path: Path) -> None:
    """SIGKILL in the middle of `headcount sweep --device cuda`; the same command finishes it."""
    plan_ = {
        "name": "killed",
        "heads": [1, 2, 3],
        "seeds": 4,
        "lengths": [6, 9],
        "model": {"head_dim": 4, "hidden": 16},
        "task": {"family": "sum-of-maxima", "intrinsic": 2},
        "train": {**RECIPE, "steps": 20000, "evaluations": 40},
    }
    (tmp_path / "sweep.json").write_text(json.dumps(plan_))
    code = (
        "import json\nfrom headcount.sweeps import run as runner\nfrom headcount.sweeps.spec import SweepSpec\n"
        "from headcount.store.store import Store\nrunner.CHECKPOINT_SECONDS = 0.1\n"
        "spec = SweepSpec.parse(json.load(open('sweep.json')))\n"
        "print(runner.run_on_store(spec, Store.open('store'), quiet=True, device='cuda'))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=environment)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:  # until a checkpoint is recorded, then at once
        if (tmp_path / "store" / DATABASE).exists():
            with Store.open(tmp_path / "store") as store:  # a file may be there before its record is
                if any(t.checkpoint_step for t in store.trials()):
                    break
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with Store.open(tmp_path / "store") as store:
        assert store.counts("killed")["done"] < 24
        saved = [t.checkpoint_step for t in store.trials() if t.checkpoint_step]
        assert saved
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "'done': 24" in done.stdout, done.stderr[-2000:]
    with Store.open(tmp_path / "store") as store:
        for trial in store.trials():
            assert trial.provenance["machine"]["device"] == torch.cuda.get_device_name()
            assert [step for step, _ in store.curve(trial.hash)] == list(range(500, 20001, 500))


def test_tf32_of_the_user_does_not_reach_us() -> None:
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        (found,) = train_jobs([job(3, 0)], quiet=True, device="cuda")
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False
    (wanted,) = train_jobs([job(3, 0)], quiet=True, device="cuda")
    assert found.curve == wanted.curve


@pytest.mark.parametrize("positions", ["none", "concatenated", "gates"])
def test_a_stack_without_kernels_is_the_same_stack(positions: str) -> None:
    jobs = [job(h, s, 8, {"positions": positions}) for h in (1, 3) for s in range(2)]
    part = jobs[0].data.train
    X, y = part.X.cuda(), part.y.cuda()
    specs, trains, seeds = [j.model for j in jobs], [j.train for j in jobs], [j.seed for j in jobs]
    stacks = [StackTrainer(specs, trains, seeds, X, y, plain=plain) for plain in (False, True)]
    losses = [stack.run(20) for stack in stacks]
    assert torch.allclose(*losses, rtol=1e-4)
    assert torch.allclose(stacks[0].nmse(X, y), stacks[1].nmse(X, y), rtol=1e-3)


def test_stacks_of_several_threads_are_captured_one_after_the_other() -> None:
    """A capture forbids what the beginning of another does: without a lock some of these fail."""
    part = job(1, 0).data.train
    X, y = part.X.cuda(), part.y.cuda()

    def trained(heads: int) -> torch.Tensor:
        jobs = [job(heads, seed) for seed in range(3)]
        stack = StackTrainer([j.model for j in jobs], [j.train for j in jobs], range(3), X, y, plain=True)
        losses = stack.run(40)
        return torch.cat([losses, stack.nmse(X, y)[None]])

    counts = [1, 2, 3, 4, 5, 6] * 4
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(trained, counts))
    for heads, one in zip(counts, found, strict=True):
        torch.testing.assert_close(one, trained(heads), rtol=1e-5, atol=1e-7)


@pytest.mark.skipif(not has_triton(), reason="without Triton nothing can be compiled")
def test_nothing_is_compiled_for_a_plain_stack(tmp_path: Path) -> None:
    """In a process of its own, with an empty cache: training and evaluation leave it empty, and Triton unused."""
    code = (
        "import sys, torch, headcount as hc\nfrom headcount.training.stacked import StackTrainer\n"
        "spec, recipe = hc.ModelSpec(dim=2, length=8, heads=2), hc.TrainSpec(steps=300, batch=64)\n"
        "X, y = torch.randn(200, 8, 2, device='cuda'), torch.randn(200, 1, device='cuda')\n"
        "stack = StackTrainer([spec], [recipe], [0], X, y, plain=True)\nstack.run(20)\nstack.nmse(X, y)\n"
        "print('headcount.kernels.adam.triton' in sys.modules)\n"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "TRITON_CACHE_DIR": str(tmp_path / "cache"),
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.strip() == "False", done.stderr[-2000:]
    assert not (tmp_path / "cache").exists()


def test_advice_on_a_gpu_has_all_its_parts() -> None:
    task = hc.make_task("sum-of-maxima", intrinsic=2, dim=2, length=8, limit=2.5)
    advice = hc.advise(task, device="cuda", budget=60, witness=4.0, quiet=True)
    found = advice.record
    assert found.recommended_heads == 2
    assert advice.looked is not None
    assert advice.looked.tag == "proved"
    assert {curve.kind for curve in found.curves} == {"width", "parameters"}
    assert all(point.step_seconds for point in found.curve)
    assert {point.length for point in found.shorter} == {4, 8}
    assert "GPU" in found.steps_on


def test_a_second_sweep_compiles_nothing_ahead(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The first one starts a process for the stack that waits; the second one finds its note."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(precompile, "cores", lambda: 4)
    started: list[int] = []
    begin = precompile.AheadCompiler._start

    def counted(self: precompile.AheadCompiler) -> None:
        begin(self)
        started.append(len(self._running))

    monkeypatch.setattr(precompile.AheadCompiler, "_start", counted)
    for expected in (1, 0):
        started.clear()
        train_jobs([job(1, 0, length) for length in (6, 7)], quiet=True, device="cuda")
        assert max(started) == expected
        assert len(list((tmp_path / "headcount-shapes").iterdir())) == 1
