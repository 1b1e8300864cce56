"""Fewer equations if tokens share linear pieces of the encoder: pooled tokens and pooled units instead of head outputs.

With u(t) = relu(W1 x(t) + b1) a head returns o_i = V_i·Σ_t w_i(t)·u(t) + const, where the weights w_i add up to 1.
Consider the pooled hidden units Σ_t w_i(t)·u_k(t). A unit that is off at every token of both sequences contributes 0. A
unit that is on at every token contributes W1_k·a_i + b_k, with the pooled token a_i = Σ_t w_i(t)·x(t). So o(X1) = o(X2)
follows if the a_i agree, d numbers per head, and if the pooled values of all mixed units agree, those that are on
at some tokens and off at others. If these are fewer numbers than the n outputs of a head, then the outputs lie in a set
of lower dimension, where Krawczyk's test on the outputs themselves cannot succeed.

This needs the same bias at every position, and no class token among the keys.
"""

from __future__ import annotations

from typing import Any

from flint import arb, arb_mat

from headcount.recheck.heads import Heads, Sequences, slope
from headcount.recheck.weights import Weights


def shares_pieces(model: Weights) -> bool:
    """Return whether the encoder is the same at all positions, and heads pool nothing but tokens."""
    spec = model.config["model"]
    return spec["positions"] in ("none", "gates") and spec["class_key"] is False


class Pooled:
    """The pooled tokens a_i and the pooled mixed units, for sequences within the balls of `both`."""

    def __init__(self, heads: Heads, both: list[Sequences]) -> None:
        units = [a + b for a, b in zip(*(heads.units(X).table() for X in both), strict=True)]
        self.mixed = [k for k, row in enumerate(units) if not (all(v > 0 for v in row) or all(v < 0 for v in row))]
        self.heads, self.inner = heads, heads.inner.table()
        self.count = heads.heads * (len(both[0][0]) + len(self.mixed))

    def outputs(self, X: Sequences) -> list[arb]:
        """Enclose the pooled numbers, head after head."""
        return self._pool(X)[-1]

    def slopes(self, X: Sequences) -> list[list[arb]]:
        """Enclose their slopes: one list per coordinate t·dim + j of X, with one number per equation."""
        pre, w, q, pooled = self._pool(X)
        columns, size = list[list[arb]](), len(q[0])
        for t, units in enumerate(pre.transpose().table()):
            on = [slope(u) for u in units]
            score_slopes = (
                self.heads.hidden * arb_mat([[s * g for g in row] for s, row in zip(on, self.inner, strict=True)])
            ).table()
            for j in range(len(X[t])):
                moved = [arb(int(j == k)) for k in range(len(X[t]))] + [on[k] * self.inner[k][j] for k in self.mixed]
                columns.append(
                    [
                        w[i][t] * ((q[t][r] - pooled[i * size + r]) * score_slopes[i][j] + moved[r])
                        for i in range(self.heads.heads)
                        for r in range(size)
                    ]
                )
        return columns

    def _pool(self, X: Sequences) -> tuple[arb_mat, list[list[arb]], list[list[arb]], list[arb]]:
        """Return the pre-activations [N, T], w per head, the numbers q to pool per token, and the pooled numbers."""
        pre, w = self.heads.attend(X)[:2]
        table = pre.table()
        q = [[*x, *(table[k][t].max(arb(0)) for k in self.mixed)] for t, x in enumerate(X)]
        pooled: list[Any] = [
            sum((p * v[r] for p, v in zip(row, q, strict=True)), arb(0)) for row in w for r in range(len(q[0]))
        ]
        return pre, w, q, pooled
