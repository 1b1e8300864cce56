"""A sweep on a store: finished trials are not trained again, interrupted ones go on from their checkpoint.

The caller's thread alone talks to the store. On a CPU worker threads train, one trial a core, and send messages; on a
GPU the same thread drives stacks. A trial is claimed when there is room for it, so that several processes may work on
one store. Ctrl-C and `seconds` stop it cleanly: each running trial leaves a checkpoint. A trial that fails is kept as
failed and ends nothing but itself.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import torch

from headcount.base.progress import Progress
from headcount.base.provenance import cores, provenance
from headcount.experiments.board import Board, Entry
from headcount.experiments.cpu import Stepper, Stopped, run_trial, start_kernels
from headcount.experiments.data import Dataset, prepare
from headcount.experiments.devices import device_name, find_device
from headcount.experiments.memory import check_memory
from headcount.experiments.moments import Moments
from headcount.experiments.run import cell_name
from headcount.experiments.spec import SweepSpec, TrialSpec
from headcount.experiments.stacking import Job, plan, step_cost
from headcount.experiments.stacks import Member, Stacks, free_memory
from headcount.store.checkpoints import Snapshot
from headcount.store.records import Trial
from headcount.store.store import Store
from headcount.store.trials import Outcome, State
from headcount.tasks.serial import parse_task

CHECKPOINT_SECONDS = 30.0


class _Data:
    """Data sets, made once and shared: trials of one task and recipe read the same arrays."""

    def __init__(self) -> None:
        self._made: dict[str, Dataset] = {}
        self._lock = threading.Lock()

    def of(self, spec: TrialSpec, task: Any) -> Dataset:
        t = spec.train
        key = f"{task.hash()} {t.train_size} {t.validation_size} {t.data_seed} {t.dtype}"
        with self._lock:
            if key not in self._made:
                self._made[key] = prepare(task, t)
            return self._made[key]


def run_on_store(
    spec: SweepSpec, store: Store, *, workers: int | None = None, seconds: float | None = None, quiet: bool = False,
    device: str = "cpu",
) -> dict[State, int]:  # fmt: skip
    """Train what is left of a sweep; return how many of its trials are in which state."""
    where = find_device(device)
    cells = {
        t.hash(): (t, cell_name(p.values, h))
        for p in spec.panels() for s in range(spec.seeds) for h in spec.heads for t in [p.trial(h, s)]
    }  # fmt: skip
    trials = {name: trial for name, (trial, _) in cells.items()}
    store.add_run(spec.name, [t.data() for t in trials.values()], about={"spec": spec.data()})
    left = [t.hash for t in store.trials(run=spec.name, states=("pending", "running")) if t.hash in trials]
    # seeds first: every cell has a first result before any has a second; within a seed the long trials first
    left.sort(key=lambda h: (trials[h].seed, -trials[h].model.length * trials[h].model.heads))
    entries = {
        h: Entry(cells[h][1], trials[h].train.steps, step_cost(trials[h].model, trials[h].train.batch)) for h in left
    }
    if left:
        deadline = None if seconds is None else time.monotonic() + seconds
        with Progress("training", Board.work(entries), quiet=quiet) as progress:
            sweep = _Sweep(store, trials, Board(entries, progress), deadline, where)
            if where.type == "cuda":
                sweep.on_gpu(left)
            else:
                start_kernels(progress, trials[left[0]].train.dtype, [trials[h].model for h in left])
                _Cores(sweep, left, workers or cores()).run()
    return store.counts(spec.name)


class _Sweep:
    """What both devices do with trials: take them from the store, and give back what became of them."""

    def __init__(
        self, store: Store, trials: dict[str, TrialSpec], board: Board, deadline: float | None, device: torch.device
    ) -> None:
        self.store, self.trials, self.board, self.deadline, self.device = store, trials, board, deadline, device
        self.stop = threading.Event()
        self._data = _Data()
        self._provenance = provenance(device_name(device))

    def start(self, members: Sequence[str]) -> list[Member]:
        """Claim trials and load their checkpoints; one whose data cannot be made is kept as failed."""
        found: list[Member] = []
        ours = self.store.claim(list(members))
        saved = self.store.load_checkpoints(ours)
        for name in ours:
            try:
                job = self.job(name)
            except Exception as error:
                self.ended(name, f"{type(error).__name__}: {error}")
                continue
            if name in saved:
                step, arrays = saved[name]
                job = replace(job, moments=Moments.of(step, arrays, self.store.curve(name)))
                self.board.resumed(name, step)
            found.append((name, job))
        return found

    def job(self, name: str) -> Job:
        """Return a trial with its task and data."""
        spec = self.trials[name]
        check_memory(spec.model, spec.train)
        task = parse_task(spec.task)
        return Job(task, spec.model, spec.train, spec.seed, self._data.of(spec, task))

    def steps(self, member: str, step: int) -> None:
        """Pass on how far a trial is."""
        self.board.steps(member, step)

    def saved(self, snapshots: Sequence[tuple[str, Moments]]) -> None:
        """Keep checkpoints, those of a stack in one commit; a trial that another process took over is left to it."""
        self.store.checkpoint_many([Snapshot(name, m.step, m.arrays(), m.curve) for name, m in snapshots])

    def ended(self, member: str, outcome: Trial | str) -> None:
        """Write the end of a trial."""
        if isinstance(outcome, str):
            end = Outcome(member, "failed", provenance=self._provenance, error=outcome)
        else:
            measured = outcome.data()
            where = {**self._provenance, "seconds": measured.pop("seconds")}
            curve = [(int(step), float(error)) for step, error in measured.pop("curve")]
            end = Outcome(member, measured.pop("state"), measured, where, curve)
        self.store.finish_many([end])
        self.board.ended(member, outcome)

    def stopped(self, members: Sequence[str]) -> None:
        """Trials are left for the next time; `release` gives them back."""
        del members

    def on_gpu(self, left: list[str]) -> None:
        """Plan stacks over all that is left, and train them."""
        jobs: list[Member] = []
        for name in left:
            try:
                jobs.append((name, self.job(name)))
            except Exception as error:  # one bad trial never ends a sweep
                if self.store.claim([name]):
                    self.ended(name, f"{type(error).__name__}: {error}")
        stacks = [[jobs[n][0] for n in part] for part in plan([job for _, job in jobs], free_memory(self.device))]
        try:
            Stacks(self.device, self, self.stop, save_every=CHECKPOINT_SECONDS, deadline=self.deadline).run(stacks)
        finally:
            self.store.release()


class _Cores:
    """A trial a core: worker threads train and send messages, the caller's thread takes them in."""

    def __init__(self, sweep: _Sweep, left: list[str], workers: int) -> None:
        self.sweep, self.left, self.workers = sweep, left, workers
        self.said: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self.running: set[str] = set()

    def run(self) -> None:
        """Work until nothing is left, the time is over or the caller interrupts."""
        with ThreadPoolExecutor(self.workers) as pool:
            try:
                self._fill(pool)
                while self.running:
                    self._take()
                    self._fill(pool)
            except BaseException:
                self.sweep.stop.set()  # let the workers leave their checkpoints, and keep them
                while self.running:
                    self._take()
                self.sweep.store.release()
                raise
        self.sweep.store.release()

    def _late(self) -> bool:
        if self.sweep.deadline is not None and time.monotonic() > self.sweep.deadline:
            self.sweep.stop.set()
        return self.sweep.stop.is_set()

    def _fill(self, pool: ThreadPoolExecutor) -> None:
        """Claim trials for the cores that are free."""
        while self.left and len(self.running) < self.workers and not self._late():
            for name, job in self.sweep.start([self.left.pop(0)]):  # none where another process has it
                self.running.add(name)
                pool.submit(self._work, name, job)

    def _take(self) -> None:
        """Take in one message of a worker."""
        try:
            name, message = self.said.get(timeout=1.0)
        except queue.Empty:
            self._late()
            return
        if isinstance(message, Moments):
            self.sweep.saved([(name, message)])
        elif isinstance(message, int):
            self.sweep.steps(name, message)
        else:
            self.running.discard(name)
            if message is not None:  # None: stopped, its checkpoint came before
                self.sweep.ended(name, message)

    def _work(self, name: str, job: Job) -> None:
        """Train one trial; whatever happens, one last message says how it ended."""
        trials: list[Stepper] = []
        last = time.perf_counter()

        def save() -> None:
            m = trials[0].moments
            self.said.put((name, Moments(m.theta.copy(), m.first.copy(), m.second.copy(), m.step, list(m.curve))))

        def on_step(step: int, _: float | None) -> None:
            nonlocal last
            if time.perf_counter() - last > CHECKPOINT_SECONDS and step < job.train.steps:
                last = time.perf_counter()
                save()
            self.said.put((name, step))

        try:
            _, trial = run_trial(job, on_step, self.sweep.stop, trials.append)
            if trial.state == "done":
                save()  # the trained weights stay in the store
            self.said.put((name, trial))
        except Stopped:
            if trials[0].moments.step > 0:
                save()
            self.said.put((name, None))
        except Exception as error:  # one bad trial never ends a sweep: it is kept as failed, with its reason
            self.said.put((name, f"{type(error).__name__}: {error}"))
