"""Bound how far a certified model computed in float64 is from the same model in exact arithmetic, on the whole box.

*Assumptions on the arithmetic.* IEEE doubles, rounded to nearest, u = 2^-53. Every +, −, ×, ÷ and fused multiply-add
has a relative error of at most u. A result or an operand below 2^-1022 may be off by that much (gradual underflow, or
flushed to 0). A sum of n products may be added in any order and in any blocks. exp errs by at most EXP_ULPS units in
the last place. Softmax subtracts the largest score first. Inputs are doubles in the box, hence exact.

*Scope.* `models/transformer/reference.py` in float64, and the NumPy code of docs/format.md. Both compute the query W_Q
c first; scores and head outputs are then sums over query, keys, weights and embeddings, in any association. Engines
that first multiply weight matrices with each other (`stacked.py` and `compiled.py` of `models/transformer/`) are not
covered.

*The proof* propagates two bounds through the layers: `size` bounds the magnitude of both the computed and the exact
number, and `error` bounds their distance.

1. *W x + b.* Let n weights of a row differ from 0. Products with 0 are 0 and add no error, so every term goes through
   at most n + 1 roundings: |computed − exact| ≤ |W|·error + γ_{n+1}·(|W|·size + |b|) + underflow, with
   γ_n = nu/(1 − nu). Every partial sum, in any order, is at most |W|·size + |b| + error. ReLU is exact and 1-Lipschitz.
2. *Scores* β·(q·k + g) are sums of products of four numbers. A term goes through at most one rounding for every term of
   the longest such sum and a few more, so every score is within some η of the exact one. Subtracting the largest score
   adds 2u·max|s|, and exp adds a relative error of 2·EXP_ULPS·u. So the computed weights are the exact weights for
   scores within η' of the exact ones, times 1 ± γ_{T+4} for sum and division.
3. *Head outputs.* Weights for scores within η' differ from the exact ones by factors within e^(±2η'), so the output
   moves by at most (e^(2η') − 1) times the mean of |v|. If more is known about the scores, `moved` gives a better bound
   (enough.py). A weight is at most 1, and at most e^(2 max|s|)/T.
4. *No NaN.* NaN arises only from infinities and from 0/0. If every size is below 2^1023, nothing overflows, so there is
   no infinity; and the only denominator is at least the largest exp, which is within EXP_ULPS of 1. A model with a size
   that is not proved to be below 2^1023 is rejected, even if it is the score of a head that returns 0.

The bounds are themselves computed in float64, as sums and products of numbers ≥ 0. SLACK covers their own
rounding, at most about MAX_TERMS·u, and UNDERFLOW covers every underflow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headcount.recheck.statement import real
from headcount.recheck.weights import Rejected, Weights

Array = NDArray[np.float64]
ROUNDOFF = 2.0**-53  # u, the unit roundoff of float64
EXP_ULPS = 4  # torch's and NumPy's libraries state 1 ulp or less; four leaves room for others
MAX_MAGNITUDE = 2.0**1023  # half of the overflow threshold
MAX_TERMS = 10_000_000
SLACK = 1 + 1e-6  # a factor above 1 + MAX_TERMS·u
UNDERFLOW = 1e-300  # more than 4·MAX_TERMS·2^-1022
MoveBound = Callable[[int, float], float]  # (head, η') → a bound on how far its output moves


class Numbers(NamedTuple):
    """Computed numbers [rows, columns]: bounds on their magnitude, and on their distance from the exact numbers."""

    size: Array
    error: Array


def rounding(model: Weights, low: Array, high: Array, moved: MoveBound | None = None) -> float:
    """Bound |computed in float64 − exact| for all outputs over the box; reject a model that can overflow."""
    if model.config["dtype"] != "float64":
        raise Rejected(f"the model computes in {model.config['dtype']}, but the proof is for float64")
    with np.errstate(all="ignore"):  # infinities and NaN are rejected below
        u = _attend(model, _embed(model, low, high), moved)
        layers = sum(name.startswith("layers.0.feedforward.") for name in model.tensors) // 2
        for k in range(layers):
            name = f"layers.0.feedforward.layers.{k}."
            u = _affine(f"layer {k + 1} of F", model[name + "weight"], model[name + "bias"], u)
    return float(u.error.max())


def _gamma(n: NDArray[np.intp] | int) -> Any:
    """Return γ_n; reject counts n above MAX_TERMS."""
    if not np.max(n) <= MAX_TERMS:
        raise Rejected(f"a sum in the model has more than {MAX_TERMS:,} terms, too many to bound its rounding")
    return n * ROUNDOFF / (1 - n * ROUNDOFF)


def _fits(what: str, *sizes: Array | float) -> None:
    """Reject sizes that may overflow; NaN fails the comparison too."""
    if not all(np.max(size) < MAX_MAGNITUDE for size in sizes):
        raise Rejected(f"{what} can overflow in float64 for inputs in the box: the model may return NaN")


def _affine(what: str, W: Array, b: Array | None, x: Numbers) -> Numbers:
    """Bound W x + b (step 1)."""
    weight, bias = np.abs(W), 0.0 if b is None else np.abs(b)[:, None]
    total = weight @ x.size + bias
    terms = np.count_nonzero(W, axis=1)[:, None] + 1
    underflow = UNDERFLOW * (1 + weight.sum(1, keepdims=True) + x.size.max())
    error = SLACK * (weight @ x.error + _gamma(terms) * total + underflow)
    found = Numbers(SLACK * (total + error) + UNDERFLOW, error + UNDERFLOW)
    _fits(what, *found)
    return found


def _embed(model: Weights, low: Array, high: Array) -> Numbers:
    """Bound e(t), a column per position, or one column if all are alike; units that are off are exactly 0."""
    W, b = model["encoder.inner.weight"], model["encoder.inner.bias"]
    table = model.tensors.get("encoder.hidden_bias", np.zeros((1, len(b)))).T
    widest = np.maximum(np.abs(low), np.abs(high))[:, None]
    x = Numbers(widest, np.zeros_like(widest))
    total = np.abs(W) @ widest + np.abs(b)[:, None] + np.abs(table)
    _fits("a hidden unit of the encoder", *_affine("a hidden unit of the encoder", W, b, x), 2 * total)
    terms = np.count_nonzero(W, axis=1)[:, None] + 6
    error = SLACK * (_gamma(terms) * total + UNDERFLOW * (1 + np.abs(W).sum(1, keepdims=True) + widest.max()))
    largest_input = np.maximum(W, 0) @ high[:, None] + np.minimum(W, 0) @ low[:, None] + b[:, None] + table
    size = np.maximum(largest_input + 2 * error, 0)  # once for the model's error, once for this sum's own
    hidden = Numbers(SLACK * size, np.minimum(error, size))
    return _affine("the embedding", model["encoder.outer.weight"], model["encoder.outer.bias"], hidden)


def _attend(model: Weights, e: Numbers, moved: MoveBound | None) -> Numbers:
    """Bound what F reads: c + Σ_i W_O,i o_i."""
    output = model["layers.0.attention.output"]  # [h, E, n]
    c = Numbers(np.abs(model["class_token"])[:, None], np.zeros((output.shape[1], 1)))
    heads = [_head(model, i, c, e, moved) for i in range(len(output))]
    o = Numbers(np.concatenate([v.size for v in heads]), np.concatenate([v.error for v in heads]))
    joined = output.transpose(1, 0, 2).reshape(output.shape[1], -1)
    return _affine("what F reads", joined, model["class_token"], o)


def _head(model: Weights, i: int, c: Numbers, e: Numbers, moved: MoveBound | None) -> Numbers:
    """Bound o_i[n, 1] (steps 2 and 3)."""
    length, where = model.config["model"]["length"], f"of head {i + 1}"
    value = model["layers.0.attention.value"][i]
    v = _affine(f"a value {where}", value, None, e)
    largest, eta = _scores(model, i, c, e)
    if not value.any():  # the head returns exactly 0, as its weights are finite
        return Numbers(np.zeros((len(value), 1)), np.zeros((len(value), 1)))
    repeats = length / e.size.shape[1]  # positions that one column stands for
    share = min(1.0, SLACK * math.exp(min(2 * (largest + eta), 700.0)) / length)

    def mean(u: Array) -> Array:
        return np.minimum(u.max(1), share * repeats * u.sum(1))[:, None]

    size = mean(v.size)
    shift = min(math.expm1(min(2 * eta, 700.0)), 2.0) * size
    if moved is not None:
        shift = np.minimum(shift, moved(i, eta))
    terms = length * (int(np.count_nonzero(value, axis=1).max()) + 1) + 8
    underflow = UNDERFLOW * (1 + np.abs(value).sum() + v.size.max())
    error = SLACK * (mean(v.error) + shift + _gamma(terms) * size + underflow)
    found = Numbers(SLACK * (size + error), error)
    _fits(f"the output {where}", *found)
    return found


def _scores(model: Weights, i: int, c: Numbers, e: Numbers) -> tuple[float, float]:
    """Return a bound on the scores of a head, and η' (step 2)."""
    spec, a, where = model.config["model"], "layers.0.attention.", f"of head {i + 1}"
    query, key = model[a + "query"][i], model[a + "key"][i]
    beta = 1.0 / math.sqrt(spec["head_dim"]) if spec["beta"] == "scaled" else real(spec["beta"])
    if not beta > 0:
        raise Rejected("the proof needs a beta above 0")
    gate = float(np.abs(model[a + "gates"][i]).max()) if a + "gates" in model.tensors else 0.0
    q = _affine(f"the query {where}", query, None, c).size
    k = _affine(f"a key {where}", key, None, e).size
    query_key = np.abs(key).T @ q  # q·W_K, in another association
    r = float((q.T @ k).max())
    query_terms, key_terms = np.count_nonzero(query * c.size.T, axis=1), np.count_nonzero(key, axis=1)
    terms = int((query_terms * key_terms + query_terms + 2 * key_terms).sum()) + 8
    sizes = np.abs(query).sum(), c.size.sum(), np.abs(key).sum(), e.size.sum(0).max()
    active = query.any() and key.any() and c.size.any()
    underflow = UNDERFLOW * math.prod(1 + float(v) for v in sizes) if active else UNDERFLOW
    largest = SLACK * beta * (r + gate)
    _fits(f"a score {where}", query_key, r + gate, largest, 2 * largest)
    moved = float((query_key.T @ e.error).max())
    eta = SLACK * (beta * (float(_gamma(terms)) * (r + gate) + moved + underflow) + UNDERFLOW)
    eta += 2 * ROUNDOFF * (largest + eta) + 2 * EXP_ULPS * ROUNDOFF
    return largest, SLACK * eta
