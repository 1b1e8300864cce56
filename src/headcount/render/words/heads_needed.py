"""The answer of the one rule in words: one sentence, its reasons with their numbers, and the comparison with D."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from headcount.analysis import (
    LARGE_ERROR_RATE,
    LEVEL_DECADES,
    MIN_WRONG_ANSWERS,
    Dimension,
    Grounds,
    Reason,
    fits,
    largest_fall,
)
from headcount.render.words.errors import terms_of
from headcount.render.words.numbers import error_text, heads_text, percent, times_text


def answer_in_words(found: Dimension, grounds: Grounds) -> Dimension:
    """Return the record of an answer with its sentence, its reasons and the comparison with the known D."""
    return found.model_copy(
        update={
            "sentence": sentence(found),
            "reasons": reasons(found, grounds),
            "comparison": comparison(found, found.intrinsic),
        }
    )


def sentence(found: Dimension) -> str:
    """Return what the run shows about the number of heads, in one sentence."""
    if len(found.errors) < 2:
        return f"Nothing can be said: {_results(found)}, so there is nothing to compare."
    if found.verdict == "too-few":
        return f"Too few trials to tell: {_tentative(found)}, but a single trial may be a lucky or unlucky start."
    if found.doubted:
        why = missing_text(found.missing, found.doubted)
        return f"Unclear: {_tentative(found)}, but {why}, so whether fewer than {found.tentative} suffice is not known."
    if found.verdict == "no-fall":
        return f"No number of heads stands out: {_flat(found)}."
    if found.fall_share is not None:
        return f"Unclear: {_unsure_fall(found)}: more seeds, targets or training are needed."
    if found.refused is not None:
        return refused_text(found, found.refused)
    if found.verdict == "unclear":
        best = f"no head count up to {found.head_counts[-1]} seems enough"
        if found.estimate is not None:
            fit = "fits" if found.estimate == 1 else "fit"
            best = f"{heads_text(found.estimate)} {fit} best ({_interval(found)})"
        return f"Unclear: {best}, but {_other(found)}: more seeds, targets or training are needed."
    if found.estimate is None:
        return (found.rate and turning_text(found)) or _not_reached(found)
    most, noun, sure = found.head_counts[-1], terms_of(found).noun, f"{terms_of(found).purpose} ({_interval(found)})"
    if found.verdict == "one-head":
        least = found.head_counts[0]
        enough = "one head suffices" if least == 1 else f"{least} heads suffice (fewer were not tried)"
        return f"{_begin(found, enough)}{sure}: up to {most} heads {_improve(found, f'the {noun}')}."
    return (
        f"{_begin(found, f'{_needed(found)} are needed')}{sure}: with {found.drop_from} the {noun} is "
        f"{times_text(found.drop or 1.0)} times larger, and up to {most} heads {_improve(found, 'it')}."
    )


def reasons(found: Dimension, grounds: Grounds) -> list[Reason]:
    """Return the reasons of the answer in words."""
    texts = [_level_text(found, grounds)] if found.errors else []
    if found.pointed is not None and found.pointed > found.head_counts[0]:
        texts.append(_fall_text(found))
    if found.pointed is None and found.refused is None and len(found.errors) > 1:
        texts.append(_open_text(found))
        texts += large_text(found)
    if found.pointed is not None:
        texts.append(_rest_text(found))
        texts += [_slope_text(*slope) for slope in grounds.slopes]
    if found.shares:
        over = "lengths and sizes (there is one target and one seed)" if grounds.single else "targets and seeds"
        texts.append(f"Drawn again over {over}, with the rule's constants varied too: {_share_text(found)}.")
    return [Reason(text=text) for text in [*texts, *missing_texts(found.missing, grounds)]]


def comparison(found: Dimension, intrinsic: int | None) -> str:
    """Return what theory predicts for the task, and whether the answer fits."""
    if intrinsic is None:
        return "Theory predicts no number of heads for this task, so there is nothing to compare with."
    source = "1 look-up" if intrinsic == 1 else f"{intrinsic} independent look-ups"
    built = f"The task was built from {source}, so the paper expects {intrinsic}"
    agrees = fits(found, intrinsic)
    if agrees is None:
        return f"{built}; this run neither confirms nor contradicts that."
    if not agrees:
        return f"{built}; this run does not show that."
    if found.estimate == intrinsic:
        return f"{built}."
    return f"{built}, which fits." if found.estimate is None else f"{built}, which the interval holds."


def _tentative(found: Dimension) -> str:
    """Say what the errors look like, without claiming it."""
    if found.pointed is None:
        return "no number of heads stands out"
    if found.drop is None:
        return f"{heads_text(found.pointed)} and more do about equally well"
    noun = terms_of(found).noun
    article = "an" if noun[0] in "aeiou" else "a"
    smaller = f"{times_text(found.drop)} times smaller than {heads_text(found.drop_from or 0)}"
    return f"{heads_text(found.pointed)} have {article} {noun} {smaller}"


def _begin(found: Dimension, claim: str) -> str:
    """Return a claim as the beginning of a sentence, with "probably" if the interval holds other head counts."""
    return _capitalised(f"probably {claim}" if found.hedged else claim)


def _capitalised(text: str) -> str:
    return text[0].upper() + text[1:]


def _needed(found: Dimension) -> str:
    """Write how many heads are needed, including the untried head counts below the estimate."""
    assert found.estimate is not None
    least = (found.drop_from or 0) + 1
    return heads_text(found.estimate) if found.estimate == least else f"{least} to {heads_text(found.estimate)}"


def _not_reached(found: Dimension) -> str:
    """Say that the fall of the error has no end, or none that is clear."""
    hint = "but no step is clear enough to say how many are needed"
    if (found.low or 0) > found.head_counts[0]:
        hint = f"at least {found.low} are needed"
    fall = f"the fall of the {terms_of(found).noun} has no end among the head counts tried"
    return f"Not reached by h = {found.head_counts[-1]}: {fall}, {hint}."


def _unsure_fall(found: Dimension) -> str:
    """Say what the data show, a fall or level errors, and how few of the draws show it too."""
    assert found.fall_share is not None
    before, after, decades = largest_fall(np.log10([error for _, error in found.errors]))
    if decades <= LEVEL_DECADES:
        fall = f"a fall of more than {10**LEVEL_DECADES:.0f} times"
        return f"{_span(found)}, but {percent(1.0 - found.fall_share)} of the draws show {fall}"
    few, many = (found.head_counts[i] for i in (before, after))
    smaller = (
        f"with {heads_text(many)} the {terms_of(found).noun} is {times_text(10**decades)} times smaller than with {few}"
    )
    agreed = math.floor(100 * found.fall_share)  # a share just below 95 % must not be written as 95 %
    draws = f"only {agreed} % of the draws show" if agreed else "hardly any of the draws shows"
    return f"{smaller}, but {draws} that more heads do better on average"


def _span(found: Dimension) -> str:
    """Say between which errors all head counts lie if there is no fall; a rise is not called level."""
    errors = [error for _, error in found.errors]
    low, high = error_text(min(errors)), error_text(max(errors))
    which = f"from {found.head_counts[0]} to {heads_text(found.head_counts[-1])} the {terms_of(found).noun}"
    if max(errors) > 10**LEVEL_DECADES * min(errors):
        return f"{which} is {low} to {high}, without a fall of more than {10**LEVEL_DECADES:.0f} times"
    return f"{which} stays at {low if low == high else f'{low} to {high}'}"


def _flat(found: Dimension) -> str:
    """Say how well all head counts do if they do about equally well, and what that means."""
    errors = [error for _, error in found.errors]
    least, most = found.head_counts[0], found.head_counts[-1]
    span = _span(found)
    if found.unlearned is not None and min(errors) >= found.unlearned:
        return f"{span}; the models did not learn the task"
    if found.rate:
        return f"{span}; that does not show whether heads, data or training limit it"
    few = "one head" if least == 1 else heads_text(least)
    return f"{span}; either {few} can do it already or more than {most} are needed"


def _further(found: Dimension) -> str:
    return f"{times_text(found.further or 1.0)} times"


def _improve(found: Dimension, what: str) -> str:
    """Say what more heads gain; a factor that rounds to 1.0 is nothing."""
    further = _further(found)
    return f"do not improve {what}" if further == "1.0 times" else f"improve {what} by {further} at most"


def _interval(found: Dimension) -> str:
    if found.high is None:
        return f"90 % interval {found.low} or more"
    return f"90 % interval {found.low}" + ("" if found.high == found.low else f" to {found.high}")


def _results(found: Dimension) -> str:
    if not found.errors:
        return "no trial has a result"
    ((heads, error),) = found.errors
    return f"only one head count, {heads}, has a result ({terms_of(found).noun} {error_text(error)})"


def _name(heads: int) -> str:
    return "not reached" if heads == 0 else f"h = {heads}"


def _share_text(found: Dimension) -> str:
    ordered = sorted(found.shares.items(), key=lambda item: -item[1])
    return ", ".join(f"{_name(h)} in {100 * share:.0f} %" for h, share in ordered if share >= 0.005)


def _other(found: Dimension) -> str:
    share = found.shares.get(found.estimate or 0, 0.0)
    return f"only {100 * share:.0f} % of the draws say so ({_share_text(found)})"


def _level_text(found: Dimension, grounds: Grounds) -> str:
    places = grounds.places
    errors = ", ".join(f"{error_text(error)} with {heads_text(heads)}" for heads, error in found.errors)
    over = "" if places == 1 else f" (geometric mean over {places} combinations of target and size)"
    whose = (
        f"The {terms_of(found).noun}, as {terms_of(found).seeds},"
        if found.rate
        else f"The best seed's {terms_of(found).noun}"
    )
    return f"{whose} is {errors}{over}."


def _fall_text(found: Dimension) -> str:
    return (
        f"From {found.drop_from} to {heads_text(found.drop_to or 0)} it falls {times_text(found.drop or 1.0)} times "
        f"(90 % interval {times_text(found.drop_low or 1.0)} to {times_text(found.drop_high or 1.0)})."
    )


def _rest_text(found: Dimension) -> str:
    return (
        f"Beyond {heads_text(found.pointed or 0)} it falls {_further(found)} at most "
        f"(90 % interval {times_text(found.further_low or 1.0)} to {times_text(found.further_high or 1.0)})."
    )


def _open_text(found: Dimension) -> str:
    before, last = found.head_counts[-2:]
    ratio = found.error(before) / found.error(last)
    change = f"{times_text(max(ratio, 1 / ratio))} times {'smaller' if ratio >= 1 else 'larger'}"
    larger = [h for h in found.missing if h > last]
    more = missing_text(found.missing, larger) if larger else f"more than {last} were not tried"
    end = "" if found.fall_share is not None else ": no end of the fall is confirmed"
    return f"With {last} heads the {terms_of(found).noun} is {change} than with {before}, and {more}{end}."


def _slope_text(heads: int, slope: float, low: float, high: float) -> str:
    """Say how the error depends on the length at a head count."""
    direction = "harder" if low > 0 else "easier" if high < 0 else ""
    effect = f"longer sequences are {direction}" if direction else "no clear effect of T"
    change = f"log error changes by {slope:.2f} per decade of T ({low:.2f} to {high:.2f})"
    return f"With {heads_text(heads)} {change}: {effect}."


def missing_text(missing: dict[int, str], heads: Sequence[int]) -> str:
    """Say why some head counts have no result: "the trials with 1 and 2 heads have no result yet"."""
    states = {"diverged": "all diverged", "failed": "failed", "pending": "have no result yet"}
    texts: list[str] = []
    for why, state in states.items():
        some = [h for h in heads if missing[h] == why]
        if some:
            listed = " and ".join(filter(None, [", ".join(map(str, some[:-1])), heads_text(some[-1])]))
            texts.append(f"the trials with {listed} {state}")
    return " and ".join(texts)


def missing_texts(missing: dict[int, str], grounds: Grounds) -> list[str]:
    """Count the trials without a result, so that nobody takes them for finished."""
    texts: list[str] = []
    if grounds.diverged:
        texts.append(f"{grounds.diverged} of {grounds.finished} finished trials diverged and have no error.")
    if count := sum(grounds.left_out.values()):
        states = ", ".join(f"{number} {state}" for state, number in sorted(grounds.left_out.items()) if number)
        texts.append(f"{count} more {'trial has' if count == 1 else 'trials have'} no result: {states}.")
    if missing:
        texts.append(f"{_capitalised(missing_text(missing, list(missing)))}.")
    return texts


def turning_text(found: Dimension) -> str:
    """Say that an error rate is smallest before the last head count: its fall ends there, but without an answer."""
    heads, least = min(found.errors, key=lambda pair: pair[1])
    most = found.head_counts[-1]
    if heads == most or found.verdict == "no-fall":
        return ""
    why = "no step is sharp enough to say how many are needed"
    if least > LARGE_ERROR_RATE:
        why = f"{_percent(least)} wrong answers are too many to say that it is the heads that limit it"
    elif (found.low or 0) > found.head_counts[0]:
        why = f"no step is sharp enough to say more than that at least {found.low} are needed"
    return (
        f"No transition was seen: the {terms_of(found).noun} is smallest with {heads_text(heads)} "
        f"({error_text(least)}) and no smaller up to {most}, but {why}."
    )


def refused_text(found: Dimension, heads: int) -> str:
    """Say why the end of a fall of error rates is not called a transition."""
    few = f"where fewer than {MIN_WRONG_ANSWERS} answers are wrong"
    why = f"{few}, too few to tell a step from a fall that has nothing left to learn"
    if found.even is not None:
        rates = f"{10 ** found.even[0]:.2f} times a head, before it {10 ** found.even[1]:.2f} times"
        why = f"but the last step is not much steeper ({rates}): the fall is even, and no number of heads stands out"
    falls = f"the {terms_of(found).noun} falls up to {heads_text(heads)} ({error_text(found.error(heads))})"
    return f"Unclear: {falls}, {why}. No transition is claimed."


def large_text(found: Dimension) -> list[str]:
    """Say that every error rate is too large for any answer, if that is so."""
    least = min(error for _, error in found.errors)
    if not found.rate or least <= LARGE_ERROR_RATE:
        return []
    why = "since data, training or size may be what limits it"
    limit = f"above {_percent(LARGE_ERROR_RATE)} wrong answers no number of heads is claimed, {why}"
    return [f"The smallest {terms_of(found).noun} is {error_text(least)}; {limit}."]


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"
