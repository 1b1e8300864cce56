"""Trains what the advisor asks for, keeps every trial at its best validation point, and keeps the deadline.

A trial that the deadline cuts off counts with its best point so far. On a CPU each core takes a trial; on a GPU all
trials of a request are one stack, or a few side by side. A stack of ordinary size is trained in plain PyTorch: its
kernels would take longer to compile than they save. Which way it goes depends on its size alone, never on a clock, so
that the same question has the same answer (to rounding, where memory is short and a stack is halved).
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headcount.advisor.data import Material
from headcount.advisor.measures import Judge, Path, measured, predicted, stacked_path
from headcount.advisor.split import MOST_VALIDATION, Split
from headcount.analysis.words import heads_text
from headcount.core import HeadcountError, cores, together
from headcount.models.transformer import Flat, ModelSpec, Transformer
from headcount.sweeps import ModelOptions, lacks_memory
from headcount.training import (
    Dataset,
    Job,
    Part,
    StackTrainer,
    Stepper,
    Stopped,
    TrainSpec,
    find_device,
    keys,
    single_threaded_blas,
    stacked_indices,
    torch_threads,
    trial_of,
)

BATCH = 128
EVALUATIONS = 24
PLAIN_STEP, PLAIN_RUN = 2.5e8, 1e12
"""Numbers that a stack makes of its tokens, in a step and in a run, up to which it does without kernels.

On an H200 that is a run of 25 s, half of which kernels would save; to compile them takes 12 s. A step fills some 4 GB.
"""


@dataclass(frozen=True, eq=False)
class Wanted:
    """One trial that is asked for."""

    heads: int
    seed: int
    options: ModelOptions
    train: TrainSpec
    tag: str = "heads"
    """Which curve it belongs to: heads, width, parameters, pilot, length."""
    fold: int = 0
    """Which of the folds of its seed is held back, where there are several."""


class Parts(NamedTuple):
    """The sequences of one split, where trials are measured."""

    data: Dataset
    unseen: Part
    some: Part
    """Some of those that are trained on."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """One trained model at its best validation point, or one model a fold at the best point of all of them."""

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
    fold_errors: tuple[float, ...] = ()
    """In folds: the error of every model on what it held back, at the common best point."""
    path: Path | None = None
    """What a single fold measured at every evaluation, until the folds are put together."""

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
    halt: threading.Event = field(default_factory=threading.Event)
    """Ends what is being trained on a GPU at its next evaluation."""
    interrupted: bool = False
    """Whether Ctrl-C was pressed: from then on nothing is trained, as after the deadline."""

    def __post_init__(self) -> None:
        self.where = find_device(self.device)
        self.workers = self.workers or cores()
        self.largest, self.compiled = 1, False
        self._placing = threading.Lock()
        self.use(self.material)

    def use(self, material: Material) -> None:
        """Train on other data from now on."""
        self.material, self.folds = material, material.splits.folds
        self._parts: dict[int, Parts] = {}
        self.whole = self._place(material.whole)

    def _place(self, part: Part) -> Part:
        """Put a part where trials are measured."""
        mask = None if part.mask is None else part.mask.to(self.where)
        return Part(part.X.to(self.where), part.y.to(self.where), mask)

    def split(self, wanted: Wanted) -> Split:
        """Return what a trial trains on and what validates it."""
        return self.material.splits.of(wanted.seed)[wanted.fold]

    def parts(self, wanted: Wanted) -> Parts:
        """Return the sequences of a trial's split."""
        split = self.split(wanted)
        with self._placing:
            if id(split) not in self._parts:
                data = self.material.dataset(split)
                rows = torch.from_numpy(split.train[:MOST_VALIDATION]).to(self.where)
                self._parts[id(split)] = Parts(data, self._place(data.validation), self.whole.rows(rows))
            return self._parts[id(split)]

    @property
    def gpu(self) -> bool:
        """Whether trials are stacked on a GPU."""
        return self.where.type == "cuda"

    def left(self) -> float:
        """Seconds to the deadline."""
        return 0.0 if self.halt.is_set() else self.deadline - time.monotonic()

    def interrupt(self) -> None:
        """Take note of Ctrl-C, and train no more; raise KeyboardInterrupt the second time."""
        if self.interrupted:
            raise KeyboardInterrupt
        self.interrupted = True
        self.halt.set()

    def sized(self, wanted: Wanted) -> ModelSpec:
        """Return the whole spec of a trial's model."""
        task = self.material.task
        return wanted.options.model(heads=wanted.heads, dim=task.dim, length=task.length, out_dim=task.out_dim)

    def train(self, wanted: Sequence[Wanted]) -> list[Outcome]:
        """Train all that is asked for, the large models first; what had no time for a first evaluation is left out."""
        if not wanted or self.left() <= 0:
            return []
        return self._in_folds(sorted(wanted, key=lambda w: (w.seed, -w.heads)), self._train)

    def _in_folds(self, order: Sequence[Wanted], how: Callable[[Sequence[Wanted]], list[Outcome]]) -> list[Outcome]:
        """Train a model a fold for every trial, and put them together."""
        if self.folds == 1:
            return how(order)
        parts = [replace(one, fold=fold) for one in order for fold in range(len(self.material.splits.of(one.seed)))]
        parent = {id(part): n for part, n in zip(parts, _owners(order, self.material), strict=True)}
        found: dict[int, list[Outcome]] = {}
        for one in how(parts):
            found.setdefault(parent[id(one.wanted)], []).append(one)
        whole = [self._together(order[n], found[n]) for n in sorted(found)]
        return [one for one in whole if one is not None]

    def _together(self, wanted: Wanted, parts: Sequence[Outcome]) -> Outcome | None:
        """Put the folds of a trial together at the evaluation that is best for all; None where one is missing."""
        splits = self.material.splits
        if len(parts) < len(splits.of(wanted.seed)):
            return None
        rows = splits.validated
        paths = [one.path for one in parts if one.path is not None]
        count = min(len(path.squares) for path in paths)
        squares, wrong, times = np.zeros((count, len(rows))), np.zeros((count, len(rows))), np.zeros(len(rows))
        for one, path in zip(parts, paths, strict=True):
            at = np.searchsorted(rows, self.split(one.wanted).validation)
            squares[:, at] += path.squares[:count]
            wrong[:, at] += 0 if path.wrong is None else path.wrong[:count]
            times[at] += 1
        squares, wrong = squares / times, wrong / times
        errors = squares.mean(1)
        at, best = int(errors.argmin()), min(parts, key=lambda one: one.validation)
        return replace(
            best, wanted=wanted, path=None, fold_errors=tuple(float(path.squares[at].mean()) for path in paths),
            steps=min(one.steps for one in parts),
            whole=all(one.whole for one in parts), seconds=sum(one.seconds for one in parts),
            curve=[(step, float(error)) for (step, _), error in zip(parts[0].curve, errors, strict=False)],
            validation=float(errors[at]), squares=squares[at].astype(np.float32),
            wrong=None if best.wrong is None else float(wrong[at].mean()),
            train=float(np.mean([one.train for one in parts])), fitted=float(np.mean([one.fitted for one in parts])),
        )  # fmt: skip

    def _train(self, order: Sequence[Wanted]) -> list[Outcome]:
        if not self.gpu:
            return self._on_cores(order)
        if not self.compiled:  # what is compiled serves smaller stacks as well
            step = self._numbers(order)
            self.compiled = step > PLAIN_STEP or step * order[0].train.steps > PLAIN_RUN
        return self._finished(self._stacked(order, plain=not self.compiled))

    def try_out(self, wanted: Sequence[Wanted]) -> list[Outcome]:
        """Train a few models, in this order, that need not be of one kind; on a GPU without kernels to be compiled."""
        if not wanted or self.left() <= 0:
            return []
        return self._in_folds(wanted, self._try_out)

    def _try_out(self, wanted: Sequence[Wanted]) -> list[Outcome]:
        if not self.gpu:
            return self._on_cores(wanted)
        kinds: dict[tuple[object, ...], list[Wanted]] = {}
        for one in wanted:  # of different curves the sizes differ most, and a stack has the largest of all
            kinds.setdefault((one.options.positions, one.train, one.tag), []).append(one)
        stacks = list(kinds.values())
        found = together(
            [partial(self._stacked, alike, plain=True) for alike in stacks],
            threads=sum(map(self._numbers, stacks)) <= PLAIN_STEP, halt=self.halt.set,
        )  # fmt: skip
        return self._finished([one for some in found for one in some])

    def _numbers(self, order: Sequence[Wanted]) -> float:
        """How many numbers a stack makes of its tokens in one step; padding counts."""
        models, batch = [self.sized(w) for w in order], order[0].train.batch
        each = max(m.hidden for m in models) + max(m.heads for m in models)
        return float(len(models) * batch * models[0].length * each)

    def _finished(self, found: list[Outcome]) -> list[Outcome]:
        """Tell of trials that were trained side by side."""
        for one in found:
            self.told(one.seconds)
        return found

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
        some = self.whole
        trainer = StackTrainer([model], [train], [0], some.X, some.y, some.mask, plain=True)
        times: list[float] = []
        for _ in range(3):
            trainer.wait()
            start = time.perf_counter()
            trainer.run(steps)
            times.append(time.perf_counter() - start)
        return min(times) / steps

    def _job(self, wanted: Wanted) -> Job:
        return Job(self.material.task, self.sized(wanted), wanted.train, wanted.seed, self.parts(wanted).data)

    def _on_cores(self, order: Sequence[Wanted]) -> list[Outcome]:
        """A trial a core, in threads; a timer stops them all at the deadline."""
        stop, done = threading.Event(), queue.SimpleQueue[tuple[Wanted, Outcome | Exception | None]]()
        trained: list[Outcome] = []  # beside the queue: Ctrl-C may come when an outcome has left it

        def work(wanted: Wanted) -> None:
            try:
                outcome = None if stop.is_set() else self._trial(wanted, stop)
                trained.extend([] if outcome is None else [outcome])
                done.put((wanted, outcome))
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
            except KeyboardInterrupt:
                stop.set()
                self.interrupt()
                pool.shutdown(cancel_futures=True)
                found = trained  # what was trained so far counts, as at the deadline
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
        trial, parts = trial_of(self._job(wanted)), self.parts(wanted)
        best: list[Any] = [float("inf"), None, 0]
        measures: list[tuple[NDArray[np.float32], NDArray[np.bool_] | None]] = []

        def on_step(step: int, error: float | None) -> None:
            del step
            curve = trial.moments.curve
            if error is not None and len(curve) > best[2]:
                best[2] = len(curve)
                if self.folds > 1:
                    network = Flat.of(trial.model).unpack(trial.moments.theta)
                    measures.append(self._measured(predicted(network, parts.unseen), parts.unseen))
                if curve[-1][1] < best[0]:
                    best[0], best[1] = curve[-1][1], trial.moments.theta.copy()

        with torch_threads(1):
            state = _run(trial, on_step, stop)
        if best[1] is None:
            if state == "diverged":
                raise HeadcountError(self._beyond())
            return None
        now, flat = trial.moments, Flat.of(trial.model)
        network, last = flat.unpack(best[1]), flat.unpack(now.theta)
        outputs = predicted(network, parts.unseen), predicted(network, parts.some), predicted(last, parts.some)
        found = self._outcome(wanted, trial.model, best[1], now.curve, now.step, state == "done", start, outputs)
        return found if self.folds == 1 else replace(found, path=stacked_path(measures))

    def _outcome(
        self, wanted: Wanted, model: ModelSpec, theta: NDArray[Any], curve: list[tuple[int, float]], steps: int,
        whole: bool, start: float, outputs: Sequence[NDArray[np.float64]],
    ) -> Outcome:  # fmt: skip
        """Measure a model by its outputs at the best point, on unseen and on known sequences, and at the end."""
        unseen, some, last = outputs
        parts = self.parts(wanted)
        squares, wrong = self._measured(unseen, parts.unseen)
        train, fitted = (float(measured(found, parts.some)[0].mean()) for found in (some, last))
        return Outcome(
            wanted, model, theta, list(curve), steps, whole, time.perf_counter() - start, float(squares.mean()),
            train, squares, None if wrong is None else float(wrong.mean()), Flat.of(model).size, fitted,
        )  # fmt: skip

    def _measured(
        self, outputs: NDArray[np.float64], part: Part
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_] | None]:
        """Return squared errors and wrong classes; in folds the unit is the variance over all of them."""
        squares, wrong = measured(outputs, part, None if self.folds == 1 else self.material.variance)
        return squares, wrong if self.material.classes is not None else None

    def _beyond(self) -> str:
        """Why a trial counts for nothing that diverged before its first evaluation."""
        return f"errors beyond all bounds on the {self.material.validation_size} sequences that validate"

    def _stacked(self, order: Sequence[Wanted], *, plain: bool = False) -> list[Outcome]:
        """All trials of a request as one stack on the GPU, or as two halves where memory has no room for it."""
        try:
            return self._stack(order, plain=plain)
        except RuntimeError as error:
            if not lacks_memory(error):
                raise
        if len(order) == 1:
            self.failures.append(f"{heads_text(order[0].heads)}: one model does not fit into the GPU's memory")
            return []
        half = len(order) // 2  # from here, where the error no longer holds on to what it had taken
        return [one for part in (order[:half], order[half:]) for one in self._stacked(part, plain=plain)]

    def _stack(self, order: Sequence[Wanted], *, plain: bool) -> list[Outcome]:
        """All trials of a request as one stack; recipes differ in nothing but seeds and model sizes."""
        start, spec = time.perf_counter(), order[0].train
        if any(w.train != spec or w.options.positions != order[0].options.positions for w in order):
            raise HeadcountError("a stack needs one recipe")
        padded = order
        if not plain:
            # kernels are compiled for the largest model of a stack: one as large as ever keeps those of the first
            self.largest = max(self.largest, *(w.heads for w in order))
            if all(w.heads < self.largest for w in order):
                padded = [*order, replace(order[0], heads=self.largest)]
        models, whole = [self.sized(w) for w in padded], self.whole
        rows, counts = self._rows(padded)

        def batches(first: int, count: int) -> Tensor:
            """The same numbers as on a core, of rows that differ from fold to fold."""
            index = stacked_indices(keys_of, first, count, spec.batch, counts)
            return rows.expand(count, -1, -1).gather(2, index)

        keys_of = torch.from_numpy(keys([w.seed for w in padded], "batches")).to(self.where)
        trainer = StackTrainer(
            models, [spec] * len(padded), [w.seed for w in padded], whole.X, whole.y, whole.mask, plain=plain,
            batches=batches,
        )  # fmt: skip
        judge = Judge(self, padded)
        every = max(1, -(-spec.steps // spec.evaluations))
        curves: list[list[tuple[int, float]]] = [[] for _ in padded]
        least = torch.full((len(padded),), torch.inf, dtype=torch.float64, device=self.where)
        best = trainer.theta.clone()
        while trainer.steps < spec.steps and (self.left() > 0 or trainer.steps == 0):
            trainer.run(min(every, spec.steps - trainer.steps))
            errors = judge.errors(trainer)
            trainer.wait()
            trainer.alive.logical_and_(errors <= spec.diverged_above)  # NaN fails every comparison; it stays as it is
            better = trainer.alive & (errors < least)
            least, best = torch.where(better, errors, least), torch.where(better[:, None], trainer.theta, best)
            for curve, error, goes_on in zip(curves, errors.tolist(), trainer.alive.tolist(), strict=True):
                if goes_on:
                    curve.append((trainer.steps, error))
        spent = (time.perf_counter() - start) / len(order)
        taken, done = trainer.taken.tolist(), (trainer.alive & (trainer.taken == spec.steps)).tolist()
        outputs = judge.outputs(trainer, best)
        found: list[Outcome] = []
        for m, (wanted, theta) in enumerate(zip(order, trainer.own(best), strict=False)):
            if curves[m]:
                begun = time.perf_counter() - spent
                one = self._outcome(wanted, models[m], theta, curves[m], taken[m], done[m], begun, outputs[m])
                found.append(one if self.folds == 1 else replace(one, path=judge.path(m, len(curves[m]))))
            else:
                self.failures.append(f"{heads_text(wanted.heads)}: {self._beyond()}")
        return found

    def _rows(self, order: Sequence[Wanted]) -> tuple[Tensor, Tensor]:
        """Return the rows that each model trains on, padded to equal length, and how many there are."""
        rows = [torch.from_numpy(self.split(one).train) for one in order]
        counts = torch.tensor([[len(some)] for some in rows], device=self.where)
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).to(self.where)[None], counts


def _owners(order: Sequence[Wanted], material: Material) -> list[int]:
    """Return for every fold of every trial the number of the trial."""
    return [n for n, one in enumerate(order) for _ in material.splits.of(one.seed)]


def _run(trial: Stepper, on_step: Callable[[int, float | None], None], stop: threading.Event) -> str:
    try:
        return trial.run(on_step, stop)
    except Stopped:
        return "stopped"
