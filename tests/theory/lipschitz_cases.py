"""Brute force for the bound over all encoders: layers on a few letters, and the best block behind them.

Where the targets of two sequences differ by |ΔH| and the heads' outputs by max_r |Δo_r|/Δ_r = d, every G of reach R
errs by (|ΔH| − R·d)/2 on one of the two, and some G by no more than the largest of these over all pairs (McShane).
"""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def sequences(K: int, T: int, positions: bool) -> NDArray[np.int64]:
    """Return all sequences of T letters; without positions one of each multiset."""
    some = itertools.product(range(K), repeat=T) if positions else itertools.combinations_with_replacement(range(K), T)
    return np.array(list(some))


def missing(words: NDArray[np.int64], K: int) -> Array:
    """Return the target: how many letters a sequence lacks. It is Σ min f_i with f_i(e_j) = 1 − [i = j], and γ = 1."""
    return np.array([K - len(set(word)) for word in words.tolist()], float)


def outputs(logits: Array, values: Array, words: NDArray[np.int64]) -> Array:
    """Return o[layers, sequences, heads] of layers with logits and values[layers, heads, K, T]."""
    t = np.arange(words.shape[1])
    s, v = logits[:, :, words, t], values[:, :, words, t]
    a = np.exp(s - s.max(-1, keepdims=True))
    return ((a * v).sum(-1) / a.sum(-1)).transpose(0, 2, 1)


def least_error_behind(o: Array, target: Array, reach: float) -> Array:
    """Return, for each layer, the smallest sup error over all G of this reach; values lie in [0, 1], so Δ = 1."""
    far = np.abs(o[:, :, None] - o[:, None]).max(-1)
    return np.maximum(0.0, np.abs(target[:, None] - target[None]) - reach * far).max((1, 2)) / 2


def best_layer(
    K: int, T: int, heads: int, reach: float, positions: bool, seed: int, *, n: int = 1, rounds: int = 60
) -> float:
    """Search for the layer that allows the smallest error of any G; return that error. `n` is the head size."""
    tried = 48
    rng = np.random.default_rng(seed)
    words = sequences(K, T, positions)
    target, spots = missing(words, K), T if positions else 1
    size, many = (tried, heads, K, spots), (tried, heads * n, K, spots)
    logits, values = 3.0 * rng.standard_normal(size), rng.random(many)
    best, step, kept = np.inf, 1.0, (logits[0], values[0])
    for _ in range(rounds):
        wide = [np.broadcast_to(w, (tried, heads * n, K, T)) for w in (np.repeat(logits, n, axis=1), values)]
        found = least_error_behind(outputs(*wide, words), target, reach)
        k = int(found.argmin())
        if found[k] < best:
            best, kept = float(found[k]), (logits[k], values[k])
        else:
            step *= 0.85
        logits = kept[0] + 2.0 * step * rng.standard_normal(size) * (rng.random(size) < 0.5)
        moved = kept[1] + 0.5 * step * rng.standard_normal(many) * (rng.random(many) < 0.5)
        values = np.clip(moved, 0.0, 1.0)
    return best
