"""The errors of trained models, and the sequences of every split, placed on the device where they are measured."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headcount.advisor.data import Material
from headcount.advisor.split import MAX_VALIDATION, Split
from headcount.advisor.trials import FoldHistory, Outcome, Wanted
from headcount.models.transformer import Flat, ModelSpec, Transformer
from headcount.training import Dataset, Job, Part, StackTrainer

SEQUENCES_AT_ONCE = 2048
"""Sequences in one forward pass."""
Errors = tuple[NDArray[np.float32], NDArray[np.bool_] | None]
"""Squared errors [samples], and wrong classes [samples] where there are classes."""


class Parts(NamedTuple):
    """The sequences of one split, on the device where trials are measured."""

    data: Dataset
    unseen: Part
    known: Part
    """Some of the sequences that are trained on."""


def history_of(measures: Sequence[Errors]) -> FoldHistory:
    """Return the errors of every evaluation, stacked."""
    wrong = [row for _, row in measures if row is not None]
    return FoldHistory(np.stack([squares for squares, _ in measures]), np.stack(wrong) if wrong else None)


@torch.no_grad()
def predicted(network: Transformer, part: Part) -> NDArray[np.float64]:
    """Return the outputs [samples, out] in the units of training, computed on the part's device."""
    network = network.to(part.X.device)
    outputs = [
        network(part.X[i : i + SEQUENCES_AT_ONCE], None if part.mask is None else part.mask[i : i + SEQUENCES_AT_ONCE])
        for i in range(0, len(part.X), SEQUENCES_AT_ONCE)
    ]
    return torch.cat(outputs).double().cpu().numpy()


def measured(
    outputs: NDArray[np.float64], part: Part, variance: float | None = None
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Return squared errors [samples] in units of the variance (of the part unless given), and wrong classes."""
    y = part.y.double().cpu().numpy()
    unit = float(np.square(y - y.mean(0)).sum(1).mean()) if variance is None else variance
    return (np.square(outputs - y).sum(1) / unit).astype(np.float32), outputs.argmax(1) != y.argmax(1)


class Measurer:
    """Data on a device, and the errors of trials on them."""

    def __init__(self, material: Material, device: torch.device) -> None:
        self.material, self.device, self.folds = material, device, material.splits.folds
        self._parts: dict[int, Parts] = {}
        self._placing = threading.Lock()
        self.sequences = self._place(material.sequences)

    def _place(self, part: Part) -> Part:
        """Return a part on the device where trials are measured."""
        mask = None if part.mask is None else part.mask.to(self.device)
        return Part(part.X.to(self.device), part.y.to(self.device), mask)

    def sized(self, wanted: Wanted) -> ModelSpec:
        """Return the full spec of a trial's model."""
        task = self.material.task
        return wanted.options.model(heads=wanted.heads, dim=task.dim, length=task.length, out_dim=task.out_dim)

    def split(self, wanted: Wanted) -> Split:
        """Return the rows that a trial trains on, and those that validate it."""
        return self.material.splits.of(wanted.seed)[wanted.fold]

    def parts(self, wanted: Wanted) -> Parts:
        """Return the sequences of a trial's split."""
        split = self.split(wanted)
        with self._placing:
            if id(split) not in self._parts:
                data = self.material.dataset(split)
                rows = torch.from_numpy(split.train[:MAX_VALIDATION]).to(self.device)
                self._parts[id(split)] = Parts(data, self._place(data.validation), self.sequences.rows(rows))
            return self._parts[id(split)]

    def job(self, wanted: Wanted) -> Job:
        """Return a trial as a job for one core."""
        return Job(self.material.task, self.sized(wanted), wanted.train, wanted.seed, self.parts(wanted).data)

    def errors(self, outputs: NDArray[np.float64], part: Part) -> Errors:
        """Return squared errors and wrong classes; in folds, in units of the variance over all folds."""
        squares, wrong = measured(outputs, part, None if self.folds == 1 else self.material.variance)
        return squares, wrong if self.material.classes is not None else None

    def outcome(
        self,
        wanted: Wanted,
        model: ModelSpec,
        theta: NDArray[Any],
        curve: list[tuple[int, float]],
        *,
        steps: int,
        completed: bool,
        seconds: float,
        outputs: Sequence[NDArray[np.float64]],
        history: FoldHistory | None,
    ) -> Outcome:
        """Return the outcome of a trial.

        outputs: at the best point on unseen and on known sequences, and at the end on known ones.
        """
        unseen, known, last = outputs
        parts = self.parts(wanted)
        squares, wrong = self.errors(unseen, parts.unseen)
        train, fitted = (float(measured(found, parts.known)[0].mean()) for found in (known, last))
        return Outcome(
            wanted,
            model,
            theta,
            list(curve),
            steps,
            completed,
            seconds,
            float(squares.mean()),
            train,
            squares,
            None if wrong is None else float(wrong.mean()),
            Flat.of(model).size,
            fitted,
            history=history,
        )

    def diverged_text(self) -> str:
        """Return why a trial that diverged before its first evaluation does not count."""
        return f"training diverged: no usable error on the {self.material.validation_size} validation sequences"


class StackMeasurer:
    """Measures a stack: every model on the sequences that its own split holds out."""

    def __init__(self, data: Measurer, order: Sequence[Wanted]) -> None:
        self.data, self.order = data, order
        self.unseen = [data.split(wanted).validation for wanted in order]
        self.known = [data.split(wanted).train[:MAX_VALIDATION] for wanted in order]
        self.one_split = data.folds == 1
        self.evaluations: list[tuple[NDArray[np.float32], NDArray[np.bool_]]] = []

    def launch(self, trainer: StackTrainer) -> Tensor:
        """Start measuring: return every model's error or, in folds, its outputs on all sequences."""
        if self.one_split:
            unseen = self.data.parts(self.order[0]).unseen
            return trainer.nmse(unseen.X, unseen.y, unseen.mask)
        return trainer.outputs(trainer.theta, self.data.sequences.X, self.data.sequences.mask)

    def errors(self, launched: Tensor) -> Tensor:
        """Return every model's error [models]; in folds, keep the errors of every sequence."""
        if self.one_split:
            return launched
        y, variance = self.data.sequences.y, self.data.material.variance
        squares = ((launched - y).double().square().sum(2) / variance).float()
        wrong = launched.argmax(2) != y.argmax(1)
        self.evaluations.append((squares.cpu().numpy(), wrong.cpu().numpy()))
        means = [self.evaluations[-1][0][m, rows].astype(np.float64).mean() for m, rows in enumerate(self.unseen)]
        return torch.tensor(means, dtype=torch.float64, device=launched.device)

    def history(self, m: int, count: int) -> FoldHistory | None:
        """Return, in folds, the errors of one model at every evaluation that counts."""
        if self.one_split:
            return None
        rows, classes = self.unseen[m], self.data.material.classes is not None
        squares = np.stack([squares[m, rows] for squares, _ in self.evaluations[:count]])
        return FoldHistory(
            squares, np.stack([wrong[m, rows] for _, wrong in self.evaluations[:count]]) if classes else None
        )

    def outputs(self, trainer: StackTrainer, best: Tensor) -> list[list[NDArray[np.float64]]]:
        """Return every model's outputs: unseen and known sequences with the best weights, known with the last."""
        weights = [best, best, trainer.theta]
        if self.one_split:
            parts = self.data.parts(self.order[0])
            made = [
                trainer.outputs(theta, part.X, part.mask)
                for theta, part in zip(weights, (parts.unseen, parts.known, parts.known), strict=True)
            ]
            trainer.wait()
            arrays = [outputs.double().cpu().numpy() for outputs in made]
            return [[outputs[m] for outputs in arrays] for m in range(len(self.order))]
        sequences = self.data.sequences
        made = [trainer.outputs(theta, sequences.X, sequences.mask) for theta in (best, trainer.theta)]
        trainer.wait()
        first, last = (outputs.double().cpu().numpy() for outputs in made)
        return [
            [first[m, a], first[m, b], last[m, b]] for m, (a, b) in enumerate(zip(self.unseen, self.known, strict=True))
        ]
