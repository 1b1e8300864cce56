"""The cells of the runs of a spec file: every head count at every length, the paper's number beside ours."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from headcount.analysis import WRONG_ANSWERS_FOR_ZERO, Analysis, Part, analyse, planned, planned_heads, size
from headcount.core import BadInput, generator, option
from headcount.reproduction import numbers
from headcount.reproduction.items import DATA, RealData, paper_tables
from headcount.store import Measure, Run, Trial

PARTS: tuple[Part, ...] = get_args(Part)[::-1]
"""Training before validation, as in the paper's tables."""
WORDS: dict[Part, str] = {"train": "training", "validation": "validation"}
PART_NAMES: dict[Part, str] = {"train": "train", "validation": "valid."}
"""For the columns and rows of tables."""
ERROR_RATE_DRAWS = 200
"""Draws of the seeds behind the intervals of mean error rates."""
Place = tuple[int, int]  # heads, length
PAPER_PATCH = 4
"""The side of a patch in the paper's tables: with another patch the same length is another frame."""


@dataclass(frozen=True)
class ComparedCell:
    """One number of the paper and of ours: a part of the data, a head count and a length.

    Results are errors (NMSE) on a task, and top-1 accuracies from 0 to 1 on real data.
    """

    part: Part
    heads: int
    length: int
    draws: dict[int, tuple[float, ...]]
    """The results of the finished seeds, by the draw of the target; real data have draw 0 alone."""
    ranks: tuple[float, ...]
    """Their mean reciprocal ranks, where they have one."""
    trials: int
    diverged: int
    missing: int
    samples: int
    """The number of samples they were measured on; 0 if unknown."""
    theirs: float | None
    """The paper's number, in the unit of ours."""
    deviation: float | None
    """Its standard deviation over seeds."""
    source: str
    """The paper's cell: table 2, h = 4, T = 8."""

    @property
    def results(self) -> tuple[float, ...]:
        """The results of all finished trials."""
        return tuple(result for some in self.draws.values() for result in some)

    @property
    def mean(self) -> float | None:
        """Our mean over seeds."""
        return mean_and_deviation(self.results)[0]

    @property
    def noise(self) -> float:
        """The standard error of a mean accuracy: that of the seeds or of counting the samples, whichever is larger."""
        mean, deviation = mean_and_deviation(self.results)
        if mean is None:
            return math.inf
        seeds = (deviation or 0.0) / math.sqrt(len(self.results))
        samples = math.sqrt(mean * (1 - mean) / self.samples) if self.samples else 0.0
        return max(seeds, samples)


def mean_and_deviation(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the mean and the standard deviation; a single value has no deviation, an empty sequence has neither."""
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return statistics.fmean(values) if values else None, deviation


class Cells(dict[tuple[Part, int, int], ComparedCell]):
    """The cells by part, head count and length; every head count has a cell at every length."""

    @property
    def heads(self) -> list[int]:
        """The head counts, in order."""
        return sorted({heads for _, heads, _ in self})

    @property
    def lengths(self) -> list[int]:
        """The lengths, in order."""
        return sorted({length for _, _, length in self})

    def with_heads(self, part: Part, heads: int) -> list[ComparedCell]:
        """Return the cells of a head count, by length."""
        return [self[part, heads, length] for length in self.lengths]

    def at_length(self, part: Part, length: int) -> list[ComparedCell]:
        """Return the cells of a length, by head count."""
        return [self[part, heads, length] for heads in self.heads]

    def error_rates(self, part: Part, seed: int = 0) -> tuple[list[Place], NDArray[np.float64], int]:
        """Return the places with a result, mean error rates [draw, place], and how many of their seeds have no error.

        Row 0 is the data; in the other rows the seeds of every place are drawn again. An error of 0 counts as half a
        wrong answer; if the number of samples is unknown, a place with no error at all is left out.
        """
        rng = generator(seed, f"real errors {part}")
        places: list[Place] = []
        rows: list[NDArray[np.float64]] = []
        zeros = 0
        for (of, heads, length), cell in self.items():
            found = 1.0 - np.array(cell.results)
            if of != part or not found.size or (not cell.samples and found.mean() == 0):
                continue
            zeros += int((found == 0).sum())
            chosen = rng.integers(0, found.size, (1 + ERROR_RATE_DRAWS, found.size))
            chosen[0] = np.arange(found.size)
            for_zero = WRONG_ANSWERS_FOR_ZERO / cell.samples if cell.samples else float(found[found > 0].min())
            rows.append(np.maximum(found[chosen], for_zero).mean(1))
            places.append((heads, length))
        return places, np.stack(rows, 1) if rows else np.zeros((1 + ERROR_RATE_DRAWS, 0)), zeros


@dataclass(frozen=True)
class Comparison:
    """The runs of a spec file beside the paper."""

    spec: str
    runs: Sequence[Run]
    """Its panels, finished or not."""
    analyses: dict[Part, Analysis]
    """The analyses of the errors on each part of the data, which may disagree."""
    cells: Cells

    @property
    def data(self) -> RealData | None:
        """The real data of the runs; None for a task."""
        return DATA.get(self.spec)

    @property
    def analysis(self) -> Analysis:
        """The analysis of the first part."""
        return next(iter(self.analyses.values()))

    @property
    def counts(self) -> dict[str, int]:
        """The number of trials in each state that occurs."""
        return {state: n for state, n in self.analyses["validation"].counts.items() if n}


def compare(spec: str, runs: Sequence[Run], resamples: int = 1000) -> Comparison:
    """Return the runs of a spec file beside the paper."""
    cells = read_cells(spec, runs)
    return Comparison(spec, runs, {part: analyse(runs, on=part, resamples=resamples) for part in _parts(spec)}, cells)


def _parts(spec: str) -> Sequence[Part]:
    """Return the parts of the data whose errors are shown: for a task only fresh sequences."""
    return PARTS if spec in DATA else ("validation",)


def read_cells(spec: str, runs: Sequence[Run]) -> Cells:
    """Return all cells of the runs of a spec file, each with the paper's number if it has one."""
    _check_kind(spec, runs)
    tables = paper_tables(spec)
    all_heads = sorted({heads for run in runs for heads in planned_heads(run)})
    found = Cells()
    for part in _parts(spec):
        paper = {(c.heads, c.length): c for c in numbers.cells(tables[part])} if part in tables else {}
        for length in sorted({size(run, "length") for run in runs}):
            panels = [run for run in runs if size(run, "length") == length]
            for heads in all_heads:
                theirs = paper.get((heads, length)) if same_frames(panels[0]) else None
                found[part, heads, length] = _cell(spec, part, (heads, length), panels, theirs)
    return found


def _check_kind(spec: str, runs: Sequence[Run]) -> None:
    """Refuse runs with the name of a run on real data that were trained on something else."""
    kinds = {str(run.task.get("kind", run.spec.get("kind", "a task"))) for run in runs}
    if spec in DATA and (kinds != {spec} or any(run.measure != "error rate" for run in runs)):
        trained_on = ", ".join(sorted(kinds)) or "nothing"
        raise BadInput(
            f"the store's run is not on {DATA[spec].name} alone, but on {trained_on}: choose another {option('store')}"
        )


def _cell(spec: str, part: Part, place: Place, panels: Sequence[Run], theirs: numbers.PaperCell | None) -> ComparedCell:
    heads, unit = place[0], DATA[spec].unit if spec in DATA else 1.0
    trials = [(run, trial) for run in panels for trial in run.trials if trial.heads == heads]
    draws, ranks = dict[int, tuple[float, ...]](), list[float]()
    for run, trial in trials:
        result, rank = measured(trial, part, run.measure)
        draw = int(run.values.get("target", 0))
        if result is not None:
            draws[draw] = (*draws.get(draw, ()), result)
        if rank is not None:
            ranks.append(rank)
    planned_trials = sum(planned(run, heads) for run in panels)
    return ComparedCell(
        part,
        *place,
        draws,
        tuple(ranks),
        trials=planned_trials,
        diverged=sum(trial.state == "diverged" for _, trial in trials),
        missing=planned_trials - len(trials),
        samples=panels[0].samples.get(part, 0),
        theirs=None if theirs is None else theirs.value / unit,
        deviation=None if theirs is None or theirs.deviation is None else theirs.deviation / unit,
        source="" if theirs is None else theirs.cell,
    )


def measured(trial: Trial, part: Part, measure: Measure) -> tuple[float | None, float | None]:
    """Return the error (NMSE) or accuracy of a finished trial and its mean reciprocal rank, None for what it lacks.

    If only the error rate is on record, the accuracy is 1 minus that.
    """
    if trial.state != "done":
        return None, None
    error, accuracy, rank = trial.nmse, trial.accuracy, trial.mrr
    if part == "train":
        error, accuracy, rank = trial.train_nmse, trial.train_accuracy, trial.train_mrr
    if measure == "nmse" or error is None:
        return (error if measure == "nmse" else accuracy), rank
    return (1.0 - error if accuracy is None else accuracy), rank


def same_frames(run: Run) -> bool:
    """Whether the paper's cell of the same length has the same frames: its tables have patches of 4."""
    return run.task.get("patch", PAPER_PATCH) == PAPER_PATCH
