"""Prices: the curve as numbers, one head fewer and one more, and the curves at fixed width and fixed parameters."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence

import numpy as np

from headcount.advisor.decide import TrialsByHeads, one_sided
from headcount.advisor.engine import TrialEngine
from headcount.advisor.record import Curve, CurveKind, CurvePoint, LengthPoint, Price
from headcount.advisor.search import Search
from headcount.advisor.trials import Outcome, Wanted
from headcount.analysis import HeadsNeeded
from headcount.core import BadInput

MAX_ROUNDS = 3
"""Models per head count on the other curves, if there is time."""
LENGTH_GROUPS = 3
"""Short, middle and long sequences."""
MIN_GROUP_SEQUENCES = 50
"""Validation sequences that a group of lengths must have."""


def curve_points(found: Sequence[Outcome], floor: float, step: dict[int, float]) -> list[CurvePoint]:
    """Return one point per head count."""
    table = TrialsByHeads.of(found)
    points: list[CurvePoint] = []
    for i, heads in enumerate(table.heads):
        best, row = table.best(i), table.trials[i]
        errors = sorted(trial.validation for trial in row)
        points.append(
            CurvePoint(
                heads=heads,
                head_dim=best.model.head_dim,
                hidden=best.model.hidden,
                seeds=len(row),
                validation=best.validation,
                median=float(np.median(errors)),
                worst=errors[-1],
                train=best.train,
                wrong=best.wrong,
                excess=max(best.validation - floor, 0.0),
                parameters=best.parameters,
                step_seconds=step.get(heads),
            )
        )
    return points


def step_times(search: Search, heads: Sequence[int]) -> dict[int, float]:
    """Return the seconds of a training step on one core, or on the GPU, for each head count."""
    return {h: search.engine.step_seconds(search.options, h, search.train) for h in heads}


def prices(
    points: Sequence[CurvePoint], found: Sequence[Outcome], answer: int, confidence: float, inflation: float
) -> list[Price]:
    """Return the price of each neighbour of the recommended head count."""
    at = {point.heads: point for point in points}
    table = TrialsByHeads.of(found)
    counts = sorted(at)
    place = counts.index(answer)
    base, chosen = at[answer], table.best(place)
    listed: list[Price] = []
    for other in [*counts[max(place - 1, 0) : place], *counts[place + 1 : place + 2]]:
        point, model = at[other], table.best(counts.index(other))
        difference = model.squares.astype(np.float64) - chosen.squares
        apart = min(one_sided(d, inflation) for d in (difference, -difference)) < (1 - confidence) / 2
        times = (point.step_seconds, base.step_seconds)
        listed.append(
            Price(
                heads=other,
                error=point.validation,
                error_ratio=point.validation / max(base.validation, 1e-300),
                told_apart=apart,
                parameters=point.parameters,
                parameters_ratio=point.parameters / base.parameters,
                step_seconds=point.step_seconds,
                step_ratio=None if times[0] is None or times[1] is None else times[0] / times[1],
            )
        )
    return listed


def other_curves(search: Search, decision: HeadsNeeded, answer: int, engine: TrialEngine) -> list[Curve]:
    """Return the curves at the answer's width and at its parameter count, trained as far as time allows.

    A round trains one model of each, all with the seed and the recipe of one model of the answer, which belongs to all
    three curves. There are up to `MAX_ROUNDS`; after the first, a round counts only if all of it was completed.
    """
    heads = sorted({h for h in (1, answer - 1, answer, answer + 1, 2 * answer) if 1 <= h <= search.heads_max})
    own = _seeds_of(search, answer)
    width, parameters = own[0].model.E, own[0].parameters
    plans: list[tuple[CurveKind, str, dict[str, int]]] = [
        ("width", f"heads × head size about {width}", {"total_head_dim": width}),
        ("parameters", f"at most {parameters} parameters in all", {"parameters": parameters}),
    ]
    rounds = [
        [
            Wanted(h, base.wanted.seed, search.options.model_copy(update=update), base.wanted.train, kind)
            for kind, _, update in plans
            for h in reversed(heads)
            if h != answer
        ]
        for base in own
    ]
    new, count = _train_rounds([[request for request in wanted if _fits(engine, request)] for wanted in rounds], engine)
    curves: list[Curve] = []
    for kind, fixed, _ in plans:
        others = [trial for trial in new if trial.wanted.tag == kind]
        if others:
            points = curve_points([*others, *own[:count]], decision.noise_floor or 0.0, {})
            curves.append(Curve(kind=kind, fixed=fixed, points=points))
    return curves


def _seeds_of(search: Search, answer: int) -> list[Outcome]:
    """Return the models of the answer that give the rounds their seeds: those of the search's recipe first."""
    own = [trial for trial in search.found if trial.heads == answer]
    own.sort(key=lambda trial: (not trial.completed, trial.wanted.train != search.train, trial.wanted.seed))
    return [own[0], *(trial for trial in own[1:] if trial.completed and trial.wanted.train == own[0].wanted.train)][
        :MAX_ROUNDS
    ]


def _train_rounds(rounds: Sequence[Sequence[Wanted]], engine: TrialEngine) -> tuple[list[Outcome], int]:
    """Train the rounds, on a GPU side by side, otherwise in turn; return the trials and how many rounds count."""
    if engine.gpu:
        return _complete_rounds(rounds, engine.try_out([request for wanted in rounds for request in wanted]))
    new: list[Outcome] = []
    for number, wanted in enumerate(rounds):
        start = time.monotonic()
        trials = engine.try_out(wanted)
        if number and (len(trials) < len(wanted) or not all(trial.completed for trial in trials)):
            return new, number
        new += trials
        if 1.1 * (time.monotonic() - start) > engine.left():
            return new, number + 1
    return new, len(rounds)


def _complete_rounds(rounds: Sequence[Sequence[Wanted]], found: Sequence[Outcome]) -> tuple[list[Outcome], int]:
    """Return the trials of the rounds that count, and how many do, for rounds that ended at the same time.

    The first counts if any of its trials was completed, later ones if all were.
    """
    new: list[Outcome] = []
    for number, wanted in enumerate(rounds):
        requested = {id(request) for request in wanted}
        trials = [trial for trial in found if id(trial.wanted) in requested]
        completed = [trial for trial in trials if trial.completed]
        if len(completed) < (len(wanted) if number else 1):
            return new, number
        new += trials if number else completed
    return new, len(rounds)


def _fits(engine: TrialEngine, wanted: Wanted) -> bool:
    """Whether a model with these heads fits into the parameters at all."""
    try:
        engine.sized(wanted)
    except BadInput:
        return False
    return True


def by_length(engine: TrialEngine, best: Outcome) -> list[LengthPoint]:
    """Return the best model's error on short, middle and long sequences; empty if all have one length."""
    mask = engine.material.task.mask
    if mask is None:
        return []
    lengths = mask[engine.material.splits.validated].sum(1)
    edges = np.unique(np.quantile(lengths, np.linspace(0, 1, LENGTH_GROUPS + 1)))
    points: list[LengthPoint] = []
    for low, high in itertools.pairwise(edges):
        inside = (lengths >= low) & ((lengths < high) | (high == edges[-1]))
        if int(inside.sum()) >= MIN_GROUP_SEQUENCES:
            chosen = lengths[inside]
            points.append(
                LengthPoint(
                    shortest=int(chosen.min()),
                    longest=int(chosen.max()),
                    samples=int(inside.sum()),
                    error=float(best.squares[inside].mean()),
                )
            )
    return points
