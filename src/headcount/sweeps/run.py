"""The runner: train the unfinished trials of an experiment, on a store or in memory, on cores or in stacks.

Finished trials are not trained again, and interrupted ones resume from their checkpoint. Only the caller's thread talks
to the store: worker threads train on cores and send messages, and stacks on a device are driven by this thread itself.
A trial is claimed when there is room for it, so several processes may work on one store. Ctrl-C and `seconds` stop a
run cleanly: each running trial saves a checkpoint. A trial that fails is kept as failed, and the others continue.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

from headcount.core import HeadcountError, Progress, Spec, cores, provenance
from headcount.store import FINISHED, STATES, MemoryStore, Outcome, Run, Snapshot, State, Trial, TrialStore
from headcount.sweeps.backends import DriverOptions, train_singly, train_stacks
from headcount.sweeps.engine import Failure, KernelCompiler, Member, SessionKind
from headcount.sweeps.experiments import Experiment, Feeds, JobList, Sweep
from headcount.sweeps.kinds import RunnerOptions, experiment_of
from headcount.sweeps.results import as_trial
from headcount.sweeps.scoreboard import Board
from headcount.sweeps.spec import Panel, SweepSpec
from headcount.training import (
    Ending,
    Job,
    Moments,
    check_task,
    device_name,
    find_device,
)

log = logging.getLogger("headcount")
CHECKPOINT_SECONDS = 30.0
"""Seconds between two checkpoints of a session."""
RENEW_SECONDS = 120.0
"""Seconds between two renewals of the lease, which lasts for 600."""


def run_on_store(
    spec: Spec,
    store: TrialStore,
    *,
    feeds: Feeds | None = None,
    weights: bool = False,
    workers: int | None = None,
    seconds: float | None = None,
    quiet: bool = False,
    device: str = "cpu",
) -> dict[State, int]:
    """Train the unfinished trials of a spec of any kind in `kinds.py`; return how many trials are in each state.

    For an experiment on real data, `feeds` gives the data of a panel (`MarcoSource.feeds`, `CifarSource.feeds`), and
    `weights` keeps the weights of finished trials. After `seconds` the run stops; the same call continues it.
    """
    where = find_device(device)
    experiment = experiment_of(spec, RunnerOptions(where, feeds, weights))
    return run(experiment, store, where, workers=workers, seconds=seconds, quiet=quiet)


def run_sweep(spec: SweepSpec, *, workers: int | None = None, quiet: bool = False, device: str = "cpu") -> list[Run]:
    """Train all models of a spec in memory and return a record for every panel; `workers` does not affect results."""
    return run_panels(
        spec.name, spec.title, spec.data(), spec.panels(), spec.seeds, workers=workers, quiet=quiet, device=device
    )


def run_panels(
    name: str,
    title: str,
    about: dict[str, Any],
    panels: Sequence[Panel],
    seeds: int,
    *,
    workers: int | None = None,
    quiet: bool = False,
    device: str = "cpu",
) -> list[Run]:
    """Train panels in memory and return their records; tasks may be arrays and bare functions, unlike in a spec."""
    start, where = time.perf_counter(), find_device(device)
    for panel in panels:
        check_task(panel.task, panel.sized(max(panel.heads)), panel.train)
    sweep, store = Sweep(name, about, panels, seeds), MemoryStore()
    sweep.make_data()
    _run_in_memory(sweep, store, where, workers=workers, quiet=quiet)
    seconds = time.perf_counter() - start
    records = {one.hash: as_trial(store, one) for one in store.trials(states=("done", "diverged"))}
    return [
        panel.run(name, title, about, [records[one] for one in trials if one in records], seconds, device_name(where))
        for panel, trials in zip(panels, sweep.by_panel(), strict=True)
    ]


def train_jobs(
    jobs: Sequence[Job], *, workers: int | None = None, quiet: bool = False, device: str = "cpu"
) -> list[Trial]:
    """Train jobs side by side in memory, and return their records in order."""
    experiment, store = JobList(jobs), MemoryStore()
    _run_in_memory(experiment, store, find_device(device), workers=workers, quiet=quiet)
    found = {one.hash: as_trial(store, one) for one in store.trials(states=("done", "diverged"))}
    if len(found) < len(jobs):
        raise HeadcountError(f"{len(jobs) - len(found)} of {len(jobs)} trials failed: the log says why")
    return [found[name] for name in experiment.names]


def _run_in_memory(experiment: JobList, store: MemoryStore, device: torch.device, **options: Any) -> None:
    """Train an experiment in memory; failures are logged, and raise HeadcountError if every trial failed."""
    run(experiment, store, device, save_every=float("inf"), **options)
    failed = store.trials(states=("failed",))
    for one in failed:
        job = experiment.job(one.hash, None)
        log.warning("a trial with %d heads, seed %d, failed: %s", job.model.heads, job.seed, one.error)
    if len(failed) == len(experiment.names):
        raise HeadcountError(f"every trial failed; the first: {failed[0].error}")


def run(
    experiment: Experiment,
    store: TrialStore,
    device: torch.device,
    *,
    workers: int | None = None,
    seconds: float | None = None,
    quiet: bool = False,
    save_every: float | None = None,
) -> dict[State, int]:
    """Train the unfinished trials of an experiment; return how many of its trials are in each state."""
    names = experiment.names
    finished = {name for name, state in store.states(names).items() if state in FINISHED}
    experiment.check([name for name in names if name not in finished])
    store.add_run(experiment.name, [experiment.spec(name) for name in names], about=experiment.about)
    states = store.states(names)
    left = experiment.in_order([name for name in names if states.get(name) in ("pending", "running")])
    if left:
        deadline = None if seconds is None else time.monotonic() + seconds
        entries = {name: experiment.entry(name) for name in left}
        before = _figures_before(experiment, store, names)
        with Progress(experiment.title, Board.work(entries), quiet=quiet, closes=False) as progress:
            listener = StoreListener(experiment, store, Board(entries, progress, before, experiment.score), device)
            every = CHECKPOINT_SECONDS if save_every is None else save_every
            _train(
                experiment, listener, left, progress, workers=workers or cores(), save_every=every, deadline=deadline
            )
    ended = Counter(store.states(names).values())  # of this experiment alone: a run may hold an older one's trials too
    return {state: ended[state] for state in STATES}


def _figures_before(experiment: Experiment, store: TrialStore, names: Sequence[str]) -> dict[str, list[float | None]]:
    """Return the figures of trials that were already finished, by cell."""
    members, found = set(names), dict[str, list[float | None]]()
    for trial in store.trials(run=experiment.name, states=FINISHED):
        if trial.hash in members:
            cell, figure = experiment.entry(trial.hash).cell, experiment.score.figure(trial.metrics or {})
            found.setdefault(cell, []).append(figure)
    return found


def _train(
    experiment: Experiment,
    listener: StoreListener,
    left: Sequence[str],
    progress: Progress,
    *,
    workers: int,
    save_every: float,
    deadline: float | None,
) -> None:
    """Train one trial per core, or stacks on the device; release all trials at the end, even after an error."""
    options, device = DriverOptions(threading.Event(), save_every, deadline), listener.device

    def stacks_on_device(
        kind: SessionKind, stacks: Sequence[Sequence[str]], ahead: KernelCompiler | None = None
    ) -> None:
        train_stacks(kind, stacks, device, listener, options, ahead)

    try:
        begin = experiment.on_cores(left, progress) if device.type != "cuda" else None
        if begin is None:
            experiment.on_device(left, stacks_on_device, listener, device)
        else:
            train_singly(begin, listener, left, workers, options)
    finally:
        experiment.close()
        listener.store.release()


class StoreListener:
    """The runner's listener: claims trials in the store, and writes their checkpoints and outcomes to it."""

    def __init__(self, experiment: Experiment, store: TrialStore, board: Board, device: torch.device) -> None:
        self.experiment, self.store, self.board, self.device = experiment, store, board, device
        self._provenance = {**provenance(device_name(device)), **experiment.provenance()}
        self._renewed = time.monotonic()

    def start(self, members: Sequence[str]) -> list[Member]:
        """Claim trials and load their checkpoints; a trial whose data cannot be made is stored as failed."""
        ours = self.store.claim(list(members))
        for name in set(members) - set(ours):
            self.board.taken_elsewhere(name)
        found = self.reload(ours)
        for name, job in found:
            if job.moments is not None:
                self.board.resumed(name, job.moments.step)
        return found

    def reload(self, members: Sequence[str]) -> list[Member]:
        """Load the checkpoints of trials that are already claimed."""
        saved = self.store.load_checkpoints(members)
        found: list[Member] = []
        for name in members:
            try:
                moments = None
                if name in saved:
                    step, arrays = saved[name]
                    moments = Moments.of(step, arrays, self.store.curve(name))
                found.append((name, self.experiment.job(name, moments)))
            except Exception as error:  # one bad trial never ends a sweep
                self.ended([_failure(name, error)])
        return found

    def refused(self, member: str, error: Exception) -> None:
        """Store a trial that cannot be made as failed, unless another process has it."""
        if self.store.claim([member]):
            self.ended([_failure(member, error)])

    def steps(self, member: str, step: int) -> None:
        """Report a trial's progress, and renew the lease regularly, even during a long polish."""
        self.board.steps(member, step)
        if time.monotonic() - self._renewed > RENEW_SECONDS:
            self._renewed = time.monotonic()
            self.store.renew()

    def saved(self, snapshots: Sequence[tuple[str, Moments]]) -> None:
        """Store checkpoints, those of a stack in one commit; a trial that another process took over is left to it."""
        self.store.checkpoint_many([Snapshot(name, m.step, m.arrays(), m.curve) for name, m in snapshots])

    def ended(self, endings: Sequence[Ending]) -> None:
        """Store outcomes and final arrays in one commit, so that no kill can come between them."""
        outcomes = [self._outcome(ending) for ending in endings]
        self.store.finish_many(outcomes)
        for outcome in outcomes:
            self.board.ended(outcome.hash, outcome.state, outcome.metrics)

    def _outcome(self, ending: Ending) -> Outcome:
        if isinstance(ending.outcome, str):
            return Outcome(ending.name, "failed", provenance=self._provenance, error=ending.outcome)
        metrics: dict[str, Any] = {**ending.outcome.data(), **ending.measured}
        origin = {**self._provenance, "seconds": metrics.pop("seconds")}
        curve = [(int(step), float(error)) for step, error in metrics.pop("curve")]
        state = metrics.pop("state")
        arrays = self.experiment.final_arrays(ending)
        return Outcome(ending.name, state, metrics, origin, curve, step=ending.outcome.steps, arrays=arrays)


def _failure(name: str, error: Exception) -> Ending:
    return Ending(name, Failure.of(error).line)
