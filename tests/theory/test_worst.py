"""The search for the worst error: what it reports is attained, it finds planted maxima, and it is fast at any β."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
import torch
from certify_cases import OPTIONS, random_model, tasks

import headcount as hc
from headcount.theory.certify.folded import folded, reference
from headcount.theory.certify.worst_found import worst_error

TASKS = tasks()


@pytest.mark.parametrize("options", OPTIONS)
def test_the_folded_model_is_the_model(options):
    task = TASKS["plane"]
    saved = random_model(task, **OPTIONS[options])
    X = torch.rand(40, task.length, task.dim, dtype=torch.float64)
    assert torch.allclose(folded(saved)[0](X), reference(saved)(X), atol=1e-9)
    deep = random_model(task, depth=2, class_key=True)
    assert torch.allclose(folded(deep)[0](X), reference(deep)(X), atol=1e-12)


@pytest.mark.parametrize("name", ["plane", "vector", "sets"])
def test_the_reported_error_is_attained_and_beats_sampling(name):
    task = TASKS[name]
    saved = random_model(task, seed=2, beta=20.0)
    found = worst_error(saved, task, effort=0.1)
    x = torch.from_numpy(found.X[None])
    errors = (reference(saved)(x) - task.value(x)).abs()[0]
    assert float(errors.max()) == found.error == float(errors[found.output])
    low, high = saved.box or ()
    assert ((np.array(low) <= found.X) & (np.array(high) >= found.X)).all()
    X = task.sample(5000, 3)
    assert found.error >= float((reference(saved)(X) - task.value(X)).abs().max()) * 0.999


def test_planted_maxima():
    """A peak of width 0.02 at one token, which plain sampling of T = 8 tokens in the plane would rarely meet."""
    task = hc.make_task("quadratic-basins", intrinsic=2, dim=2, length=8)
    peak = torch.tensor([0.31, 0.77], dtype=torch.float64)

    def model(X: torch.Tensor) -> torch.Tensor:
        bump = torch.exp(-((X - peak) ** 2).sum(-1) / (2 * 0.02**2)).sum(-1, keepdim=True)
        return task.value(X) + bump

    found = worst_error(model, task, effort=0.5)
    assert found.error > 0.9 * 8  # all tokens at the peak


@pytest.mark.parametrize("beta", [10.0, 1e3, 1e6])
def test_the_worst_case_of_a_softmax_is_found(beta):
    """A soft minimum misses min Ψ by W((T − 1)/e)/β at worst, whatever β."""
    from scipy.special import lambertw

    task = hc.GeneralizedRetrieval([hc.variable(1)[0]], None, hc.variable(1), length=16)

    def model(X: torch.Tensor) -> torch.Tensor:
        return (torch.softmax(-beta * X[..., 0], -1) * X[..., 0]).sum(-1, keepdim=True)

    exact = float(lambertw(15 / math.e).real) / beta
    found = worst_error(model, task)
    assert 0.9 * exact < found.error <= exact * (1 + 1e-6)


def test_the_search_is_fast_on_large_models():
    task = hc.make_task("quadratic-basins", intrinsic=6, dim=4, length=64)
    saved = random_model(task, heads=6, head_dim=2, hidden=64, beta=1e6)
    start = time.monotonic()
    assert worst_error(saved, task, effort=0.03).error > 0
    assert time.monotonic() - start < 20  # well below a second on an idle core
    start = time.monotonic()
    worst_error(saved, task, effort=5.0, seconds=0.1)
    assert time.monotonic() - start < 20


def test_the_search_is_deterministic_and_uses_the_given_starts():
    task = TASKS["plane"]
    saved = random_model(task)
    one, two = (worst_error(saved, task, effort=0.05, seed=4) for _ in range(2))
    assert (one.X == two.X).all()

    def spike(X: torch.Tensor) -> torch.Tensor:  # only ever found by being told
        return task.value(X) + 100.0 * (X == 0.123456789).all((1, 2))[:, None]

    told = worst_error(spike, task, effort=0.05, starts=np.full((1, task.length, task.dim), 0.123456789))
    assert told.error == pytest.approx(100.0)


def test_refusals():
    task = hc.make_task("sum-of-maxima", intrinsic=1, dim=1, length=3)
    with pytest.raises(hc.BadInput, match="not bounded"):
        worst_error(lambda X: X[:, 0], task)
    with pytest.raises(hc.BadInput, match="effort"):
        worst_error(lambda X: X[:, 0], task, ((0.0,), (1.0,)), effort=0.0)
    assert worst_error(lambda X: X[:, 0], task, ((-1.0,), (1.0,)), effort=0.05).error > 0
