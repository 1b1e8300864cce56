"""The result in words: sentences that are true of the data and need no knowledge of the paper."""

from __future__ import annotations

import math

from headcount.analysis.result import Estimate

UNSOLVED = 0.5
"""With an NMSE above this at every head count the models learned next to nothing."""


def error_text(error: float) -> str:
    """Write an error with two digits: 0.012 as it is, smaller ones as 6.0e-5."""
    if error == 0:
        return "0"
    exponent = math.floor(math.log10(float(f"{error:.1e}")))
    if exponent < -3:
        return f"{float(f'{error:.1e}') / 10.0**exponent:.1f}e{exponent}"
    return f"{error:.{max(1 - exponent, 0)}f}"


def times_text(factor: float) -> str:
    """Write a ratio with two digits: 6.2, 140, 12,000; beyond a million the number says nothing more."""
    if factor >= 1e6:
        return "more than a million"
    if factor < 0.1:
        return f"{factor:.1g}"
    if factor < 9.95:
        return f"{factor:.1f}"
    return f"{float(f'{factor:.1e}'):,.0f}"


def percent(share: float) -> str:
    """Write a share in per cent; only a whole one is 100 %, and only nothing is 0 %."""
    text = f"{100 * share:.0f}"
    if (text == "100" and share < 1) or (text == "0" and share > 0):
        text = f"{100 * share:.7g}" if share > 0.5 else f"{100 * share:.1g}"
    return f"{text} %"


def heads_text(heads: int) -> str:
    """Write a head count: 1 head, 2 heads."""
    return "1 head" if heads == 1 else f"{heads} heads"


def sentence(found: Estimate) -> str:
    """Say in one sentence what the trials show about the number of heads."""
    if len(found.errors) < 2 or found.drop is None:
        return _nothing(found)
    match found.verdict:
        case "transition":
            return f"{found.enough} heads are needed; with {_fewer(found)}."
        case "bracketed":
            return f"{_range(found)} heads are needed ({_untried(found)}); with {_fewer(found)}."
        case "not-reached":
            return f"At least {found.at_least} heads are needed: with {_fewer(found)}, and {_open_end(found)}."
        case "no-transition":
            return _flat(found)
        case "gradual":
            (least, first), (most, last) = found.errors[0], found.errors[-1]
            return (
                f"No number of heads stands out: from {least} to {heads_text(most)} the best error goes from "
                f"{error_text(first)} to {error_text(last)} without a clear jump."
            )
        case "unclear":
            return f"Unclear: {_doubt(found)}."
        case "too-few":
            return (
                f"Too few trials to tell: {_hint(found)}, but a single seed cannot tell a real "
                "difference from a lucky or unlucky start."
            )


def fits(found: Estimate, intrinsic: int | None) -> bool | None:
    """Whether the measurement fits the known D; None where there is nothing to compare."""
    if intrinsic is None or not found.errors:
        return None
    if found.at_least is not None:
        return found.at_least <= intrinsic and (found.enough is None or intrinsic <= found.enough)
    if found.verdict == "no-transition":
        (least, first), (most, _) = found.errors[0], found.errors[-1]
        # a D above what was tried would look just like this, and models that learned nothing show nothing
        blind = found.enough is None and (intrinsic > most or first >= UNSOLVED)
        return None if blind else intrinsic <= least
    return None


def comparison(found: Estimate, intrinsic: int | None, agrees: bool | None) -> str:
    """Say what theory predicts for the task, and whether the measurement fits."""
    if intrinsic is None:
        return "Theory predicts no number of heads for this task, so there is nothing to compare with."
    source = "1 look-up" if intrinsic == 1 else f"{intrinsic} independent look-ups"
    built = f"The task was built from {source}, so the paper expects {intrinsic}"
    if agrees is None:
        return f"{built}; this run neither confirms nor contradicts that."
    if not agrees:
        return f"{built}; this run does not show that."
    return f"{built}." if found.heads_needed == intrinsic else f"{built}, which fits."


def _fewer(found: Estimate) -> str:
    """What one step below the jump costs."""
    assert found.drop_from is not None
    assert found.drop is not None
    return f"{found.drop_from} the error is {times_text(found.drop)} times larger {_source(found)}"


def _source(found: Estimate) -> str:
    """Which seeds the compared errors come from."""
    pair = [row.finished for row in found.rows if row.heads in (found.drop_from, found.drop_to)]
    return f"(best of {pair[0]} seeds)" if len(set(pair)) == 1 and pair[0] > 1 else "(best seed of each)"


def _range(found: Estimate) -> str:
    """The head counts that are left when some in between have no result."""
    assert found.at_least is not None
    assert found.enough is not None
    joint = "or" if found.enough == found.at_least + 1 else "to"
    return f"{found.at_least} {joint} {found.enough}"


def _untried(found: Estimate) -> str:
    """The head counts inside the jump that have no result."""
    first, last = (found.drop_from or 0) + 1, (found.drop_to or 0) - 1
    return f"there is no result for {first}" + ("" if first == last else f" to {last}")


def _open_end(found: Estimate) -> str:
    """Why the end of the fall is not known."""
    most, at = found.errors[-1][0], found.drop_to
    assert at is not None
    if at == most:
        gap = "" if found.at_least == at else f" and {_untried(found)}"
        return f"more than {most} were not tried{gap}, so where it ends is not known"
    further = max(found.ratio(at, heads) for heads, _ in found.errors if heads > at)
    return f"beyond {at} it goes on falling, {times_text(further)} times more, so no end was seen"


def _flat(found: Estimate) -> str:
    """All head counts do about equally well: say how well, for that decides what it means."""
    (least, first), (most, _) = found.errors[0], found.errors[-1]
    errors = [error for _, error in found.errors]
    if found.enough is not None:
        enough = "1 head is enough" if least == 1 else f"{least} heads are enough (fewer were not tried)"
        solved = f"anything below {error_text(found.small)} counts as solved here"
        return f"{enough}: the error is {error_text(first)} already, and {solved}."
    span = f"from {least} to {heads_text(most)} the best error stays at {_between(min(errors), max(errors))}"
    if min(errors) >= UNSOLVED:
        return f"No transition was seen: {span}, so the models did not learn the task."
    return (
        f"No transition was seen: {span}, which does not show whether {heads_text(least)} can do it already "
        f"or more than {most} are needed."
    )


def _between(low: float, high: float) -> str:
    """A range of errors, or one error where they read alike."""
    return error_text(low) if error_text(low) == error_text(high) else f"{error_text(low)} to {error_text(high)}"


def _doubt(found: Estimate) -> str:
    """Why the reading does not stand."""
    if found.reading == "unclear":
        counts = [heads for heads, _ in found.errors]
        pairs = [(found.ratio(many, few), few, many) for few in counts for many in counts if few < many]
        factor, few, many = max(pairs)
        return (
            f"with {heads_text(many)} the best error is {times_text(factor)} times larger than with {few}, "
            "so the number of heads alone does not explain the errors"
        )
    share = math.floor(100 * (found.agreement or 0.0))
    return (
        f"{_hint(found)}, but the seeds differ too much: drawn again, only {share} % of the draws give the same answer"
    )


def _hint(found: Estimate) -> str:
    """What the errors look like, without claiming it."""
    assert found.drop is not None
    assert found.drop_to is not None
    if found.reading in ("no-transition", "gradual") or found.drop < found.factor:
        return "no number of heads stands out"
    return (
        f"{heads_text(found.drop_to)} have an error {times_text(found.drop)} times smaller than "
        f"{heads_text(found.drop_from or 0)} {_source(found)}"
    )


def _nothing(found: Estimate) -> str:
    """Fewer than two head counts have a finished trial."""
    trials, diverged = sum(row.seeds for row in found.rows), sum(row.diverged for row in found.rows)
    if not trials:
        return "Nothing can be said: the run has no trials."
    if diverged == trials:
        return f"Nothing can be said: {'the only trial' if trials == 1 else f'all {trials} trials'} diverged."
    heads, error = found.errors[0]
    only = "was tried" if len(found.rows) == 1 else "gave a result"
    return (
        f"Nothing can be said: only one head count, {heads}, {only} (best error {error_text(error)}), "
        "so there is nothing to compare it with."
    )
