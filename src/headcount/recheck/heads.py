"""What F reads, in ball arithmetic from the stored weights up: the outputs of all heads of a one-layer model.

    s_i(t) = β_i·((W_Q,i c)ᵀ W_K,i e(t) + g_i(t))        v_i(t) = W_V,i e(t)
    w_i    = softmax_t(s_i)                              o_i    = Σ_t w_i(t)·v_i(t)

s_i and v_i are linear in e(t) = W2 relu(W1 x(t) + b1) + b2, so one matrix over the hidden units gives them all. Since
∂w_i(t)/∂s_i(t') = w_i(t)·(1{t = t'} − w_i(t')), the slopes have a closed form:

    ∂o_i/∂x(t) = w_i(t)·((v_i(t) − o_i) ⊗ ∂s_i(t)/∂x(t) + ∂v_i(t)/∂x(t)).

The model is the function of real numbers that its stored doubles define. Every real sequence within the balls X is
mapped into the balls that are returned.
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
    """Refuse a model for sequences of another length."""
    spec = model.config["model"]
    if spec["positions"] != "none" and spec["length"] != length:
        raise Rejected(f"the model takes sequences of {spec['length']} tokens, not {length}")


def matrix(array: Array) -> arb_mat:
    """Return stored numbers as exact balls; a vector becomes a column."""
    return arb_mat((array if array.ndim == 2 else array[:, None]).tolist())


def inverse_temperature(spec: dict[str, Any], log_beta: Array | None) -> list[arb]:
    """Return β of every head."""
    beta, heads = spec["beta"], spec["heads"]
    if beta == "learned" and log_beta is not None:
        return [arb(float(v)).exp() for v in log_beta]
    if beta == "scaled":
        # the double that the reference model multiplies by, exactly: β is that number, not the real 1/√n
        return [arb(1.0 / math.sqrt(spec["head_dim"]))] * heads
    return [arb(beta)] * heads


def softmax(scores: Sequence[arb]) -> list[arb]:
    """Enclose softmax; any shift leaves it as it is, and the largest midpoint keeps exp within bounds."""
    shift = max(s.mid() for s in scores)
    grown = [(s - shift).exp() for s in scores]
    total: Any = sum(grown, arb(0))
    return [v / total for v in grown]


def slope(v: arb) -> arb:
    """Enclose the slopes of ReLU between any two points of a ball: all of [0, 1] where it holds the kink."""
    return arb(1) if v > 0 else arb(0) if v < 0 else arb(0.5, 0.5)


class Heads:
    """The heads of a one-layer model without layer norms, folded into few matrices at the precision of the moment.

    `count` is the number of equations that o(X1) = o(X2) makes: rows of W_V that are 0 return 0 and make none.
    """

    def __init__(self, model: Weights, length: int) -> None:
        spec, a = model.config["model"], "layers.0.attention."
        check_length(model, length)
        value, h = model[a + "value"], spec["heads"]
        self.heads, self.rows = h, [(i, k) for i in range(h) for k in range(spec["head_dim"]) if value[i, k].any()]
        self.count = len(self.rows)
        if not self.rows:
            raise Rejected("no head returns anything: the model is a constant")
        beta = inverse_temperature(spec, model.tensors.get(a + "log_beta"))
        token = matrix(model["class_token"])
        asked = [(matrix(model[a + "query"][i]) * token).transpose() * matrix(model[a + "key"][i]) for i in range(h)]
        scores = [[beta[i] * v for v in row.entries()] for i, row in enumerate(asked)]
        read = arb_mat(scores + [value[i, k].tolist() for i, k in self.rows])  # s_i first, then v_i, over e
        output = model[a + "output"]
        self.output = matrix(np.array([output[i, :, k] for i, k in self.rows]).T)
        self.inner, self.hidden = matrix(model["encoder.inner.weight"]), read * matrix(model["encoder.outer.weight"])
        at = {name: model.tensors.get(f"encoder.{name}") for name in ("hidden_bias", "position")}
        self.inner_bias = _columns(model["encoder.inner.bias"], at["hidden_bias"], length)
        self.bias = (read * _columns(model["encoder.outer.bias"], at["position"], length)).table()
        gates = model.tensors.get(a + "gates")
        if gates is not None:
            for i in range(h):
                self.bias[i] = [v + beta[i] * arb(float(g)) for v, g in zip(self.bias[i], gates[i], strict=True)]
        self.alone = (read * token).entries() if spec["class_key"] else None  # the class token among the keys, no gate

    def units(self, X: Sequences) -> arb_mat:
        """Enclose the pre-activations of the encoder's units [N, T]."""
        return self.inner * arb_mat([list(x) for x in X]).transpose() + self.inner_bias

    def outputs(self, X: Sequences) -> list[arb]:
        """Enclose o, one number an equation."""
        return self.attend(X)[-1]

    def slopes(self, X: Sequences) -> list[list[arb]]:
        """Enclose ∂o/∂x over the balls: for every coordinate t·dim + j of X one number an equation."""
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
        """Return the hidden units' pre-activations [N, T], w a head, v an equation, and o."""
        pre = self.units(X)
        relu = arb_mat([[u.max(arb(0)) for u in row] for row in pre.table()])
        read = (self.hidden * relu + arb_mat(self.bias)).table()
        if self.alone is not None:
            read = [[*row, own] for row, own in zip(read, self.alone, strict=True)]
        w, v = [softmax(row) for row in read[: self.heads]], read[self.heads :]
        o: list[Any] = [
            sum((p * q for p, q in zip(w[i], v[r], strict=True)), arb(0)) for r, (i, _) in enumerate(self.rows)
        ]
        return pre, w, v, o

    def difference(self, o1: Sequence[arb], o2: Sequence[arb]) -> list[arb]:
        """Enclose Δ = W_O (o(X1) − o(X2)), what F's input differs by."""
        return (self.output * arb_mat([[a - b] for a, b in zip(o1, o2, strict=True)])).entries()


def _columns(bias: Array, table: Array | None, length: int) -> arb_mat:
    """Return a bias as one column a position, the table's row of the position added where there is one."""
    rows = [[arb(v) for v in bias.tolist()]] * length
    if table is not None:
        rows = [[a + b for a, b in zip(row, more, strict=True)] for row, more in zip(rows, table.tolist(), strict=True)]
    return arb_mat(rows).transpose()


def lipschitz(model: Weights, output: int) -> arb | None:
    """Bound the Lipschitz constant (Euclidean) of an output of the model's own F, its standardisation included.

    It is the product over the layers. The spectral norm of a matrix is at most its Schatten norms, which fall towards
    it: (trace (W Wᵀ)^k)^(1/2k), here with k = 32. |GELU'| is at most Φ(√2) + √2·φ(√2) < 1.129, |ReLU'| at most 1.
    A layer norm before F has slopes of any size: there is no bound then.
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
        power = power * power  # (W Wᵀ)^16, whose squares sum up to the trace of (W Wᵀ)^32
    total: Any = sum((v.abs_upper() ** 2 for v in power.entries()), arb(0))
    return total.root(64)
