"""Stacked models against the reference, one model at a time: values and gradients, every option.

The error of a tensor is relative to its own largest entry: 1e-12 in float64 against the reference, 1e-5 in float32
against the reference in float64. Where the softmax is saturated both are measured against a truth in a higher
precision (`tests/kernels/test_cpu_exact.py`): torch's a·(da − Σ a da) cancels there, in the reference as in the stack,
so what is asked of a tensor is the bound or three times the reference's own error, and of all of them the bound
relative to the largest entry of the whole gradient.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from headcount.models.transformer import stacked as stacked_module
from headcount.models.transformer.flat import Flat, why_not_collapsed, why_not_pooled
from headcount.models.transformer.reference import Transformer
from headcount.models.transformer.spec import ModelSpec
from headcount.models.transformer.stacked import forward, forward_collapsed, forward_general, loss_and_gradient
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
    {"depth": 2, "class_key": True, "residual": True, "positions": "gates", "beta": "learned", "layer_norm": True},
]
FIVE = [  # one layer with a deep F: pooled, but beyond the compiled steps
    {"feedforward": "relu5", "out_dim": 3},
    {"feedforward": "relu5", "heads": 1, "head_dim": 64, "hidden": 8, "hidden_ff": 64, "length": 16},
    {"feedforward": "relu5", "heads": 2, "head_dim": 11, "positions": "gates", "beta": "learned"},
    {"feedforward": "relu5", "positions": "concatenated", "beta": 3.0, "width": 5},
]
DEEP = [  # every pair of these options, at sizes of a head that the fused attention wants padded and one it takes
    {"depth": depth, "head_dim": head_dim, "width": 12, **first, **second}
    for (depth, head_dim), (first, second) in zip(
        itertools.cycle([(2, 3), (3, 5), (2, 11), (3, 8)]),
        itertools.combinations(
            [
                {"layer_norm": True},
                {"residual": True},
                {"class_key": True},
                {"positions": "additive"},
                {"positions": "concatenated", "beta": 2.5},
                {"positions": "gates"},
                {"beta": "learned"},
                {"feedforward": "relu5", "hidden_ff": 64},
                {"heads": 1, "out_dim": 2},
            ],
            2,
        ),
    )
]


CASES = [
    *itertools.product([*COLLAPSED, *FIVE, *GENERAL], [False, True]),
    *((options, n % 2 == 0) for n, options in enumerate(DEEP)),
    *(pytest.param(options, n % 2 == 1, marks=pytest.mark.slow) for n, options in enumerate(DEEP)),
]
"""Options, and whether there is a mask; every pair of DEEP meets one of both by day."""


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
        case = theta[m].detach(), X[index[m]], None if rows is None else rows[index[m]], weights[m]
        true = alone(flat, *case, torch.float64)
        y = true.pop("out")
        got = dict(zip(true, named(flat.spec, gradient[m].numpy()).values(), strict=True))
        largest = max(float(np.abs(value).max()) for value in true.values())
        faint = [name for name in true if vanishes(flat.spec, name)]
        own = alone(flat, *case, single) if faint else {}
        noise = max((float(np.abs(own[name] - true[name]).max()) for name in faint), default=0.0)
        if spoil:
            got[spoil] = got[spoil] * (1 + 3 * BOUND[dtype])
        for name, value in {"out": y, **true}.items():
            mine = out[m].detach().numpy() if name == "out" else got[name]
            allowed = BOUND[dtype] * float(np.abs(value).max())
            if name in faint:
                allowed = max(allowed, 1e-3 * BOUND[dtype] * largest, 3 * noise)
            assert np.abs(mine - value).max() <= allowed, name


def alone(flat: Flat, theta, X, mask, weights, dtype) -> dict[str, np.ndarray]:
    """What the reference says of one model in a precision: its outputs and every gradient."""
    model = flat.unpack(theta.to(dtype).numpy())
    out = model(X.to(dtype), mask)
    (out * weights.to(dtype)).sum().backward()
    return {"out": out.detach().numpy(), **{name: p.grad.numpy() for name, p in model.named_parameters()}}


def vanishes(spec: ModelSpec, name: str) -> bool:
    """Whether the exact gradient is 0 or nearly so, and what autograd leaves of it is rounding: scores of equal tokens.

    A lone token is equal to itself; in a deep model without residual all rows leave the first layer almost equal (the
    gradient of the second layer's scores is 1e-10 of the largest). Deep models have no truth in a higher precision,
    so these tensors are measured by a thousandth of the largest gradient instead of their own size; and where a layer
    norm blows the rounding of equal rows up, by three times the error of the reference in float32.
    """
    scores = name.rsplit(".", 1)[-1] in ("query", "key", "gates", "log_beta")
    return scores and (spec.depth > 1 or (spec.length == 1 and not spec.class_key))


@pytest.mark.parametrize("with_mask", [False, True])
@pytest.mark.parametrize("options", [*COLLAPSED, *FIVE])
def test_collapsed_is_the_reference(options, with_mask):
    compare(forward_collapsed, options, with_mask)
    compare(forward_collapsed, options, with_mask, np.float32)


@pytest.mark.parametrize(("options", "with_mask"), CASES)
def test_general_is_the_reference(options, with_mask):
    compare(forward_general, options, with_mask)
    compare(forward_general, options, with_mask, np.float32)


@pytest.mark.parametrize("options", [*FIVE, *GENERAL])
def test_grouping_rows_changes_nothing(options, monkeypatch):
    monkeypatch.setattr(stacked_module, "_MIN_GROUP_ROWS", 2)  # 20 rows are 4 groups
    compare(forward, options, True)
    compare(forward, options, True, np.float32)


@pytest.mark.parametrize("options", GENERAL)
def test_fused_and_plain_attention_equal_the_reference(options, monkeypatch):
    """Short sequences take written scores unless told otherwise: the fused kernel meets all options here."""
    monkeypatch.setattr(stacked_module, "_MAX_UNFUSED_TOKENS", 0)
    compare(forward, options, True)
    compare(forward, options, False, np.float32)


def test_a_long_deep_model_is_the_reference():
    options = {"depth": 2, "residual": True, "length": 130, "heads": 5, "head_dim": 7, "width": 32, "hidden_ff": 64}
    compare(forward_general, options, True)
    compare(forward_general, options, False, np.float32)


def spoiled(name: str, monkeypatch) -> None:
    """Break one part of the attention a little."""
    fused, functional = torch.nn.functional.scaled_dot_product_attention, stacked_module.nn.functional
    wrong = {
        "scale": lambda q, k, v, mask, scale: fused(q, k, v, mask, scale=scale * (1 + 1e-3)),
        "head": lambda q, k, v, mask, scale: fused(q, k.roll(1, 1), v, mask, scale=scale),
        "mask": lambda q, k, v, mask, scale: fused(q, k, v, scale=scale),
        "gradient": lambda q, k, v, mask, scale: fused(q.detach(), k, v, mask, scale=scale),
    }[name]
    monkeypatch.setattr(functional, "scaled_dot_product_attention", wrong)
    monkeypatch.setattr(stacked_module, "_MAX_UNFUSED_TOKENS", 0)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("part", ["scale", "head", "mask", "gradient"])
def test_a_wrong_attention_is_rejected(part, dtype, monkeypatch):
    options = {"depth": 2, "residual": True, "head_dim": 3, "width": 12}
    compare(forward_general, options, True, dtype)
    spoiled(part, monkeypatch)
    with pytest.raises(AssertionError):
        compare(forward_general, options, True, dtype)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_wrong_layer_of_a_deep_f_is_rejected(dtype, monkeypatch):
    right = stacked_module._affine

    def wrong(w, name, u):
        return right(w, name, u) * (1 + 3 * BOUND[dtype] if name.endswith("layers.3") else 1)

    monkeypatch.setattr(stacked_module, "_affine", wrong)
    with pytest.raises(AssertionError):
        compare(forward_collapsed, FIVE[0], True, dtype)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("function", [forward_collapsed, forward_general])
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
    return {"outputs": y[0].detach().numpy(), "loss": loss.detach().numpy(), **named(case.spec, gradient[0].numpy())}


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
@pytest.mark.parametrize("function", [forward_collapsed, forward_general])
def test_saturated(function, dtype):
    size = 300.0 if dtype is np.float64 else 60.0
    for seed in range(8):
        check_saturated(function, saturated_case(seed, dtype, size))
    options = {"dim": 3, "length": 1000, "heads": 17, "head_dim": 1, "hidden": 7, "beta": "learned"}
    case = make_case(np.random.default_rng(7), dtype, options, 3, size=size)
    check_saturated(function, case)
    with pytest.raises(AssertionError):
        check_saturated(function, case, spoil=3 * BOUND[dtype])


def test_forward_uses_the_collapsed_path_if_possible():
    for options in (*COLLAPSED, *FIVE, *GENERAL):
        flat, theta, X, index, _ = stack(options)
        chosen = forward_general if options in GENERAL else forward_collapsed
        assert (why_not_pooled(flat.spec) is None) == (chosen is forward_collapsed)
        assert (why_not_collapsed(flat.spec) is None) == (options in COLLAPSED)
        assert torch.equal(forward(flat, theta, X, index), chosen(flat, theta, X, index))


@pytest.mark.parametrize("options", [*FIVE, *GENERAL])
def test_whole_step_is_used_only_for_collapsed_models(options, monkeypatch):
    flat, theta, X, index, mask = stack(options)

    def whole_step(theta, sizes):
        raise AssertionError("these kernels know an F of two layers")

    monkeypatch.setattr(stacked_module, "whole_step", whole_step)
    y = torch.zeros(3, 4, flat.spec.out_dim, dtype=torch.float64)
    loss, gradient = loss_and_gradient(flat, theta, X, index, y, mask)
    assert torch.equal(loss, forward(flat, theta, X, index, mask).square().mean((1, 2)))
    assert gradient.shape == theta.shape


def test_one_bad_model_does_not_affect_the_others():
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
