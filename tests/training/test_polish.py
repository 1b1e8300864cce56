"""L-BFGS on a stack: as good as torch's on one model, each model as if alone, never worse than at the start."""

from __future__ import annotations

import pytest
import torch

from headcount.training.lbfgs import polish


def valley(models: int = 4, size: int = 30):
    """Return curved valleys of condition 1e4, one per model: Σ c_j (t_j − a_j t_{j−1}²)² + |t − 1|²/100."""
    g = torch.Generator().manual_seed(0)
    c = torch.logspace(0, 4, size - 1, dtype=torch.float64)
    a = 0.5 + 0.5 * torch.rand(models, size - 1, generator=g, dtype=torch.float64)

    def function(theta):
        leaf = theta.detach().requires_grad_()
        rows = a[: len(theta)]
        part = (leaf[:, 1:] - rows * leaf[:, :-1] ** 2).square() @ c
        loss = part + (leaf - 1).square().sum(1) / 100
        (gradient,) = torch.autograd.grad(loss.sum(), leaf)
        return loss.detach(), gradient

    return function, torch.randn(models, size, generator=g, dtype=torch.float64)


def test_as_good_as_torchs():
    function, start = valley()
    ours = function(polish(function, start, 100))[0]
    leaf = start[:1].clone().requires_grad_()
    peer = torch.optim.LBFGS(
        [leaf],
        max_iter=100,
        max_eval=400,
        history_size=20,
        line_search_fn="strong_wolfe",
        tolerance_change=0,
        tolerance_grad=0,
    )

    def closure():
        loss, leaf.grad = function(leaf)
        return loss[0]

    peer.step(closure)
    assert float(ours[0]) < 2 * float(function(leaf)[0][0])
    assert bool((ours < 1e-2 * function(start)[0]).all())


def test_every_model_as_if_alone():
    function, start = valley()
    together, alone = polish(function, start, 40), polish(function, start[:1], 40)
    torch.testing.assert_close(together[:1], alone, rtol=1e-9, atol=1e-12)


def test_loss_never_rises_and_non_finite_models_do_not_move():
    function, start = valley()
    start[1, 0] = torch.nan
    better = polish(function, start, 15)
    before, after = function(start)[0], function(better)[0]
    assert torch.equal(better[1].nan_to_num(), start[1].nan_to_num())
    for m in (0, 2, 3):
        assert after[m] < before[m]


@pytest.mark.parametrize("after", [0, 3])
def test_stops_when_asked(after: int):
    function, start = valley()
    asked = iter(range(100))
    stopped = polish(function, start, 50, lambda: next(asked) >= after)
    torch.testing.assert_close(stopped, polish(function, start, after), rtol=0, atol=0)
