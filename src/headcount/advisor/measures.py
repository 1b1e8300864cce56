"""What trained models get right and wrong: the sequences of every split, placed where trials are measured on them."""

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
from headcount.advisor.trials import Outcome, Path, Wanted
from headcount.models.transformer import Flat, ModelSpec, Transformer
from headcount.training import Dataset, Job, Part, StackTrainer

CHUNK = 2048
Errors = tuple[NDArray[np.float32], NDArray[np.bool_] | None]
"""Squared errors [samples], and wrong classes [samples] where there are classes."""


class Parts(NamedTuple):
    """The sequences of one split, where trials are measured."""

    data: Dataset
    unseen: Part
    some: Part
    """Some of those that are trained on."""


def path_of(measures: Sequence[Errors]) -> Path:
    """Stack what was measured at every evaluation."""
    wrong = [one for _, one in measures if one is not None]
    return Path(np.stack([squares for squares, _ in measures]), np.stack(wrong) if wrong else None)


@torch.no_grad()
def predicted(network: Transformer, part: Part) -> NDArray[np.float64]:
    """Return the outputs [samples, out] in the units of training, computed where the part lies."""
    network = network.to(part.X.device)
    outputs = [
        network(part.X[i : i + CHUNK], None if part.mask is None else part.mask[i : i + CHUNK])
        for i in range(0, len(part.X), CHUNK)
    ]
    return torch.cat(outputs).double().cpu().numpy()


def measured(
    outputs: NDArray[np.float64], part: Part, variance: float | None = None
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Return squared errors [samples] in units of the variance (of the part, unless given), and wrong classes."""
    y = part.y.double().cpu().numpy()
    unit = float(np.square(y - y.mean(0)).sum(1).mean()) if variance is None else variance
    return (np.square(outputs - y).sum(1) / unit).astype(np.float32), outputs.argmax(1) != y.argmax(1)


class Measurer:
    """Some data on a device, and what trials get right on them."""

    def __init__(self, material: Material, device: torch.device) -> None:
        self.material, self.device, self.folds = material, device, material.splits.folds
        self._parts: dict[int, Parts] = {}
        self._placing = threading.Lock()
        self.whole = self._place(material.whole)

    def _place(self, part: Part) -> Part:
        """Put a part where trials are measured."""
        mask = None if part.mask is None else part.mask.to(self.device)
        return Part(part.X.to(self.device), part.y.to(self.device), mask)

    def sized(self, wanted: Wanted) -> ModelSpec:
        """Return the whole spec of a trial's model."""
        task = self.material.task
        return wanted.options.model(heads=wanted.heads, dim=task.dim, length=task.length, out_dim=task.out_dim)

    def split(self, wanted: Wanted) -> Split:
        """Return what a trial trains on and what validates it."""
        return self.material.splits.of(wanted.seed)[wanted.fold]

    def parts(self, wanted: Wanted) -> Parts:
        """Return the sequences of a trial's split."""
        split = self.split(wanted)
        with self._placing:
            if id(split) not in self._parts:
                data = self.material.dataset(split)
                rows = torch.from_numpy(split.train[:MAX_VALIDATION]).to(self.device)
                self._parts[id(split)] = Parts(data, self._place(data.validation), self.whole.rows(rows))
            return self._parts[id(split)]

    def job(self, wanted: Wanted) -> Job:
        """Return a trial as a core trains it."""
        return Job(self.material.task, self.sized(wanted), wanted.train, wanted.seed, self.parts(wanted).data)

    def errors(self, outputs: NDArray[np.float64], part: Part) -> Errors:
        """Return squared errors and wrong classes; in folds the unit is the variance over all of them."""
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
        whole: bool,
        seconds: float,
        outputs: Sequence[NDArray[np.float64]],
        path: Path | None,
    ) -> Outcome:
        """Measure a model by its outputs at the best point, on unseen and on known sequences, and at the end."""
        unseen, some, last = outputs
        parts = self.parts(wanted)
        squares, wrong = self.errors(unseen, parts.unseen)
        train, fitted = (float(measured(found, parts.some)[0].mean()) for found in (some, last))
        return Outcome(
            wanted,
            model,
            theta,
            list(curve),
            steps,
            whole,
            seconds,
            float(squares.mean()),
            train,
            squares,
            None if wrong is None else float(wrong.mean()),
            Flat.of(model).size,
            fitted,
            path=path,
        )

    def beyond(self) -> str:
        """Why a trial counts for nothing that diverged before its first evaluation."""
        return f"errors beyond all bounds on the {self.material.validation_size} sequences that validate"


class StackMeasurer:
    """Measures a stack: every model on the sequences that its own split holds back."""

    def __init__(self, data: Measurer, order: Sequence[Wanted]) -> None:
        self.data, self.order = data, order
        self.unseen = [data.split(one).validation for one in order]
        self.known = [data.split(one).train[:MAX_VALIDATION] for one in order]
        self.alike = data.folds == 1
        self.paths: list[tuple[NDArray[np.float32], NDArray[np.bool_]]] = []

    def launch(self, trainer: StackTrainer) -> Tensor:
        """Start to measure: every model's error, or in folds its outputs on all sequences."""
        if self.alike:
            unseen = self.data.parts(self.order[0]).unseen
            return trainer.nmse(unseen.X, unseen.y, unseen.mask)
        return trainer.outputs(trainer.theta, self.data.whole.X, self.data.whole.mask)

    def errors(self, launched: Tensor) -> Tensor:
        """Return every model's error [models], and keep in folds what every sequence has to do with it."""
        if self.alike:
            return launched
        whole, variance = self.data.whole, self.data.material.variance
        squares = ((launched - whole.y).double().square().sum(2) / variance).float()
        wrong = launched.argmax(2) != whole.y.argmax(1)
        self.paths.append((squares.cpu().numpy(), wrong.cpu().numpy()))
        means = [self.paths[-1][0][m, rows].astype(np.float64).mean() for m, rows in enumerate(self.unseen)]
        return torch.tensor(means, dtype=torch.float64, device=launched.device)

    def path(self, m: int, count: int) -> Path | None:
        """Return in folds what one model measured, at every evaluation that counts."""
        if self.alike:
            return None
        rows, classes = self.unseen[m], self.data.material.classes is not None
        squares = np.stack([squares[m, rows] for squares, _ in self.paths[:count]])
        return Path(squares, np.stack([wrong[m, rows] for _, wrong in self.paths[:count]]) if classes else None)

    def outputs(self, trainer: StackTrainer, best: Tensor) -> list[list[NDArray[np.float64]]]:
        """Return every model's outputs: unseen and known sequences with the best weights, known with the last."""
        asked = [best, best, trainer.theta]
        if self.alike:
            parts = self.data.parts(self.order[0])
            made = [
                trainer.outputs(theta, part.X, part.mask)
                for theta, part in zip(asked, (parts.unseen, parts.some, parts.some), strict=True)
            ]
            trainer.wait()
            arrays = [some.double().cpu().numpy() for some in made]
            return [[some[m] for some in arrays] for m in range(len(self.order))]
        whole = self.data.whole
        made = [trainer.outputs(theta, whole.X, whole.mask) for theta in (best, trainer.theta)]
        trainer.wait()
        first, last = (some.double().cpu().numpy() for some in made)
        return [
            [first[m, a], first[m, b], last[m, b]] for m, (a, b) in enumerate(zip(self.unseen, self.known, strict=True))
        ]
