"""The records of a run's analysis. Terminal, pictures, page and JSON all read them, so they cannot disagree.

They hold codes and numbers. `render/words` makes their sentences, which are filled in where a record is handed out:
`sentence`, `reasons`, `comparison`, `theory_note` and the notes.

A *setting* names what a run varies apart from heads, lengths, hidden sizes, targets and seeds ("depth 2"); it is empty
if nothing else varies. Every number was measured; intervals hold 90 % of the bootstrap's draws over seeds and targets.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from headcount.analysis.by_heads import HeadRow
from headcount.analysis.measures import Notice, Part
from headcount.core import Displayable, Spec
from headcount.store import Measure

Tag = Literal["proved", "measured", "extrapolated"]
Verdict = Literal["transition", "one-head", "gentle", "not-reached", "no-fall", "unclear", "failed", "noise", "too-few"]
"""transition: fewer heads are worse, more bring little.
one-head: the smallest head count tried does as well as more.
gentle: a head count is within the margin of the best of all, and no step leads to it (with a noise floor only).
not-reached: more heads help, up to the largest head count tried.
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


TheoryVerdict = Literal["", "unknown-d", "enough-heads", "vacuous", "outside"]
"""What Theorem 2 (2) says at a head count and length.

unknown-d: nothing, since the task has no known D.
enough-heads: nothing, since it speaks of fewer than D heads.
vacuous: nothing, since k ≤ 0 in both forms.
outside: k > 0 in one form at least, but trained models are outside its assumptions."""
Departure = Literal["nmse", "weights", "gaussian", "depth", "all-linear", "some-linear"]
"""An assumption of Theorem 2 (2) that trained models break.

nmse: their error is not a sup error. weights: their weights are not bounded by 1. gaussian: tokens are not bounded.
depth: there are several layers. all-linear, some-linear: f_i are linear, against assumption (2.3)."""
LawName = Literal[
    "heads over length",
    "heads and length apart",
    "powers of heads and length",
    "exponential in heads",
    "power of heads",
    "constant",
    "step in heads",
]
NoParameters = Literal["", "not reached", "smaller N suffices"]
"""Why the M that just reaches an error is unknown; empty where it is known."""


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
    """Trials that were started or planned, in whatever state."""
    diverged: int
    missing: int = 0
    """Planned trials that have no record: failed, running or pending."""
    best: float | None
    median: float | None
    worst: float | None
    by_target: list[float] = Field(default_factory=list[float])
    """The best error of each target, sorted; of error rates the mean over its seeds."""
    averaged: bool = False
    """Whether the error of a target is the mean over its seeds."""
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
    """The share of draws without any effect of T that have at least this score."""


class Reason(Spec):
    """One ground of an answer."""

    text: str
    tag: Tag = "measured"


class HeadsNeeded(Spec):
    """What the one rule (`heads_needed.py`) says about some trials, of a sweep or of a user's data, as numbers.

    Every sentence about the answer is made from these numbers. All were measured; none was proved.
    """

    verdict: Verdict
    estimate: int | None
    """The estimate of the intrinsic dimension D, the head count that is needed, or None. If the verdict is unclear, the
    head count that fits best."""
    low: int | None
    """The lower end of the interval: fewer are shown not to be enough."""
    high: int | None
    """Its upper end: that many, or some fewer, are shown to be enough; None if it is open."""
    shares: dict[int, float] = Field(default_factory=dict[int, float])
    """The share of the bootstrap's draws that gave each estimate; 0 stands for none."""
    resamples: int = 0
    """The draws of the bootstrap."""
    errors: list[tuple[int, float]] = Field(default_factory=list[tuple[int, float]])
    """(heads, error) of every head count that has a result: that of the best seed (of error rates the mean over seeds,
    in folds that of the better half), the geometric mean over lengths, hidden sizes and targets."""
    noise_floor: float | None = None
    """The noise floor that was given; None if there is none, as in a sweep of a known task."""
    spread: float | None = None
    """With a noise floor: how much equally good trials differ."""
    gain_chance: float | None = None
    """With a noise floor: the chance that the best trial's gain over a constant is chance."""
    margin: float | None = None
    """With a noise floor: how much larger than the best error that of a head count that is enough may be (as a share of
    the variance of y)."""
    rest: dict[int, float] = Field(default_factory=dict[int, float])
    """With a noise floor: how many decades more heads still gain, by head count."""
    by_step: bool = False
    """Whether the answer is enough because it has reached the step, although more heads gain more than the margin."""
    cause: Cause = ""
    """What limits the answer."""
    sequences: int | None = None
    """About how many validation sequences would settle it, if that can be extrapolated."""

    @property
    def least(self) -> int:
        """The lower end of the interval, 1 if nothing is ruled out."""
        return self.low or 1

    @property
    def head_counts(self) -> list[int]:
        """The head counts that have a result."""
        return [heads for heads, _ in self.errors]

    @property
    def agreement(self) -> float | None:
        """The share of the draws that give the same answer; None if nothing was drawn."""
        if not self.shares:
            return None
        flat = self.shares.get(self.head_counts[0], 0.0) if self.verdict == "no-fall" else 0.0
        return self.shares.get(self.estimate or 0, 0.0) + flat

    @property
    def settled(self) -> bool:
        """Whether the estimate is shown to be enough, and all fewer heads not to be."""
        return self.estimate is not None and self.low == self.estimate == self.high


class Dimension(Displayable, HeadsNeeded, Place):
    """What one setting of a run says about the number of heads, with the evidence; the interval holds 90 % of draws."""

    heads_needed: int | None = None
    """The estimate where it is claimed and the next smaller head count was tried (or it is 1); None otherwise."""
    tentative: int | None = None
    """The head count that the errors point to if it is not the estimate: too few trials, or planned head counts without
    a result."""
    refused: int | None = None
    """The head count at which error rates stop falling, if that is not a step."""
    measure: Measure = "nmse"
    on: Part = "validation"
    """The part of the data whose errors are read."""
    rows: list[HeadRow] = Field(default_factory=list[HeadRow])
    """A summary of the trials of the setting by head count."""
    drop_from: int | None = None
    """The decisive pair of neighbouring head counts: the last one that is not enough, …"""
    drop_to: int | None = None
    """… and the next one that was tried."""
    drop: float | None = None
    """How many times smaller the error is at `drop_to` than at `drop_from`."""
    drop_low: float | None = None
    """The lower end of the drop's 90 % interval."""
    drop_high: float | None = None
    further: float | None = None
    """How many times smaller the error gets at best with more heads than the estimate."""
    further_low: float | None = None
    further_high: float | None = None
    missing: dict[int, str] = Field(default_factory=dict[int, str])
    """The planned head counts that have no result, and why: "diverged", "failed" or "pending"."""
    doubted: list[int] = Field(default_factory=list[int])
    """Those of them that might be D instead of the estimate."""
    unlearned: float | None = None
    """The error above which nothing was learned, if that is known."""
    even: tuple[float, float] | None = None
    """The fall per head into `refused` and the one before it, in decades, if they are too similar for a step."""
    fall_share: float | None = None
    """If the verdict depends on whether the error falls at all (no-fall, or unclear for that reason): the share of the
    draws that show what the data show, a fall or level errors."""
    sentence: str = ""
    reasons: list[Reason] = Field(default_factory=list[Reason])
    intrinsic: int | None = None
    """The known D of the setting's tasks, for comparison only: the rule never reads it."""
    agrees: bool | None = None
    """Whether the answer fits the known D; None if it decides nothing or D is unknown."""
    comparison: str = ""
    """The answer beside the known D, in words."""

    @property
    def agreement(self) -> float | None:
        """The share of the draws that give the same answer; None if nothing was drawn."""
        found = super().agreement
        return found if found is None or self.fall_share is None else min(found, self.fall_share)

    @property
    def pointed(self) -> int | None:
        """The estimate, or the head count that the errors point to without one."""
        return self.tentative if self.estimate is None else self.estimate

    @property
    def bounded(self) -> bool:
        """Whether fewer heads than `low` are shown not to be enough although the error still falls."""
        return self.verdict == "not-reached" and bool(self.errors) and (self.low or 0) > self.head_counts[0]

    @property
    def hedged(self) -> bool:
        """Whether the interval holds head counts that the sentence does not name."""
        return self.high != self.estimate or (self.low or 0) <= (self.drop_from or 0)

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
    """Whether the answer fits the known D; None if there is nothing to compare."""
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
    """k/2 of Theorem 2 (2), its inverse: decades of M per decade of 1/NMSE; k is sharp, from the |S_i|."""
    half_k_printed: float | None = None
    """The same with k as the theorem prints it, from |S_i| ≥ T/4; None if that is vacuous."""
    theory_verdict: TheoryVerdict = ""
    k: float | None = None
    """The exponent k in its sharp form; it is vacuous if at most 0. None if the heads are enough or D is unknown."""
    k_printed: float | None = None
    """The same as the theorem prints it."""
    bites_from: int | None = None
    """The smallest T from which on the sharp k is above 0, where that is known."""
    bites_from_printed: int | None = None
    """The same for the printed form."""
    departures: list[Departure] = Field(default_factory=list[Departure])
    """The assumptions that trained models break."""
    theory_note: str = ""
    """The verdict in words, with its numbers."""


class EqualError(Place):
    """The parameters that reach one error, against the length."""

    error: float
    points: list[tuple[int, float | None]]
    """(length, parameters M by interpolation); M is None if the one that just reaches the error is unknown."""
    reasons: list[NoParameters] = Field(default_factory=list[NoParameters])
    """Why each point has no M."""


class Law(Place):
    """One law of the error in h and T, fitted by least absolute error in log scale."""

    name: LawName
    formula: str
    coefficients: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    score: float
    """The mean absolute error of log10, each cell left out in turn."""
    chosen: bool
    points: int
    """The cells that it was fitted to."""
    cells_lacking_targets: int = 0
    """Those of them that have a result for some targets only; each target has its own level."""
    cells_apart: int = 0
    """Cells with a result that have no target in common with the others, and are left out."""
    fitted_without: list[int] = Field(default_factory=list[int])
    """The head counts that were left out on request."""
    note: str = ""
    """What to know about the fit, in words: δ at the edge of its grid, and what the cells lack."""


class Analysis(Displayable, Spec):
    """The analysis of a run: all that its trials say."""

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
    notices: list[Notice] = Field(default_factory=list[Notice])
    """What the models could not see, and what was done about errors of zero and about trials without an error."""
    notes: list[str] = Field(default_factory=list[str])
    """The notices in words."""
    resamples: int
    provenance: dict[str, Any] = Field(default_factory=dict[str, Any])

    @property
    def plain(self) -> bool:
        """Whether its errors are those that are read by default: NMSE on fresh sequences."""
        return (self.measure, self.on) == ("nmse", "validation")
