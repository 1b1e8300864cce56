"""The enclosure of a network against an expression: never too narrow, close, and detected if corrupted."""

from __future__ import annotations

import numpy as np
import pytest
from flint import arb, ctx

from headcount.recheck import differences as module
from headcount.recheck.differences import Network, difference
from headcount.recheck.trees import PRECISION, Forms, dual, in_balls, scalar
from headcount.tasks.expressions import in_numpy as expr_numpy
from headcount.tasks.expressions.tree import Exp, Product, Softplus, Tanh, affine, variable


@pytest.fixture(autouse=True)
def _precise():
    before, ctx.prec = ctx.prec, PRECISION
    yield
    ctx.prec = before


def functions(dim: int):
    x = variable(dim)
    rows = np.arange(1.0, 2 * dim + 1).reshape(2, dim) / (2 * dim)
    return {
        "basin": ((x - 0.3) ** 2).sum() / dim,
        "forms": Tanh(of=affine(rows.tolist(), [0.1, -0.4], x)).sum() + x.sum(),
        "product": Product(args=(x + 1.0,)),
        "bump": Exp(of=-2.0 * ((x - 0.6) ** 2).sum()),
        "soft": Softplus(of=3.0 * x).sum() * (x[0] - 0.5),
        "cube": (x.sum() - 0.7) ** 3,
    }


def draw(dim: int, units: int, seed: int, aligned: bool) -> Network:
    g = np.random.default_rng(seed)
    inner = g.standard_normal((units, dim))
    if aligned:
        inner *= np.eye(dim)[g.integers(dim, size=units)]
    bias = -(inner * g.random((units, dim))).sum(1)  # every unit bends inside the box
    return Network(inner, bias, g.standard_normal(units), arb(float(g.standard_normal())))


def sampled(network: Network, f, dim: int, low, high, count: int = 4000):
    g = np.random.default_rng(1)
    x = low + (high - low) * g.random((count, dim))
    corners = np.stack([c.ravel() for c in np.meshgrid(*[[0.0, 1.0]] * dim)], axis=1)
    x = np.concatenate([x, low + (high - low) * corners])
    y = np.maximum(x @ network.inner.T + network.inner_bias, 0.0) @ network.outer + float(network.bias)
    return y - expr_numpy.evaluate(f, x)[:, 0]


CASES = [(dim, name, aligned) for dim in (1, 2) for name in functions(1) for aligned in (True, False)]
CASES += [(3, "basin", True), (4, "basin", True), (3, "forms", True), (3, "product", False)]


@pytest.mark.parametrize(("dim", "name", "aligned"), CASES)
def test_every_difference_lies_inside(dim, name, aligned, monkeypatch):
    monkeypatch.setattr(module, "MAX_BOXES", 1500)
    f = functions(dim)[name]
    network = draw(dim, 7, seed=dim, aligned=aligned)
    low, high = -0.2 * np.ones(dim), np.linspace(0.8, 1.1, dim)
    least, most = difference(network, f, 0, low, high)
    found = sampled(network, f, dim, low, high)
    assert least <= found.min()
    assert found.max() <= most
    if dim <= 2 and (not aligned or name in ("basin", "product", "bump", "soft")):  # one group, or axes that are
        assert most - least <= 1.35 * (found.max() - found.min()) + 1e-9  # and it is no mere interval bound


def test_a_removed_slack_is_detected(monkeypatch):
    """|x + y − 1| as two units with kinks, on one box: without their slack some points lie outside."""
    monkeypatch.setattr(module, "MAX_BOXES", 0)
    rows = np.array([[1.0, 1.0], [-1.0, -1.0]])
    network, f = Network(rows, np.array([-1.0, 1.0]), np.ones(2), arb(0)), 0.1 * variable(2)[0]
    found = sampled(network, f, 2, np.zeros(2), np.ones(2))
    least, most = difference(network, f, 0, np.zeros(2), np.ones(2))
    assert least <= found.min() <= found.max() <= most
    monkeypatch.setattr(module, "UNIT", arb(0))
    least, most = difference(network, f, 0, np.zeros(2), np.ones(2))
    assert most < found.max()


@pytest.mark.parametrize("name", list(functions(2)))
def test_gradients_enclose_all_slopes(name):
    """f(u) ∈ f(m) + gradient·(u − m)."""
    forms = Forms(expanded=True)
    f = functions(2)[name]
    tree = in_balls(scalar(f, 0, forms))
    g = np.random.default_rng(0)
    order = [next(i for i, v in enumerate(row) if v) for row in forms.rows]
    for _ in range(60):
        low = g.uniform(-0.5, 0.8, 2)
        high = low + g.choice([1e-3, 0.1, 0.5], 2)
        wide = {k: arb(low[i]).union(arb(high[i])) for k, i in enumerate(order)}
        middle = (low + high) / 2
        at = dual(tree, {k: arb(middle[i]) for k, i in enumerate(order)})[0]
        slope = dual(tree, wide)[1]
        whole = at + sum((s * (wide[k] - middle[order[k]]) for k, s in slope.items()), arb(0))
        values = expr_numpy.evaluate(f, low + (high - low) * g.random((50, 2)))[:, 0]
        assert float(whole.lower()) <= values.min() + 1e-14
        assert values.max() - 1e-14 <= float(whole.upper())
