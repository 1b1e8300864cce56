"""Which sequences train and which validate: in proportion by class, equal sequences on one side, few ones in folds.

With `MIN_HOLDOUT_SAMPLES` sequences or more, one fixed fifth is held out for validation. With fewer, a fifth is too
little to tell head counts apart, so every sequence validates: there are five folds, each held out in turn, and dealt
anew for every seed (repeated 5-fold cross-validation). A trial then has five models, and its error is over all
sequences, each predicted by the model that was not trained on it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headcount.core import generator
from headcount.tasks.arrays import ArrayTask

MIN_HOLDOUT_SAMPLES = 1000
FOLDS = 5
FOLD_REPEATS = 6
"""Different ways of dealing the folds; seeds take them in turn."""
MAX_VALIDATION = 5000
"""Validation sequences: more add little, and every trial is measured on them many times."""
Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Split:
    """Rows to train on, and rows to validate on."""

    train: Rows
    validation: Rows


@dataclass(frozen=True, eq=False)
class Splits:
    """The folds of every repeat, and by how much the spread of errors understates the uncertainty."""

    repeats: tuple[tuple[Split, ...], ...]
    inflation: float
    """Factor on the variance of a mean error: models that share training sequences make similar errors, and another
    training set would have given other models (Nadeau and Bengio's correction, 1 + validation size / training size)."""

    @property
    def folds(self) -> int:
        """Models per trial; 1 if one fixed part is held out."""
        return len(self.repeats[0])

    def of(self, seed: int) -> tuple[Split, ...]:
        """Return the folds of a seed."""
        return self.repeats[seed % len(self.repeats)]

    @property
    def validated(self) -> Rows:
        """All rows that validate, in order."""
        return np.unique(np.concatenate([split.validation for split in self.repeats[0]]))


def plan_splits(task: ArrayTask, labels: Rows | None, seed: int) -> Splits:
    """Return the splits of a task.

    labels: class numbers [samples]; None for a regression.
    """
    groups = same_sequences(task)
    few = task.samples < MIN_HOLDOUT_SAMPLES
    parts = FOLDS if few else max(FOLDS, -(-task.samples // MAX_VALIDATION))
    count = min(parts, int(groups.max()) + 1)
    repeats: list[tuple[Split, ...]] = []
    for repeat in range(FOLD_REPEATS if few else 1):
        fold = deal(groups, labels, count, generator(seed, f"folds {repeat}" if few else "split"))
        held_out = range(count) if few else range(1)
        splits = [Split(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in held_out]
        repeats.append(tuple(split for split in splits if split.validation.size))
    trained = float(np.mean([len(split.train) for split in repeats[0]]))
    validated = sum(len(split.validation) for split in repeats[0])
    return Splits(tuple(repeats), 1.0 + validated / max(trained, 1.0))


def same_sequences(task: ArrayTask) -> Rows:
    """Return the group of every sequence; equal sequences, whatever their targets, share one."""
    found: dict[bytes, int] = {}
    keys = (task.X[i].tobytes() + (b"" if task.mask is None else task.mask[i].tobytes()) for i in range(task.samples))
    return np.array([found.setdefault(key, len(found)) for key in keys])


def deal(groups: Rows, labels: Rows | None, count: int, rng: np.random.Generator) -> Rows:
    """Return fold[samples]: groups stay together, and classes and sizes are spread as evenly as possible."""
    number = int(groups.max()) + 1
    sizes = np.bincount(groups, minlength=number)
    kind = np.zeros(number, np.int64)
    if labels is not None:
        kind[groups[::-1]] = labels[::-1]  # the class of the first member
    order = rng.permutation(number)
    order = order[np.argsort(-sizes[order], kind="stable")]  # large groups first: small ones then even out the sizes
    fold = np.empty(number, np.int64)
    total = np.zeros(count)
    own = np.zeros((int(kind.max()) + 1, count))
    for group in order:
        least = np.lexsort((total, own[kind[group]]))[0]
        fold[group] = least
        own[kind[group], least] += sizes[group]
        total[least] += sizes[group]
    return fold[groups]
