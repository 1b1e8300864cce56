"""Experiments as the runner sees them: named trials, and the sessions that train them.

`Experiment` is the interface of a kind of experiment. Two kinds are here, transformers on tasks and encoders on real
data; `kinds.py` lists all. Everything else (claims, checkpoints, outcomes, progress, stopping) is done by the runner,
and is the same for every kind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headcount.core import HeadcountError, Progress, content_hash
from headcount.models.transformer import ModelSpec, covering_spec
from headcount.sweeps.backends import TrainStacks
from headcount.sweeps.cores import BeginOnCore
from headcount.sweeps.encoder_spec import RealPanel, RealSpec
from headcount.sweeps.engine import Listener, SessionKind, free_memory
from headcount.sweeps.plan import data_bytes, model_bytes, plan
from headcount.sweeps.plan import step_cost as model_step_cost
from headcount.sweeps.precompile import AheadCompiler
from headcount.sweeps.scoreboard import Entry, Score
from headcount.sweeps.spec import Panel, SweepSpec, has_serial_form
from headcount.tasks import Task
from headcount.tasks.arrays import ArrayTask
from headcount.training import (
    CoreSession,
    Dataset,
    Ending,
    Job,
    Moments,
    StackSession,
    TrainSpec,
    check_memory,
    draw_inputs,
    polish_steps,
    prepare,
    start_kernels,
)
from headcount.training.encoder import (
    EncoderJob,
    EncoderSession,
    Feed,
    RealTrialSpec,
    choose_attention,
    stack_bytes,
)

Feeds = Callable[[RealPanel], Feed]
"""Returns the data of a panel on the device: `MarcoSource.feeds`, `CifarSource.feeds`."""


class Experiment(ABC):
    """A named set of trials."""

    names: list[str]
    """The hashes of the trials, in the order of the spec."""
    title = "training"
    """The title of the progress bar."""
    score = Score()
    """Which figure the scoreboard shows."""

    def __init__(self, name: str, about: dict[str, Any]) -> None:
        """Take the run's name, and the data that a store keeps with the run."""
        self.name, self.about = name, about

    @abstractmethod
    def spec(self, trial: str) -> dict[str, Any]:
        """Return the spec of a trial; the trial's name is its hash."""

    @abstractmethod
    def entry(self, trial: str) -> Entry:
        """Return what the scoreboard needs to know about a trial: its cell, its steps, the cost of a step."""

    @abstractmethod
    def check(self, left: Sequence[str]) -> None:
        """Reject trials that cannot be trained, before anything starts: an error of the spec, not of a trial."""

    @abstractmethod
    def job(self, trial: str, moments: Moments | None) -> Any:
        """Return the job of a trial, with its data and its last checkpoint."""

    @abstractmethod
    def on_device(self, left: Sequence[str], train: TrainStacks, listener: Listener, device: torch.device) -> None:
        """Train trials in stacks with `train(kind, stacks)`; report those that cannot be made to the listener."""

    def in_order(self, left: Sequence[str]) -> list[str]:
        """Return trials in the order in which they should begin."""
        return list(left)

    def on_cores(self, left: Sequence[str], progress: Progress) -> BeginOnCore | None:
        """Prepare to train one trial per core, and return what begins a session; None if a CPU takes stacks too."""
        del left, progress

    def close(self) -> None:  # noqa: B027
        """Release resources other than memory."""

    def provenance(self) -> dict[str, Any]:
        """Return entries for the trials' provenance beside machine and versions."""
        return {}

    def final_arrays(self, ending: Ending) -> dict[str, NDArray[Any]] | None:
        """Return the arrays that a store keeps of a finished trial in place of its checkpoint."""
        return None if ending.moments is None else ending.moments.arrays()


def cell_name(values: dict[str, Any], heads: int) -> str:
    """Return the name of a sweep's cell: the values of its panel, and the head count."""
    return ", ".join([f"{key} {value}" for key, value in values.items()] + [f"h = {heads}"])


# -- transformers on tasks ----------------------------------------------------------------------------------


class _DatasetCache:
    """Data sets, made once and shared by all trials with the same task and recipe."""

    def __init__(self) -> None:
        self._made: dict[str, Dataset] = {}
        self._drawn: dict[str, tuple[Tensor, Tensor]] = {}

    def of(self, task: Task | ArrayTask, train: TrainSpec) -> Dataset:
        sizes = f"{train.train_size} {train.validation_size} {train.data_seed} {train.dtype}"
        named = has_serial_form(task) or isinstance(task, ArrayTask)
        key = f"{task.hash() if named else id(task)} {sizes}"
        if key not in self._made:
            drawn = None
            if has_serial_form(task):
                law = f"{task.law!r} {task.length} {task.dim} {sizes}"
                if law not in self._drawn:  # targets of one family differ in y alone
                    self._drawn[law] = draw_inputs(task, train)
                drawn = self._drawn[law]
            self._made[key] = prepare(task, train, drawn)
        return self._made[key]


class JobList(Experiment):
    """Transformers that are handed in as jobs, with their data."""

    def __init__(self, jobs: Sequence[Job], name: str = "jobs", about: dict[str, Any] | None = None) -> None:
        super().__init__(name, about or {})
        specs = [{"number": number} for number in range(len(jobs))]
        self._specs = {content_hash(spec): spec for spec in specs}
        self._jobs = dict(zip(self._specs, jobs, strict=True))
        self.names = list(self._specs)

    def spec(self, trial: str) -> dict[str, Any]:
        return self._specs[trial]

    def entry(self, trial: str) -> Entry:
        job = self.job(trial, None)
        return _entry(f"h = {job.model.heads}", job.model, job.train)

    def check(self, left: Sequence[str]) -> None:
        pass

    def job(self, trial: str, moments: Moments | None) -> Job:
        return replace(self._jobs[trial], moments=moments or self._jobs[trial].moments)

    def on_cores(self, left: Sequence[str], progress: Progress) -> BeginOnCore | None:
        jobs = [self._jobs[name] for name in left]
        start_kernels(progress, jobs[0].train.dtype, [job.model for job in jobs])
        return CoreSession

    def on_device(self, left: Sequence[str], train: TrainStacks, listener: Listener, device: torch.device) -> None:
        jobs: list[tuple[str, Job]] = []
        for name in left:
            try:
                jobs.append((name, self.job(name, None)))
            except Exception as error:  # one bad trial never ends a sweep
                listener.refused(name, error)
        free = free_memory(device)
        parts = plan([job for _, job in jobs], free)
        ahead = AheadCompiler([[jobs[n][1] for n in part] for part in parts], device, free)
        train(STACKS, [[jobs[n][0] for n in part] for part in parts], ahead)


def _entry(cell: str, model: ModelSpec, train: TrainSpec) -> Entry:
    steps = train.steps + polish_steps(train)  # the polish counts as the steps that it is worth
    return Entry(cell, steps, model_step_cost(model, train.batch))


def _needs(members: Sequence[tuple[str, Job]], device: torch.device) -> int:
    del device
    model, job = covering_spec([job.model for _, job in members]), members[0][1]
    return len(members) * model_bytes(model, job.train) + data_bytes(job)


STACKS = SessionKind(StackSession, _needs, max_sessions=8)


@dataclass(frozen=True)
class _Cell:
    panel: Panel
    heads: int
    seed: int


class Sweep(JobList):
    """Transformers on tasks: every panel of a spec with every head count and seed."""

    def __init__(self, name: str, about: dict[str, Any], panels: Sequence[Panel], seeds: int) -> None:
        """Take panels; their tasks may be arrays and bare functions where no store is to keep them."""
        Experiment.__init__(self, name, about)
        self.panels, self.seeds = list(panels), seeds
        self._cells: dict[str, _Cell] = {}
        self._specs: dict[str, dict[str, Any]] = {}
        self._data = _DatasetCache()
        for number, panel in enumerate(self.panels):
            for seed, heads in product(range(seeds), panel.heads):
                spec = panel.trial_data(heads, seed, number)
                trial = content_hash(spec)
                self._cells[trial], self._specs[trial] = _Cell(panel, heads, seed), spec
        self.names = list(self._specs)

    @classmethod
    def of(cls, spec: SweepSpec) -> Sweep:
        """Return the experiment that a spec states."""
        return cls(spec.name, {"spec": spec.data()}, spec.panels(), spec.seeds)

    def entry(self, trial: str) -> Entry:
        cell = self._cells[trial]
        return _entry(cell_name(cell.panel.values, cell.heads), cell.panel.sized(cell.heads), cell.panel.train)

    def check(self, left: Sequence[str]) -> None:
        cells = [self._cells[trial] for trial in left]
        for model, train in dict.fromkeys((cell.panel.sized(cell.heads), cell.panel.train) for cell in cells):
            check_memory(model, train)

    def by_panel(self) -> list[list[str]]:
        """Return the trials of each panel."""
        found: dict[int, list[str]] = {id(panel): [] for panel in self.panels}
        for trial, cell in self._cells.items():
            found[id(cell.panel)].append(trial)
        return [found[id(panel)] for panel in self.panels]

    def make_data(self) -> None:
        """Make the data of all panels now, where bad data are to end the run before it starts."""
        for panel in self.panels:
            self._data.of(panel.task, panel.train)

    def job(self, trial: str, moments: Moments | None) -> Job:
        cell = self._cells[trial]
        panel = cell.panel
        data = self._data.of(panel.task, panel.train)
        return Job(panel.task, panel.sized(cell.heads), panel.train, cell.seed, data, moments)

    def on_cores(self, left: Sequence[str], progress: Progress) -> BeginOnCore | None:
        cells = [self._cells[trial] for trial in left]
        start_kernels(progress, cells[0].panel.train.dtype, [cell.panel.sized(cell.heads) for cell in cells])
        return CoreSession

    def in_order(self, left: Sequence[str]) -> list[str]:
        """Sort trials: every cell has a first result before any has a second; within a seed the long trials first."""

        def cost(trial: str) -> tuple[int, int]:
            cell = self._cells[trial]
            return cell.seed, -cell.panel.task.length * cell.heads

        return sorted(left, key=cost)


# -- encoders on real data ----------------------------------------------------------------------------------


class Encoders(Experiment):
    """Encoders on real data: all seeds of one head count and length are trained side by side."""

    def __init__(self, spec: RealSpec, feeds: Feeds, device: torch.device, *, weights: bool = False) -> None:
        """Take the spec with the precision that it has on the device, and what gives the data of a panel.

        With `weights` a store keeps those of finished trials; without, their checkpoints go: a grid of these models
        fills many gigabytes.
        """
        spec = spec.on(device)
        super().__init__(spec.name, {"spec": spec.data()})
        self._device, self._feeds, self._weights = device, feeds, weights
        self._panels: dict[str, RealPanel] = {}
        self._trials: dict[str, RealTrialSpec] = {}
        for panel in spec.panels():
            for heads, seed in product(panel.heads, range(spec.seeds)):
                trial = panel.trial(heads, seed)
                name = trial.hash()
                self._trials[name], self._panels[name] = trial, panel
        self.names = list(self._trials)
        self._made: dict[int, Feed] = {}
        self._kernels: dict[str, str | None] = {}

    def spec(self, trial: str) -> dict[str, Any]:
        return self._trials[trial].data()

    def entry(self, trial: str) -> Entry:
        spec = self._trials[trial]
        return Entry(cell_name(self._panels[trial].values, spec.model.heads), spec.train.steps, encoder_step_cost(spec))

    def check(self, left: Sequence[str]) -> None:
        for panel in {self._panels[name].size: self._panels[name] for name in left}.values():
            self._made[panel.size] = self._feeds(panel)
            panel.check(self._made[panel.size])

    def job(self, trial: str, moments: Moments | None) -> EncoderJob:
        feed = self._made[self._panels[trial].size]
        return EncoderJob(self._trials[trial], feed, moments, self._kernels.get(trial))

    def on_device(self, left: Sequence[str], train: TrainStacks, listener: Listener, device: torch.device) -> None:
        del listener
        stacks = self.stacked(left)
        for names in stacks:  # before any of them runs, or its neighbours would be in the timing
            first, feed = self._trials[names[0]], self._made[self._panels[names[0]].size]
            kernel = choose_attention(first.model, first.train, len(names), feed, device)
            self._kernels |= dict.fromkeys(names, kernel)
        train(ENCODER_STACKS if device.type == "cuda" else ONE_ENCODER_STACK, stacks)

    def stacked(self, left: Sequence[str]) -> list[list[str]]:
        """Sort trials into stacks: the seeds of one model on the same data; the largest stacks first."""
        found: dict[str, list[str]] = {}
        for name in left:
            key = self._trials[name].model_copy(update={"seed": 0}).hash()
            found.setdefault(key, []).append(name)
        return sorted(found.values(), key=lambda names: -encoder_step_cost(self._trials[names[0]]) * len(names))

    def provenance(self) -> dict[str, Any]:
        return {"precision": next(iter(self._trials.values())).train.precision}

    def final_arrays(self, ending: Ending) -> dict[str, NDArray[Any]] | None:
        if isinstance(ending.outcome, str):
            raise HeadcountError("a failed trial has nothing to keep")
        if self._weights and ending.moments is not None:
            return {"theta": ending.moments.theta}
        return {"steps": np.array([ending.outcome.steps])}


def encoder_step_cost(trial: RealTrialSpec) -> float:
    """Estimate the work of one model-step in multiply-adds a thousand million; only ratios of it matter."""
    m = trial.model
    layer = (4 + 2 * m.expansion) * m.width**2 + 2 * m.tokens * m.width
    return trial.train.batch * m.tokens * (m.inputs * m.width + m.depth * layer) / 1e9


def _encoder_needs(members: Sequence[tuple[str, EncoderJob]], device: torch.device) -> int:
    job = members[0][1]
    return stack_bytes(job.spec.model, job.spec.train, len(members), job.feed, device)


ENCODER_STACKS = SessionKind(EncoderSession, _encoder_needs, max_sessions=3)
ONE_ENCODER_STACK = replace(ENCODER_STACKS, max_sessions=1)
