"""Scaling: error against the hidden size N, the parameters M for equal errors, and k of Theorem 2 (2) beside them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from headcount.analysis.blocks import head_dim
from headcount.analysis.bootstrap import BlockDraws, grouped, interval, line_slope, paired
from headcount.analysis.record import Departure, EqualError, NoParameters, Scaling
from headcount.analysis.slopes import comparable
from headcount.store import Run
from headcount.theory.bounds import exponents

MAX_LEVELS = 3
"""How many errors are compared at each head count, at most."""


def scaling(drawn: Sequence[BlockDraws]) -> Iterator[Scaling]:
    """Return the slope of log error in log N for each length and head count with at least two hidden sizes."""
    for length, some in grouped(drawn, "length").items():
        block = some[0].block
        for i, heads in enumerate(block.heads):
            use = comparable(some, i)
            if len(use) < 2:
                continue
            levels = paired(use, i)
            found = line_slope(np.log10([d.block.hidden for d in use]), levels)
            low, high = interval(found)
            yield Scaling(
                setting=block.setting,
                heads=heads,
                length=length,
                slope=float(found[0]),
                low=low,
                high=high,
                points=[(d.block.hidden, float(10**level)) for d, level in zip(use, levels[0], strict=True)],
                **theory(block.panels[0][1], heads, length),
            )


def theory(run: Run, heads: int, length: int) -> dict[str, Any]:
    """Return the fields of `Scaling` that say what Theorem 2 (2) states at one head count and length.

    M = Ω(1/ε^k) for the sup error ε; were NMSE = ε², log M would rise by k/2 per decade of 1/NMSE.
    """
    D = run.intrinsic
    if D is None:
        return {"theory_verdict": "unknown-d"}
    if heads >= D:
        return {"theory_verdict": "enough-heads"}
    sets = run.task.get("S")
    smallest = min((len(s) for s in sets), default=length) if isinstance(sets, list) else length
    printed, sharp = exponents(
        length=length,
        heads=heads,
        head_dim=max(head_dim(run, heads), 1),
        intrinsic=D,
        smallest_set=min(max(smallest, 1), length),
    )
    return {
        "theory_verdict": "vacuous" if sharp.vacuous and printed.vacuous else "outside",
        "theory": None if sharp.vacuous else -2 / sharp.k,
        "half_k": None if sharp.vacuous else sharp.k / 2,
        "half_k_printed": None if printed.vacuous else printed.k / 2,
        "k": sharp.k,
        "k_printed": printed.k,
        "bites_from": sharp.bites_from_length,
        "bites_from_printed": printed.bites_from_length,
        "departures": _departures(run),
    }


def _departures(run: Run) -> list[Departure]:
    """List the assumptions that a trained model breaks; the first two it always breaks."""
    found: list[Departure] = ["nmse", "weights"]
    law: object = run.task.get("law")
    if isinstance(law, Mapping) and "gaussian" in str(law.values()).lower() and "limit" not in law:
        found.append("gaussian")
    if int((run.spec.get("model") or {}).get("depth", 1)) > 1:
        found.append("depth")
    linear = [_is_linear(f) for f in run.task.get("f", ())]
    if any(linear):  # then the Hessian at its minimiser is zero, not positive definite
        found.append("all-linear" if all(linear) else "some-linear")
    return found


def _is_linear(tree: Mapping[str, Any]) -> bool:
    """Whether the JSON of an expression has the form of a linear function."""
    below = tree.get("args") or ([tree["of"]] if "of" in tree else [])
    return tree.get("op") in ("variable", "affine", "stack", "sum") and all(map(_is_linear, below))


def equal_errors(drawn: Sequence[BlockDraws]) -> Iterator[EqualError]:
    """Return, for each head count, the parameters M that reach a few errors, by length.

    M is interpolated between neighbouring hidden sizes, linearly in log M and log error. It is None if no size that was
    tried reaches the error, or if the smallest size is already better: then the M that just reaches it is unknown.
    """
    for i, heads in enumerate(drawn[0].block.heads):
        curves = {length: curve for length, curve in _curves(drawn, i).items() if len(curve) >= 2}
        if not curves:
            continue
        for level in _levels(list(curves.values())):
            points = [(length, _cross(curve, level)) for length, curve in curves.items()]
            if any(M is not None for _, M in points):
                yield EqualError(
                    setting=drawn[0].block.setting,
                    heads=heads,
                    error=float(10**level),
                    points=points,
                    reasons=[_no_parameters(curve, level) for curve in curves.values()],
                )


Curve = list[tuple[float, float]]
"""(log10 M, log10 error), by size."""


def _curves(drawn: Sequence[BlockDraws], column: int) -> dict[int, Curve]:
    """Return the curve of every length at a head count; all levels are those of the same targets."""
    heads = drawn[0].block.heads[column]
    found: dict[int, Curve] = {}
    for d, level in zip(drawn, paired(drawn, column)[0], strict=True):
        sizes = [t.parameters for _, t in d.block.trials(heads) if t.parameters > 0]
        if sizes and np.isfinite(level):
            found.setdefault(d.block.length, []).append((float(np.log10(max(sizes))), float(level)))
    return {length: sorted(found[length]) for length in sorted(found)}


def _no_parameters(curve: Curve, level: float) -> NoParameters:
    """Return why a curve has no M for a level; empty if it has one."""
    if _cross(curve, level) is not None:
        return ""
    return "smaller N suffices" if curve[0][1] < level else "not reached"


def _levels(curves: Sequence[Curve]) -> list[float]:
    """Return up to `MAX_LEVELS` round errors (1, 2 or 5 times a power of ten), those that most lengths cross.

    Each is crossed by two lengths or more, or by the only one.
    """
    errors = [e for c in curves for _, e in c]
    powers = range(math.floor(min(errors)), math.ceil(max(errors)) + 1)
    for multiples in (
        (1, 2, 5),
        (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9),
    ):  # finer if no coarse one is crossed
        round_ = [k + math.log10(m) for k in powers for m in multiples]
        crossed = {level: sum(_cross(c, level) is not None for c in curves) for level in round_}
        useful = [level for level in round_ if crossed[level] >= min(2, len(curves))]
        if useful:
            return sorted(sorted(useful, key=lambda level: -crossed[level])[:MAX_LEVELS])
    return []


def _cross(curve: Curve, level: float) -> float | None:
    """Return the M at which the error first falls to a level."""
    for (m1, e1), (m2, e2) in itertools.pairwise(curve):
        if e1 >= level >= e2 and e1 > e2:
            return float(10 ** (m1 + (e1 - level) / (e1 - e2) * (m2 - m1)))
    return None
