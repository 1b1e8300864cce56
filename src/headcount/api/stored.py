"""`hc.analyse`, `hc.report` and `hc.export`: the analysis, the page and the models of a run in a store."""

from __future__ import annotations

from pathlib import Path

from headcount.analysis import Analysis, Part
from headcount.analysis import analyse as analyse_runs
from headcount.core import BadInput, check_replaceable
from headcount.models import SavedModel
from headcount.render import check_run_folder, write_run_report
from headcount.store import Run, Store, quick_check
from headcount.sweeps import stored_model, stored_runs

STORE = "headcount-runs"
"""The default folder of the store."""
MAX_RESAMPLES = 100_000
"""Draws of the bootstrap."""


def analyse(
    run: str, *, store: str | Path = STORE, resamples: int = 1000, seed: int = 0, on: Part = "validation"
) -> Analysis:
    """Return the analysis of a run: D with its interval, drops, slopes, scaling and laws.

    The run may be unfinished.

    run: the run's name. store: the folder of the store. resamples, seed: draws of the bootstrap over seeds and targets,
    and their seed. on: whose errors are read, those on "validation" or on "train" data.
    """
    return read_run(run, store=store, resamples=resamples, seed=seed, on=on)[1]


def report(run: str, *, store: str | Path = STORE, out: str | Path | None = None, on: Part = "validation") -> Path:
    """Write the page of a run, with its charts, cells and analysis as files beside it; return the page's path.

    run: the run's name. store: the folder of the store. out: the folder to write (default: report-RUN). on: whose
    errors are read, those on "validation" or on "train" data.
    """
    folder = Path(f"report-{run}" if out is None else out)
    check_run_folder(folder)  # before the work, not after it
    runs, found = read_run(run, store=store, on=on)
    return write_run_report(runs, found, folder).page


def export(run: str, trial: str = "best", *, store: str | Path = STORE, out: str | Path | None = None) -> SavedModel:
    """Return one trained model of a run.

    run: the run's name. trial: the beginning of a trial's hash, or "best". store: the folder of the store. out: a
    folder to write the model to (default: none).
    """
    if out is not None:
        check_replaceable(Path(out))
    with Store.open(store, read_only=True) as opened:
        _, saved, history = stored_model(opened, run, trial)
    if out is not None:
        saved.save(out, extra={"history.json": history})
    return saved


def read_run(
    run: str, *, store: str | Path = STORE, resamples: int = 1000, seed: int = 0, on: Part = "validation"
) -> tuple[list[Run], Analysis]:
    """Return the panels of a run and their analysis, whose notes report any damage to the store."""
    if resamples > MAX_RESAMPLES or seed < 0:  # the analysis itself refuses too few draws
        raise BadInput(f"resamples must be at most {MAX_RESAMPLES:,} and seed at least 0")
    with Store.open(store, read_only=True) as opened:
        runs = stored_runs(opened, run)
        damage = quick_check(opened, run)
    found = analyse_runs(runs, resamples=resamples, seed=seed, on=on)
    return runs, found.model_copy(update={"notes": [*found.notes, *damage]})
