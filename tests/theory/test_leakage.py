"""The leakage of a gated softmax: never exceeded, attained, and the paper's gate refuted."""

from __future__ import annotations

import math

import numpy as np
import pytest

import headcount as hc
from headcount.theory.bounds.softmax_leakage import beta_for, leakage


def returned(values: np.ndarray, members: np.ndarray, beta: float, gate: float) -> float:
    """Return z~ of a head with these Ψ, by the definition, with scores shifted so that β = 1e6 does not overflow."""
    r = beta * (-values - gate * ~members)
    a = np.exp(r - r.max())
    return float(a @ values / a.sum())


@pytest.mark.parametrize("beta", [0.5, 5.0, 50.0, 1e3, 1e6])
@pytest.mark.parametrize(("inside", "outside"), [(1, 0), (1, 3), (4, 12), (16, 16), (64, 0)])
def test_the_bound_is_never_exceeded_and_is_attained(beta: float, inside: int, outside: int) -> None:
    bound = leakage(beta, inside=inside, outside=outside, spread=1.0, gate=2.0)
    rng, members = np.random.default_rng(0), np.arange(inside + outside) < inside
    worst = 0.0
    for trial in range(300):
        values = rng.random(inside + outside) if trial % 3 else rng.integers(0, 2, inside + outside).astype(float)
        if trial % 3 == 2 and inside > 1:  # near the worst case: one minimum, the others a little above it
            values[:inside] = min(1.0, rng.exponential(1 / beta))
            values[0] = 0.0
        gap = returned(values, members, beta, 2.0) - values[:inside].min()
        assert -bound.below - 1e-15 <= gap <= bound.above + 1e-15
    if inside > 1 and beta >= 5:
        x = np.linspace(0, 20 / beta, 4001)
        e = (inside - 1) * np.exp(-beta * x)
        worst = float((e * x / (1 + e)).max())
        alone = leakage(beta, inside=inside, outside=0, spread=1.0, gate=2.0).above
        assert worst <= alone
        assert alone < worst * (1 + 1e-4)  # the Lambert term is exact


def test_beta_is_logarithmic_where_the_paper_has_linear() -> None:
    for size in (4, 64, 1024):
        ours = leakage(100.0, inside=size, outside=0, spread=1.0, gate=2.0).above
        assert ours < (size - 1) / (math.e * 100.0)
        assert ours < (1 + math.log(size)) / 100.0


def test_the_gate_of_the_paper_does_not_work() -> None:
    """Ψ = 1 on S and 0 off it: with a gate of 1 all scores tie, and at any β the head returns |S|/T instead of 1."""
    values, members = (np.arange(16) < 4).astype(float), np.arange(16) < 4
    for beta in (1.0, 1e3, 1e6):
        assert returned(values, members, beta, 1.0) == pytest.approx(0.25)
        assert leakage(beta, inside=4, outside=12, spread=1.0, gate=1.0).below >= 0.75  # the bound knows it
    with pytest.raises(hc.BadInput, match="gate"):
        beta_for(0.1, inside=4, outside=12, spread=1.0, gate=1.0)
    beta = beta_for(0.1, inside=4, outside=12, spread=1.0, gate=2.0)
    assert abs(returned(values, members, beta, 2.0) - 1.0) < 0.1


def test_the_smallest_sufficient_beta() -> None:
    for target in (0.3, 0.01, 1e-4):
        sizes = {"inside": 8, "outside": 24, "spread": 1.1, "gate": 2.2}
        beta = beta_for(target, **sizes)
        assert leakage(beta, **sizes).error <= target
        assert leakage(0.98 * beta, **sizes).error > target


@pytest.mark.parametrize("beta", [5.0, 50.0, 1e3])
@pytest.mark.parametrize(("inside", "outside"), [(4, 12), (16, 16), (64, 0)])
def test_the_shift_halves_the_softmin_error(beta: float, inside: int, outside: int) -> None:
    """Subtracting W/(2β) leaves an error of W/(2β) on both sides: never exceeded, and attained on both."""
    sizes = {"inside": inside, "outside": outside, "spread": 1.0, "gate": 2.0}
    bound = leakage(beta, **sizes)
    assert bound.error == pytest.approx((bound.above + bound.below) / 2, rel=1e-12)
    assert bound.error >= max(bound.below + bound.shift, bound.above - bound.shift) * (1 - 1e-15)
    members = np.arange(inside + outside) < inside
    x = np.linspace(0, 20 / beta, 4001)
    values = np.where(members, 1.0, 0.0)[None].repeat(len(x), 0)
    values[:, 1:inside] = np.minimum(x[:, None], 1.0)
    values[:, 0], values[:, inside:] = 0.0, 1.0
    gaps = np.array([returned(row, members, beta, 2.0) for row in values]) - bound.shift
    assert np.abs(gaps).max() <= bound.error + 1e-15
    if outside == 0:
        assert gaps.max() > 0.999 * bound.error
        assert gaps.min() < -0.999 * bound.error


@pytest.mark.parametrize(
    "change", [{"inside": 0}, {"outside": -1}, {"spread": -1.0}, {"spread": math.nan}, {"gate": -1.0}]
)
def test_bad_input(change: dict) -> None:
    with pytest.raises(hc.BadInput):
        leakage(1.0, **{"inside": 2, "outside": 2, "spread": 1.0, "gate": 2.0, **change})
