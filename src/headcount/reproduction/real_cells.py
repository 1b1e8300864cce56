"""The cells of a run on real data: accuracies and reciprocal ranks over seeds, of both parts, beside the paper's."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from headcount.analysis import HALF, Part, planned, planned_heads, size
from headcount.core import BadInput, generator
from headcount.reproduction import numbers
from headcount.reproduction.real_items import RealKind, paper_table
from headcount.store import Run, Trial

PARTS: tuple[Part, ...] = get_args(Part)[::-1]
"""Training before validation, as the paper's tables."""
UNITS: dict[RealKind, float] = {"marco": 1.0, "cifar": 100.0}
"""By what accuracies are multiplied in the paper's tables: those of CIFAR-10 are in percent."""
DRAWS = 200
Place = tuple[int, int]  # heads, length
PATCH = 4
"""Of the paper's tables, by their lengths: with another patch the same length is another frame."""


@dataclass(frozen=True)
class RealCell:
    """One number of the paper and of ours: a part of the data, a head count and a length."""

    part: Part
    heads: int
    length: int
    accuracies: tuple[float, ...]
    """Of the finished seeds, from 0 to 1."""
    ranks: tuple[float, ...]
    """Their mean reciprocal ranks, where they have one."""
    trials: int
    diverged: int
    missing: int
    samples: int
    """How many samples they were measured on; 0 where that is not known."""
    theirs: float | None
    """The paper's mean accuracy, from 0 to 1."""
    deviation: float | None
    """Its standard deviation over seeds."""

    @property
    def mean(self) -> float | None:
        """Our mean accuracy over seeds."""
        return statistics.fmean(self.accuracies) if self.accuracies else None

    @property
    def spread(self) -> float | None:
        """The standard deviation over seeds; None with a single one."""
        return statistics.stdev(self.accuracies) if len(self.accuracies) > 1 else None

    @property
    def noise(self) -> float:
        """The standard error of the mean: of the seeds, or of counting the samples where that is larger."""
        count, mean = len(self.accuracies), self.mean
        if mean is None:
            return math.inf
        seeds = (self.spread or 0.0) / math.sqrt(count)
        samples = math.sqrt(mean * (1 - mean) / self.samples) if self.samples else 0.0
        return max(seeds, samples)


Cells = dict[tuple[Part, int, int], RealCell]
"""By part, head count and length."""


def kind_of(runs: Sequence[Run]) -> RealKind:
    """Return which data the runs are on."""
    kinds = {str(run.task.get("kind", run.spec.get("kind"))) for run in runs}
    for kind in ("marco", "cifar"):
        if kinds == {kind} and all(run.measure == "error rate" for run in runs):
            return kind
    raise BadInput(f"these are no runs on MS MARCO or CIFAR-10 alone, but on {', '.join(sorted(kinds)) or 'nothing'}")


def accuracy_of(trial: Trial, part: Part) -> float | None:
    """Return the accuracy of a finished trial on a part; where only the error is on record, 1 − that."""
    if trial.state != "done":
        return None
    stated, error = (
        (trial.train_accuracy, trial.train_nmse) if part == "train" else (trial.accuracy, trial.nmse)
    )  # fmt: skip
    if stated is not None:
        return stated
    return None if error is None else 1.0 - error


def rank_of(trial: Trial, part: Part) -> float | None:
    """Return the mean reciprocal rank of a finished trial on a part."""
    if trial.state != "done":
        return None
    return trial.train_mrr if part == "train" else trial.mrr


def real_cells(runs: Sequence[Run]) -> Cells:
    """Return all cells of a run on real data, each with the paper's number where it has one."""
    kind = kind_of(runs)
    found: Cells = {}
    for part in PARTS:
        paper = {(c.heads, c.length): c for c in numbers.cells(paper_table(kind, part))}
        for run in sorted(runs, key=lambda run: size(run, "length")):
            length = size(run, "length")
            for heads in planned_heads(run):
                trials = [t for t in run.trials if t.heads == heads]
                theirs = paper.get((heads, length)) if beside(run) else None
                deviation = None if theirs is None or theirs.deviation is None else theirs.deviation / UNITS[kind]
                found[part, heads, length] = RealCell(
                    part, heads, length, _known(accuracy_of(t, part) for t in trials),
                    _known(rank_of(t, part) for t in trials), planned(run, heads),
                    sum(t.state == "diverged" for t in trials), planned(run, heads) - len(trials),
                    run.samples.get(part, 0), None if theirs is None else theirs.value / UNITS[kind], deviation,
                )  # fmt: skip
    return found


def _known(values: Iterable[float | None]) -> tuple[float, ...]:
    return tuple(v for v in values if v is not None)


def heads_of(cells: Cells) -> list[int]:
    """Return the head counts, in order."""
    return sorted({heads for _, heads, _ in cells})


def beside(run: Run) -> bool:
    """Whether the paper's cell of the same length is of the same frames: its tables have patches of 4."""
    return run.task.get("patch", PATCH) == PATCH


def lengths_of(cells: Cells) -> list[int]:
    """Return the lengths, in order."""
    return sorted({length for _, _, length in cells})


def errors(cells: Cells, part: Part, seed: int = 0) -> tuple[list[Place], NDArray[np.float64], int]:
    """Return places with a result, mean errors [draw, place], and how many seeds without any error they hold.

    Row 0 is the data, the others have the seeds of every place drawn again. An error of 0 counts as half a wrong
    answer; where the number of samples is not known such a place is left out.
    """
    rng = generator(seed, f"real errors {part}")
    places: list[Place] = []
    rows: list[NDArray[np.float64]] = []
    zeros = 0
    for (of, heads, length), cell in cells.items():
        found = 1.0 - np.array(cell.accuracies)
        if of != part or not found.size or (not cell.samples and found.mean() == 0):
            continue
        zeros += int((found == 0).sum())
        chosen = rng.integers(0, found.size, (1 + DRAWS, found.size))
        chosen[0] = np.arange(found.size)
        least = HALF / cell.samples if cell.samples else float(found[found > 0].min())
        rows.append(np.maximum(found[chosen], least).mean(1))
        places.append((heads, length))
    return places, np.stack(rows, 1) if rows else np.zeros((1 + DRAWS, 0)), zeros
