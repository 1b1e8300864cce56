"""Expressions: three evaluators and an exact one agree on random trees, and enclosures enclose."""

from __future__ import annotations

import json
from collections.abc import Callable

import flint
import mpmath as mp
import numpy as np
import pytest
import torch

from headcount.tasks.expressions import in_balls as expr_ball
from headcount.tasks.expressions import in_numpy as expr_numpy
from headcount.tasks.expressions import in_torch as expr_torch
from headcount.tasks.expressions.tree import (
    NODES,
    Affine,
    Exp,
    Expr,
    Max,
    Power,
    Softplus,
    Stack,
    Tanh,
    Variable,
    parse_expr,
    variable,
)

KINDS = [node.__name__ for node in NODES]
DIM = 3
mp.mp.dps = 60


def exact(node: Expr, x: list[mp.mpf]) -> list[mp.mpf]:
    """The readable twin: the definition, in 60 digits."""
    if isinstance(node, Variable):
        return x
    if isinstance(node, Affine):
        u = exact(node.of, x)
        rows = zip(node.weight, node.bias, strict=True)
        return [mp.fsum([b, *(mp.mpf(w) * v for w, v in zip(row, u, strict=True))]) for row, b in rows]
    if isinstance(node, Power):
        return [v**node.exponent for v in exact(node.of, x)]
    if isinstance(node, Exp | Tanh | Softplus):
        f = {"exp": mp.exp, "tanh": mp.tanh, "softplus": lambda v: mp.log1p(mp.exp(v))}[node.op]
        return [f(v) for v in exact(node.of, x)]
    parts = [v for a in node.args for v in exact(a, x)]
    many: dict[str, Callable] = {"sum": mp.fsum, "product": mp.fprod, "min": min, "max": max, "norm": mp.norm}
    return parts if isinstance(node, Stack) else [many[node.op](parts)]


def magnitude(node: Expr, points: np.ndarray) -> float:
    """Return the largest intermediate number, to which relative errors refer."""
    return max(1.0, *(float(np.abs(expr_numpy.evaluate(n, points)).max()) for n in node.walk()))


def to_arb(value: mp.mpf) -> flint.arb:
    """An exact number as a ball of radius 1e-50 and less."""
    old, flint.ctx.prec = flint.ctx.prec, 250
    try:
        return flint.arb(mp.nstr(value, 58))
    finally:
        flint.ctx.prec = old


def agree(node: Expr, points: np.ndarray, reference: Expr | None = None) -> None:
    """Torch and NumPy agree to 1e-12; the ball holds the exact value of the reference (or of the tree)."""
    scale = magnitude(node, points)
    in_numpy = expr_numpy.evaluate(node, points)
    in_torch = expr_torch.evaluate(node, torch.from_numpy(points)).numpy()
    assert in_numpy.shape == in_torch.shape == (len(points), node.out_dim)
    assert np.abs(in_numpy - in_torch).max() <= 1e-12 * scale
    for p, row in zip(points, in_numpy, strict=True):
        balls = expr_ball.evaluate(node, [flint.arb(float(v)) for v in p])
        truth = exact(reference or node, [mp.mpf(float(v)) for v in p])
        assert len(balls) == len(truth) == node.out_dim
        for ball, true, v in zip(balls, truth, row, strict=True):
            assert ball.overlaps(to_arb(true))
            assert float(ball.rad()) <= 1e-12 * scale  # and says something
            assert abs(true - mp.mpf(float(v))) <= 1e-12 * scale


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_evaluators_agree_on_random_trees(tree, kind, seed):
    rng = np.random.default_rng([KINDS.index(kind), seed])
    node = tree(rng, kind, depth=1 + seed % 4)
    agree(node, rng.uniform(-2, 2, (4, DIM)))


def test_the_random_trees_have_every_kind_of_node_below_the_root(tree):
    seen = {
        type(n).__name__
        for k, kind in enumerate(KINDS)
        for seed in range(6)
        for n in list(tree(np.random.default_rng([k, seed]), kind, 1 + seed % 4).walk())[1:]
    }
    assert seen == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_the_ball_of_a_box_holds_the_values_of_its_points(tree, kind, seed):
    rng = np.random.default_rng([KINDS.index(kind), seed, 1])
    node = tree(rng, kind, depth=1 + seed % 3)
    corners = np.sort(rng.uniform(-2, 2, (2, DIM)), axis=0)
    inside = corners[0] + (corners[1] - corners[0]) * rng.random((40, DIM))
    ends = np.where(rng.random((20, DIM)) < 0.5, corners[0], corners[1])
    points = np.concatenate([inside, ends])
    balls = expr_ball.evaluate(node, [expr_ball.ball(a, b) for a, b in corners.T.tolist()])
    slack = 1e-12 * magnitude(node, points)
    for ball, values in zip(balls, expr_numpy.evaluate(node, points).T, strict=True):
        assert float(ball.lower()) - slack <= values.min()
        assert values.max() <= float(ball.upper()) + slack
        assert float(ball.rad()) < np.inf


def test_enclosures_are_tight_where_functions_are_monotone_or_even():
    x = variable(1)
    box = [expr_ball.ball(-1.0, 3.0)]

    def ends(node: Expr) -> tuple[float, float]:
        (b,) = expr_ball.evaluate(node, box)
        return float(b.lower()), float(b.upper())

    assert ends(x**2) == pytest.approx((0.0, 9.0), abs=1e-6)
    assert ends(x**3) == pytest.approx((-1.0, 27.0), abs=1e-6)
    assert ends(Tanh(of=40.0 * x)) == pytest.approx((-1.0, 1.0), abs=1e-6)
    assert ends(Softplus(of=x)) == pytest.approx((np.log1p(np.exp(-1)), np.log1p(np.exp(3))), abs=1e-6)
    assert ends(x.norm()) == pytest.approx((0.0, 3.0), abs=1e-6)
    assert ends(Max(args=(x, -x)))[0] > -1.01
    assert (x**4)[0].out_dim == 1
    assert not expr_ball.evaluate(x**4, [expr_ball.ball(-0.1, 0.2)])[0] < 0


def test_nan_never_becomes_an_enclosure():
    infinite = [flint.arb("inf")]
    x = variable(1)
    nothing = Exp(of=x) - Exp(of=x)
    for node in (nothing, nothing.norm(), Tanh(of=nothing), Softplus(of=nothing), nothing**2, nothing**3):
        (ball,) = expr_ball.evaluate(node, infinite)
        assert not ball.is_finite()


@pytest.mark.parametrize("u", [-1e4, -700.0, -50.0, -1e-9, 0.0, 1e-9, 21.0, 50.0, 700.0, 1e4])
@pytest.mark.parametrize("op", [Softplus, Tanh, Exp])
def test_large_arguments(op, u):
    if op is Exp and u == 1e4:
        assert expr_torch.evaluate(Exp(of=variable(1)), torch.tensor([u])).isinf().all()
        return
    node = op(of=variable(1))
    true = exact(node, [mp.mpf(u)])[0]
    for value in (
        expr_numpy.evaluate(node, np.array([u]))[0],
        expr_torch.evaluate(node, torch.tensor([u], dtype=torch.float64)).item(),
    ):
        assert abs(mp.mpf(float(value)) - true) <= 1e-13 * abs(true) + 5e-324
    ball = expr_ball.evaluate(node, [flint.arb(u)])[0]
    assert ball.overlaps(to_arb(true))
    if abs(u) < 1000:
        assert float(ball.rad()) <= 1e-14 * float(abs(true))
    x = torch.tensor([u], dtype=torch.float64, requires_grad=True)
    expr_torch.evaluate(node, x).sum().backward()
    slope = {"exp": mp.exp, "tanh": lambda v: mp.sech(v) ** 2, "softplus": lambda v: 1 / (1 + mp.exp(-v))}
    expected = slope[node.op](mp.mpf(u))
    assert abs(mp.mpf(x.grad.item()) - expected) <= 1e-12 * expected + 1e-15


def test_a_changed_weight_fails_the_comparison_and_changes_the_hash():
    x = variable(2)
    node = ((x - [0.3, 0.7]) ** 2).sum() + Exp(of=x.dot([1.0, -0.5]))
    data = json.loads(json.dumps(node.data()))
    inner = data["of"]["args"][0]["args"][0]["of"]
    assert inner["bias"] == [-0.3, -0.7]
    points = np.random.default_rng(0).uniform(-1, 1, (5, 2))
    agree(node, points)
    inner["bias"][1] += 1e-10
    changed = parse_expr(data)
    assert changed.hash() != node.hash()
    agree(changed, points)
    with pytest.raises(AssertionError):
        agree(changed, points, reference=node)
    inner["bias"][1] = float(np.nextafter(-0.7, 0.0))
    assert parse_expr(data).hash() != node.hash()
