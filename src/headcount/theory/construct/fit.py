"""Fit a two-layer network to a function of up to three numbers that is not a ridge sum, then prove its error.

The units are relu(a·x − knot), with evenly spread directions a and evenly spread knots along each. With these fixed,
the best outer weights solve a linear problem. Lawson's iteration (weight every point by its error and solve again)
leads from least squares to the minimax error. The claimed error is the one that branch and bound proves for the result.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from flint import arb, ctx
from numpy.typing import NDArray

from headcount.core import BadInput
from headcount.recheck import PRECISION, Network, difference
from headcount.tasks.expressions import Expr
from headcount.tasks.expressions import in_numpy as expr_numpy
from headcount.theory.construct.network import Shallow

Array = NDArray[np.float64]
MAX_UNITS = 400
LAWSON_ROUNDS = 12
MIN_FRACTION_3D = 0.01  # smallest tolerance for a function of three numbers, as a fraction of its range


def fit(f: Expr, component: int, tolerance: float, low: Array, high: Array) -> Shallow:
    """Return a network that is proved to be within the tolerance of one component of f; reject f if none is found."""
    if not f.smooth:
        kinks = sorted({node.op for node in f.walk()} & {"min", "max", "norm"})
        raise BadInput(f"uses {', '.join(kinks)}, which has kinks: networks are built for smooth functions")
    axes = np.array(sorted(_reads(f, component)))
    if len(axes) > 3:
        raise BadInput(
            f"is not a sum of functions of one number and reads {len(axes)} numbers: at most 3 can be fitted"
        )
    middle, half = (low + high)[axes] / 2, (high - low)[axes] / 2

    def values(u: Array) -> Array:
        x = np.tile((low + high) / 2, (len(u), 1))
        x[:, axes] = middle + half * u
        return expr_numpy.evaluate(f, x)[:, component]

    coarse, fine = _grid(len(axes), 45 if len(axes) < 3 else 13), _grid(len(axes), 90 if len(axes) < 3 else 24)
    wanted, check = values(coarse), values(fine)
    if len(axes) == 3 and tolerance < MIN_FRACTION_3D * np.ptp(check):  # a proof would take millions of boxes
        raise BadInput(
            f"is not a sum of functions of one number and reads 3 numbers: error {tolerance:.3g} is out of reach; "
            f"{MIN_FRACTION_3D * np.ptp(check):.2g} is not: state a larger eps"
        )
    best = math.inf
    for a, knots in _features(len(axes)):
        weights, bias = _lawson(np.maximum(coarse @ a.T - knots, 0.0), wanted, 0.8 * tolerance)
        error = np.abs(np.maximum(fine @ a.T - knots, 0.0) @ weights + bias - check).max()
        best = min(best, float(error))
        if error > 0.8 * tolerance:
            continue
        inner = np.zeros((len(a), len(low)))
        inner[:, axes] = a / half
        shift = -knots - (a * (middle / half)).sum(1)
        proved = prove(f, component, inner, shift, weights, bias, low, high, tolerance)
        if proved <= tolerance:
            return Shallow(inner, shift, weights[None], np.array([bias]), [proved])
        best = min(best, proved)
    raise BadInput(
        f"cannot be fitted within {tolerance:.3g} by {MAX_UNITS} units ({best:.3g} was reached): state a larger eps"
    )


def prove(
    f: Expr,
    component: int,
    inner: Array,
    shift: Array,
    weights: Array,
    bias: float,
    low: Array,
    high: Array,
    enough: float,
) -> float:
    """Return a proved bound on |network − f| on the box."""
    before, ctx.prec = ctx.prec, PRECISION
    try:
        below, above = difference(Network(inner, shift, weights, arb(bias)), f, component, low, high, enough)
    finally:
        ctx.prec = before
    return max(abs(below), abs(above))


def _reads(f: Expr, component: int) -> frozenset[int]:
    return f[component].reads() if f.out_dim > 1 else f.reads()


def _grid(dim: int, count: int) -> Array:
    """Return points of [−1, 1]^dim, denser towards the faces, where errors are largest."""
    side = -np.cos(np.linspace(0.0, math.pi, count))
    return np.stack([g.ravel() for g in np.meshgrid(*[side] * dim)], axis=1)


def _directions(dim: int, count: int) -> Array:
    """Return unit vectors spread over half of the circle or the sphere."""
    if dim == 1:
        return np.ones((1, 1))
    if dim == 2:
        angle = math.pi * np.arange(count) / count
        return np.stack([np.cos(angle), np.sin(angle)], axis=1)
    z = (np.arange(count) + 0.5) / count
    angle = math.pi * (3 - math.sqrt(5)) * np.arange(count)
    return np.stack([np.sqrt(1 - z * z) * np.cos(angle), np.sqrt(1 - z * z) * np.sin(angle), z], axis=1)


def _features(dim: int) -> Iterator[tuple[Array, Array]]:
    """Yield directions and knots of ever larger networks."""
    counts = {1: (1,), 2: (4, 5, 6, 8, 10, 12), 3: (9, 13, 18, 24)}[dim]
    knots = (2, 3, 4, 6, 8, 11, 15, 20, 27, 36, 48, 64)
    sizes = sorted({(p * m, p, m) for p in counts for m in knots if p * m <= MAX_UNITS})
    for _, p, m in sizes:
        a = _directions(dim, p)
        reach = np.abs(a).sum(1)
        yield np.repeat(a, m, axis=0), (reach[:, None] * (-1 + 2 * np.arange(m) / m)).ravel()


def _lawson(units: Array, wanted: Array, tolerance: float) -> tuple[Array, float]:
    """Return outer weights and bias with nearly minimax error; stop early if the error stays far too large."""
    design = np.concatenate([units, np.ones((len(units), 1))], axis=1)
    weight, best, found = np.full(len(design), 1.0 / len(design)), math.inf, np.zeros(design.shape[1])
    for _ in range(LAWSON_ROUNDS):
        root = np.sqrt(weight)[:, None]
        scaled = design * root
        gram = scaled.T @ scaled
        gram[np.diag_indices_from(gram)] += 1e-12 * gram.trace()
        solved = np.asarray(np.linalg.solve(gram, scaled.T @ (wanted * root[:, 0])), np.float64)
        error = np.abs(design @ solved - wanted)
        if error.max() < best:
            best, found = float(error.max()), solved
        if best > 3 * tolerance:  # Lawson's iteration gains at most a small factor
            break
        weight = weight * (error + 1e-3 * error.max() + 1e-300)
        weight /= weight.sum()
    return found[:-1], float(found[-1])
