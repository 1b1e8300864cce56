"""The written-out step: against a truth in a higher precision, beside autograd, in groups, and spoiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from headcount.kernels import without_kernels
from headcount.kernels.step import plain as step_plain
from headcount.models.transformer.flat import Flat, covering_spec
from headcount.models.transformer.reference import Transformer
from headcount.models.transformer.spec import ModelSpec
from headcount.models.transformer.stacked import forward_collapsed, loss_and_gradient
from kernels.test_cpu_exact import (
    EDGES,
    Case,
    assert_close,
    errors,
    make_case,
    random_options,
    reference,
    saturated_case,
    split,
    truth,
)


def written(case: Case) -> dict[str, np.ndarray]:
    """What one model of a stack says, by the names of `truth`; its twin is beside it with other weights."""
    theta = torch.from_numpy(np.stack([0.5 * case.theta, case.theta]))
    index = torch.arange(len(case.X)).expand(2, -1).contiguous()
    y = torch.from_numpy(case.Y).expand(2, -1, -1)
    mask = torch.from_numpy(case.mask) if len(case.mask) else None
    with without_kernels():
        loss, gradient = loss_and_gradient(Flat.of(case.spec), theta, torch.from_numpy(case.X), index, y, mask)
    return {"loss": loss[1].numpy(), **split(case.spec, gradient[1].numpy())}


def without_outputs(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: value for name, value in tensors.items() if name != "outputs"}


def check(case: Case) -> None:
    """Held to the bound, or to three times the reference's error where torch's softmax cancels."""
    true = without_outputs(truth(case)[0])
    own = errors(case, without_outputs(reference(case)), true)
    assert_close(case, written(case), true, {name: 3 * error for name, error in own.items()})


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("edge", range(len(EDGES)))
def test_edges(edge: int, dtype: Any) -> None:
    options, batch, masked = EDGES[edge]
    check(make_case(np.random.default_rng(edge), dtype, options, batch, masked=masked))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("seed", range(20))
def test_random_shapes(seed: int, dtype: Any) -> None:
    rng = np.random.default_rng(300 + seed)
    options = random_options(rng)
    most = 40 if options["length"] < 300 else 5
    check(make_case(rng, dtype, options, int(rng.integers(1, most)), masked=seed % 2 == 1))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_saturated(dtype: Any) -> None:
    for seed in range(8):
        check(saturated_case(seed, dtype, 300.0 if dtype is np.float64 else 60.0))


@pytest.mark.parametrize("rows", [1, 7, 10**6])
def test_grouping_tokens_changes_nothing(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_plain, "MIN_PRODUCT_ROWS", rows)
    options = {"dim": 4, "length": 8, "heads": 3, "head_dim": 2, "hidden": 9}
    check(make_case(np.random.default_rng(1), np.float64, options, 24))


@pytest.mark.parametrize("beta", ["scaled", 0.7])
def test_padded_models_have_the_gradients_of_autograd(beta: Any) -> None:
    """Models of different sizes in one stack, each with its own inverse temperature."""
    options = {"dim": 3, "length": 5, "beta": beta, "out_dim": 2}
    specs = [ModelSpec(heads=h, head_dim=n, hidden=k, **options) for h, n, k in ((1, 4, 3), (3, 2, 8), (2, 2, 5))]
    flat, g = Flat.of(covering_spec(specs)), torch.Generator().manual_seed(0)
    theta = torch.zeros(3, flat.size, dtype=torch.float64)
    for m, spec in enumerate(specs):
        own = Flat.of(spec)
        packed = torch.from_numpy(own.pack(Transformer(spec, seed=m, dtype=torch.float64)))
        theta[m, torch.from_numpy(own.places(flat))] = packed + 0.1 * torch.randn(
            own.size, generator=g, dtype=torch.float64
        )
    X, y = (torch.randn(*shape, generator=g, dtype=torch.float64) for shape in ((9, 5, 3), (3, 6, 2)))
    index, betas = torch.randint(9, (3, 6), generator=g), torch.tensor([s.head_dim**-0.5 for s in specs]).double()
    leaf = theta.clone().requires_grad_()
    loss = (forward_collapsed(flat, leaf, X, index, None, betas) - y).square().mean((1, 2))
    (gradient,) = torch.autograd.grad(loss.sum(), leaf)
    with without_kernels():
        ours = loss_and_gradient(flat, theta, X, index, y, None, betas)
    torch.testing.assert_close(ours[0], loss.detach(), rtol=1e-13, atol=0)
    torch.testing.assert_close(ours[1], gradient, rtol=1e-11, atol=1e-13)
    for m, spec in enumerate(specs):  # and what is padding stays it
        padding = torch.ones(flat.size, dtype=torch.bool)
        padding[torch.from_numpy(Flat.of(spec).places(flat))] = False
        assert not ours[1][m][padding].any()


SPOILED = {
    "softmax": ("_softmax_backward_data", lambda d, a, dim, dtype: d * a),
    "relu": ("threshold_backward", lambda d, u, low: d),
    "gelu": ("gelu_backward", lambda d, pre: d),
}


@pytest.mark.parametrize("part", SPOILED)
def test_a_wrong_derivative_is_rejected(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"dim": 3, "length": 6, "heads": 3, "head_dim": 2, "hidden": 9, "positions": "gates", "beta": "learned"}
    case = make_case(np.random.default_rng(5), np.float64, options, 20, masked=True)
    check(case)

    class Wrong:
        def __getattr__(self, name: str) -> Any:
            return SPOILED[part][1] if name == SPOILED[part][0] else getattr(torch.ops.aten, name)

    monkeypatch.setattr(step_plain, "_aten", Wrong())
    with pytest.raises(AssertionError, match="above"):
        check(case)


def test_each_tensor_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gradient that is off in one tensor alone is rejected, whichever it is."""
    options = {"dim": 3, "length": 6, "heads": 3, "head_dim": 2, "hidden": 9, "positions": "gates", "beta": "learned"}
    case = make_case(np.random.default_rng(6), np.float64, options, 20, masked=True)
    right = written(case)
    for name in right:
        monkeypatch.setitem(globals(), "written", lambda _, n=name: {**right, n: right[n] * (1 + 1e-9)})
        with pytest.raises(AssertionError, match=name):
            check(case)
