"""The effect of the length: the slope of log error in log T at every head count, and the weighted reversal score."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from headcount.analysis.blocks import Floats
from headcount.analysis.bootstrap import BlockDraws, balanced, grouped, interval, line_slope, paired
from headcount.analysis.record import Reversal, Slope
from headcount.core import generator


def slopes(drawn: Sequence[BlockDraws]) -> Iterator[Slope]:
    """Return the slope of log error in log T for each hidden size and head count with at least two lengths."""
    for hidden, some in grouped(drawn, "hidden").items():
        block = some[0].block
        for i, heads in enumerate(block.heads):
            use = comparable(some, i)
            found = length_slope(use, i)
            if found is None:
                continue
            low, high = interval(found)
            yield Slope(
                setting=block.setting,
                heads=heads,
                hidden=hidden,
                slope=float(found[0]),
                low=low,
                high=high,
                lengths=[d.block.length for d in use],
            )


def comparable(drawn: Sequence[BlockDraws], column: int) -> list[BlockDraws]:
    """Return the blocks whose level at a head count is known and comparable with that of the others."""
    return [d for d, level in zip(drawn, paired(drawn, column)[0], strict=True) if np.isfinite(level)]


def length_slope(drawn: Sequence[BlockDraws], column: int) -> Floats | None:
    """Return the slope of log error in log T at one head count for every draw; None if there is a single length."""
    if len({d.block.length for d in drawn}) < 2:
        return None
    return line_slope(np.log10([d.block.length for d in drawn]), paired(drawn, column))


def reversal_score(errors: Floats) -> Floats:
    """Return R = (1/w)·Σ over T1 < T2 of max(err(T1) − err(T2), 0), w = max err − min err, along the last axis.

    The last axis runs over the lengths in order. If all errors are equal nothing is reversed, and R is 0.
    """
    width = errors.max(-1) - errors.min(-1)
    i, j = np.triu_indices(errors.shape[-1], 1)
    fallen = np.maximum(errors[..., i] - errors[..., j], 0.0).sum(-1)
    return np.where(width > 0, fallen / np.where(width > 0, width, 1.0), 0.0)


def reversals(drawn: Sequence[BlockDraws], resamples: int, seed: int) -> Iterator[Reversal]:
    """Return the score of each hidden size and head count with at least two lengths, with its test.

    The null hypothesis: T has no effect on the error. Then the trials of one target and head count may be exchanged
    between the lengths. p is the share of such shuffles with at least the observed score (the data count as one).
    """
    for hidden, some in grouped(drawn, "hidden").items():
        block = some[0].block
        rng = generator(seed, f"reversal {block.setting} {hidden}")
        for i, heads in enumerate(block.heads):
            use = comparable(some, i)
            if len(use) < 2:
                continue
            levels = paired(use, i)
            scores = reversal_score(10.0 ** levels[np.isfinite(levels).all(1)])
            null = reversal_score(10.0 ** _shuffled(use, i, resamples, rng))
            low, high = interval(scores)
            # rounding may make equal scores differ
            p = (1 + int((null >= scores[0] - 1e-9).sum())) / (1 + len(null))
            yield Reversal(
                setting=block.setting, heads=heads, hidden=hidden, score=float(scores[0]), low=low, high=high, p=p
            )


def _shuffled(drawn: Sequence[BlockDraws], column: int, resamples: int, rng: np.random.Generator) -> Floats:
    """Return levels [shuffle, length] with the trials of every target shuffled between the lengths."""
    seeds = max(d.block.errors.shape[2] for d in drawn)
    levels: list[Floats] = []
    for k in range(len(drawn[0].block.targets)):
        trials = np.full((len(drawn), seeds), np.inf)
        there = np.zeros((len(drawn), seeds), bool)
        for row, d in enumerate(drawn):
            trials[row, : d.block.errors.shape[2]] = d.block.errors[k, column]
            there[row] = np.arange(seeds) < d.block.counts[k, column]
        values = trials[there]
        moved = np.full((resamples, len(drawn), seeds), np.inf)
        if values.size:
            moved[:, there] = values[rng.random((resamples, values.size)).argsort(1)]
        levels.append(moved.min(2))
    means = balanced(np.stack(levels, 1))
    # a shuffle may leave a length with nothing but diverged trials: it says nothing
    return means[np.isfinite(means).all(1)]
