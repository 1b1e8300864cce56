"""The analysis of a whole run: from the panels of a sweep to the one record that terminal, page and JSON show."""

from __future__ import annotations

from collections.abc import Sequence

from headcount.analysis.blocks import Block, blocks, state_counts
from headcount.analysis.bootstrap import BlockDraws, draw_setting
from headcount.analysis.cells import cells, drops
from headcount.analysis.grounds import grounds_of
from headcount.analysis.heads_needed import dimension
from headcount.analysis.law import laws
from headcount.analysis.measures import NO_TRAINING_ERROR, Part, measure_of, notices, with_errors_on
from headcount.analysis.record import Analysis, Dimension, fits
from headcount.analysis.scaling import equal_errors, scaling
from headcount.analysis.slopes import reversals, slopes
from headcount.core import BadInput, in_words, warn_deprecated
from headcount.store import Run

RESAMPLES = 1000
"""Draws of the bootstrap by default: the same everywhere, so that a run gets the same sentence everywhere."""
MIN_RESAMPLES = 100
"""With fewer draws than this, 5 % on either side are too few to leave out."""


def analyse(
    runs: Sequence[Run],
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    on: Part = "validation",
    without: Sequence[int] = (),
) -> Analysis:
    """Return everything that the trials of a run say; the same arguments give the same numbers.

    `runs` are the panels of one sweep, finished or not. The task's known D is only passed on for comparison; no
    estimate reads it. `resamples` and `seed` are the draws of the bootstrap and their seed. `on` chooses the errors, on
    validation or on training data; the laws are fitted without the head counts in `without`.
    """
    measure, noticed = measure_of(runs), notices(runs, on)
    runs = _readable(runs, on)
    drawn = _drawn(runs, resamples, seed, on)
    found = [one.block for some in drawn.values() for one in some]
    first = runs[0]
    intrinsic = {run.intrinsic for run in runs}
    analysis = Analysis(
        run=first.name,
        title=first.title,
        measure=measure,
        on=on,
        notices=noticed,
        intrinsic=intrinsic.pop() if len(intrinsic) == 1 else None,
        settings=list(drawn),
        counts=state_counts(runs),
        cells=[cell for block in found for cell in cells(block)],
        drops=[drop for some in drawn.values() for one in some for drop in drops(one)],
        slopes=[slope for some in drawn.values() for slope in slopes(some)],
        reversals=[score for some in drawn.values() for score in reversals(some, resamples, seed)],
        dimensions=[_answer(some, seed) for some in drawn.values()],
        scaling=[line for some in drawn.values() for line in scaling(some)],
        equal_errors=[line for some in drawn.values() for line in equal_errors(some)],
        laws=[law for some in drawn.values() for law in laws(some, without)],
        resamples=resamples,
        provenance=first.provenance,
    )
    return in_words(analysis, None)


def answers(
    runs: Sequence[Run], *, resamples: int = RESAMPLES, seed: int = 0, on: Part = "validation"
) -> list[Dimension]:
    """Return how many heads every setting of a run needs: the `dimensions` of `analyse`, without the rest."""
    measure_of(runs)
    drawn = _drawn(_readable(runs, on), resamples, seed, on)
    return [_answer(some, seed) for some in drawn.values()]


def find_transition(run: Run, *, resamples: int = RESAMPLES, seed: int = 0) -> Dimension:
    """Deprecated name of the rule: return how many heads the task of one panel needs.

    `SweepResult([run]).transition` is the same. resamples, seed: draws of the bootstrap, and their seed.
    """
    warn_deprecated(
        "find_transition", "read .transition of a SweepResult, as in hc.SweepResult([run]).transition", removed="0.3"
    )
    return answers([run], resamples=resamples, seed=seed)[0]


def _readable(runs: Sequence[Run], on: Part) -> list[Run]:
    """Return the panels with the errors on a part of the data; refuse a run that has none on record."""
    finished = any(trial.state == "done" for run in runs for trial in run.trials)
    found = with_errors_on(runs, on)
    if finished and not any(run.trials for run in found) and any(NO_TRAINING_ERROR in run.left_out for run in found):
        raise BadInput("no trial of this run has a training error on record: leave --on train out")
    return found


def _drawn(runs: Sequence[Run], resamples: int, seed: int, on: Part) -> dict[str, list[BlockDraws]]:
    """Return the blocks of every setting, with their targets and seeds drawn again."""
    if resamples < MIN_RESAMPLES:
        raise BadInput(f"resamples must be at least {MIN_RESAMPLES}, not {resamples}: fewer draws give no interval")
    settings: dict[str, list[Block]] = {}
    for block in blocks(runs, on):
        settings.setdefault(block.setting, []).append(block)
    return {name: draw_setting(some, resamples, seed) for name, some in settings.items()}


def _answer(drawn: Sequence[BlockDraws], seed: int) -> Dimension:
    """Apply the rule to a setting; only then look up the known D of its tasks, compare, and add the sentences."""
    found = dimension(drawn, seed)
    known = {run.intrinsic for one in drawn for _, run in one.block.panels}
    D = known.pop() if len(known) == 1 else None
    found = found.model_copy(update={"intrinsic": D, "agrees": fits(found, D)})
    return in_words(found, grounds_of(found, drawn))
