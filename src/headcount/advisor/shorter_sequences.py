"""How the error changes with the length: the same head counts on halves of the sequences and on whole ones.

The data have no targets for halves, so the best model stands in for the task. It can if it uses no positions, has
learned the data well, and all sequences are equally long: then it is a function of any number of tokens.
"""

from __future__ import annotations

import time
from functools import partial

import torch

from headcount.advisor.data import Material, prepared
from headcount.advisor.engine import TrialEngine
from headcount.advisor.measures import predicted
from headcount.advisor.record import ShorterPoint
from headcount.advisor.search import Search
from headcount.advisor.trials import Outcome, Wanted
from headcount.analysis import Reason
from headcount.core import run_concurrently
from headcount.render.words import error_text, heads_text
from headcount.tasks.arrays import ArrayTask
from headcount.training import Part

MAX_SURROGATE_ERROR = 0.05
"""A best model with a larger validation error, as a share of the variance of y, cannot stand in for the task."""
MIN_LENGTH = 8
"""Tokens of a sequence that can be halved."""
MAX_SEQUENCES = 10_000
"""Sequences that are relabelled, at most."""


def allows(material: Material, best: Outcome) -> bool:
    """Whether the best model can label halves of the sequences."""
    task = material.task
    plain = best.model.positions == "none" and task.mask is None
    return plain and task.length >= MIN_LENGTH and best.validation <= MAX_SURROGATE_ERROR


def relabelled(
    material: Material, best: Outcome, seed: int, length: int, where: torch.device | str = "cpu"
) -> Material:
    """Return the first tokens of the sequences with the best model's predictions, made on a device, as targets."""
    X = material.task.X[:MAX_SEQUENCES, :length]
    inputs = material.units(X).to(where)
    y = predicted(best.network(), Part(inputs, inputs[:, 0, :1]))
    return prepared(ArrayTask.from_arrays(X, y, name=f"{material.task.name}, length {length}"), None, seed)


def on_halves(search: Search, best: Outcome, answer: int) -> list[ShorterPoint]:
    """Train the answer and one head fewer on halves and on whole sequences, both with the best model's predictions.

    The data's own y cannot be used for the whole ones: its noise would look like a cost of length. Return an empty list
    if the task does not allow it or time is short.
    """
    engine, material = search.engine, search.engine.material
    if answer < 2 or not allows(material, best):
        return []
    spent = [trial.seconds for trial in search.found if trial.heads == answer]
    share = 0.5 * engine.left()  # the rest is for the other curves
    needed = 3.0 * sum(spent) / len(spent)  # two of half the length, two of the whole
    if not engine.gpu and needed > share * min(engine.workers, 2):
        return []
    deadline = time.monotonic() + share
    wanted = [Wanted(h, search.seed, search.options, search.train, "length") for h in (answer, answer - 1)]

    def trained(data: Material) -> list[ShorterPoint]:
        found = TrialEngine(data, engine.device, deadline, engine.workers, halt=engine.halt).try_out(wanted)
        length = data.task.length
        return [
            ShorterPoint(length=length, heads=trial.heads, error=trial.validation) for trial in found if trial.completed
        ]

    lengths = (material.task.length // 2, material.task.length)
    materials = [relabelled(material, best, search.seed, length, engine.where) for length in lengths]
    both = [partial(trained, data) for data in materials]
    return [point for some in run_concurrently(both, threaded=engine.gpu, on_failure=engine.halt.set) for point in some]


def in_words(points: list[ShorterPoint]) -> list[Reason]:
    """Return how the error changes with the length, for head counts that were trained on both."""
    reasons: list[Reason] = []
    for heads in sorted({p.heads for p in points}):
        errors = {p.length: p.error for p in points if p.heads == heads}
        if len(errors) < 2:
            continue
        (short, low), (long, high) = sorted(errors.items())
        text = (
            f"With {heads_text(heads)} the error is {error_text(low)} at length {short} and {error_text(high)} at "
            f"{long}: one model each, and both have the best model's predictions, which are free of noise, as y."
        )
        reasons.append(Reason(tag="extrapolated", text=text))
    return reasons
