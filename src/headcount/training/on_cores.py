"""The fast engine on a CPU: one trial per core, in compiled steps that release the GIL.

A trial runs alone on its core from the first step to the last, so the other trials of a sweep cannot change a single
bit of it. The cores work on different trials at the same time, of any shapes and lengths. Models that do not collapse
(see `models/transformer/flat.py`) use the general stacked forward in torch; the log says when this happens.
"""

from __future__ import annotations

import abc
import math
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headcount.core import Progress
from headcount.kernels import load_kernels, step_on_core
from headcount.models.transformer import (
    Compiled,
    Flat,
    ModelSpec,
    Transformer,
    collapses,
    loss_and_gradient,
    why_plain,
)
from headcount.store import FinishedState as State
from headcount.tasks import Task
from headcount.tasks.arrays import ArrayTask
from headcount.training.batches import FRESH_STEPS, batch_indices, fresh_order
from headcount.training.checkpoint import Moments
from headcount.training.data import DTYPES, Dataset, Fresh, Part
from headcount.training.job import Job
from headcount.training.lbfgs import polish
from headcount.training.loop import MULTITHREADED_MIN_WEIGHTS
from headcount.training.memory import count_weights
from headcount.training.session import OnStep, Stopped, evaluation_every
from headcount.training.spec import TrainSpec
from headcount.training.stacked import Pools, StackTrainer

WINDOW_TOKENS = 2_000_000  # most tokens of one compiled call: about a second, the granularity of progress and stopping
CHUNK_TOKENS = 500_000  # tokens evaluated at once on validation sets
_blas_lock = threading.Lock()


def single_threaded_blas() -> Any:
    """Keep BLAS on the calling core: trials occupy the others, and the order of sums must not depend on the threads."""
    from threadpoolctl import threadpool_limits

    with _blas_lock:
        return threadpool_limits(1, user_api="blas")


@contextmanager
def torch_threads(count: int) -> Generator[None]:
    """Set torch's number of threads for the calling thread, and restore it on exit."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def start_kernels(progress: Progress, dtype: str, models: Iterable[ModelSpec]) -> None:
    """Load the kernels if a model needs them, or compile them (once per machine: numba caches the result on disk)."""
    if all(why_plain(model) is not None for model in models):
        return
    notice = threading.Timer(3.0, progress.start, ["compiling the kernels: half a minute, the first time only"])
    notice.start()
    try:
        load_kernels(dtype)
    finally:
        notice.cancel()
    progress.start("")


class Stepper(abc.ABC):
    """One trial on one core: windows of steps, evaluations, divergence; subclasses implement the steps."""

    def __init__(
        self,
        task: Task | ArrayTask,
        model: ModelSpec,
        spec: TrainSpec,
        seed: int,
        data: Dataset,
        moments: Moments | None = None,
    ) -> None:
        self.task, self.model, self.spec, self.seed, self.data = task, model, spec, seed, data
        self.flat = Flat.of(model)
        if moments is None:
            theta = self.flat.pack(Transformer(model, seed=seed, dtype=DTYPES[spec.dtype]))
            moments = Moments(theta, np.zeros_like(theta), np.zeros_like(theta))
        self.moments = moments
        self.fresh = Fresh(task, data, spec) if spec.fresh and isinstance(task, Task) else None

    @abc.abstractmethod
    def advance(self, count: int) -> int:
        """Take up to `count` steps, stopping where the loss is not finite; return the number of steps taken."""

    @abc.abstractmethod
    def nmse(self, part: Part) -> float:
        """Return MSE/Var(y) over all outputs."""

    @abc.abstractmethod
    def gradient(self, theta: NDArray[Any], part: Part) -> tuple[float, NDArray[Any]]:
        """Return the loss on a set of sequences and its gradient."""

    def run_window(self, on_step: OnStep | None, stop: threading.Event | None) -> State | None:
        """Take the next steps, or polish after the last; return how the trial ended, or None if it has not."""
        spec, m = self.spec, self.moments
        if m.step == spec.steps:
            return self._finish(on_step, stop)
        if stop is not None and stop.is_set():
            raise Stopped
        every = evaluation_every(spec.steps, spec.evaluations)
        window = max(1, WINDOW_TOKENS // (spec.batch * self.task.length))
        target = min(spec.steps, (m.step // every + 1) * every, m.step + window)
        if self.fresh is not None:
            target = min(target, (m.step // FRESH_STEPS + 1) * FRESH_STEPS)
        m.step += self.advance(target - m.step)
        finite = m.step == target
        due = not spec.polish if m.step == spec.steps else m.step % every == 0
        if not finite or (due and not self._record_error(m.step)):
            return "diverged"
        if on_step is not None:
            on_step(m.step, m.curve[-1][1] if m.curve else None)
        return "done" if m.step == spec.steps and not spec.polish else None

    def _finish(self, on_step: OnStep | None, stop: threading.Event | None) -> State:
        if not self.spec.polish:
            return "done"
        self._polish(stop, on_step)
        return "done" if self._record_error(self.spec.steps + self.spec.polish) else "diverged"

    def threads(self) -> AbstractContextManager[None]:
        """Return a context that sets the number of torch threads for this trial."""
        return nullcontext()

    def close(self) -> None:  # noqa: B027
        """Release resources other than memory."""

    def _record_error(self, step: int) -> bool:
        """Append the validation error to the curve; return False if the trial has diverged."""
        error = self.nmse(self.data.validation)
        if not error <= self.spec.diverged_above:  # NaN fails every comparison
            return False
        self.moments.curve.append((step, error))
        return True

    def _polish(self, stop: threading.Event | None, on_step: Callable[[int, float | None], None] | None) -> None:
        """Run L-BFGS on the full training set; if stopped midway, a resumed trial starts it again."""
        step_equivalent, iterations = polish_steps(self.spec) / self.spec.polish, 0

        def function(theta: Tensor) -> tuple[Tensor, Tensor]:
            loss, gradient = self.gradient(theta[0].numpy(), self.data.train)
            return torch.tensor([loss], dtype=theta.dtype), torch.from_numpy(gradient)[None]

        def stopped() -> bool:
            nonlocal iterations
            if on_step is not None:
                on_step(self.spec.steps + round(iterations * step_equivalent), None)
            iterations += 1
            return stop is not None and stop.is_set()

        start = torch.from_numpy(self.moments.theta.copy())[None]
        with torch_threads(1):  # the order of sums must not depend on the caller's number of threads
            better = polish(function, start, self.spec.polish, stopped)
        if stop is not None and stop.is_set():
            raise Stopped
        self.moments.theta[:] = better[0].numpy()


class CpuTrial(Stepper):
    """One trial on the compiled kernels."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.compiled = Compiled(self.model)

    def advance(self, count: int) -> int:
        spec, m = self.spec, self.moments
        if self.fresh is not None:
            pool, start = divmod(m.step, FRESH_STEPS)
            x, y, masks = _arrays(self.fresh.at(m.step))
            index = fresh_order(self.seed, pool, spec.batch)[start : start + count]
        else:
            x, y, masks = _arrays(self.data.train)
            index = batch_indices(self.seed, m.step, count, spec.batch, len(x))
        rates = np.array([spec.rate(m.step + s) for s in range(count)])
        return self.compiled.steps(
            m.theta, m.first, m.second, x, y, masks, index, rates, m.step, spec.weight_decay, spec.optimiser == "adamw"
        )

    def nmse(self, part: Part) -> float:
        X, Y, masks = _arrays(part)
        chunk = max(1, CHUNK_TOKENS // X.shape[1])
        error = 0.0
        for start in range(0, len(X), chunk):
            rows = slice(start, start + chunk)
            mask = masks[rows] if len(masks) else masks
            y = self.compiled.predict(self.moments.theta, X[rows], mask)
            error += float(np.square(y - Y[rows], dtype=np.float64).sum())
        return error / float(np.square(Y - Y.mean(0, dtype=np.float64), dtype=np.float64).sum())

    def gradient(self, theta: NDArray[Any], part: Part) -> tuple[float, NDArray[Any]]:
        X, Y, masks = _arrays(part)
        return self.compiled.gradient(theta, X, Y, masks)


class TorchTrial(Stepper):
    """One trial that the kernels do not cover, as a stack of one model: the general stacked forward in torch."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        part = self.data.train if self.fresh is None else self.fresh.at(self.moments.step)
        y = part.y.clone() if self.fresh is not None else part.y
        X = part.X.clone() if self.fresh is not None else part.X
        pools = None if self.fresh is None else Pools([self.fresh], pinned=False)
        self.trainer = StackTrainer(self.model, [self.spec], [self.seed], X, y, part.mask, pools=pools)
        self.trainer.resume([self.moments])
        theta, first, second = (t[0].numpy() for t in (self.trainer.theta, self.trainer.first, self.trainer.second))
        self.moments.theta, self.moments.first, self.moments.second = (
            theta,
            first,
            second,
        )  # views of the stack's tensors

    def advance(self, count: int) -> int:
        self.trainer.run(count)
        return int(self.trainer.taken[0]) - self.moments.step

    def nmse(self, part: Part) -> float:
        return float(self.trainer.nmse(part.X, part.y, part.mask)[0])

    def gradient(self, theta: NDArray[Any], part: Part) -> tuple[float, NDArray[Any]]:
        loss, total = 0.0, np.zeros_like(theta)
        for rows in torch.arange(len(part.X)).split(max(1, CHUNK_TOKENS // part.X.shape[1])):
            weights, y = torch.from_numpy(theta)[None], part.y[rows][None]
            value, gradient = loss_and_gradient(self.flat, weights, part.X, rows[None], y, part.mask)
            loss += float(value[0]) * len(rows) / len(part.X)
            total += gradient[0].numpy() * np.asarray(len(rows) / len(part.X), total.dtype)
        return loss, total

    def threads(self) -> AbstractContextManager[None]:
        return torch_threads(1 if count_weights(self.model) < MULTITHREADED_MIN_WEIGHTS else torch.get_num_threads())

    def close(self) -> None:
        if self.trainer.pools is not None:
            self.trainer.pools.close()


def polish_steps(spec: TrainSpec) -> int:
    """Return the cost of the polish in ordinary steps: an iteration reads the full training set about 1.1 times."""
    return math.ceil(1.1 * spec.polish * spec.train_size / spec.batch)


def stepper_for(job: Job) -> Stepper:
    """Return a trial of this job for one core: on the compiled kernels, or in torch (the log says why)."""
    kind = TorchTrial if step_on_core(collapses(job.model)) is None else CpuTrial
    return kind(job.task, job.model, job.train, job.seed, job.data, job.moments)


def _arrays(part: Part) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_]]:
    """Return X, y and mask as arrays without copying; a missing mask becomes an empty array."""
    masks = np.zeros((0, 0), np.bool_) if part.mask is None else part.mask.numpy()
    return part.X.numpy(), part.y.numpy(), masks
