"""Two-layer ReLU networks near given functions, with proved errors.

Ridge sums become piecewise linear (`ridges`, `piecewise_linear`), with a unit relu(a·x − knot) for every knot, shared
by all functions that read the same form. Affine parts take one unit per coordinate, relu(x_j − low_j), which is linear
on the box. All other functions are fitted (`fit`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headcount.core import BadInput
from headcount.tasks.expressions import Expr
from headcount.theory.construct.fit import fit
from headcount.theory.construct.network import Shallow
from headcount.theory.construct.piecewise_linear import bend, pieces
from headcount.theory.construct.ridges import Direction, RidgeSum, ridges

Array = NDArray[np.float64]
TOLERANCE_FRACTION = 0.9  # of a tolerance is used; the verifier's enclosures need the rest


def exact(f: Expr, dim: int) -> list[bool]:
    """Return for every component whether it is affine, and so represented without error."""
    return [part is not None and not part.functions for part in ridges(f, dim)]


def difficulty(f: Expr) -> float:
    """Return a function's weight in sharing an error budget: 1 for a piecewise linear network, more for a fit."""
    if ridges(f, f.in_dim)[0] is not None:
        return 1.0
    return {1: 1.0, 2: 3.0}.get(len(f.reads()), 6.0)


def shallow(
    functions: Sequence[Expr], tolerances: Sequence[float], low: Array, high: Array, names: Sequence[str]
) -> Shallow:
    """Return one network for all components of all functions.

    tolerances[k] is for the k-th component, and names[k] begins the message if that component cannot be built.
    """
    dim = len(low)
    parts = [part for f in functions for part in ridges(f, dim)]
    owners = [(f, k) for f in functions for k in range(f.out_dim)]
    net = _lines(parts, tolerances, low, high, names)
    for k, part in enumerate(parts):
        if part is None:
            f, component = owners[k]
            try:
                net = _join(net, fit(f, component, tolerances[k], low, high), k)
            except BadInput as error:
                raise BadInput(f"{names[k]} {error}") from None
    return net


def _lines(
    parts: Sequence[RidgeSum | None], tolerances: Sequence[float], low: Array, high: Array, names: Sequence[str]
) -> Shallow:
    """Return the network of all parts that are ridge sums; the outputs of the other parts are 0."""
    dim, count = len(low), len(parts)
    rows, shifts, columns = list[Array](), list[float](), list[Array]()
    bias, errors = np.zeros(count), [0.0] * count
    shares = [_shares(part, TOLERANCE_FRACTION * tol, low, high) for part, tol in zip(parts, tolerances, strict=True)]
    slopes, lowest = np.zeros((count, dim)), dict[int, int]()
    for k, part in enumerate(parts):
        if part is not None:
            slopes[k] = part.weight
            bias[k] += part.bias
    for a in dict.fromkeys(a for part in parts if part is not None for a in part.functions):
        readers = [k for k, part in enumerate(parts) if part is not None and a in part.functions]
        functions = [part.functions[a] for k in readers if (part := parts[k]) is not None]
        start, end = extent(a, low, high)
        try:
            found = pieces(functions, [shares[k][a] for k in readers], start, end)
        except BadInput as error:
            raise BadInput(f"{names[readers[0]]} {error}") from None
        steep = np.diff(found.values) / np.diff(found.knots)
        change = np.diff(steep, axis=1, prepend=0.0)
        axis = a.index(1.0) if sorted(a) == [0.0] * (dim - 1) + [1.0] else None
        if axis is not None:
            lowest[axis] = len(rows)
        for j, knot in enumerate(found.knots[:-1]):
            column = np.zeros(count)
            column[readers] = change[:, j]
            rows.append(np.array(a))
            shifts.append(-float(knot))
            columns.append(column)
        bias[readers] += found.values[:, 0]
        for k, err in zip(readers, found.errors, strict=True):
            errors[k] += err
    for j in map(int, np.flatnonzero(slopes.any(axis=0))):
        if j not in lowest:
            lowest[j] = len(rows)
            rows.append(np.eye(dim)[j])
            shifts.append(-float(low[j]))
            columns.append(np.zeros(count))
        columns[lowest[j]] = columns[lowest[j]] + slopes[:, j]
        bias -= slopes[:, j] * shifts[lowest[j]]
    inner, shift = np.array(rows).reshape(len(rows), dim), np.array(shifts)
    outer = np.array(columns).reshape(len(rows), count).T.copy()
    unit_maxima = np.maximum(inner, 0) @ high + np.minimum(inner, 0) @ low + shift  # the units' largest values
    size = np.abs(outer) @ np.abs(unit_maxima) + np.abs(bias)  # what rounding is relative to
    claimed = [err / TOLERANCE_FRACTION + 1e-12 * (1 + float(s)) for err, s in zip(errors, size, strict=True)]
    return Shallow(inner, shift, outer, bias, claimed)


def _shares(part: RidgeSum | None, tolerance: float, low: Array, high: Array) -> dict[Direction, float]:
    """Divide a tolerance δ among the forms so that the number of pieces is least.

    A form a of length L_a and curvature c_a takes about L_a·sqrt(c_a/δ_a) pieces. With Σ δ_a = δ, their sum is least
    for δ_a proportional to (L_a²·c_a)^(1/3).
    """
    if part is None or not part.functions:
        return {}
    weights: dict[Direction, float] = {}
    for a, g in part.functions.items():
        start, end = extent(a, low, high)
        weights[a] = ((end - start) ** 2 * max(abs(v) for v in bend(g, start, end))) ** (1 / 3) + 1e-300
    total = sum(weights.values())
    return {a: tolerance * w / total for a, w in weights.items()}


def extent(a: Direction, low: Array, high: Array) -> tuple[float, float]:
    """Return the range of a·x on the box, slightly widened if several coordinates contribute."""
    w = np.array(a)
    if np.count_nonzero(w) == 1:
        ends = (w * low).sum(), (w * high).sum()
        return float(min(ends)), float(max(ends))
    middle, radius = float(w @ (low + high) / 2), float(np.abs(w) @ (high - low) / 2)
    spare = 1e-14 * (abs(middle) + radius)
    return middle - radius - spare, middle + radius + spare


def _join(net: Shallow, other: Shallow, k: int) -> Shallow:
    """Return a network with the units of a one-output network added to output k."""
    outer = np.zeros((len(net.outer), other.units))
    outer[k] = other.outer[0]
    bias = net.outer_bias.copy()
    bias[k] += other.outer_bias[0]
    errors = [other.errors[0] if i == k else err for i, err in enumerate(net.errors)]
    return Shallow(
        np.concatenate([net.inner, other.inner]),
        np.concatenate([net.inner_bias, other.inner_bias]),
        np.concatenate([net.outer, outer], axis=1),
        bias,
        errors,
    )
