"""Stacked models against the reference, one model at a time: values and gradients, every option."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from headcount.models.flat import Flat, collapses
from headcount.models.reference import Transformer
from headcount.models.spec import ModelSpec
from headcount.models.stacked import collapsed, forward, general, loss_and_gradient

SMALL = {"dim": 3, "length": 5, "heads": 3, "head_dim": 2, "hidden": 6}
COLLAPSED = [
    {},
    {"heads": 1, "length": 1, "dim": 1},
    {"heads": 17, "head_dim": 1, "hidden": 7, "hidden_ff": 9, "out_dim": 2},
    {"positions": "gates", "beta": "learned"},
    {"positions": "concatenated", "feedforward": "relu2", "beta": 3.0},
    {"width": 11, "hidden_ff": 4},
    {"beta": 1e3, "length": 40},
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


def compare(function, options: dict, with_mask: bool) -> None:
    flat, theta, X, index, mask = stack(options)
    theta.requires_grad_()
    rows = mask if with_mask else None
    out = function(flat, theta, X, index, rows)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    (gradient,) = torch.autograd.grad((out * weights).sum(), theta)
    for m in range(len(theta)):
        model = flat.unpack(theta[m].detach().numpy())
        y = model(X[index[m]], None if rows is None else rows[index[m]])
        (y * weights[m]).sum().backward()
        single = torch.cat([p.grad.flatten() for p in model.parameters()])
        torch.testing.assert_close(out[m], y, rtol=1e-12, atol=1e-12)
        scale = float(single.abs().max())
        torch.testing.assert_close(gradient[m], single, rtol=1e-12, atol=1e-12 * max(1.0, scale))


@pytest.mark.parametrize("with_mask", [False, True])
@pytest.mark.parametrize("options", COLLAPSED)
def test_collapsed_is_the_reference(options, with_mask):
    compare(collapsed, options, with_mask)


@pytest.mark.parametrize("with_mask", [False, True])
@pytest.mark.parametrize("options", [*COLLAPSED, *GENERAL])
def test_general_is_the_reference(options, with_mask):
    compare(general, options, with_mask)


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
