"""Outward rounding: every enclosure holds the real result, by arbitrary precision; without it, some do not."""

from __future__ import annotations

import math

import flint
import numba
import numpy as np
import pytest

import headcount as hc
from headcount.tasks.expressions import in_balls as expr_ball
from headcount.theory.certify.relax import _PDF, chord, gelu
from headcount.theory.enclose import head_numba as head_kernel
from headcount.theory.enclose import intervals
from headcount.theory.enclose.expressions import slopes
from headcount.theory.enclose.intervals import Interval, interval, matmul

RNG = np.random.default_rng(0)
POINTS = np.concatenate(
    [
        RNG.normal(0, 1, 40_000),
        RNG.normal(0, 1e-3, 20_000),
        RNG.uniform(-30, 30, 30_000),
        RNG.uniform(-700, 700, 10_000),
    ]
)
REAL = {
    "exp": lambda t: t.exp(),
    "tanh": lambda t: t.tanh(),
    "erf": lambda t: t.erf(),
}


def misses(found: Interval, x: np.ndarray, real) -> int:
    """Return how many enclosures miss the exact value."""
    with flint.ctx.workprec(160):
        count = 0
        for v, lo, hi in zip(x.tolist(), found.lo.tolist(), found.hi.tolist(), strict=True):
            y = real(flint.arb(v))
            count += bool(lo > y) or bool(hi < y)  # certain at this precision
    return count


@pytest.mark.parametrize("name", REAL)
def test_a_hundred_thousand_points(name):
    found = getattr(interval(POINTS), name)()
    assert misses(found, POINTS, REAL[name]) == 0
    near = np.abs(POINTS) < 20
    assert ((found.hi - found.lo)[near] <= 1e-13 * np.abs(found.hi[near]) + 1e-290).all()  # and it is tight


@pytest.mark.parametrize("name", REAL)
def test_without_the_widening_some_are_missed(name, monkeypatch):
    """The sabotaged twin: the check above must be able to fail."""
    monkeypatch.setattr(intervals, "_WIDENING", 0.0)
    monkeypatch.setattr(intervals, "MIN_WIDENING", 0.0)
    monkeypatch.setattr(intervals, "up", lambda x: x)
    monkeypatch.setattr(intervals, "down", lambda x: x)
    x = POINTS[:4000]
    assert misses(getattr(interval(x), name)(), x, REAL[name]) > 100


def test_the_compiled_exp_is_within_its_widening():
    """The kernel widens exp by 16 units; the compiled exp, in a loop as in the kernel, is measured on 20,000 points."""

    @numba.njit
    def exps(x):
        found = np.empty_like(x)
        for k in range(len(x)):
            found[k] = math.exp(x[k])
        return found

    x = np.concatenate([RNG.uniform(-600, 0, 10_000), -RNG.exponential(1.0, 10_000)])
    with flint.ctx.workprec(160):
        shares = [abs(float(flint.arb(y) / flint.arb(v).exp() - 1)) for v, y in zip(x.tolist(), exps(x), strict=True)]
    assert max(shares) < 4 * 2.0**-52 < head_kernel._WIDENING / 3


def test_arithmetic_holds_the_real_result():
    x, y = RNG.normal(size=5000) * 10.0 ** RNG.integers(-8, 8, 5000), RNG.normal(size=5000)
    for found, real in (
        (interval(x) + y, lambda a, b: a + b),
        (interval(x) - y, lambda a, b: a - b),
        (interval(x) * y, lambda a, b: a * b),
        (interval(x).power(3) + y, lambda a, b: a**3 + b),
        (interval(x).square() * y, lambda a, b: a**2 * b),
        (interval(np.abs(x)).sqrt() + y, lambda a, b: abs(a).sqrt() + b),
        (interval(np.abs(x)).reciprocal() * y, lambda a, b: b / abs(a)),
    ):
        with flint.ctx.workprec(400):
            for a, b, lo, hi in zip(x.tolist(), y.tolist(), found.lo.tolist(), found.hi.tolist(), strict=True):
                assert lo <= real(flint.arb(a), flint.arb(b)) <= hi


def test_wide_intervals_hold_all_points():
    lo, width = RNG.normal(size=2000), RNG.exponential(size=2000)
    x = Interval(lo, lo + width)
    for share in np.linspace(0, 1, 7):
        at = interval(np.clip(lo + share * width, x.lo, x.hi))
        for f in (Interval.exp, Interval.tanh, Interval.erf, Interval.square, lambda v: v.power(3), lambda v: v * v):
            whole, point = f(x), f(at)
            assert (whole.lo <= point.hi).all()
            assert (point.lo <= whole.hi).all()


def test_matrix_products():
    A, B = RNG.normal(size=(4, 7)), RNG.normal(size=(7, 3)) * 1e3
    r = RNG.exponential(size=A.shape) * 1e-3
    found = matmul(Interval(A - r, A + r), B)
    with flint.ctx.workprec(200):
        check_products(A, B, r, found)


def check_products(A, B, r, found):
    for _ in range(50):
        C = np.clip(A + r * RNG.uniform(-1, 1, A.shape), A - r, A + r)
        exact = flint.arb_mat(C.tolist()) * flint.arb_mat(B.tolist())
        for i in range(4):
            for j in range(3):
                assert found.lo[i, j] <= exact[i, j] <= found.hi[i, j]
    long = RNG.normal(size=(1, 3000))
    real = sum((flint.arb(v) * flint.arb(v) for v in long[0].tolist()), flint.arb(0))
    assert matmul(long, long.T).lo[0, 0] <= real <= matmul(long, long.T).hi[0, 0]


def test_expressions_agree_with_ball_arithmetic():
    x = hc.variable(2)
    from headcount.tasks.expressions.tree import Exp, Max, Min, Norm, Product, Softplus, Tanh

    trees = [
        ((x - [0.3, 0.7]) ** 2).sum(),
        Tanh(of=x[0] * 3.0 - x[1]),
        Exp(of=-x[0]) + x[1] ** 3,
        Softplus(of=x[0] * 2.0 - 1.0),
        Product(args=(x + 1.0,)),
        Min(args=(x[0], x[1] * 2.0)),
        Max(args=(x,)),
        Norm(args=(x,)),
    ]
    low, width = RNG.uniform(-1, 1, (200, 2)), RNG.exponential(0.3, (200, 2))
    box = [Interval(low[:, k], low[:, k] + width[:, k]) for k in range(2)]
    for tree in trees:
        whole = slopes(tree, box)[0]
        a, b = (np.clip(low + RNG.random((200, 2)) * width, low, low + width) for _ in range(2))
        real = [[expr_ball.evaluate(tree, [flint.arb(v) for v in p])[0] for p in side.tolist()] for side in (a, b)]
        for n in range(200):
            assert whole.value.lo[n] <= real[0][n] <= whole.value.hi[n]
            step = [(float(b[n, k] - a[n, k]), whole.gradient[k].lo[n], whole.gradient[k].hi[n]) for k in range(2)]
            most = sum(max(s * lo, s * hi) for s, lo, hi in step)  # the mean value theorem
            assert float((real[1][n] - real[0][n]).mid()) <= most + 1e-12


def test_activations_stay_inside_their_chords():
    with flint.ctx.workprec(200):
        assert float(_PDF.lo) < 1 / (2 * flint.arb.pi()).sqrt() < float(_PDF.hi)
    lo = RNG.uniform(-6, 4, 400)
    p = Interval(lo, lo + 10.0 ** RNG.uniform(-9, 0.8, 400))
    for kind in ("relu", "gelu"):
        alpha, error = chord(kind, p)
        for share in np.linspace(0, 1, 33):
            t = np.clip(lo + share * (p.hi - lo), p.lo, p.hi)
            value = interval(np.maximum(t, 0.0)) if kind == "relu" else gelu(interval(t))[0]
            left = value - interval(alpha) * t
            assert (left.hi >= error.lo).all()
            assert (left.lo <= error.hi).all()
        narrow = p.hi - p.lo < 1e-3
        assert (kind == "relu") or ((error.hi - error.lo)[narrow] < 1e-6).all()
