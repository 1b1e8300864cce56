"""What a reader must know beside the tables: what was confirmed, what the paper does not say, what failed."""

from __future__ import annotations

from headcount.render.words import heads_text, times_text
from headcount.reproduction.cells import PARTS, WORDS, Comparison, same_frames
from headcount.reproduction.findings import findings
from headcount.reproduction.items import DATA, Item, paper_tables
from headcount.reproduction.tables import beside_means, nearest_draw

WIDTH = 768
"""Numbers of a BERT embedding, which the paper uses."""
_ENTRY = {
    "means": "Here each candidate (query and passage) becomes one vector, the means of its frozen embeddings, and the "
    "encoder attends over the candidates; entry = tokens puts all their tokens into one sequence instead.",
    "tokens": "Here the tokens of all candidates stand in one sequence (entry = tokens); by default each candidate "
    "becomes one vector, and the encoder attends over the candidates.",
}


def remarks_of(item: Item | None, found: Comparison) -> list[str]:
    """Return the remarks of a name, or those of all that a page shows; the trials without a result come last."""
    note = [item.note] if item is not None and item.note else []
    if found.data is None:
        said = [*note, *_of_draws(found)]
    else:
        of = _of_candidates if found.spec == "marco" else _of_frames
        decided = [one.sentence for one in findings(found.cells, found.spec, found.analysis)]
        said = [*decided, *note, _sizes(found), *of(found)]
        said.append(
            "The paper's numbers and ours are means over seeds, ± the standard deviation; how many seeds the paper has "
            "it does not say. Alike means within two standard errors, of the seeds or of counting the samples."
        )
        said += [note for analysis in found.analyses.values() for note in analysis.notes]
    told = ", ".join(f"{n} {state}" for state, n in found.counts.items() if state != "done")
    return [*said, f"{sum(found.counts.values())} trials: {told or 'none failed or diverged'}."]


# -- tasks --------------------------------------------------------------------------------------------------


def _of_draws(found: Comparison) -> list[str]:
    """Say what the paper's numbers are, and how much the draws of the target matter."""
    if not paper_tables(found.spec):
        return []
    said = [
        "The paper's numbers are means over its seeds, with their standard deviation; where that exceeds the mean, no "
        "range is drawn."
        if beside_means(found)
        else "The paper does not state whether its numbers are the best or the mean over seeds."
    ]
    draws = sorted({int(run.values["target"]) for run in found.runs if "target" in run.values})
    if draws:
        told = f"draw {draws[0]}" if len(draws) == 1 else f"draws {', '.join(map(str, draws))}"
        said.append(
            f"The paper's a_i are unknown. Here they are drawn by seed ({told}){_apart(found)}, so a single number "
            "proves little."
        )
    if (like := nearest_draw(found)) is not None:
        said.append(
            f"Draw {like.target} is most like the paper's table: with fewer than D heads its errors differ from the "
            f"paper's by a factor of {times_text(10**like.distance)} on average."
        )
    return said


def _apart(found: Comparison) -> str:
    """Say how far the draws are apart with one head too few, in the best seed, at the length where it is most."""
    few = (found.runs[0].intrinsic or 0) - 1
    best = [[min(errors) for errors in cell.draws.values()] for cell in found.cells.values() if cell.heads == few]
    factors = [max(some) / min(some) for some in best if len(some) > 1 and min(some) > 0]
    if not factors:
        return ""
    return f"; with {heads_text(few)} one differs from another by a factor of up to {times_text(max(factors))}"


# -- real data ----------------------------------------------------------------------------------------------


def _sizes(found: Comparison) -> str:
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


def _of_candidates(found: Comparison) -> list[str]:
    task = found.runs[0].task
    entry = _ENTRY.get(str(task.get("entry", "means")), "")
    said = [f"The paper does not say how candidates enter the encoder. {entry}".strip()]
    if isinstance(task.get("dim"), int) and task["dim"] != WIDTH:
        said.append(f"The frozen embeddings have {task['dim']} numbers here, {WIDTH} in the paper.")
    return said


def _of_frames(found: Comparison) -> list[str]:
    first = found.runs[0]
    patch = first.task.get("patch", "?")
    said = [
        (
            f"Patches have a side of 8 in the paper's text, of 4 by the lengths of its tables; here of {patch}. The "
            "paper has dropout, and does not say how much."
        )
    ]
    if not same_frames(first):
        said.append("With another patch than 4 a length is another frame than the paper's: its cells are left out.")
    return said
