"""The compiled training step: steps of Adam, divergence, the flat layout, single-precision functions.

Loss, outputs and gradients are compared in test_cpu_exact.py.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from headcount import ModelSpec, Transformer
from headcount.kernels.step import numba_math as cpu_math
from headcount.models.transformer.compiled import Compiled
from headcount.models.transformer.flat import TENSOR_NAMES, Flat, why_not_collapsed


def test_comparison_can_fail() -> None:
    """A weight moved by a millionth shows in loss and prediction."""
    rng = np.random.default_rng(0)
    spec = ModelSpec(dim=2, length=5, heads=3, head_dim=2, hidden=9)
    compiled = Compiled(spec)
    theta = compiled.flat.pack(Transformer(spec, dtype=torch.float64))
    X, y = rng.standard_normal((20, 5, 2)), rng.standard_normal((20, 1))
    loss, _ = compiled.gradient(theta, X, y)
    for j in rng.integers(len(theta), size=20):
        moved = theta.copy()
        moved[j] += 1e-6
        assert compiled.gradient(moved, X, y)[0] != loss


@pytest.mark.parametrize("decoupled", [False, True])
def test_adam_matches_torch(decoupled: bool) -> None:
    rng = np.random.default_rng(1)
    spec = ModelSpec(dim=2, length=4, heads=2, head_dim=3, hidden=6)
    compiled, model = Compiled(spec), Transformer(spec, dtype=torch.float64)
    theta = compiled.flat.pack(model)
    first, second = np.zeros_like(theta), np.zeros_like(theta)
    X, y = rng.standard_normal((30, 4, 2)), rng.standard_normal((30, 1))
    index, rates = rng.integers(30, size=(12, 8)), np.linspace(1e-2, 1e-3, 12)
    kind = torch.optim.AdamW if decoupled else torch.optim.Adam
    optimiser = kind(model.parameters(), lr=1.0, weight_decay=0.1)
    for rows, rate in zip(index, rates, strict=True):
        optimiser.param_groups[0]["lr"] = float(rate)
        optimiser.zero_grad()
        (model(torch.from_numpy(X[rows])) - torch.from_numpy(y[rows])).square().mean().backward()
        optimiser.step()
    no_mask = np.zeros((0, 0), np.bool_)
    done = compiled.steps(theta, first, second, X, y, no_mask, index[:5], rates[:5], 0, 0.1, decoupled)
    done += compiled.steps(theta, first, second, X, y, no_mask, index[5:], rates[5:], 5, 0.1, decoupled)
    assert done == 12
    assert np.abs(theta - compiled.flat.pack(model)).max() < 1e-13


def test_divergence_stops_before_the_step() -> None:
    spec = ModelSpec(dim=1, length=2, heads=1, head_dim=1, hidden=2)
    compiled = Compiled(spec)
    theta = compiled.flat.pack(Transformer(spec))
    X, y = np.ones((4, 2, 1), np.float32), np.ones((4, 1), np.float32)
    y[3] = np.nan
    index = np.array([[0, 1], [1, 2], [2, 3], [0, 1]])
    moments = np.zeros_like(theta), np.zeros_like(theta)
    assert compiled.steps(theta, *moments, X, y, np.zeros((0, 0), np.bool_), index, np.full(4, 0.1), 0, 0.0, False) == 2
    assert np.isfinite(theta).all()


def test_flat_round_trip_and_reasons() -> None:
    spec = ModelSpec(dim=2, length=3, heads=2, positions="gates", beta="learned")
    model, flat = Transformer(spec, seed=4), Flat.of(spec)
    theta = flat.pack(model)
    assert theta.size == flat.size == model.counts()["total"]
    for (name, a), (_, b) in zip(model.tensors(), flat.unpack(theta).tensors(), strict=True):
        assert torch.equal(a, b), name
    offsets = dict(zip(TENSOR_NAMES, flat.offsets().tolist(), strict=True))
    assert offsets["encoder.hidden_bias"] == -1
    gates = dict(model.tensors())["layers.0.attention.gates"].numpy().ravel()
    assert np.array_equal(theta[offsets["layers.0.attention.gates"] :][: gates.size], gates)
    assert why_not_collapsed(spec) is None
    for options in (
        {"depth": 2},
        {"layer_norm": True},
        {"class_key": True},
        {"positions": "additive"},
        {"feedforward": "relu5"},
    ):
        assert why_not_collapsed(ModelSpec(dim=2, length=3, heads=2, **options))


def test_single_precision_functions() -> None:
    from numba import njit

    @njit
    def table(x, out):  # type: ignore[no-untyped-def]
        for i in range(x.size):
            out[i, 0] = cpu_math.exp(x[i])
            out[i, 1], out[i, 2] = cpu_math.normal(x[i])

    x = np.linspace(-86, 88, 20001).astype(np.float32)
    out = np.empty((x.size, 3), np.float32)
    table(x, out)
    assert np.abs(out[:, 0] / np.exp(x.astype(np.float64)) - 1).max() < 2e-7
    true = np.array([[cpu_math.normal(float(v))[0], cpu_math.normal(float(v))[1]] for v in x])
    assert np.abs(out[:, 1:] - true).max() < 2e-7
    tail = (x > -8) & (x < 0)  # GELU's left side: relative, up to the rounding of x² in the exponent
    assert (np.abs(out[tail, 1] / true[tail, 0] - 1) < 5e-7 + 1e-7 * x[tail] ** 2).all()
    assert (np.abs(1.00002 * out[tail, 1] / true[tail, 0] - 1) > 5e-7 + 1e-7 * x[tail] ** 2).any()
    table(np.array([-87.5, -np.inf, 0.0], np.float32), out)
    assert out[:3, 0].tolist() == [0.0, 0.0, 1.0]
    assert math.isnan(float(table_of_nan(table)))


def table_of_nan(table) -> float:  # type: ignore[no-untyped-def]
    """A NaN must come out as a NaN, or divergence would hide."""
    out = np.empty((1, 3), np.float32)
    table(np.array([np.nan], np.float32), out)
    return out[0, 0] + out[0, 1] if math.isnan(out[0, 1]) else 0.0
