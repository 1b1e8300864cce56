"""Functions of a pair of sequences for `pair_bounds`, affine up to remainders, and their linear programs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headcount.theory.enclose.intervals import Array, Interval, down, up
from headcount.theory.irreducible.affine_forms import AffineOutputs

Mask = NDArray[np.bool_]
Indices = NDArray[np.intp]
Program = tuple[Array, Array, Array, Array, Array, Array, Array]


@dataclass(frozen=True)
class Rows:
    """Functions of the pair, as base + Σ slope·ξ: first o(X) − o(X'), then f_j(x(t)) by side, token and j."""

    base: Interval  # [P, rows]
    slope: Interval  # [P, rows, coordinates]
    remainders: Array  # [P, rows, 2, T]
    outputs: int

    def select(self, index: Indices) -> Rows:
        """Return the rows of the indexed pairs."""
        return Rows(self.base[index], self.slope[index], self.remainders[index], self.outputs)


def stack_rows(near: AffineOutputs, f0: Array, fJ: Array, fR: Array, P: int) -> Rows:
    """Return all rows of P pairs, from their outputs and from the forms f0, fJ, fR of every f_j."""
    base, slope = split_sides(near.base), split_sides(near.slope)
    _, _, T, dim, m = slope.lo.shape
    D = f0.shape[-1]
    apart = base[:, 0] - base[:, 1]
    both = [np.stack([end[:, 0], turned[:, 1]], 1) for end, turned in ((slope.lo, -slope.hi), (slope.hi, -slope.lo))]
    lo, hi = (np.moveaxis(x, 4, 1).reshape(P, m, -1) for x in both)
    f_slope = np.zeros((P, 2, T, D, 2, T, dim))
    remainders = np.zeros((P, 2, T, D, 2, T))
    for s in range(2):
        for t in range(T):
            f_slope[:, s, t, :, s, t] = np.swapaxes(fJ[:, s, t], 1, 2)
            remainders[:, s, t, :, s, t] = fR[:, s, t]
    count = 2 * T * D
    f_slope, remainders = f_slope.reshape(P, count, -1), remainders.reshape(P, count, 2, T)
    spread = np.moveaxis(near.remainders.reshape(P, 2, T, m), 3, 1)
    return Rows(
        Interval(
            np.concatenate([apart.lo, down(f0 - fR).reshape(P, -1)], 1),
            np.concatenate([apart.hi, up(f0 + fR).reshape(P, -1)], 1),
        ),
        Interval(np.concatenate([lo, f_slope], 1), np.concatenate([hi, f_slope], 1)),
        np.concatenate([spread, remainders], 1),
        m,
    )


def split_sides(x: Interval) -> Interval:
    """Reshape two rows per pair, [2·P, …], to [P, 2, …]."""
    return Interval(x.lo.reshape(-1, 2, *x.lo.shape[1:]), x.hi.reshape(-1, 2, *x.hi.shape[1:]))


def linear_programs(rows: Rows, weight: Array, Z: Interval, fixed: Array, averaged: Mask) -> Program:
    """Return linear programs for `dual_simplex`: columns ξ, then z_j by side; rows of outputs, then of f_j(x(t))."""
    n, R, N = rows.slope.lo.shape
    D, m = weight.shape[2], rows.outputs
    slope, base, rad = rows.slope.mid, rows.base.mid, rows.base.rad
    rad = rad + rows.slope.rad.sum(2)
    averaged_rows = averaged.reshape(n, -1)
    A = np.zeros((n, R, N + 2 * D))
    A[:, :m, :N] = slope[:, :m]
    A[:, m:, :N] = np.where(averaged_rows[:, :, None], -slope[:, m:], 0.0)
    row_numbers = np.arange(averaged[0].size).reshape(averaged.shape[1:])
    for s in range(2):
        for j in range(D):
            row_index = row_numbers[s, :, j]
            A[:, m + row_index, N + s * D + j] = averaged_rows[:, row_index]
    b = np.concatenate([-base[:, :m], np.where(averaged_rows, base[:, m:] + rad[:, m:], 0.0)], 1)
    c = np.concatenate(
        [np.einsum("pr,prk->pk", fixed.reshape(n, -1), slope[:, m:]), np.maximum(weight, 0.0).reshape(n, -1)], 1
    )
    z_low, z_high = Z.lo.reshape(n, -1), Z.hi.reshape(n, -1)
    ones = np.ones((n, N))
    s_low = np.concatenate([-rad[:, :m], np.zeros(averaged_rows.shape)], 1)
    s_high = np.concatenate([rad[:, :m], np.full(averaged_rows.shape, np.inf)], 1)
    return A, b, c, np.concatenate([-ones, z_low], 1), np.concatenate([ones, z_high], 1), s_low, s_high


def function_multipliers(y: Array, m: int, averaged: Mask) -> Array:
    """Turn the duals of a program into multipliers of the functions: λ of any sign, and μ ≥ 0."""
    y = np.where(np.isfinite(y), y, 0.0)
    return np.concatenate([-y[:, :m], np.where(averaged, np.maximum(y[:, m:], 0.0), 0.0)], 1)
