"""What the errors of a run are called, and what readers must know about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headcount.analysis import Analysis, Dimension, Notice, Part
from headcount.store import Measure, Run

BLIND = (
    'The answer depends on where tokens stand, and these models see no positions (positions = "none"): choose '
    'positions = "concatenated"; sweep and the command line do so themselves where positions are left out.'
)
"""Why models without positions do not learn some tasks."""


class ErrorTerms(NamedTuple):
    """The terms for a measure on a part of the data, the same everywhere."""

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
    """What follows "are needed"."""
    meaning: str
    """An explanation for readers who know neither measure."""

    @property
    def seeds(self) -> str:
        """What represents the seeds of a cell: the best of several error rates would be too lucky."""
        return "mean over seeds" if self.kind == "error rate" else "best seed"

    @property
    def targets(self) -> str:
        """What represents a cell with several targets."""
        return f"mean over targets (in log scale), {self.seeds} of each"


_RATE = "The error is the error rate: the share of wrong answers, 1 − top-1 accuracy, "
_NMSE = "The error is the NMSE: the mean squared error divided by the variance of the answer, on sequences that the "
_FIT = " It says what a model can fit, not how it does on anything new."
_TERMS: dict[tuple[Measure, Part], ErrorTerms] = {
    ("nmse", "validation"): ErrorTerms(
        "NMSE",
        "error",
        "Error",
        "Error (NMSE)",
        "on fresh sequences",
        "NMSE",
        "",
        f"{_NMSE}model was not trained on. 0 is perfect, 0.01 leaves 1 % of the variation unexplained, 1 is guessing.",
    ),
    ("nmse", "train"): ErrorTerms(
        "NMSE",
        "training error",
        "Training error",
        "Training error (NMSE)",
        "on the training sequences",
        "NMSE on the training sequences",
        " to fit the training sequences",
        f"{_NMSE}model was trained on. 0 is perfect, 1 is guessing.{_FIT}",
    ),
    ("error rate", "validation"): ErrorTerms(
        "error rate",
        "validation error",
        "Validation error",
        "Validation error (1 − accuracy)",
        "on the validation data",
        "error rate on the validation data",
        " on the validation data",
        f"{_RATE}on validation data, which no model was trained on. 0 is perfect, 0.01 is 1 wrong answer in 100.",
    ),
    ("error rate", "train"): ErrorTerms(
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


def error_terms(measure: Measure = "nmse", on: Part = "validation") -> ErrorTerms:
    """Return the terms for a measure on a part of the data."""
    return _TERMS[measure, on]


def terms_of(found: Analysis | Dimension) -> ErrorTerms:
    """Return the terms for the errors of a record."""
    return _TERMS[found.measure, found.on]


def notice_text(notice: Notice, on: Part = "validation") -> str:
    """Return the sentence of a notice; `on` is the part of the data whose errors are read."""
    name = {"train": "training", "validation": "validation"}[on]
    trials = f"{notice.count:,} {'trial has' if notice.count == 1 else 'trials have'}"
    match notice.code:
        case "blind":
            where = "" if notice.count == notice.panels else f"In {notice.count} of {notice.panels} panels: "
            return f"{where}{BLIND}"
        case "zero":
            smallest, largest = notice.samples[0], notice.samples[-1]
            samples = f"{smallest:,}" if smallest == largest else f"{smallest:,} to {largest:,}"
            return (
                f"{trials} no wrong answer on {samples} {name} samples: an error of 0 counts as half a wrong answer, "
                f"0.5/{smallest}{'.' if smallest == largest else ' and so on.'}"
            )
        case "zero-left-out":
            return (
                f"{trials} no wrong answer on an unknown number of {name} samples: an error of 0 has no place on a log "
                "scale, so they are left out of all numbers here, which look worse for it."
            )
        case "no-training-error":
            return f"{notice.count:,} finished {trials.split(' ', 1)[1]} no training error on record and are left out."


def blind_note(runs: Sequence[Run]) -> str:
    """Return the sentence about models that see no positions although the answer depends on them, or ""."""
    blind = sum(run.blind for run in runs)
    return notice_text(Notice(code="blind", count=blind, panels=len(runs))) if blind else ""
