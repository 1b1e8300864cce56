"""Verify from its weights up that a transformer with a head for every minimum is within ε of its task (Theorem 2 (1)).

Nothing that the builder computed is used; its claims are only compared with the result. Each step is proved here:

1. *Head i is a soft minimum of v_i.* Exactly one row of W_V,i is not 0; call it r. The head returns the pooled values
   of v_i = r·e(t) in that coordinate, and 0 in the others. Its score vector (W_Q,i c)ᵀ W_K,i is exactly −r. So with the
   weights a = softmax of β·(−v_i + g_i), where g_i are the gates, the head returns z~_i = Σ_t a(t)·v_i(x(t)), which
   lies between the least and the largest v_i.
2. *v_i is near ρ·f_i.* `difference` gives δ_i = sup |v_i/ρ − f_i| on the box. The scale ρ > 0 is the certificate's;
   the proof holds for any ρ.
3. *Leakage.* The gates are equal on S_i, and lower by γ_t at every t outside. Let R be at least the range of v_i, let
   s = |S_i|, and let m be the minimum of v_i over S_i. Then −pR ≤ z~_i − m ≤ W((s − 1)/e)/β + pR, where W is Lambert's
   function and p ≤ Σ_{t outside} exp(−β·(γ_t − R)) is the weight off S_i. (The proof is in
   theory/bounds/softmax_leakage.py; here all is divided by ρ at the end.) Since the term with W is one-sided, F
   subtracts a shift: for ẑ_i = z~_i/ρ − σ_i, the distance from ẑ_i to m/ρ is at most
   leakage_i = max(pR/ρ + σ_i, (W/β + pR)/ρ − σ_i), which is least for σ_i = W/(2βρ). The shift σ_i ≥ 0 is the
   certificate's, 0 if it states none; the proof holds for any. The minima of two functions that differ by at most δ_i
   differ by at most δ_i. So |ẑ_i − z_i| ≤ e_i = δ_i + leakage_i.
4. *F is near F0.* As a function of ẑ it is G(ẑ) = F(ẑ + σ), the same network with other biases, in exact fractions.
   `difference` gives φ_k = sup |G_k − F0_k| on a box that holds all ẑ and z.
5. |y_k − H_k| ≤ φ_k + Σ_i sup |∂F0_k/∂z_i|·e_i, with the slopes over the same box.
6. *In float64* the computed output is within `rounding` of y_k (rounding.py). That proof needs a bound on how far a
   head's output Σ_t a(t)·v(t) moves if every score moves by at most η. Let κ = η/β. The new weights a' are exactly
   those of some values v' within κ of v. The range of v' is at most R' = R + 2κ, and its minimum m' over S_i has
   |m' − m| ≤ κ. By step 3, Σ_t a'(t)·|v'(t) − m'| ≤ L = W/β + p'R', so Σ a'·v and Σ a·v differ by at most 2L + 2κ. On
   the other hand, while the scores move from s to s + θ, the slope of Σ a·v is Σ_t a(t)·θ_t·(v(t) − Σ a·v), which is at
   most 2η·Σ_t a(t)·|v(t) − m'| and so at most 2η·(L + κ). Together, the output moves by at most
   2·min(1, η)·(L + κ), which is of the order of κ however large β is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from flint import arb
from numpy.typing import NDArray

from headcount.recheck.differences import Network, bound, difference, extent, interval
from headcount.recheck.rounding import rounding
from headcount.recheck.statement import read_box, read_task
from headcount.recheck.trees import Forms, dual, in_balls, scalar
from headcount.recheck.weights import Rejected, Weights
from headcount.tasks.expressions import tree as e

Array = NDArray[np.float64]
SLOPE_PARTS = 64  # into which the box of z is cut to enclose the slopes of F0


@dataclass(frozen=True)
class Checked:
    """What was proved: the error of every step, the total in exact arithmetic, and the rounding error in float64."""

    bound: float
    rounding: float
    encoder: list[float]
    leakage: list[float]
    feedforward: list[float]
    slopes: list[list[float]]

    @property
    def computed(self) -> float:
        """The bound on the sup error of the model as computed in float64."""
        return up(arb(self.bound) + arb(self.rounding))


def up(value: arb) -> float:
    """Return a double at or above the magnitude of everything in a ball."""
    low, high = bound(value)
    return max(abs(low), abs(high))


def exact(a: Array, b: Array) -> list[list[arb]]:
    """Return the product of two matrices in ball arithmetic; zeros are skipped, so a selection of entries is exact."""
    return [
        [sum((arb(x) * arb(y) for x, y in zip(row, column, strict=True) if x and y), arb(0)) for column in b.T]
        for row in a
    ]


def check_enough_heads(
    model: Weights, task: dict[str, Any], box: Any, scale: float, shift: list[float], claims: dict[str, list[float]]
) -> Checked:
    """Prove a bound on the sup error over the box, or raise Rejected with the reason.

    The claim for a step only decides when to stop refining its enclosure. The proof is right whatever the claims, the
    scale and the shift are.
    """
    spec = model.config["model"]
    required = {"depth": 1, "positions": "gates", "feedforward": "relu2", "class_key": False, "layer_norm": False}
    f, F0, S = read_task(task)
    required |= {"length": task["length"], "dim": task["dim"], "out_dim": F0.out_dim}
    for key, needed in required.items():
        if spec[key] != needed or type(spec[key]) is not type(needed):
            raise Rejected(f"the model has {key} = {spec[key]!r}: this proof needs {needed!r}")
    low, high = read_box(box, task["dim"])
    if not 0 < scale < math.inf or math.frexp(scale)[0] != 0.5:
        raise Rejected(f"the scale {scale} is not a power of two")
    if len(shift) != len(f) or not all(0 <= v < math.inf for v in shift):
        raise Rejected("the shift must be a number of at least 0 for every minimum")
    rows, columns = _heads(model, len(f))
    wanted = sorted(F0.reads())
    if wrong := [i for i, row in enumerate(rows) if (row is not None) != (i in wanted)]:
        raise Rejected(f"head {wrong[0] + 1} is idle although F0 reads its minimum, or active although F0 does not")
    if type(spec["beta"]) is not float or not 0 < spec["beta"] < math.inf:
        raise Rejected("the proof needs a fixed beta above 0")
    beta = arb(spec["beta"])
    delta, leak, zlow, zhigh = (np.zeros(len(f)) for _ in range(4))
    gates, spreads = model["layers.0.attention.gates"], dict[int, arb]()
    for i in wanted:
        network = _encoder(model, rows[i], scale)
        below, above = difference(network, f[i], 0, low, high, float(claims["encoder"][i]))
        if not max(abs(below), abs(above)) < math.inf:
            raise Rejected(f"the output of head {i + 1} could not be bounded")
        delta[i] = max(abs(below), abs(above))
        ends = reach(f[i], low, high)
        zlow[i] = bound(arb(ends[0]) + min(below, 0.0) - arb(shift[i]))[0]
        zhigh[i] = bound(arb(ends[1]) + max(above, 0.0))[1]
        spreads[i] = (arb(ends[1]) - arb(ends[0]) + arb(above) - arb(below)) * arb(scale)
        softmin, escaped = (v / arb(scale) for v in _leakage(gates[i], S[i], beta, spreads[i]))
        leak[i] = max(up(escaped + arb(shift[i])), bound(softmin + escaped - arb(shift[i]))[1])
    phi, slopes = _outer(model, F0, rows, columns, scale, shift, zlow, zhigh, claims)
    errors = [arb(a) + arb(b) for a, b in zip(delta, leak, strict=True)]
    totals = [
        up(sum((arb(s) * err for s, err in zip(row, errors, strict=True)), arb(p)))
        for p, row in zip(phi, slopes, strict=True)
    ]

    def head(i: int, eta: float) -> float:
        return moved(gates[i], S[i], beta, spreads[i], eta)

    return Checked(max(totals), rounding(model, low, high, head), delta.tolist(), leak.tolist(), phi, slopes)


def _heads(model: Weights, count: int) -> tuple[list[Array | None], list[Array | None]]:
    """Return for every head its value row r of step 1 and the column of W_O that carries it; None for idle heads."""
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
            raise Rejected(f"head {i + 1} returns {len(full)} numbers: this proof needs exactly one")
        r = value[i, full[0]]
        asked = [v[0] for v in exact(query[i], token[:, None])]
        score = [sum((a * k for a, k in zip(asked, column, strict=True)), arb(0)) for column in key[i].T]
        if not all(a == -arb(b) for a, b in zip(score, r, strict=True)):
            raise Rejected(f"the scores of head {i + 1} are not minus the values that it returns")
        rows.append(r)
        columns.append(output[i, :, full[0]])
    if len(rows) < count:
        raise Rejected(f"the model has {len(rows)} heads, but the task needs {count}")
    return rows, columns


def _encoder(model: Weights, row: Array | None, scale: float) -> Network:
    """Return v_i/ρ as a network: the value row times the encoder's outer layer, which must be exact in doubles."""
    assert row is not None
    outer = exact(row[None], model["encoder.outer.weight"])[0]
    if not all(v == float(v) for v in outer):
        raise Rejected("the product of a value row and the encoder's outer layer is not exact in doubles")
    weights = np.array([Fraction(float(v)) / Fraction(scale) for v in outer], object)  # a double might underflow
    bias = exact(row[None], model["encoder.outer.bias"][:, None])[0][0] / arb(scale)
    return Network(model["encoder.inner.weight"], model["encoder.inner.bias"], weights, bias)


def reach(f: e.Expr, low: Array, high: Array) -> tuple[float, float]:
    """Enclose a function over the box."""
    forms = Forms(expanded=False)
    tree = scalar(f, 0, forms)
    sides = {k: interval(*extent(row, low, high)) for k, row in enumerate(forms.rows)}
    return bound(dual(in_balls(tree), sides)[0])


def _leakage(gates: Array, members: list[int], beta: arb, spread: arb) -> tuple[arb, arb]:
    """Return W/β and pR of step 3, in the units of v."""
    inside = gates[members]
    if (inside != inside[0]).any():
        raise Rejected("the gates differ on an index set")
    outside = np.delete(gates, members)
    escaped = sum((((arb(g) - arb(inside[0]) + spread) * beta).exp() for g in outside), arb(0))
    escaped = arb(1) if not escaped < 1 else escaped  # a total weight is at most 1
    softmin = (arb(len(members) - 1) / arb(1).exp()).lambertw() / beta
    return softmin, escaped * spread


def moved(gates: Array, members: list[int], beta: arb, spread: arb, eta: float) -> float:
    """Bound how far a head's output moves if its scores move by at most eta (step 6)."""
    if not eta < math.inf:
        return math.inf
    kappa = arb(eta) / beta
    softmin, escaped = _leakage(gates, members, beta, spread + 2 * kappa)
    return up(2 * arb(min(1.0, eta)) * (softmin + escaped + kappa))


def _outer(
    model: Weights,
    F0: e.Expr,
    rows: list[Array | None],
    columns: list[Array | None],
    scale: float,
    shift: list[float],
    zlow: Array,
    zhigh: Array,
    claims: dict[str, list[float]],
) -> tuple[list[float], list[list[float]]]:
    """Return the error of F against F0 on the box of z, and bounds on the slopes of F0 there (steps 4 and 5)."""
    first, last = ("layers.0.feedforward.layers.0", "layers.0.feedforward.layers.1")
    W, b = model[f"{first}.weight"], model[f"{first}.bias"]
    constant = exact(W, model["class_token"][:, None])
    bias_balls = [arb(v) + c[0] for v, c in zip(b, constant, strict=True)]
    inner = np.zeros((len(W), len(zlow)))
    for i, column in enumerate(columns[: len(zlow)]):
        if column is None or rows[i] is None:
            continue
        product = [v[0] for v in exact(W, column[:, None])]
        inner[:, i] = [float(v) for v in product]
        if not all(v == w for v, w in zip(product, inner[:, i], strict=True)):
            raise Rejected("the product of F's first layer and a head's column of W_O is not exact in doubles")
    biases = [float(v) for v in bias_balls]
    if not all(v == w for v, w in zip(bias_balls, biases, strict=True)):
        raise Rejected("F's first layer at the class token is not exact in doubles")
    phi, slopes = list[float](), list[list[float]]()
    scaled = np.array([[Fraction(v) * Fraction(scale) for v in row] for row in inner], object)
    moved = np.array([Fraction(b) + row @ [Fraction(v) for v in shift] for b, row in zip(biases, scaled, strict=True)])
    for k in range(F0.out_dim):
        network = Network(scaled, moved, model[f"{last}.weight"][k], arb(model[f"{last}.bias"][k]))
        enough = float(claims["feedforward"][k])
        phi.append(max(abs(v) for v in difference(network, F0, k, zlow, zhigh, enough)))
        slopes.append(slopes_of(F0, k, zlow, zhigh))
    return phi, slopes


def slopes_of(F0: e.Expr, k: int, low: Array, high: Array) -> list[float]:
    """Bound |∂F0_k/∂z_i| over the box, which is cut into parts along its longest sides."""
    forms = Forms(expanded=True)
    tree = in_balls(scalar(F0, k, forms))
    place = [next(i for i, v in enumerate(row) if v) for row in forms.rows]
    parts = [(low, high)]
    while len(parts) < SLOPE_PARTS:
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
