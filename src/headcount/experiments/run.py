"""An experiment: every head count with every seed, a trial a core, one record at the end."""

from __future__ import annotations

import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from headcount.base.progress import Progress
from headcount.base.provenance import cores, provenance
from headcount.experiments.cpu import Stopped, compile_kernels, train_fast
from headcount.experiments.data import prepare
from headcount.experiments.spec import ExperimentSpec, TrainSpec
from headcount.models.spec import ModelSpec
from headcount.store.records import Run, Trial
from headcount.tasks.arrays import ArrayTask
from headcount.tasks.task import Task


@dataclass(frozen=True)
class Job:
    """One trial to be trained."""

    task: Task | ArrayTask
    model: ModelSpec
    train: TrainSpec
    seed: int


def run_experiment(spec: ExperimentSpec, *, workers: int | None = None, quiet: bool = False) -> Run:
    """Train all models of a spec and return the record of them; the outcome does not depend on `workers`."""
    return run_sweep(spec.task.task(), spec, workers=workers, quiet=quiet)


def run_sweep(task: Task, spec: ExperimentSpec, *, workers: int | None = None, quiet: bool = False) -> Run:
    """Train every head count and seed of a spec on a task that is handed in (it may use bare callables)."""
    start = time.perf_counter()
    # seeds outermost: every head count has a first result before any has a second; large models first
    jobs = [
        Job(task, spec.model.model(heads=h, dim=task.dim, length=task.length, out_dim=task.out_dim), spec.train, seed)
        for seed in range(spec.seeds)
        for h in sorted(spec.heads, reverse=True)
    ]
    trials = train_jobs(jobs, workers=workers, quiet=quiet)
    symbolic = getattr(task, "symbolic", True)
    return Run(
        name=spec.name, title=spec.title, task=task.data() if symbolic else {"kind": "callable", "name": task.name},
        intrinsic=task.intrinsic, spec=spec.data(), trials=sorted(trials, key=lambda t: (t.heads, t.seed)),
        provenance=provenance(), seconds=time.perf_counter() - start,
    )  # fmt: skip


def train_jobs(jobs: list[Job], *, workers: int | None = None, quiet: bool = False) -> list[Trial]:
    """Train jobs of one task and recipe side by side; on Ctrl-C or an error all of them stop within a second."""
    data = prepare(jobs[0].task, jobs[0].train)
    said: queue.SimpleQueue[Any] = queue.SimpleQueue()
    stop = threading.Event()

    def work(number: int) -> None:
        job = jobs[number]
        try:
            trained = train_fast(
                job.task, job.model, job.train, seed=job.seed, data=data, stop=stop,
                on_step=lambda step, _: said.put((number, step)),
            )  # fmt: skip
            said.put((number, trained.trial))
        except Stopped:
            pass
        except BaseException as error:  # handed to the caller, who stops the others and raises it
            said.put((number, error))

    trials: list[Trial] = []
    done = [0] * len(jobs)
    total = sum(job.train.steps for job in jobs)
    with Progress("training", total, quiet=quiet) as progress:
        progress.advance(0, note="compiling the kernels: half a minute, the first time only")
        compile_kernels(jobs[0].train.dtype)
        progress.advance(0, note="…")
        with ThreadPoolExecutor(min(workers or cores(), len(jobs))) as pool:
            try:
                for number in range(len(jobs)):
                    pool.submit(work, number)
                while len(trials) < len(jobs):
                    number, message = said.get()
                    if isinstance(message, BaseException):
                        raise message
                    steps = jobs[number].train.steps if isinstance(message, Trial) else int(message)
                    note = ""
                    if isinstance(message, Trial):
                        trials.append(message)
                        note = _note(message, len(trials), len(jobs))
                    progress.advance(steps - done[number], note=note)
                    done[number] = steps
            except BaseException:
                stop.set()
                pool.shutdown(cancel_futures=True)
                raise
    return trials


def _note(trial: Trial, finished: int, models: int) -> str:
    error = "diverged" if trial.nmse is None else f"error {trial.nmse:.1e}"
    return f"{finished} of {models} models; latest: {trial.heads} head{'s' if trial.heads > 1 else ''}, {error}"
