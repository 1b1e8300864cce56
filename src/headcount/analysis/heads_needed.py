"""The estimate of the intrinsic dimension D: from which head count on does the error stop falling?

This is the one statement of the rule; it never reads the task's known D. A *place* is one length, hidden size and
target. Its level at h heads is log10 of the best seed's error (for error rates, of the mean over seeds); at no heads it
is 0, the error of a constant.

1. *Gap.* In a place, the gap of h is how far its level lies above the best level of any larger head count. Over places
   it is the mean of the smaller half: even with enough heads training fails here and there, but with too few it cannot
   succeed, so the places where training went well decide. Below `SOLVED_NMSE` a decade counts as `FAINT_WEIGHT` of one:
   such an error is what training leaves, and a lucky seed must not outweigh the fall that solved the task.
2. *Enough.* h is enough if its gap is at most `MAX_GAP` decades plus `MAX_GAP_PER_HEAD` for each head up to the largest
   head count tried, and at most `MAX_GAP_IN_ALL`: more heads than needed are easier to train, and each helps a little.
3. *Sharp.* The fall into h is the smallest gap of fewer heads minus the gap of h. It is sharp if it is at least
   `SHARP_FALL` times the gap of h, at least `MIN_FALL` decades, and at least `MIN_SHARE_OF_LARGEST` of the largest
   such fall between head counts that were tried. An error that falls gently has no such h. If the fall is `CLEAR_FALL`
   times the gap of h, then 2 need not hold; the smallest head count tried, which only "no heads" precede, must have
   such a fall.
4. *Useful.* The mean level at h is below `USEFUL_ERROR` (`USEFUL_FIRST_ERROR` for the smallest head count): while every
   error is large, D may still lie beyond.
5. The estimate is the smallest h that is enough, sharp and useful, and a larger head count must confirm it. Without
   such an h, D was not reached. Then at least k heads are needed if all fewer are clearly not enough: in 95 % of the
   draws all their gaps are larger than 2 allows, and some level is useful. If nothing can be claimed, the error falls
   if the larger half of the head counts is on average `MAX_GAP` decades better than the smaller half in 95 % of the
   draws. It does not fall if the errors are level: no head count is better than a smaller one by more than
   `LEVEL_DECADES`, and in 95 % of the draws none is that much better than the smallest. Anything else is unclear: a
   fall that too few draws show does not prove that all head counts are equally good.
6. *How sure.* All of this is repeated on every draw of the bootstrap over targets and seeds, with each constant drawn
   from 1/`MAX_CONSTANT_FACTOR` to `MAX_CONSTANT_FACTOR` times its value: the constants are choices, and an answer that
   depends on them must not look certain. The interval holds 90 % of the answers; "not reached" counts as the largest.
   Its lower end goes further down as long as bad luck could explain why fewer heads failed: if only a share p of the
   seeds succeeds at the estimate, all n seeds of the next smaller head count fail with chance (1 − p)^n, and that must
   be below 5 %. It goes down to the head count after the largest one that is ruled out, tried or not. With one target
   and one seed the places are drawn again instead. Nothing is claimed if a decisive head count has a single trial, or
   if a planned head count just below the answer has no result.
7. *With a noise floor* (`needed_above_floor`). A user's data (`advise`) are all there is: errors are measured on the
   user's own sequences, levels are those of the excess over a given noise floor, and there may be no step at all. Here
   a head count is enough if its error is within a margin of the best of all. The margin is an excess of
   `MAX_EXCESS_RATIO` times the best one's, or `MARGIN_OF_NOISE` of the floor, or `MIN_MARGIN` of the variance of y,
   whichever is largest, but at most `MAX_MARGIN` of that variance. If there is a step (3), a head count that reaches
   the step is enough too (a fall over head counts that were not tried is shared among them). The lower end a goes down
   as long as bad luck with the seeds could explain that fewer heads failed (6); in folds, as long as some of their
   models succeed, or as one head fewer has had less than `MIN_TRIALS_BEFORE` trials. A single trial has no spread, so
   the interval reaches over its head count, up and down; if neither the answer nor the head count before it has two
   trials, there is no answer. A step is doubtful, and called gentle, if most of the draws deny it, if it depends on a
   single trial, or if the interval begins at one head or at two heads before the answer. If the answer is the largest
   head count tried, its upper end is open, since nothing confirms it. If the error still falls at the largest head
   count allowed, that many heads or more are needed; if the last fall is a step, that count is the answer, with an open
   end. A large error without a step leaves the interval open. Errors no better than a constant's are noise; a gain over
   a constant that may be chance is unclear. What the trials say about failed training and learning by heart is given
   in `Evidence` (`Cause`).

In both cases the interval goes from a to b (`interval_ends`): no head count below a is enough, and b heads, or some
fewer, are. Head counts that cannot be told apart are not thereby shown to be equally good.

On error rates (1 − accuracy) the same rule holds, read in three other ways. `USEFUL_ERROR` and `USEFUL_FIRST_ERROR` are
shares of wrong answers; above them nothing is claimed about heads, and the reasons say why. `SOLVED_NMSE` is replaced
by the error rate of `MIN_WRONG_ANSWERS` wrong answers, below which an error rate is mostly luck. And an even fall is no
transition: none is claimed if half of the places have fewer than `MIN_WRONG_ANSWERS` wrong answers at the estimate,
where any fall ends, or if the fall into the estimate is less than `MIN_STEEPENING` times, per head, the one before.

The slope of log error in log T is reported as a reason but is not part of the rule: with limited training, models with
enough heads do worse on longer sequences too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headcount.analysis.blocks import Floats
from headcount.analysis.bootstrap import TAIL, BlockDraws, interval, known_mean, read_draws
from headcount.analysis.by_heads import head_rows
from headcount.analysis.doubts import (
    fall_shown,
    missing_heads,
    missing_instead_of,
    redraw_places,
    sequences_to_settle,
    smallest_not_ruled_out,
    smallest_possible,
    too_few_trials,
    widen,
)
from headcount.analysis.measures import MIN_WRONG_ANSWERS, UNSOLVED_NMSE, WRONG_ANSWERS_FOR_ZERO
from headcount.analysis.rates import LARGE_ERROR_RATE, even_fall, few_wrong_answers, guess_level
from headcount.analysis.record import Cause, Dimension, HeadsNeeded, Verdict
from headcount.core import generator

MAX_GAP = 0.1
"""Decades that the gap of a head count that is enough may have; …"""
MAX_GAP_PER_HEAD = 0.15
"""… decades more for each head up to the largest head count tried; …"""
MAX_GAP_IN_ALL = 0.8
"""… and never more decades than this."""
SHARP_FALL = 1.5
"""A sharp fall is at least this many times the gap that is left, …"""
MIN_FALL = 0.2
"""… at least this many decades, …"""
MIN_SHARE_OF_LARGEST = 1 / 3
"""… and at least this share of the largest fall."""
CLEAR_FALL = 4.0
"""A fall of this many times the gap that is left is clear: the gap may then be of any size."""
USEFUL_ERROR = LARGE_ERROR_RATE
"""The NMSE or error rate above which nothing is claimed, …"""
USEFUL_FIRST_ERROR = 0.02
"""… and the one of the smallest head count."""
SOLVED_NMSE = 1e-5
"""The NMSE below which a decade counts less, …"""
FAINT_WEIGHT = 0.5
"""… and how much of one it counts."""
MAX_CONSTANT_FACTOR = 1.5
"""The constants of the rule are drawn between 1/this and this times their values."""
MAX_EXCESS_RATIO = 1.4
"""The excess of a head count that is enough, over that of the best, at most; …"""
MARGIN_OF_NOISE = 0.05
"""… or this share of the noise floor, …"""
MIN_MARGIN = 1e-4
"""… or this share of the variance of y: what is below counts as solved. …"""
MAX_MARGIN = 0.05
"""… But never more than this share of the variance of y."""
POOR_ERROR = 0.3
"""If the best error (a share of the variance of y) is larger and there is no step, the interval stays open."""
NOTHING_LEARNED = 0.97
"""A validation error (a share of the variance of y) above this explains hardly anything: it is called noise."""
MAX_GAIN_CHANCE = 0.01
"""A gain over a constant is shown if it would arise by chance with at most this probability."""
MIN_SUCCEEDING = 0.25
"""In folds, the share of a head count's models that must succeed for it not to be ruled out."""
MIN_LAST_STEEPENING = 1.5
"""The fall into the largest head count allowed is a step if it is so many times the mean one before, per head."""
NEGLIGIBLE_EXCESS = 1e-3
"""An excess (as a share of a constant's) that leaves nothing to gain."""
MIN_AGREEMENT = 0.5
"""An answer that a smaller share of the draws gives is called unclear."""


@dataclass(frozen=True)
class Choices:
    """The constants of the rule, one for every draw."""

    slack: Floats
    """A factor on `MAX_GAP`, `MAX_GAP_PER_HEAD` and `MAX_GAP_IN_ALL`."""
    sharp: Floats
    """A factor on `SHARP_FALL`, `CLEAR_FALL` and `MIN_FALL`."""
    useful: Floats
    """A factor on `USEFUL_ERROR` and `USEFUL_FIRST_ERROR`."""

    @classmethod
    def draw(cls, count: int, seed: int) -> Choices:
        """Draw all factors; the first draw stands for the data, and its factors are 1."""
        factors = MAX_CONSTANT_FACTOR ** generator(seed, "constants of the rule").uniform(-1.0, 1.0, (3, count))
        factors[:, 0] = 1.0
        return cls(*factors)


def dimension(drawn: Sequence[BlockDraws], seed: int = 0) -> Dimension:
    """Estimate D from the blocks of one setting: apply the rule to the data and to every draw of them.

    The record holds numbers and verdicts; `core.in_words` adds its sentences.
    """
    heads, units, levels = pool_places(drawn, seed)
    missing = missing_heads(drawn, heads)
    bare = _without_claims(drawn, heads, levels, missing)
    if len(heads) < 2:
        return bare
    choices = Choices.draw(len(levels), seed)
    solved_below = faint_error(drawn)
    found = needed_index(units, levels, heads, choices, solved_below)
    index = int(found[0])
    reading = read_draws(found[:, None] <= np.arange(len(heads)), heads, TAIL)
    low, high = min(reading.low, index), max(len(heads) if reading.high is None else reading.high, index)
    if index == len(heads):
        solved = levels.min(1) <= np.log10(choices.useful * USEFUL_ERROR)
        low = min(low, smallest_possible(gaps(units, solved_below)[:, 1:], allowed(heads, choices), solved))
        estimate, doubted = None, []
    else:
        low = min(low, smallest_not_ruled_out(drawn, heads, index))
        estimate, doubted = heads[index], missing_instead_of(missing, heads, index)
    if too_few_trials(drawn, heads, low if estimate is None else index):
        return bare.model_copy(update={"low": 1, "tentative": estimate, **_fall_and_rest(levels, heads, index)})
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
            "heads_needed": _heads_needed(verdict, heads, index),
            "low": heads[low - 1] + 1 if low > 0 else 1,
            "high": None if high == len(heads) else heads[high],
            "doubted": doubted,
            "refused": refused,
            "even": even,
            "shares": shares,
            "fall_share": fall_share,
            **({} if last is None else _fall_and_rest(levels, heads, last)),
        }
    )


def _without_claims(
    drawn: Sequence[BlockDraws], heads: Sequence[int], levels: Floats, missing: dict[int, str]
) -> Dimension:
    """Return the record with all that was measured and no claim about it."""
    block = drawn[0].block
    guess = guess_level(drawn) if block.rate else UNSOLVED_NMSE
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


def _fall_and_rest(levels: Floats, heads: Sequence[int], index: int) -> dict[str, float | int]:
    """Return the fall into a head count if a smaller one was tried, and the fall beyond it, with intervals."""
    if index == len(heads):
        return {}
    found: dict[str, float | int] = {}
    if index > 0:
        fall = levels[:, index - 1] - levels[:, index]
        low, high = interval(fall)
        found |= {
            "drop_from": heads[index - 1],
            "drop_to": heads[index],
            "drop": _factor(fall[0]),
            "drop_low": _factor(low),
            "drop_high": _factor(high),
        }
    if index < len(heads) - 1:
        rest = np.maximum(levels[:, index] - levels[:, index + 1 :].min(1), 0.0)
        low, high = interval(rest)
        found |= {"further": _factor(rest[0]), "further_low": _factor(low), "further_high": _factor(high)}
    return found


def _factor(decades: float) -> float:
    """Return 10 to the number of decades, limited to what a float can hold."""
    return float(10.0 ** min(decades, 300.0))


def _heads_needed(verdict: str, heads: Sequence[int], index: int) -> int | None:
    """Return the estimate if it is claimed and the head count one below it was tried (or it is 1)."""
    if verdict not in ("transition", "one-head"):
        return None
    before = heads[index - 1] if index > 0 else 0
    return heads[index] if heads[index] == before + 1 else None


def _no_step(drawn: Sequence[BlockDraws], units: Floats, levels: Floats, heads: Sequence[int], index: int) -> bool:
    """Whether a fall of error rates ends without a step: because nothing is left to learn, or because it is even."""
    few = index > 0 and few_wrong_answers(drawn, units[:, index])
    return few or (index > 0 and even_fall(drawn, levels, heads, index) is not None)


def pool_places(drawn: Sequence[BlockDraws], seed: int = 0) -> tuple[list[int], Floats, Floats]:
    """Return the head counts that have a result, the levels of all places, and their means [draw, head count].

    A mean level is that of the head count before plus the mean difference over the places that have both: a missing
    cell must not shift the mean.
    """
    # [draw, place, head count]
    units = redraw_places(drawn, np.concatenate([d.level for d in drawn], 1), seed)
    known = [i for i in range(units.shape[2]) if np.isfinite(units[0, :, i]).any()]
    units = units[:, :, known]
    means = known_mean(units, 1)
    # a draw may lack a head count altogether: it then gets the level of the data
    means = np.where(np.isfinite(means), means, means[:1])
    steps = known_mean(np.diff(units, axis=2), 1)
    steps = np.where(np.isfinite(steps), steps, np.diff(means, axis=1))
    levels = means[:, :1] + np.concatenate([np.zeros((len(means), 1)), np.cumsum(steps, 1)], 1)
    return [drawn[0].block.heads[i] for i in known], units, levels


def faint_error(drawn: Sequence[BlockDraws]) -> float:
    """Return the error below which a decade counts less: `SOLVED_NMSE`, or that of `MIN_WRONG_ANSWERS`."""
    if not drawn[0].block.rate:
        return SOLVED_NMSE
    floors = [error for d in drawn for error in d.block.errors_for_zero]
    # without the number of samples it is unknown which error rates are luck
    return MIN_WRONG_ANSWERS * max(floors) / WRONG_ANSWERS_FOR_ZERO if floors else 1e-300


def gaps(units: Floats, solved: float = SOLVED_NMSE) -> Floats:
    """Return the gaps [draw, head count], from no heads up to the last head count but one.

    `units` are levels [draw, place, head count]. A gap is how far a level lies above the best level of more heads, as
    the mean over the smaller half of the places that have both.
    """
    floor = np.log10(solved)
    units = np.where(units < floor, floor + FAINT_WEIGHT * (units - floor), units)
    padded = np.concatenate([np.zeros((*units.shape[:2], 1)), units], 2)
    ahead = np.minimum.accumulate(np.where(np.isfinite(padded), padded, np.inf)[:, :, ::-1], 2)[:, :, ::-1]
    above = np.where(np.isfinite(ahead[:, :, 1:]), np.maximum(padded[:, :, :-1] - ahead[:, :, 1:], 0.0), np.nan)
    by_size = np.sort(above, 1)  # unknown ones come last
    half = (np.isfinite(by_size).sum(1, keepdims=True) + 1) // 2
    return known_mean(np.where(np.arange(by_size.shape[1])[:, None] < half, by_size, np.nan), 1)


def allowed(heads: Sequence[int], choices: Choices) -> Floats:
    """Return the largest gap that a head count may have and still be enough, [draw, head count but the last]."""
    limits = [min(MAX_GAP + MAX_GAP_PER_HEAD * (heads[-1] - h), MAX_GAP_IN_ALL) for h in heads[:-1]]
    return choices.slack[:, None] * np.array(limits)


def needed_index(
    units: Floats, levels: Floats, heads: Sequence[int], choices: Choices, solved: float = SOLVED_NMSE
) -> NDArray[np.int64]:
    """Return [draw]: the index of the head count that is D, or the number of head counts if none is.

    `units` are levels [draw, place, head count], `levels` their means over places.
    """
    gap, limits = gaps(units, solved), allowed(heads, choices)
    fallen = np.minimum.accumulate(gap, 1)[:, :-1] - gap[:, 1:]
    largest = fallen[:, 1:].max(1, initial=0.0)
    answer = np.full(len(units), len(heads))
    for i in reversed(range(len(heads) - 1)):
        rest, fall = gap[:, i + 1], fallen[:, i]
        clear = fall >= choices.sharp * CLEAR_FALL * rest
        enough = rest <= limits[:, i]
        sharp = clear if i == 0 else clear | (enough & (fall >= choices.sharp * SHARP_FALL * rest))
        large = fall >= np.maximum(choices.sharp * MIN_FALL, MIN_SHARE_OF_LARGEST * largest)
        useful = levels[:, i] <= np.log10(choices.useful * (USEFUL_FIRST_ERROR if i == 0 else USEFUL_ERROR))
        answer = np.where(sharp & large & useful, i, answer)
    return answer


def _verdict(
    estimate: int | None, heads: Sequence[int], shares: dict[int, float], low: int, levels: Floats
) -> tuple[Verdict, float | None]:
    """Return the verdict and, if it depends on whether the error falls at all, the share of the draws that agree."""
    fall, share = fall_shown(levels, MAX_GAP) if estimate is None and low == 0 else ("falls", None)
    if shares.get(estimate or 0, 0.0) + (shares.get(heads[0], 0.0) if fall == "level" else 0.0) < MIN_AGREEMENT:
        return "unclear", None
    if estimate is not None:
        return ("one-head" if estimate == heads[0] else "transition"), None
    if fall == "falls":
        return "not-reached", None
    return ("no-fall" if fall == "level" else "unclear"), share


def margins(errors: Floats, floor: float) -> Floats:
    """Return [draw]: how much larger than the best error that of a head count that is enough may be."""
    best = errors.min(1)
    floors = floor * best / best[0]  # the floor moves with the drawn samples
    return np.clip(
        np.maximum((MAX_EXCESS_RATIO - 1.0) * (best - floors), MARGIN_OF_NOISE * floors), MIN_MARGIN, MAX_MARGIN
    )


def are_enough(
    heads: Sequence[int], levels: Floats, errors: Floats, floor: float, heads_max: int, seed: int
) -> tuple[NDArray[np.bool_], bool]:
    """Return which head counts are enough, [draw, head count], and whether the data themselves show a step.

    None is enough in a draw whose error still falls at `heads_max`, where the search must end.
    """
    choices = Choices.draw(len(levels), seed)
    # a fall over untried head counts is shared among them: it must not look like the step of a single head
    every = np.arange(heads[0], heads[-1] + 1)
    interpolated = levels @ np.stack([np.interp(every, heads, row) for row in np.eye(len(heads))])
    # every level counts as useful here: the caller checks how large the errors are
    flat = np.full_like(interpolated, -99.0)
    place = needed_index(interpolated[:, None, :], flat, every.tolist(), choices)
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
    """The trials of one curve with a noise floor, as far as the rule reads them."""

    heads: list[int]
    trials: list[Floats]
    """The errors of all decisive trials, by head count."""
    models: list[Floats]
    """The errors of their models: in folds a trial is the mean over several."""
    errors: Floats
    """[draw, head count]: the error that counts; row 0 is the data."""
    levels: Floats
    """[draw, head count]: log10 of the excess over the floor, in units of a constant's."""
    floor: float
    spread: float
    """How much equally good trials differ."""
    gain_chance: float
    """The chance that the best trial's gain over a constant is chance."""
    sequences: int
    """The number of sequences that validate."""
    cause: Cause
    """Why the best error is large, if it is."""
    unlearned: Cause
    """The cause if nothing was learned: learning by heart, or no learning at all."""
    compared: bool = True
    """Whether one head and some larger head count each have a trial that was trained to the end."""

    @property
    def best(self) -> float:
        """The smallest error of all trials."""
        return min(float(some.min()) for some in self.trials)


def needed_above_floor(found: Evidence, *, heads_max: int, confidence: float = 0.95, seed: int = 0) -> HeadsNeeded:
    """Apply the rule to errors with a noise floor; `heads_max` is the largest head count allowed."""
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
        rest=_decades_left(heads, levels[0]),
    )

    def with_verdict(
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
                "sequences": None if place is None else sequences_to_settle(errors, limits, place, found.sequences),
                "by_step": place is not None and bool(errors[0, place] > limits[0]),
            }
        )

    if not found.compared or max(counts) < 2:
        return bare
    if found.best > NOTHING_LEARNED:
        return bare.model_copy(update={"verdict": "noise", "cause": found.unlearned})
    if found.gain_chance > MAX_GAIN_CHANCE:  # a gain that is not shown may still exist
        return bare.model_copy(update={"verdict": "unclear", "cause": found.unlearned})
    good, sharp = are_enough(heads, levels, errors, found.floor, heads_max, seed)
    reading = read_draws(good, heads, (1.0 - confidence) / 2)
    index, shares = int(reading.answer[0]), reading.shares
    place = min(index, len(heads) - 1)  # it is never certain that more heads are needed than were tried
    end = max(len(heads) if reading.high is None else reading.high, index)
    low, high = widen(counts, place, min(reading.low, place, _smallest_not_ruled_out(found, place)), end)
    least = heads[low - 1] + 1 if low > 0 else 1
    most = heads[high] if high < len(heads) else None
    decisive = [counts[i] for i in (max(place - 1, 0), place)]
    if max(decisive) < 2:
        return bare.model_copy(update={"low": least})
    verdict: Verdict = "one-head" if index == 0 else "transition" if sharp else "gentle"
    verdict, cause = ("not-reached" if index == len(heads) else verdict), found.cause
    agreed = shares.get(heads[place], 0.0) >= MIN_AGREEMENT and min(decisive) > 1
    doubtful = verdict == "transition" and not (agreed and least >= max(2, heads[place] - 1))
    doubtful = doubtful or (verdict == "one-head" and most != 1)
    failures = ("lottery",) if doubtful or verdict == "one-head" else ("lottery", "scatter", "patience")
    unsure = doubtful or (cause == "lottery" and (least, most) != (heads[place], heads[place]))
    if cause in failures and (verdict != "transition" or unsure):
        return with_verdict("failed", heads[place], least, None, cause, shares)
    if verdict == "not-reached":
        if _ends_in_a_step(heads, levels[0]):
            shares[heads[-1]] = shares.get(heads[-1], 0.0) + shares.pop(0, 0.0)
            return with_verdict(verdict, heads[-1], least, None, cause, shares)
        return with_verdict(verdict, None, least, None, cause, shares)
    cause = cause if cause == "by-heart" else ""
    if doubtful:
        verdict, cause = "gentle", cause or "doubtful"
    elif verdict == "gentle" and found.best > POOR_ERROR:
        most = None
    if place == len(heads) - 1 or most == heads[-1]:
        most = None  # nothing larger confirms it, and the best of all is enough by definition
    return with_verdict(verdict, heads[index], least, most, cause, shares)


def _decades_left(heads: Sequence[int], levels: Floats) -> dict[int, float]:
    """Return, by head count, how many decades more heads still gain."""
    return {h: float(max(levels[i] - levels[i + 1 :].min(initial=levels[i]), 0)) for i, h in enumerate(heads)}


def _ends_in_a_step(heads: Sequence[int], levels: Floats) -> bool:
    """Whether the fall into the largest head count may be the last, because it is a step or leaves nothing to gain."""
    last = (levels[-2] - levels[-1]) / (heads[-1] - heads[-2])
    return bool(
        levels[-1] <= np.log10(NEGLIGIBLE_EXCESS) or last >= MIN_LAST_STEEPENING * max(-levels[-2] / heads[-2], 0.0)
    )


def _smallest_not_ruled_out(found: Evidence, index: int) -> int:
    """Return the index of the smallest head count whose failure bad luck with the seeds could still explain.

    If it were enough, all seeds from there up to the answer would have failed by chance. The seeds of the answer show
    how likely that is: a seed succeeds if its log error is closer to the best from the answer on than to the best of
    fewer heads.
    """
    level = [np.log10(np.maximum(some - found.floor, 1e-12)) for some in found.trials]
    best = min(float(some.min()) for some in level[index:])
    smallest = index
    for i in reversed(range(index)):
        middle = (min(float(some.min()) for some in level[: i + 1]) + best) / 2
        failing = float((level[index] >= middle).mean())
        if failing ** sum(map(len, level[i:index])) <= TAIL:
            break
        smallest = i
    return min(smallest, _smallest_that_succeeds(found, index))


def _smallest_that_succeeds(found: Evidence, index: int) -> int:
    """Return the index of the smallest head count whose trials fail although some of its models succeed.

    In folds one model that is stuck spoils the mean of a trial. A model succeeds if its log error is closer to the
    median of the answer's models than to the largest such median up to its own head count.
    """
    level = [np.log10(np.maximum(some - found.floor, 1e-12)) for some in found.models]
    if all(len(some) == len(trials) for some, trials in zip(found.models, found.trials, strict=True)):
        return index
    enough, worst = float(np.median(level[index])), -np.inf
    for i in range(index):
        worst = max(worst, float(np.median(level[i])))
        if worst > enough and float((level[i] < (worst + enough) / 2).mean()) >= MIN_SUCCEEDING:
            return i
    return index
