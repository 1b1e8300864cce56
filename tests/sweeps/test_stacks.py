"""Stacks of trials as a GPU trains them, run here on the CPU: plan, padding, halving, divergence, resume, polish."""

from __future__ import annotations

import signal
import threading
import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import headcount as hc
from headcount.models.transformer.flat import Flat, covering_spec
from headcount.models.transformer.stacked import loss_and_gradient
from headcount.store.store import Store
from headcount.sweeps import experiments
from headcount.sweeps import plan as stacking
from headcount.sweeps.engine import Engine
from headcount.sweeps.experiments import STACKS
from headcount.sweeps.plan import plan
from headcount.sweeps.run import run_on_store, train_jobs
from headcount.sweeps.spec import SweepSpec
from headcount.training import stack_session
from headcount.training.data import prepare
from headcount.training.devices import find_device, warm_up_device
from headcount.training.job import Job
from headcount.training.loop import train

RECIPE = {"steps": 40, "warmup": 4, "batch": 8, "train_size": 60, "validation_size": 30, "evaluations": 4}
CPU = torch.device("cpu")


def job(heads: int = 2, seed: int = 0, *, target: int = 0, length: int = 4, model: dict | None = None, **train) -> Job:
    task = hc.make_task("sum-of-maxima", intrinsic=2, dim=2, length=length, seed=target)
    recipe = hc.TrainSpec(**{**RECIPE, "dtype": "float64", **train})
    size = {"head_dim": 2, "hidden": 6, **(model or {})}
    spec = hc.ModelSpec(dim=2, length=length, heads=heads, **size)
    key = (target, length, repr(recipe))
    if key not in DATA:
        DATA[key] = prepare(task, recipe)
    return Job(task, spec, recipe, seed, DATA[key])


DATA: dict = {}


class Told:
    """Keeps what stacks say; stops after so many evaluations where asked."""

    def __init__(self, jobs: list[Job], stop_at: int | None = None) -> None:
        self.jobs, self.stop_at, self.stop = jobs, stop_at, threading.Event()
        self.outcomes: dict[int, object] = {}
        self.snapshots: dict[int, object] = {}

    def start(self, members):
        return [(name, self.jobs[int(name)]) for name in members]

    reload = start

    def refused(self, member, error):
        raise AssertionError(f"{member}: {error}")

    def steps(self, member, step):  # noqa: ARG002
        if self.stop_at is not None and step >= self.stop_at:
            self.stop.set()

    def saved(self, snapshots):
        self.snapshots.update({int(name): moments for name, moments in snapshots})

    def ended(self, endings):
        for one in endings:
            member, outcome, moments = one.name, one.outcome, one.moments
            assert int(member) not in self.outcomes
            self.outcomes[int(member)] = outcome
            if moments is not None:
                self.snapshots[int(member)] = moments

    def run(self, groups=None, **options):
        groups = plan(self.jobs) if groups is None else groups
        Engine(STACKS, CPU, self, stop=self.stop, **options).run([[str(n) for n in group] for group in groups])
        return self


def alone(one: Job):
    return train(one.task, one.model, one.train, seed=one.seed, data=one.data).trial


@pytest.mark.parametrize("fresh", [False, True])
def test_a_padded_stack_is_the_plain_loop(fresh):
    """Heads, head_dim, hidden, rates, decays, targets and seeds differ, and every trial is the one trained alone."""
    jobs = [
        job(1, 3, fresh=fresh),
        job(3, 4, fresh=fresh, learning_rate=3e-3),
        job(2, 5, fresh=fresh, target=1, model={"head_dim": 5, "hidden": 3}),
        job(
            2,
            6,
            fresh=fresh,
            optimiser="adamw",
            weight_decay=0.1,
            schedule="constant",
            model={"hidden_ff": 9, "width": 3},
        ),
    ]
    told = Told(jobs).run([[0, 1, 2, 3]])
    for number, one in enumerate(jobs):
        found, wanted = told.outcomes[number], alone(one)
        assert found.nmse == pytest.approx(wanted.nmse, rel=1e-9)
        assert found.train_nmse == pytest.approx(wanted.train_nmse, rel=1e-9)
        assert [s for s, _ in found.curve] == [s for s, _ in wanted.curve]
        assert (found.heads, found.parameters_total) == (one.model.heads, wanted.parameters_total)


@pytest.mark.parametrize("options", [{}, {"positions": "gates", "beta": "learned"}, {"positions": "concatenated"}])
def test_padding_stays_zero_and_a_nonzero_place_is_detected(options):
    specs = [job(h, model={**options, "head_dim": n}).model for h, n in ((1, 2), (3, 4))]
    flat, small = Flat.of(covering_spec(specs)), Flat.of(specs[0])
    places = small.places(flat)
    theta = torch.zeros(1, flat.size, dtype=torch.float64)
    theta[0, places] = torch.randn(small.size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    X, y = torch.randn(9, 4, 2, dtype=torch.float64), torch.randn(1, 9, 1, dtype=torch.float64)
    index, betas = torch.arange(9)[None], torch.tensor([2**-0.5], dtype=torch.float64)
    loss, gradient = loss_and_gradient(flat, theta, X, index, y, None, betas)
    outside = np.setdiff1d(np.arange(flat.size), places)
    assert not gradient[0, outside].any()
    model = small.unpack(theta[0, places].numpy())
    single = (model(X) - y[0]).square().mean()
    assert float(loss[0]) == pytest.approx(single.item(), rel=1e-12)
    wrong = np.roll(places, 1)  # the sabotaged twin: weights that lie elsewhere are another function
    theta[0, wrong] = theta[0, places].clone()
    assert float(loss_and_gradient(flat, theta, X, index, y, None, betas)[0][0]) != pytest.approx(
        single.item(), rel=1e-6
    )


def test_the_plan_pads_where_that_is_cheaper():
    few = [job(h, s) for h in (1, 2, 5) for s in range(2)]
    assert sorted(map(sorted, plan(few))) == [[0, 1, 2, 3, 4, 5]]
    costly = {"batch": 60, "steps": 40}
    one, sixteen = (job(h, 0, length=32, **costly) for h in (1, 16))
    many = [replace(each, seed=s) for each in (one, sixteen) for s in range(600)]
    stacks_ = plan(many)
    assert len(stacks_) > 1  # six hundred models of one head do not carry fifteen heads of zeros
    assert all(len({many[n].model.heads for n in stack}) == 1 for stack in stacks_)


def test_the_plan_separates_trials_that_cannot_share_a_stack():
    jobs = [
        job(),
        job(length=5),
        job(batch=9),
        job(steps=41),
        job(dtype="float32"),
        job(model={"depth": 2}),
        job(3, model={"depth": 2}),
        job(data_seed=1),
        job(polish=2),
    ]
    assert sorted(plan(jobs)) == [[n] for n in range(len(jobs))]
    assert sorted(map(sorted, plan([job(), job(target=1), job(learning_rate=1e-3)]))) == [[0, 1, 2]]


def test_stacks_fit_into_the_free_memory():
    jobs = [replace(job(), seed=s) for s in range(40)]
    each = stacking.model_bytes(jobs[0].model, jobs[0].train)
    parts = plan(jobs, free=10 * each)
    assert [len(part) for part in parts] == [10, 10, 10, 10]
    assert [len(part) for part in plan(jobs, free=1)] == [1] * 40  # never none


def test_out_of_memory_halves_and_one_bad_trial_fails_alone(monkeypatch):
    """A device that holds three models, and one trial that cannot be trained at all."""
    real = stack_session.StackTrainer
    sizes: list[int] = []

    def small(specs, trains, seeds, *rest, **options):
        sizes.append(len(seeds))
        if len(seeds) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB")
        if 5 in seeds:
            raise RuntimeError("bad weights\nand a long story")
        return real(specs, trains, seeds, *rest, **options)

    monkeypatch.setattr(stack_session, "StackTrainer", small)
    jobs = [replace(job(), seed=s) for s in range(8)]
    told = Told(jobs).run([list(range(8))])
    assert max(sizes) == 8
    assert told.outcomes.pop(5) == "RuntimeError: bad weights"
    assert sorted(told.outcomes) == [0, 1, 2, 3, 4, 6, 7]
    assert all(trial.state == "done" for trial in told.outcomes.values())
    monkeypatch.setattr(
        stack_session, "StackTrainer", lambda *_, **__: (_ for _ in ()).throw(torch.OutOfMemoryError("no"))
    )
    assert "does not fit" in Told(jobs[:1]).run([[0]]).outcomes[0]


def test_a_failed_stack_is_gone_before_its_memory_is_given_back(monkeypatch):
    """Not one tensor of it may be held by then: emptying the cache would give back nothing."""
    launch, seen, alive = stack_session.StackTrainer.launch, [], []

    def full(self, steps):
        if len(self.seeds) == 2 and self.steps > 0:
            seen.append(weakref.ref(self))
            raise torch.OutOfMemoryError("CUDA out of memory")
        return launch(self, steps)

    monkeypatch.setattr(stack_session.StackTrainer, "launch", full)
    monkeypatch.setattr(Engine, "release_memory", lambda self: alive.append([one() is not None for one in seen]))
    told = Told([job(2, s) for s in range(2)]).run([[0, 1]])
    assert alive == [[False]]
    assert sorted(told.outcomes) == [0, 1]


def test_a_broken_device_ends_the_sweep_in_one_line(monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nCUDA kernel errors might ...")

    monkeypatch.setattr(stack_session, "StackTrainer", broken)
    with pytest.raises(hc.HeadcountError, match="continues from here") as caught:
        Told([job(), job(1)]).run([[0, 1]])
    assert "\n" not in str(caught.value)


def test_diverged_trials_leave_the_stack_without_affecting_the_others():
    jobs = [job(2, s, learning_rate=10.0, diverged_above=1.5, warmup=0) for s in range(3)]
    jobs += [job(2, s, diverged_above=1.5) for s in range(3, 5)]
    told = Told(jobs).run([list(range(5))])
    states = [told.outcomes[n].state for n in range(5)]
    assert states[3:] == ["done", "done"]
    assert "diverged" in states[:3]
    for n in range(5):
        wanted = alone(jobs[n])
        assert told.outcomes[n].state == wanted.state
        if wanted.state == "done":
            assert told.outcomes[n].nmse == pytest.approx(wanted.nmse, rel=1e-9)
        else:
            assert told.outcomes[n].nmse is None
            assert told.outcomes[n].steps <= wanted.steps


@pytest.mark.parametrize("change", [{}, {"fresh": True, "steps": 150}, {"polish": 3}])
def test_a_resumed_sweep_equals_an_uninterrupted_one(change):
    jobs = [job(h, s, **change) for h in (1, 2) for s in range(2)]
    whole = Told(jobs).run()
    first = Told(jobs, stop_at=17).run()
    assert not first.outcomes
    assert all(0 < first.snapshots[n].step < jobs[0].train.steps for n in range(4))
    rest = Told([replace(one, moments=first.snapshots[n]) for n, one in enumerate(jobs)]).run()
    for n in range(4):
        assert rest.outcomes[n].curve == whole.outcomes[n].curve
        assert np.array_equal(rest.snapshots[n].theta, whole.snapshots[n].theta)


def test_ctrl_c_leaves_complete_checkpoints(monkeypatch):
    """The signal comes in the middle of a window; the window ends, checkpoints are kept, and the rest equals a run."""
    jobs = [job(2, s) for s in range(3)]
    before = signal.getsignal(signal.SIGINT)
    whole = Told(jobs).run()
    real, launches = stack_session.StackTrainer._step, []

    def step(self):
        launches.append(0)
        if len(launches) == 21:
            signal.raise_signal(signal.SIGINT)
        real(self)

    monkeypatch.setattr(stack_session.StackTrainer, "_step", step)
    told = Told(jobs)
    with pytest.raises(KeyboardInterrupt):
        told.run()
    monkeypatch.setattr(stack_session.StackTrainer, "_step", real)
    assert sorted(told.snapshots) == [0, 1, 2]
    assert all(21 <= told.snapshots[n].step < 40 for n in range(3))
    rest = Told([replace(one, moments=told.snapshots[n]) for n, one in enumerate(jobs)]).run()
    for n in range(3):
        assert np.array_equal(rest.snapshots[n].theta, whole.snapshots[n].theta)
        assert rest.outcomes[n].curve == whole.outcomes[n].curve
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("model", [{}, {"depth": 2}])
def test_polish_lowers_the_training_error_identically_on_every_path(model):
    rough, fine = (job(2, 1, steps=80, model=model, polish=p, train_size=200) for p in (0, 30))
    before, after = train_jobs([rough, fine], quiet=True)
    assert after.train_nmse < 0.7 * before.train_nmse
    assert after.steps == 110
    assert after.curve[-1][0] == 110
    stacked = Told([fine]).run().outcomes[0]
    plain = alone(fine)
    few = job(2, 1, steps=80, model=model, polish=5, train_size=200)
    assert Told([few]).run().outcomes[0].nmse == pytest.approx(alone(few).nmse, rel=1e-6)
    assert stacked.train_nmse < 0.7 * before.train_nmse
    assert plain.train_nmse < 0.7 * before.train_nmse


def test_a_sweep_on_a_store_through_stacks(tmp_path: Path, monkeypatch):
    """What `--device cuda` does, on the CPU: the same results as a trial a core, weights kept, resumable."""
    plan_ = {
        "name": "small",
        "heads": [1, 2, 3],
        "seeds": 2,
        "lengths": [4, 6],
        "train": {**RECIPE, "dtype": "float64"},
        "task": {"family": "sum-of-maxima", "intrinsic": 2},
        "model": {"head_dim": 2, "hidden": 6},
    }
    spec = SweepSpec.parse(plan_)
    with Store.open(tmp_path / "cores") as store:
        run_on_store(spec, store, quiet=True)
        wanted = {t.hash: t.metrics for t in store.trials()}
    monkeypatch.setattr(experiments.Sweep, "on_cores", lambda *_: None)
    with Store.open(tmp_path / "stacks") as store:
        assert run_on_store(spec, store, quiet=True)["done"] == 12
        for trial in store.trials():
            assert trial.metrics["nmse"] == pytest.approx(wanted[trial.hash]["nmse"], rel=1e-9)
            step, arrays = store.load_checkpoint(trial.hash)
            assert step == RECIPE["steps"]
            assert arrays["theta"].size == trial.metrics["parameters_total"]


@pytest.mark.parametrize("name", ["cuda", "cuda:7", "tpu", "", "cuda:x", "cuda:٣", "cuda:99999999999999999999"])
def test_a_missing_device_is_one_line(name, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(hc.BadInput) as caught:
        find_device(name)
    assert "\n" not in str(caught.value)


def test_warming_up_a_missing_device_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """`find_device` reports a missing device; `warm_up_device` does not."""
    before, complaints = threading.active_count(), list[object]()
    monkeypatch.setattr(threading, "excepthook", complaints.append)
    for name in ("cpu", "cuda:97", "cudas"):
        warm_up_device(name)
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join(60)
    assert threading.active_count() <= before
    assert complaints == []
    with pytest.raises(hc.BadInput, match="cuda:97 not found"):
        find_device("cuda:97")
