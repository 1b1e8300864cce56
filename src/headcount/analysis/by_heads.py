"""A summary of the trials by head count: best, median and worst error, drop to the next, parameters, seconds."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence

from pydantic import Field

from headcount.analysis.measures import ROUNDING_ERROR
from headcount.core import Spec
from headcount.store import Trial


class HeadRow(Spec):
    """A summary of all trials with one head count."""

    heads: int = Field(ge=1)
    seeds: int
    """Trials, finished or not."""
    diverged: int
    best: float | None
    median: float | None
    worst: float | None
    """The largest error of a finished seed: best to worst is the spread."""
    parameters: int
    """The paper's M: encoder and feed-forward block only."""
    parameters_total: int
    seconds: float
    """The median time of a trial."""
    next_heads: int | None = None
    """The next larger head count that has a finished trial."""
    drop_best: float | None = None
    """How many times smaller the best error is at `next_heads`."""
    drop_median: float | None = None

    @property
    def finished(self) -> int:
        """The number of trials that ended with an error."""
        return self.seeds - self.diverged


def head_rows(trials: Sequence[Trial]) -> list[HeadRow]:
    """Return a row for every head count, in order."""
    rows: list[HeadRow] = []
    for heads in sorted({t.heads for t in trials}):
        group = [t for t in trials if t.heads == heads]
        errors = [t.nmse for t in group if t.state == "done" and t.nmse is not None]
        rows.append(
            HeadRow(
                heads=heads,
                seeds=len(group),
                diverged=len(group) - len(errors),
                best=min(errors, default=None),
                worst=max(errors, default=None),
                median=statistics.median(errors) if errors else None,
                parameters=max(t.parameters for t in group),
                parameters_total=max(t.parameters_total for t in group),
                seconds=statistics.median(t.seconds for t in group),
            )
        )
    readable = [i for i, row in enumerate(rows) if row.best is not None]
    for i, j in itertools.pairwise(readable):
        rows[i] = rows[i].model_copy(
            update={
                "next_heads": rows[j].heads,
                "drop_best": _ratio(rows[i].best, rows[j].best),
                "drop_median": _ratio(rows[i].median, rows[j].median),
            }
        )
    return rows


def _ratio(above: float | None, below: float | None) -> float | None:
    """Return how many times smaller `below` is; errors below `ROUNDING_ERROR` count as that."""
    if above is None or below is None:
        return None
    return min(max(above, ROUNDING_ERROR) / max(below, ROUNDING_ERROR), 1e300)
