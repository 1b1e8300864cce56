"""Piecewise linear functions within a given distance of functions of one number, proved by second derivatives.

On a piece of length L the chord lies above f by at most L²/8·max(f'', 0) and below f by at most L²/8·max(−f'', 0). If f
bends only one way, moving the whole line by half of that towards f halves the error. For f'' = 2, an error of δ allows
pieces of length sqrt(8δ), so their number grows like δ^(−1/2).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headcount.core import BadInput
from headcount.tasks.expressions import Expr, ball, ceil, floor, jets
from headcount.tasks.expressions import in_numpy as expr_numpy

Array = NDArray[np.float64]
MAX_PIECES = 20_000


@dataclass(frozen=True)
class Pieces:
    """Knots that all functions share, the values[functions, knots] there, and the proved errors."""

    knots: Array
    values: Array
    errors: list[float]


def bend(g: Expr, low: float, high: float) -> tuple[float, float]:
    """Enclose the second derivative on an interval."""
    second = jets(g, [ball(low, high)])[0].hessian.get((0, 0))
    return (0.0, 0.0) if second is None else (floor(second), ceil(second))


def pieces(functions: Sequence[Expr], tolerances: Sequence[float], low: float, high: float) -> Pieces:
    """Cover [low, high] greedily by few pieces, each within every function's tolerance."""
    one_way = [bend(g, low, high) for g in functions]
    signs = [1.0 if a >= 0 else -1.0 if b <= 0 else 0.0 for a, b in one_way]

    def errors(a: float, b: float) -> list[float]:
        found: list[float] = []
        for g, sign in zip(functions, signs, strict=True):
            least, most = bend(g, a, b)
            found.append((b - a) ** 2 / (16 if sign else 8) * max(abs(least), abs(most)))
        return found

    def fits(a: float, b: float) -> bool:
        return all(err <= tol for err, tol in zip(errors(a, b), tolerances, strict=True))

    knots, step, worst = [low], high - low, [0.0] * len(functions)
    while knots[-1] < high:
        a = knots[-1]
        step = _longest(fits, a, min(2 * step, high - a))
        b = min(a + step, high)
        if high - b < 1e-3 * step and fits(a, high):  # no sliver at the end
            b = high
        worst = [max(w, err) for w, err in zip(worst, errors(a, b), strict=True)]
        knots.append(b)
        if len(knots) > MAX_PIECES or not b > a:
            raise BadInput(f"needs more than {MAX_PIECES:,} pieces for an error of {min(tolerances):.3g}")
    at = np.array(knots)
    values = np.stack([expr_numpy.evaluate(g, at[:, None])[:, 0] for g in functions])
    shift = [sign * err for sign, err in zip(signs, worst, strict=True)]  # a convex f lies below its chords
    return Pieces(at, values - np.array(shift)[:, None], worst)


def _longest(fits: Callable[[float, float], bool], a: float, longest: float) -> float:
    """Return a length, within 2 % of the longest, on which the tolerances hold."""
    if fits(a, a + longest):
        return longest
    high, low = longest, longest / 2
    while not fits(a, a + low):
        high, low = low, low / 2
        if low < 1e-9 * max(1.0, abs(a)):
            raise BadInput(f"bends too sharply at {a:.6g} for a piecewise linear approximation in float64")
    while high > 1.02 * low:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if fits(a, a + middle) else (low, middle)
    return low
