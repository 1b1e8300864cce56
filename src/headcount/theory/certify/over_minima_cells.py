"""The sequences of a cell of z-space as choices of token cells, and the bounds of a head over them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headcount.theory.certify.token_cells import Cells, directional_bounds
from headcount.theory.enclose.head import Group, Mask
from headcount.theory.enclose.head_numba import sweep
from headcount.theory.enclose.intervals import Array, up

MAX_ROWS_PER_CELL = 64


@dataclass(frozen=True)
class View:
    """The token cells that remain where z lies in [low, high]: indices `keep`, by groups of positions `free`.

    members[g] says which minima the positions of group g belong to.
    """

    cells: Cells
    groups: list[Group]
    members: list[frozenset[int]]
    low: Array
    high: Array
    keep: NDArray[np.intp]
    free: Mask

    @classmethod
    def of(
        cls, cells: Cells, groups: list[Group], members: list[frozenset[int]], low: Array, high: Array
    ) -> View | None:
        """Keep the token cells where every f_j of a position can reach `low`; None where some position has none."""
        inside = cells.f_hi >= low  # [cells, D]
        free = np.stack([inside[:, sorted(m)].all(1) for m in members])
        if not free.any(1).all():
            return None
        keep = np.flatnonzero(free.any(0))
        return cls(cells, groups, members, low, high, keep, free[:, keep])

    def _directed(self, head: int, n: int, w: Array, gamma: Array) -> Array:
        """w·v − γ·f from above, γ[D] on the token's own f_j: [directions, kinds, cells], w[directions, n]."""
        part, c, k = slice(head * n, head * n + n), self.cells, self.keep
        used = np.flatnonzero(gamma)
        found: list[Array] = []
        for q in range(len(c.v0)):
            v0, vJ, vR = c.v0[q][k, part], c.v_slope[q][:, k, part], c.v_rest[q][k, part]
            if len(used):
                v0 = np.concatenate([v0, c.f0[k][:, used]], 1)
                vJ = np.concatenate([vJ, c.f_slope[:, k][:, :, used]], 2)
                vR = np.concatenate([vR, c.f_rest[k][:, used]], 1)
            own = np.broadcast_to(-gamma[used], (len(w), len(used)))
            found.append(directional_bounds(v0, vJ, vR, np.concatenate([w, own], 1)))
        return np.stack(found, 1)

    def outputs(self, head: int, n: int) -> tuple[Array, Array] | None:
        """The box of a head's output; None where no sequence has its z here."""
        sides, gamma = np.concatenate([np.eye(n), -np.eye(n)]), np.zeros(len(self.low))
        p = self._directed(head, n, sides, gamma)
        c = np.array([self._sweep(head, q, np.stack([q] * 3), gamma, self.low[None], self.high[None], 0, 1) for q in p])
        return (np.minimum(-c[n:], c[:n]), c[:n]) if (c > -np.inf).all() else None

    def difference(self, head: int, n: int, w: Array, gamma: Array) -> float:
        """An upper bound of w·o − Σ_j γ_j·z_j over the cell, by rows: sub-cells along the sides that γ makes long."""
        low, high = _rows(self.low, self.high, np.abs(gamma))
        order = np.argsort(-np.abs(gamma) * (self.high - self.low), kind="stable").tolist()
        first, second = order[0], order[-1] if len(order) == 1 else order[1]
        tops = [
            self._directed(head, n, w[None], np.where(np.isin(np.arange(len(gamma)), own), gamma, 0.0))[0]
            for own in ([], [first], [second], [first, second])
        ]
        return self._sweep(head, tops[0], np.stack(tops[1:]), gamma, low, high, first, second)

    def _sweep(
        self, head: int, plain: Array, own: Array, gamma: Array, low: Array, high: Array, first: int, second: int
    ) -> float:
        c, k = self.cells, self.keep
        ends = np.maximum(up(-gamma * low), up(-gamma * high))  # [rows, D]: −γ_j·z_j from above
        members = np.array([[j in m for j in range(len(gamma))] for m in self.members])
        kinds = np.array([group.kind for group in self.groups])
        counts = np.array([float(group.count) for group in self.groups])
        solid = np.ascontiguousarray  # one layout: compiled once
        return float(
            sweep(
                solid(plain),
                solid(own),
                solid(ends),
                solid(c.score_lo[:, k, head]),
                solid(c.score_hi[:, k, head]),
                solid(c.f_lo[k]),
                solid(c.f_hi[k]),
                solid(self.free),
                solid(low),
                solid(high),
                kinds,
                counts,
                members,
                first,
                min(second, len(gamma) - 1),
            )
        )


def _rows(low: Array, high: Array, weight: Array) -> tuple[Array, Array]:
    """Cut a cell of z-space into at most ROWS parts, along the sides whose weighted length is greatest."""
    cuts = np.ones(len(low), dtype=int)
    while cuts.prod() * 2 <= MAX_ROWS_PER_CELL:
        cuts[int((weight * (high - low) / cuts).argmax())] *= 2
    edges = [np.linspace(a, b, k + 1) for a, b, k in zip(low, high, cuts, strict=True)]
    for e, a, b in zip(edges, low, high, strict=True):
        e[0], e[-1] = a, b
    lows, highs = (np.meshgrid(*[e[part] for e in edges], indexing="ij") for part in (slice(-1), slice(1, None)))
    return np.stack([v.ravel() for v in lows], 1), np.stack([v.ravel() for v in highs], 1)
