"""The rule of the advisor: from the errors of trials to a head count, an interval and an honest verdict.

Errors are validation errors at each trial's best point, in units of the variance of y, on one common validation set.

1. *Noise floor.* The best trial's validation error v lies above the floor, its training error t below it: √(v·t) is
   between the two. By what the trials of head counts that do about as well lie above the best is luck of training,
   not noise, so the floor is √(v·t) less `LUCK` times that, and never below 0.
2. *Level* of h: log10 of the best seed's excess over the floor, in units of the excess of a constant. Without noise
   the floor is nearly 0 and levels are those of the errors themselves. Of classes the level counts `CLASSES` times:
   only samples near a boundary are wrong, and their share goes with the root of a squared error.
3. *Margin.* A head count is *enough* where its error is within the margin of the best of all head counts: an excess
   of at most `RATIO` times the best one's, or `OF_NOISE` of the noise floor, or `SMALL` of the variance of y, but never
   more than `MOST_MARGIN` of it. Where
   the rule of `analysis/heads_needed.py` sees a step in the levels, what has reached the step is enough too: what more
   heads gain beyond it is small beside the step (a fall over head counts that were not tried is shared among them).
   That two head counts cannot be told apart is no sign that they are equally good.
4. *Answer*: the smallest head count that is enough, and how sure that is: everything again on draws of the bootstrap,
   over seeds within a head count, over the sequences that validate (the same for all models: differences are paired)
   and over the rule's constants. Of n sequences a draw takes n over the inflation of `advisor_split.py`, since their
   errors depend on each other; so the level of the interval is nominal. a: all smaller head counts are shown not to
   be enough, all at once. b: so many heads, or some fewer, are shown to be enough, asked from the largest head count
   down. The answer is settled where a = b; open above where there is no b. a goes down while bad luck with seeds could
   explain that fewer heads failed, or while one head fewer has had less than `TRIED` trials. A single trial has no
   spread: the interval reaches over its head count, up and down, and where neither the answer nor the head count before
   it has two there is no answer. Trials that the deadline cut off decide nothing. A step is in doubt, and called
   gentle, where most of the draws deny it, where it hangs on a single trial, or where the interval begins at one head
   or two heads before the answer. The largest head count tried is an answer with an open end: nothing confirms it.
5. *No answer*: nothing better than a constant is noise, or training that fails or learns by heart; what the trials
   say of that is the `cause`. A large error without a step leaves the interval open. Training failed where the
   training error is large too and seeds scatter, or longer training does better; and, however good the best, where
   there is no sure step and the middle trial of its head count explains less than `LOTTERY` of what it does. An error
   that still falls at the largest head count allowed needs that many or more; where the last fall is a step, that
   count is the answer, with an open end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special  # scipy.stats, which has the same, takes a second to load

from headcount.advice.advisor_engine import Outcome
from headcount.analysis.heads_needed import AGREEMENT, are_enough, margins, read
from headcount.base.random import generator

Verdict = Literal["transition", "one-head", "gentle", "more", "failed", "noise", "budget"]
Cause = Literal["", "unlearned", "by-heart", "lottery", "scatter", "patience", "doubtful"]
Floats = NDArray[np.float64]
DRAWS = 1000
LUCK = 3.0
NEAR = 1.5
"""A head count whose best trial is within this factor of the best of all does about as well."""
CLOSEST = 0.95
"""The floor is at most this share of the best error: finer differences are luck, even where trials agree."""
POOR = 0.3
"""While the best error is larger than this and there is no step, D may lie beyond: the interval stays open."""
SCATTERED = 1.2
"""… and where the middle trial of the best head count lies above the best one by this factor, training failed, and
likewise where a trial that was trained longer is better by it."""
NOTHING = 0.97
"""A validation error above this explains hardly anything: noise, unless training shows that there is more."""
CLASSES = 2.0
TRIED = 3
"""Trials below which the head count before the answer is not ruled out."""
LOTTERY = 0.5
"""Where the middle trial of the best head count explains less than this share of what the best one does, training is
a lottery, however good the best …"""
PRIZE = 0.1
"""… if that explains so much at least."""
LEARNED = 0.5
"""While nothing holds on the validation part, a training error below this is learned by heart …"""
BY_HEART = 0.25
"""… and so is one below this share of a validation error …"""
LARGE = 0.1
"""… above this."""
STEEP = 1.5
"""The fall into the largest head count allowed is a step where it is so many times the mean one before, by head."""
SURELY = 2.5
"""Standard deviations that a difference must have to be shown."""
MOST_SEQUENCES = 1e6
"""Beyond this an extrapolated number of sequences says nothing."""
TINY = 1e-3
"""An excess at which nothing is left to gain, as a share of a constant's."""


@dataclass(frozen=True)
class Table:
    """The trials of one curve: head counts, and for each its trials."""

    heads: tuple[int, ...]
    trials: tuple[tuple[Outcome, ...], ...]

    @classmethod
    def of(cls, found: Sequence[Outcome]) -> Table:
        """Sort trials by head count; those that were cut off count where no other has the same head count."""
        heads = tuple(sorted({one.heads for one in found}))
        rows = [[one for one in found if one.heads == h] for h in heads]
        return cls(heads, tuple(tuple([one for one in row if one.whole] or row) for row in rows))

    def best(self, index: int) -> Outcome:
        """The best trial of a head count."""
        return min(self.trials[index], key=lambda one: one.validation)

    def alike(self, index: int) -> list[Outcome]:
        """The trials of a head count with the sizes and the training of its best one; all where that is alone."""
        best, row = self.best(index), self.trials[index]
        row = sorted(row, key=lambda one: one.wanted.seed)
        own = [one for one in row if (one.model.hidden, one.wanted.train) == (best.model.hidden, best.wanted.train)]
        return own if len(own) > 1 else list(row)

    @property
    def champion(self) -> Outcome:
        """The best trial of all."""
        return min((one for row in self.trials for one in row), key=lambda one: one.validation)


@dataclass(frozen=True)
class Decision:
    """What the trials so far say."""

    verdict: Verdict
    heads: int | None
    """The answer; None where there is none."""
    low: int
    high: int | None
    """The interval; None: above all head counts that were tried."""
    floor: float
    spread: float
    """What equally good trials differ by."""
    gain: float
    """The chance that the best trial's gain over a constant is chance."""
    shares: dict[int, float]
    """The answers of the draws; 0 stands for none."""
    levels: dict[int, float]
    rest: dict[int, float]
    """How many decades more heads still gain, by head count."""
    margin: float = 0.0
    """What a head count may err more than the best and still be enough, as a share of the variance of y."""
    sequences: int | None = None
    """About how many sequences that validate would settle it, where that can be extrapolated."""
    by_step: bool = False
    """Whether the answer is enough because it has reached the step, while more heads still gain beyond the margin."""
    cause: Cause = ""
    """What limits the answer.

    Of noise: the models did not learn the training part either ("unlearned": training that fails looks the same), or
    only by heart ("by-heart": too few samples look the same). Of failed training: few seeds learn ("lottery"), all
    learn little and differ ("scatter"), or longer training does better ("patience"). Of an answer: what was learned was
    so by heart, or the step is in doubt ("doubtful").
    """

    @property
    def agreed(self) -> float:
        """The share of the draws that agree."""
        return self.shares.get(self.heads or 0, 0.0)

    @property
    def settled(self) -> bool:
        """Whether all fewer heads are shown not to be enough, and these are shown to be."""
        return self.heads is not None and self.low == self.heads == self.high


def noise_floor(table: Table) -> tuple[float, float]:
    """Return the noise floor and the spread of trials that do about as well as the best."""
    best = table.champion
    typical = [
        float(np.median([one.validation for one in row])) - best.validation
        for i, row in enumerate(table.trials)
        if table.best(i).validation <= NEAR * best.validation
    ]
    several = max(map(len, table.trials)) > 1  # of single trials the differences say little
    spread = float(np.median(typical) if several else max(typical)) if len(typical) > 1 else 0.5 * best.validation
    middle = float(np.sqrt(best.validation * min(best.train, CLOSEST**2 * best.validation)))
    return max(0.0, middle - LUCK * spread), spread


def drawn_errors(
    table: Table, draws: int, seed: int, *, inflation: float = 1.0, folded: bool = False
) -> Floats:  # fmt: skip
    """Return [draw, head count]: the error of the best of the drawn seeds on the drawn samples; row 0 is the data.

    Seeds are drawn among trials alike: a challenge that one head count had must not look like luck. In folds the
    better half of the seeds counts, not the best: each is a mean over several models already, and the best of a few
    noisy means is too good.
    """
    rng = generator(seed, "advice bootstrap")
    # one draw of seeds for all head counts, as of the sequences: seeds share folds and batches
    lots = rng.random((draws + 1, max(map(len, table.trials))))
    samples = len(table.trials[0][0].squares)
    taken = max(2, round(samples / inflation))
    weights = rng.multinomial(taken, np.full(samples, 1 / samples), draws) / taken
    weights = np.concatenate([np.full((1, samples), 1 / samples), weights])
    found = np.empty((draws + 1, len(table.heads)))
    for i, row in enumerate(map(table.alike, range(len(table.heads)))):
        errors = weights @ np.stack([one.squares for one in row]).T.astype(np.float64)
        chosen = (lots[:, : len(row)] * len(row)).astype(np.int64)
        chosen[0] = np.arange(len(row))
        ranked = np.sort(np.take_along_axis(errors, chosen, 1), 1)
        found[:, i] = ranked[:, : (len(row) + 1) // 2 if folded else 1].mean(1)
    return found


def levels_of(errors: Floats, floor: float) -> Floats:
    """Return log10 of the excess over the floor, in units of a constant's; the floor moves with the drawn samples."""
    share = errors.min(1, keepdims=True) / errors[0].min()
    excess = np.maximum(errors - floor * share, 1e-12)
    return np.log10(excess / np.maximum(1.0 - floor, 1e-6))


def decide(
    found: Sequence[Outcome], *, heads_max: int, confidence: float = 0.95, seed: int = 0, draws: int = DRAWS,
    inflation: float = 1.0, folded: bool = False,
) -> Decision:  # fmt: skip
    """Apply the rule to all trials of the curve at fixed head size; those that were cut off decide nothing.

    `inflation` and `folded` say how the sequences were split (`advisor_split.py`).
    """
    whole = [one for one in found if one.whole]
    enough = len({one.heads for one in whole}) > 1 and min(one.heads for one in whole) == 1
    table = Table.of(whole if enough else found)
    heads, floor_spread = list(table.heads), noise_floor(table)
    floor, spread = floor_spread
    errors = drawn_errors(table, draws, seed, inflation=inflation, folded=folded)
    chance = _gain(table.champion, inflation)
    levels = levels_of(errors, floor) * (1.0 if table.champion.wrong is None else CLASSES)
    rest = {h: float(max(levels[0, i] - levels[0, i + 1 :].min(initial=levels[0, i]), 0)) for i, h in enumerate(heads)}
    by_heads = {h: float(levels[0, i]) for i, h in enumerate(heads)}
    margin = float(margins(errors, floor)[0])
    limits, samples = errors.min(1) + margins(errors, floor), len(table.champion.squares)

    def told(
        verdict: Verdict, answer: int | None, low: int, high: int | None, cause: Cause = "",
        shares: dict[int, float] | None = None,
    ) -> Decision:  # fmt: skip
        return Decision(
            verdict, answer, low, high, floor, spread, chance, shares or {0: 1.0}, by_heads, rest, margin,
            None if answer is None else _would_settle(errors, limits, heads.index(answer), samples),
            answer is not None and bool(errors[0, heads.index(answer)] > limits[0]), cause,
        )  # fmt: skip

    if not enough or max(map(len, table.trials)) < 2:
        return told("budget", None, 1, None)
    if table.champion.validation > NOTHING or chance > 0.01:
        fitted = min(_fitted(one) for row in table.trials for one in row)
        return told("noise", None, 1, None, "by-heart" if fitted < LEARNED else "unlearned")
    good, sharp = are_enough(heads, levels, errors, floor, heads_max, seed)
    reading = read(good, heads, (1.0 - confidence) / 2)
    index, shares = int(reading.answer[0]), reading.shares
    place = min(index, len(heads) - 1)  # that more heads are needed than were tried is never sure
    end = max(len(heads) if reading.high is None else reading.high, index)
    low, high = _widened(table, place, min(reading.low, place, _lucky(table, place, floor)), end)
    least = heads[low - 1] + 1 if low > 0 else 1
    most = heads[high] if high < len(heads) else None
    decisive = [len(table.trials[i]) for i in (max(place - 1, 0), place)]
    if max(decisive) < 2:
        return told("budget", None, least, None)
    verdict: Verdict = "one-head" if index == 0 else "transition" if sharp else "gentle"
    verdict, cause = ("more" if index == len(heads) else verdict), _cause(table)
    agreed = shares.get(heads[place], 0.0) >= AGREEMENT and min(decisive) > 1
    doubtful = verdict == "transition" and not (agreed and least >= max(2, heads[place] - 1))
    doubtful = doubtful or (verdict == "one-head" and most != 1)
    lost = ("lottery",) if doubtful or verdict == "one-head" else ("lottery", "scatter", "patience")
    unsure = doubtful or (cause == "lottery" and (least, most) != (heads[place], heads[place]))
    if cause in lost and (verdict != "transition" or unsure):
        return told("failed", heads[place], least, None, cause, shares)
    if verdict == "more":
        if _ends_in_a_step(table, levels[0]):
            shares[heads[-1]] = shares.get(heads[-1], 0.0) + shares.pop(0, 0.0)
            return told(verdict, heads[-1], least, None, cause, shares)
        return told(verdict, None, least, None, cause, shares)
    cause = cause if cause == "by-heart" else ""
    if doubtful:
        verdict, cause = "gentle", cause or "doubtful"
    elif verdict == "gentle" and table.champion.validation > POOR:
        most = None
    if place == len(heads) - 1 or most == heads[-1]:
        most = None  # nothing larger confirms it, and that the best of all or some fewer are enough is no news
    return told(verdict, heads[index], least, most, cause, shares)


def _would_settle(errors: Floats, limits: Floats, place: int, samples: int) -> int | None:
    """Extrapolate how many sequences would show that these heads are enough and one step fewer are not.

    The spread of a mean falls with the root of their number; what seeds add to it does not, so this is a guess.
    """
    asked = [limits - errors[:, place], *([errors[:, place - 1] - limits] if place else [])]
    needed = [(SURELY * float(some[1:].std()) / max(float(some[0]), 1e-12)) ** 2 for some in asked]
    most = max(needed) * samples
    return int(float(f"{most:.1e}")) if samples < most <= MOST_SEQUENCES else None


def _widened(table: Table, place: int, low: int, high: int) -> tuple[int, int]:
    """Widen an interval over head counts whose trials are too few to rule them out."""
    if place > 0 and len(table.trials[place - 1]) < TRIED:
        low = min(low, place - 1)
    while low > 0 and len(table.trials[low - 1]) < 2:
        low -= 1
    while high + 1 < len(table.heads) and len(table.trials[high + 1]) < 2:
        high += 1
    if high == len(table.heads) - 1 and len(table.trials[high]) < 2:
        high += 1  # nothing larger confirms it
    return low, high


def _fitted(one: Outcome) -> float:
    """Return the smallest training error that is known of a trial."""
    return float(np.fmin(one.train, one.fitted))


def _cause(table: Table) -> Cause:
    """Say why the best error is large, where it is: learned by heart, or not learned by luck or for lack of time."""
    best = table.champion
    if best.validation > LARGE and _fitted(best) < BY_HEART * best.validation:
        return "by-heart"
    row = table.trials[table.heads.index(best.heads)]
    alike = [one.validation for one in row if one.wanted.train.steps == best.wanted.train.steps]
    typical = float(np.median(alike) if len(alike) > 2 else max(alike))
    if len(row) > 2 and 1 - typical < LOTTERY * (1 - best.validation) and best.validation < 1 - PRIZE:
        return "lottery"
    sooner = min((one.validation for one in row if one.wanted.train.steps < best.wanted.train.steps), default=0.0)
    if 1 - sooner < LOTTERY * (1 - best.validation) and best.validation < 1 - PRIZE:
        return "patience"
    if best.validation <= POOR:
        return ""
    if sooner > SCATTERED * best.validation:
        return "patience"
    return "scatter" if typical > SCATTERED * best.validation else ""


def _ends_in_a_step(table: Table, levels: Floats) -> bool:
    """Whether the fall into the largest head count may be the last: a step, or nothing is left to gain."""
    last = (levels[-2] - levels[-1]) / (table.heads[-1] - table.heads[-2])
    return bool(levels[-1] <= np.log10(TINY) or last >= STEEP * max(-levels[-2] / table.heads[-2], 0.0))


def one_sided(difference: Floats, inflation: float = 1.0) -> float:
    """Return the chance of so large a mean, were the true one 0 or less (paired t-test, corrected variance)."""
    spread = float(difference.std(ddof=1)) * inflation**0.5
    if spread == 0.0:
        return 0.0 if difference[0] > 0 else 1.0
    return float(special.stdtr(len(difference) - 1, -float(difference.mean()) * len(difference) ** 0.5 / spread))


def _gain(best: Outcome, inflation: float) -> float:
    """Return the chance of the best trial's gain over a constant on these samples, were there none."""
    return one_sided(1.0 - best.squares.astype(np.float64), inflation)


def _lucky(table: Table, index: int, floor: float) -> int:
    """Return the index of the smallest head count whose failure bad luck with the seeds could still explain.

    Were it enough, all seeds from there up to the answer would have failed by chance. How likely that is, the seeds of
    the answer tell: one succeeds where its log error is nearer to the best from the answer on than to that of fewer.
    """
    level = [[np.log10(max(one.validation - floor, 1e-12)) for one in row] for row in table.trials]
    best = min(map(min, level[index:]))
    smallest = index
    for i in reversed(range(index)):
        middle = (min(map(min, level[: i + 1])) + best) / 2
        failing = sum(value >= middle for value in level[index]) / len(level[index])
        if failing ** sum(map(len, level[i:index])) <= 0.05:
            break
        smallest = i
    return smallest
