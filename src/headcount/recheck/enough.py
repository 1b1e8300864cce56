"""Verify that a transformer with a head for every minimum is within ε of its task (Theorem 2 (1)), from its weights up.

Nothing that the builder computed is used; what it claims is compared at the end. The steps, each proved here:

1. *Head i is a soft minimum of v_i.* One row of W_V,i is not 0, call it r: the head returns pooled v_i = r·e(t) in that
   coordinate, and 0 in the others. Its score vector (W_Q,i c)ᵀ W_K,i is exactly −r. So with weights a = softmax of
   β·(−v_i + g_i), g_i the gates, it returns z~_i = Σ_t a(t)·v_i(x(t)), between the least and the largest v_i.
2. *v_i is near ρ·f_i*: δ_i = sup |v_i/ρ − f_i| on the box, by `difference`; ρ > 0 is the certificate's scale, and any
   value of it would do.
3. *Leakage.* The gates are equal on S_i, and lower by γ_t at t outside. With R ≥ the range of v_i, s = |S_i| and
   m = min over S_i of v_i:  −pR ≤ z~_i − m ≤ W((s − 1)/e)/β + pR, where p ≤ Σ_{t outside} exp(−β·(γ_t − R)) is the
   weight off S_i and W is Lambert's function (theory/leakage.py has the proof; at the end it is divided by ρ).
   Minima of functions within δ_i differ by at most δ_i, so |z~_i/ρ − z_i| ≤ e_i = δ_i + leakage.
4. *F is near F0* on the box of all z~/ρ: φ_k = sup |F_k − F0_k|, by `difference`.
5. |y_k − H_k| ≤ φ_k + Σ_i sup |∂F0_k/∂z_i|·e_i, the slopes over the same box, which also holds z.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from flint import arb
from numpy.typing import NDArray

from headcount.recheck.difference import Network, bound, difference, extent, interval
from headcount.recheck.statement import read_box, read_task
from headcount.recheck.trees import Forms, dual, in_balls, scalar
from headcount.recheck.weights import Rejected, Weights
from headcount.tasks import expr as e

Array = NDArray[np.float64]
PIECES = 64  # parts of the z box over which slopes are enclosed


@dataclass(frozen=True)
class Checked:
    """What was proved: the error of every step, and the bound on the sup error of the whole."""

    bound: float
    encoder: list[float]
    leakage: list[float]
    feedforward: list[float]
    slopes: list[list[float]]


def up(value: arb) -> float:
    """Return a double at or above a ball's numbers in magnitude."""
    low, high = bound(value)
    return max(abs(low), abs(high))


def exact(a: Array, b: Array) -> list[list[arb]]:
    """Return the product of two matrices in ball arithmetic; zeros are skipped, so that a selection is exact."""
    return [[sum((arb(x) * arb(y) for x, y in zip(row, column, strict=True) if x and y), arb(0)) for column in b.T]
            for row in a]  # fmt: skip


def check_enough_heads(
    model: Weights, task: dict[str, Any], box: Any, scale: float, claims: dict[str, list[float]]
) -> Checked:
    """Prove a bound on the sup error over the box, or say why it cannot be proved.

    What is claimed of a step only tells when to stop refining its enclosure; any number there leaves the proof right.
    """
    spec = model.config["model"]
    plain = {"depth": 1, "positions": "gates", "feedforward": "relu2", "class_key": False, "layer_norm": False}
    f, F0, S = read_task(task)
    plain |= {"length": task["length"], "dim": task["dim"], "out_dim": F0.out_dim}
    for key, needed in plain.items():
        if spec[key] != needed or type(spec[key]) is not type(needed):
            raise Rejected(f"the model has {key} = {spec[key]!r}: this proof is for {needed!r}")
    low, high = read_box(box, task["dim"])
    if not 0 < scale < math.inf or math.frexp(scale)[0] != 0.5:
        raise Rejected(f"the scale {scale} is no power of two")
    rows, columns = _heads(model, len(f))
    wanted = sorted(F0.reads())
    if odd := [i for i, row in enumerate(rows) if (row is not None) != (i in wanted)]:
        raise Rejected(f"head {odd[0] + 1} is idle though F0 reads its minimum, or works though F0 does not")
    if type(spec["beta"]) is not float or not 0 < spec["beta"] < math.inf:
        raise Rejected("the proof needs a fixed beta above 0")
    beta = arb(spec["beta"])
    delta, leak, zlow, zhigh = (np.zeros(len(f)) for _ in range(4))
    for i in wanted:
        network = _encoder(model, rows[i], scale)
        below, above = difference(network, f[i], 0, low, high, float(claims["encoder"][i]))
        if not max(abs(below), abs(above)) < math.inf:
            raise Rejected(f"what head {i + 1} returns could not be bounded")
        delta[i] = max(abs(below), abs(above))
        ends = reach(f[i], low, high)
        zlow[i], zhigh[i] = bound(arb(ends[0]) + min(below, 0.0))[0], bound(arb(ends[1]) + max(above, 0.0))[1]
        spread = (arb(ends[1]) - arb(ends[0]) + arb(above) - arb(below)) * arb(scale)
        leak[i] = up(_leakage(model["layers.0.attention.gates"][i], S[i], beta, spread) / arb(scale))
    phi, slopes = _outer(model, F0, rows, columns, scale, zlow, zhigh, claims)
    errors = [arb(a) + arb(b) for a, b in zip(delta, leak, strict=True)]
    totals = [
        up(sum((arb(s) * err for s, err in zip(row, errors, strict=True)), arb(p)))
        for p, row in zip(phi, slopes, strict=True)
    ]
    return Checked(max(totals), delta.tolist(), leak.tolist(), phi, slopes)


def _heads(model: Weights, count: int) -> tuple[list[Array | None], list[Array | None]]:
    """Return, for every head that is one of step 1, its value row r and the column of W_O that carries it."""
    query, key, value, output = (model[f"layers.0.attention.{n}"] for n in ("query", "key", "value", "output"))
    token = model["class_token"]
    rows, columns = list[Array | None](), list[Array | None]()
    for i in range(len(value)):
        full = np.flatnonzero(value[i].any(axis=1))
        if not len(full):
            rows.append(None)
            columns.append(None)
            continue
        if len(full) > 1:
            raise Rejected(f"head {i + 1} returns {len(full)} numbers: the proof reads one")
        r = value[i, full[0]]
        asked = [v[0] for v in exact(query[i], token[:, None])]
        score = [sum((a * k for a, k in zip(asked, column, strict=True)), arb(0)) for column in key[i].T]
        if not all(a == -arb(b) for a, b in zip(score, r, strict=True)):
            raise Rejected(f"head {i + 1} does not score by minus what it returns")
        rows.append(r)
        columns.append(output[i, :, full[0]])
    if len(rows) < count:
        raise Rejected(f"the model has {len(rows)} heads, the task needs {count}")
    return rows, columns


def _encoder(model: Weights, row: Array | None, scale: float) -> Network:
    """v_i/ρ as a network: the row through the encoder's outer layer. A row that selects keeps it exact."""
    assert row is not None
    outer = exact(row[None], model["encoder.outer.weight"])[0]
    if not all(v == float(v) for v in outer):
        raise Rejected("the value rows are not exact in doubles")
    weights = np.array([Fraction(float(v)) / Fraction(scale) for v in outer], object)  # a double might underflow
    bias = exact(row[None], model["encoder.outer.bias"][:, None])[0][0] / arb(scale)
    return Network(model["encoder.inner.weight"], model["encoder.inner.bias"], weights, bias)


def reach(f: e.Expr, low: Array, high: Array) -> tuple[float, float]:
    """Enclose a function over the box."""
    forms = Forms(expanded=False)
    tree = scalar(f, 0, forms)
    sides = {k: interval(*extent(row, low, high)) for k, row in enumerate(forms.rows)}
    return bound(dual(in_balls(tree), sides)[0])


def _leakage(gates: Array, members: list[int], beta: arb, spread: arb) -> arb:
    """Step 3, in the units of v."""
    inside = gates[members]
    if (inside != inside[0]).any():
        raise Rejected("the gates differ on an index set")
    outside = np.delete(gates, members)
    escaped = sum((((arb(g) - arb(inside[0]) + spread) * beta).exp() for g in outside), arb(0))
    escaped = arb(1) if not escaped < 1 else escaped  # more than everything cannot escape
    softmin = (arb(len(members) - 1) / arb(1).exp()).lambertw() / beta
    return softmin + escaped * spread


def _outer(
    model: Weights, F0: e.Expr, rows: list[Array | None], columns: list[Array | None], scale: float,
    zlow: Array, zhigh: Array, claims: dict[str, list[float]],
) -> tuple[list[float], list[list[float]]]:  # fmt: skip
    """Steps 4 and 5: the error of F against F0 on the box of z, and the slopes of F0 there."""
    first, last = ("layers.0.feedforward.layers.0", "layers.0.feedforward.layers.1")
    W, b = model[f"{first}.weight"], model[f"{first}.bias"]
    constant = exact(W, model["class_token"][:, None])
    shift = [arb(v) + c[0] for v, c in zip(b, constant, strict=True)]
    inner = np.zeros((len(W), len(zlow)))
    for i, column in enumerate(columns[: len(zlow)]):
        if column is None or rows[i] is None:
            continue
        through = [v[0] for v in exact(W, column[:, None])]
        inner[:, i] = [float(v) for v in through]
        if not all(v == w for v, w in zip(through, inner[:, i], strict=True)):
            raise Rejected("what F reads of a head is not exact in doubles")
    biases = np.array([float(v) for v in shift])
    if not all(v == w for v, w in zip(shift, biases, strict=True)):
        raise Rejected("what F reads of the class token is not exact in doubles")
    phi, slopes = list[float](), list[list[float]]()
    scaled = np.array([[Fraction(v) * Fraction(scale) for v in row] for row in inner], object)
    for k in range(F0.out_dim):
        network = Network(scaled, biases, model[f"{last}.weight"][k], arb(model[f"{last}.bias"][k]))
        enough = float(claims["feedforward"][k])
        phi.append(max(abs(v) for v in difference(network, F0, k, zlow, zhigh, enough)))
        slopes.append(slopes_of(F0, k, zlow, zhigh))
    return phi, slopes


def slopes_of(F0: e.Expr, k: int, low: Array, high: Array) -> list[float]:
    """Enclose |∂F0_k/∂z_i| over the box, cut into parts along its longest sides."""
    forms = Forms(expanded=True)
    tree = in_balls(scalar(F0, k, forms))
    place = [next(i for i, v in enumerate(row) if v) for row in forms.rows]
    parts = [(low, high)]
    while len(parts) < PIECES:
        axis = int(np.argmax(parts[0][1] - parts[0][0]))
        cut = []
        for a, b in parts:
            middle = a[axis] + (b[axis] - a[axis]) / 2
            upper, lower = b.copy(), a.copy()
            upper[axis] = lower[axis] = middle
            cut += [(a, upper), (lower, b)]
        parts = cut
    most = [0.0] * len(low)
    for a, b in parts:
        gradient = dual(tree, {form: interval(a[i], b[i]) for form, i in enumerate(place)})[1]
        for form, slope in gradient.items():
            most[place[form]] = max(most[place[form]], up(slope))
    return most
