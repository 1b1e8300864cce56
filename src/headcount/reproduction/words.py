"""What a reproduction says: what it confirms, what to know beside its tables, how long it trains, what is left.

Headings and captions of tables and charts are in `tables.py` and `charts.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import Field

from headcount.analysis import Analysis, at_edge
from headcount.core import Spec
from headcount.render.words import heads_text, terms_of, times_text
from headcount.reproduction import numbers
from headcount.reproduction.cells import PARTS, WORDS, Cells, Comparison, same_frames
from headcount.reproduction.draws import beside_means, nearest_draw
from headcount.reproduction.findings import (
    Finding,
    Harder,
    LawFinding,
    Order,
    Peak,
    ReversalFinding,
    Rise,
    Transition,
    Verdict,
    findings,
)
from headcount.reproduction.items import DATA, Item, paper_tables
from headcount.reproduction.law import MIN_SEEDS
from headcount.reproduction.plan import PaperPlan, plan_of

ACCURACIES = "The paper's accuracies and ours"
"""The title of the table of a run on real data."""


def signed(value: float) -> str:
    """Write a coefficient with two digits and a true minus."""
    return f"{value:.2f}".replace("-", "−")


# -- findings -----------------------------------------------------------------------------------------------


class StatedFinding(Spec):
    """One claim of the paper, and what a run says about it."""

    claim: str
    verdict: Verdict
    text: str
    values: dict[str, float] = Field(default_factory=dict[str, float])
    """Numbers of the text that others may want to quote."""

    @property
    def sentence(self) -> str:
        """The finding as one text, the verdict first."""
        return f"{self.verdict.capitalize()}: {self.claim}. {self.text}"


def stated_findings(cells: Cells, spec: str, training: Analysis | None = None) -> list[StatedFinding]:
    """Return all that the cells decide or leave open, in words; `training` adds the estimate on training errors."""
    return [stated(found) for found in findings(cells, spec, training)]


def stated(found: Finding) -> StatedFinding:
    """Return a finding in words."""
    values: dict[str, float] = {}
    match found:
        case Rise():
            claim, text = "training accuracy rises with the number of heads", _rise_text(found)
        case Peak():
            claim, text = "validation accuracy is best at a head count below the largest", _peak_text(found)
        case Harder():
            claim, text = f"longer sequences are harder ({WORDS[found.part]} accuracy)", _harder_text(found)
        case Order():
            claim, text = f"the cells of {WORDS[found.part]} accuracy are in the paper's order", _order_text(found)
            if found.correlation is not None:
                values = {"rank_correlation": round(found.correlation, 4), "points": round(found.points, 2)}
        case Transition():
            claim, text = f"on training data the transition is at {found.theirs} heads", found.ours.sentence
        case LawFinding():
            paper = f"δ = {signed(found.stated['delta'])} and α = {signed(found.stated['alpha'])}"
            claim, text = f"training errors follow c·T^b·exp(α·h/T^δ) with {paper}", _law_text(found)
        case ReversalFinding():
            claim = f"the reversal score of the training error is positive from {found.start} heads on, and only there"
            text = _reversal_text(found)
        case _:
            raise TypeError(type(found).__name__)
    return StatedFinding(claim=claim, verdict=found.verdict, text=text, values=values)


_NO_LINE = "No length has two head counts with a result."


def _rise_text(found: Rise) -> str:
    if not found.lengths:
        return _NO_LINE
    texts: list[str] = []
    if found.best_from:
        texts.append(f"It rises up to {_by_length(found.best_from)}; from there on it is as good as its best.")
    if found.falls:
        falls = ", ".join(f"h = {heads} to {following} at T = {length}" for heads, following, length in found.falls)
        texts.append(f"It falls from {falls}.")
    for lengths, what in ((found.alike, "alike within the noise"), (found.lower, "lower")):
        if lengths:
            at = ", ".join(map(str, lengths))
            texts.append(f"With the most heads it is {what}, against the fewest, at T = {at}.")
    return " ".join(texts)


def _peak_text(found: Peak) -> str:
    if not found.best:
        return _NO_LINE
    theirs = f", the paper's among these head counts at {_by_length(found.theirs)}" if found.theirs else ""
    return (
        f"Ours is best at {_by_length(found.best)}{theirs}. With the most heads it is lower than that, beyond the "
        f"noise, at {found.lower} of {len(found.best)} lengths."
    )


def _by_length(heads: Mapping[int, int]) -> str:
    """Write the head count of every length, once if they are all the same."""
    if len(set(heads.values())) > 1:
        return ", ".join(f"h = {count} at T = {length}" for length, count in heads.items())
    (length, count), *others = heads.items()
    return f"h = {count} at {'every T' if others else f'T = {length}'}"


def _harder_text(found: Harder) -> str:
    if not found.changes:
        return "There is one length only."
    lower, alike, higher = (found.changes.count(sign) for sign in (-1, 0, 1))
    paper = f"; in the paper it is lower in {sum(found.theirs)} of {len(found.theirs)}" if found.theirs else ""
    return (
        f"Of {len(found.changes)} pairs of neighbouring lengths the longer one is lower in {lower}, higher in {higher} "
        f"and alike within the noise in {alike}{paper}."
    )


def _order_text(found: Order) -> str:
    if found.correlation is None:
        return f"{found.cells} cells of ours have a number of the paper beside them."
    away = f"{abs(found.points):.1f} points {'above' if found.points >= 0 else 'below'} the paper's"
    return (
        f"Their rank correlation with the paper's is {found.correlation:.2f} over {found.cells} cells; in the middle "
        f"ours are {away}."
    )


def _law_text(found: LawFinding) -> str:
    if not found.ours:
        return "There are too few cells to fit it."
    texts: list[str] = []
    for one in found.ours:
        ends = {name: signed(one.coefficients[name]) for name in found.stated}
        for name, (low, high) in one.intervals.items():
            ends[name] = f"{signed(one.coefficients[name])} ({signed(low)} to {signed(high)})"
        which = f"without h = {', '.join(map(str, one.without))}" if one.without else "with all h"
        edge = ", the edge of the values tried" if at_edge(one.coefficients["delta"]) else ""
        missed = f"missing by a factor of {10**one.missed:.2f}"
        texts.append(f"{which} δ = {ends['delta']}{edge}, α = {ends['alpha']}, {missed}")
    if found.intervals:
        return f"Ours: {'; '.join(texts)} (90 % of the draws of seeds)."
    few = f"With fewer than {MIN_SEEDS} seeds a cell there is no interval to hold the paper's."
    return f"Ours: {'; '.join(texts)}. {few}"


def _reversal_text(found: ReversalFinding) -> str:
    if not found.decidable:
        return "There are too few lengths or head counts to tell."
    positive, sure = _heads(found.positive), _heads(found.beyond_chance)
    return f"It is positive at {positive}, beyond chance (p ≤ 0.05) at {sure}."


def _heads(counts: Sequence[int]) -> str:
    return f"h = {', '.join(map(str, counts))}" if counts else "no head count"


def sentences(found: Comparison) -> list[str]:
    """Return the answers of the analyses, each with its part of the data if there are several."""
    if len(found.analyses) == 1:
        return [dimension.labelled for dimension in found.analysis.dimensions]
    return [
        f"On {terms_of(analysis).data.removeprefix('on ')}: {dimension.sentence}"
        for analysis in found.analyses.values()
        for dimension in analysis.dimensions
    ]


def source_text() -> str:
    """Say which paper the numbers are from."""
    return f"Source of the paper's numbers: {numbers.source()}."


# -- remarks ------------------------------------------------------------------------------------------------

BERT_DIM = 768
"""The dimension of the embeddings that the paper uses."""
_ENTRY = {
    "means": "Here each candidate (query and passage) becomes one vector, the means of its frozen embeddings, and the "
    "encoder attends over the candidates; entry = tokens puts all their tokens into one sequence instead.",
    "tokens": "Here the tokens of all candidates stand in one sequence (entry = tokens); by default each candidate "
    "becomes one vector, and the encoder attends over the candidates.",
}


def remarks_of(item: Item | None, found: Comparison) -> list[str]:
    """Return the remarks on a table or figure, or on the page of a run; the trials without a result come last."""
    note = [item.note] if item is not None and item.note else []
    if found.data is None:
        texts = [*note, *_about_draws(found)]
    else:
        about = _about_candidates if found.spec == "marco" else _about_frames
        decided = [one.sentence for one in stated_findings(found.cells, found.spec, found.analysis)]
        texts = [*decided, *note, _about_sizes(found), *about(found)]
        texts.append(
            "The paper's numbers and ours are means over seeds, ± the standard deviation; how many seeds the paper has "
            "it does not say. Alike means within two standard errors, of the seeds or of counting the samples."
        )
        texts += [note for analysis in found.analyses.values() for note in analysis.notes]
    states = ", ".join(f"{n} {state}" for state, n in found.counts.items() if state != "done")
    return [*texts, f"{sum(found.counts.values())} trials: {states or 'none failed or diverged'}."]


def _about_draws(found: Comparison) -> list[str]:
    """Say what the paper's numbers are, and how much the draws of the target matter."""
    if not paper_tables(found.spec):
        return []
    texts = [
        "The paper's numbers are means over its seeds, with their standard deviation; where that exceeds the mean, no "
        "range is drawn."
        if beside_means(found)
        else "The paper does not state whether its numbers are the best or the mean over seeds."
    ]
    draws = sorted({int(run.values["target"]) for run in found.runs if "target" in run.values})
    if draws:
        drawn = f"draw {draws[0]}" if len(draws) == 1 else f"draws {', '.join(map(str, draws))}"
        texts.append(
            f"The paper's a_i are unknown. Here they are drawn by seed ({drawn}){_spread_of_draws(found)}, so a single "
            "number proves little."
        )
    if (like := nearest_draw(found)) is not None:
        texts.append(
            f"Draw {like.target} is most like the paper's table: with fewer than D heads its errors differ from the "
            f"paper's by a factor of {times_text(10**like.distance)} on average."
        )
    return texts


def _spread_of_draws(found: Comparison) -> str:
    """Say how much the best seeds of the draws differ with one head too few, at the length where they differ most."""
    few = (found.runs[0].intrinsic or 0) - 1
    best = [[min(errors) for errors in cell.draws.values()] for cell in found.cells.values() if cell.heads == few]
    factors = [max(some) / min(some) for some in best if len(some) > 1 and min(some) > 0]
    if not factors:
        return ""
    return f"; with {heads_text(few)} one differs from another by a factor of up to {times_text(max(factors))}"


def _about_sizes(found: Comparison) -> str:
    """Say how much data we have against theirs."""
    data, first = DATA[found.spec], found.runs[0]
    parts: list[str] = []
    for part in PARTS:
        ours, theirs = first.task.get(part), data.sizes[part]
        if isinstance(ours, int):
            percent = 100 * ours / theirs
            share = f"{percent:.0f} %" if percent >= 10 else f"{percent:.2g} %"
            parts.append(f"{ours:,} {WORDS[part]} {data.samples} against the paper's {theirs:,} ({share})")
    measured = first.samples.get("train")
    known = f" Training accuracy is measured on {measured:,} of the training {data.samples}." if measured else ""
    return f"Our data: {', '.join(parts) or 'not on record'}.{known}"


def _about_candidates(found: Comparison) -> list[str]:
    task = found.runs[0].task
    entry = _ENTRY.get(str(task.get("entry", "means")), "")
    texts = [f"The paper does not say how candidates enter the encoder. {entry}".strip()]
    if isinstance(task.get("dim"), int) and task["dim"] != BERT_DIM:
        texts.append(f"The frozen embeddings have {task['dim']} numbers here, {BERT_DIM} in the paper.")
    return texts


def _about_frames(found: Comparison) -> list[str]:
    first = found.runs[0]
    patch = first.task.get("patch", "?")
    texts = [
        (
            f"Patches have a side of 8 in the paper's text, of 4 by the lengths of its tables; here of {patch}. The "
            "paper has dropout, and does not say how much."
        )
    ]
    if not same_frames(first):
        texts.append("With another patch than 4 a length is another frame than the paper's: its cells are left out.")
    return texts


# -- what is trained, and what is left ----------------------------------------------------------------------


def size_text(plan: PaperPlan) -> str:
    """Say how long the trials of a plan train and on how much, and how long at the paper scale."""
    (steps, sizes), (paper_steps, paper_sizes) = ours, paper = plan.amounts(), plan_of(plan.spec, "paper").amounts()
    samples = "sequences" if plan.data is None else plan.data.samples
    text = f"{plan.scale}: {_range(steps)} steps" + (f" on {_range(sizes)} {samples}" if sizes else "")
    if plan.scale == "paper":
        return f"{text}."
    if [*map(_range, ours)] == [*map(_range, paper)]:
        return f"{text}, as at the paper scale."
    less = max(steps) < max(paper_steps) or max(sizes, default=0) < max(paper_sizes, default=0)
    takes = f"; the paper scale takes {_range(paper_steps)}" + (f" on {_range(paper_sizes)}" if paper_sizes else "")
    return f"{text}{takes}{': expect larger errors' if less else ''}."


def _range(counts: Sequence[int]) -> str:
    """Write 1,500, or 300 to 1,000."""
    return " to ".join(f"{n:,}" for n in sorted({min(counts), max(counts)})) if counts else ""


def states_text(states: Mapping[str, int]) -> str:
    """Write how many trials are in which state."""
    return ", ".join(f"{number} {state}" for state, number in states.items())


def ending_lines(
    folder: Path, *, written: bool, counts: Mapping[str, Mapping[str, int]], left: int, needs_data: bool
) -> list[str]:
    """Say where the files are, how many trials of each run are in which state, and how to train the `left` ones."""
    lines = [f"Tables and pictures in {folder}" if written else "No trial has finished yet: nothing was written."]
    lines += [f"{run}: {states_text(states)}" for run, states in counts.items() if set(states) != {"done"}]
    if left:
        command = "this command with --data" if needs_data else "the same command again"
        lines.append(f"Not finished ({left} trials left): run {command} to continue.")
    return lines


def closing_sentences(
    folder: Path, *, written: bool, counts: Mapping[str, Mapping[str, int]], left: int, needs_data: bool
) -> list[str]:
    """Say the same in a notebook, where a call takes the place of a command."""
    where = f"Tables and pictures are in {folder}." if written else "Nothing is written yet."
    call = "the same call with data" if needs_data else "the same call again"
    more = [f"Not finished ({left} trials left): make {call} to continue."] if left else []
    return [f"Trials of {_states_of_runs(counts)}.", where, *more]


def headline(titles: Sequence[str], answer: Sequence[str], scale: str, counts: Mapping[str, Mapping[str, int]]) -> str:
    """Return the result in one line; `answer` is that of a single table or figure."""
    trials = _states_of_runs(counts)
    if not titles:
        return f"No trial has finished yet ({trials})."
    if len(titles) > 1:
        return f"{len(titles)} tables and figures at the scale {scale} ({trials})."
    return " ".join([f"{titles[0]}, at the scale {scale} ({trials}).", *answer])


def _states_of_runs(counts: Mapping[str, Mapping[str, int]]) -> str:
    return "; ".join(f"{run}: {states_text(states)}" for run, states in counts.items())
