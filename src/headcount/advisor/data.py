"""The data that the advisor trains on: the user's arrays, checked, split and scaled; classes as one-hot targets."""

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

MIN_SAMPLES = 10
MAX_SPLIT_ATTEMPTS = 50
"""Seeds that are tried for a split whose parts all have targets that vary."""
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Material:
    """The data of one question: training and validation sequences, and the way back to the user's units."""

    task: ArrayTask
    """Inputs and targets, as given or one-hot."""
    sequences: Part
    """All sequences, with inputs and targets in units of their spread."""
    splits: Splits
    classes: tuple[Any, ...] | None
    """The labels in the order of the outputs; None for a regression."""
    shift: Floats
    """[dim]: subtracted from every feature …"""
    scale: Floats
    """[dim]: … which is then divided by this."""
    center: Tensor
    """[out]: subtracted from every target …"""
    width: Tensor
    """[out]: … which is then divided by this."""
    mean_length: float
    codes: Codes | None = None
    """The columns that were one-hot encoded because models did better with that."""

    def dataset(self, split: Split) -> Dataset:
        """Return the sequences of a split."""
        train, validation = (self.sequences.rows(torch.from_numpy(rows)) for rows in (split.train, split.validation))
        return Dataset(train, validation, self.center, self.width)

    @cached_property
    def data(self) -> Dataset:
        """The sequences of the first split."""
        return self.dataset(self.splits.repeats[0][0])

    @cached_property
    def variance(self) -> float:
        """The variance of the validation targets, over all outputs together, in the units of training."""
        y = self.sequences.y[torch.from_numpy(self.splits.validated)].double()
        return float((y - y.mean(0)).square().sum(1).mean())

    @property
    def train_size(self) -> int:
        """The number of training sequences."""
        return len(self.splits.repeats[0][0].train)

    @property
    def validation_size(self) -> int:
        """The number of validation sequences, over all folds."""
        return len(self.splits.validated)

    @property
    def categories(self) -> Codes | None:
        """The user's columns that were one-hot encoded."""
        return self.codes or self.task.codes

    @property
    def dim(self) -> int:
        """Numbers per token in the user's data."""
        codes = self.categories
        return self.task.dim if codes is None else self.task.dim + sum(1 - len(values) for _, values in codes.values)

    def inputs(self, X: Floats, mask: NDArray[np.bool_] | None = None) -> Tensor:
        """Return new sequences of the user in the units of training."""
        codes = self.categories
        return self.units(X if codes is None else codes.apply(X, mask), mask)

    def units(self, X: Floats, mask: NDArray[np.bool_] | None = None) -> Tensor:
        """Return sequences of the task, one-hot where it is, in the units of training."""
        return torch.from_numpy(_scaled(X, mask, self.shift, self.scale)).float()


def from_file(path: str | Path, *, kind: Kind = "auto", seed: int = 0) -> Material:
    """Return the material of a file of arrays, whose targets may be text; errors name the file."""
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
    """Check arrays and return the material to train on; every error is one line and begins with `where`."""
    where = where or name
    check_kind(kind)
    _check_arrays(where, X, y)
    labels = class_labels(where, y, kind)
    if labels is not None and len(labels) != len(X):
        raise BadInput(f"{where}: X has {len(X)} samples but y has {len(labels)} labels: give one label per sample")
    targets, classes = (y, None) if labels is None else one_hot(where, labels)
    task = ArrayTask.from_arrays(X, targets, mask, name=name, where=where)
    return prepared(task, classes, seed, where)


def from_task(task: ArrayTask, *, kind: Kind = "auto", seed: int = 0) -> Material:
    """Return the material of a task of arrays, whose ids and classes stay as they are."""
    check_kind(kind)
    if task.classes is not None and kind != "regression":
        return prepared(task, task.classes, seed)
    labels = class_labels(task.name, task.y, kind) if task.out_dim == 1 else None
    if labels is None:
        return prepared(task, None, seed)
    targets, classes = one_hot(task.name, labels)
    return prepared(replace(task, y=targets, classes=classes), classes, seed)


def _check_arrays(where: str, X: Any, y: Any) -> None:
    """Raise BadInput unless X and y are arrays of two or more samples."""
    for what, value in (("X", X), ("y", y)):
        if not hasattr(value, "__len__") or getattr(value, "ndim", 1) == 0:
            axes = "X[samples, length, dim]" if what == "X" else "y[samples] or y[samples, out]"
            found = "a single value" if np.isscalar(value) or hasattr(value, "ndim") else type(value).__name__
            raise BadInput(f"{where}: {what} must be an array {axes}, not {found}")
    if len(X) == 1:
        raise BadInput(f"{where}: 1 sample (n_samples = 1) cannot be split: give {MIN_SAMPLES} or more")


def prepared(
    task: ArrayTask,
    classes: tuple[Any, ...] | None,
    seed: int,
    where: str | None = None,
    *,
    splits: Splits | None = None,
    codes: Codes | None = None,
) -> Material:
    """Return a task split and scaled; every error begins with `where`.

    With one held-out part, the scales come from the rest alone; in folds they come from all sequences, so that errors
    of different folds are in the same units. splits: to be used instead of the usual ones. codes: the columns that were
    one-hot encoded.
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
    shift, scale = _mean_and_scale(X if task.mask is None else X[torch.from_numpy(task.mask[rows])])
    center, width = (torch.from_numpy(found) for found in _mean_and_scale(y, 0.0))
    if classes is not None:
        # one unit for all classes: in units of its own, a class of 1 % would count as much as all others together
        width = width.square().mean().sqrt().expand_as(width).clone()
    inputs = torch.from_numpy(_scaled(task.X, task.mask, shift, scale)).float()
    targets = ((torch.tensor(task.y) / 2 - center / 2) / (width / 2)).float()
    sequences = Part(inputs, targets, None if task.mask is None else torch.tensor(task.mask))
    length = float(task.length) if task.mask is None else float(task.mask.sum(1).mean())
    return Material(task, sequences, splits, classes, shift, scale, center, width, length, codes)


def encoded(material: Material, codes: Codes) -> Material:
    """Return the same data with the same split and some columns as one-hot vectors."""
    task = material.task
    X = codes.apply(task.X, task.mask)
    one_hot_task = ArrayTask.from_arrays(X, task.y, task.mask, name=task.name)
    return prepared(one_hot_task, material.classes, 0, splits=material.splits, codes=codes)


def _splits(task: ArrayTask, classes: tuple[Any, ...] | None, seed: int, where: str) -> Splits:
    """Split by seed; with few samples, another seed may be needed for targets that vary in every training part."""
    labels = None if classes is None else task.y.argmax(1)
    for offset in range(MAX_SPLIT_ATTEMPTS):
        splits = plan_splits(task, labels, seed + 1_000_003 * offset)
        parts = [split.train for repeat in splits.repeats for split in repeat]
        if splits.folds == 1:
            parts.append(splits.repeats[0][0].validation)
            if len(parts[0]) == 0:
                raise BadInput(f"{where}: all sequences are equal: give sequences that differ")
        if all(bool((task.y[rows] != task.y[rows[:1]]).any()) for rows in parts):
            return splits
    raise BadInput(f"{where}: y hardly varies: more samples or more variety are needed for a split")


def _mean_and_scale(values: Tensor, least: float = 1e-12) -> tuple[Floats, Floats]:
    """Return the mean and the deviation of every column, or its size if it varies by less than `least` of that.

    Columns are first divided by a power of two of about their size, so that huge or tiny units do not overflow or
    vanish.
    """
    table = values.reshape(-1, values.shape[-1])
    unit = torch.from_numpy(np.ldexp(1.0, np.frexp(table.abs().amax(0).numpy())[1] - 1))
    mean, std = (table / unit).mean(0), (table / unit).std(0, correction=0)
    size = torch.where(mean == 0, 1.0, mean.abs() * unit)
    return (mean * unit).numpy(), torch.where(std > least * mean.abs(), std * unit, size).numpy()


def _scaled(X: Floats, mask: NDArray[np.bool_] | None, shift: Floats, scale: Floats) -> Floats:
    """Return inputs in units of their spread; padding stays 0."""
    scaled = (X / 2 - shift / 2) / (scale / 2)  # halves: the difference of two huge numbers must not overflow
    if mask is not None:
        scaled[~mask] = 0.0
    return scaled
