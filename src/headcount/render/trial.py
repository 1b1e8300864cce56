"""One trained model in words and as a table, from the record of its trial."""

from __future__ import annotations

from headcount.render.tables import NONE, Column, Table
from headcount.render.words.numbers import error_text, heads_text
from headcount.store import Trial


def trial_text(trial: Trial, wrong: float | None = None) -> str:
    """Return the result of a training in words; `wrong` is the share of wrong classes, if the targets are classes."""
    if trial.nmse is None or trial.train_nmse is None:
        return f"{heads_text(trial.heads).capitalize()}: the training diverged after {trial.steps} steps."
    classes = "" if wrong is None else f"{100 * wrong:.1f}\u00a0% wrong classes, "
    return (
        f"{heads_text(trial.heads)}: {classes}validation NMSE {trial.nmse:.2e} (training {trial.train_nmse:.2e}) after "
        f"{trial.steps} steps in {trial.seconds:.0f} s, measured; {trial.parameters} parameters by the paper's count, "
        f"{trial.parameters_total} in all."
    )


def trial_table(trial: Trial, wrong: float | None = None) -> Table:
    """Return a table with the errors and sizes of one model."""
    columns = [
        Column(name="Heads", meaning="number of attention heads"),
        Column(name="Seed", meaning="of the weights and the batches"),
        Column(name="Error", meaning="NMSE on sequences that were not trained on"),
        Column(name="Training", meaning="NMSE on the training sequences"),
        Column(name="Wrong", meaning="share of wrong classes on sequences that were not trained on"),
        Column(name="Steps", meaning="training steps taken"),
        Column(name="Time", meaning="of the training"),
        Column(name="M", meaning="parameters of the encoder and the feed-forward block only, as in theory"),
        Column(name="Total", meaning="all parameters"),
    ]
    row = [
        str(trial.heads),
        str(trial.seed),
        _error(trial.nmse),
        _error(trial.train_nmse),
        NONE if wrong is None else f"{100 * wrong:.1f}\u00a0%",
        f"{trial.steps:,}",
        f"{trial.seconds:.1f} s",
        f"{trial.parameters:,}",
        f"{trial.parameters_total:,}",
    ]
    return Table(caption="The trained model", columns=columns, rows=[row], marked=None)


def _error(error: float | None) -> str:
    return NONE if error is None else error_text(error)
