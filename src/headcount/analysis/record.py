"""The records of a whole run's analysis: what terminal, picture, page and JSON read, so that they cannot disagree.

A *setting* names what a run varies beside heads, lengths, hidden sizes, targets and seeds ("depth 2"); it is empty
where nothing else varies. Every number here was measured; intervals hold 90 % of the bootstrap's draws over seeds and
targets.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from headcount.analysis.by_heads import HeadRow
from headcount.analysis.measures import Part, Words, words
from headcount.core import Displayable, Spec
from headcount.store import Measure

Tag = Literal["proved", "measured", "extrapolated"]
Verdict = Literal["transition", "one-head", "gentle", "not-reached", "no-fall", "unclear", "failed", "noise", "too-few"]
"""transition: fewer heads are worse, more bring little.
one-head: the smallest head count tried does as well as more.
gentle: a head count is within the margin of the best of all, and no step leads to it (with a noise floor only).
not-reached: more heads help, and no end of that was seen.
no-fall: all head counts do about equally well, but not well enough to say that the smallest suffices.
unclear: the draws disagree, too few of them show the fall that the data show, a head count just below the answer has
no result, a fall of error rates has no step, or (with a noise floor) the gain over a constant may be chance.
failed: models with equal heads differ more than head counts do, or longer training does much better.
noise: no head count predicts y better than its mean.
too-few: not enough finished trials to tell chance from effect."""
Cause = Literal["", "unlearned", "by-heart", "lottery", "scatter", "patience", "doubtful"]
"""What limits an answer.

Of noise: the models did not learn the training part either ("unlearned": training that fails looks the same), or
only by heart ("by-heart": too few samples look the same). Of failed training: few seeds learn ("lottery"), all
learn little and differ ("scatter"), or longer training does better ("patience"). Of an answer: what was learned was
so by heart, or the step is in doubt ("doubtful")."""


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


class HeadsNeeded(Spec):
    """What the one rule (`heads_needed.py`) says of some trials, from a sweep or from a user's data, as numbers.

    Every sentence about it is made from these. All were measured; none was proved.
    """

    verdict: Verdict
    estimate: int | None
    """The estimate of the intrinsic dimension D: the head count that is needed; None where there is none. Where the
    verdict is unclear, what fits best."""
    low: int | None
    """The lower end of the interval: fewer are shown not to be enough."""
    high: int | None
    """Its upper end: so many, or some fewer, are shown to be enough; None where it is open."""
    shares: dict[int, float] = Field(default_factory=dict[int, float])
    """The share of the bootstrap's draws that gave each estimate; 0 stands for none."""
    resamples: int = 0
    """The draws of the bootstrap."""
    errors: list[tuple[int, float]] = Field(default_factory=list[tuple[int, float]])
    """(heads, error) of every head count that has a result: that of the best seed (of error rates the mean over seeds,
    in folds that of the better half), the geometric mean over lengths, hidden sizes and targets."""
    noise_floor: float | None = None
    """The noise floor that was handed in; None where there is none, as in a sweep of a known task."""
    spread: float | None = None
    """With a noise floor: what equally good trials differ by."""
    gain_chance: float | None = None
    """With a noise floor: the chance that the best trial's gain over a constant is chance."""
    margin: float | None = None
    """With a noise floor: what a head count may err more than the best and still be enough (share of y's variance)."""
    rest: dict[int, float] = Field(default_factory=dict[int, float])
    """With a noise floor: how many decades more heads still gain, by head count."""
    by_step: bool = False
    """Whether the answer is enough because it has reached the step, while more heads still gain beyond the margin."""
    cause: Cause = ""
    """What limits the answer."""
    sequences: int | None = None
    """About how many sequences that validate would settle it, where that can be extrapolated."""

    @property
    def least(self) -> int:
        """The lower end of the interval, 1 where nothing is ruled out."""
        return self.low or 1

    @property
    def head_counts(self) -> list[int]:
        """The head counts that have a result."""
        return [heads for heads, _ in self.errors]

    @property
    def agreement(self) -> float | None:
        """The share of the draws that give the same answer; None where nothing was drawn."""
        if not self.shares:
            return None
        flat = self.shares.get(self.head_counts[0], 0.0) if self.verdict == "no-fall" else 0.0
        return self.shares.get(self.estimate or 0, 0.0) + flat

    @property
    def settled(self) -> bool:
        """Whether all fewer heads are shown not to be enough, and these are shown to be."""
        return self.estimate is not None and self.low == self.estimate == self.high


class Dimension(HeadsNeeded, Place):
    """What one setting of a run says about the number of heads, with the evidence.

    Its sentences are made from the numbers by `render/words/heads_needed.py` and put into it where it is handed out.
    The interval holds 90 % of the draws.
    """

    heads_needed: int | None = None
    """The estimate where it is claimed and the next smaller head count was tried (or it is 1); None otherwise."""
    tentative: int | None = None
    """What the errors look like where they are no estimate: too few trials, or planned head counts without a result."""
    refused: int | None = None
    """The head count at which error rates stop falling, where that is no step."""
    measure: Measure = "nmse"
    on: Part = "validation"
    """The part of the data whose errors are read."""
    rows: list[HeadRow] = Field(default_factory=list[HeadRow])
    """All trials of the setting, summed up by head count."""
    drop_from: int | None = None
    """The decisive pair of neighbouring head counts: the last that is too few, and the next that was tried."""
    drop_to: int | None = None
    drop: float | None = None
    """How many times smaller the error is at `drop_to` than at `drop_from`."""
    drop_low: float | None = None
    """The lower end of the drop's 90 % interval."""
    drop_high: float | None = None
    further: float | None = None
    """How many times smaller it gets at best with more heads than the estimate."""
    further_low: float | None = None
    further_high: float | None = None
    missing: dict[int, str] = Field(default_factory=dict[int, str])
    """The planned head counts that have no result, and why: diverged, failed or pending."""
    doubted: list[int] = Field(default_factory=list[int])
    """Those of them that might be D in place of the estimate."""
    unlearned: float | None = None
    """The error from which on nothing was learned, where that is known."""
    even: tuple[float, float] | None = None
    """The fall per head into `refused` and the one before it, in decades, where they are too much alike for a step."""
    fall_share: float | None = None
    """Where the verdict rests on whether the error falls at all (no-fall, or unclear for that): the share of the draws
    that show what the data show, a fall or level errors."""
    sentence: str = ""
    reasons: list[Reason] = Field(default_factory=list[Reason])
    intrinsic: int | None = None
    """The known D of the setting's tasks, for comparison only: the rule never reads it."""
    agrees: bool | None = None
    """Whether the answer fits the known D; None where it decides nothing, or D is not known."""
    comparison: str = ""
    """The answer beside the known D, in words."""

    @property
    def agreement(self) -> float | None:
        """The share of the draws that give the same answer; None where nothing was drawn."""
        found = super().agreement
        return found if found is None or self.fall_share is None else min(found, self.fall_share)

    @property
    def pointed(self) -> int | None:
        """The estimate, or what the errors look like where they are none."""
        return self.tentative if self.estimate is None else self.estimate

    @property
    def bounded(self) -> bool:
        """Whether fewer heads than `low` are shown to be too few, though the end of the fall was not seen."""
        return self.verdict == "not-reached" and bool(self.errors) and (self.low or 0) > self.head_counts[0]

    @property
    def hedged(self) -> bool:
        """Whether the interval holds other head counts than the sentence names."""
        return self.high != self.estimate or (self.low or 0) <= (self.drop_from or 0)

    @property
    def words(self) -> Words:
        """How its errors are called."""
        return words(self.measure, self.on)

    @property
    def rate(self) -> bool:
        """Whether they are error rates."""
        return self.measure == "error rate"

    @property
    def labelled(self) -> str:
        """The sentence, after the name of its setting where there is one."""
        return f"{self.setting}: {self.sentence}" if self.setting else self.sentence

    def error(self, heads: int) -> float:
        """Return the error of a head count that has a result."""
        return dict(self.errors)[heads]


def fits(found: Dimension, intrinsic: int | None) -> bool | None:
    """Whether the answer fits the known D; None where there is nothing to compare."""
    if intrinsic is None or found.low is None:
        return None
    if found.verdict in ("transition", "one-head") or found.bounded:
        return found.low <= intrinsic and (found.high is None or intrinsic <= found.high)
    return None


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


class Analysis(Displayable, Spec):
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
    """What the models could not see, and what was done about errors of zero and about trials without an error."""
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
