"""Scaling: error against the hidden size N, the parameters that equal errors take, and what Theorem 2 (2) would say."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from headcount.analysis.bootstrap import Drawn, interval, line_slope
from headcount.analysis.record import EqualError, Scaling
from headcount.analysis.rows import size
from headcount.store.records import Run
from headcount.theory.lower import exponents

LEVELS = 3
"""How many errors are compared at each head count."""


def by_length(drawn: Sequence[Drawn]) -> dict[int, list[Drawn]]:
    """Sort the blocks of a setting by length, each list in order of hidden size."""
    found: dict[int, list[Drawn]] = {}
    for one in sorted(drawn, key=lambda d: (d.block.length, d.block.hidden)):
        found.setdefault(one.block.length, []).append(one)
    return found


def scaling(drawn: Sequence[Drawn]) -> Iterator[Scaling]:
    """Return the slope of log error in log N for each length and head count with at least two hidden sizes."""
    for length, some in by_length(drawn).items():
        block = some[0].block
        for i, heads in enumerate(block.heads):
            use = [d for d in some if np.isfinite(d.level[0, i])]
            if len(use) < 2:
                continue
            sizes = np.log10([d.block.hidden for d in use])
            found = line_slope(sizes, np.stack([d.level[:, i] for d in use], 1))
            low, high = interval(found)
            half, note = theory(block.panels[0][1], heads, length)
            yield Scaling(
                setting=block.setting, heads=heads, length=length, slope=float(found[0]), low=low, high=high,
                points=[(d.block.hidden, float(10 ** d.level[0, i])) for d in use],
                theory=None if half is None else -1 / half, half_k=half, theory_note=note,
            )  # fmt: skip


def theory(run: Run, heads: int, length: int) -> tuple[float | None, str]:
    """Return k/2 of Theorem 2 (2) where k > 0, and in words why it is no prediction here.

    M = Ω(1/ε^k) for the sup error ε; were NMSE = ε², log M would rise by k/2 per decade of 1/NMSE.
    """
    D = run.intrinsic
    if D is None:
        return None, "the task has no known D"
    if heads >= D:
        return None, "enough heads: the bound speaks of fewer than D"
    sets = run.task.get("S")
    smallest = min((len(s) for s in sets), default=length) if isinstance(sets, list) else length
    _, sharp = exponents(
        length=length, heads=heads, head_dim=max(size(run, "head_dim"), 1), intrinsic=D,
        smallest_set=min(max(smallest, 1), length),
    )  # fmt: skip
    if sharp.vacuous:
        return None, f"vacuous here: k = {sharp.k:.2f}, it bites from T = {sharp.bites_from_length}"
    return sharp.k / 2, f"outside the assumptions: {', '.join(_outside(run))}"


def _outside(run: Run) -> list[str]:
    """Name the assumptions that a trained model breaks; the first two it always breaks."""
    found = ["NMSE is no sup error", "trained weights are not bounded by 1"]
    law: object = run.task.get("law")
    if isinstance(law, Mapping) and "gaussian" in str(law.values()).lower() and "limit" not in law:
        found.append("Gaussian tokens are not bounded")
    if int((run.spec.get("model") or {}).get("depth", 1)) > 1:
        found.append("more than one layer")
    return found


def equal_errors(drawn: Sequence[Drawn]) -> Iterator[EqualError]:
    """Return, for each head count, the parameters M that reach a few errors, against the length.

    M is interpolated between neighbouring hidden sizes, linearly in log M and log error; it is None where no tried
    size reaches the error, or where already the smallest is better, since the M that just reaches it is not known.
    """
    lengths = by_length(drawn)
    for i, heads in enumerate(drawn[0].block.heads):
        curves = {length: _curve(some, i) for length, some in lengths.items()}
        curves = {length: curve for length, curve in curves.items() if len(curve) >= 2}
        if not curves:
            continue
        for level in _levels(list(curves.values())):
            points = [(length, _cross(curve, level)) for length, curve in curves.items()]
            if any(M is not None for _, M in points):
                yield EqualError(
                    setting=drawn[0].block.setting, heads=heads, error=float(10**level), points=points
                )  # fmt: skip


Curve = list[tuple[float, float]]
"""(log10 M, log10 error), by size."""


def _curve(drawn: Sequence[Drawn], column: int) -> Curve:
    heads = drawn[0].block.heads[column]
    found: Curve = []
    for d in drawn:
        sizes = [t.parameters for _, t in d.block.trials(heads) if t.parameters > 0]
        if sizes and np.isfinite(d.level[0, column]):
            found.append((float(np.log10(max(sizes))), float(d.level[0, column])))
    return sorted(found)


def _levels(curves: Sequence[Curve]) -> list[float]:
    """Choose a few round errors (1, 2, 5 times a power of ten) that two lengths or more pass, the more the better."""
    errors = [e for c in curves for _, e in c]
    powers = range(math.floor(min(errors)), math.ceil(max(errors)) + 1)
    for multiples in ((1, 2, 5), (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9)):  # finer where nothing round is passed
        round_ = [k + math.log10(m) for k in powers for m in multiples]
        passed = {level: sum(_cross(c, level) is not None for c in curves) for level in round_}
        useful = [level for level in round_ if passed[level] >= min(2, len(curves))]
        if useful:
            return sorted(sorted(useful, key=lambda level: -passed[level])[:LEVELS])
    return []


def _cross(curve: Curve, level: float) -> float | None:
    """Return the M at which the error first falls to a level."""
    for (m1, e1), (m2, e2) in itertools.pairwise(curve):
        if e1 >= level >= e2 and e1 > e2:
            return float(10 ** (m1 + (e1 - level) / (e1 - e2) * (m2 - m1)))
    return None
