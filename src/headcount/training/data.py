"""The data that a model trains on: inputs, standardised targets, and the mean and deviation that undo the scaling."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from headcount.core import BadInput
from headcount.tasks import Task
from headcount.tasks.arrays import ArrayTask
from headcount.training.batches import FRESH_STEPS
from headcount.training.spec import TrainSpec

DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True)
class Part:
    """One set of sequences: X[samples, length, dim], standardised y[samples, out_dim] and mask (or None)."""

    X: Tensor
    y: Tensor
    mask: Tensor | None = None

    def rows(self, index: Tensor) -> Part:
        """Return the sequences at these positions."""
        return Part(self.X[index], self.y[index], None if self.mask is None else self.mask[index])


@dataclass(frozen=True)
class Dataset:
    """Training and validation sets of one task, standardised by the training set's mean and deviation."""

    train: Part
    validation: Part
    mean: Tensor
    std: Tensor


def prepare(task: Task | ArrayTask, spec: TrainSpec, inputs: tuple[Tensor, Tensor] | None = None) -> Dataset:
    """Draw or split the data of a task; targets are computed in float64 from the inputs as rounded for training.

    `inputs`: training and validation X that were drawn already for a task with the same distribution and sizes.
    """
    dtype = DTYPES[spec.dtype]
    if isinstance(task, ArrayTask):
        known, unseen = task.split(seed=spec.data_seed)
        x, x_val, mask, mask_val = known[0].to(dtype), unseen[0].to(dtype), known[2], unseen[2]
        y, y_val = known[1].double(), unseen[1].double()
    else:
        x, x_val = inputs or draw_inputs(task, spec)
        y, y_val, mask, mask_val = task.value(x.double()), task.value(x_val.double()), None, None
    mean, std = y.mean(0), y.std(0, correction=0)
    if not bool(torch.isfinite(std).all()) or bool((std == 0).all()):
        raise BadInput("the target is constant or not finite on the training set, so there is nothing to learn")
    if bool((y_val == y_val[:1]).all()):
        raise BadInput("the target is constant on the validation set: use more sequences, or more varied ones")
    std = torch.where(std > 0, std, torch.ones_like(std))

    def scale(values: Tensor) -> Tensor:
        return ((values - mean) / std).to(dtype)

    return Dataset(Part(x, scale(y), mask), Part(x_val, scale(y_val), mask_val), mean, std)


def draw_inputs(task: Task, spec: TrainSpec) -> tuple[Tensor, Tensor]:
    """Draw the training and the validation sequences."""
    dtype = DTYPES[spec.dtype]
    return (
        task.sample(spec.train_size, spec.data_seed, stream="train", dtype=dtype),
        task.sample(spec.validation_size, spec.data_seed, stream="validation", dtype=dtype),
    )


def fresh_pool(task: Task, data: Dataset, spec: TrainSpec, pool: int) -> Part:
    """Draw one pool of fresh sequences, enough for FRESH_STEPS batches; pools are independent of each other.

    All trials read the same endless data, which has a seed of its own, but each trial in its own order.
    """
    X = task.sample(spec.batch * FRESH_STEPS, spec.data_seed, stream=f"fresh {pool}", dtype=data.train.X.dtype)
    y = (task.value(X.double()) - data.mean) / data.std
    return Part(X, y.to(X.dtype))


class Fresh:
    """The endless data of one task and recipe, pool by pool; the latest pool is cached."""

    def __init__(self, task: Task, data: Dataset, spec: TrainSpec) -> None:
        self._source, self._number, self._pool = (task, data, spec), -1, None

    def at(self, step: int) -> Part:
        """Return the pool that a step reads from."""
        if self._pool is None or self._number != step // FRESH_STEPS:
            self._number = step // FRESH_STEPS
            self._pool = fresh_pool(*self._source, self._number)
        return self._pool
