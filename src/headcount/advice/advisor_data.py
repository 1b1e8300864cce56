"""What the advisor trains on: the user's arrays checked, split, and scaled; classes as one-hot targets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headcount.base.errors import BadInput
from headcount.experiments.data import Dataset, Part
from headcount.tasks.arrays import ArrayTask
from headcount.tasks.arrays import Part as TaskPart

Kind = Literal["auto", "regression", "classification"]
FRACTION = 0.2
MOST_VALIDATION = 5000
"""Sequences that validate, at most: more say little more, and every trial is measured on them many times."""
FEWEST = 10
TRIES = 50
MOST_CLASSES = 20
"""Whole numbers with at most so many different values are taken for classes, unless the caller says otherwise."""
PER_CLASS = 20
"""… and where a value has so many samples on average."""
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


def material(X: Any, y: Any, mask: Any = None, *, kind: Kind = "auto", seed: int = 0, name: str = "data") -> Material:
    """Check arrays and make of them what the advisor trains on; every complaint is one line."""
    if kind not in ("auto", "regression", "classification"):
        raise BadInput(f"kind must be auto, regression or classification, not {kind!r}")
    _counts(name, X, y)
    labels = _labels(y, kind)
    targets, classes = (y, None) if labels is None else _one_hot(name, labels)
    task = ArrayTask.from_arrays(X, targets, mask, name=name)
    return prepared(task, classes, seed)


def _counts(name: str, X: Any, y: Any) -> None:
    """Refuse what cannot be split, with the number that would do."""
    for what, value in (("X", X), ("y", y)):
        if not hasattr(value, "__len__"):
            raise BadInput(f"{name}: {what} must be an array, not {type(value).__name__}")
    if len(X) == 1:
        raise BadInput(f"{name}: 1 sample (n_samples = 1) cannot be split: give {FEWEST} or more")


def prepared(task: ArrayTask, classes: tuple[Any, ...] | None, seed: int) -> Material:
    """Split a task and scale it by what the training part shows."""
    longest = task.length if task.mask is None else int(task.mask.sum(1).max())
    if longest < 2:
        raise BadInput(
            f"{task.name}: every sequence has length 1: heads choose among tokens, so lengths of 2 or more are needed"
        )
    if bool((task.y == task.y[:1]).all()):
        raise BadInput(f"{task.name}: y is constant ({task.y[0].tolist()}): there is nothing to learn")
    known, unseen = _split(task, seed)
    shift, scale = _spread(known.X, known.mask)
    mean, std = known.y.mean(0), known.y.std(0, correction=0)
    std = torch.where(std > 0, std, torch.ones_like(std))

    def part_of(X: Tensor, y: Tensor, mask: Tensor | None) -> Part:
        inputs = _scaled(X.numpy(), None if mask is None else mask.numpy(), shift, scale)
        return Part(torch.from_numpy(inputs).float(), ((y - mean) / std).float(), mask)

    data = Dataset(part_of(*known), part_of(*unseen), mean, std)
    length = float(task.length) if task.mask is None else float(task.mask.sum(1).mean())
    return Material(task, data, classes, shift, scale, length)


def _split(task: ArrayTask, seed: int) -> tuple[TaskPart, TaskPart]:
    """Split by seed; of few samples another seed may be needed for targets that vary in both parts."""
    fraction = min(FRACTION, MOST_VALIDATION / task.samples)
    for offset in range(TRIES):
        known, unseen = task.split(seed + 1_000_003 * offset, fraction)
        if all(bool((part.y != part.y[:1]).any()) for part in (known, unseen)):
            return known, unseen
    raise BadInput(f"{task.name}: y hardly varies: more samples, or more variety, are needed to split them")


def _spread(X: Tensor, mask: Tensor | None) -> tuple[Floats, Floats]:
    """Return the mean and the deviation of every feature over the real tokens; a constant feature keeps its scale."""
    tokens = X.reshape(-1, X.shape[-1]) if mask is None else X[mask]
    shift, scale = tokens.mean(0).numpy(), tokens.std(0, correction=0).numpy()
    return shift, np.where(scale > 1e-12 * np.maximum(np.abs(shift), 1.0), scale, 1.0)


def _scaled(X: Floats, mask: NDArray[np.bool_] | None, shift: Floats, scale: Floats) -> Floats:
    """Return inputs in units of their spread; padding stays 0."""
    scaled = (X - shift) / scale
    if mask is not None:
        scaled[~mask] = 0.0
    return scaled


def _labels(y: Any, kind: Kind) -> NDArray[Any] | None:
    """Return y as labels where it holds classes; None where it holds numbers."""
    if kind == "regression":
        return None
    labels = np.asarray(y.detach().cpu() if isinstance(y, Tensor) else y)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1 or labels.size == 0:
        if kind == "classification":
            raise BadInput(f"classes must be y[samples], one label a sequence, not of shape {list(labels.shape)}")
        return None
    if kind == "classification" or labels.dtype.kind in "bUS":
        return labels
    if labels.dtype.kind == "O":
        return labels if all(isinstance(label, str) for label in labels) else None
    if labels.dtype.kind not in "iu" and not (labels.dtype.kind == "f" and bool((labels == np.round(labels)).all())):
        return None
    count = len(np.unique(labels))
    return labels if count <= MOST_CLASSES and count * PER_CLASS <= len(labels) else None


def _one_hot(name: str, labels: NDArray[Any]) -> tuple[Floats, tuple[Any, ...]]:
    """Return the labels as rows with a single 1, and their names."""
    if labels.dtype.kind == "f" and not bool(np.isfinite(labels).all()):
        raise BadInput(f"{name}: y holds NaN or infinity at sample {int(np.argmin(np.isfinite(labels)))} (from 0)")
    try:
        names, places = np.unique(labels, return_inverse=True)
    except TypeError:
        raise BadInput(f"{name}: y mixes labels of different types: give all as text or all as numbers") from None
    if 2 * len(names) > len(labels):
        raise BadInput(
            f"{name}: {len(names)} classes for {len(labels)} samples: most labels occur once, so no class can be "
            f"learned; give kind='regression' if y are numbers"
        )
    if len(names) == 1:
        raise BadInput(f"{name}: y is constant ({names[0]}): there is nothing to learn")
    return np.eye(len(names))[places], tuple(names.tolist())
