"""Trains what the advisor asks for, keeps every trial at its best validation point, and keeps the deadline.

A trial that the deadline cuts off counts with its best point so far. On a CPU each core takes a trial; on a GPU all
trials of a request are one stack.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headcount.advice.advisor_data import MOST_VALIDATION, Material
from headcount.analysis.wording import heads_text
from headcount.base.errors import HeadcountError
from headcount.base.provenance import cores
from headcount.experiments.cpu import Stepper, Stopped, single_threaded_blas, torch_threads, trial_of
from headcount.experiments.data import Part
from headcount.experiments.devices import find_device
from headcount.experiments.spec import ModelOptions, TrainSpec
from headcount.experiments.stack import StackTrainer
from headcount.experiments.stacking import Job
from headcount.models.flat import Flat
from headcount.models.reference import Transformer
from headcount.models.spec import ModelSpec

BATCH = 128
EVALUATIONS = 24
CHUNK = 2048


@dataclass(frozen=True, eq=False)
class Wanted:
    """One trial that is asked for."""

    heads: int
    seed: int
    options: ModelOptions
    train: TrainSpec
    tag: str = "heads"
    """Which curve it belongs to: heads, width, parameters, pilot, length."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """One trained model at its best validation point."""

    wanted: Wanted
    model: ModelSpec
    theta: NDArray[Any]
    curve: list[tuple[int, float]]
    steps: int
    whole: bool
    """Whether all steps were taken, or the deadline or a divergence cut it off."""
    seconds: float
    validation: float
    """NMSE at the best point."""
    train: float
    squares: NDArray[np.float32]
    """[validation samples]: squared error in units of the variance; their mean is `validation`."""
    wrong: float | None
    """The share of wrong classes on the validation set."""
    parameters: int = 0
    fitted: float = float("nan")
    """The training error at the end of training, where `train` is the one at the best validation point."""

    @property
    def heads(self) -> int:
        """The head count."""
        return self.wanted.heads

    def network(self) -> Transformer:
        """Return the model itself."""
        return Flat.of(self.model).unpack(self.theta)


@dataclass
class Engine:
    """Where and until when trials are trained."""

    material: Material
    device: str = "cpu"
    deadline: float = float("inf")
    workers: int = 0
    told: Callable[[float], None] = lambda _: None
    """Called with the seconds of work that were done on one core."""
    failures: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self.where = find_device(self.device)
        self.workers = self.workers or cores()
        self.largest = 1
        self.known, self.unseen = (self._place(p) for p in (self.material.data.train, self.material.data.validation))
        self.some = self.known.rows(torch.arange(min(len(self.known.X), MOST_VALIDATION), device=self.where))

    def _place(self, part: Part) -> Part:
        """Put a part where trials are measured."""
        mask = None if part.mask is None else part.mask.to(self.where)
        return Part(part.X.to(self.where), part.y.to(self.where), mask)

    @property
    def gpu(self) -> bool:
        """Whether trials are stacked on a GPU."""
        return self.where.type == "cuda"

    def left(self) -> float:
        """Seconds to the deadline."""
        return self.deadline - time.monotonic()

    def sized(self, wanted: Wanted) -> ModelSpec:
        """Return the whole spec of a trial's model."""
        task = self.material.task
        return wanted.options.model(heads=wanted.heads, dim=task.dim, length=task.length, out_dim=task.out_dim)

    def train(self, wanted: Sequence[Wanted]) -> list[Outcome]:
        """Train all that is asked for, the large models first; what had no time for a first evaluation is left out."""
        if not wanted or self.left() <= 0:
            return []
        order = sorted(wanted, key=lambda w: (w.seed, -w.heads))
        return self._stacked(order) if self.gpu else self._on_cores(order)

    def try_out(self, wanted: Sequence[Wanted]) -> list[Outcome]:
        """Train a few models, in this order, that need not be of one kind; on a GPU without kernels to be compiled."""
        if not self.gpu:
            return self._on_cores(wanted) if wanted and self.left() > 0 else []
        kinds: dict[tuple[str, TrainSpec], list[Wanted]] = {}
        for one in wanted:
            kinds.setdefault((one.options.positions, one.train), []).append(one)
        return [one for alike in kinds.values() if self.left() > 0 for one in self._stacked(alike, plain=True)]

    def step_seconds(self, options: ModelOptions, heads: int, train: TrainSpec, steps: int = 20) -> float:
        """Measure a step on one core, or on the GPU: the fastest of a few short runs; on a core others do not count."""
        if self.gpu:
            return self._gpu_step_seconds(self.sized(Wanted(heads, 0, options, train)), train, steps)
        trial = trial_of(self._job(Wanted(heads, 0, options, train)))
        times: list[float] = []
        with single_threaded_blas(), torch_threads(1):
            start = time.thread_time()
            trial.advance(1)
            steps = max(1, min(steps, int(0.1 / max(time.thread_time() - start, 1e-6))))
            for _ in range(5 if steps > 1 else 1):
                start = time.thread_time()
                trial.advance(steps)
                times.append(time.thread_time() - start)
        return min(times) / steps

    def _gpu_step_seconds(self, model: ModelSpec, train: TrainSpec, steps: int) -> float:
        known = self.known
        trainer = StackTrainer([model], [train], [0], known.X, known.y, known.mask, plain=True)
        times: list[float] = []
        for _ in range(5):
            trainer.wait()
            start = time.perf_counter()
            trainer.run(steps)
            times.append(time.perf_counter() - start)
        return min(times) / steps

    def _job(self, wanted: Wanted) -> Job:
        return Job(self.material.task, self.sized(wanted), wanted.train, wanted.seed, self.material.data)

    def _on_cores(self, order: Sequence[Wanted]) -> list[Outcome]:
        """A trial a core, in threads; a timer stops them all at the deadline."""
        stop, done = threading.Event(), queue.SimpleQueue[tuple[Wanted, Outcome | Exception | None]]()

        def work(wanted: Wanted) -> None:
            try:
                done.put((wanted, None if stop.is_set() else self._trial(wanted, stop)))
            except Exception as error:  # one bad trial never ends the search
                done.put((wanted, error))

        timer = threading.Timer(min(max(self.left(), 0.01), threading.TIMEOUT_MAX), stop.set)
        timer.daemon = True
        found: list[Outcome] = []
        with single_threaded_blas(), ThreadPoolExecutor(min(self.workers, len(order))) as pool:
            timer.start()
            try:
                for wanted in order:
                    pool.submit(work, wanted)
                for _ in order:
                    wanted, outcome = done.get()
                    if isinstance(outcome, Exception):
                        kind = "" if isinstance(outcome, HeadcountError) else f"{type(outcome).__name__}: "
                        self.failures.append(f"{heads_text(wanted.heads)}: {kind}{outcome}")
                    elif outcome is not None:
                        found.append(outcome)
                        self.told(outcome.seconds)
            except BaseException:
                stop.set()
                pool.shutdown(cancel_futures=True)
                raise
            finally:
                timer.cancel()
        place = {id(wanted): n for n, wanted in enumerate(order)}
        return sorted(found, key=lambda one: place[id(one.wanted)])

    def _trial(self, wanted: Wanted, stop: threading.Event) -> Outcome | None:
        """Train one model, keeping the weights of the best evaluation."""
        start = time.perf_counter()
        trial = trial_of(self._job(wanted))
        best: list[Any] = [float("inf"), None, 0]

        def on_step(step: int, error: float | None) -> None:
            del step
            curve = trial.moments.curve
            if error is not None and len(curve) > best[2]:
                best[2] = len(curve)
                if curve[-1][1] < best[0]:
                    best[0], best[1] = curve[-1][1], trial.moments.theta.copy()

        with torch_threads(1):
            state = _run(trial, on_step, stop)
        if best[1] is None:
            if state == "diverged":
                raise HeadcountError(self._beyond())
            return None
        now = trial.moments
        one = self._outcome(wanted, trial.model, best[1], now.curve, now.step, state == "done", start)
        return replace(one, fitted=self._fitted(trial.model, now.theta))

    def _outcome(
        self, wanted: Wanted, model: ModelSpec, theta: NDArray[Any], curve: list[tuple[int, float]], steps: int,
        whole: bool, start: float,
    ) -> Outcome:  # fmt: skip
        """Measure a model on both parts."""
        network = Flat.of(model).unpack(theta)
        squares, wrong = measured(network, self.unseen, self.material.classes is not None)
        train, _ = measured(network, self.some, False)
        return Outcome(
            wanted, model, theta, list(curve), steps, whole, time.perf_counter() - start, float(squares.mean()),
            float(train.mean()), squares, wrong, network.counts()["total"],
        )  # fmt: skip

    def _beyond(self) -> str:
        """Why a trial counts for nothing that diverged before its first evaluation."""
        return f"errors beyond all bounds on the {self.material.validation_size} sequences that validate"

    def _fitted(self, model: ModelSpec, theta: NDArray[Any]) -> float:
        """Return the training error of some weights."""
        return float(measured(Flat.of(model).unpack(theta), self.some, False)[0].mean())

    def _stacked(self, order: Sequence[Wanted], *, plain: bool = False) -> list[Outcome]:
        """All trials of a request as one stack on the GPU; recipes differ in nothing but seeds and model sizes."""
        start, spec = time.perf_counter(), order[0].train
        if any(w.train != spec or w.options.positions != order[0].options.positions for w in order):
            raise HeadcountError("a stack needs one recipe")
        padded = order
        if not plain:
            # kernels are compiled for the largest model of a stack: one as large as ever keeps those of the first
            self.largest = max(self.largest, *(w.heads for w in order))
            if all(w.heads < self.largest for w in order):
                padded = [*order, replace(order[0], heads=self.largest)]
        train, unseen = self.known, self.unseen
        models = [self.sized(w) for w in padded]
        trainer = StackTrainer(
            models, [spec] * len(padded), [w.seed for w in padded], train.X, train.y, train.mask, plain=plain
        )
        every = max(1, -(-spec.steps // spec.evaluations))
        curves: list[list[tuple[int, float]]] = [[] for _ in padded]
        best: list[tuple[float, NDArray[Any] | None]] = [(float("inf"), None) for _ in padded]
        moments = trainer.moments()
        while trainer.steps < spec.steps and (self.left() > 0 or trainer.steps == 0):
            trainer.run(min(every, spec.steps - trainer.steps))
            errors = trainer.nmse(unseen.X, unseen.y, unseen.mask)
            trainer.wait()
            moments = trainer.moments()
            for m, error in enumerate(errors.tolist()):
                if not error <= spec.diverged_above:  # NaN fails every comparison
                    continue
                curves[m].append((trainer.steps, error))
                if error < best[m][0]:
                    best[m] = error, moments[m].theta.copy()
        whole, spent = trainer.steps == spec.steps, (time.perf_counter() - start) / len(order)
        found: list[Outcome] = []
        for wanted, model, curve, (_, theta), last in zip(order, models, curves, best, moments, strict=False):
            if theta is None:
                self.failures.append(f"{heads_text(wanted.heads)}: {self._beyond()}")
            else:
                begun = time.perf_counter() - spent
                one = self._outcome(wanted, model, theta, curve, trainer.steps, whole, begun)
                found.append(replace(one, fitted=self._fitted(model, last.theta)))
                self.told(spent)
        return found


def _run(trial: Stepper, on_step: Callable[[int, float | None], None], stop: threading.Event) -> str:
    try:
        return trial.run(on_step, stop)
    except Stopped:
        return "stopped"


@torch.no_grad()
def predicted(network: Transformer, part: Part) -> NDArray[np.float64]:
    """Return the outputs [samples, out] in the units of training, computed where the part lies."""
    network = network.to(part.X.device)
    outputs = [
        network(part.X[i : i + CHUNK], None if part.mask is None else part.mask[i : i + CHUNK])
        for i in range(0, len(part.X), CHUNK)
    ]
    return torch.cat(outputs).double().cpu().numpy()


def measured(network: Transformer, part: Part, classes: bool) -> tuple[NDArray[np.float32], float | None]:
    """Return squared errors [samples] in units of the variance, and the share of wrong classes."""
    outputs, y = predicted(network, part), part.y.double().cpu().numpy()
    variance = float(np.square(y - y.mean(0)).sum(1).mean())
    squares = np.square(outputs - y).sum(1) / variance
    wrong = float((outputs.argmax(1) != y.argmax(1)).mean()) if classes else None
    return squares.astype(np.float32), wrong
