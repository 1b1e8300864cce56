"""The one runner: what is left of an experiment is trained, on a store or in memory, on cores or in stacks.

Finished trials are not trained again, interrupted ones go on from their checkpoint. The caller's thread alone talks to
the store: worker threads train on cores and send messages, stacks on a device are driven by this thread itself. A trial
is claimed when there is room for it, so that several processes may work on one store. Ctrl-C and `seconds` stop a run
cleanly: each running trial leaves a checkpoint. A trial that fails is kept as failed and ends nothing but itself.
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
from headcount.sweeps.backends import Terms, train_singly, train_stacks
from headcount.sweeps.engine import Compiling, Failure, Kind, Member
from headcount.sweeps.experiments import Experiment, Feeds, JobList, Sweep
from headcount.sweeps.kinds import Given, experiment_of
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
RENEW_SECONDS = 120.0  # a lease lasts for 600


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
    """Train what is left of a spec, of any kind in `kinds.py`; return how many of its trials are in which state.

    `feeds` gives the data of a panel of an experiment on real data (`MarcoSource.feeds`, `CifarSource.feeds`), and
    `weights` keeps those of its finished trials. `seconds` ends the run in time, to be gone on with by the same call.
    """
    where = find_device(device)
    experiment = experiment_of(spec, Given(where, feeds, weights))
    return run(experiment, store, where, workers=workers, seconds=seconds, quiet=quiet)


def run_sweep(spec: SweepSpec, *, workers: int | None = None, quiet: bool = False, device: str = "cpu") -> list[Run]:
    """Train all models of a spec in memory and return a record for every panel; `workers` changes no outcome."""
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
    """Train panels in memory: their tasks may be arrays and bare functions, which no spec can state."""
    start, where = time.perf_counter(), find_device(device)
    for panel in panels:
        check_task(panel.task, panel.sized(max(panel.heads)), panel.train)
    sweep, store = Sweep(name, about, panels, seeds), MemoryStore()
    sweep.make_data()
    _in_memory(sweep, store, where, workers=workers, quiet=quiet)
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
    _in_memory(experiment, store, find_device(device), workers=workers, quiet=quiet)
    found = {one.hash: as_trial(store, one) for one in store.trials(states=("done", "diverged"))}
    if len(found) < len(jobs):
        raise HeadcountError(f"{len(jobs) - len(found)} of {len(jobs)} trials failed: the log says why")
    return [found[name] for name in experiment.names]


def _in_memory(experiment: JobList, store: MemoryStore, device: torch.device, **options: Any) -> None:
    """Train an experiment that no store keeps; failures go to the log, and where nothing else is left, they end it."""
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
    """Train what is left of an experiment; return how many of its trials are in which state."""
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
            keeper = Keeper(experiment, store, Board(entries, progress, before, experiment.score), device)
            every = CHECKPOINT_SECONDS if save_every is None else save_every
            _train(experiment, keeper, left, progress, workers=workers or cores(), save_every=every, deadline=deadline)
    ended = Counter(store.states(names).values())  # of this experiment alone: a run may hold an older one's trials too
    return {state: ended[state] for state in STATES}


def _figures_before(experiment: Experiment, store: TrialStore, names: Sequence[str]) -> dict[str, list[float | None]]:
    """Return the figures of trials that were finished before, by cell."""
    ours, found = set(names), dict[str, list[float | None]]()
    for trial in store.trials(run=experiment.name, states=FINISHED):
        if trial.hash in ours:
            cell, figure = experiment.entry(trial.hash).cell, experiment.score.figure(trial.metrics or {})
            found.setdefault(cell, []).append(figure)
    return found


def _train(
    experiment: Experiment,
    keeper: Keeper,
    left: Sequence[str],
    progress: Progress,
    *,
    workers: int,
    save_every: float,
    deadline: float | None,
) -> None:
    """One trial a core, or stacks on the device; what is held is given back at the end, however it comes."""
    terms, device = Terms(threading.Event(), save_every, deadline), keeper.device

    def stacks_on_device(kind: Kind, stacks: Sequence[Sequence[str]], ahead: Compiling | None = None) -> None:
        train_stacks(kind, stacks, device, keeper, terms, ahead)

    try:
        begin = experiment.on_cores(left, progress) if device.type != "cuda" else None
        if begin is None:
            experiment.on_device(left, stacks_on_device, keeper, device)
        else:
            train_singly(begin, keeper, left, workers, terms)
    finally:
        experiment.close()
        keeper.store.release()


class Keeper:
    """The one listener: takes trials from the store, and gives back what became of them."""

    def __init__(self, experiment: Experiment, store: TrialStore, board: Board, device: torch.device) -> None:
        self.experiment, self.store, self.board, self.device = experiment, store, board, device
        self._provenance = {**provenance(device_name(device)), **experiment.provenance()}
        self._renewed = time.monotonic()

    def start(self, members: Sequence[str]) -> list[Member]:
        """Claim trials and load their checkpoints; one whose data cannot be made is kept as failed."""
        ours = self.store.claim(list(members))
        for name in set(members) - set(ours):
            self.board.elsewhere(name)
        found = self.reload(ours)
        for name, job in found:
            if job.moments is not None:
                self.board.resumed(name, job.moments.step)
        return found

    def reload(self, members: Sequence[str]) -> list[Member]:
        """Load the checkpoints of trials that are ours already."""
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
        """Keep a trial that cannot be made as failed, unless another process has it."""
        if self.store.claim([member]):
            self.ended([_failure(member, error)])

    def steps(self, member: str, step: int) -> None:
        """Pass on how far a trial is; now and then tell the store that we are alive, in a long polish too."""
        self.board.steps(member, step)
        if time.monotonic() - self._renewed > RENEW_SECONDS:
            self._renewed = time.monotonic()
            self.store.renew()

    def saved(self, snapshots: Sequence[tuple[str, Moments]]) -> None:
        """Keep checkpoints, those of a stack in one commit; a trial that another process took over is left to it."""
        self.store.checkpoint_many([Snapshot(name, m.step, m.arrays(), m.curve) for name, m in snapshots])

    def ended(self, endings: Sequence[Ending]) -> None:
        """Write the ends of trials, each with what is kept of it in the same commit: no kill can come between them."""
        outcomes = [self._outcome(one) for one in endings]
        self.store.finish_many(outcomes)
        for one in outcomes:
            self.board.ended(one.hash, one.state, one.metrics)

    def _outcome(self, one: Ending) -> Outcome:
        if isinstance(one.outcome, str):
            return Outcome(one.name, "failed", provenance=self._provenance, error=one.outcome)
        measured: dict[str, Any] = {**one.outcome.data(), **one.measured}
        where = {**self._provenance, "seconds": measured.pop("seconds")}
        curve = [(int(step), float(error)) for step, error in measured.pop("curve")]
        state = measured.pop("state")
        kept = self.experiment.kept(one)
        return Outcome(one.name, state, measured, where, curve, step=one.outcome.steps, arrays=kept)


def _failure(name: str, error: Exception) -> Ending:
    return Ending(name, Failure.of(error).line)
