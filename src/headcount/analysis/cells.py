"""The cells of a run, with the spread over seeds apart from that over targets, and the drops between head counts."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Sequence

import numpy as np

from headcount.analysis.blocks import Block, Floats, head_dim, log_error, planned
from headcount.analysis.bootstrap import BlockDraws, interval, known_mean
from headcount.analysis.measures import ROUNDING_ERROR, error_for_zero
from headcount.analysis.record import Cell, Drop
from headcount.store import Trial


def cells(block: Block) -> list[Cell]:
    """Return a cell for every head count of a block, also for those without a finished trial."""
    return [_cell(block, i) for i in range(len(block.heads))]


def _cell(block: Block, column: int) -> Cell:
    heads = block.heads[column]
    trials = block.trials(heads)
    done = [(target, t) for target, t in trials if np.isfinite(log_error(t))]
    errors = [t.nmse for _, t in done if t.nmse is not None]
    by_target: dict[str, list[Trial]] = {}
    for target, trial in done:
        by_target.setdefault(target, []).append(trial)
    over_seeds = statistics.fmean if block.rate else min
    levels = sorted(over_seeds([t.nmse or 0.0 for t in some]) for some in by_target.values())
    wanted = sum(planned(run, heads) for _, run in block.panels)
    train = [t.train_nmse for _, t in done if t.train_nmse is not None]
    return Cell(
        setting=block.setting,
        heads=heads,
        length=block.length,
        hidden=block.hidden,
        head_dim=head_dim(block.panels[0][1], heads),
        targets=len(by_target),
        trials=wanted,
        diverged=len(trials) - len(done),
        missing=wanted - len(trials),
        best=min(errors, default=None),
        worst=max(errors, default=None),
        median=statistics.median(errors) if errors else None,
        by_target=levels,
        averaged=block.rate,
        seed_spread=_spread([np.array([log_error(t) for t in some]) for some in by_target.values()]),
        target_spread=_spread([np.log10(np.maximum(levels, ROUNDING_ERROR))]),
        train_best=min(train, default=None),
        floored=_floored(block, heads),
        parameters=max((t.parameters for _, t in trials), default=0),
        parameters_total=max((t.parameters_total for _, t in trials), default=0),
    )


def _floored(block: Block, heads: int) -> int:
    """Count the trials whose error stands for zero: no other error rate is that of half a wrong answer."""
    return sum(
        t.heads == heads and t.state == "done" and t.nmse == for_zero
        for _, run in block.panels
        if (for_zero := error_for_zero(run, block.on)) is not None
        for t in run.trials
    )


def _spread(groups: Sequence[Floats]) -> float | None:
    """Return ten to the typical deviation within the groups; None if no group has two members."""
    variances = [float(np.var(group, ddof=1)) for group in groups if len(group) > 1]
    return 10.0 ** statistics.fmean(variances) ** 0.5 if variances else None


def drops(drawn: BlockDraws) -> Iterator[Drop]:
    """Return how many times smaller the error gets from each head count to the next that has a result.

    Each target is compared with itself: the factor is the geometric mean, over targets, of the ratio of their best
    seeds (of error rates, of their means over seeds).
    """
    block = drawn.block
    readable = [i for i in range(len(block.heads)) if drawn.known[i]]
    for i, j in itertools.pairwise(readable):
        gap = known_mean(drawn.level[:, :, i] - drawn.level[:, :, j], 1)
        if not np.isfinite(gap[0]):
            continue  # no target has both
        low, high = interval(gap)
        yield Drop(
            setting=block.setting,
            heads=block.heads[i],
            length=block.length,
            hidden=block.hidden,
            next_heads=block.heads[j],
            factor=float(10 ** gap[0]),
            low=10**low,
            high=10**high,
        )
