"""What an error is: the measure of a run, the part of the data that it was measured on, and errors of zero.

All statistics work on log error, and an error rate may be zero: no wrong answer among n samples. Such a trial counts as
half a wrong answer, 0.5/n, and is counted. Where n is not known it has no place on a log scale: it is left out, and
counted too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from headcount.core import BadInput
from headcount.store import Measure, Run, Trial

Part = Literal["validation", "train"]
FLOOR = 1e-12
"""Errors below this are rounding: ratios are taken as if the error were this large."""
UNSOLVED = 0.5
"""With an NMSE above this at every head count the models learned next to nothing."""
HALF = 0.5
"""Wrong answers that a trial without any counts as."""
FEW = 10
"""With fewer wrong answers than this an error rate is mostly luck: a decade counts half in the estimate of D."""
ZERO = "without a wrong answer"
"""The state of trials whose error rate is 0 on an unknown number of samples."""
UNMEASURED = "without a training error"
"""The state of finished trials that have no training error."""
BLIND = (
    'The answer depends on where tokens stand, and these models see no positions (positions = "none"): choose '
    'positions = "concatenated"; sweep and the command line do so themselves where positions are left out.'
)
"""Why models without positions do not learn some tasks."""


class Words(NamedTuple):
    """How a measure on a part of the data is called, everywhere alike."""

    kind: str
    """NMSE or error rate."""
    noun: str
    """In a sentence: the error, the training error."""
    title: str
    """At the start of a title."""
    axis: str
    data: str
    """What it was measured on."""
    short: str
    """Kind and data, where the head of a table needs both."""
    purpose: str
    """Behind "are needed"."""
    meaning: str
    """For readers who know neither."""

    @property
    def seeds(self) -> str:
        """What stands for the seeds of a cell: the luckiest of several shares of wrong answers says too much."""
        return "mean over seeds" if self.kind == "error rate" else "best seed"

    @property
    def targets(self) -> str:
        """What stands for a cell with several targets."""
        return f"mean over targets (in log scale), {self.seeds} of each"


_RATE = "The error is the error rate: the share of wrong answers, 1 − top-1 accuracy, "
_NMSE = "The error is the NMSE: the mean squared error divided by the variance of the answer, on sequences that the "
_FIT = " It says what a model can fit, not how it does on anything new."
_WORDS: dict[tuple[Measure, Part], Words] = {
    ("nmse", "validation"): Words(
        "NMSE",
        "error",
        "Error",
        "Error (NMSE)",
        "on fresh sequences",
        "NMSE",
        "",
        f"{_NMSE}model was not trained on. 0 is perfect, 0.01 leaves 1 % of the variation unexplained, 1 is guessing.",
    ),
    ("nmse", "train"): Words(
        "NMSE",
        "training error",
        "Training error",
        "Training error (NMSE)",
        "on the training sequences",
        "NMSE on the training sequences",
        " to fit the training sequences",
        f"{_NMSE}model was trained on. 0 is perfect, 1 is guessing.{_FIT}",
    ),
    ("error rate", "validation"): Words(
        "error rate",
        "validation error",
        "Validation error",
        "Validation error (1 − accuracy)",
        "on the validation data",
        "error rate on the validation data",
        " on the validation data",
        f"{_RATE}on validation data, which no model was trained on. 0 is perfect, 0.01 is 1 wrong answer in 100.",
    ),
    ("error rate", "train"): Words(
        "error rate",
        "training error",
        "Training error",
        "Training error (1 − accuracy)",
        "on the training data",
        "error rate on the training data",
        " to fit the training data",
        f"{_RATE}on the data that the models were trained on. 0 is perfect, 0.01 is 1 wrong answer in 100.{_FIT}",
    ),
}


def words(measure: Measure = "nmse", on: Part = "validation") -> Words:
    """Return the words for a measure on a part of the data."""
    return _WORDS[measure, on]


def measure_of(runs: Sequence[Run]) -> Measure:
    """Return the measure of a run's panels; panels that differ in it cannot be read together."""
    found: list[Measure] = sorted({run.measure for run in runs})
    if len(found) > 1:
        raise BadInput(f"the panels have different measures ({', '.join(found)}): they cannot be compared")
    return found[0] if found else "nmse"


def floor(run: Run, on: Part) -> float | None:
    """Return what an error rate of 0 counts as in a panel; None where its samples are not known, or for an NMSE."""
    samples = run.samples.get(on, 0)
    return HALF / samples if run.measure == "error rate" and samples > 0 else None


def guessing(run: Run) -> float | None:
    """Return the error rate of a guess, where the record tells how many answers there are to choose from."""
    kind, classes = (run.task.get(key, run.spec.get(key)) for key in ("kind", "classes"))
    length = run.values.get("length", run.task.get("length"))
    choices: Any = len(classes) if isinstance(classes, list) else classes
    if choices is None:
        choices = {"marco": length, "cifar": 10}.get(str(kind))
    known = run.measure == "error rate" and isinstance(choices, int) and choices > 1
    return 1 - 1 / choices if known else None


def seen(runs: Sequence[Run], on: Part) -> list[Run]:
    """Return the panels with the error of a part of the data in the place of `nmse`, and no error rate of zero.

    Done twice it changes nothing more. Trials that have no such error are left out, by state.
    """
    return [_seen(run, on) for run in runs]


def _seen(run: Run, on: Part) -> Run:
    if run.measure == "nmse" and on == "validation":
        return run
    least, lost = floor(run, on), Counter[str]()
    trials: list[Trial] = []
    for trial in run.trials:
        error = trial.nmse if on == "validation" else trial.train_nmse
        if trial.state != "done":
            trials.append(trial)
        elif error is None and on == "train":
            lost[UNMEASURED] += 1
        elif error == 0 and run.measure == "error rate" and least is None:
            lost[ZERO] += 1
        else:
            trials.append(trial.model_copy(update={"nmse": least if error == 0 and least else error}))
    return run.model_copy(update={"trials": trials, "left_out": dict(Counter(run.left_out) + lost)})


def zeros(runs: Sequence[Run], on: Part) -> int:
    """Count the finished trials whose error rate is 0 and is read as half a wrong answer."""
    return sum(
        trial.state == "done" and (trial.nmse if on == "validation" else trial.train_nmse) == 0
        for run in runs
        if floor(run, on) is not None
        for trial in run.trials
    )


def notes(runs: Sequence[Run], on: Part) -> list[str]:
    """Say what the models could not see, and what was done about errors of zero and trials without an error."""
    said = [note] if (note := blind_note(runs)) else []
    name = {"train": "training", "validation": "validation"}[on]
    sizes = sorted({run.samples[on] for run in runs if floor(run, on) is not None})
    if count := zeros(runs, on):
        told = f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}"
        said.append(
            f"{count:,} {_trials(count)} no wrong answer on {told} {name} samples: an error of 0 counts as half a "
            f"wrong answer, 0.5/{sizes[0]}" + ("." if len(sizes) == 1 else " and so on.")
        )
    lost = Counter[str]()
    for run in seen(runs, on):
        lost.update({state: n for state, n in run.left_out.items() if state in (ZERO, UNMEASURED)})
    if count := lost[ZERO]:
        said.append(
            f"{count:,} {_trials(count)} no wrong answer on an unknown number of {name} samples: an error of 0 has no "
            "place on a log scale, so they are left out of all numbers here, which look worse for it."
        )
    if count := lost[UNMEASURED]:
        said.append(f"{count:,} finished {_trials(count)} no training error on record and are left out.")
    return said


def blind_note(runs: Sequence[Run]) -> str:
    """Say that models see no positions although the answer depends on them; empty where that is not so."""
    blind = sum(run.blind for run in runs)
    where = "" if blind == len(runs) else f"In {blind} of {len(runs)} panels: "
    return f"{where}{BLIND}" if blind else ""


def _trials(count: int) -> str:
    return "trial has" if count == 1 else "trials have"
