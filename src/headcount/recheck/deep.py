"""What F reads in models with several layers or layer norms: forward differentiation in ball arithmetic.

Every vector of the residual stream is kept together with its slopes: row k of its matrix is
[v_k, ∂v_k/∂x_1, …, ∂v_k/∂x_P], so that one product with a weight matrix maps both values and slopes. With P = 0 there
are only values. The code follows the equations of `models/transformer/reference.py`, but does not import it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flint import arb, arb_mat

from headcount.core.readers import FEEDFORWARD_LAYERS
from headcount.recheck.heads import Sequences, check_length, inverse_temperature, matrix, slope, softmax
from headcount.recheck.weights import Weights

NORM_EPS = 1e-5  # of the layer norms; exactly this double


class Deep:
    """A model of any depth, with the interface of `Heads`.

    F reads u = (class token's row) + W_O o. For one layer that row is a constant, so it suffices that o agrees; we use
    o if it is not longer than u, and u itself otherwise.
    """

    def __init__(self, model: Weights, length: int) -> None:
        check_length(model, length)
        self.model, self.spec = model, model.config["model"]
        h, n, E = (self.spec[key] for key in ("heads", "head_dim", "width"))
        self.heads_only = self.spec["depth"] == 1 and h * n <= E
        self.count = h * n if self.heads_only else E
        self.balls = {name: matrix(t) for name, t in model.tensors.items() if t.ndim < 3}
        for name, t in model.tensors.items():
            if t.ndim == 3:  # stack the heads: W_Q, W_K, W_V [h·n, E] and W_O [E, h·n]
                stacked = t.transpose(1, 0, 2).reshape(E, h * n) if name.endswith("output") else t.reshape(h * n, E)
                self.balls[name] = matrix(stacked)

    def outputs(self, X: Sequences) -> list[arb]:
        """Enclose the numbers that must agree, one per equation."""
        return _values(self._read(X, 0))

    def slopes(self, X: Sequences) -> list[list[arb]]:
        """Enclose their slopes: one list per coordinate t·dim + j of X, with one number per equation."""
        return self._read(X, len(X) * len(X[0])).transpose().table()[1:]

    def difference(self, o1: Sequence[arb], o2: Sequence[arb]) -> list[arb]:
        """Enclose Δ, the difference of F's inputs."""
        delta = arb_mat([[a - b] for a, b in zip(o1, o2, strict=True)])
        return (self.balls["layers.0.attention.output"] * delta).entries() if self.heads_only else delta.entries()

    def _read(self, X: Sequences, P: int) -> arb_mat:
        keep, depth = arb(int(self.spec["residual"])), self.spec["depth"]
        stream = [_padded(self.balls["class_token"], P), *[self._encode(x, t, P) for t, x in enumerate(X)]]
        for k in range(depth):
            name, last = f"layers.{k}.", k == depth - 1
            normed = [self._norm(u, name + "norm_attention") for u in stream]
            keys = normed[0 if self.spec["class_key"] else 1 :]
            o = self._attend(normed[:1] if last else normed, keys, name + "attention.")
            if last and self.heads_only:
                return o[0]
            mixed = [self.balls[name + "attention.output"] * v for v in o]
            stream = [u * (keep if t else arb(1)) + v for t, (u, v) in enumerate(zip(stream, mixed, strict=False))]
            if not last:
                stream = [u * keep + self._feedforward(self._norm(u, name + "norm_feedforward"), name) for u in stream]
        return stream[0]

    def _encode(self, x: Sequence[arb], t: int, P: int) -> arb_mat:
        """Return the embedding of token t, whose coordinates are t·dim + j."""
        own = [[arb(int(p == t * len(x) + j)) for p in range(P)] for j in range(len(x))]
        pre = self._affine(arb_mat([[v, *row] for v, row in zip(x, own, strict=True)]), "encoder.inner.")
        e = self._affine(_apply(pre + self._at("encoder.hidden_bias", t, pre), _relu), "encoder.outer.")
        return e + self._at("encoder.position", t, e)

    def _at(self, table: str, t: int, like: arb_mat) -> arb_mat:
        """Return the row of a table for a position, or 0 if the model has no such table."""
        if table not in self.model.tensors:
            return arb_mat(like.nrows(), like.ncols())
        return _padded(matrix(self.model[table][t]), like.ncols() - 1)

    def _affine(self, u: arb_mat, name: str) -> arb_mat:
        return self.balls[name + "weight"] * u + _padded(self.balls[name + "bias"], u.ncols() - 1)

    def _feedforward(self, u: arb_mat, name: str) -> arb_mat:
        *inner, last = (f"{name}feedforward.layers.{k}." for k in range(FEEDFORWARD_LAYERS[self.spec["feedforward"]]))
        for layer in inner:
            u = _apply(self._affine(u, layer), _gelu if self.spec["feedforward"] == "gelu2" else _relu)
        return self._affine(u, last)

    def _norm(self, u: arb_mat, name: str) -> arb_mat:
        """Return (u − mean)/√(variance + NORM_EPS), scaled and shifted."""
        if not self.spec["layer_norm"]:
            return u
        E, P = u.nrows(), u.ncols() - 1
        c = u - arb_mat([[v / E for v in (arb_mat([[1] * E]) * u).entries()]] * E)
        value = arb_mat([_values(c)])
        variance, *steep = ((value * c) * (arb(1) / E)).entries()  # means of c·∂c/∂x: half of its slopes
        root = (variance + NORM_EPS).rsqrt()
        scale_slopes = arb_mat([[arb(0), *[-v * root**3 for v in steep]]])
        normed = c * root + value.transpose() * scale_slopes
        weight = self.balls[name + ".weight"].entries()
        scaled = arb_mat([[w * v for v in row] for w, row in zip(weight, normed.table(), strict=True)])
        return scaled + _padded(self.balls[name + ".bias"], P)

    def _attend(self, queries: list[arb_mat], keys: list[arb_mat], name: str) -> list[arb_mat]:
        """Return [o_1; …; o_h] for every query: ∂o = Σ_t w(t)·∂v(t) + v(t)·w(t)·(∂s(t) − Σ_t' w(t')·∂s(t'))."""
        n, h, P = self.spec["head_dim"], self.spec["heads"], keys[0].ncols() - 1
        gates = self.model.tensors.get(name + "gates")
        beta = inverse_temperature(self.spec, self.model.tensors.get(name + "log_beta"))
        Q, K, V = (
            [(self.balls[name + part] * u).table() for u in rows]
            for part, rows in (("query", queries), ("key", keys), ("value", keys))
        )
        found = [list[list[arb]]() for _ in queries]
        for i in range(h):
            part = slice(i * n, (i + 1) * n)
            k, v = ([arb_mat(u[part]) for u in rows] for rows in (K, V))
            values = arb_mat([_values(u) for u in v]).transpose()
            for query, out in zip(Q, found, strict=True):
                q = arb_mat(query[part])
                scores = list[list[arb]]()
                for t, key in enumerate(k):
                    r, *steep = (arb_mat([_values(q)]) * key + arb_mat([_values(key)]) * q).entries()
                    at = t - int(self.spec["class_key"])  # a class token among the keys comes first and has no gate
                    gate = arb(float(gates[i, at])) if gates is not None and at >= 0 else arb(0)
                    scores.append([beta[i] * (r / 2 + gate), *[beta[i] * d for d in steep]])
                w = softmax([row[0] for row in scores])
                mean = (arb_mat([w]) * arb_mat(scores)).entries()
                moved = [
                    [arb(0), *[p * (d - m) for d, m in zip(row[1:], mean[1:], strict=True)]]
                    for p, row in zip(w, scores, strict=True)
                ]
                total = sum((u * p for p, u in zip(w, v, strict=True)), arb_mat(n, P + 1))
                out += (total + values * arb_mat(moved)).table()
        return [arb_mat(rows) for rows in found]


def _values(u: arb_mat) -> list[arb]:
    return [row[0] for row in u.table()]


def _padded(column: arb_mat, P: int) -> arb_mat:
    """Return a constant vector, with slopes 0."""
    return arb_mat([[v, *[arb(0)] * P] for v in column.entries()])


def _apply(u: arb_mat, function: Callable[[arb], tuple[arb, arb]]) -> arb_mat:
    """Apply a scalar function, given as value and slope, to all components."""
    rows = list[list[arb]]()
    for v, *steep in u.table():
        value, d = function(v)
        rows.append([value, *[d * s for s in steep]])
    return arb_mat(rows)


def _relu(v: arb) -> tuple[arb, arb]:
    return v.max(arb(0)), slope(v)


def _gelu(v: arb) -> tuple[arb, arb]:
    """Return v·Φ(v) and its slope Φ(v) + v·φ(v)."""
    cdf = (1 + (v / arb(2).sqrt()).erf()) / 2
    return v * cdf, cdf + v * (-v * v / 2).exp() / (2 * arb.pi()).sqrt()
