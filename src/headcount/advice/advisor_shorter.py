"""How the error moves with the length: the same head counts on halves of the sequences.

The data have no targets for halves, so the best model stands in for the task. It can where it needs no positions, has
learned the data well, and all sequences are equally long: then it is a function of any number of tokens.
"""

from __future__ import annotations

from headcount.advice.advisor_data import Material, prepared
from headcount.advice.advisor_engine import Engine, Outcome, Wanted, predicted
from headcount.advice.advisor_record import Reason, ShorterPoint
from headcount.advice.advisor_search import Search
from headcount.analysis.wording import error_text, heads_text
from headcount.experiments.data import Part
from headcount.tasks.arrays import ArrayTask

LEARNED = 0.05
"""A best model with a larger validation error, as a share of the variance of y, cannot stand in for the task."""
SHORTEST = 8
MOST = 10_000


def allows(material: Material, best: Outcome) -> bool:
    """Whether the best model can say what halves of the sequences are worth."""
    task = material.task
    plain = best.model.positions == "none" and task.mask is None
    return plain and task.length >= SHORTEST and best.validation <= LEARNED


def halved(material: Material, best: Outcome, seed: int) -> Material:
    """Return the first halves of the sequences with the best model's predictions as targets."""
    X = material.task.X[:MOST, : material.task.length // 2]
    inputs = material.inputs(X)
    y = predicted(best.network(), Part(inputs, inputs[:, 0, :1]))
    return prepared(ArrayTask.from_arrays(X, y, name=f"{material.task.name}, halves"), None, seed)


def on_halves(search: Search, best: Outcome, answer: int) -> list[ShorterPoint]:
    """Train the answer and one head fewer on halves; nothing where the task does not allow it or time is short."""
    engine, material = search.engine, search.engine.material
    if engine.gpu or answer < 2 or not allows(material, best):
        return []
    spent = [one.seconds for one in search.found if one.heads == answer]
    if sum(spent) / len(spent) > engine.left():
        return []
    half = Engine(halved(material, best, search.seed), engine.device, engine.deadline, engine.workers)
    found = half.train([Wanted(h, search.seed, search.options, search.train, "length") for h in (answer - 1, answer)])
    length = material.task.length // 2
    return [ShorterPoint(length=length, heads=one.heads, error=one.validation) for one in found if one.whole]


def in_words(points: list[ShorterPoint], whole: dict[int, float], length: int) -> list[Reason]:
    """Say how the error moves with the length, of one model each: `whole` holds that of the same seed."""
    return [
        Reason(
            tag="extrapolated",
            text=f"With {heads_text(p.heads)} one model errs by {error_text(p.error)} at length {p.length} and one by "
            f"{error_text(whole[p.heads])} at {length}; the shorter sequences have the best model's predictions as y.",
        )
        for p in points
        if p.heads in whole
    ]
