"""What trained models get right and wrong: one model on a set of sequences, and a stack on what each holds back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headcount.advisor.split import MOST_VALIDATION
from headcount.models.transformer import Transformer
from headcount.training import Part, StackTrainer

if TYPE_CHECKING:
    from headcount.advisor.trials import Engine, Wanted

CHUNK = 2048


class Path(NamedTuple):
    """What one fold measured at every evaluation."""

    squares: NDArray[np.float32]
    """[evaluations, validation samples]."""
    wrong: NDArray[np.bool_] | None


def stacked_path(measures: Sequence[tuple[NDArray[np.float32], NDArray[np.bool_] | None]]) -> Path:
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


class Judge:
    """Measures a stack: every model on the sequences that its own split holds back."""

    def __init__(self, engine: Engine, order: Sequence[Wanted]) -> None:
        self.engine, self.order = engine, order
        self.unseen = [engine.split(one).validation for one in order]
        self.known = [engine.split(one).train[:MOST_VALIDATION] for one in order]
        self.alike = engine.folds == 1
        self.paths: list[tuple[NDArray[np.float32], NDArray[np.bool_]]] = []

    def errors(self, trainer: StackTrainer) -> Tensor:
        """Return every model's error, and keep in folds what every sequence has to do with it."""
        if self.alike:
            unseen = self.engine.parts(self.order[0]).unseen
            return trainer.nmse(unseen.X, unseen.y, unseen.mask)
        whole, variance = self.engine.whole, self.engine.material.variance
        out = trainer.outputs(trainer.theta, whole.X, whole.mask)
        trainer.wait()
        squares = ((out - whole.y).double().square().sum(2) / variance).float()
        wrong = out.argmax(2) != whole.y.argmax(1)
        self.paths.append((squares.cpu().numpy(), wrong.cpu().numpy()))
        means = [self.paths[-1][0][m, rows].astype(np.float64).mean() for m, rows in enumerate(self.unseen)]
        return torch.tensor(means, dtype=torch.float64, device=out.device)

    def path(self, m: int, count: int) -> Path:
        """Return what one model measured, at every evaluation that counts."""
        rows, classes = self.unseen[m], self.engine.material.classes is not None
        squares = np.stack([squares[m, rows] for squares, _ in self.paths[:count]])
        return Path(squares, np.stack([wrong[m, rows] for _, wrong in self.paths[:count]]) if classes else None)

    def outputs(self, trainer: StackTrainer, best: Tensor) -> list[list[NDArray[np.float64]]]:
        """Return every model's outputs: unseen and known sequences with the best weights, known with the last."""
        asked = [best, best, trainer.theta]
        if self.alike:
            parts = self.engine.parts(self.order[0])
            made = [
                trainer.outputs(theta, part.X, part.mask)
                for theta, part in zip(asked, (parts.unseen, parts.some, parts.some), strict=True)
            ]
            trainer.wait()
            arrays = [some.double().cpu().numpy() for some in made]
            return [[some[m] for some in arrays] for m in range(len(self.order))]
        whole = self.engine.whole
        made = [trainer.outputs(theta, whole.X, whole.mask) for theta in (best, trainer.theta)]
        trainer.wait()
        first, last = (some.double().cpu().numpy() for some in made)
        return [
            [first[m, a], first[m, b], last[m, b]] for m, (a, b) in enumerate(zip(self.unseen, self.known, strict=True))
        ]
