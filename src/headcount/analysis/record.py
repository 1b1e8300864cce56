"""The records of a whole run's analysis: what terminal, picture, page and JSON read, so that they cannot disagree.

A *setting* names what a run varies beside heads, lengths, hidden sizes, targets and seeds ("depth 2"); it is empty
where nothing else varies. Every number here was measured; intervals hold 90 % of the bootstrap's draws over seeds and
targets.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from headcount.analysis.measures import Part, Words, words
from headcount.base.shown import Shown
from headcount.base.spec import Spec
from headcount.store.records import Measure

Tag = Literal["proved", "measured", "extrapolated"]


class Place(Spec):
    """Where in a run a number belongs."""

    setting: str = ""
    heads: int | None = None
    length: int | None = None
    hidden: int | None = None


class Cell(Place):
    """All trials of one setting, length, hidden size and head count, over seeds and targets."""

    head_dim: int
    targets: int
    """Draws of the target that have a finished trial."""
    trials: int
    """Trials that were started or planned, whatever became of them."""
    diverged: int
    missing: int = 0
    """Planned trials that have no record: failed, running or pending."""
    best: float | None
    median: float | None
    worst: float | None
    by_target: list[float] = Field(default_factory=list[float])
    """The best error of each target, sorted; of error rates the mean over its seeds."""
    averaged: bool = False
    """Whether a target counts with the mean over its seeds."""
    seed_spread: float | None = None
    """The factor by which seeds of one target differ: ten to the typical deviation of log10 error."""
    target_spread: float | None = None
    """The factor by which these errors of the targets differ, likewise."""
    train_best: float | None = None
    floored: int = 0
    """Trials without a wrong answer, read as half of one; only error rates have them."""
    parameters: int
    parameters_total: int


class Drop(Place):
    """How much smaller the error is at the next larger head count."""

    next_heads: int
    factor: float
    low: float
    high: float


class Slope(Place):
    """The slope of log error in log T at one head count: above zero, longer sequences are harder."""

    slope: float
    low: float
    high: float
    lengths: list[int]


class Reversal(Place):
    """The weighted reversal score R(h) of the paper, with a bootstrap test of whether it is above chance."""

    score: float
    low: float
    high: float
    p: float
    """The share of draws without any effect of T whose score is at least this large."""


class Reason(Spec):
    """One ground of an answer."""

    text: str
    tag: Tag = "measured"


class Dimension(Place):
    """The estimate of the intrinsic dimension D from one setting's trials."""

    verdict: str
    """transition, one-head, not-reached, no-fall, unclear or too-few."""
    estimate: int | None
    low: int | None
    """The lower end of the 90 % interval."""
    high: int | None
    """Its upper end; None where it is open."""
    sentence: str
    reasons: list[Reason]
    shares: dict[int, float] = Field(default_factory=dict[int, float])
    """The share of the bootstrap's draws that gave each estimate; 0 stands for none."""


class Scaling(Place):
    """The slope of log error in log N at one head count and length."""

    slope: float
    low: float
    high: float
    points: list[tuple[int, float]]
    """(hidden size, best error)."""
    theory: float | None = None
    """−2/k: the steepest fall that Theorem 2 (2) would allow, were NMSE its squared error; for orientation only."""
    half_k: float | None = None
    """k/2 of Theorem 2 (2), the same turned round: decades of M per decade of 1/NMSE; sharp, from the |S_i|."""
    half_k_printed: float | None = None
    """The same with k as the theorem prints it, from |S_i| ≥ T/4; None where that is vacuous."""
    theory_note: str = ""
    """Why the theorem says nothing here (vacuous, outside its assumptions), or what it would say."""


class EqualError(Place):
    """The parameters that reach one error, against the length."""

    error: float
    points: list[tuple[int, float | None]]
    """(length, parameters M by interpolation); None where the M that just reaches the error is not known."""
    reasons: list[str] = Field(default_factory=list[str])
    """For every point why it has no M: "", "not reached" or "smaller N suffices"."""


class Law(Place):
    """One law of the error in h and T, fitted by least absolute error in log scale."""

    name: str
    formula: str
    coefficients: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    score: float
    """The mean absolute error of log10, each cell left out in turn."""
    chosen: bool
    points: int
    note: str = ""
    """What to know of the fit: δ at the edge of its grid, cells that lack some targets."""


class Analysis(Shown, Spec):
    """All that a run says."""

    run: str
    title: str
    measure: Measure = "nmse"
    on: Part = "validation"
    """The part of the data whose errors are read."""
    intrinsic: int | None
    """The known D, for comparison only: no estimate reads it."""
    settings: list[str]
    counts: dict[str, int]
    """Trials by state: done, diverged, failed, pending, running."""
    cells: list[Cell]
    drops: list[Drop]
    slopes: list[Slope]
    reversals: list[Reversal]
    dimensions: list[Dimension]
    scaling: list[Scaling]
    equal_errors: list[EqualError]
    laws: list[Law]
    notes: list[str] = Field(default_factory=list[str])
    """What was done about errors of zero and about trials without an error, with counts."""
    resamples: int
    provenance: dict[str, Any] = Field(default_factory=dict[str, Any])

    @property
    def words(self) -> Words:
        """How its errors are called."""
        return words(self.measure, self.on)

    @property
    def plain(self) -> bool:
        """Whether its errors are those that are read unless told otherwise: NMSE on fresh sequences."""
        return (self.measure, self.on) == ("nmse", "validation")
