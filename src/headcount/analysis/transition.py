"""The transition: at which number of heads does the error drop, by how much, and how sure is that?

The rule, stated once. The *level* of a head count is the error of its best finished seed: a seed that
gets stuck says something about training, not about the number of heads. Head counts below h and from h
on are *split* when every level below is above `SMALL` and at least `FACTOR` times every level from h on.
The last such h is the number of heads needed, if the error then stays within `FACTOR` of the best level
beyond (or is below `SMALL` already), some larger head count was tried, and h − 1 was tried too. Whatever
the reading, it stands only if it survives drawing the seeds again, in at least `AGREEMENT` of the
bootstrap's resamples. The task's known D is never read.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from headcount.analysis.result import FLOOR, Estimate, HeadRow, Transition, Verdict
from headcount.analysis.wording import comparison, fits, sentence
from headcount.base.errors import BadInput
from headcount.base.random import generator
from headcount.store.records import Run, Trial

FACTOR = 5.0
"""Two levels closer than this count as equal; a jump must be at least this large."""
SMALL = 1e-4
"""An NMSE that counts as solved: differences below it are no evidence that more heads are needed."""
AGREEMENT = 0.9
"""The share of resamples that must agree before a reading is stated without reserve."""
RESAMPLES = 2000


class Level(NamedTuple):
    """The best error of one head count."""

    heads: int
    error: float


class Reading(NamedTuple):
    """What the rule says about one list of levels."""

    verdict: Verdict
    at_least: int | None
    enough: int | None
    pair: int
    """The index of the upper head count of the decisive pair."""


def find_transition(run: Run, *, resamples: int = RESAMPLES, seed: int = 0) -> Transition:
    """Read the transition off a run's trials, then compare it with the task's known D."""
    if run.measure != "nmse":
        raise BadInput(f"one panel alone is read by NMSE only, not by {run.measure}: analyse the whole run")
    found = estimate(run.trials, resamples=resamples, seed=seed)
    agrees = fits(found, run.intrinsic)
    return Transition(
        **dict(found), run=run.name, intrinsic=run.intrinsic, agrees=agrees,
        sentence=sentence(found), comparison=comparison(found, run.intrinsic, agrees),
    )  # fmt: skip


def estimate(trials: Sequence[Trial], *, resamples: int = RESAMPLES, seed: int = 0) -> Estimate:
    """Sum up the trials and read them; neither the task nor its D is among the arguments."""
    rows = head_rows(trials)
    bare = Estimate(rows=rows, verdict="too-few", resamples=resamples, factor=FACTOR, small=SMALL)
    levels = [Level(heads, max(error, FLOOR)) for heads, error in bare.errors]
    if len(levels) < 2:
        return bare
    reading = read(levels)
    low, high = levels[reading.pair - 1].heads, levels[reading.pair].heads
    found = bare.model_copy(update={
        "reading": reading.verdict,
        "tentative": reading.at_least if reading.enough is None else reading.enough,
        "drop_from": low, "drop_to": high,
        "drop": bare.row(low).drop_best, "drop_median": bare.row(low).drop_median,
    })  # fmt: skip
    decisive = (low, high) if reading.at_least is not None else (levels[0].heads, levels[-1].heads)
    if min(bare.row(heads).finished for heads in decisive) < 2:
        # one seed drawn again is always itself: the bootstrap would report a certainty that is not there
        return found
    agreement, drop_low, drop_high = _bootstrap(trials, reading, (low, high), resamples, seed)
    doubts = {"agreement": agreement, "drop_low": drop_low, "drop_high": drop_high}
    if agreement < AGREEMENT:
        return found.model_copy(update={**doubts, "verdict": "unclear"})
    return found.model_copy(update={
        **doubts, "verdict": reading.verdict, "at_least": reading.at_least, "enough": reading.enough,
        "heads_needed": reading.enough if reading.verdict == "transition" else None,
    })  # fmt: skip


def head_rows(trials: Sequence[Trial]) -> list[HeadRow]:
    """Sum up the trials by head count, in order."""
    rows: list[HeadRow] = []
    for heads in sorted({t.heads for t in trials}):
        group = [t for t in trials if t.heads == heads]
        errors = [e for e in map(_error, group) if e is not None]
        rows.append(HeadRow(
            heads=heads, seeds=len(group), diverged=len(group) - len(errors),
            best=min(errors, default=None), worst=max(errors, default=None),
            median=statistics.median(errors) if errors else None,
            parameters=max(t.parameters for t in group),
            parameters_total=max(t.parameters_total for t in group),
            seconds=statistics.median(t.seconds for t in group),
        ))  # fmt: skip
    readable = [i for i, row in enumerate(rows) if row.best is not None]
    for i, j in itertools.pairwise(readable):
        rows[i] = rows[i].model_copy(update={
            "next_heads": rows[j].heads,
            "drop_best": _ratio(rows[i].best, rows[j].best),
            "drop_median": _ratio(rows[i].median, rows[j].median),
        })  # fmt: skip
    return rows


def read(levels: Sequence[Level]) -> Reading:
    """Apply the rule to the levels of at least two head counts, in order of heads."""
    errors = [level.error for level in levels]
    splits = [
        i for i in range(1, len(errors))
        if min(errors[:i]) > SMALL and min(errors[:i]) >= FACTOR * max(errors[i:])
    ]  # fmt: skip
    if not splits:
        largest = max(range(1, len(errors)), key=lambda i: errors[i - 1] / errors[i])
        if max(errors) <= max(SMALL, FACTOR * min(errors)):
            # equally good is not yet good: one head is enough only where the task is solved
            return Reading("no-transition", None, levels[0].heads if errors[0] <= SMALL else None, largest)
        rises = any(errors[i] > max(SMALL, FACTOR * min(errors[:i])) for i in range(1, len(errors)))
        return Reading("unclear" if rises else "gradual", None, None, largest)
    last = splits[-1]
    at_least, tried = levels[last - 1].heads + 1, levels[last].heads
    beyond = errors[last + 1 :]
    if not beyond or errors[last] > max(SMALL, FACTOR * min(beyond)):
        return Reading("not-reached", at_least, None, last)
    return Reading("transition" if at_least == tried else "bracketed", at_least, tried, last)


def _bootstrap(
    trials: Sequence[Trial], reading: Reading, pair: tuple[int, int], resamples: int, seed: int
) -> tuple[float, float | None, float | None]:
    """Draw the seeds of every head count again: the share of equal readings, the 90 % interval of the drop.

    A diverged trial is drawn like any other but has no error, so a head count may go missing in a draw.
    """
    rng = generator(seed, "transition bootstrap")
    heads = sorted({t.heads for t in trials})
    best = np.empty((resamples, len(heads)))
    for column, h in enumerate(heads):
        found = [_error(t) for t in trials if t.heads == h]
        errors = np.array([np.inf if e is None else max(e, FLOOR) for e in found])
        best[:, column] = errors[rng.integers(0, len(errors), (resamples, len(errors)))].min(1)
    same = 0
    for draw in best.tolist():
        levels = [Level(h, error) for h, error in zip(heads, draw, strict=True) if error < np.inf]
        same += len(levels) > 1 and read(levels)[:3] == reading[:3]
    low, high = best[:, heads.index(pair[0])], best[:, heads.index(pair[1])]
    both = np.isfinite(low) & np.isfinite(high)
    if not both.any():
        return same / resamples, None, None
    ends = np.quantile(low[both] / high[both], [0.05, 0.95])
    return same / resamples, float(ends[0]), float(ends[1])


def _error(trial: Trial) -> float | None:
    """The error of a finished trial."""
    return trial.nmse if trial.state == "done" else None


def _ratio(above: float | None, below: float | None) -> float | None:
    """How many times smaller `below` is, with rounding errors taken for what they are."""
    return None if above is None or below is None else max(above, FLOOR) / max(below, FLOOR)
