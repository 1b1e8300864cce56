"""A sweep in memory: every panel with every head count and seed, a trial a core, one record a panel at the end."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from headcount.base.progress import Progress
from headcount.base.provenance import cores, provenance
from headcount.experiments.cpu import Stopped, start_kernels, train_fast
from headcount.experiments.data import Dataset, prepare
from headcount.experiments.memory import check_memory
from headcount.experiments.spec import Panel, SweepSpec, TrainSpec
from headcount.models.spec import ModelSpec
from headcount.store.records import Run, Trial
from headcount.tasks.task import Task


@dataclass(frozen=True)
class Job:
    """One trial to be trained."""

    task: Task
    model: ModelSpec
    train: TrainSpec
    seed: int
    data: Dataset


def run_sweep(spec: SweepSpec, *, workers: int | None = None, quiet: bool = False) -> list[Run]:
    """Train all models of a spec and return a record for every panel; the outcome does not depend on `workers`."""
    panels = spec.panels()
    return run_panels(spec.name, spec.title, spec.data(), panels, spec.heads, spec.seeds, workers=workers, quiet=quiet)


def run_panels(
    name: str, title: str, about: dict[str, Any], panels: Sequence[Panel], heads: Sequence[int], seeds: int, *,
    workers: int | None = None, quiet: bool = False,
) -> list[Run]:  # fmt: skip
    """Train panels that are handed in: their tasks may use bare callables, which no spec can state."""
    start = time.perf_counter()
    for panel in panels:
        check_memory(panel.sized(max(heads)), panel.train)
    data = [prepare(panel.task, panel.train) for panel in panels]
    # seeds outermost: every cell has a first result before any has a second; large models first
    order = [(p, h, seed) for seed in range(seeds) for p in range(len(panels)) for h in sorted(heads, reverse=True)]
    jobs = [Job(panels[p].task, panels[p].sized(h), panels[p].train, seed, data[p]) for p, h, seed in order]
    trials = train_jobs(jobs, workers=workers, quiet=quiet)
    seconds = time.perf_counter() - start
    return [
        panel_run(name, title, about, panel, [t for t, (p, _, _) in zip(trials, order, strict=True) if p == k], seconds)
        for k, panel in enumerate(panels)
    ]


def panel_run(name: str, title: str, about: dict[str, Any], panel: Panel, trials: list[Trial], seconds: float) -> Run:
    """Put the trials of one panel into a record."""
    task = panel.task
    stated = task.data() if getattr(task, "symbolic", True) else {"kind": "callable", "name": task.name}
    return Run(
        name=name, title=title, task={**stated, "length": task.length, "dim": task.dim}, intrinsic=task.intrinsic,
        spec={**about, "model": panel.model.data(), "train": panel.train.data()}, values=panel.values,
        trials=sorted(trials, key=lambda t: (t.heads, t.seed)), provenance=provenance(), seconds=seconds,
    )  # fmt: skip


def train_jobs(jobs: Sequence[Job], *, workers: int | None = None, quiet: bool = False) -> list[Trial]:
    """Train jobs side by side, and return their records in order; on Ctrl-C or an error all stop within a second."""
    said: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
    stop = threading.Event()

    def work(number: int) -> None:
        job = jobs[number]
        try:
            trained = train_fast(
                job.task, job.model, job.train, seed=job.seed, data=job.data, stop=stop,
                on_step=lambda step, _: said.put((number, step)),
            )  # fmt: skip
            said.put((number, trained.trial))
        except Stopped:
            return
        except BaseException as error:  # handed to the caller, who stops the others and raises it
            said.put((number, error))

    trials: dict[int, Trial] = {}
    done = [0] * len(jobs)
    with Progress("training", sum(job.train.steps for job in jobs), quiet=quiet) as progress:
        start_kernels(progress, jobs[0].train.dtype)
        with ThreadPoolExecutor(min(workers or cores(), len(jobs))) as pool:
            try:
                for number in range(len(jobs)):
                    pool.submit(work, number)
                while len(trials) < len(jobs):
                    number, message = said.get()
                    if isinstance(message, BaseException):
                        raise message
                    ended = isinstance(message, Trial)
                    if ended:
                        trials[number] = message
                    steps = jobs[number].train.steps if ended else int(message)
                    note = _note(message, len(trials), len(jobs)) if ended else ""
                    progress.advance(steps - done[number], note=note)
                    done[number] = steps
            except BaseException:
                stop.set()
                pool.shutdown(cancel_futures=True)
                raise
    return [trials[number] for number in range(len(jobs))]


def _note(trial: Trial, finished: int, models: int) -> str:
    error = "diverged" if trial.nmse is None else f"error {trial.nmse:.1e}"
    return f"{finished} of {models} models; latest: {trial.heads} head{'s' if trial.heads > 1 else ''}, {error}"
