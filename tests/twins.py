"""Independent twins, written from the formulas with plain loops in NumPy: slow, sharing no code with the package."""

from __future__ import annotations

from math import erf
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def _norm(u: Array, w: dict[str, Array], name: str) -> Array:
    if name + ".weight" not in w:
        return u
    centred = u - u.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * w[name + ".weight"] + w[name + ".bias"]


def _feedforward(u: Array, w: dict[str, Array], name: str, kind: str) -> Array:
    count = 5 if kind == "relu5" else 2
    for k in range(count):
        u = w[f"{name}.layers.{k}.weight"] @ u + w[f"{name}.layers.{k}.bias"]
        if k < count - 1:
            u = np.array([0.5 * v * (1 + erf(v / 2**0.5)) for v in u]) if kind == "gelu2" else np.maximum(u, 0)
    return u


def _attend(query: Array, keys: Array, w: dict[str, Array], name: str, m: dict[str, Any]) -> Array:
    """W_O [o_1; …; o_h] for one query and the list of keys, head after head."""
    total = np.zeros_like(query)
    for i in range(m["heads"]):
        q = w[f"{name}.query"][i] @ query
        scores = []
        for t, e in enumerate(keys):
            r = q @ (w[f"{name}.key"][i] @ e)
            position = t - (1 if m["class_key"] else 0)
            if f"{name}.gates" in w and position >= 0:
                r += w[f"{name}.gates"][i, position]
            if m["beta"] == "learned":
                r *= np.exp(w[f"{name}.log_beta"][i])
            else:
                r *= m["beta"] if isinstance(m["beta"], float) else 1 / np.sqrt(m["head_dim"])
            scores.append(r)
        weights = np.exp(np.array(scores) - max(scores))
        weights /= weights.sum()
        o = sum(a * (w[f"{name}.value"][i] @ e) for a, e in zip(weights, keys, strict=True))
        total = total + w[f"{name}.output"][i] @ o
    return total


def transformer(w: dict[str, Array], m: dict[str, Any], x: Array, mask: Array | None = None) -> Array:
    """Equation 4 (and its deeper form) for one sequence x[length, dim], from the weights by name."""
    tokens = []
    for t, token in enumerate(x):
        pre = w["encoder.inner.weight"] @ token + w["encoder.inner.bias"]
        if m["positions"] == "concatenated":
            pre = pre + w["encoder.hidden_bias"][t]
        e = w["encoder.outer.weight"] @ np.maximum(pre, 0) + w["encoder.outer.bias"]
        tokens.append(e + w["encoder.position"][t] if m["positions"] == "additive" else e)
    c = w["class_token"]
    real = np.ones(len(x), bool) if mask is None else mask
    for layer in range(m["depth"]):
        name = f"layers.{layer}"
        keys = [_norm(e, w, name + ".norm_attention") for e in tokens]
        asks = list(keys)
        ask_c = _norm(c, w, name + ".norm_attention")
        keys = [k for k, r in zip(keys, real, strict=True) if r] if m["positions"] != "gates" else keys
        if m["class_key"]:
            keys = [ask_c, *keys]
        att = f"{name}.attention"
        new_c = c + _attend(ask_c, np.array(keys), w, att, m)
        if layer == m["depth"] - 1:
            return _feedforward(_norm(new_c, w, name + ".norm_feedforward"), w, name + ".feedforward", m["feedforward"])
        mixed = [_attend(a, np.array(keys), w, att, m) for a in asks]
        rows = [new_c, *[e + v if m["residual"] else v for e, v in zip(tokens, mixed, strict=True)]]
        out = []
        for u in rows:
            f = _feedforward(_norm(u, w, name + ".norm_feedforward"), w, name + ".feedforward", m["feedforward"])
            out.append(u + f if m["residual"] else f)
        c, tokens = out[0], out[1:]
    raise AssertionError("a model has at least one layer")


def parameter_counts(m: dict[str, Any]) -> dict[str, int]:
    """Count by the formulas: M is P and F; the total adds attention, class token, norms and learned betas."""
    d, N, E, h, n, K, out, T = (
        m[k] for k in ("dim", "hidden", "width", "heads", "head_dim", "hidden_ff", "out_dim", "length")
    )
    encoder = N * d + N + E * N + E + {"concatenated": T * N, "additive": T * E}.get(m["positions"], 0)
    inner = 3 * (K * K + K) if m["feedforward"] == "relu5" else 0
    F = [K * E + K + inner + o * K + o for o in [E] * (m["depth"] - 1) + [out]]
    gates = m["depth"] * h * T if m["positions"] == "gates" else 0
    attention = m["depth"] * (4 * h * n * E + (h if m["beta"] == "learned" else 0))
    norms = m["depth"] * 4 * E if m["layer_norm"] else 0
    paper = encoder + sum(F) + gates
    return {"paper": paper, "total": paper + attention + E + norms}
