"""Stacked models against the reference, one model at a time: values and gradients, every option.

The error of a tensor is relative to its own largest entry: 1e-12 in float64 against the reference, 1e-5 in float32
against the reference in float64. Where the softmax is saturated both are measured against a truth in a higher
precision (`tests/kernels/test_cpu_exact.py`): torch's a·(da − Σ a da) cancels there, in the reference as in the stack,
so what is asked of a tensor is the bound or three times the reference's own error, and of all of them the bound
relative to the largest entry of the whole gradient.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from headcount.models.flat import Flat, collapses
from headcount.models.reference import Transformer
from headcount.models.spec import ModelSpec
from headcount.models.stacked import collapsed, forward, general, loss_and_gradient
from kernels.test_cpu_exact import BOUND, Case, assert_close, errors, make_case, reference, saturated_case, truth
from kernels.test_cpu_exact import split as named

SMALL = {"dim": 3, "length": 5, "heads": 3, "head_dim": 2, "hidden": 6}
COLLAPSED = [
    {},
    {"heads": 1, "length": 1, "dim": 1},
    {"heads": 17, "head_dim": 1, "hidden": 7, "hidden_ff": 9, "out_dim": 2},
    {"positions": "gates", "beta": "learned"},
    {"positions": "concatenated", "feedforward": "relu2", "beta": 3.0},
    {"width": 11, "hidden_ff": 4},
    {"length": 1000, "heads": 17, "head_dim": 1, "hidden": 4, "positions": "gates"},
]
GENERAL = [
    {"depth": 2},
    {"depth": 3, "residual": True, "layer_norm": True},
    {"layer_norm": True},
    {"class_key": True, "positions": "gates", "beta": "learned"},
    {"positions": "additive"},
    {"feedforward": "relu5", "out_dim": 3},
    {"depth": 2, "class_key": True, "residual": True, "positions": "gates", "beta": "learned", "layer_norm": True},
]


def stack(options: dict, models: int = 3):
    spec = ModelSpec(**{**SMALL, **options})
    flat = Flat.of(spec)
    theta = np.stack([flat.pack(Transformer(spec, seed=seed, dtype=torch.float64)) for seed in range(models)])
    g = torch.Generator().manual_seed(5)
    theta = torch.from_numpy(theta) + 0.1 * torch.randn(theta.shape, generator=g, dtype=torch.float64)  # no zeros
    X = torch.randn(9, spec.length, spec.dim, generator=g, dtype=torch.float64)
    mask = torch.rand(9, spec.length, generator=g) < 0.7
    mask[:, -1] = True
    return flat, theta, X, torch.randint(9, (models, 4), generator=g), mask


def compare(function, options: dict, with_mask: bool, dtype: type = np.float64, spoil: str = "") -> None:
    flat, theta, X, index, mask = stack(options)
    for name in ("encoder.inner.weight", "encoder.inner.bias", "encoder.hidden_bias"):  # away from the kinks of ReLU
        for row in theta.numpy():
            tensor = named(flat.spec, row).get(name, np.zeros(0))
            tensor[...] = np.round(64 * tensor) / 64
    single = torch.from_numpy(np.zeros(0, dtype)).dtype
    theta, X = theta.to(single), (torch.round(32 * X) / 32).to(single)
    theta.requires_grad_()
    rows = mask if with_mask else None
    out = function(flat, theta, X, index, rows)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(single)
    (gradient,) = torch.autograd.grad((out * weights).sum(), theta)
    for m in range(len(theta)):
        model = flat.unpack(theta[m].detach().double().numpy())
        y = model(X[index[m]].double(), None if rows is None else rows[index[m]])
        (y * weights[m].double()).sum().backward()
        true = {name: p.grad.numpy() for name, p in model.named_parameters()}
        got = dict(zip(true, named(flat.spec, gradient[m].numpy()).values(), strict=True))
        largest = max(float(np.abs(value).max()) for value in true.values())
        if spoil:
            got[spoil] = got[spoil] * (1 + 3 * BOUND[dtype])
        for name, value in {"out": y.detach().numpy(), **true}.items():
            mine = out[m].detach().numpy() if name == "out" else got[name]
            near = max(float(np.abs(value).max()), 1e-3 * largest if vanishes(flat.spec, name) else 0.0)
            assert np.abs(mine - value).max() <= BOUND[dtype] * near, name


def vanishes(spec: ModelSpec, name: str) -> bool:
    """Whether the exact gradient is 0 or nearly so, and what autograd leaves of it is rounding: scores of equal tokens.

    A lone token is equal to itself; in a deep model without residual all rows leave the first layer almost equal (the
    gradient of the second layer's scores is 1e-10 of the largest). Deep models have no truth in a higher precision,
    so these tensors are measured by a thousandth of the largest gradient instead of their own size.
    """
    scores = name.rsplit(".", 1)[-1] in ("query", "key", "gates", "log_beta")
    return scores and (spec.depth > 1 or (spec.length == 1 and not spec.class_key))


@pytest.mark.parametrize("with_mask", [False, True])
@pytest.mark.parametrize("options", COLLAPSED)
def test_collapsed_is_the_reference(options, with_mask):
    compare(collapsed, options, with_mask)
    compare(collapsed, options, with_mask, np.float32)


@pytest.mark.parametrize("with_mask", [False, True])
@pytest.mark.parametrize("options", [*COLLAPSED, *GENERAL])
def test_general_is_the_reference(options, with_mask):
    compare(general, options, with_mask)
    compare(general, options, with_mask, np.float32)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("function", [collapsed, general])
def test_a_wrong_gradient_is_rejected(function, dtype):
    options = COLLAPSED[3]
    for name in Flat.of(ModelSpec(**{**SMALL, **options})).shapes:
        with pytest.raises(AssertionError, match=name):
            compare(function, options, True, dtype, spoil=name)


def stacked(function, case: Case) -> dict[str, np.ndarray]:
    """What one model of a stack says, by the names of `truth`."""
    flat, theta = Flat.of(case.spec), torch.from_numpy(case.theta)[None].requires_grad_()
    mask = torch.from_numpy(case.mask) if len(case.mask) else None
    y = function(flat, theta, torch.from_numpy(case.X), torch.arange(len(case.X))[None], mask)
    loss = (y[0] - torch.from_numpy(case.Y)).square().mean()
    (gradient,) = torch.autograd.grad(loss, theta)
    return {
        "outputs": y[0].detach().numpy(), "loss": loss.detach().numpy(), **named(case.spec, gradient[0].numpy())
    }  # fmt: skip


def check_saturated(function, case: Case, spoil: float = 0.0) -> None:
    true, got = truth(case)[0], stacked(function, case)
    got = {name: value * (1 + spoil) for name, value in got.items()}
    allowed = {name: 3 * error for name, error in errors(case, reference(case), true).items()}
    assert_close(case, got, true, allowed)
    largest = max(float(np.abs(v).max()) for name, v in true.items() if name not in ("outputs", "loss"))
    for name in true:
        if name not in ("outputs", "loss"):
            assert np.abs(got[name] - true[name]).max() <= BOUND[case.dtype] * largest, name


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("function", [collapsed, general])
def test_saturated(function, dtype):
    size = 300.0 if dtype is np.float64 else 60.0
    for seed in range(8):
        check_saturated(function, saturated_case(seed, dtype, size))
    options = {"dim": 3, "length": 1000, "heads": 17, "head_dim": 1, "hidden": 7, "beta": "learned"}
    case = make_case(np.random.default_rng(7), dtype, options, 3, size=size)
    check_saturated(function, case)
    with pytest.raises(AssertionError):
        check_saturated(function, case, spoil=3 * BOUND[dtype])


def test_forward_takes_the_collapsed_way_where_it_can():
    for options in (*COLLAPSED, *GENERAL):
        flat, theta, X, index, _ = stack(options)
        chosen = collapsed if options in COLLAPSED else general
        assert (collapses(flat.spec) is None) == (chosen is collapsed)
        assert torch.equal(forward(flat, theta, X, index), chosen(flat, theta, X, index))


def test_one_bad_model_does_not_touch_the_others():
    flat, theta, X, index, _ = stack({})
    y = torch.zeros(3, 4, 1, dtype=torch.float64)
    loss, gradient = loss_and_gradient(flat, theta, X, index, y)
    spoiled = theta.clone()
    spoiled[1, 0] = torch.nan
    bad_loss, bad_gradient = loss_and_gradient(flat, spoiled, X, index, y)
    assert torch.isfinite(bad_loss).tolist() == [True, False, True]
    for m in (0, 2):
        assert torch.equal(loss[m], bad_loss[m])
        assert torch.equal(gradient[m], bad_gradient[m])
