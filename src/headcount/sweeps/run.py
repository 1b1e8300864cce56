"""A sweep in memory: every panel with every head count and seed, a trial a core, one record a panel at the end."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from headcount.core import HeadcountError, Progress, cores, provenance
from headcount.store import Run, Trial
from headcount.sweeps.plan import plan, step_cost
from headcount.sweeps.precompile import Ahead
from headcount.sweeps.scoreboard import Board, Entry
from headcount.sweeps.spec import Panel, SweepSpec, has_serial_form
from headcount.sweeps.stacks import Ending, Member, Stacks, free_memory
from headcount.tasks.arrays import ArrayTask
from headcount.training import (
    Job,
    Moments,
    Stopped,
    TrainSpec,
    check_task,
    device_name,
    find_device,
    polish_steps,
    prepare,
    run_trial,
    single_threaded_blas,
    start_kernels,
)

log = logging.getLogger("headcount")


def run_sweep(spec: SweepSpec, *, workers: int | None = None, quiet: bool = False, device: str = "cpu") -> list[Run]:
    """Train all models of a spec and return a record for every panel; the outcome does not depend on `workers`."""
    return run_panels(
        spec.name, spec.title, spec.data(), spec.panels(), spec.seeds, workers=workers, quiet=quiet,
        device=device,
    )  # fmt: skip


def run_panels(
    name: str, title: str, about: dict[str, Any], panels: Sequence[Panel], seeds: int, *,
    workers: int | None = None, quiet: bool = False, device: str = "cpu",
) -> list[Run]:  # fmt: skip
    """Train panels that are handed in: their tasks may use bare callables, which no spec can state."""
    start = time.perf_counter()
    for panel in panels:
        check_task(panel.task, panel.sized(max(panel.heads)), panel.train)
    data = [prepare(panel.task, panel.train) for panel in panels]
    # seeds outermost: every cell has a first result before any has a second; large models first
    order = [
        (p, h, seed) for seed in range(seeds) for p in range(len(panels)) for h in sorted(panels[p].heads, reverse=True)
    ]
    jobs = [Job(panels[p].task, panels[p].sized(h), panels[p].train, seed, data[p]) for p, h, seed in order]
    cells = [cell_name(panels[p].values, h) for p, h, _ in order]
    trials = _train(jobs, workers, quiet, device, cells)
    seconds = time.perf_counter() - start
    where = device_name(find_device(device))
    return [
        panel_run(
            name,
            title,
            about,
            panel,
            [trials[n] for n, (p, _, _) in enumerate(order) if p == k and n in trials],
            seconds,
            where,
        )
        for k, panel in enumerate(panels)
    ]


def cell_name(values: dict[str, Any], heads: int) -> str:
    """Name a cell of a sweep: what its panel varies, and the head count."""
    return ", ".join([f"{key} {value}" for key, value in values.items()] + [f"h = {heads}"])


def panel_run(
    name: str, title: str, about: dict[str, Any], panel: Panel, trials: list[Trial], seconds: float, device: str = "cpu"
) -> Run:
    """Put the trials of one panel into a record."""
    task = panel.task
    if isinstance(task, ArrayTask):
        stated: dict[str, Any] = {"kind": "arrays", "name": task.name, "hash": task.hash()}
    else:
        stated = task.data() if has_serial_form(task) else {"kind": "callable", "name": task.name}
    intrinsic = None if isinstance(task, ArrayTask) else task.intrinsic
    blind = not isinstance(task, ArrayTask) and task.positional and panel.model.positions == "none"
    return Run(
        name=name, title=title, task={**stated, "length": task.length, "dim": task.dim}, intrinsic=intrinsic,
        spec={**about, "heads": list(panel.heads), "model": panel.model.data(), "train": panel.train.data()},
        sweep=about if "task" in about else {}, values=panel.values, blind=blind,
        trials=sorted(trials, key=lambda t: (t.heads, t.seed)), provenance=provenance(device), seconds=seconds,
    )  # fmt: skip


def train_jobs(
    jobs: Sequence[Job], *, workers: int | None = None, quiet: bool = False, device: str = "cpu"
) -> list[Trial]:
    """Train jobs side by side, and return their records in order; on Ctrl-C all stop within a second."""
    cells = [f"h = {job.model.heads}" for job in jobs]
    found = _train(jobs, workers, quiet, device, cells)
    if len(found) < len(jobs):
        raise HeadcountError(f"{len(jobs) - len(found)} of {len(jobs)} trials failed: the log says why")
    return [found[number] for number in range(len(jobs))]


def _train(
    jobs: Sequence[Job], workers: int | None, quiet: bool, device: str, cells: Sequence[str]
) -> dict[int, Trial]:
    """Return the records by number; a trial that failed is left out, with its reason in the log."""
    where = find_device(device)
    entries = {
        str(number): Entry(cell, whole_steps(job.train), step_cost(job.model, job.train.batch))
        for number, (job, cell) in enumerate(zip(jobs, cells, strict=True))
    }
    with Progress("training", Board.work(entries), quiet=quiet, closes=False) as progress:
        listener = _InMemory(jobs, Board(entries, progress))
        if where.type == "cuda":
            parts = plan(jobs, free_memory(where))
            ahead = Ahead([[jobs[n] for n in part] for part in parts], where, free_memory(where))
            engine = Stacks(where, listener, threading.Event(), save_every=float("inf"))
            engine.run([[str(n) for n in part] for part in parts], ahead)
        else:
            start_kernels(progress, jobs[0].train.dtype, [job.model for job in jobs])
            with single_threaded_blas():
                _on_cores(jobs, listener, workers or cores())
    if not listener.trials:
        raise HeadcountError(f"every trial failed; the first: {listener.failures[0]}")
    return listener.trials


def whole_steps(train: TrainSpec) -> int:
    """The steps of a recipe, the polish counted as the steps that it is worth."""
    return train.steps + polish_steps(train)


def _on_cores(jobs: Sequence[Job], listener: _InMemory, workers: int) -> None:
    """A trial a core, in threads; this one reads what they say."""
    said: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
    stop = threading.Event()

    def work(number: int) -> None:
        try:
            said.put((number, run_trial(jobs[number], lambda step, _: said.put((number, step)), stop)[1]))
        except Stopped:
            return
        except BaseException as error:  # handed to the caller
            said.put((number, error))

    left = len(jobs)
    with ThreadPoolExecutor(min(workers, len(jobs))) as pool:
        try:
            for number in range(len(jobs)):
                pool.submit(work, number)
            while left:
                number, message = said.get()
                if isinstance(message, int):
                    listener.steps(str(number), message)
                    continue
                if isinstance(message, BaseException) and not isinstance(message, Exception):
                    raise message
                left -= 1
                failed = isinstance(message, Exception)
                outcome = f"{type(message).__name__}: {message}" if failed else message
                listener.ended([(str(number), outcome, None)])
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise


class _InMemory:
    """Takes in what becomes of jobs that no store keeps."""

    def __init__(self, jobs: Sequence[Job], board: Board) -> None:
        self.jobs, self.board = jobs, board
        self.trials: dict[int, Trial] = {}
        self.failures: list[str] = []

    def start(self, members: Sequence[str]) -> list[Member]:
        return [(name, self.jobs[int(name)]) for name in members]

    def steps(self, member: str, step: int) -> None:
        self.board.steps(member, step)

    def saved(self, snapshots: Sequence[tuple[str, Moments]]) -> None:
        del snapshots

    def ended(self, endings: Sequence[Ending]) -> None:
        for member, outcome, _ in endings:
            if isinstance(outcome, str):  # one bad trial never ends a sweep
                job = self.jobs[int(member)]
                self.failures.append(outcome)
                log.warning("a trial with %d heads, seed %d, failed: %s", job.model.heads, job.seed, outcome)
            else:
                self.trials[int(member)] = outcome
            self.board.ended(member, outcome)

    def stopped(self, members: Sequence[str]) -> None:
        del members
