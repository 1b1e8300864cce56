"""Which errors are read: NMSE or error rate, on validation or on training data, and what an error of zero counts as.

All statistics are computed on log error, and an error rate can be zero: no wrong answer among n samples. Such a trial
counts as half a wrong answer, 0.5/n. Where n is unknown, zero has no place on a log scale, and the trial is left out.
`notices` counts both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from headcount.core import BadInput, Spec
from headcount.store import Measure, Run, Trial

Part = Literal["validation", "train"]
ROUNDING_ERROR = 1e-12
"""An NMSE below this is rounding: ratios are taken as if it were this large."""
UNSOLVED_NMSE = 0.5
"""If the NMSE is above this at every head count, the models learned next to nothing."""
WRONG_ANSWERS_FOR_ZERO = 0.5
"""The number of wrong answers that a trial without any counts as."""
MIN_WRONG_ANSWERS = 10
"""With fewer wrong answers than this an error rate is mostly luck: a decade counts half in the estimate of D."""
LeftOut = Literal["without a wrong answer", "without a training error"]
NO_WRONG_ANSWER: LeftOut = "without a wrong answer"
"""The state of trials whose error rate is 0 on an unknown number of samples."""
NO_TRAINING_ERROR: LeftOut = "without a training error"
"""The state of finished trials that have no training error on record."""


class Notice(Spec):
    """Something that readers of the numbers must know, as a code and its counts."""

    code: Literal["blind", "zero", "zero-left-out", "no-training-error"]
    """blind: models see no positions although the answer depends on them.
    zero: trials without a wrong answer, which count as half of one.
    zero-left-out: the same on an unknown number of samples; these trials are left out.
    no-training-error: finished trials without a training error on record, which are left out."""
    count: int
    """How many trials, or how many panels where the code is blind."""
    panels: int
    """All panels of the run."""
    samples: list[int] = Field(default_factory=list[int])
    """The different numbers of samples that the errors were measured on, in order; only where the code is zero."""


def measure_of(runs: Sequence[Run]) -> Measure:
    """Return the measure that all panels have in common; refuse panels that differ in it."""
    found: list[Measure] = sorted({run.measure for run in runs})
    if len(found) > 1:
        raise BadInput(f"the panels have different measures ({', '.join(found)}): they cannot be compared")
    return found[0] if found else "nmse"


def error_for_zero(run: Run, on: Part) -> float | None:
    """Return what an error rate of 0 counts as in a panel; None for an NMSE, or if the number of samples is unknown."""
    samples = run.samples.get(on, 0)
    return WRONG_ANSWERS_FOR_ZERO / samples if run.measure == "error rate" and samples > 0 else None


def guess_error_rate(run: Run) -> float | None:
    """Return the error rate of guessing, or None if the record does not tell how many answers there are."""
    kind, classes = (run.task.get(key, run.spec.get(key)) for key in ("kind", "classes"))
    length = run.values.get("length", run.task.get("length"))
    choices: Any = len(classes) if isinstance(classes, list) else classes
    if choices is None:
        choices = {"marco": length, "cifar": 10}.get(str(kind))
    known = run.measure == "error rate" and isinstance(choices, int) and choices > 1
    return 1 - 1 / choices if known else None


def with_errors_on(runs: Sequence[Run], on: Part) -> list[Run]:
    """Return the panels with the errors on a part of the data in `nmse`, and no error rate of zero.

    Applying it twice changes nothing more. Trials without such an error are left out and counted by state.
    """
    return [_with_errors_on(run, on) for run in runs]


def _with_errors_on(run: Run, on: Part) -> Run:
    if run.measure == "nmse" and on == "validation":
        return run
    for_zero, left_out = error_for_zero(run, on), Counter[str]()
    trials: list[Trial] = []
    for trial in run.trials:
        error = trial.nmse if on == "validation" else trial.train_nmse
        if trial.state != "done":
            trials.append(trial)
        elif error is None and on == "train":
            left_out[NO_TRAINING_ERROR] += 1
        elif error == 0 and run.measure == "error rate" and for_zero is None:
            left_out[NO_WRONG_ANSWER] += 1
        else:
            trials.append(trial.model_copy(update={"nmse": for_zero if error == 0 and for_zero else error}))
    return run.model_copy(update={"trials": trials, "left_out": dict(Counter(run.left_out) + left_out)})


def count_zeros(runs: Sequence[Run], on: Part) -> int:
    """Count the finished trials whose error rate is 0 and is read as half a wrong answer."""
    return sum(
        trial.state == "done" and (trial.nmse if on == "validation" else trial.train_nmse) == 0
        for run in runs
        if error_for_zero(run, on) is not None
        for trial in run.trials
    )


def notices(runs: Sequence[Run], on: Part) -> list[Notice]:
    """Count the panels whose models see no positions, the errors of zero and the trials without an error."""
    left_out = Counter[str]()
    for run in with_errors_on(runs, on):
        left_out.update(run.left_out)
    samples = sorted({run.samples[on] for run in runs if error_for_zero(run, on) is not None})
    found = [
        Notice(code="blind", count=sum(run.blind for run in runs), panels=len(runs)),
        Notice(code="zero", count=count_zeros(runs, on), panels=len(runs), samples=samples),
        Notice(code="zero-left-out", count=left_out[NO_WRONG_ANSWER], panels=len(runs)),
        Notice(code="no-training-error", count=left_out[NO_TRAINING_ERROR], panels=len(runs)),
    ]
    return [notice for notice in found if notice.count]
