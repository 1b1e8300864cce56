"""The estimate of the intrinsic dimension D: from how many heads on does the error stop falling?

The rule, stated once; the task's known D is never read. A *place* is one length, hidden size and target; its level at
h heads is log10 of the best seed's error (of error rates, of the mean over seeds), and at no heads 0, the error of a
constant.

1. *Gap.* The gap of h in a place is how far its level lies above the best level of any larger head count. Over places
   it is the mean of the smaller half: with enough heads training may still fail here and there, but with too few it
   cannot succeed, so the places where it went well decide. Below `SOLVED` a decade counts as `FAINT` of one: there
   the error is what training leaves, and a lucky seed must not outweigh the fall that solved the task.
2. *Enough.* h is enough when its gap is at most `BASE` decades and `DRIFT` more for every head up to the largest head
   count tried, `MOST` in all: more heads than needed are easier to train, and each brings a little.
3. *Sharp.* The gap falls into h, from the smallest gap of fewer heads, by at least `SHARP` times what is left of it,
   by at least `LEAST` decades, and by at least `SHARE` of the largest such fall between head counts that were tried. A
   gentle fall has no such h. A fall of `CLEAR` times what is left settles it, and 2 need not hold; the smallest head
   count tried, before which there is only "no heads", must have it.
4. *Useful.* The mean level at h is below `USEFUL` (`USEFUL_FIRST` for the smallest head count): while every error is
   large, D may still lie beyond.
5. The estimate is the smallest h that is enough, sharp and useful. It needs a larger head count that confirms it. If
   there is none, D was not reached; then at least k heads are needed where all fewer are clearly not enough: their
   gaps are larger than 2 allows, all at once, and some level is useful, in 95 % of the draws. Where nothing can be
   claimed, the error falls if the larger half of the head counts is better on average than the smaller half by `BASE`
   decades in 95 % of the draws. There is no fall if the errors are level: no head count is better than a smaller one
   by more than `LEVEL_DECADES`, and in 95 % of the draws none is so much better than the smallest. What is neither is
   unclear: a fall that too few draws show is no sign that all head counts are equally good.
6. *How sure.* All of this is repeated on every draw of the bootstrap over targets and seeds, with each constant drawn
   anew from 1/`VARIED` to `VARIED` times its value: they are choices, and an answer that hangs on them must not look
   certain. The interval holds 90 % of the answers, "not reached" counted as the largest. Its lower end goes further
   down while bad luck could explain the failure of fewer heads: where only a share p of the seeds succeeds at the
   estimate, all n seeds of the next smaller head count fail with chance (1 − p)^n, and 5 % of that is too much. It
   goes down to the head count after the largest one that is ruled out, tried or not. With one target and one seed
   the places are drawn again instead. Where a head count that decides has a single trial nothing is claimed, nor where
   a planned head count just below the answer has no result.
7. *With a noise floor* (`needed_above_floor`). Where a user's data are all there is (`advise`), errors are those on the
   user's sequences, the levels are those of the excess over a noise floor that is handed in, and there may be no step
   at all. There a head count is enough where its error is within a margin of the best of all: an excess of at most
   `RATIO` times the best one's, or `OF_NOISE` of the floor, or `SMALL` of the variance of y, but never more than
   `MAX_MARGIN` of it; and, where there is a step (3), where it has reached the step (a fall over head counts that were
   not tried is shared among them). a goes down while bad luck with seeds could explain that fewer heads failed (6), in
   folds while some of their models succeed, or while one head fewer has had less than `TRIED` trials. A single trial
   has no spread: the interval reaches over its head count, up and down, and where neither the answer nor the head count
   before it has two there is no answer. A step
   is in doubt, and called gentle, where most of the draws deny it, where it hangs on a single trial, or where the
   interval begins at one head or two heads before the answer. The largest head count tried is an answer with an open
   end: nothing confirms it. An error that still falls at the largest head count allowed needs that many or more; where
   the last fall is a step, that count is the answer, with an open end. A large error without a step leaves the interval
   open. Nothing better than a constant is noise; a gain over a constant that may be chance is unclear. What the trials
   say of training that fails, or learns by heart, is handed in too (`Cause`).

Either way the interval goes from a to b (`shown`): all head counts below a are shown not to be enough, and b heads, or
some fewer, are shown to be. That head counts cannot be told apart is no sign that they are equally good.

On error rates (1 − accuracy) the same rule holds with three readings. `USEFUL` and `USEFUL_FIRST` are shares of wrong
answers; what is above them is no answer about heads, and the reasons say so. `SOLVED`, a mark of NMSE, is not used:
in its place stand `FEW` wrong answers among the samples, below which an error rate is mostly luck. And no transition is
claimed of an even fall: not where half of the places have fewer than `FEW` wrong answers at the estimate, since any
fall ends there, nor where the fall into it is less than `STEEPER` times, head for head, the one before.

The slope of log error in log T is reported as a reason but is no part of the rule: trained for a limited time, models
with enough heads do worse on longer sequences too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headcount.analysis.blocks import Floats
from headcount.analysis.bootstrap import OUTSIDE, Drawn, interval, known_mean, read
from headcount.analysis.by_heads import head_rows
from headcount.analysis.doubts import (
    at_least,
    between,
    fall_shown,
    lost,
    lucky,
    redrawn,
    too_few,
    widened,
    would_settle,
)
from headcount.analysis.measures import FEW, HALF, UNSOLVED
from headcount.analysis.rates import LARGE, even_fall, few_wrong, guess_level
from headcount.analysis.record import Cause, Dimension, HeadsNeeded, Verdict
from headcount.core import generator

BASE = 0.1
DRIFT = 0.15
MOST = 0.8
SHARP = 1.5
CLEAR = 4.0
LEAST = 0.2
SHARE = 1 / 3
USEFUL = LARGE
USEFUL_FIRST = 0.02
SOLVED = 1e-5
FAINT = 0.5
VARIED = 1.5
RATIO = 1.4
"""The excess of a head count that is enough, over that of the best, at most; …"""
OF_NOISE = 0.05
"""… or so much of the noise floor, …"""
SMALL = 1e-4
"""… or so much of the variance of y: what is below counts as solved. …"""
MAX_MARGIN = 0.05
"""… But never more than this share of the variance of y."""
POOR = 0.3
"""While the best error is larger than this and there is no step, D may lie beyond: the interval stays open."""
NOTHING = 0.97
"""A validation error above this explains hardly anything: noise, unless training shows that there is more."""
SHOWN_GAIN = 0.01
"""A gain over a constant is shown where it would arise by chance with at most this probability."""
SUCCEED = 0.25
"""The share of the models of a head count, in folds, that must succeed for it not to be ruled out."""
STEEP = 1.5
"""The fall into the largest head count allowed is a step where it is so many times the mean one before, by head."""
TINY = 1e-3
"""An excess at which nothing is left to gain, as a share of a constant's."""
AGREEMENT = 0.5
"""An answer that fewer of the draws give is called unclear."""


@dataclass(frozen=True)
class Choices:
    """The constants of the rule, one for every draw."""

    slack: Floats
    """A factor on `BASE`, `DRIFT` and `MOST`."""
    sharp: Floats
    """A factor on `SHARP`, `CLEAR` and `LEAST`."""
    useful: Floats
    """A factor on `USEFUL` and `USEFUL_FIRST`."""

    @classmethod
    def draw(cls, count: int, seed: int) -> Choices:
        """Draw all factors; those of the first draw, the data, are 1."""
        factors = VARIED ** generator(seed, "constants of the rule").uniform(-1.0, 1.0, (3, count))
        factors[:, 0] = 1.0
        return cls(*factors)


def dimension(drawn: Sequence[Drawn], seed: int = 0) -> Dimension:
    """Estimate D from the blocks of one setting: apply the rule to the data and to every draw of them.

    The record that is returned holds numbers and verdicts; `core.in_words` adds what they say.
    """
    heads, units, levels = pooled(drawn, seed)
    missing = lost(drawn, heads)
    bare = _bare(drawn, heads, levels, missing)
    if len(heads) < 2:
        return bare
    choices = Choices.draw(len(levels), seed)
    solved_below = faint_below(drawn)
    found = needed(units, levels, heads, choices, solved_below)
    index = int(found[0])
    reading = read(found[:, None] <= np.arange(len(heads)), heads, OUTSIDE)
    low, high = min(reading.low, index), max(len(heads) if reading.high is None else reading.high, index)
    if index == len(heads):
        solved = levels.min(1) <= np.log10(choices.useful * USEFUL)
        low = min(low, at_least(gaps(units, solved_below)[:, 1:], allowed(heads, choices), solved))
        estimate, doubted = None, []
    else:
        low = min(low, lucky(drawn, heads, index))
        estimate, doubted = heads[index], between(missing, heads, index)
    if too_few(drawn, heads, low if estimate is None else index):
        return bare.model_copy(update={"low": 1, "tentative": estimate, **_steps(levels, heads, index)})
    refused = even = None
    if estimate is not None and drawn[0].block.rate and _no_step(drawn, units[0], levels[0], heads, index):
        refused, estimate, doubted, high = estimate, None, [], len(heads)
        even = even_fall(drawn, levels[0], heads, index)
    shares = reading.shares
    unclear = doubted or refused is not None
    verdict, fall_share = ("unclear", None) if unclear else _verdict(estimate, heads, shares, low, levels)
    last = index if estimate is not None else low if verdict == "not-reached" and low > 0 else None
    return bare.model_copy(
        update={
            "verdict": verdict,
            "estimate": None if doubted else estimate,
            "tentative": estimate if doubted else None,
            "heads_needed": _claimed(verdict, heads, index),
            "low": heads[low - 1] + 1 if low > 0 else 1,
            "high": None if high == len(heads) else heads[high],
            "doubted": doubted,
            "refused": refused,
            "even": even,
            "shares": shares,
            "fall_share": fall_share,
            **({} if last is None else _steps(levels, heads, last)),
        }
    )


def _bare(drawn: Sequence[Drawn], heads: Sequence[int], levels: Floats, missing: dict[int, str]) -> Dimension:
    """Return the record of what was measured, before anything is claimed of it."""
    block = drawn[0].block
    guess = guess_level(drawn) if block.rate else UNSOLVED
    return Dimension(
        setting=block.setting,
        verdict="too-few",
        estimate=None,
        low=None,
        high=None,
        missing=missing,
        measure="error rate" if block.rate else "nmse",
        on=block.on,
        resamples=len(levels) - 1,
        errors=[(h, float(10**level)) for h, level in zip(heads, levels[0], strict=True)],
        rows=head_rows([t for d in drawn for _, run in d.block.panels for t in run.trials]),
        unlearned=guess if np.isfinite(guess) else None,
    )


def _steps(levels: Floats, heads: Sequence[int], index: int) -> dict[str, float | int]:
    """Return the fall into a head count, where a smaller one was tried, and what is left beyond it, with intervals."""
    if index == len(heads):
        return {}
    found: dict[str, float | int] = {}
    if index > 0:
        fall = levels[:, index - 1] - levels[:, index]
        low, high = interval(fall)
        found |= {
            "drop_from": heads[index - 1],
            "drop_to": heads[index],
            "drop": _times(fall[0]),
            "drop_low": _times(low),
            "drop_high": _times(high),
        }
    if index < len(heads) - 1:
        rest = np.maximum(levels[:, index] - levels[:, index + 1 :].min(1), 0.0)
        low, high = interval(rest)
        found |= {"further": _times(rest[0]), "further_low": _times(low), "further_high": _times(high)}
    return found


def _times(decades: float) -> float:
    """Return the factor of so many decades, kept within what a float can hold."""
    return float(10.0 ** min(decades, 300.0))


def _claimed(verdict: str, heads: Sequence[int], index: int) -> int | None:
    """Return the number of heads that the run shows to be needed: the estimate, with nothing untried below it."""
    if verdict not in ("transition", "one-head"):
        return None
    before = heads[index - 1] if index > 0 else 0
    return heads[index] if heads[index] == before + 1 else None


def _no_step(drawn: Sequence[Drawn], units: Floats, levels: Floats, heads: Sequence[int], index: int) -> bool:
    """Whether the end of a fall of error rates is no step: nothing is left to learn there, or the fall is even."""
    return index > 0 and (few_wrong(drawn, units[:, index]) or even_fall(drawn, levels, heads, index) is not None)


def pooled(drawn: Sequence[Drawn], seed: int = 0) -> tuple[list[int], Floats, Floats]:
    """Return the head counts that have a result, the levels of all places, and their means [draw, head count].

    A mean level is the one before plus the mean of the differences within places that have both, so that a missing
    cell does not tilt it.
    """
    # [draw, place, head count]
    units = redrawn(drawn, np.concatenate([d.level for d in drawn], 1), seed)
    known = [i for i in range(units.shape[2]) if np.isfinite(units[0, :, i]).any()]
    units = units[:, :, known]
    means = known_mean(units, 1)
    # a draw may lose a head count altogether: it then has the level of the data
    means = np.where(np.isfinite(means), means, means[:1])
    steps = known_mean(np.diff(units, axis=2), 1)
    steps = np.where(np.isfinite(steps), steps, np.diff(means, axis=1))
    levels = means[:, :1] + np.concatenate([np.zeros((len(means), 1)), np.cumsum(steps, 1)], 1)
    return [drawn[0].block.heads[i] for i in known], units, levels


def faint_below(drawn: Sequence[Drawn]) -> float:
    """Return the error below which a decade counts `FAINT` of one: `SOLVED`, or that of `FEW` wrong answers."""
    if not drawn[0].block.rate:
        return SOLVED
    floors = [least for d in drawn for least in d.block.floors]
    return FEW * max(floors) / HALF if floors else 1e-300  # without the number of samples no luck is known


def gaps(units: Floats, solved: float = SOLVED) -> Floats:
    """Return [draw, head count from none on, but the last]: how far a level lies above the best of more heads.

    `units` are levels [draw, place, head count]; the mean is over the smaller half of the places that have both.
    """
    floor = np.log10(solved)
    units = np.where(units < floor, floor + FAINT * (units - floor), units)
    padded = np.concatenate([np.zeros((*units.shape[:2], 1)), units], 2)
    ahead = np.minimum.accumulate(np.where(np.isfinite(padded), padded, np.inf)[:, :, ::-1], 2)[:, :, ::-1]
    some = np.sort(
        np.where(np.isfinite(ahead[:, :, 1:]), np.maximum(padded[:, :, :-1] - ahead[:, :, 1:], 0.0), np.nan), 1
    )
    half = (np.isfinite(some).sum(1, keepdims=True) + 1) // 2  # the unknown are sorted to the end
    return known_mean(np.where(np.arange(some.shape[1])[:, None] < half, some, np.nan), 1)


def allowed(heads: Sequence[int], choices: Choices) -> Floats:
    """Return [draw, head count but the last]: the gap that a head count may have and still be enough."""
    drift = [min(BASE + DRIFT * (heads[-1] - h), MOST) for h in heads[:-1]]
    return choices.slack[:, None] * np.array(drift)


def needed(
    units: Floats, levels: Floats, heads: Sequence[int], choices: Choices, solved: float = SOLVED
) -> NDArray[np.int64]:
    """Apply the rule to every draw: the index of D's head count, or the number of head counts if there is none.

    `units` are levels [draw, place, head count], `levels` their means over places.
    """
    gap, most = gaps(units, solved), allowed(heads, choices)
    fallen = np.minimum.accumulate(gap, 1)[:, :-1] - gap[:, 1:]
    largest = fallen[:, 1:].max(1, initial=0.0)
    answer = np.full(len(units), len(heads))
    for i in reversed(range(len(heads) - 1)):
        rest, fall = gap[:, i + 1], fallen[:, i]
        clear = fall >= choices.sharp * CLEAR * rest
        enough = rest <= most[:, i]
        sharp = clear if i == 0 else clear | (enough & (fall >= choices.sharp * SHARP * rest))
        fair = fall >= np.maximum(choices.sharp * LEAST, SHARE * largest)
        useful = levels[:, i] <= np.log10(choices.useful * (USEFUL_FIRST if i == 0 else USEFUL))
        answer = np.where(sharp & fair & useful, i, answer)
    return answer


def _verdict(
    estimate: int | None, heads: Sequence[int], shares: dict[int, float], low: int, levels: Floats
) -> tuple[Verdict, float | None]:
    """Return the verdict; where it rests on whether the error falls at all, also the share of the draws that agree."""
    fall, share = fall_shown(levels, BASE) if estimate is None and low == 0 else ("falls", None)
    if shares.get(estimate or 0, 0.0) + (shares.get(heads[0], 0.0) if fall == "level" else 0.0) < AGREEMENT:
        return "unclear", None
    if estimate is not None:
        return ("one-head" if estimate == heads[0] else "transition"), None
    if fall == "falls":
        return "not-reached", None
    return ("no-fall" if fall == "level" else "unclear"), share


def margins(errors: Floats, floor: float) -> Floats:
    """Return [draw]: by how much a head count may err more than the best one and still be enough."""
    best = errors.min(1)
    floors = floor * best / best[0]  # the floor moves with the drawn samples
    return np.clip(np.maximum((RATIO - 1.0) * (best - floors), OF_NOISE * floors), SMALL, MAX_MARGIN)


def are_enough(
    heads: Sequence[int], levels: Floats, errors: Floats, floor: float, heads_max: int, seed: int
) -> tuple[NDArray[np.bool_], bool]:
    """Return [draw, head count]: which are enough; and whether the data themselves show a step.

    In a draw whose error still falls where the search must end, none is.
    """
    choices = Choices.draw(len(levels), seed)
    # a fall over head counts that were not tried is shared among them: it must not look like the step of one head
    every = np.arange(heads[0], heads[-1] + 1)
    between = levels @ np.stack([np.interp(every, heads, row) for row in np.eye(len(heads))])
    flat = np.full_like(between, -99.0)  # whether an error is small enough to be useful is asked elsewhere
    place = needed(between[:, None, :], flat, every.tolist(), choices)
    none = place == len(every)
    step = np.searchsorted(heads, every[np.minimum(place, len(every) - 1)])
    limit = errors.min(1) + margins(errors, floor)
    reached = np.take_along_axis(errors, step[:, None], 1)[:, 0]
    good = errors <= np.where(none, limit, np.maximum(limit, reached))[:, None]
    if heads[-1] >= heads_max and len(heads) > 1:
        good &= ~(none & (good.argmax(1) == len(heads) - 1))[:, None]
    return good, not none[0]


@dataclass(frozen=True)
class Evidence:
    """The trials of one curve with a noise floor: what the rule reads, and nothing else."""

    heads: list[int]
    trials: list[Floats]
    """The errors of all trials that decide, by head count."""
    models: list[Floats]
    """The errors of their models: in folds a trial is a mean over several."""
    errors: Floats
    """[draw, head count]: the error that counts; row 0 is the data."""
    levels: Floats
    """[draw, head count]: log10 of the excess over the floor, in units of a constant's."""
    floor: float
    spread: float
    """What equally good trials differ by."""
    gain_chance: float
    """The chance that the best trial's gain over a constant is chance."""
    sequences: int
    """How many validate."""
    cause: Cause
    """Why the best error is large, where it is."""
    unlearned: Cause
    """What to say of nothing learned: by heart, or not at all."""
    compared: bool = True
    """Whether one head and some larger head count have a trial that was trained to its end."""

    @property
    def best(self) -> float:
        """The smallest error of all trials."""
        return min(float(some.min()) for some in self.trials)


def needed_above_floor(found: Evidence, *, heads_max: int, confidence: float = 0.95, seed: int = 0) -> HeadsNeeded:
    """Apply the rule to errors with a noise floor."""
    heads, errors, levels = found.heads, found.errors, found.levels
    limits = errors.min(1) + margins(errors, found.floor)
    counts = [len(some) for some in found.trials]
    bare = HeadsNeeded(
        verdict="too-few",
        estimate=None,
        low=1,
        high=None,
        shares={0: 1.0},
        resamples=len(errors) - 1,
        errors=[(h, float(error)) for h, error in zip(heads, errors[0], strict=True)],
        noise_floor=found.floor,
        spread=found.spread,
        gain_chance=found.gain_chance,
        margin=float(margins(errors, found.floor)[0]),
        rest=_rest(heads, levels[0]),
    )

    def told(
        verdict: Verdict, answer: int | None, low: int, high: int | None, cause: Cause, shares: dict[int, float]
    ) -> HeadsNeeded:
        place = None if answer is None else heads.index(answer)
        return bare.model_copy(
            update={
                "verdict": verdict,
                "estimate": answer,
                "low": low,
                "high": high,
                "cause": cause,
                "shares": shares,
                "sequences": None if place is None else would_settle(errors, limits, place, found.sequences),
                "by_step": place is not None and bool(errors[0, place] > limits[0]),
            }
        )

    if not found.compared or max(counts) < 2:
        return bare
    if found.best > NOTHING:
        return bare.model_copy(update={"verdict": "noise", "cause": found.unlearned})
    if found.gain_chance > SHOWN_GAIN:  # that no gain is shown does not say that there is none
        return bare.model_copy(update={"verdict": "unclear", "cause": found.unlearned})
    good, sharp = are_enough(heads, levels, errors, found.floor, heads_max, seed)
    reading = read(good, heads, (1.0 - confidence) / 2)
    index, shares = int(reading.answer[0]), reading.shares
    place = min(index, len(heads) - 1)  # that more heads are needed than were tried is never sure
    end = max(len(heads) if reading.high is None else reading.high, index)
    low, high = widened(counts, place, min(reading.low, place, _lucky_above(found, place)), end)
    least = heads[low - 1] + 1 if low > 0 else 1
    most = heads[high] if high < len(heads) else None
    decisive = [counts[i] for i in (max(place - 1, 0), place)]
    if max(decisive) < 2:
        return bare.model_copy(update={"low": least})
    verdict: Verdict = "one-head" if index == 0 else "transition" if sharp else "gentle"
    verdict, cause = ("not-reached" if index == len(heads) else verdict), found.cause
    agreed = shares.get(heads[place], 0.0) >= AGREEMENT and min(decisive) > 1
    doubtful = verdict == "transition" and not (agreed and least >= max(2, heads[place] - 1))
    doubtful = doubtful or (verdict == "one-head" and most != 1)
    lost = ("lottery",) if doubtful or verdict == "one-head" else ("lottery", "scatter", "patience")
    unsure = doubtful or (cause == "lottery" and (least, most) != (heads[place], heads[place]))
    if cause in lost and (verdict != "transition" or unsure):
        return told("failed", heads[place], least, None, cause, shares)
    if verdict == "not-reached":
        if _ends_in_a_step(heads, levels[0]):
            shares[heads[-1]] = shares.get(heads[-1], 0.0) + shares.pop(0, 0.0)
            return told(verdict, heads[-1], least, None, cause, shares)
        return told(verdict, None, least, None, cause, shares)
    cause = cause if cause == "by-heart" else ""
    if doubtful:
        verdict, cause = "gentle", cause or "doubtful"
    elif verdict == "gentle" and found.best > POOR:
        most = None
    if place == len(heads) - 1 or most == heads[-1]:
        most = None  # nothing larger confirms it, and that the best of all or some fewer are enough is no news
    return told(verdict, heads[index], least, most, cause, shares)


def _rest(heads: Sequence[int], levels: Floats) -> dict[int, float]:
    """Return how many decades more heads still gain."""
    return {h: float(max(levels[i] - levels[i + 1 :].min(initial=levels[i]), 0)) for i, h in enumerate(heads)}


def _ends_in_a_step(heads: Sequence[int], levels: Floats) -> bool:
    """Whether the fall into the largest head count may be the last: a step, or nothing is left to gain."""
    last = (levels[-2] - levels[-1]) / (heads[-1] - heads[-2])
    return bool(levels[-1] <= np.log10(TINY) or last >= STEEP * max(-levels[-2] / heads[-2], 0.0))


def _lucky_above(found: Evidence, index: int) -> int:
    """Return the index of the smallest head count whose failure bad luck with the seeds could still explain.

    Were it enough, all seeds from there up to the answer would have failed by chance. How likely that is, the seeds of
    the answer tell: one succeeds where its log error is nearer to the best from the answer on than to that of fewer.
    """
    level = [np.log10(np.maximum(some - found.floor, 1e-12)) for some in found.trials]
    best = min(float(some.min()) for some in level[index:])
    smallest = index
    for i in reversed(range(index)):
        middle = (min(float(some.min()) for some in level[: i + 1]) + best) / 2
        failing = float((level[index] >= middle).mean())
        if failing ** sum(map(len, level[i:index])) <= OUTSIDE:
            break
        smallest = i
    return min(smallest, _some_succeed(found, index))


def _some_succeed(found: Evidence, index: int) -> int:
    """Return the index of the smallest head count of which some models succeed, though its trials do not.

    In folds one model that is stuck spoils the mean of a trial. A model succeeds where its log error is nearer to that
    of the middle model with the answer's heads than to the largest such one of as few heads or fewer.
    """
    level = [np.log10(np.maximum(some - found.floor, 1e-12)) for some in found.models]
    if all(len(some) == len(trials) for some, trials in zip(found.models, found.trials, strict=True)):
        return index
    enough, worst = float(np.median(level[index])), -np.inf
    for i in range(index):
        worst = max(worst, float(np.median(level[i])))
        if worst > enough and float((level[i] < (worst + enough) / 2).mean()) >= SUCCEED:
            return i
    return index
