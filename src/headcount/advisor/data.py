"""What the advisor trains on: the user's arrays checked, split, and scaled; classes as one-hot targets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headcount.advisor.split import Split, Splits, plan_splits
from headcount.core import BadInput
from headcount.core.text import valid_text
from headcount.tasks.arrays import VARY_TARGETS, ArrayTask, Codes, Kind, check_kind, class_labels, one_hot, read_arrays
from headcount.training import Dataset, Part

FEWEST = 10
TRIES = 50
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Material:
    """The data of one question: what is trained on, what validates it, and the way back to the user's units."""

    task: ArrayTask
    """Inputs as given or one-hot, targets as given or one-hot."""
    whole: Part
    """All sequences, inputs and targets in units of their spread."""
    splits: Splits
    classes: tuple[Any, ...] | None
    """The labels in the order of the outputs; None for a regression."""
    shift: Floats
    """[dim]: what is taken from every feature."""
    scale: Floats
    """[dim]: … and what it is then divided by."""
    center: Tensor
    """[out]: what is taken from every target."""
    width: Tensor
    """[out]: … and what it is then divided by."""
    mean_length: float
    codes: Codes | None = None
    """The columns that became one-hot vectors because models did better with them."""

    def dataset(self, split: Split) -> Dataset:
        """Return the sequences of a split."""
        train, validation = (self.whole.rows(torch.from_numpy(rows)) for rows in (split.train, split.validation))
        return Dataset(train, validation, self.center, self.width)

    @cached_property
    def data(self) -> Dataset:
        """The sequences of the first split."""
        return self.dataset(self.splits.repeats[0][0])

    @cached_property
    def variance(self) -> float:
        """The variance of the targets that validate, all outputs together, in the units of training."""
        y = self.whole.y[torch.from_numpy(self.splits.validated)].double()
        return float((y - y.mean(0)).square().sum(1).mean())

    @property
    def train_size(self) -> int:
        """How many sequences are trained on."""
        return len(self.splits.repeats[0][0].train)

    @property
    def validation_size(self) -> int:
        """How many sequences validate, each fold in turn."""
        return len(self.splits.validated)

    @property
    def categories(self) -> Codes | None:
        """What of the user's data became one-hot vectors."""
        return self.codes or self.task.codes

    @property
    def dim(self) -> int:
        """Numbers a token, as the user has them."""
        codes = self.categories
        return self.task.dim if codes is None else self.task.dim + sum(1 - len(values) for _, values in codes.values)

    def inputs(self, X: Floats, mask: NDArray[np.bool_] | None = None) -> Tensor:
        """Return new sequences, as the user has them, in the units of training."""
        codes = self.categories
        return self.units(X if codes is None else codes.apply(X, mask), mask)

    def units(self, X: Floats, mask: NDArray[np.bool_] | None = None) -> Tensor:
        """Return sequences of the task, one-hot where it is, in the units of training."""
        return torch.from_numpy(_scaled(X, mask, self.shift, self.scale)).float()


def from_file(path: str | Path, *, kind: Kind = "auto", seed: int = 0) -> Material:
    """Read a file of arrays, whose targets may be text, and make the material of it; complaints name the file."""
    path = Path(path)
    X, y, mask = read_arrays(path, text=kind != "regression")
    return material(X, y, mask, kind=kind, seed=seed, name=valid_text(path.stem), where=str(path))


def material(
    X: Any,
    y: Any,
    mask: Any = None,
    *,
    kind: Kind = "auto",
    seed: int = 0,
    name: str = "data",
    where: str | None = None,
) -> Material:
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


def from_task(task: ArrayTask, *, kind: Kind = "auto", seed: int = 0) -> Material:
    """Make the material of a task of arrays, whose ids and classes stay what they are."""
    check_kind(kind)
    if task.classes is not None and kind != "regression":
        return prepared(task, task.classes, seed)
    labels = class_labels(task.name, task.y, kind) if task.out_dim == 1 else None
    if labels is None:
        return prepared(task, None, seed)
    targets, classes = one_hot(task.name, labels)
    return prepared(replace(task, y=targets, classes=classes), classes, seed)


def _counts(where: str, X: Any, y: Any) -> None:
    """Refuse what cannot be split, with the number that would do."""
    for what, value in (("X", X), ("y", y)):
        if not hasattr(value, "__len__") or getattr(value, "ndim", 1) == 0:
            axes = "X[samples, length, dim]" if what == "X" else "y[samples] or y[samples, out]"
            found = "a single value" if np.isscalar(value) or hasattr(value, "ndim") else type(value).__name__
            raise BadInput(f"{where}: {what} must be an array {axes}, not {found}")
    if len(X) == 1:
        raise BadInput(f"{where}: 1 sample (n_samples = 1) cannot be split: give {FEWEST} or more")


def prepared(
    task: ArrayTask,
    classes: tuple[Any, ...] | None,
    seed: int,
    where: str | None = None,
    *,
    splits: Splits | None = None,
    codes: Codes | None = None,
) -> Material:
    """Split a task and scale it; every complaint begins with `where`.

    Where a part is held back for good, the rest alone says how to scale; in folds all sequences do, so that errors of
    different folds are in the same units. `splits` are other than the usual ones, `codes` what became one-hot.
    """
    where = where or task.name
    longest = task.length if task.mask is None else int(task.mask.sum(1).max())
    if longest < 2:
        raise BadInput(f"{where}: every sequence has length 1: heads choose among tokens, so give lengths of 2 or more")
    if bool((task.y == task.y[:1]).all()):
        raise BadInput(
            f"{where}: y is constant ({', '.join(f'{value:g}' for value in task.y[0])}): there is nothing to learn; "
            f"{VARY_TARGETS}"
        )
    splits = splits or _splits(task, classes, seed, where)
    first = splits.repeats[0][0]
    rows = first.train if splits.folds == 1 else np.arange(task.samples)
    X, y = torch.from_numpy(task.X[rows]), torch.from_numpy(task.y[rows])
    shift, scale = _spread(X if task.mask is None else X[torch.from_numpy(task.mask[rows])])
    center, width = (torch.from_numpy(found) for found in _spread(y, 0.0))
    if classes is not None:
        # one unit for all classes: by its own, a class of 1 % would count for as much as all others together
        width = width.square().mean().sqrt().expand_as(width).clone()
    inputs = torch.from_numpy(_scaled(task.X, task.mask, shift, scale)).float()
    targets = ((torch.tensor(task.y) / 2 - center / 2) / (width / 2)).float()
    whole = Part(inputs, targets, None if task.mask is None else torch.tensor(task.mask))
    length = float(task.length) if task.mask is None else float(task.mask.sum(1).mean())
    return Material(task, whole, splits, classes, shift, scale, center, width, length, codes)


def encoded(material: Material, codes: Codes) -> Material:
    """Return the same data, split alike, with some columns as one-hot vectors."""
    task = material.task
    X = codes.apply(task.X, task.mask)
    found = ArrayTask.from_arrays(X, task.y, task.mask, name=task.name)
    return prepared(found, material.classes, 0, splits=material.splits, codes=codes)


def _splits(task: ArrayTask, classes: tuple[Any, ...] | None, seed: int, where: str) -> Splits:
    """Split by seed; of few samples another seed may be needed for targets that vary in what is trained on."""
    labels = None if classes is None else task.y.argmax(1)
    for offset in range(TRIES):
        splits = plan_splits(task, labels, seed + 1_000_003 * offset)
        parts = [split.train for repeat in splits.repeats for split in repeat]
        if splits.folds == 1:
            parts.append(splits.repeats[0][0].validation)
            if len(parts[0]) == 0:
                raise BadInput(f"{where}: all sequences are equal: give sequences that differ")
        if all(bool((task.y[rows] != task.y[rows[:1]]).any()) for rows in parts):
            return splits
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
