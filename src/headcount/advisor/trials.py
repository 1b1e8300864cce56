"""What the advisor asks to be trained, and what became of it: a trial counts at its best validation point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headcount.advisor.data import Material
from headcount.models.transformer import Flat, ModelSpec, Transformer
from headcount.sweeps import ModelOptions
from headcount.training import TrainSpec


@dataclass(frozen=True, eq=False)
class Wanted:
    """One trial that is asked for."""

    heads: int
    seed: int
    options: ModelOptions
    train: TrainSpec
    tag: str = "heads"
    """Which curve it belongs to: heads, width, parameters, pilot, length."""
    fold: int = 0
    """Which of the folds of its seed is held back, where there are several."""


class Path(NamedTuple):
    """What one fold measured at every evaluation."""

    squares: NDArray[np.float32]
    """[evaluations, validation samples]."""
    wrong: NDArray[np.bool_] | None


@dataclass(frozen=True, eq=False)
class Outcome:
    """One trained model at its best validation point, or one model a fold at the best point of all of them."""

    wanted: Wanted
    model: ModelSpec
    theta: NDArray[Any]
    curve: list[tuple[int, float]]
    steps: int
    whole: bool
    """Whether all steps were taken, or the deadline or a divergence cut it off."""
    seconds: float
    validation: float
    """NMSE at the best point."""
    train: float
    squares: NDArray[np.float32]
    """[validation samples]: squared error in units of the variance; their mean is `validation`."""
    wrong: float | None
    """The share of wrong classes on the validation set."""
    parameters: int = 0
    fitted: float = float("nan")
    """The training error at the end of training, where `train` is the one at the best validation point."""
    fold_errors: tuple[float, ...] = ()
    """In folds: the error of every model on what it held back, at the common best point."""
    path: Path | None = None
    """What a single fold measured at every evaluation, until the folds are put together."""

    @property
    def heads(self) -> int:
        """The head count."""
        return self.wanted.heads

    def network(self) -> Transformer:
        """Return the model itself."""
        return Flat.of(self.model).unpack(self.theta)


def in_folds(order: Sequence[Wanted], material: Material) -> list[tuple[int, Wanted]]:
    """Return a trial a fold for every trial, each with the place of the trial that it belongs to."""
    return [
        (place, replace(one, fold=fold))
        for place, one in enumerate(order)
        for fold in range(len(material.splits.of(one.seed)))
    ]


def joined(wanted: Wanted, parts: Sequence[Outcome], material: Material) -> Outcome | None:
    """Put the folds of a trial together at the evaluation that is best for all; None where one is missing."""
    splits = material.splits
    if len(parts) < len(splits.of(wanted.seed)):
        return None
    rows = splits.validated
    paths = [one.path for one in parts if one.path is not None]
    count = min(len(path.squares) for path in paths)
    squares, wrong, times = np.zeros((count, len(rows))), np.zeros((count, len(rows))), np.zeros(len(rows))
    for one, path in zip(parts, paths, strict=True):
        at = np.searchsorted(rows, splits.of(wanted.seed)[one.wanted.fold].validation)
        squares[:, at] += path.squares[:count]
        wrong[:, at] += 0 if path.wrong is None else path.wrong[:count]
        times[at] += 1
    squares, wrong = squares / times, wrong / times
    errors = squares.mean(1)
    at, best = int(errors.argmin()), min(parts, key=lambda one: one.validation)
    return replace(
        best,
        wanted=wanted,
        path=None,
        fold_errors=tuple(float(path.squares[at].mean()) for path in paths),
        steps=min(one.steps for one in parts),
        whole=all(one.whole for one in parts),
        seconds=sum(one.seconds for one in parts),
        curve=[(step, float(error)) for (step, _), error in zip(parts[0].curve, errors, strict=False)],
        validation=float(errors[at]),
        squares=squares[at].astype(np.float32),
        wrong=None if best.wrong is None else float(wrong[at].mean()),
        train=float(np.mean([one.train for one in parts])),
        fitted=float(np.mean([one.fitted for one in parts])),
    )
