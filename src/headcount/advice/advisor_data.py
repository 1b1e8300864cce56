"""What the advisor trains on: the user's arrays checked, split, and scaled; classes as one-hot targets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headcount.base.errors import BadInput
from headcount.experiments.data import Dataset, Part
from headcount.tasks.array_files import read_arrays
from headcount.tasks.arrays import ArrayTask
from headcount.tasks.arrays import Part as TaskPart
from headcount.tasks.labels import VARIED, Kind, check_kind, class_labels, one_hot

FRACTION = 0.2
MOST_VALIDATION = 5000
"""Sequences that validate, at most: more say little more, and every trial is measured on them many times."""
FEWEST = 10
TRIES = 50
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Material:
    """The data of one question: what is trained on, what validates it, and the way back to the user's units."""

    task: ArrayTask
    """Inputs in units of their spread, targets as given or one-hot."""
    data: Dataset
    classes: tuple[Any, ...] | None
    """The labels in the order of the outputs; None for a regression."""
    shift: Floats
    """[dim]: what is taken from every feature."""
    scale: Floats
    """[dim]: … and what it is then divided by."""
    mean_length: float

    @property
    def train_size(self) -> int:
        """How many sequences are trained on."""
        return len(self.data.train.X)

    @property
    def validation_size(self) -> int:
        """How many sequences validate."""
        return len(self.data.validation.X)

    def inputs(self, X: Floats, mask: NDArray[np.bool_] | None = None) -> Tensor:
        """Return new sequences in the units of training."""
        return torch.from_numpy(_scaled(X, mask, self.shift, self.scale)).float()


def from_file(path: str | Path, *, kind: Kind = "auto", seed: int = 0) -> Material:
    """Read a file of arrays, whose targets may be text, and make the material of it; complaints name the file."""
    path = Path(path)
    X, y, mask = read_arrays(path, text=kind != "regression")
    return material(X, y, mask, kind=kind, seed=seed, name=path.stem, where=str(path))


def material(
    X: Any, y: Any, mask: Any = None, *, kind: Kind = "auto", seed: int = 0, name: str = "data",
    where: str | None = None,
) -> Material:  # fmt: skip
    """Check arrays and make of them what the advisor trains on; every complaint is one line, after `where`."""
    where = where or name
    check_kind(kind)
    _counts(where, X, y)
    labels = class_labels(where, y, kind)
    if labels is not None and len(labels) != len(X):
        raise BadInput(f"{where}: X has {len(X)} samples but y has {len(labels)} labels: give one label a sample")
    targets, classes = (y, None) if labels is None else one_hot(where, labels)
    task = ArrayTask.from_arrays(X, targets, mask, name=name, where=where)
    return prepared(task, classes, seed, where)


def _counts(where: str, X: Any, y: Any) -> None:
    """Refuse what cannot be split, with the number that would do."""
    for what, value in (("X", X), ("y", y)):
        if not hasattr(value, "__len__") or getattr(value, "ndim", 1) == 0:
            axes = "X[samples, length, dim]" if what == "X" else "y[samples] or y[samples, out]"
            found = "a single value" if np.isscalar(value) or hasattr(value, "ndim") else type(value).__name__
            raise BadInput(f"{where}: {what} must be an array {axes}, not {found}")
    if len(X) == 1:
        raise BadInput(f"{where}: 1 sample (n_samples = 1) cannot be split: give {FEWEST} or more")


def prepared(task: ArrayTask, classes: tuple[Any, ...] | None, seed: int, where: str | None = None) -> Material:
    """Split a task and scale it by what the training part shows; every complaint begins with `where`."""
    where = where or task.name
    longest = task.length if task.mask is None else int(task.mask.sum(1).max())
    if longest < 2:
        raise BadInput(f"{where}: every sequence has length 1: heads choose among tokens, so give lengths of 2 or more")
    if bool((task.y == task.y[:1]).all()):
        raise BadInput(
            f"{where}: y is constant ({', '.join(f'{value:g}' for value in task.y[0])}): there is nothing to learn; "
            f"{VARIED}"
        )
    known, unseen = _split(task, seed, where)
    shift, scale = _spread(known.X if known.mask is None else known.X[known.mask])
    center, width = (torch.from_numpy(found) for found in _spread(known.y, 0.0))

    def part_of(X: Tensor, y: Tensor, mask: Tensor | None) -> Part:
        inputs = _scaled(X.numpy(), None if mask is None else mask.numpy(), shift, scale)
        return Part(torch.from_numpy(inputs).float(), ((y / 2 - center / 2) / (width / 2)).float(), mask)

    data = Dataset(part_of(*known), part_of(*unseen), center, width)
    length = float(task.length) if task.mask is None else float(task.mask.sum(1).mean())
    return Material(task, data, classes, shift, scale, length)


def _split(task: ArrayTask, seed: int, where: str) -> tuple[TaskPart, TaskPart]:
    """Split by seed; of few samples another seed may be needed for targets that vary in both parts."""
    fraction = min(FRACTION, MOST_VALIDATION / task.samples)
    for offset in range(TRIES):
        known, unseen = task.split(seed + 1_000_003 * offset, fraction)
        if all(bool((part.y != part.y[:1]).any()) for part in (known, unseen)):
            return known, unseen
    raise BadInput(f"{where}: y hardly varies: more samples, or more variety, are needed to split them")


def _spread(values: Tensor, least: float = 1e-12) -> tuple[Floats, Floats]:
    """Return mean and deviation of every column, or its size where it varies by less than `least` of that.

    Columns are divided by a power of two about as large as they are: huge or tiny units neither overflow nor vanish.
    """
    table = values.reshape(-1, values.shape[-1])
    unit = torch.from_numpy(np.ldexp(1.0, np.frexp(table.abs().amax(0).numpy())[1] - 1))
    mean, std = (table / unit).mean(0), (table / unit).std(0, correction=0)
    size = torch.where(mean == 0, 1.0, mean.abs() * unit)
    return (mean * unit).numpy(), torch.where(std > least * mean.abs(), std * unit, size).numpy()


def _scaled(X: Floats, mask: NDArray[np.bool_] | None, shift: Floats, scale: Floats) -> Floats:
    """Return inputs in units of their spread; padding stays 0."""
    scaled = (X / 2 - shift / 2) / (scale / 2)  # halves: the difference of two huge numbers is one that fits
    if mask is not None:
        scaled[~mask] = 0.0
    return scaled
