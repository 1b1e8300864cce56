"""The analysis of a whole run: from the panels of a sweep to one record that terminal, page and JSON read."""

from __future__ import annotations

from collections.abc import Sequence

from headcount.analysis.bootstrap import Drawn, draw_setting
from headcount.analysis.cells import cells, drops
from headcount.analysis.heads_needed import dimension
from headcount.analysis.law import laws
from headcount.analysis.measures import UNMEASURED, Part, measure_of, notes, seen
from headcount.analysis.record import Analysis
from headcount.analysis.rows import Block, blocks, state_counts
from headcount.analysis.scaling import equal_errors, scaling
from headcount.analysis.slopes import reversals, slopes
from headcount.base.errors import BadInput
from headcount.store.records import Run

LEAST_RESAMPLES = 100
"""Fewer draws than this have no 5 % to leave out on either side."""


def analyse(
    runs: Sequence[Run], *, resamples: int = 1000, seed: int = 0, on: Part = "validation", without: Sequence[int] = ()
) -> Analysis:
    """Read everything that the trials of a run say; the same arguments give the same numbers.

    `runs` are the panels of one sweep, finished or not. The task's known D is handed through for comparison; no
    estimate reads it. `on` says which errors are read, those on validation or on training data; the laws are fitted
    without the head counts in `without`.
    """
    if resamples < LEAST_RESAMPLES:
        raise BadInput(f"resamples must be at least {LEAST_RESAMPLES}, not {resamples}: fewer draws give no interval")
    measure, told = measure_of(runs), notes(runs, on)
    finished = any(trial.state == "done" for run in runs for trial in run.trials)
    runs = seen(runs, on)
    if finished and not any(run.trials for run in runs) and any(UNMEASURED in run.left_out for run in runs):
        raise BadInput("no trial of this run has a training error on record: leave --on train out")
    found = blocks(runs, on)
    settings: dict[str, list[Block]] = {}
    for block in found:
        settings.setdefault(block.setting, []).append(block)
    drawn: dict[str, list[Drawn]] = {name: draw_setting(some, resamples, seed) for name, some in settings.items()}
    first = runs[0]
    intrinsic = {run.intrinsic for run in runs}
    return Analysis(
        run=first.name, title=first.title, measure=measure, on=on, notes=told,
        intrinsic=intrinsic.pop() if len(intrinsic) == 1 else None,
        settings=list(settings), counts=state_counts(runs),
        cells=[cell for block in found for cell in cells(block)],
        drops=[drop for some in drawn.values() for one in some for drop in drops(one)],
        slopes=[slope for some in drawn.values() for slope in slopes(some)],
        reversals=[score for some in drawn.values() for score in reversals(some, resamples, seed)],
        dimensions=[dimension(some, seed) for some in drawn.values()],
        scaling=[line for some in drawn.values() for line in scaling(some)],
        equal_errors=[line for some in drawn.values() for line in equal_errors(some)],
        laws=[law for some in drawn.values() for law in laws(some, without)],
        resamples=resamples, provenance=first.provenance,
    )  # fmt: skip
