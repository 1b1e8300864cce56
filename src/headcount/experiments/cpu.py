"""The fast engine on a CPU: one trial a core, each a sequence of compiled steps that holds no lock.

A trial runs alone on its core from first step to last, so that what else is in the sweep cannot touch a single bit
of it; cores work on different trials side by side, of whatever shapes and lengths. Models that do not collapse
(`models/flat.py` says which) go through the plain loop, and the log says so.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headcount.base.progress import Progress
from headcount.experiments.batches import batch_indices
from headcount.experiments.data import DTYPES, Dataset, Part, fresh_batch, prepare
from headcount.experiments.spec import TrainSpec
from headcount.experiments.train import Trained, check_task, record, train, whole_seed
from headcount.models.compiled import Compiled, why_not_compiled, why_plain
from headcount.models.reference import Transformer
from headcount.models.spec import ModelSpec
from headcount.store.records import State
from headcount.tasks.arrays import ArrayTask
from headcount.tasks.task import Task

log = logging.getLogger("headcount")
WINDOW_TOKENS = 2_000_000  # tokens a compiled call works on at most: about a second, the grain of progress and stopping
CHUNK_TOKENS = 500_000  # tokens evaluated at once on validation sets
_blas_lock = threading.Lock()


class Stopped(Exception):
    """The caller asked to stop; the trial's state is whole and can go on later."""


@dataclass
class Moments:
    """All that a trial is between two steps."""

    theta: NDArray[Any]
    first: NDArray[Any]
    second: NDArray[Any]
    step: int = 0
    curve: list[tuple[int, float]] = field(default_factory=list[tuple[int, float]])


def single_threaded_blas() -> Any:
    """Keep BLAS on the calling core: the cores are taken by trials, and a sum's order must not depend on them."""
    from threadpoolctl import threadpool_limits

    with _blas_lock:
        return threadpool_limits(1, user_api="blas")


def start_kernels(progress: Progress, dtype: str) -> None:
    """Load the kernels, or compile them (once a machine: numba keeps the result on disk), before trials start."""
    from headcount.tasks.families import make_task

    if why_not_compiled() is not None:
        return
    tiny = TrainSpec(steps=1, warmup=0, batch=2, train_size=2, validation_size=2, evaluations=1)
    spec = TrainSpec.parse({**tiny.data(), "dtype": dtype})
    slow = threading.Timer(3.0, progress.say, ["compiling the kernels: about a minute, the first time only"])
    slow.start()
    try:
        train_fast(make_task("mean", length=2), ModelSpec(dim=2, length=2, heads=1, hidden=2), spec)
    finally:
        slow.cancel()
    progress.say("")


class CpuTrial:
    """One trial on the compiled kernels."""

    def __init__(
        self, task: Task | ArrayTask, model: ModelSpec, spec: TrainSpec, seed: int, data: Dataset,
        moments: Moments | None = None,
    ) -> None:  # fmt: skip
        self.task, self.model, self.spec, self.seed, self.data = task, model, spec, seed, data
        self.compiled = Compiled(model)
        self.flat = self.compiled.flat
        if moments is None:
            theta = self.flat.pack(Transformer(model, seed=seed, dtype=DTYPES[spec.dtype]))
            moments = Moments(theta, np.zeros_like(theta), np.zeros_like(theta))
        self.moments = moments

    def run(self, on_step: Callable[[int, float | None], None] | None, stop: threading.Event | None) -> State:
        """Take the steps that are left; raise Stopped between two windows where the caller asks."""
        spec, m = self.spec, self.moments
        every = max(1, math.ceil(spec.steps / spec.evaluations))
        window = max(1, WINDOW_TOKENS // (spec.batch * self.task.length))
        while m.step < spec.steps:
            if stop is not None and stop.is_set():
                raise Stopped
            target = min(spec.steps, (m.step // every + 1) * every, m.step + window)
            done = self._advance(target - m.step)
            m.step += done
            finite = m.step == target
            if finite and (m.step % every == 0 or m.step == spec.steps):
                error = self.nmse(self.data.validation)
                if error <= spec.diverged_above:  # NaN fails every comparison
                    m.curve.append((m.step, error))
                else:
                    finite = False
            if not finite:
                return "diverged"
            if on_step is not None:
                on_step(m.step, m.curve[-1][1] if m.curve else None)
        return "done"

    def _advance(self, count: int) -> int:
        """Take a number of steps in one compiled call; fewer where the loss stopped being finite."""
        spec, m = self.spec, self.moments
        x, y, masks = _arrays(self.data.train)
        if spec.fresh and isinstance(self.task, Task):
            parts = [fresh_batch(self.task, self.data, spec, self.seed, m.step + s) for s in range(count)]
            x, y = np.concatenate([p.X.numpy() for p in parts]), np.concatenate([p.y.numpy() for p in parts])
            index = np.arange(count * spec.batch).reshape(count, spec.batch)
        else:
            index = batch_indices(self.seed, m.step, count, spec.batch, len(x))
        rates = np.array([spec.rate(m.step + s) for s in range(count)])
        return self.compiled.steps(
            m.theta, m.first, m.second, x, y, masks, index, rates, m.step, spec.weight_decay, spec.optimiser == "adamw"
        )

    def nmse(self, part: Part) -> float:
        """Return MSE/Var(y) over all outputs."""
        X, Y, masks = _arrays(part)
        chunk = max(1, CHUNK_TOKENS // X.shape[1])
        error = 0.0
        for start in range(0, len(X), chunk):
            rows = slice(start, start + chunk)
            mask = masks[rows] if len(masks) else masks
            y = self.compiled.predict(self.moments.theta, X[rows], mask)
            error += float(np.square(y - Y[rows], dtype=np.float64).sum())
        return error / float(np.square(Y - Y.mean(0, dtype=np.float64), dtype=np.float64).sum())


def _arrays(part: Part) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_]]:
    """Return a part as arrays without a copy; no mask is an empty one."""
    masks = np.zeros((0, 0), np.bool_) if part.mask is None else part.mask.numpy()
    return part.X.numpy(), part.y.numpy(), masks


def train_fast(
    task: Task | ArrayTask,
    model_spec: ModelSpec,
    spec: TrainSpec | None = None,
    *,
    seed: int = 0,
    data: Dataset | None = None,
    on_step: Callable[[int, float | None], None] | None = None,
    stop: threading.Event | None = None,
) -> Trained:
    """Train one model on the compiled kernels; `train` is the twin, with the same arguments and the same batches."""
    spec, seed = spec or TrainSpec(), whole_seed(seed)
    reason = why_plain(model_spec)
    if reason is not None:
        log.info("the plain loop trains this model: %s", reason)
        return train(task, model_spec, spec, seed=seed, data=data, on_step=on_step)
    check_task(task, model_spec, spec)
    data = data or prepare(task, spec)
    trial = CpuTrial(task, model_spec, spec, seed, data)
    start = time.perf_counter()
    with single_threaded_blas():
        state = trial.run(on_step, stop)
        train_error = trial.nmse(data.train) if state == "done" else None
    seconds = time.perf_counter() - start
    model = trial.flat.unpack(trial.moments.theta)
    return Trained(
        model, data, record(model, train_error, seed, state, trial.moments.curve, trial.moments.step, seconds)
    )
