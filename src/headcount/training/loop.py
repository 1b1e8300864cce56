"""The plain training loop: one model, one step after the other. Slow, readable, and the twin of the fast engine."""

from __future__ import annotations

import math
import operator
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from headcount.core import BadInput, Shown
from headcount.models import SavedModel
from headcount.models.transformer import Flat, ModelSpec, Transformer
from headcount.store import FinishedState as State
from headcount.store import Trial
from headcount.tasks import Task
from headcount.tasks.arrays import ArrayTask
from headcount.training.batches import FRESH_STEPS, batch_indices, fresh_order
from headcount.training.data import DTYPES, Dataset, Fresh, Part, prepare
from headcount.training.lbfgs import polish
from headcount.training.memory import check_memory, weights
from headcount.training.spec import TrainSpec

LARGE = 1_000_000  # weights from which several threads pay; below it they only wait for each other
_CHUNK = 4096  # sequences evaluated at once, to bound memory on long validation sets


@dataclass(frozen=True, repr=False)
class Trained(Shown):
    """What the loop returns: the model, the data's standardisation, and the record."""

    model: Transformer
    data: Dataset
    trial: Trial
    task: Task | ArrayTask
    spec: TrainSpec

    @property
    def classes(self) -> tuple[Any, ...] | None:
        """The labels in the order of the outputs, where the targets are classes."""
        return self.task.classes if isinstance(self.task, ArrayTask) else None

    @property
    def wrong(self) -> float | None:
        """The share of validation sequences whose class the model gets wrong; None where the targets are numbers."""
        if self.classes is None or self.trial.state != "done":
            return None
        part = self.data.validation
        return _wrong(self.model, part, self.data.mean, self.data.std)

    def save(self, folder: str | Path) -> str:
        """Keep it as a model folder, like that of `headcount train`; return the model's hash."""
        history = {"trial": self.trial.data(), "train": self.spec.data()}
        return saved_model(self.task, self).save(folder, extra={"history.json": history})


def saved_model(task: Task | ArrayTask, trained: Trained) -> SavedModel:
    """Bundle a trained model; arrays are named by their hash, never copied into the model's folder."""
    mean, std = tuple(trained.data.mean.tolist()), tuple(trained.data.std.tolist())
    if isinstance(task, ArrayTask):
        data: dict[str, Any] = {"kind": "arrays", "name": task.name, "hash": task.hash()}
        if task.classes is not None:  # in the order of the outputs
            data["classes"] = list(task.classes)
        return SavedModel(trained.model, data, None, mean, std)
    return SavedModel(trained.model, task.data(), task.box, mean, std)


@torch.no_grad()
def nmse(model: nn.Module, part: Part) -> float:
    """Return MSE/Var(y) over all outputs: 1 for the best constant, 0 for the target itself."""
    error = 0.0
    for X, y, mask in _chunks(part):
        error += float((model(X, mask) - y).double().square().sum())
    spread = float((part.y.double() - part.y.double().mean(0)).square().sum())
    return error / spread


@torch.no_grad()
def _wrong(model: nn.Module, part: Part, mean: Tensor, std: Tensor) -> float:
    """Return the share of sequences whose largest output, in the units of the one-hot targets, is not their class."""
    missed = 0
    for X, y, mask in _chunks(part):
        outputs, targets = (values.double() * std + mean for values in (model(X, mask), y))
        missed += int((outputs.argmax(1) != targets.argmax(1)).sum())
    return missed / len(part.X)


def _chunks(part: Part) -> list[tuple[Tensor, Tensor, Tensor | None]]:
    count = part.X.shape[0]
    slices = [slice(i, i + _CHUNK) for i in range(0, count, _CHUNK)]
    return [(part.X[s], part.y[s], None if part.mask is None else part.mask[s]) for s in slices]


def train(
    task: Task | ArrayTask,
    model_spec: ModelSpec,
    spec: TrainSpec | None = None,
    *,
    seed: int = 0,
    data: Dataset | None = None,
    on_step: Callable[[int, float | None], None] | None = None,
) -> Trained:
    """Train one model; the same arguments give the same weights.

    `seed` draws the weights and the batches; the data come from the spec's `data_seed` unless handed in.
    `on_step(steps_done, validation_nmse or None)` is called now and then, for progress.
    """
    spec, seed = spec or TrainSpec(), whole_seed(seed)
    check_task(task, model_spec, spec)
    data = data or prepare(task, spec)
    threads = torch.get_num_threads()
    torch.set_num_threads(1 if weights(model_spec) < LARGE else threads)
    try:
        return _loop(task, model_spec, spec, seed, data, on_step)
    finally:
        torch.set_num_threads(threads)


def whole_seed(seed: int) -> int:
    """Return a seed as a plain whole number from 0 on."""
    try:
        number = operator.index(seed)
    except TypeError:
        number = -1
    if number < 0:
        raise BadInput(f"seed must be a whole number from 0 on, not {seed!r}")
    return number


def _loop(
    task: Task | ArrayTask, model_spec: ModelSpec, spec: TrainSpec, seed: int, data: Dataset,
    on_step: Callable[[int, float | None], None] | None,
) -> Trained:  # fmt: skip
    """Take the steps."""
    model = Transformer(model_spec, seed=seed, dtype=DTYPES[spec.dtype])
    kind = torch.optim.AdamW if spec.optimiser == "adamw" else torch.optim.Adam
    optimiser = kind(model.parameters(), lr=spec.learning_rate, weight_decay=spec.weight_decay, fused=True)
    every = max(1, math.ceil(spec.steps / spec.evaluations))
    curve: list[tuple[int, float]] = []
    state: State = "done"
    start = time.perf_counter()
    step = 0
    fresh = Fresh(task, data, spec) if spec.fresh and isinstance(task, Task) else None
    while step < spec.steps:
        if fresh is not None:
            order = fresh_order(seed, step // FRESH_STEPS, spec.batch)[step % FRESH_STEPS]
            batch = fresh.at(step).rows(torch.from_numpy(order))
        else:
            index = batch_indices(seed, step, 1, spec.batch, len(data.train.X))[0]
            batch = data.train.rows(torch.from_numpy(index))
        for group in optimiser.param_groups:
            group["lr"] = spec.rate(step)
        loss = (model(batch.X, batch.mask) - batch.y).square().mean()
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        step += 1
        if step == spec.steps and spec.polish:
            _polish(model, data.train, spec.polish)
            step += spec.polish
        if step % every == 0 or step >= spec.steps:
            error = nmse(model, data.validation)
            if not error <= spec.diverged_above:  # NaN fails every comparison
                state = "diverged"
                break
            curve.append((step, error))
        if on_step is not None and step % 25 == 0:
            on_step(step, curve[-1][1] if curve else None)
    train_error = nmse(model, data.train) if state == "done" else None
    trial = record(model_spec, train_error, seed, state, curve, step, time.perf_counter() - start)
    return Trained(model, data, trial, task, spec)


def _polish(model: Transformer, part: Part, iterations: int) -> None:
    """Take iterations of L-BFGS on the whole training set."""
    parameters = list(model.parameters())

    def function(theta: Tensor) -> tuple[Tensor, Tensor]:
        nn.utils.vector_to_parameters(theta[0], parameters)
        loss = (model(part.X, part.mask) - part.y).square().mean()
        gradient = torch.autograd.grad(loss, parameters)
        return loss.detach()[None], torch.cat([g.flatten() for g in gradient])[None]

    start = nn.utils.parameters_to_vector(parameters).detach()[None]
    nn.utils.vector_to_parameters(polish(function, start, iterations)[0], parameters)


def check_task(task: Task | ArrayTask, model: ModelSpec, spec: TrainSpec) -> None:
    """Refuse a model of other sizes than the task's, and fresh data from what cannot be sampled."""
    if (task.length, task.dim, task.out_dim) != (model.length, model.dim, model.out_dim):
        raise BadInput("the model's length, dim and out_dim are not the task's")
    if spec.fresh and isinstance(task, ArrayTask):
        raise BadInput("fresh data need a task that can be sampled; arrays are fixed: use fresh = false")
    check_memory(model, spec)


def record(
    spec: ModelSpec, train_error: float | None, seed: int, state: State, curve: list[tuple[int, float]],
    steps: int, seconds: float,
) -> Trial:  # fmt: skip
    """Put the outcome into the store's form; a diverged trial is kept, without an error."""
    counts = Flat.of(spec).counts()
    return Trial(
        heads=spec.heads, seed=seed, state=state, nmse=curve[-1][1] if state == "done" else None,
        train_nmse=train_error, steps=steps, seconds=seconds, parameters=counts["paper"],
        parameters_total=counts["total"], curve=curve,
    )  # fmt: skip
