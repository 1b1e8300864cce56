"""Verify from its weights up that a transformer with one wide head is within ε of its task (Theorem 2 (3)).

Nothing that the builder computed is used. Every weight is an exact double; T is `length`. Each step is proved here:

1. *The head is uniform.* The class token is 0, so W_Q c = 0 and every score is exactly 0, whatever the other weights
   are. In the reals, the softmax of T equal scores is 1/T each. With W_V = W_O = I and c = 0, F receives
   (1/T)·Σ_t e(t).
2. *The encoder is the block embedding.* Hidden unit (t', j) is relu(x_j + s), where s = s_j at position t' and s has
   other values at the other positions. On the box, x_j + s_j ≥ 0, and x_j + s ≤ 0 at the other positions. So block t of
   Σ_t e(t) is x(t) + s.
3. *Ψ_i from layers 1 and 2.* A unit of layer 2 reads units of layer 1 that see one block t only, or none (a constant).
   Without its bias, its input is y_t/T with y_t = −Ψ_i(x(t)) and Ψ_i(x) = −Σ_k c_k·relu(w_k·x + w_k·s + T·b_k). The
   weights are the same at every t in S_i, so Ψ_i is one function. `difference` gives δ_i = sup |Ψ_i − f_i| on the box.
4. *Lemma 9, for any thresholds* τ_0 < … < τ_m with τ_0 ≤ y_t ≤ τ_m. Let Δ_j = τ_{j+1} − τ_j, s_j = Σ_t relu(y_t − τ_j),
   M = Σ_{j<m} min(s_j, Δ_j) and y* = max_t y_t. Then  0 ≤ M − (y* − τ_0) ≤ max Δ.
   Lower bound: s_j ≥ relu(y* − τ_j), so M ≥ Σ_j min(relu(y* − τ_j), Δ_j), and this sum is y* − τ_0, the length of
   [τ_0, y*] added up piece by piece.
   Upper bound: if τ_J < y* ≤ τ_{J+1}, then s_j = 0 for all j > J, so M ≤ Σ_{j≤J} Δ_j = τ_{J+1} − τ_0 ≤ y* − τ_0 + Δ_J.
   If y* = τ_0, then all s_j are 0, and so is M.
   Since s_j ≥ 0, the pair relu(s_j) − relu(s_j − Δ_j) of layer 3 is min(s_j, Δ_j). The error is one-sided, so
   −M − τ_0 + max Δ/2 is within max Δ/2 of −y* = min_t Ψ_i, half of the error in Lemma 9. The stored thresholds are
   divided by T, like y_t.
5. z~_i = −M − τ_0 + max Δ/2 is within e_i = δ_i + max Δ/2 of z_i, because the minima of two functions that differ by
   at most δ_i differ by at most δ_i.
6. *Φ from layers 4 and 5*, in terms of z~. Layer 4 reads every pair of minimum i with weights v and −v, where v is the
   same for all j, so it reads v·M. `difference` gives φ_k = sup |Φ_k − F0_k| on the box of all f_i ± e_i, which holds z
   and z~.
7. |y_k − H_k| ≤ φ_k + Σ_i sup |∂F0_k/∂z_i|·e_i, with the slopes over the same box. In float64 `rounding` is added.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from flint import arb
from numpy.typing import NDArray

from headcount.recheck.differences import Network, bound, difference
from headcount.recheck.enough import reach, slopes_of, up
from headcount.recheck.rounding import rounding
from headcount.recheck.statement import read_box, read_task
from headcount.recheck.trees import number
from headcount.recheck.weights import Rejected, Weights

Array = NDArray[np.float64]


@dataclass(frozen=True)
class CheckedWide:
    """What was proved: the error of every step, the total in exact arithmetic, and the rounding error in float64."""

    bound: float
    rounding: float
    encoder: list[float]
    maximum: list[float]
    feedforward: list[float]
    slopes: list[list[float]]

    @property
    def computed(self) -> float:
        """The bound on the sup error of the model as computed in float64."""
        return up(arb(self.bound) + arb(self.rounding))


class Minimum(NamedTuple):
    """The units of one minimum: Ψ_i, its thresholds τ_0/T … τ_m/T, and the first units of its pairs in layer 3."""

    network: Network
    thresholds: list[Fraction]
    pairs: range


def check_wide_head(
    model: Weights, task: dict[str, Any], box: Any, claims: dict[str, list[float]] | None = None
) -> CheckedWide:
    """Prove a bound on the sup error over the box, or raise Rejected; the claims only decide when to stop refining."""
    f, F0, S = read_task(task)
    stop_at = claims or {"encoder": [-math.inf] * len(f), "feedforward": [-math.inf] * F0.out_dim}
    T, dim, wanted = task["length"], task["dim"], sorted(F0.reads())
    required: dict[str, Any] = {"depth": 1, "heads": 1, "positions": "concatenated", "feedforward": "relu5"}
    required |= {"class_key": False, "layer_norm": False, "length": T, "dim": dim, "out_dim": F0.out_dim}
    required |= {"head_dim": T * dim, "width": T * dim, "hidden": T * dim, "beta": 1.0}
    for key, needed in required.items():
        if model.config["model"][key] != needed or type(model.config["model"][key]) is not type(needed):
            raise Rejected(f"the model has {key} = {model.config['model'][key]!r}: this proof needs {needed!r}")
    low, high = read_box(box, dim)
    shift = _embedding(model, T, low, high)
    minima = _minima(model, T, shift, [S[i] for i in wanted])
    delta, half, zlow, zhigh = (np.zeros(len(f)) for _ in range(4))
    constants = list[Fraction]()
    for i, found in zip(wanted, minima, strict=True):
        below, above = difference(found.network, f[i], 0, low, high, float(stop_at["encoder"][i]))
        extent, tau = reach(f[i], low, high), found.thresholds
        if not (arb(extent[1]) + above <= number(-T * tau[0]) and arb(extent[0]) + below >= number(-T * tau[-1])):
            raise Rejected(f"the thresholds of minimum {i + 1} do not cover the range of its function")
        widest = T * max(b - a for a, b in pairwise(tau))
        delta[i], half[i] = max(abs(below), abs(above)), up(number(widest / 2))
        zlow[i], zhigh[i] = bound(arb(extent[0]) - delta[i] - half[i])[0], bound(arb(extent[1]) + delta[i] + half[i])[1]
        constants.append(widest / 2 - T * tau[0])  # z~_i is this minus M
    outer = _outer(model, T, minima, constants, wanted, len(f))
    phi = [
        max(map(abs, difference(network, F0, k, zlow, zhigh, float(stop_at["feedforward"][k]))))
        for k, network in enumerate(outer)
    ]
    slopes = [slopes_of(F0, k, zlow, zhigh) for k in range(F0.out_dim)]
    totals = [
        up(sum((arb(s) * (arb(d) + arb(v)) for s, d, v in zip(row, delta, half, strict=True)), arb(p)))
        for p, row in zip(phi, slopes, strict=True)
    ]
    return CheckedWide(max(totals), rounding(model, low, high), delta.tolist(), half.tolist(), phi, slopes)


def _embedding(model: Weights, T: int, low: Array, high: Array) -> list[Fraction]:
    """Check steps 1 and 2, and return s."""
    if model["class_token"].any():
        raise Rejected("the class token is not 0, so the scores may not be 0")
    identity, dim = np.eye(T * len(low)), len(low)
    expected = {
        "encoder.inner.weight": np.tile(np.eye(dim), (T, 1)),
        "encoder.outer.weight": identity,
        "encoder.outer.bias": np.zeros(len(identity)),
        "layers.0.attention.value": identity[None],
        "layers.0.attention.output": identity[None],
    }
    for name, needed in expected.items():
        if not np.array_equal(model[name], needed):
            raise Rejected(f"{name} differs from that of the block embedding")
    common, hidden_bias = model["encoder.inner.bias"], model["encoder.hidden_bias"]
    shift = [Fraction(common[j]) + Fraction(hidden_bias[0, j]) for j in range(dim)]
    for t, row in enumerate(hidden_bias):
        for q, (a, b) in enumerate(zip(common, row, strict=True)):
            s, j = Fraction(a) + Fraction(b), q % dim
            if not (s == shift[j] and Fraction(low[j]) + s >= 0 if q // dim == t else Fraction(high[j]) + s <= 0):
                raise Rejected(f"hidden unit {q + 1} of the encoder does not keep to its block at position {t + 1}")
    return shift


def _layer(model: Weights, k: int) -> tuple[Array, Array]:
    return model[f"layers.0.feedforward.layers.{k - 1}.weight"], model[f"layers.0.feedforward.layers.{k - 1}.bias"]


def _minima(model: Weights, T: int, shift: list[Fraction], sets: list[list[int]]) -> list[Minimum]:
    """Read the units of every minimum in order (steps 3 and 4). No proof depends on where we find one to end."""
    (W2, b2), (W3, b3) = _layer(model, 2), _layer(model, 3)
    found, unit, pair = list[Minimum](), 0, 0
    for members in sets:
        count, first_rows, start = len(members), W2[unit : unit + len(members)], pair
        tau, ends = list[Fraction](), list[Fraction]()
        while unit + count <= len(W2) and pair + 1 < len(W3):
            rows, bias = W2[unit : unit + count], b2[unit : unit + count]
            if tau and not (np.array_equal(rows, first_rows) and -Fraction(bias[0]) > tau[-1]):
                break  # the next minimum begins
            reads = np.zeros(len(W2))
            reads[unit : unit + count] = 1.0
            if not (np.array_equal(W3[pair], reads) and np.array_equal(W3[pair + 1], reads)):
                break
            if (bias != bias[0]).any() or b3[pair] != 0 or not b3[pair + 1] < 0:
                raise Rejected(f"units {pair + 1} and {pair + 2} of layer 3 are not a pair of Lemma 9")
            if tau and -Fraction(bias[0]) != ends[-1]:
                raise Rejected(f"the thresholds of minimum {len(found) + 1} of F do not follow each other")
            tau.append(-Fraction(bias[0]))
            ends.append(tau[-1] - Fraction(b3[pair + 1]))
            unit, pair = unit + count, pair + 2
        if not tau:
            raise Rejected(f"layers 2 and 3 have no pair of Lemma 9 for minimum {len(found) + 1} of F")
        found.append(Minimum(_psi(model, T, shift, first_rows, members), [*tau, ends[-1]], range(start, pair, 2)))
    return found


def _psi(model: Weights, T: int, shift: list[Fraction], rows: Array, members: list[int]) -> Network:
    """Return the function whose values the rows read, each at one position (step 3)."""
    (W1, b1), dim, copies = _layer(model, 1), len(shift), list[tuple[Array, Array, Array]]()
    for t, row in zip(members, rows, strict=True):
        used = np.flatnonzero(row)
        block = W1[used, t * dim : (t + 1) * dim]
        if np.count_nonzero(W1[used]) != np.count_nonzero(block):
            raise Rejected(f"a unit of layer 2 for position {t + 1} reads another position")
        copies.append((block, b1[used], row[used]))
        if not all(map(np.array_equal, copies[-1], copies[0])):
            raise Rejected(f"positions {members[0] + 1} and {t + 1} do not have the same function")
    inner, bias, outer = copies[0]
    exact_bias = [
        sum((Fraction(v) * s for v, s in zip(w, shift, strict=True)), T * Fraction(b))
        for w, b in zip(inner, bias, strict=True)
    ]
    return Network(inner, np.array(exact_bias, dtype=object), -outer, arb(0))


def _outer(
    model: Weights, T: int, minima: list[Minimum], constants: list[Fraction], wanted: list[int], count: int
) -> list[Network]:
    """Return Φ in terms of z~, for every output (step 6); unit k of layer 4 is 1/T of unit k of Φ."""
    (W4, b4), (W5, b5) = _layer(model, 4), _layer(model, 5)
    rest, inner, biases = W4.copy(), np.zeros((len(W4), count)), [T * Fraction(b) for b in b4]
    for i, found, constant in zip(wanted, minima, constants, strict=True):
        column = W4[:, found.pairs[0]]
        for pair in found.pairs:
            if not (np.array_equal(W4[:, pair], column) and np.array_equal(W4[:, pair + 1], -column)):
                raise Rejected(f"layer 4 reads the pairs of minimum {i + 1} with different weights")
            rest[:, pair : pair + 2] = 0.0
        inner[:, i] = -column
        biases = [b + Fraction(v) * constant for b, v in zip(biases, column, strict=True)]
    if rest.any():
        raise Rejected("layer 4 reads a unit that does not belong to any minimum")
    bias = np.array(biases, dtype=object)
    rows = [np.array([Fraction(v) / T for v in row], dtype=object) for row in W5]
    return [Network(inner, bias, row, arb(b)) for row, b in zip(rows, b5, strict=True)]
