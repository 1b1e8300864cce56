"""The numbers behind an answer that its record does not hold: its reasons are made from both (`render/words`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from headcount.analysis.bootstrap import BlockDraws, grouped, interval
from headcount.analysis.doubts import one_target_one_seed
from headcount.analysis.record import Dimension
from headcount.analysis.slopes import comparable, length_slope


@dataclass(frozen=True)
class Grounds:
    """Counts and slopes of the trials of a setting."""

    places: int
    """The number of combinations of target and size whose errors are averaged."""
    single: bool
    """Whether lengths and sizes were drawn again, because there is one target and one seed."""
    slopes: Sequence[tuple[int, float, float, float]]
    """(heads, change of log error per decade of T, low and high end of its 90 % interval), just below the answer and at
    it; empty if one length was tried."""
    finished: int
    """Trials that ended."""
    diverged: int
    """How many of them have no error."""
    left_out: Mapping[str, int]
    """Trials without a record, by state."""


def grounds_of(found: Dimension, drawn: Sequence[BlockDraws]) -> Grounds:
    """Return the grounds of an answer; `drawn` are the blocks that it is based on."""
    runs = [run for d in drawn for _, run in d.block.panels]
    trials = [trial for run in runs for trial in run.trials]
    left_out = Counter[str]()
    for run in runs:
        left_out.update(run.left_out)
    return Grounds(
        places=int(sum(np.isfinite(d.level[0]).any(1).sum() for d in drawn)),
        single=bool(found.shares) and one_target_one_seed(drawn),
        slopes=[] if found.pointed is None else list(_slopes(found, found.pointed, drawn)),
        finished=len(trials),
        diverged=sum(not (t.state == "done" and t.nmse is not None) for t in trials),
        left_out=left_out,
    )


def _slopes(found: Dimension, at: int, drawn: Sequence[BlockDraws]) -> list[tuple[int, float, float, float]]:
    """Return the slopes in the length just below a head count and at it."""
    counts, slopes = drawn[0].block.heads, list[tuple[int, float, float, float]]()
    for heads in [h for h in found.head_counts if h <= at][-2:]:
        i = counts.index(heads)
        known = [
            s for some in grouped(drawn, "hidden").values() if (s := length_slope(comparable(some, i), i)) is not None
        ]
        if known:
            mean = np.mean(known, axis=0)
            slopes.append((heads, float(mean[0]), *interval(mean)))
    return slopes
