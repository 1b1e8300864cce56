"""The outputs of all heads of a one-layer model, which F reads, in ball arithmetic from the stored weights up.

    s_i(t) = β_i·((W_Q,i c)ᵀ W_K,i e(t) + g_i(t))        v_i(t) = W_V,i e(t)
    w_i    = softmax_t(s_i)                              o_i    = Σ_t w_i(t)·v_i(t)

s_i and v_i are affine in e(t) = W2 relu(W1 x(t) + b1) + b2, so one matrix over the hidden units gives all of them.
Since ∂w_i(t)/∂s_i(t') = w_i(t)·(1{t = t'} − w_i(t')), the slopes have a closed form:

    ∂o_i/∂x(t) = w_i(t)·((v_i(t) − o_i) ⊗ ∂s_i(t)/∂x(t) + ∂v_i(t)/∂x(t)).

The model is the function of real numbers that its stored doubles define. For every real sequence within the balls X,
its values lie within the returned balls.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from flint import arb, arb_mat
from numpy.typing import NDArray

from headcount.core.readers import FEEDFORWARD_LAYERS
from headcount.recheck.statement import real
from headcount.recheck.weights import Rejected, Weights

Array = NDArray[np.float64]
Sequences = Sequence[Sequence[arb]]


def check_length(model: Weights, length: int) -> None:
    """Reject a model for sequences of another length."""
    spec = model.config["model"]
    if spec["positions"] != "none" and spec["length"] != length:
        raise Rejected(f"the model takes sequences of {spec['length']} tokens, not {length}")


def matrix(array: Array) -> arb_mat:
    """Return stored numbers as exact balls; a vector becomes a column."""
    return arb_mat((array if array.ndim == 2 else array[:, None]).tolist())


def inverse_temperature(spec: dict[str, Any], log_beta: Array | None) -> list[arb]:
    """Return β for every head."""
    beta, heads = spec["beta"], spec["heads"]
    if beta == "learned" and log_beta is not None:
        return [arb(float(v)).exp() for v in log_beta]
    if beta == "scaled":
        # β is exactly the double that the reference model multiplies by, not the real number 1/√n
        return [arb(1.0 / math.sqrt(spec["head_dim"]))] * heads
    return [arb(beta)] * heads


def softmax(scores: Sequence[arb]) -> list[arb]:
    """Enclose the softmax of scores, shifted by the largest midpoint so that exp does not overflow."""
    shift = max(s.mid() for s in scores)
    exponentials = [(s - shift).exp() for s in scores]
    total: Any = sum(exponentials, arb(0))
    return [v / total for v in exponentials]


def slope(v: arb) -> arb:
    """Enclose the slopes of ReLU between any two points of a ball: all of [0, 1] if the ball contains the kink."""
    return arb(1) if v > 0 else arb(0) if v < 0 else arb(0.5, 0.5)


class Heads:
    """The heads of a one-layer model without layer norms, folded into few matrices at the current precision.

    `count` is the number of equations in o(X1) = o(X2). Rows of W_V that are 0 return 0 and need no equation.
    """

    def __init__(self, model: Weights, length: int) -> None:
        spec, a = model.config["model"], "layers.0.attention."
        check_length(model, length)
        value, h = model[a + "value"], spec["heads"]
        self.heads, self.rows = h, [(i, k) for i in range(h) for k in range(spec["head_dim"]) if value[i, k].any()]
        self.count = len(self.rows)
        if not self.rows:
            raise Rejected("every head returns 0: the model is a constant")
        beta = inverse_temperature(spec, model.tensors.get(a + "log_beta"))
        token = matrix(model["class_token"])
        query, key = ([matrix(part) for part in model[a + name]] for name in ("query", "key"))
        to_score = [(q * token).transpose() * k for q, k in zip(query, key, strict=True)]
        scores = [[beta[i] * v for v in row.entries()] for i, row in enumerate(to_score)]
        joint = arb_mat(scores + [value[i, k].tolist() for i, k in self.rows])  # of e: first s_i, then v_i
        output = model[a + "output"]
        self.output = matrix(np.array([output[i, :, k] for i, k in self.rows]).T)
        self.inner, self.hidden = matrix(model["encoder.inner.weight"]), joint * matrix(model["encoder.outer.weight"])
        at = {name: model.tensors.get(f"encoder.{name}") for name in ("hidden_bias", "position")}
        self.inner_bias = _columns(model["encoder.inner.bias"], at["hidden_bias"], length)
        self.bias = (joint * _columns(model["encoder.outer.bias"], at["position"], length)).table()
        gates = model.tensors.get(a + "gates")
        if gates is not None:
            for i in range(h):
                self.bias[i] = [v + beta[i] * arb(float(g)) for v, g in zip(self.bias[i], gates[i], strict=True)]
        self.class_key = (joint * token).entries() if spec["class_key"] else None  # the class token has no gate

    def units(self, X: Sequences) -> arb_mat:
        """Enclose the pre-activations [N, T] of the encoder's units."""
        return self.inner * arb_mat([list(x) for x in X]).transpose() + self.inner_bias

    def outputs(self, X: Sequences) -> list[arb]:
        """Enclose o, one number per equation."""
        return self.attend(X)[-1]

    def slopes(self, X: Sequences) -> list[list[arb]]:
        """Enclose ∂o/∂x over the balls: one list per coordinate t·dim + j of X, with one number per equation."""
        pre, w, v, o = self.attend(X)
        columns, inner = list[list[arb]](), self.inner.table()
        for t, units in enumerate(pre.transpose().table()):
            steep = [[slope(u) * g for g in row] for u, row in zip(units, inner, strict=True)]
            columns += [
                [w[i][t] * ((v[r][t] - o[r]) * d[i] + d[self.heads + r]) for r, (i, _) in enumerate(self.rows)]
                for d in (self.hidden * arb_mat(steep)).transpose().table()
            ]
        return columns

    def attend(self, X: Sequences) -> tuple[arb_mat, list[list[arb]], list[list[arb]], list[arb]]:
        """Return the pre-activations [N, T] of the hidden units, w per head, v per equation, and o."""
        pre = self.units(X)
        relu = arb_mat([[u.max(arb(0)) for u in row] for row in pre.table()])
        joint = (self.hidden * relu + arb_mat(self.bias)).table()
        if self.class_key is not None:
            joint = [[*row, own] for row, own in zip(joint, self.class_key, strict=True)]
        w, v = [softmax(row) for row in joint[: self.heads]], joint[self.heads :]
        o: list[Any] = [
            sum((p * q for p, q in zip(w[i], v[r], strict=True)), arb(0)) for r, (i, _) in enumerate(self.rows)
        ]
        return pre, w, v, o

    def difference(self, o1: Sequence[arb], o2: Sequence[arb]) -> list[arb]:
        """Enclose Δ = W_O (o(X1) − o(X2)), the difference of F's inputs."""
        return (self.output * arb_mat([[a - b] for a, b in zip(o1, o2, strict=True)])).entries()


def _columns(bias: Array, table: Array | None, length: int) -> arb_mat:
    """Return a bias as one column per position, plus the table's row for that position if there is a table."""
    rows = [[arb(v) for v in bias.tolist()]] * length
    if table is not None:
        rows = [[a + b for a, b in zip(row, more, strict=True)] for row, more in zip(rows, table.tolist(), strict=True)]
    return arb_mat(rows).transpose()


def lipschitz(model: Weights, output: int) -> arb | None:
    """Bound the Lipschitz constant (Euclidean) of one output of the model's own F, including its standardisation.

    The bound is a product over the layers. The spectral norm of a matrix is at most every Schatten norm
    (trace (W Wᵀ)^k)^(1/2k), and these decrease towards it; we use k = 32. |GELU'| is at most Φ(√2) + √2·φ(√2) < 1.129,
    and |ReLU'| at most 1. Return None for a layer norm before F, whose slopes are unbounded.
    """
    spec = model.config["model"]
    if spec["layer_norm"] is not False:
        return None
    name = f"layers.{spec['depth'] - 1}.feedforward.layers."
    last = FEEDFORWARD_LAYERS[spec["feedforward"]] - 1
    std = real(model.config["standardisation"]["std"][output])
    found = abs(arb(std)) * _norm(matrix(model[f"{name}{last}.weight"][output]))
    for k in range(last):
        found *= _norm(matrix(model[f"{name}{k}.weight"]))
        found *= arb(1129) / 1000 if spec["feedforward"] == "gelu2" else 1
    return found


def _norm(W: arb_mat) -> arb:
    """Bound the spectral norm from above."""
    power = W * W.transpose() if W.nrows() < W.ncols() else W.transpose() * W
    for _ in range(4):
        power = power * power  # (W Wᵀ)^16; its squared entries add up to the trace of (W Wᵀ)^32
    total: Any = sum((v.abs_upper() ** 2 for v in power.entries()), arb(0))
    return total.root(64)
