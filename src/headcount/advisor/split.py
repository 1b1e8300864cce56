"""Which sequences train and which validate: in proportion by class, equal sequences on one side, in folds where few.

With `FEW` sequences or more, one in five validates, once and for all. With fewer, one in five is too few to tell head
counts apart, so every sequence validates: five folds, each held back in turn, dealt anew for every seed (repeated
5-fold cross-validation). A trial is then five models, and its error is that of all sequences, each predicted by the
model that did not train on it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headcount.core import generator
from headcount.tasks.arrays import ArrayTask

FEW = 1000
FOLDS = 5
REPEATS = 6
"""How many ways of dealing the folds there are; seeds take them in turn."""
MAX_VALIDATION = 5000
"""Sequences that validate, at most: more say little more, and every trial is measured on them many times."""
Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Split:
    """Rows to train on, and rows that validate what was trained on them."""

    train: Rows
    validation: Rows


@dataclass(frozen=True, eq=False)
class Splits:
    """The folds of every repeat, and how much the spread of errors understates the doubt."""

    repeats: tuple[tuple[Split, ...], ...]
    inflation: float
    """Factor on the variance of a mean error: models that share training sequences err alike, and another training
    set would have given other models (Nadeau and Bengio's correction, 1 + validated over trained on)."""

    @property
    def folds(self) -> int:
        """Models a trial; 1 where a part is held back once and for all."""
        return len(self.repeats[0])

    def of(self, seed: int) -> tuple[Split, ...]:
        """Return the folds of a seed."""
        return self.repeats[seed % len(self.repeats)]

    @property
    def validated(self) -> Rows:
        """All rows that validate, in order."""
        return np.unique(np.concatenate([split.validation for split in self.repeats[0]]))


def plan_splits(task: ArrayTask, labels: Rows | None, seed: int) -> Splits:
    """Deal the sequences out; `labels` are class numbers, None for a regression."""
    groups = same_sequences(task)
    few = task.samples < FEW
    parts = FOLDS if few else max(FOLDS, -(-task.samples // MAX_VALIDATION))
    count = min(parts, int(groups.max()) + 1)
    repeats: list[tuple[Split, ...]] = []
    for repeat in range(REPEATS if few else 1):
        fold = deal(groups, labels, count, generator(seed, f"folds {repeat}" if few else "split"))
        held = range(count) if few else range(1)
        splits = [Split(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in held]
        repeats.append(tuple(split for split in splits if split.validation.size))
    trained = float(np.mean([len(split.train) for split in repeats[0]]))
    validated = sum(len(split.validation) for split in repeats[0])
    return Splits(tuple(repeats), 1.0 + validated / max(trained, 1.0))


def same_sequences(task: ArrayTask) -> Rows:
    """Return a group for every sequence; equal ones, whatever their targets, share it."""
    found: dict[bytes, int] = {}
    keys = (task.X[i].tobytes() + (b"" if task.mask is None else task.mask[i].tobytes()) for i in range(task.samples))
    return np.array([found.setdefault(key, len(found)) for key in keys])


def deal(groups: Rows, labels: Rows | None, count: int, rng: np.random.Generator) -> Rows:
    """Return fold[samples]: whole groups, each class spread as evenly as it goes, sizes as equal as it goes."""
    number = int(groups.max()) + 1
    sizes = np.bincount(groups, minlength=number)
    kind = np.zeros(number, np.int64)
    if labels is not None:
        kind[groups[::-1]] = labels[::-1]  # of the first member
    order = rng.permutation(number)
    order = order[np.argsort(-sizes[order], kind="stable")]  # large groups first: small ones then level it out
    fold = np.empty(number, np.int64)
    total = np.zeros(count)
    own = np.zeros((int(kind.max()) + 1, count))
    for group in order:
        least = np.lexsort((total, own[kind[group]]))[0]
        fold[group] = least
        own[kind[group], least] += sizes[group]
        total[least] += sizes[group]
    return fold[groups]
