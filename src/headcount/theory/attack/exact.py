"""From a pair of inputs that collide to rounding to one that is proved: the witness of `recheck.witness`.

Given are two sequences in float64 whose heads return nearly the same. As many coordinates as there are equations are
solved for, those that column-pivoted QR finds to move the outputs most independently, among those that the box leaves
free to move; where the task's tokens lie on the sphere, the equations that hold them there are among them. Newton's
method in extended precision gives the coordinates ~200 bits, a box around them is tried with Krawczyk's test, and what
the verifier proves is what the witness claims. Where that fails, the pair itself is a witness still, of inputs that
nearly collide.
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
PRECISION = 224  # bits of Newton's method
BITS = 160  # binary places of the numbers that are solved for
RADII = range(-133, -30, 12)  # exponents of the radii tried
ITERATIONS, LARGE = 25, 1e-6  # of Newton's method, and steps after which the slopes are computed anew
FREE = 1e-6  # of the box's side: what a coordinate must be away from its ends to be solved for


def prove_pair(
    model: Weights | Path | str,
    task: dict[str, Any],
    box: Sequence[Sequence[float]],
    region: dict[str, list[float]] | None,
    output: int,
    X1: ArrayLike,
    X2: ArrayLike,
) -> dict[str, Any]:
    """Return the data of a witness for a pair of inputs, all but its provenance: exact if it can be, or else near.

    model: a model folder, or its weights read once with `read_weights`. task: what `Task.data()` writes. X1, X2:
    float64[length, dim], in the box and the region.
    """
    weights = model if isinstance(model, Weights) else read_weights(Path(model))
    X = np.stack([np.asarray(X1, np.float64), np.asarray(X2, np.float64)])
    corners = [[float(v) for v in corner] for corner in box]
    stated: dict[str, Any] = {
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
        return _exact(stated, weights, X) or _claim({**stated, "kind": "near", **sequences(X.flatten(), X)}, weights)
    except Rejected as error:
        raise BadInput(f"the pair is no witness of this model, task and box: {error}") from None


def _exact(stated: dict[str, Any], weights: Weights, X: Array) -> dict[str, Any] | None:
    """Return the exact witness, or None."""
    before, ctx.prec = ctx.prec, PRECISION
    try:
        heads, T = reader(weights, X.shape[1]), X.shape[1]
        both: list[Sequences] = [*_split([arb(v) for v in X.flatten().tolist()], X.shape)]
        norms = has_unit_tokens(stated["task"], both)
        found = _proved(stated, weights, X, Equations(heads, T, norms))
        if found or not isinstance(heads, Heads) or not shares_pieces(weights):
            return found
        pooled = Pooled(heads, both)  # where tokens share linear pieces of the encoder, fewer equations may do
        return _proved(stated, weights, X, Equations(pooled, T, norms)) if pooled.count < heads.count else None
    finally:
        ctx.prec = before


def _proved(stated: dict[str, Any], weights: Weights, X: Array, system: Equations) -> dict[str, Any] | None:
    """Solve the equations and let the verifier try growing radii."""
    found = _solve(system, X, stated["box"])
    if found is None:
        return None
    numbers, solved = found
    for exponent in RADII:
        witness = {**stated, **sequences(numbers, X), "solved": solved, "radius": ["1", exponent]}
        try:
            return _claim(witness, weights)
        except NoInclusion:
            continue
        except Rejected:  # it leaves the box or the region, and a wider one would too
            return None
    return None


def _claim(witness: dict[str, Any], weights: Weights) -> dict[str, Any]:
    """Let the verifier prove what it can, and claim that."""
    proved = prove(witness, weights)
    return {**witness, "claims": {name: getattr(proved, name) for name in CLAIMS}}


def _solve(system: Equations, X: Array, box: list[list[float]]) -> tuple[list[float | Fraction], list[int]] | None:
    """Solve the equations; None where too few coordinates are free, or Newton's method does not converge."""
    x = [arb(v) for v in X.flatten().tolist()]
    try:
        columns = _slopes(system, x, X.shape)
        solved = _choose(np.array([[float(v) for v in column] for column in columns]).T, X, box)
        return None if solved is None else _newton(system, x, X.shape, solved, columns)
    except ZeroDivisionError:  # the system is singular
        return None


def _choose(jacobian: Array, X: Array, box: list[list[float]]) -> list[int] | None:
    """Choose as many coordinates as there are equations, all of them free to move within the box."""
    low, high = (np.broadcast_to(corner, X.shape).flatten() for corner in box)
    margin = FREE * (high - low)
    free = np.flatnonzero((X.flatten() >= low + margin) & (X.flatten() <= high - margin))
    if len(free) < len(jacobian) or not np.isfinite(jacobian).all():
        return None
    factors: Any = scipy.linalg.qr(jacobian[:, free], mode="r", pivoting=True)
    return sorted(int(k) for k in free[factors[1][: len(jacobian)]])


def _newton(
    system: Equations, x: list[arb], shape: tuple[int, ...], solved: list[int], columns: list[list[arb]]
) -> tuple[list[float | Fraction], list[int]] | None:
    """Newton's method, with slopes computed anew only as long as the steps are large: they cost the most."""
    for _ in range(ITERATIONS):
        square = arb_mat([columns[k] for k in solved]).transpose()
        residual = system.residual(_split(x, shape))
        step = square.solve(arb_mat([[v.mid()] for v in residual])).mid().entries()
        for k, v in zip(solved, step, strict=True):
            x[k] = (x[k] - v).mid()
        if all(abs(v) < arb(2) ** -(BITS + 8) for v in step):
            return [_rounded(v) if k in solved else float(v) for k, v in enumerate(x)], solved
        if not all(abs(v) < LARGE for v in step):
            columns = _slopes(system, x, shape)
    return None


def _slopes(system: Equations, x: list[arb], shape: tuple[int, ...]) -> list[list[arb]]:
    """Return midpoints of the equations' slopes, one list a coordinate."""
    return [[v.mid() for v in column] for column in system.columns(_split(x, shape))]


def _split(x: list[arb], shape: tuple[int, ...]) -> tuple[list[list[arb]], list[list[arb]]]:
    _, T, d = shape
    rows = [x[k : k + d] for k in range(0, 2 * T * d, d)]
    return rows[:T], rows[T:]


def _rounded(value: arb) -> Fraction:
    """Return the nearest number with BITS binary places."""
    scaled = (value * arb(2) ** BITS + number(0.5)).floor().mid()
    return Fraction(int(scaled.fmpz()), 2**BITS)


def sequences(numbers: Sequence[float | Fraction] | Array, X: Array) -> dict[str, Any]:
    """Return X1 and X2 as the witness states them: [mantissa, exponent], exact."""
    flat = [_dyadic(Fraction(v)) for v in numbers]
    _, T, d = X.shape
    rows = [flat[k : k + d] for k in range(0, 2 * T * d, d)]
    return {"X1": rows[:T], "X2": rows[T:]}


def _dyadic(value: Fraction) -> list[str | int]:
    return [str(value.numerator), 1 - value.denominator.bit_length()]
