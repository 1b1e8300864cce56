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
from collections import Counter, deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from headcount.core import Progress, cores, provenance
from headcount.store import FINISHED, STATES, Outcome, Snapshot, State, Store
from headcount.sweeps.engine import interrupts
from headcount.sweeps.plan import plan, step_cost
from headcount.sweeps.precompile import Ahead
from headcount.sweeps.run import cell_name, whole_steps
from headcount.sweeps.scoreboard import Board, Entry
from headcount.sweeps.spec import SweepSpec, TrialSpec
from headcount.sweeps.stacks import Ending, Member, Stacks, free_memory
from headcount.tasks import parse_task
from headcount.training import (
    Dataset,
    Job,
    Moments,
    Stepper,
    Stopped,
    check_memory,
    device_name,
    draw_inputs,
    find_device,
    prepare,
    run_trial,
    single_threaded_blas,
    start_kernels,
)

CHECKPOINT_SECONDS = 30.0
RENEW_SECONDS = 120.0  # a lease lasts for 600


class _Data:
    """Data sets, made once and shared: trials of one task and recipe read the same arrays."""

    def __init__(self) -> None:
        self._made: dict[str, Dataset] = {}
        self._drawn: dict[str, tuple[Tensor, Tensor]] = {}
        self._lock = threading.Lock()

    def of(self, spec: TrialSpec, task: Any) -> Dataset:
        t = spec.train
        sizes = f"{t.train_size} {t.validation_size} {t.data_seed} {t.dtype}"
        key, law = f"{task.hash()} {sizes}", f"{task.law!r} {task.length} {task.dim} {sizes}"
        with self._lock:
            if key not in self._made:
                if law not in self._drawn:  # targets of one family differ in y alone
                    self._drawn[law] = draw_inputs(task, t)
                self._made[key] = prepare(task, t, self._drawn[law])
            return self._made[key]


def run_on_store(
    spec: SweepSpec, store: Store, *, workers: int | None = None, seconds: float | None = None, quiet: bool = False,
    device: str = "cpu",
) -> dict[State, int]:  # fmt: skip
    """Train what is left of a sweep; return how many of its trials are in which state."""
    where = find_device(device)
    cells = {
        t.hash(): (t, cell_name(p.values, h))
        for p in spec.panels() for s in range(spec.seeds) for h in p.heads for t in [p.trial(h, s)]
    }  # fmt: skip
    trials = {name: trial for name, (trial, _) in cells.items()}
    finished = {name for name, state in store.states(trials).items() if state in FINISHED}
    for model, train in dict.fromkeys((t.model, t.train) for name, t in trials.items() if name not in finished):
        check_memory(model, train)  # before anything starts: what cannot fit is an error of the spec, not of a trial
    store.add_run(spec.name, [t.data() for t in trials.values()], about={"spec": spec.data()})
    states = store.states(trials)
    left = [name for name in trials if states.get(name) in ("pending", "running")]
    # seeds first: every cell has a first result before any has a second; within a seed the long trials first
    left.sort(key=lambda h: (trials[h].seed, -trials[h].model.length * trials[h].model.heads))
    if left:
        entries = {
            h: Entry(cells[h][1], whole_steps(trials[h].train), step_cost(trials[h].model, trials[h].train.batch))
            for h in left
        }
        before: dict[str, list[float | None]] = {}
        for trial in store.trials(run=spec.name, states=FINISHED):
            if trial.hash in cells:
                before.setdefault(cells[trial.hash][1], []).append((trial.metrics or {}).get("nmse"))
        deadline = None if seconds is None else time.monotonic() + seconds
        with Progress("training", Board.work(entries), quiet=quiet, closes=False) as progress:
            sweep = _Sweep(store, trials, Board(entries, progress, before), deadline, where)
            if where.type == "cuda":
                sweep.on_gpu(left)
            else:
                start_kernels(progress, trials[left[0]].train.dtype, [trials[h].model for h in left])
                with single_threaded_blas():
                    _Cores(sweep, left, workers or cores()).run()
    ended = Counter(store.states(trials).values())  # of this spec alone: a run may hold an older one's trials too
    return {state: ended[state] for state in STATES}


class _Sweep:
    """What both devices do with trials: take them from the store, and give back what became of them."""

    def __init__(
        self, store: Store, trials: dict[str, TrialSpec], board: Board, deadline: float | None, device: torch.device
    ) -> None:
        self.store, self.trials, self.board, self.deadline, self.device = store, trials, board, deadline, device
        self.stop = threading.Event()
        self._data = _Data()
        self._provenance = provenance(device_name(device))
        self._renewed = time.monotonic()

    def start(self, members: Sequence[str]) -> list[Member]:
        """Claim trials and load their checkpoints; one whose data cannot be made is kept as failed."""
        found: list[Member] = []
        ours = self.store.claim(list(members))
        for name in set(members) - set(ours):
            self.board.elsewhere(name)
        saved = self.store.load_checkpoints(ours)
        for name in ours:
            try:
                job = self.job(name)
            except Exception as error:
                self.ended([(name, f"{type(error).__name__}: {error}", None)])
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
        task = parse_task(spec.task)
        return Job(task, spec.model, spec.train, spec.seed, self._data.of(spec, task))

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
        """Write the ends of trials, each with its final weights in the same commit: no kill can come between them."""
        rows: list[Outcome] = []
        for name, outcome, moments in endings:
            if isinstance(outcome, str):
                rows.append(Outcome(name, "failed", provenance=self._provenance, error=outcome))
                continue
            measured = outcome.data()
            where = {**self._provenance, "seconds": measured.pop("seconds")}
            curve = [(int(step), float(error)) for step, error in measured.pop("curve")]
            state, arrays = measured.pop("state"), None if moments is None else moments.arrays()
            rows.append(Outcome(name, state, measured, where, curve, step=outcome.steps, arrays=arrays))
        self.store.finish_many(rows)
        for name, outcome, _ in endings:
            self.board.ended(name, outcome)

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
                    self.ended([(name, f"{type(error).__name__}: {error}", None)])
        parts, free = plan([job for _, job in jobs], free_memory(self.device)), free_memory(self.device)
        stacks = [[jobs[n][0] for n in part] for part in parts]
        ahead = Ahead([[jobs[n][1] for n in part] for part in parts], self.device, free)
        try:
            engine = Stacks(self.device, self, self.stop, save_every=CHECKPOINT_SECONDS, deadline=self.deadline)
            engine.run(stacks, ahead)
        finally:
            self.store.release()


class _Cores:
    """A trial a core: worker threads train and send messages, the caller's thread takes them in."""

    def __init__(self, sweep: _Sweep, left: list[str], workers: int) -> None:
        self.sweep, self.left, self.workers = sweep, deque(left), workers
        self.said: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self.running: set[str] = set()

    def run(self) -> None:
        """Work until nothing is left, the time is over or Ctrl-C comes."""
        with interrupts(self.sweep.stop) as interrupted, ThreadPoolExecutor(self.workers) as pool:
            try:
                self._fill(pool)
                while self.running:
                    self._take()
                    self._fill(pool)
            except Exception:
                self.sweep.stop.set()  # let the workers leave their checkpoints, and keep them
                while self.running:
                    self._take()
                raise
            finally:
                self.sweep.stop.set()  # after a second Ctrl-C too: the pool waits for the workers
                self.sweep.store.release()
        if interrupted():
            raise KeyboardInterrupt

    def _late(self) -> bool:
        if self.sweep.deadline is not None and time.monotonic() > self.sweep.deadline:
            self.sweep.stop.set()
        return self.sweep.stop.is_set()

    def _fill(self, pool: ThreadPoolExecutor) -> None:
        """Claim trials for the cores that are free."""
        while self.left and len(self.running) < self.workers and not self._late():
            for name, job in self.sweep.start([self.left.popleft()]):  # none where another process has it
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
                outcome, moments = message
                self.sweep.ended([(name, outcome, moments)])

    def _work(self, name: str, job: Job) -> None:
        """Train one trial; whatever happens, one last message says how it ended."""
        trials: list[Stepper] = []
        start = last = time.perf_counter()

        def now() -> Moments:
            moments = trials[0].moments.copy()
            moments.seconds += time.perf_counter() - start
            return moments

        def on_step(step: int, _: float | None) -> None:
            nonlocal last
            if time.perf_counter() - last > CHECKPOINT_SECONDS and step < job.train.steps:
                last = time.perf_counter()
                self.said.put((name, now()))
            self.said.put((name, step))

        try:
            _, trial = run_trial(job, on_step, self.sweep.stop, trials.append)
            self.said.put((name, (trial, now() if trial.state == "done" else None)))
        except Stopped:
            if trials[0].moments.step > 0:
                self.said.put((name, now()))
            self.said.put((name, None))
        except Exception as error:  # one bad trial never ends a sweep: it is kept as failed, with its reason
            self.said.put((name, (f"{type(error).__name__}: {error}", None)))
