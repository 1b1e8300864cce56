"""Prices: the curve as numbers, one head fewer and one more, and the curves at fixed width and parameter count."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence

import numpy as np

from headcount.advisor.decide import Table, one_sided
from headcount.advisor.engine import TrialEngine
from headcount.advisor.record import Curve, CurveKind, CurvePoint, LengthPoint, Price
from headcount.advisor.search import Search
from headcount.advisor.trials import Outcome, Wanted
from headcount.analysis import HeadsNeeded
from headcount.core import BadInput

ROUNDS = 3
"""Models a head count of the other curves, where the time suffices."""
GROUPS = 3
FEWEST = 50
"""Validation sequences that a group of lengths needs."""


def curve_points(found: Sequence[Outcome], floor: float, step: dict[int, float]) -> list[CurvePoint]:
    """Return one point a head count."""
    table = Table.of(found)
    points: list[CurvePoint] = []
    for i, heads in enumerate(table.heads):
        best, row = table.best(i), table.trials[i]
        errors = sorted(one.validation for one in row)
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
    """Measure the time of a training step on one core, or on the GPU, for each head count."""
    return {h: search.engine.step_seconds(search.options, h, search.train) for h in heads}


def prices(
    points: Sequence[CurvePoint], found: Sequence[Outcome], answer: int, confidence: float, inflation: float
) -> list[Price]:
    """Compare the neighbours of the recommended head count with it."""
    at = {point.heads: point for point in points}
    table = Table.of(found)
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
    """Train the neighbours of the answer at its width and at its parameter count, as far as the time goes.

    A round is one model each, all with the seed and the recipe of one model of the answer, which is the same on all
    three curves; there are up to `ROUNDS`, and a later one counts if all of it was trained to the end.
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
    new, count = _trained([[one for one in wanted if _fits(engine, one)] for wanted in rounds], engine)
    curves: list[Curve] = []
    for kind, fixed, _ in plans:
        others = [one for one in new if one.wanted.tag == kind]
        if others:
            points = curve_points([*others, *own[:count]], decision.noise_floor or 0.0, {})
            curves.append(Curve(kind=kind, fixed=fixed, points=points))
    return curves


def _seeds_of(search: Search, answer: int) -> list[Outcome]:
    """The models of the answer that the rounds go with: first the best kept one, then others of the same recipe."""
    own = [one for one in search.found if one.heads == answer]
    own.sort(key=lambda one: (not one.whole, one.wanted.train != search.train, one.wanted.seed))
    return [own[0], *(one for one in own[1:] if one.whole and one.wanted.train == own[0].wanted.train)][:ROUNDS]


def _trained(rounds: Sequence[Sequence[Wanted]], engine: TrialEngine) -> tuple[list[Outcome], int]:
    """Train the rounds, on a GPU side by side and else one after the other; return also how many of them count."""
    if engine.gpu:
        return _counting(rounds, engine.try_out([one for wanted in rounds for one in wanted]))
    new: list[Outcome] = []
    for number, wanted in enumerate(rounds):
        start = time.monotonic()
        got = engine.try_out(wanted)
        if number and (len(got) < len(wanted) or not all(one.whole for one in got)):
            return new, number
        new += got
        if 1.1 * (time.monotonic() - start) > engine.left():
            return new, number + 1
    return new, len(rounds)


def _counting(rounds: Sequence[Sequence[Wanted]], found: Sequence[Outcome]) -> tuple[list[Outcome], int]:
    """Of rounds that ended at the same time: none where the time was over, the first, and later ones that are whole."""
    new: list[Outcome] = []
    for number, wanted in enumerate(rounds):
        asked = {id(one) for one in wanted}
        got = [one for one in found if id(one.wanted) in asked]
        whole = [one for one in got if one.whole]
        if len(whole) < (len(wanted) if number else 1):
            return new, number
        new += got if number else whole
    return new, len(rounds)


def _fits(engine: TrialEngine, wanted: Wanted) -> bool:
    """Whether so many heads fit into the parameters at all."""
    try:
        engine.sized(wanted)
    except BadInput:
        return False
    return True


def by_length(engine: TrialEngine, best: Outcome) -> list[LengthPoint]:
    """Return the best model's error on short, middle and long sequences, where lengths vary."""
    mask = engine.material.task.mask
    if mask is None:
        return []
    lengths = mask[engine.material.splits.validated].sum(1)
    edges = np.unique(np.quantile(lengths, np.linspace(0, 1, GROUPS + 1)))
    points: list[LengthPoint] = []
    for low, high in itertools.pairwise(edges):
        inside = (lengths >= low) & ((lengths < high) | (high == edges[-1]))
        if int(inside.sum()) >= FEWEST:
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
