"""A run in words: its answer, the states of its trials, and what was done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headcount.analysis import NO_TRAINING_ERROR, NO_WRONG_ANSWER, Analysis, Dimension, Part, Reason, fits
from headcount.render.charts.series import for_log_scale, known_dimensions, level, where
from headcount.render.words.errors import blind_note, terms_of
from headcount.render.words.headline import Headline, split
from headcount.render.words.heads_needed import comparison
from headcount.render.words.numbers import heads_text, percent, times_text
from headcount.render.words.task import settings, task_text
from headcount.store import Run

MEASURED = (
    "What is marked as measured was measured on models that were trained here; it is not proved. A larger model, or "
    "longer training, may reach a smaller error with the same number of heads."
)
BEST = (
    "Of the seeds of one target the best counts, because a start that got stuck says something about training, not "
    "about the number of heads. Over targets errors are averaged in log scale."
)
MEAN = (
    "Over the seeds of a cell error rates are averaged, as in the paper's tables: the best of several shares of wrong "
    "answers is the luckiest. Over targets errors are averaged in log scale."
)
RULE = (
    "A number of heads is needed where the error falls sharply into it, more heads improve it little beside that fall, "
    "and what is left is a small part of the variation. A larger number of heads must have been tried to confirm it."
)
NO_RECORD = "There is no one known D on record, so there is nothing to compare with."
MIN_RISE = 2.0
"""From this factor on, an error that rises with the number of heads is mentioned."""
_STATES = {
    "diverged": "diverged: training blew up, so they have no error",
    "failed": "failed: they ended with an error of the program or the machine (headcount runs RUN says which)",
    "running": "still running",
    "pending": "not started yet",
    "damaged": "damaged in the store and left out (headcount runs --check says what is wrong)",
    NO_WRONG_ANSWER: "left out: no wrong answer, on a number of samples that is not known",
    NO_TRAINING_ERROR: "left out: finished, without a training error on record",
}


def headline(analysis: Analysis) -> Headline:
    """Return the answer and its certainty, then its grounds; for several settings, what they have in common."""
    found = analysis.dimensions
    if len(found) == 1:
        return split(found[0].sentence)
    claimed = {d.heads_needed for d in found}
    same = claimed.pop() if len(claimed) == 1 and not any(d.hedged for d in found) else None
    if not same:
        return Headline(f"{len(found)} settings, each with its own answer")
    return Headline(f"{heads_text(same)} in all {len(found)} settings (90 % interval {same} in each)")


def evidence(analysis: Analysis) -> str:
    """Return the evidence behind the answer: the trials that were measured, and their draws."""
    drawn = f" Intervals hold 90 % of {analysis.resamples:,} draws over seeds and targets."
    return f"in this run of {summary(analysis)}.{drawn if analysis.counts.get('done') else ''}"


def grounds(found: Dimension, analysis: Analysis) -> list[Reason]:
    """Return the reasons of an answer, each marked as proved, measured or extrapolated."""
    return [*found.reasons, *(Reason(text=text) for text in rises(analysis, found.setting))]


def meaning(analysis: Analysis) -> list[str]:
    """Return what a reader may conclude, and what not."""
    points = [terms_of(analysis).meaning, *analysis.notes, MEASURED, MEAN if analysis.measure == "error rate" else BEST]
    return points + [f"{number:,} trials {meaning}." for state, number, meaning in counts(analysis) if state != "done"]


def panel_evidence(found: Dimension) -> str:
    """Return what the answer of one panel was measured on, and how well its seeds support it."""
    trials = sum(row.seeds for row in found.rows)
    source = f"in this run of {trials} trained model{'' if trials == 1 else 's'}, not proved."
    if found.agreement is None:
        return f"{source} There are too few seeds to say how sure this is."
    again = (
        f"If the seeds are drawn again and the rule's constants are varied, {percent(found.agreement)} of "
        f"{found.resamples:,} draws give the same answer"
    )
    low, high = found.drop_low, found.drop_high
    claimed = found.verdict == "transition" or found.bounded
    if not claimed or low is None or high is None:
        return f"{source} {again}."
    ends = times_text(low), times_text(high)
    span = f"{ends[0]} times" if ends[0] == ends[1] else f"{ends[0]} to {ends[1]} times"
    return f"{source} {again}, and the drop lies in 90 % of the draws at {span}."


def panel_meaning(run: Run, found: Dimension) -> list[str]:
    """Return what a reader may conclude from one panel, and what not."""
    points = [terms_of(found).meaning, MEASURED, BEST, RULE]
    if run.intrinsic is not None:
        points.append(
            f"Here the true number of look-ups, D = {run.intrinsic}, is known, because the task was built "
            "that way. The estimate does not use it; it is compared afterwards."
        )
    points += [note] if (note := blind_note([run])) else []
    diverged = sum(row.diverged for row in found.rows)
    if diverged:
        points.append(
            f"{diverged} of the {len(run.trials)} models diverged: training blew up, so they have no error "
            "and are left out of the best and the median."
        )
    return points


def counts(analysis: Analysis) -> list[tuple[str, int, str]]:
    """Return every state that trials are in: its name, the number of trials, and its meaning; done comes first."""
    found = [("done", analysis.counts.get("done", 0), "finished with an error")]
    found += [(state, n, _STATES.get(state, state)) for state, n in analysis.counts.items() if n and state != "done"]
    return found


def summary(analysis: Analysis) -> str:
    """Return the number of trials in each state, in one line."""
    total = sum(analysis.counts.values())
    states = ", ".join(f"{number:,} {state}" for state, number, _ in counts(analysis))
    return f"{total:,} trial{'' if total == 1 else 's'}: {states}"


def known(analysis: Analysis, runs: Sequence[Run] = ()) -> str:
    """Compare the estimates with the known D, which they never read; by setting if D differs."""
    by_setting = known_dimensions(analysis, runs)
    several = set(by_setting.values())
    if len(several) > 1:
        settings = "; ".join(_compared(d, by_setting.get(d.setting)) for d in analysis.dimensions)
        return f"The settings were built with D of their own; no estimate uses it. {settings}."
    D = several.pop() if several else analysis.intrinsic
    if D is None and any(run.intrinsic is not None for run in runs):
        return "The tasks of one setting were built with different D, so there is no one D to compare with."
    if D is None:
        return "Theory knows no D for this task, so there is nothing to compare with." if runs else NO_RECORD
    if len(analysis.dimensions) == 1:
        return f"{comparison(analysis.dimensions[0], D)} No estimate uses it."
    each = "; ".join(_compared(d, D) for d in analysis.dimensions)
    return f"The task was built with D = {D}; no estimate uses it. {each}."


def _compared(found: Dimension, D: int | None) -> str:
    """Compare the estimate of one setting with its D."""
    if D is None:
        return f"{found.setting}: no D is known"
    label = found.setting if f"D = {D}" in found.setting else f"{found.setting}, D = {D}"
    agrees = fits(found, D)
    if agrees is None:
        return f"{label}: not settled"
    if found.estimate is None:
        return f"{label}: at least {found.low}, which {'fits' if agrees else 'does not fit'}"
    if found.estimate == D:
        return f"{label}: the estimate fits"
    return f"{label}: the estimate is {found.estimate}" + (", its interval holds D" if agrees else " and does not fit")


def rises(analysis: Analysis, setting: str) -> list[str]:
    """Return where more heads have a much larger error than fewer: the largest such rise of a setting."""
    found: list[tuple[float, str]] = []
    places = dict.fromkeys((c.length, c.hidden) for c in analysis.cells if c.setting == setting)
    unseen = analysis.measure == "error rate" and analysis.on == "validation"
    about = "this is about training and the amount of data" if unseen else "this is about training"
    for length, hidden in places:
        cells = [c for c in analysis.cells if (c.setting, c.length, c.hidden) == (setting, length, hidden)]
        known = [(c.heads or 0, for_log_scale(error), c) for c in cells if (error := level(c)) is not None]
        for heads, error, cell in known:
            least, fewer = min(((e, h) for h, e, _ in known if h < heads), default=(error, heads))
            if error >= MIN_RISE * least:
                at = f" ({where(cell)})" if len(places) > 1 else ""
                larger = f"{times_text(error / least)} times larger than with {fewer}{at}"
                rise = f"With {heads_text(heads)} the {terms_of(analysis).noun} is {larger}."
                found.append((error / least, f"{rise} More heads can do all that fewer can: {about}."))
    return [max(found)[1]] if found else []


def whole_run(runs: Sequence[Run]) -> Run:
    """Return the panels of a sweep as one run, with lists where they differ, so that it can be described."""
    first = runs[0]
    varied = {
        key: list(dict.fromkeys(run.values[key] for run in runs if key in run.values))
        for key in dict.fromkeys(key for run in runs for key in run.values)
    }
    several = {key: ", ".join(map(str, some)) for key, some in varied.items() if len(some) > 1}
    model: dict[str, Any] = {**_part(first, "model")}
    train: dict[str, Any] = {**_part(first, "train")}
    for part in (model, train):
        part.update({key: several[key] for key in several if key in part})
    task = {**first.task, **({"length": several["length"]} if "length" in several else {})}
    return first.model_copy(
        update={
            "task": task,
            "spec": {**first.spec, "model": model, "train": train},
            "trials": [t.model_copy(update={"curve": []}) for run in runs for t in run.trials],
            "seconds": sum(t.seconds for run in runs for t in run.trials),
        }
    )


def task_words(runs: Sequence[Run]) -> tuple[str, str]:
    """Return the task in words and as a formula; with several lengths, T stays a letter."""
    lengths = {run.task.get("length") for run in runs}
    first = runs[0]
    if len(lengths) > 1:
        first = first.model_copy(update={"task": {**first.task, "length": "T"}})
    text = task_text(first)
    return text.words, text.formula


def done(runs: Sequence[Run], on: Part = "validation") -> list[tuple[str, str]]:
    """Return what was done, as pairs of a name and a text; `on` is the part of the data whose errors are shown."""
    pairs = settings(whole_run(runs), on)
    targets = sorted({run.values["target"] for run in runs if "target" in run.values})
    rates = sorted({run.values["learning_rate"] for run in runs if "learning_rate" in run.values})
    if len(targets) > 1:
        pairs.insert(3, ("Targets", f"{len(targets)} draws of the task itself: {', '.join(map(str, targets))}"))
    if len(rates) > 1:
        pairs.append(("Learning rates", ", ".join(f"{rate:g}" for rate in rates)))
    return pairs


def _part(run: Run, name: str) -> dict[str, Any]:
    value = run.spec.get(name)
    return {str(k): v for k, v in value.items()} if isinstance(value, dict) else {}
