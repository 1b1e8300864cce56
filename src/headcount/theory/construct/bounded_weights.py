"""Rewrite a feed-forward block with more units so that all weights are at most 1 in magnitude (Assumption 1.3).

c·relu(w·u + b) is the sum of m copies of (c·s/m)·relu((w/s)·u + b/s). The inner weights are at most 1 if s ≥ |w| and
s ≥ |b|, and the outer ones if m ≥ |c|·s; s is a power of two, so dividing by it is exact. A constant b is m units
(b/m)·relu(1).
"""

from __future__ import annotations

import math

import numpy as np

from headcount.core import BadInput
from headcount.theory.construct.network import Array, Shallow

MAX_COPIES = 1_000_000  # hidden units in all


def keep_below_one(net: Shallow, scale: float) -> Shallow:
    """Return the network with weights at most 1, for inputs multiplied by `scale`, a power of two."""
    rows, shifts, columns = list[Array](), list[float](), list[Array]()
    for row, shift, column in zip(net.inner, net.inner_bias, net.outer.T, strict=True):
        size = max(np.abs(row).max() / scale, abs(shift))
        s = 2.0 ** math.ceil(math.log2(size)) if size > 0 else 1.0
        copies = max(1, math.ceil(np.abs(column).max() * s))
        if copies + len(rows) > MAX_COPIES:
            raise BadInput(f"weights of at most 1 would need more than {MAX_COPIES:,} units: leave the weights free")
        rows += [row / s] * copies
        shifts += [float(shift) / s] * copies
        columns += [column * s / copies] * copies
    copies = math.ceil(np.abs(net.outer_bias).max()) if np.abs(net.outer_bias).max() > 1 else 0
    rows += [np.zeros(net.inner.shape[1])] * copies
    shifts += [1.0] * copies
    columns += [net.outer_bias / max(copies, 1)] * copies
    bias = np.zeros_like(net.outer_bias) if copies else net.outer_bias
    inner = np.array(rows).reshape(-1, net.inner.shape[1])
    return Shallow(inner, np.array(shifts), np.array(columns).reshape(-1, len(bias)).T.copy(), bias, net.errors)
