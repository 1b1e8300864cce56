"""The plain training loop: one model, one step at a time. Slow and readable; the twin of the fast engines."""

from __future__ import annotations

import operator
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from headcount.core import BadInput, Displayable
from headcount.models import SavedModel
from headcount.models.transformer import Flat, ModelSpec, Transformer
from headcount.store import FinishedState as State
from headcount.store import Trial
from headcount.tasks import Task
from headcount.tasks.arrays import ArrayTask
from headcount.training.batches import FRESH_STEPS, batch_indices, fresh_order
from headcount.training.checkpoint import Moments
from headcount.training.data import DTYPES, Dataset, Fresh, Part, prepare
from headcount.training.job import Job
from headcount.training.lbfgs import polish
from headcount.training.memory import check_memory, count_weights
from headcount.training.session import Ending, OnStep, Session, Stopped, drive, evaluation_every
from headcount.training.spec import TrainSpec

MULTITHREADED_MIN_WEIGHTS = 1_000_000  # models with fewer weights train faster on one thread
_CHUNK_SEQUENCES = 4096  # sequences evaluated at once, to bound memory on long validation sets


@dataclass(frozen=True, repr=False)
class Trained(Displayable):
    """A trained model with its data (and their standardisation), its record, task and training spec."""

    model: Transformer
    data: Dataset
    trial: Trial
    task: Task | ArrayTask
    spec: TrainSpec

    @property
    def classes(self) -> tuple[Any, ...] | None:
        """The class labels in the order of the outputs; None if the targets are numbers."""
        return self.task.classes if isinstance(self.task, ArrayTask) else None

    @property
    def wrong(self) -> float | None:
        """The fraction of validation sequences that the model misclassifies; None if the targets are numbers."""
        if self.classes is None or self.trial.state != "done":
            return None
        part = self.data.validation
        return _error_rate(self.model, part, self.data.mean, self.data.std)

    def save(self, folder: str | Path) -> str:
        """Save it as a model folder, as `headcount train` does; return the model's hash."""
        history = {"trial": self.trial.data(), "train": self.spec.data()}
        return saved_model(self.task, self).save(folder, extra={"history.json": history})


def saved_model(task: Task | ArrayTask, trained: Trained) -> SavedModel:
    """Return a trained model ready to save; users' arrays are referred to by their hash, never copied."""
    mean, std = tuple(trained.data.mean.tolist()), tuple(trained.data.std.tolist())
    if isinstance(task, ArrayTask):
        data: dict[str, Any] = {"kind": "arrays", "name": task.name, "hash": task.hash()}
        if task.classes is not None:  # in the order of the outputs
            data["classes"] = list(task.classes)
        return SavedModel(trained.model, data, None, mean, std)
    return SavedModel(trained.model, task.data(), task.box, mean, std)


@torch.no_grad()
def nmse(model: nn.Module, part: Part) -> float:
    """Return MSE/Var(y) over all outputs: 1 for the best constant, 0 for a perfect fit."""
    error = 0.0
    for X, y, mask in _chunks(part):
        error += float((model(X, mask) - y).double().square().sum())
    spread = float((part.y.double() - part.y.double().mean(0)).square().sum())
    return error / spread


@torch.no_grad()
def _error_rate(model: nn.Module, part: Part, mean: Tensor, std: Tensor) -> float:
    """Return the fraction of sequences whose largest output, in units of the one-hot targets, is not their class."""
    errors = 0
    for X, y, mask in _chunks(part):
        outputs, targets = (values.double() * std + mean for values in (model(X, mask), y))
        errors += int((outputs.argmax(1) != targets.argmax(1)).sum())
    return errors / len(part.X)


def _chunks(part: Part) -> list[tuple[Tensor, Tensor, Tensor | None]]:
    count = part.X.shape[0]
    slices = [slice(i, i + _CHUNK_SEQUENCES) for i in range(0, count, _CHUNK_SEQUENCES)]
    return [(part.X[s], part.y[s], None if part.mask is None else part.mask[s]) for s in slices]


class PlainSession(Session[Job]):
    """One trial, one PyTorch step at a time."""

    def __init__(self, members: Sequence[tuple[str, Job]], on_step: OnStep | None = None) -> None:
        """Take one trial; `on_step(steps, validation error or None)` reports progress."""
        super().__init__(members, window=25)
        ((_, job),) = self.members
        spec = job.train
        self.job, self._on_step, self._step = job, on_step, 0
        self.model = Transformer(job.model, seed=job.seed, dtype=DTYPES[spec.dtype])
        kind = torch.optim.AdamW if spec.optimiser == "adamw" else torch.optim.Adam
        self.optimiser = kind(
            self.model.parameters(), lr=spec.learning_rate, weight_decay=spec.weight_decay, fused=True
        )
        self.fresh = Fresh(job.task, job.data, spec) if spec.fresh and isinstance(job.task, Task) else None
        if job.moments is not None:
            self._resume(job.moments)

    @property
    def steps(self) -> int:
        return self._step

    def launch(self, stop: threading.Event | None) -> None:
        """Take the next steps, and polish after the last."""
        if stop is not None and stop.is_set():
            raise Stopped
        spec = self.job.train
        target = self._next_target(spec.steps, spec.evaluations)
        while self._step < target:
            self._take_step(self._step)
            self._step += 1
        if self._step == spec.steps and spec.polish:
            _polish(self.model, self.job.data.train, spec.polish)

    def _take_step(self, step: int) -> None:
        """Take one step."""
        spec, batch = self.job.train, self._batch(step)
        for group in self.optimiser.param_groups:
            group["lr"] = spec.rate(step)
        loss = (self.model(batch.X, batch.mask) - batch.y).square().mean()
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        self.optimiser.step()

    def _batch(self, step: int) -> Part:
        """Return the sequences of a step."""
        spec, seed, train = self.job.train, self.job.seed, self.job.data.train
        if self.fresh is not None:
            order = fresh_order(seed, step // FRESH_STEPS, spec.batch)[step % FRESH_STEPS]
            return self.fresh.at(step).rows(torch.from_numpy(order))
        return train.rows(torch.from_numpy(batch_indices(seed, step, 1, spec.batch, len(train.X))[0]))

    def collect(self) -> list[Ending]:
        spec, data, curve = self.job.train, self.job.data, self.curves[0]
        last = self._step == spec.steps
        step = self._step + (spec.polish if last else 0)
        state: State | None = "done" if last else None
        if last or self._step % evaluation_every(spec.steps, spec.evaluations) == 0:
            error = nmse(self.model, data.validation)
            if error <= spec.diverged_above:  # NaN fails every comparison
                curve.append((step, error))
            else:
                state = "diverged"
        if self._on_step is not None:
            self._on_step(self._step, curve[-1][1] if curve else None)
        if state is None:
            return []
        self.unfinished.clear()
        train_error = nmse(self.model, data.train) if state == "done" else None
        trial = record(self.job.model, train_error, self.job.seed, state, curve, step, self.seconds(0))
        ((name, moments),) = self.snapshots([0])
        return [Ending(name, trial, moments if state == "done" else None)]

    def moments(self) -> list[Moments]:
        theta = Flat.of(self.job.model).pack(self.model)
        states = [self.optimiser.state[p] for p in self.model.parameters()]
        first, second = (
            np.concatenate([state[name].numpy().ravel() for state in states]) if all(states) else np.zeros_like(theta)
            for name in ("exp_avg", "exp_avg_sq")
        )
        return [Moments(theta, first, second, self._step)]

    def _resume(self, moments: Moments) -> None:
        """Resume from a checkpoint."""
        flat, parameters = Flat.of(self.job.model), list(self.model.parameters())
        values = [flat.unpack(vector).parameters() for vector in (moments.theta, moments.first, moments.second)]
        with torch.no_grad():
            for parameter, theta, first, second in zip(parameters, *values, strict=True):
                parameter.copy_(theta)
                self.optimiser.state[parameter] = {
                    "step": torch.tensor(float(moments.step)),
                    "exp_avg": first.detach(),
                    "exp_avg_sq": second.detach(),
                }
        self._step = moments.step


def train(
    task: Task | ArrayTask,
    model_spec: ModelSpec,
    spec: TrainSpec | None = None,
    *,
    seed: int = 0,
    data: Dataset | None = None,
    on_step: OnStep | None = None,
) -> Trained:
    """Train one model; the same arguments give the same weights.

    `seed` draws the weights and the batches; unless given, the data are drawn by the spec's `data_seed`.
    `on_step(steps_done, validation_nmse or None)` is called regularly to report progress.
    """
    spec, seed = spec or TrainSpec(), check_seed(seed)
    check_task(task, model_spec, spec)
    data = data or prepare(task, spec)
    threads = torch.get_num_threads()
    torch.set_num_threads(1 if count_weights(model_spec) < MULTITHREADED_MIN_WEIGHTS else threads)
    try:
        session = PlainSession([("", Job(task, model_spec, spec, seed, data))], on_step)
        return Trained(session.model, data, drive(session), task, spec)
    finally:
        torch.set_num_threads(threads)


def check_seed(seed: int) -> int:
    """Return a seed as an int; raise BadInput unless it is a whole number and not negative."""
    try:
        number = operator.index(seed)
    except TypeError:
        number = -1
    if number < 0:
        raise BadInput(f"seed must be a non-negative whole number, not {seed!r}")
    return number


def _polish(model: Transformer, part: Part, iterations: int) -> None:
    """Run L-BFGS on the full training set, in place."""
    parameters = list(model.parameters())

    def function(theta: Tensor) -> tuple[Tensor, Tensor]:
        nn.utils.vector_to_parameters(theta[0], parameters)
        loss = (model(part.X, part.mask) - part.y).square().mean()
        gradient = torch.autograd.grad(loss, parameters)
        return loss.detach()[None], torch.cat([g.flatten() for g in gradient])[None]

    start = nn.utils.parameters_to_vector(parameters).detach()[None]
    nn.utils.vector_to_parameters(polish(function, start, iterations)[0], parameters)


def check_task(task: Task | ArrayTask, model: ModelSpec, spec: TrainSpec) -> None:
    """Raise BadInput if the model's sizes are not the task's, the task cannot give fresh data, or memory is short."""
    if (task.length, task.dim, task.out_dim) != (model.length, model.dim, model.out_dim):
        raise BadInput("the model's length, dim and out_dim differ from the task's")
    if spec.fresh and isinstance(task, ArrayTask):
        raise BadInput("fresh data need a task that can be sampled, and arrays are fixed: use fresh = false")
    check_memory(model, spec)


def record(
    spec: ModelSpec,
    train_error: float | None,
    seed: int,
    state: State,
    curve: list[tuple[int, float]],
    steps: int,
    seconds: float,
) -> Trial:
    """Return a trial's record for the store; a diverged trial is recorded without an error."""
    counts = Flat.of(spec).counts()
    return Trial(
        heads=spec.heads,
        seed=seed,
        state=state,
        nmse=curve[-1][1] if state == "done" else None,
        train_nmse=train_error,
        steps=steps,
        seconds=seconds,
        parameters=counts["paper"],
        parameters_total=counts["total"],
        curve=curve,
    )
