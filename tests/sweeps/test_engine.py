"""The CPU engine and sweeps on a store: equal to the plain loop, bit for bit whatever runs beside, resumable."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import headcount as hc
from headcount.kernels.dispatch import _log_once
from headcount.store.schema import DATABASE
from headcount.store.store import Store
from headcount.sweeps.results import stored_runs
from headcount.sweeps.run import run_on_store, run_sweep
from headcount.sweeps.spec import SweepSpec
from headcount.training.batches import batch_indices
from headcount.training.checkpoint import Moments
from headcount.training.core_session import train_fast
from headcount.training.data import prepare
from headcount.training.loop import train
from headcount.training.on_cores import CpuTrial
from headcount.training.session import Stopped

SMALL = {"steps": 60, "warmup": 5, "batch": 16, "train_size": 100, "validation_size": 50, "evaluations": 4}
SPEC = {
    "name": "small",
    "heads": [1, 2, 3],
    "seeds": 2,
    "lengths": [4, 6],
    "task": {"family": "quadratic-basins", "intrinsic": 2},
    "model": {"head_dim": 2, "hidden": 8},
    "train": SMALL,
}


@pytest.mark.parametrize("fresh", [False, True])
def test_training_on_cores_equals_the_plain_loop(fresh: bool) -> None:
    task = hc.make_task("quadratic-basins", outer="vector", sets="bands")
    model = hc.ModelSpec(dim=2, length=8, out_dim=3, heads=3, head_dim=2, hidden=10, positions="gates", beta="learned")
    recipe = hc.TrainSpec(**SMALL, dtype="float64", optimiser="adamw", weight_decay=0.01, fresh=fresh)
    fast, plain = train_fast(task, model, recipe, seed=3), train(task, model, recipe, seed=3)
    for (name, a), (_, b) in zip(fast.model.tensors(), plain.model.tensors(), strict=True):
        assert float((a - b).abs().max()) < 1e-11, name
    assert fast.trial.nmse == pytest.approx(plain.trial.nmse, rel=1e-10)
    assert [s for s, _ in fast.trial.curve] == [s for s, _ in plain.trial.curve]


def test_masked_arrays_equal_the_plain_loop() -> None:
    rng = np.random.default_rng(0)
    X, mask = rng.random((60, 5, 2)), rng.random((60, 5)) < 0.7
    mask[:, 0] = True
    task = hc.ArrayTask.from_arrays(X, np.where(mask, X[..., 0], 9).min(1), mask)
    model, recipe = hc.ModelSpec(dim=2, length=5, heads=2, head_dim=2, hidden=6), hc.TrainSpec(**SMALL, dtype="float64")
    fast, plain = train_fast(task, model, recipe), train(task, model, recipe)
    assert fast.trial.nmse == pytest.approx(plain.trial.nmse, rel=1e-10)


@pytest.mark.parametrize("fresh", [False, True])
def test_models_that_do_not_collapse_use_the_general_stack(fresh: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="headcount")
    _log_once.cache_clear()  # each reason is told once a process
    task, model = hc.make_task("mean", length=3), hc.ModelSpec(dim=2, length=3, heads=2, depth=2, hidden=6)
    recipe = hc.TrainSpec(**{**SMALL, "steps": 150}, dtype="float64", fresh=fresh)
    fast, plain = train_fast(task, model, recipe), train(task, model, recipe)
    assert fast.trial.nmse == pytest.approx(plain.trial.nmse, rel=1e-9)
    assert [step for step, _ in fast.trial.curve] == [step for step, _ in plain.trial.curve]
    assert "depth above 1" in caplog.text


def test_batches_are_a_function_of_the_step() -> None:
    whole = batch_indices(5, 0, 300, 7, 50)
    assert np.array_equal(whole[130:201], batch_indices(5, 130, 71, 7, 50))
    assert not np.array_equal(whole, batch_indices(6, 0, 300, 7, 50))
    assert set(np.unique(whole)) == set(range(50))


def test_results_are_bit_identical_whatever_runs_beside() -> None:
    spec = SweepSpec.parse(SPEC)
    alone = [t.model_dump(exclude={"seconds"}) for run in run_sweep(spec, workers=1, quiet=True) for t in run.trials]
    beside = [t.model_dump(exclude={"seconds"}) for run in run_sweep(spec, workers=4, quiet=True) for t in run.trials]
    assert alone == beside
    panel = spec.panels()[1]
    single = train_fast(panel.task, panel.sized(2), panel.train, seed=1).trial
    assert single.model_dump(exclude={"seconds"}) in alone


def take_all(trial: CpuTrial, *options: Any) -> None:
    while trial.run_window(*(options or (None, None))) is None:
        pass


def test_a_resumed_trial_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    """Stop in the middle, save, load, go on: the same bits as in one go."""
    task, model = hc.make_task("min-plus-max"), hc.ModelSpec(dim=1, length=8, heads=2, head_dim=2, hidden=8)
    recipe = hc.TrainSpec(**{**SMALL, "steps": 150, "evaluations": 10})
    data = prepare(task, recipe)
    whole = CpuTrial(task, model, recipe, 0, data)
    take_all(whole)
    part, stop = CpuTrial(task, model, recipe, 0, data), threading.Event()
    with pytest.raises(Stopped):
        take_all(part, lambda step, _: stop.set() if step >= 60 else None, stop)
    assert part.moments.step == 60
    with Store.open(tmp_path) as store:
        (trial,) = store.add_run("r", [{"x": 1}])
        m = part.moments
        store.checkpoint(trial, m.step, {"theta": m.theta, "first": m.first, "second": m.second}, m.curve)
        step, arrays = store.load_checkpoint(trial) or (0, {})
        moments = Moments(arrays["theta"], arrays["first"], arrays["second"], step, store.curve(trial))
    rest = CpuTrial(task, model, recipe, 0, data, moments)
    take_all(rest)
    assert np.array_equal(rest.moments.theta, whole.moments.theta)
    assert rest.moments.curve == whole.moments.curve


def test_a_sweep_is_trained_once_and_shared(tmp_path: Path) -> None:
    spec = SweepSpec.parse(SPEC)
    with Store.open(tmp_path) as store:
        assert run_on_store(spec, store, quiet=True)["done"] == 12
        updated = {t.hash: t.updated for t in store.trials()}
        wider = SweepSpec.parse({**SPEC, "name": "wider", "heads": [1, 2, 3, 4]})
        assert run_on_store(wider, store, quiet=True)["done"] == 16
        assert all(t.updated == updated[t.hash] for t in store.trials() if t.hash in updated)
        stored = stored_runs(store, "small")
    memory = run_sweep(spec, quiet=True)
    for a, b in zip(stored, memory, strict=True):
        assert a.values == b.values
        assert [t.model_dump(exclude={"seconds"}) for t in a.trials] == [
            t.model_dump(exclude={"seconds"}) for t in b.trials
        ]


def test_one_bad_trial_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from headcount.training import on_cores as cpu

    real = cpu.CpuTrial

    def sometimes(task, model, *rest):  # type: ignore[no-untyped-def]
        if model.heads == 2:
            raise RuntimeError("out of luck")
        return real(task, model, *rest)

    monkeypatch.setattr(cpu, "CpuTrial", sometimes)
    spec = SweepSpec.parse(SPEC)
    with Store.open(tmp_path) as store:
        counts = run_on_store(spec, store, quiet=True)
        assert (counts["done"], counts["failed"]) == (8, 4)
        assert {t.error for t in store.trials(states=("failed",))} == {"RuntimeError: out of luck"}


def test_diverged_trials_are_kept(tmp_path: Path) -> None:
    recipe = {**SMALL, "learning_rate": 10.0, "warmup": 0, "diverged_above": 1.5}
    with Store.open(tmp_path) as store:
        counts = run_on_store(SweepSpec.parse({**SPEC, "train": recipe}), store, quiet=True)
        assert counts["diverged"] > 0
        assert counts["diverged"] + counts["done"] == 12


def test_kill_and_go_on(tmp_path: Path) -> None:
    """SIGKILL in the middle of a real sweep; the same command finishes it, and the results are the undisturbed ones."""
    plan = {**SPEC, "heads": [1, 2], "lengths": [6], "train": {**SMALL, "steps": 10000, "evaluations": 50}}
    (tmp_path / "sweep.json").write_text(json.dumps(plan))
    code = (
        "import json\nfrom headcount.sweeps import run as runner\nfrom headcount.sweeps.spec import SweepSpec\n"
        "from headcount.store.store import Store\nrunner.CHECKPOINT_SECONDS = 0.05\n"
        "runner.run_on_store(SweepSpec.parse(json.load(open('sweep.json'))), Store.open('store'), quiet=True)\n"
    )
    command = [sys.executable, "-c", code]
    process = subprocess.Popen(command, cwd=tmp_path)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:  # until a checkpoint is recorded, then at once
        if (tmp_path / "store" / DATABASE).exists():
            with Store.open(tmp_path / "store") as store:  # a file may be there before its record is
                if any(t.checkpoint_step for t in store.trials()):
                    break
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with Store.open(tmp_path / "store") as store:
        left = store.counts("small")
        assert left["done"] < 4
        assert any(t.checkpoint_step for t in store.trials())
    subprocess.run(command, cwd=tmp_path, check=True, timeout=120)
    with Store.open(tmp_path / "store") as store:
        assert store.counts("small")["done"] == 4
        (run,) = stored_runs(store, "small")
    (undisturbed,) = run_sweep(SweepSpec.parse(plan), quiet=True)
    assert [t.nmse for t in run.trials] == [t.nmse for t in undisturbed.trials]
    assert [t.curve for t in run.trials] == [t.curve for t in undisturbed.trials]


STOP_AT_END = """
import json, os, sys
from headcount.sweeps import run as runner
from headcount.sweeps.spec import SweepSpec
from headcount.store.store import Store
spec = SweepSpec.parse(json.load(open("sweep.json")))
real = Store._finish
for number in map(int, sys.argv[1:]):  # a process each, forked from one that has imported everything and run nothing
    if (child := os.fork()) == 0:
        left = [number]
        def finish(self, *rest):
            if left[0] == 0:
                os._exit(9)
            left[0] -= 1
            return real(self, *rest)
        Store._finish = finish
        with Store.open("store") as store:
            runner.run_on_store(spec, store, quiet=True, workers=1)
        sys.exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.mark.parametrize("polish", [pytest.param(0, marks=pytest.mark.slow), 8])
def test_a_kill_between_the_last_step_and_the_final_record(tmp_path: Path, polish: int) -> None:
    """The weights and the ending come in one commit: a kill before it leaves a trial that is trained as if anew."""
    plan = {**SPEC, "heads": [1, 2], "lengths": [4], "train": {**SMALL, "polish": polish}}
    (tmp_path / "sweep.json").write_text(json.dumps(plan))
    # the files of an ending that was killed have no row, and are swept
    command = [sys.executable, "-c", STOP_AT_END, "0", "1", "2", "99"]
    done = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, check=True, timeout=480)
    assert done.stdout.split() == ["9", "9", "9", "0"]
    with Store.open(tmp_path / "store") as store:
        (run,) = stored_runs(store, "small")
        assert store.counts("small")["done"] == 4
    (undisturbed,) = run_sweep(SweepSpec.parse(plan), quiet=True)
    assert [t.nmse for t in run.trials] == [t.nmse for t in undisturbed.trials]
    assert [t.curve for t in run.trials] == [t.curve for t in undisturbed.trials]


def test_the_wall_time_adds_up_over_sessions(tmp_path: Path) -> None:
    """A checkpoint holds what a trial took before, and its record has the sum."""
    spec = SweepSpec.parse({**SPEC, "heads": [1], "lengths": [4], "seeds": 1})
    (panel,) = spec.panels()
    trial = panel.trial(1, 0)
    moments = CpuTrial(panel.task, trial.model, trial.train, 0, prepare(panel.task, trial.train)).moments
    moments.seconds = 1000.0
    with Store.open(tmp_path) as store:
        (name,) = store.add_run(spec.name, [trial.data()])
        store.claim([name])
        store.checkpoint(name, 45, moments.arrays())
        store.release()
        assert run_on_store(spec, store, quiet=True)["done"] == 1
        found = store.trial(name).provenance
    assert found is not None
    assert 1000.0 < found["seconds"] < 1100.0


def test_the_counts_are_those_of_this_spec(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        run_on_store(SweepSpec.parse({**SPEC, "train": {**SMALL, "steps": 10**6}}), store, seconds=0.2, quiet=True)
        counts = run_on_store(SweepSpec.parse({**SPEC, "heads": [1]}), store, quiet=True)
    assert counts == {"pending": 0, "running": 0, "done": 4, "diverged": 0, "failed": 0}


def test_a_trial_too_large_for_memory_records_nothing(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store, pytest.raises(hc.BadInput, match="GB are free"):
        run_on_store(SweepSpec.parse({**SPEC, "train": {**SMALL, "train_size": 10**13}}), store, quiet=True)
    with Store.open(tmp_path) as store:
        assert store.trials() == []


def test_one_failure_leaves_the_others_in_memory_too(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from headcount.training import on_cores as cpu

    real = cpu.CpuTrial

    def sometimes(task, model, *rest):  # type: ignore[no-untyped-def]
        if model.heads == 2:
            raise MemoryError("no room")
        return real(task, model, *rest)

    monkeypatch.setattr(cpu, "CpuTrial", sometimes)
    found = hc.sweep("min-plus-max", heads=[1, 2, 3], seeds=2, quiet=True, **SMALL)
    assert sorted({row["heads"] for row in found.table()}) == [1, 3]
    assert "no room" in caplog.text


def test_the_thread_count_of_the_caller_is_restored() -> None:
    from threadpoolctl import threadpool_info, threadpool_limits

    with threadpool_limits(2, user_api="blas"):
        before = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
        hc.sweep("min-plus-max", heads=[1, 2], seeds=3, quiet=True, workers=3, **SMALL)
        assert [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"] == before


@pytest.mark.parametrize(
    "bad",
    [
        {"heads": []},
        {"heads": [2, 2]},
        {"heads": [1.5]},
        {"heads": "12"},
        {"heads": [None]},
        {"heads": 0},
        {"seeds": 0},
        {"seeds": 2.5},
        {"seeds": "3"},
        {"workers": 1.5},
        {"device": "tpu"},
        {"name": "My Sweep"},
        {"name": ""},
        {"lengths": [4, 8]},
        {"targets": 1},
        {"hidden": "32"},
        {"hidden": [0]},
        {"head_dims": [2, 2]},
        {"head_dims": 1.5},
        {"learning_rates": "fast"},
        {"learning_rates": [None]},
        {"learning_rates": 11},
    ],
)
@pytest.mark.parametrize("arrays", [False, True])
def test_bad_arguments_of_a_sweep_give_a_one_line_error(bad: dict[str, object], arrays: bool) -> None:
    rng = np.random.default_rng(0)
    X = rng.random((100, 4, 1))
    task = hc.ArrayTask.from_arrays(X, X[..., 0].min(1)) if arrays else hc.make_task("min-plus-max", length=4)
    with pytest.raises(hc.BadInput) as caught:
        hc.sweep(task, **{"heads": [1], "seeds": 1, "quiet": True, **SMALL, **bad})
    assert "\n" not in str(caught.value)
    if arrays:
        with pytest.raises(hc.BadInput, match="fresh"):
            hc.sweep(task, heads=[1], seeds=1, quiet=True, **{**SMALL, "fresh": True})


def test_the_front_door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    x = hc.variable(1)
    task = hc.GeneralizedRetrieval([x, 1.0 - x], None, hc.variable(2).sum(), length=6)
    options = {**SMALL, "head_dim": 2, "hidden": 8}
    result = hc.sweep(task, heads=range(1, 4), seeds=2, quiet=True, **options)
    assert len(result.table()) == 6
    assert result.transition.sentence in repr(result)
    result.plot(tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    monkeypatch.chdir(tmp_path)
    assert result.plot()._repr_png_().startswith(b"\x89PNG")
    assert (tmp_path / "sweep.png").exists()  # a script has nobody who shows what is returned
    assert "sweep.png" in capsys.readouterr().err
    assert "<table" in result._repr_html_()
    assert result.report(tmp_path / "page") == tmp_path / "page" / "index.html"
    again = hc.sweep(task, heads=range(1, 4), seeds=2, quiet=True, store=tmp_path / "store", **options)
    assert [r["nmse"] for r in again.table()] == [r["nmse"] for r in result.table()]
    bare = hc.GeneralizedRetrieval([lambda x: x[..., 0]], None, lambda z: z, length=4, dim=2)
    assert len(hc.sweep(bare, heads=[1], seeds=1, quiet=True, **options).table()) == 1
    with pytest.raises(hc.BadInput, match="store"):
        hc.sweep(bare, heads=[1], seeds=1, quiet=True, store=tmp_path / "store", **options)
    with pytest.raises(hc.BadInput, match="did you mean 'hidden'"):
        hc.sweep(task, heads=[1], hiden=3)
    with pytest.raises(hc.BadInput, match="heads"):
        hc.sweep(task, heads=[0], quiet=True)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"heads": []}, "heads"),
        ({"heads": [1, 1]}, "once"),
        ({"heads": [0]}, "heads"),
        ({"seeds": 0}, "seeds"),
        ({"lengths": [1]}, "length"),
        ({"task": {"family": "quadratic-basin"}}, "did you mean 'quadratic-basins'"),
        ({"tasks": 1}, "did you mean 'task'"),
        ({"train": {"step": 5}}, "did you mean 'steps'"),
        ({"model": {"heads": 5}}, "head_dim"),
        ({"learning_rates": [0.0]}, "learning_rates"),
    ],
)
def test_bad_sweeps_give_a_one_line_error(change: dict[str, object], complaint: str) -> None:
    with pytest.raises(hc.BadInput, match=complaint) as caught:
        SweepSpec.parse({**SPEC, **change}, where="sweep.toml")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("polish", [0, 8])
@pytest.mark.parametrize("depth", [1, 2])
def test_torch_threads_do_not_matter(polish: int, depth: int) -> None:
    """The engine's bits do not depend on how many threads torch or BLAS would use."""
    task, model = hc.make_task("mean"), hc.ModelSpec(dim=2, length=8, heads=8, head_dim=8, hidden=64, depth=depth)
    results = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        results.append(train_fast(task, model, hc.TrainSpec(**SMALL, polish=polish)).trial.nmse)
    torch.set_num_threads(1)
    assert results[0] == results[1]
