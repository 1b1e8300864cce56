"""Turn a pair of inputs that collide up to rounding into a proved witness for `recheck.witness`.

The input is two sequences in float64 for which the heads return nearly the same. We solve for as many coordinates as
there are equations, choosing by column-pivoted QR those that move the outputs most independently, among the coordinates
that can move freely within the box. If the task's tokens lie on the sphere, the equations include their norms.
Newton's method in extended precision computes the coordinates to about 200 bits, then Krawczyk's test is tried on boxes
around them. The witness claims exactly what the verifier proves. If no test succeeds, the pair itself is still a
witness of inputs that nearly collide.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg
from flint import arb, arb_mat, ctx
from numpy.typing import ArrayLike, NDArray

from headcount.core import BadInput
from headcount.core.readers import CLAIMS, WITNESS
from headcount.core.readers import STATEMENT_VERSION as VERSION
from headcount.recheck import (
    Equations,
    Heads,
    NoInclusion,
    Pooled,
    Rejected,
    Sequences,
    Weights,
    has_unit_tokens,
    number,
    prove,
    read_weights,
    reader,
    shares_pieces,
)

Array = NDArray[np.float64]
NEWTON_BITS = 224  # working precision of Newton's method
SOLUTION_BITS = 160  # binary places of the solved coordinates
RADIUS_EXPONENTS = range(-133, -30, 12)  # the radii tried are powers of two with these exponents
MAX_ITERATIONS = 25  # of Newton's method
LARGE_STEP = 1e-6  # after a larger step, Newton's method recomputes the slopes
FREE_MARGIN = 1e-6  # distance from the box's faces, as a fraction of its side, of a coordinate that may be solved for


def prove_pair(
    model: Weights | Path | str,
    task: dict[str, Any],
    box: Sequence[Sequence[float]],
    region: dict[str, list[float]] | None,
    output: int,
    X1: ArrayLike,
    X2: ArrayLike,
) -> dict[str, Any]:
    """Return the data of a witness for a pair of inputs, without provenance: exact if provable, otherwise near.

    model: a model folder, or its weights as returned by `read_weights`. task: the result of `Task.data()`. X1, X2:
    float64[length, dim], within the box and the region.
    """
    weights = model if isinstance(model, Weights) else read_weights(Path(model))
    X = np.stack([np.asarray(X1, np.float64), np.asarray(X2, np.float64)])
    corners = [[float(v) for v in corner] for corner in box]
    statement: dict[str, Any] = {
        "format": WITNESS.format,
        "version": VERSION,
        "kind": "exact",
        "model": weights.hash,
        "task": task,
        "box": corners,
        "region": region,
        "output": output,
    }
    try:
        return _exact(statement, weights, X) or _claim(
            {**statement, "kind": "near", **sequences(X.flatten(), X)}, weights
        )
    except Rejected as error:
        raise BadInput(f"the pair is not a witness for this model, task and box: {error}") from None


def _exact(statement: dict[str, Any], weights: Weights, X: Array) -> dict[str, Any] | None:
    """Return the exact witness, or None if none can be proved."""
    before, ctx.prec = ctx.prec, NEWTON_BITS
    try:
        heads, T = reader(weights, X.shape[1]), X.shape[1]
        both: list[Sequences] = [*_split([arb(v) for v in X.flatten().tolist()], X.shape)]
        norms = has_unit_tokens(statement["task"], both)
        result = _solve_and_prove(statement, weights, X, Equations(heads, T, norms))
        if result or not isinstance(heads, Heads) or not shares_pieces(weights):
            return result
        pooled = Pooled(heads, both)  # if tokens share linear pieces of the encoder, fewer equations may suffice
        return (
            _solve_and_prove(statement, weights, X, Equations(pooled, T, norms)) if pooled.count < heads.count else None
        )
    finally:
        ctx.prec = before


def _solve_and_prove(statement: dict[str, Any], weights: Weights, X: Array, system: Equations) -> dict[str, Any] | None:
    """Solve the equations, then let the verifier try growing radii."""
    result = _solve(system, X, statement["box"])
    if result is None:
        return None
    numbers, solved = result
    for exponent in RADIUS_EXPONENTS:
        witness = {**statement, **sequences(numbers, X), "solved": solved, "radius": ["1", exponent]}
        try:
            return _claim(witness, weights)
        except NoInclusion:
            continue
        except Rejected:  # it leaves the box or the region, and so would a larger radius
            return None
    return None


def _claim(witness: dict[str, Any], weights: Weights) -> dict[str, Any]:
    """Return the witness with the claims that the verifier proves."""
    proved = prove(witness, weights)
    return {**witness, "claims": {name: getattr(proved, name) for name in CLAIMS}}


def _solve(system: Equations, X: Array, box: list[list[float]]) -> tuple[list[float | Fraction], list[int]] | None:
    """Solve the equations; None if too few coordinates are free or Newton's method does not converge."""
    x = [arb(v) for v in X.flatten().tolist()]
    try:
        columns = _slopes(system, x, X.shape)
        solved = _choose(np.array([[float(v) for v in column] for column in columns]).T, X, box)
        return None if solved is None else _newton(system, x, X.shape, solved, columns)
    except ZeroDivisionError:  # the system is singular
        return None


def _choose(jacobian: Array, X: Array, box: list[list[float]]) -> list[int] | None:
    """Choose as many coordinates as there are equations, all free to move within the box; None if there are too few."""
    low, high = (np.broadcast_to(corner, X.shape).flatten() for corner in box)
    margin = FREE_MARGIN * (high - low)
    free = np.flatnonzero((X.flatten() >= low + margin) & (X.flatten() <= high - margin))
    if len(free) < len(jacobian) or not np.isfinite(jacobian).all():
        return None
    factors: Any = scipy.linalg.qr(jacobian[:, free], mode="r", pivoting=True)
    return sorted(int(k) for k in free[factors[1][: len(jacobian)]])


def _newton(
    system: Equations, x: list[arb], shape: tuple[int, ...], solved: list[int], columns: list[list[arb]]
) -> tuple[list[float | Fraction], list[int]] | None:
    """Apply Newton's method; slopes, the expensive part, are recomputed only after large steps."""
    for _ in range(MAX_ITERATIONS):
        square = arb_mat([columns[k] for k in solved]).transpose()
        residual = system.residual(_split(x, shape))
        step = square.solve(arb_mat([[v.mid()] for v in residual])).mid().entries()
        for k, v in zip(solved, step, strict=True):
            x[k] = (x[k] - v).mid()
        if all(abs(v) < arb(2) ** -(SOLUTION_BITS + 8) for v in step):
            return [_rounded(v) if k in solved else float(v) for k, v in enumerate(x)], solved
        if not all(abs(v) < LARGE_STEP for v in step):
            columns = _slopes(system, x, shape)
    return None


def _slopes(system: Equations, x: list[arb], shape: tuple[int, ...]) -> list[list[arb]]:
    """Return the midpoints of the equations' slopes, one list per coordinate."""
    return [[v.mid() for v in column] for column in system.columns(_split(x, shape))]


def _split(x: list[arb], shape: tuple[int, ...]) -> tuple[list[list[arb]], list[list[arb]]]:
    _, T, d = shape
    rows = [x[k : k + d] for k in range(0, 2 * T * d, d)]
    return rows[:T], rows[T:]


def _rounded(value: arb) -> Fraction:
    """Return the nearest number with SOLUTION_BITS binary places."""
    scaled = (value * arb(2) ** SOLUTION_BITS + number(0.5)).floor().mid()
    return Fraction(int(scaled.fmpz()), 2**SOLUTION_BITS)


def sequences(numbers: Sequence[float | Fraction] | Array, X: Array) -> dict[str, Any]:
    """Return X1 and X2 in the form of the witness: every number as an exact [mantissa, exponent]."""
    flat = [_dyadic(Fraction(v)) for v in numbers]
    _, T, d = X.shape
    rows = [flat[k : k + d] for k in range(0, 2 * T * d, d)]
    return {"X1": rows[:T], "X2": rows[T:]}


def _dyadic(value: Fraction) -> list[str | int]:
    return [str(value.numerator), 1 - value.denominator.bit_length()]
