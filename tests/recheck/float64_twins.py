"""A certified model three times over: in exact numbers, as NumPy lines compute it, and with its sums in another order.

Written from equation 4; nothing of the package's own evaluation is used.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from flint import arb, arb_mat, ctx

from headcount.recheck.weights import Weights

BITS = 400
Array = np.ndarray[Any, np.dtype[np.float64]]


def _table(values: Array) -> arb_mat:
    return arb_mat([[arb(float(v)) for v in row] for row in np.atleast_2d(values)])


def _columns(m: arb_mat, bias: Array) -> arb_mat:
    return arb_mat([[v + arb(float(b)) for v in row] for row, b in zip(m.table(), bias, strict=True)])


def _relu(m: arb_mat) -> arb_mat:
    return arb_mat([[v.max(arb(0)) for v in row] for row in m.table()])


class Exact:
    """A model in 400-bit arithmetic: call it with one sequence X[T, d]."""

    def __init__(self, model: Weights) -> None:
        self.w, self.spec = model.tensors, model.config["model"]
        self.tables = {
            name: [_table(m) for m in t] if t.ndim == 3 else [_table(t if t.ndim == 2 else t[:, None])]
            for name, t in self.w.items()
        }

    def __call__(self, X: Array) -> list[arb]:
        before, ctx.prec = ctx.prec, BITS
        try:
            return self._outputs(X)
        finally:
            ctx.prec = before

    def _outputs(self, X: Array) -> list[arb]:
        w, table, a = self.w, self.tables, "layers.0.attention."
        pre = _columns(table["encoder.inner.weight"][0] * _table(X.T), w["encoder.inner.bias"])
        if "encoder.hidden_bias" in w:
            pre = pre + table["encoder.hidden_bias"][0].transpose()
        e = _columns(table["encoder.outer.weight"][0] * _relu(pre), w["encoder.outer.bias"])
        token = u = table["class_token"][0]
        for i in range(self.spec["heads"]):
            query, key, value, output = (table[a + part][i] for part in ("query", "key", "value", "output"))
            r = ((query * token).transpose() * (key * e)).entries()
            gates = w[a + "gates"][i] if a + "gates" in w else np.zeros(len(X))
            s = [arb(self.spec["beta"]) * (v + arb(float(g))) for v, g in zip(r, gates, strict=True)]
            top = max(s, key=float)
            p = [(v - top).exp() for v in s]
            u = u + output * (value * e * arb_mat([[v / sum(p, arb(0))] for v in p]))
        layers = 5 if self.spec["feedforward"] == "relu5" else 2
        for k in range(layers):
            name = f"layers.0.feedforward.layers.{k}."
            u = _columns(table[name + "weight"][0] * u, w[name + "bias"])
            u = u if k == layers - 1 else _relu(u)
        return u.entries()


def documented(folder: Path, X: Array) -> Array:
    """Return the evaluation that docs/format.md prints, run from there."""
    text = (Path(__file__).parents[2] / "docs/format.md").read_text()
    block = next(part.split("```")[0] for part in text.split("```python\n")[1:] if "def evaluate" in part)
    names: dict[str, Any] = {}
    exec(block, names)
    return names["evaluate"](folder, X)


def shuffled(model: Weights, X: Array, rng: np.random.Generator) -> Array:
    """Evaluate one sequence in float64, adding the terms of every sum in random order."""

    def product(W: Array, u: Array) -> Array:
        order = rng.permutation(W.shape[1])
        total = np.zeros((len(W), u.shape[1]))
        for j in order:
            total = total + W[:, j : j + 1] * u[j]
        return total

    w, spec, a = model.tensors, model.config["model"], "layers.0.attention."
    pre = product(w["encoder.inner.weight"], X.T) + w["encoder.inner.bias"][:, None]
    pre = pre + (w["encoder.hidden_bias"].T if "encoder.hidden_bias" in w else 0.0)
    e = product(w["encoder.outer.weight"], np.maximum(pre, 0)) + w["encoder.outer.bias"][:, None]
    token = w["class_token"][:, None]
    heads = []
    for i in rng.permutation(spec["heads"]):
        q, k, v = product(w[a + "query"][i], token), product(w[a + "key"][i], e), product(w[a + "value"][i], e)
        r = spec["beta"] * (product(q.T, k)[0] + (w[a + "gates"][i] if a + "gates" in w else 0.0))
        p = np.exp(r - r.max())
        heads.append(product(w[a + "output"][i], product(v, (p / product(p[None], np.ones((len(p), 1))))[0][:, None])))
    u = token + sum(heads)
    layers = 5 if spec["feedforward"] == "relu5" else 2
    for k in range(layers):
        name = f"layers.0.feedforward.layers.{k}."
        u = product(w[name + "weight"], u) + w[name + "bias"][:, None]
        u = u if k == layers - 1 else np.maximum(u, 0)
    return u[:, 0]
