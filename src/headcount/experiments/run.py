"""A sweep in memory: every panel with every head count and seed, a trial a core, one record a panel at the end."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from headcount.base.errors import HeadcountError
from headcount.base.progress import Progress
from headcount.base.provenance import cores, provenance
from headcount.experiments.board import Board, Entry
from headcount.experiments.cpu import Stopped, run_trial, start_kernels
from headcount.experiments.data import prepare
from headcount.experiments.devices import device_name, find_device
from headcount.experiments.memory import check_memory
from headcount.experiments.moments import Moments
from headcount.experiments.spec import Panel, SweepSpec
from headcount.experiments.stacking import Job, plan, step_cost
from headcount.experiments.stacks import Member, Stacks, free_memory
from headcount.store.records import Run, Trial
from headcount.tasks.arrays import ArrayTask


def run_sweep(spec: SweepSpec, *, workers: int | None = None, quiet: bool = False, device: str = "cpu") -> list[Run]:
    """Train all models of a spec and return a record for every panel; the outcome does not depend on `workers`."""
    return run_panels(
        spec.name, spec.title, spec.data(), spec.panels(), spec.heads, spec.seeds, workers=workers, quiet=quiet,
        device=device,
    )  # fmt: skip


def run_panels(
    name: str, title: str, about: dict[str, Any], panels: Sequence[Panel], heads: Sequence[int], seeds: int, *,
    workers: int | None = None, quiet: bool = False, device: str = "cpu",
) -> list[Run]:  # fmt: skip
    """Train panels that are handed in: their tasks may use bare callables, which no spec can state."""
    start = time.perf_counter()
    for panel in panels:
        check_memory(panel.sized(max(heads)), panel.train)
    data = [prepare(panel.task, panel.train) for panel in panels]
    # seeds outermost: every cell has a first result before any has a second; large models first
    order = [(p, h, seed) for seed in range(seeds) for p in range(len(panels)) for h in sorted(heads, reverse=True)]
    jobs = [Job(panels[p].task, panels[p].sized(h), panels[p].train, seed, data[p]) for p, h, seed in order]
    cells = [cell_name(panels[p].values, h) for p, h, _ in order]
    trials = train_jobs(jobs, workers=workers, quiet=quiet, device=device, cells=cells)
    seconds = time.perf_counter() - start
    where = device_name(find_device(device))
    return [
        panel_run(
            name, title, about, panel, [t for t, (p, _, _) in zip(trials, order, strict=True) if p == k], seconds, where
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
        stated = task.data() if getattr(task, "symbolic", True) else {"kind": "callable", "name": task.name}
    intrinsic = None if isinstance(task, ArrayTask) else task.intrinsic
    return Run(
        name=name, title=title, task={**stated, "length": task.length, "dim": task.dim}, intrinsic=intrinsic,
        spec={**about, "model": panel.model.data(), "train": panel.train.data()}, values=panel.values,
        trials=sorted(trials, key=lambda t: (t.heads, t.seed)), provenance=provenance(device), seconds=seconds,
    )  # fmt: skip


def train_jobs(
    jobs: Sequence[Job], *, workers: int | None = None, quiet: bool = False, device: str = "cpu",
    cells: Sequence[str] | None = None,
) -> list[Trial]:  # fmt: skip
    """Train jobs side by side, and return their records in order; on Ctrl-C or an error all stop within a second."""
    where = find_device(device)
    names = cells or [f"h = {job.model.heads}" for job in jobs]
    entries = {
        str(number): Entry(cell, job.train.steps, step_cost(job.model, job.train.batch))
        for number, (job, cell) in enumerate(zip(jobs, names, strict=True))
    }
    with Progress("training", Board.work(entries), quiet=quiet) as progress:
        board = Board(entries, progress)
        if where.type == "cuda":
            return _on_gpu(jobs, board, where)
        start_kernels(progress, jobs[0].train.dtype, [job.model for job in jobs])
        return _on_cores(jobs, board, workers or cores())


def _on_cores(jobs: Sequence[Job], board: Board, workers: int) -> list[Trial]:
    """A trial a core, in threads; this one reads what they say."""
    said: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
    stop = threading.Event()

    def work(number: int) -> None:
        try:
            said.put((number, run_trial(jobs[number], lambda step, _: said.put((number, step)), stop)[1]))
        except Stopped:
            return
        except BaseException as error:  # handed to the caller, who stops the others and raises it
            said.put((number, error))

    trials: dict[int, Trial] = {}
    with ThreadPoolExecutor(min(workers, len(jobs))) as pool:
        try:
            for number in range(len(jobs)):
                pool.submit(work, number)
            while len(trials) < len(jobs):
                number, message = said.get()
                if isinstance(message, BaseException):
                    raise message
                if isinstance(message, Trial):
                    trials[number] = message
                    board.ended(str(number), message)
                else:
                    board.steps(str(number), int(message))
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    return [trials[number] for number in range(len(jobs))]


class _InMemory:
    """Takes in what stacks say of jobs that no store keeps: the first failure ends the call, as on the CPU."""

    def __init__(self, jobs: Sequence[Job], board: Board) -> None:
        self.jobs, self.board, self.trials = jobs, board, dict[int, Trial]()

    def start(self, members: Sequence[str]) -> list[Member]:
        return [(name, self.jobs[int(name)]) for name in members]

    def steps(self, member: str, step: int) -> None:
        self.board.steps(member, step)

    def saved(self, snapshots: Sequence[tuple[str, Moments]]) -> None:
        del snapshots

    def ended(self, member: str, outcome: Trial | str) -> None:
        if isinstance(outcome, str):
            raise HeadcountError(f"a model with {self.jobs[int(member)].model.heads} heads failed: {outcome}")
        self.trials[int(member)] = outcome
        self.board.ended(member, outcome)

    def stopped(self, members: Sequence[str]) -> None:
        del members


def _on_gpu(jobs: Sequence[Job], board: Board, device: torch.device) -> list[Trial]:
    """Stacks of trials on one GPU."""
    listener = _InMemory(jobs, board)
    stacks = [[str(n) for n in members] for members in plan(jobs, free_memory(device))]
    Stacks(device, listener, threading.Event(), save_every=float("inf")).run(stacks)
    return [listener.trials[number] for number in range(len(jobs))]
