"""The records of an analysis: a row per head count, the estimate, the estimate beside the known answer."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from headcount.base.spec import Spec

Verdict = Literal["transition", "bracketed", "not-reached", "no-transition", "gradual", "unclear", "too-few"]
"""transition: fewer heads fail, more bring nothing.
bracketed: the same, but the head counts in between have no result.
not-reached: fewer heads fail, and where it ends was not seen.
no-transition: all head counts do about equally well.
gradual: more heads help, without a jump.
unclear: the seeds, or the head counts, contradict each other.
too-few: not enough finished trials to tell chance from effect."""
FLOOR = 1e-12
"""Errors below this are rounding: ratios are taken as if the error were this large."""


class HeadRow(Spec):
    """All trials with one head count, summed up."""

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
        """How many trials ended with an error that can be read."""
        return self.seeds - self.diverged


class Estimate(Spec):
    """What the trials say about the number of heads; every number in it was measured, none was proved."""

    evidence: Literal["measured"] = "measured"
    rows: list[HeadRow]
    verdict: Verdict
    heads_needed: int | None = None
    """Fewer heads fail and more bring nothing; None where the data do not show both."""
    at_least: int | None = None
    """Fewer heads than this fail."""
    enough: int | None = None
    """More heads than this bring nothing; without a jump it is stated only where the task is solved."""
    reading: Verdict = "too-few"
    """What the errors alone look like, before the doubts that made the verdict unclear or too-few."""
    tentative: int | None = None
    """The head count that the reading points at; not an answer where `heads_needed` is None."""
    drop_from: int | None = None
    """The decisive pair of neighbouring head counts: the jump, or else the largest drop there is."""
    drop_to: int | None = None
    drop: float | None = None
    """Best error at `drop_from` over best error at `drop_to`."""
    drop_median: float | None = None
    drop_low: float | None = None
    """The lower end of the 90 % bootstrap interval of `drop`."""
    drop_high: float | None = None
    agreement: float | None = None
    """The share of resamples of the seeds with the same reading; None where a single seed is all there is."""
    resamples: int
    factor: float
    """Levels closer than this count as equal; a jump is at least this large."""
    small: float
    """An error below this counts as solved."""

    @property
    def errors(self) -> list[tuple[int, float]]:
        """Head counts with a finished trial, each with the error of its best seed."""
        return [(row.heads, row.best) for row in self.rows if row.best is not None]

    def ratio(self, above: int, below: int) -> float:
        """How many times smaller the best error is with `below` heads than with `above`."""
        errors = dict(self.errors)
        return max(errors[above], FLOOR) / max(errors[below], FLOOR)

    def row(self, heads: int) -> HeadRow:
        """Return the row of a head count."""
        return next(row for row in self.rows if row.heads == heads)


class Transition(Estimate):
    """The estimate of a run, in words, beside what is known about the task."""

    run: str
    intrinsic: int | None
    """The task's known D; the estimate never read it."""
    agrees: bool | None
    """Whether the measurement fits D; None where it decides nothing, or D is not known."""
    sentence: str
    comparison: str
