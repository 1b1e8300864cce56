"""The estimate of D in words: one sentence, and the reasons with their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from headcount.analysis.bootstrap import Drawn, grouped, interval
from headcount.analysis.dimension_doubts import lost_text, lost_texts, single
from headcount.analysis.measures import Words, words
from headcount.analysis.rate_words import guess_level, large_text, needed_text, refused_text, turned
from headcount.analysis.record import Reason
from headcount.analysis.rows import Floats
from headcount.analysis.slopes import comparable, length_slope
from headcount.analysis.wording import UNSOLVED, error_text, heads_text, times_text


@dataclass(frozen=True)
class Evidence:
    """What the rule found, and what it was found on."""

    verdict: str
    estimate: int | None
    """The answer, or where the verdict is too-few what it would be."""
    low: int | None
    high: int | None
    heads: list[int]
    """The head counts that have a result."""
    levels: Floats
    """[draw, head count]: log10 error, pooled."""
    drawn: Sequence[Drawn]
    missing: dict[int, str] = field(default_factory=dict[int, str])
    """The planned head counts that have no result, and why: diverged, failed or pending."""
    doubted: list[int] = field(default_factory=list[int])
    """Those of them that might be D in place of the estimate."""
    shares: dict[int, float] = field(default_factory=dict[int, float])
    refused: int | None = None
    """The head count at which error rates stop falling, where that is no step: nothing is claimed of it."""

    @property
    def words(self) -> Words:
        """How the errors are called."""
        block = self.drawn[0].block
        return words(block.panels[0][1].measure, block.on)

    @property
    def rate(self) -> bool:
        """Whether they are error rates."""
        return self.drawn[0].block.rate


def sentence(found: Evidence) -> str:
    """Say in one sentence what the run shows about D."""
    if len(found.heads) < 2:
        return f"Nothing can be said: {_results(found)}, so there is nothing to compare."
    if found.verdict == "too-few":
        return f"Too few trials to tell: {_hint(found)}, but a single trial may be a lucky or unlucky start."
    if found.doubted:
        why = lost_text(found.missing, found.doubted)
        return f"Unclear: {_hint(found)}, but {why}, so whether fewer than {found.estimate} suffice is not known."
    most = found.heads[-1]
    if found.verdict == "no-fall":
        return f"No number of heads stands out: {_flat(found)}."
    if found.refused is not None:
        return refused_text(found, found.refused)
    if found.estimate is None and found.rate and (said := turned(found)):
        return said
    noun = found.words.noun
    if found.estimate is None:
        doubt = f", though {_other(found)}" if found.verdict == "unclear" else ""
        if (found.low or 0) > found.heads[0]:
            hint = f"at least {found.low} are needed"
        else:
            hint = "but no step is clear enough to say how many are needed"
        return (
            f"Not reached by h = {most}: the fall of the {noun} has no end among the head counts tried, {hint}{doubt}."
        )
    if found.verdict == "unclear":
        return (
            f"Unclear: {heads_text(found.estimate)} fit best ({_interval(found)}), but {_other(found)}: "
            "more seeds, targets or training are needed."
        )
    purpose = found.words.purpose
    if found.verdict == "one-head":
        least = found.heads[0]
        enough = "One head suffices" if least == 1 else f"{least} heads suffice (fewer were not tried)"
        more = f"up to {most} heads improve the {noun} by {_further(found)} at most"
        return f"{enough}{purpose} ({_interval(found)}): {more}."
    count = needed_text(found, _before(found))
    return (
        f"{count} are needed{purpose} ({_interval(found)}): with {_before(found)} the {noun} is "
        f"{times_text(_ratio(found, _before(found), found.estimate))} times larger, and up to {most} heads improve it "
        f"by {_further(found)} at most."
    )


def reasons(found: Evidence) -> list[Reason]:
    """Return the grounds of the answer."""
    texts = [_level_text(found)] if found.heads else []
    if found.estimate is not None and found.estimate > found.heads[0]:
        texts.append(_fall_text(found))
    if found.estimate is None and found.refused is None and len(found.heads) > 1:
        texts.append(_open_text(found))
        texts += large_text(found)
    if found.estimate is not None:
        texts.append(_rest_text(found))
        texts += _slope_texts(found)
    if found.shares:
        over = "lengths and sizes (there is one target and one seed)" if single(found.drawn) else "targets and seeds"
        texts.append(f"Drawn again over {over}, with the rule's constants varied too: {_share_text(found)}.")
    return [Reason(text=text) for text in [*texts, *lost_texts(found.drawn, found.missing)]]


def _hint(found: Evidence) -> str:
    """What the errors look like, without claiming it."""
    if found.estimate is None:
        return "no number of heads stands out"
    if found.estimate == found.heads[0]:
        return f"{heads_text(found.estimate)} and more do about equally well"
    few = _before(found)
    smaller = times_text(_ratio(found, few, found.estimate))
    return f"{heads_text(found.estimate)} have {_article(found)} {smaller} times smaller than {heads_text(few)}"


def _flat(found: Evidence) -> str:
    """All head counts do about equally well: say how well, for that decides what it means."""
    errors = 10 ** found.levels[0]
    low, high = error_text(float(errors.min())), error_text(float(errors.max()))
    least, most = found.heads[0], found.heads[-1]
    range_ = low if low == high else f"{low} to {high}"
    span = f"from {least} to {heads_text(most)} the {found.words.noun} stays at {range_}"
    if errors.min() >= (guess_level(found.drawn) if found.rate else UNSOLVED):
        return f"{span}; the models did not learn the task"
    if found.rate:
        return f"{span}; that does not show whether heads, data or training limit it"
    few = "one head" if least == 1 else heads_text(least)
    return f"{span}; either {few} can do it already or more than {most} are needed"


def _article(found: Evidence) -> str:
    noun = found.words.noun
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def _index(found: Evidence, heads: int) -> int:
    return found.heads.index(heads)


def _before(found: Evidence) -> int:
    """The next smaller head count that was tried."""
    assert found.estimate is not None
    return found.heads[_index(found, found.estimate) - 1]


def _ratio(found: Evidence, more: int, less: int) -> float:
    """How many times larger the error is with `more` than with `less`."""
    return float(10 ** (found.levels[0, _index(found, more)] - found.levels[0, _index(found, less)]))


def _rest(found: Evidence) -> Floats:
    """By how many decades larger head counts improve on the estimate, for every draw."""
    assert found.estimate is not None
    i = _index(found, found.estimate)
    return np.maximum(found.levels[:, i] - found.levels[:, i + 1 :].min(1), 0.0)


def _further(found: Evidence) -> str:
    return f"{times_text(float(10 ** _rest(found)[0]))} times"


def _interval(found: Evidence) -> str:
    if found.high is None:
        return f"90 % interval {found.low} or more"
    return f"90 % interval {found.low}" + ("" if found.high == found.low else f" to {found.high}")


def _results(found: Evidence) -> str:
    if not found.heads:
        return "no trial has a result"
    error = f"{found.words.noun} {error_text(float(10 ** found.levels[0, 0]))}"
    return f"only one head count, {found.heads[0]}, has a result ({error})"


def _name(heads: int) -> str:
    return "not reached" if heads == 0 else f"h = {heads}"


def _share_text(found: Evidence) -> str:
    ordered = sorted(found.shares.items(), key=lambda item: -item[1])
    return ", ".join(f"{_name(h)} in {100 * share:.0f} %" for h, share in ordered if share >= 0.005)


def _other(found: Evidence) -> str:
    share = found.shares.get(found.estimate or 0, 0.0)
    return f"only {100 * share:.0f} % of the draws say so ({_share_text(found)})"


def _level_text(found: Evidence) -> str:
    places = sum(np.isfinite(d.level[0]).any(1).sum() for d in found.drawn)
    errors = ", ".join(
        f"{error_text(float(10**level))} with {heads_text(h)}"
        for h, level in zip(found.heads, found.levels[0], strict=True)
    )
    over = "" if places == 1 else f" (geometric mean over {places} combinations of target and size)"
    whose = f"The {found.words.noun}, as {found.words.seeds}," if found.rate else f"The best seed's {found.words.noun}"
    return f"{whose} is {errors}{over}."


def _fall_text(found: Evidence) -> str:
    assert found.estimate is not None
    few, i = _before(found), _index(found, found.estimate)
    low, high = interval(found.levels[:, i - 1] - found.levels[:, i])
    return (
        f"From {few} to {heads_text(found.estimate)} it falls {times_text(_ratio(found, few, found.estimate))} times "
        f"(90 % interval {times_text(10**low)} to {times_text(10**high)})."
    )


def _rest_text(found: Evidence) -> str:
    low, high = interval(_rest(found))
    return (
        f"Beyond {heads_text(found.estimate or 0)} it falls {_further(found)} at most "
        f"(90 % interval {times_text(10**low)} to {times_text(10**high)})."
    )


def _open_text(found: Evidence) -> str:
    last, before = found.heads[-1], found.heads[-2]
    ratio = _ratio(found, before, last)
    change = f"{times_text(max(ratio, 1 / ratio))} times {'smaller' if ratio >= 1 else 'larger'}"
    larger = [h for h in found.missing if h > last]
    more = lost_text(found.missing, larger) if larger else f"more than {last} were not tried"
    end = "" if found.verdict == "no-fall" else ": no end of the fall is confirmed"
    return f"With {last} heads the {found.words.noun} is {change} than with {before}, and {more}{end}."


def _slope_texts(found: Evidence) -> list[str]:
    """Say how the error goes with the length just below the estimate and at it, where several lengths were tried."""
    assert found.estimate is not None
    counts = found.drawn[0].block.heads
    texts: list[str] = []
    for heads in [h for h in found.heads if h <= found.estimate][-2:]:
        i = counts.index(heads)
        slopes = [
            s
            for some in grouped(found.drawn, "hidden").values()
            if (s := length_slope(comparable(some, i), i)) is not None
        ]
        if not slopes:
            continue
        mean = np.mean(slopes, axis=0)
        low, high = interval(mean)
        effect = "harder" if low > 0 else "easier" if high < 0 else ""
        said = f"longer sequences are {effect}" if effect else "no clear effect of T"
        change = f"log error changes by {mean[0]:.2f} per decade of T ({low:.2f} to {high:.2f})"
        texts.append(f"With {heads_text(heads)} {change}: {said}.")
    return texts
