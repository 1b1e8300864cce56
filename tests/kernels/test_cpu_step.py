"""The compiled training step against the reference: loss, gradient, steps of Adam, over random shapes and options."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from headcount import ModelSpec, Transformer
from headcount.kernels import cpu_math
from headcount.models.compiled import Compiled
from headcount.models.flat import NAMES, Flat, collapses


def random_spec(rng: np.random.Generator) -> ModelSpec:
    pick = lambda *options: options[rng.integers(len(options))]  # noqa: E731
    size = lambda low, high: int(rng.integers(low, high + 1))  # noqa: E731
    return ModelSpec(
        dim=size(1, 5), length=pick(1, 2, size(3, 40), 300), out_dim=size(1, 3), heads=size(1, 17),
        head_dim=size(1, 6), hidden=size(1, 40), width=pick(None, size(1, 20)), hidden_ff=pick(None, size(1, 20)),
        positions=pick("none", "concatenated", "gates"), beta=pick("scaled", "learned", 0.5, 30.0),
        feedforward=pick("gelu2", "relu2"),
    )  # fmt: skip


def both(seed: int, dtype: type, *, scale: float = 1.0, masked: bool = False) -> tuple[float, float, float]:
    """Return the relative errors of loss, gradient and prediction against the float64 reference."""
    rng = np.random.default_rng(seed)
    spec = random_spec(rng)
    model = Transformer(spec, seed=seed, dtype=torch.float64)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.from_numpy(0.2 * rng.standard_normal(tuple(p.shape))))
        model.layers[0].attention.query.mul_(scale)
    compiled = Compiled(spec)
    theta = compiled.flat.pack(model).astype(dtype)
    model = compiled.flat.unpack(theta.astype(np.float64))  # the reference starts from the very same numbers
    X = rng.standard_normal((int(rng.integers(1, 40)), spec.length, spec.dim)).astype(dtype)
    y = rng.standard_normal((len(X), spec.out_dim)).astype(dtype)
    mask = np.zeros((0, 0), np.bool_)
    if masked:
        mask = rng.random((len(X), spec.length)) < 0.6
        mask[:, 0] = True
    loss, grad = compiled.gradient(theta, X, y, mask)
    told = torch.from_numpy(mask) if masked else None
    out = model(torch.from_numpy(X.astype(np.float64)), told)
    true = (out - torch.from_numpy(y.astype(np.float64))).square().mean()
    true.backward()
    wanted = np.concatenate([p.grad.numpy().ravel() for p in model.parameters()])
    values = compiled.predict(theta, X, mask)
    return (
        abs(loss - float(true)) / float(true), float(np.abs(grad - wanted).max() / np.abs(wanted).max()),
        float(np.abs(values - out.detach().numpy()).max() / np.abs(out.detach().numpy()).max()),
    )  # fmt: skip


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_float64(seed: int, masked: bool) -> None:
    assert max(both(seed, np.float64, masked=masked)) < 1e-12


@pytest.mark.parametrize("seed", range(12))
def test_float32(seed: int) -> None:
    assert max(both(seed, np.float32)) < 1e-5 * 3  # three roundings deep: loss, gradient and output in one bound


@pytest.mark.parametrize("seed", range(4))
def test_saturated_softmax(seed: int) -> None:
    loss, grad, out = both(seed, np.float64, scale=1e4)
    assert max(loss, out) < 1e-10
    assert grad < 1e-8


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
def test_adam_is_torchs(decoupled: bool) -> None:
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
    offsets = dict(zip(NAMES, flat.offsets().tolist(), strict=True))
    assert offsets["encoder.hidden_bias"] == -1
    gates = dict(model.tensors())["layers.0.attention.gates"].numpy().ravel()
    assert np.array_equal(theta[offsets["layers.0.attention.gates"] :][: gates.size], gates)
    assert collapses(spec) is None
    for options in (
        {"depth": 2},
        {"layer_norm": True},
        {"class_key": True},
        {"positions": "additive"},
        {"feedforward": "relu5"},
    ):
        assert collapses(ModelSpec(dim=2, length=3, heads=2, **options))


def test_single_precision_functions() -> None:
    from numba import njit

    @njit
    def table(x, out):  # type: ignore[no-untyped-def]
        for i in range(x.size):
            out[i, 0] = cpu_math.exp(x[i])
            out[i, 1], out[i, 2] = cpu_math.normal(x[i])

    x = np.linspace(-80, 80, 20001).astype(np.float32)
    out = np.empty((x.size, 3), np.float32)
    table(x, out)
    assert np.abs(out[:, 0] / np.exp(x.astype(np.float64)) - 1).max() < 2e-7
    true = np.array([[cpu_math.normal(float(v))[0], cpu_math.normal(float(v))[1]] for v in x])
    assert np.abs(out[:, 1:] - true).max() < 2e-7
    assert math.isnan(float(table_of_nan(table)))


def table_of_nan(table) -> float:  # type: ignore[no-untyped-def]
    """A NaN must come out as a NaN, or divergence would hide."""
    out = np.empty((1, 3), np.float32)
    table(np.array([np.nan], np.float32), out)
    return out[0, 1]
