"""A sweep on a store: finished trials are not trained again, interrupted ones go on from their checkpoint.

The caller's thread alone talks to the store; worker threads train, one trial a core, and send messages. A trial is
claimed when a core is free for it, so that several processes may work on one store. Ctrl-C and `seconds` stop it
cleanly: each running trial leaves a checkpoint. A trial that fails is kept as failed and ends nothing but itself.
"""

from __future__ import annotations

import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from headcount.base.progress import Progress
from headcount.base.provenance import cores, provenance
from headcount.experiments.cpu import CpuTrial, Moments, Stopped, single_threaded_blas, start_kernels, train_fast
from headcount.experiments.data import Dataset, prepare
from headcount.experiments.memory import check_memory
from headcount.experiments.spec import SweepSpec, TrialSpec
from headcount.experiments.train import record
from headcount.models.compiled import why_plain
from headcount.store.records import Trial
from headcount.store.store import Store
from headcount.store.trials import State
from headcount.tasks.serial import parse_task

CHECKPOINT_SECONDS = 30.0


@dataclass(frozen=True)
class Saved:
    """A checkpoint that a worker hands to the store's thread."""

    step: int
    arrays: dict[str, Any]
    curve: list[tuple[int, float]]


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
    spec: SweepSpec, store: Store, *, workers: int | None = None, seconds: float | None = None, quiet: bool = False
) -> dict[State, int]:
    """Train what is left of a sweep; return how many of its trials are in which state."""
    trials = {
        t.hash(): t for p in spec.panels() for s in range(spec.seeds) for t in [p.trial(h, s) for h in spec.heads]
    }
    hashes = store.add_run(spec.name, [t.data() for t in trials.values()], about={"spec": spec.data()})
    known = dict(zip(hashes, trials.values(), strict=True))
    open_trials = [t.hash for t in store.trials(run=spec.name, states=("pending", "running")) if t.hash in known]
    # seeds first: every cell has a first result before any has a second; within a seed the long trials first
    open_trials.sort(key=lambda h: (known[h].seed, -known[h].model.length * known[h].model.heads))
    if open_trials:
        _Sweep(store, known, open_trials, workers or cores(), seconds, quiet).run()
    return store.counts(spec.name)


class _Sweep:
    """One call of `run_on_store`: the messages between the store's thread and the workers."""

    def __init__(
        self,
        store: Store,
        trials: dict[str, TrialSpec],
        left: list[str],
        workers: int,
        seconds: float | None,
        quiet: bool,
    ) -> None:
        self.store, self.trials, self.left, self.workers = store, trials, left, workers
        self.deadline = None if seconds is None else time.monotonic() + seconds
        self.quiet, self.data = quiet, _Data()
        self.said: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self.stop = threading.Event()
        self.running: dict[str, int] = {}
        self.finished = 0

    def run(self) -> None:
        """Work until nothing is left, the time is over or the caller interrupts."""
        total = sum(self.trials[h].train.steps for h in self.left)
        with Progress("training", total, quiet=self.quiet) as progress:
            start_kernels(progress, self.trials[self.left[0]].train.dtype)
            with ThreadPoolExecutor(self.workers) as pool:
                try:
                    self._fill(pool)
                    while self.running:
                        self._take(progress)
                        self._fill(pool)
                except BaseException:
                    self._drain(progress)
                    raise
        self.store.release()

    def _fill(self, pool: ThreadPoolExecutor) -> None:
        """Claim trials for the cores that are free."""
        if self.deadline is not None and time.monotonic() > self.deadline:
            self.stop.set()
        while self.left and len(self.running) < self.workers and not self.stop.is_set():
            trial = self.left.pop(0)
            if not self.store.claim([trial]):
                continue  # another process has it
            found = self.store.load_checkpoint(trial)
            curve = self.store.curve(trial) if found else []
            self.running[trial] = found[0] if found else 0
            pool.submit(self._work, trial, found, curve)

    def _take(self, progress: Progress) -> None:
        """Take in one message of a worker."""
        try:
            trial, message = self.said.get(timeout=1.0)
        except queue.Empty:
            if self.deadline is not None and time.monotonic() > self.deadline:
                self.stop.set()
            return
        if isinstance(message, Saved):
            self.store.checkpoint(trial, message.step, message.arrays, message.curve)
        elif isinstance(message, int):
            progress.advance(message - self.running[trial])
            self.running[trial] = message
        elif message is None:  # stopped: its checkpoint came before
            del self.running[trial]
        else:
            steps = self.trials[trial].train.steps
            progress.advance(steps - self.running.pop(trial), note=self._end(trial, message))

    def _end(self, trial: str, message: Trial | str) -> str:
        """Write the end of a trial and say it."""
        self.finished += 1
        if isinstance(message, str):
            self.store.fail(trial, message, provenance())
            return f"{self.finished} done; latest failed: {message}"
        measured = message.data()
        timing = {"seconds": measured.pop("seconds")}
        curve = [(int(step), float(error)) for step, error in measured.pop("curve")]
        measured.pop("state")
        self.store.finish(trial, message.state, measured, {**provenance(), **timing}, curve)
        error = "diverged" if message.nmse is None else f"error {message.nmse:.1e}"
        return f"{self.finished} done, {len(self.left) + len(self.running)} to go; latest: h = {message.heads}, {error}"

    def _drain(self, progress: Progress) -> None:
        """After an interrupt: let the workers leave their checkpoints, and keep them."""
        self.stop.set()
        while self.running:
            self._take(progress)
        self.store.release()

    def _work(self, trial: str, found: tuple[int, Any] | None, curve: list[tuple[int, float]]) -> None:
        """Train one trial; whatever happens, one last message says how it ended."""
        try:
            self.said.put((trial, self._train(trial, found, curve)))
        except Stopped:
            self.said.put((trial, None))
        except Exception as error:  # one bad trial never ends a sweep: it is kept as failed, with its reason
            self.said.put((trial, f"{type(error).__name__}: {error}"))

    def _train(self, trial: str, found: tuple[int, Any] | None, curve: list[tuple[int, float]]) -> Trial:
        spec = self.trials[trial]
        check_memory(spec.model, spec.train)
        task = parse_task(spec.task)
        data = self.data.of(spec, task)
        if why_plain(spec.model) is not None:  # the plain loop keeps no checkpoints: it starts again
            done = train_fast(
                task, spec.model, spec.train, seed=spec.seed, data=data, on_step=lambda s, _: self.said.put((trial, s))
            )
            return done.trial
        moments = None
        if found is not None:
            arrays = found[1]
            moments = Moments(
                arrays["theta"], arrays["first"], arrays["second"], found[0], [p for p in curve if p[0] <= found[0]]
            )
        runner = CpuTrial(task, spec.model, spec.train, spec.seed, data, moments)
        start = last = time.perf_counter()

        def saved() -> Saved:
            m = runner.moments
            arrays = {"theta": m.theta.copy(), "first": m.first.copy(), "second": m.second.copy()}
            return Saved(m.step, arrays, list(m.curve))

        def on_step(step: int, _: float | None) -> None:
            nonlocal last
            if time.perf_counter() - last > CHECKPOINT_SECONDS and step < spec.train.steps:
                last = time.perf_counter()
                self.said.put((trial, saved()))
            self.said.put((trial, step))

        with single_threaded_blas():
            try:
                state = runner.run(on_step, self.stop)
            except Stopped:
                if runner.moments.step > 0:
                    self.said.put((trial, saved()))
                raise
            train_error = runner.nmse(data.train) if state == "done" else None
        model = runner.flat.unpack(runner.moments.theta)
        m = runner.moments
        return record(model, train_error, spec.seed, state, m.curve, m.step, time.perf_counter() - start)
