"""The trials that the advisor requests, and their outcomes: a trial counts at its best validation point."""

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
    """One requested trial."""

    heads: int
    seed: int
    options: ModelOptions
    train: TrainSpec
    tag: str = "heads"
    """Which curve it belongs to: heads, width, parameters, pilot, length."""
    fold: int = 0
    """Which of the folds of its seed is held out, if there are several."""


class FoldHistory(NamedTuple):
    """The errors of one fold at every evaluation."""

    squares: NDArray[np.float32]
    """[evaluations, validation samples]."""
    wrong: NDArray[np.bool_] | None


@dataclass(frozen=True, eq=False)
class Outcome:
    """One trained model at its best validation point, or one model per fold at their common best point."""

    wanted: Wanted
    model: ModelSpec
    theta: NDArray[Any]
    curve: list[tuple[int, float]]
    steps: int
    completed: bool
    """Whether all steps were taken; False if the deadline or a divergence cut it off."""
    seconds: float
    validation: float
    """NMSE at the best point."""
    train: float
    squares: NDArray[np.float32]
    """[validation samples]: squared errors in units of the variance; their mean is `validation`."""
    wrong: float | None
    """The share of wrong classes on the validation set."""
    parameters: int = 0
    fitted: float = float("nan")
    """The training error at the end of training; `train` is the one at the best validation point."""
    fold_errors: tuple[float, ...] = ()
    """In folds: the error of every model on its held-out fold, at the common best point."""
    history: FoldHistory | None = None
    """The errors of a single fold at every evaluation, until the folds are joined."""

    @property
    def heads(self) -> int:
        """The head count."""
        return self.wanted.heads

    def network(self) -> Transformer:
        """Return the model itself."""
        return Flat.of(self.model).unpack(self.theta)


def in_folds(order: Sequence[Wanted], material: Material) -> list[tuple[int, Wanted]]:
    """Return one trial per fold for each requested trial, paired with the index of that request."""
    return [
        (place, replace(wanted, fold=fold))
        for place, wanted in enumerate(order)
        for fold in range(len(material.splits.of(wanted.seed)))
    ]


def joined(wanted: Wanted, parts: Sequence[Outcome], material: Material) -> Outcome | None:
    """Return the folds of a trial joined at the evaluation that is best for all; None if one is missing."""
    splits = material.splits
    if len(parts) < len(splits.of(wanted.seed)):
        return None
    rows = splits.validated
    histories = [part.history for part in parts if part.history is not None]
    count = min(len(history.squares) for history in histories)
    squares, wrong, times = np.zeros((count, len(rows))), np.zeros((count, len(rows))), np.zeros(len(rows))
    for part, history in zip(parts, histories, strict=True):
        at = np.searchsorted(rows, splits.of(wanted.seed)[part.wanted.fold].validation)
        squares[:, at] += history.squares[:count]
        wrong[:, at] += 0 if history.wrong is None else history.wrong[:count]
        times[at] += 1
    squares, wrong = squares / times, wrong / times
    errors = squares.mean(1)
    at, best = int(errors.argmin()), min(parts, key=lambda part: part.validation)
    return replace(
        best,
        wanted=wanted,
        history=None,
        fold_errors=tuple(float(history.squares[at].mean()) for history in histories),
        steps=min(part.steps for part in parts),
        completed=all(part.completed for part in parts),
        seconds=sum(part.seconds for part in parts),
        curve=[(step, float(error)) for (step, _), error in zip(parts[0].curve, errors, strict=False)],
        validation=float(errors[at]),
        squares=squares[at].astype(np.float32),
        wrong=None if best.wrong is None else float(wrong[at].mean()),
        train=float(np.mean([part.train for part in parts])),
        fitted=float(np.mean([part.fitted for part in parts])),
    )
