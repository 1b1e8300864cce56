"""Expressions as data: JSON round trips, refusals, the operators that build trees, what a tree reads."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest

from headcount.core.errors import BadInput
from headcount.tasks.expressions import in_numpy as expr_numpy
from headcount.tasks.expressions.tree import NODES, Affine, Exp, Min, Stack, Tanh, affine, parse_expr, variable

KINDS = [node.__name__ for node in NODES]
DIM = 3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_json_round_trip(tree, kind, seed):
    node = tree(np.random.default_rng([KINDS.index(kind), seed, 2]), kind, 3)
    again = parse_expr(json.loads(json.dumps(node.data())))
    assert again == node
    assert again.hash() == node.hash()
    assert hash(again) == hash(node)
    x = np.random.default_rng(0).uniform(-2, 2, (5, DIM))
    assert np.array_equal(expr_numpy.evaluate(again, x), expr_numpy.evaluate(node, x))


X1, X2 = {"op": "variable", "dim": 1}, {"op": "variable", "dim": 2}


@pytest.mark.parametrize(
    ("data", "pattern"),
    [
        ({"op": "sin", "of": X1}, "unknown op 'sin': allowed: 'variable', 'affine'"),
        ({"of": X1}, "op"),
        ({"op": "exp"}, "of is missing"),
        ({"op": "variable"}, "dim is missing"),
        ({"op": "variable", "dim": 0}, "dim must be at least 1, not 0"),
        ({"op": "variable", "dim": 2.5}, "dim must be a whole number"),
        ({"op": "variable", "dim": "2"}, "dim must be a whole number"),
        ({"op": "variable", "dim": 2, "width": 3}, "unknown key '.*width'"),
        ({"op": "exp", "of": {**X1, "dimm": 1}}, "unknown key '.*dimm'"),
        ({"op": "power", "of": X1, "exponent": 0}, "exponent must be at least 1, not 0"),
        ({"op": "power", "of": X1, "exponent": 65}, "exponent must be at most 64, not 65"),
        ({"op": "power", "of": X1, "exponent": 1.5}, "exponent must be a whole number"),
        ({"op": "affine", "weight": [[1.0]], "bias": [0.0], "of": X2}, "every row of weight needs 2 entries"),
        ({"op": "affine", "weight": [[1.0, 2.0], [1.0]], "bias": [0.0, 0.0], "of": X2}, "every row"),
        ({"op": "affine", "weight": [], "bias": [], "of": X2}, "every row"),
        (
            {"op": "affine", "weight": [[1.0]], "bias": [0.0, 1.0], "of": X1},
            "expression: affine: bias has 2 entries, but weight has 1 rows",
        ),
        ({"op": "affine", "weight": [[float("nan")]], "bias": [0.0], "of": X1}, r"weight\.0\.0 must be a finite"),
        ({"op": "affine", "weight": [[1.0]], "bias": [float("inf")], "of": X1}, r"bias\.0 must be a finite"),
        ({"op": "affine", "weight": [["1"]], "bias": [0.0], "of": X1}, r"weight\.0\.0 must be a number"),
        ({"op": "sum", "args": []}, "sum needs at least one argument"),
        ({"op": "max", "args": [X1, X2]}, "variables of different dimension"),
        ({"op": "sum", "args": X1}, "args"),
        (None, "object"),
        ([X1], "object"),
        ({"op": "variable", "dim": object()}, "not JSON data"),
    ],
)
def test_bad_trees_are_rejected_in_one_line(data, pattern):
    with pytest.raises(BadInput, match=pattern) as caught:
        parse_expr(data)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250


def test_a_tree_too_deep_for_json_is_rejected_in_one_line():
    data = X1
    for _ in range(300):
        data = {"op": "tanh", "of": data}
    with pytest.raises(BadInput, match="nested too deeply") as caught:
        parse_expr(data)
    assert len(str(caught.value)) < 250


def test_long_sums_and_products_stay_flat():
    x = variable(2)
    total = sum((x[i % 2] - i) ** 2 for i in range(300))
    p = np.array([[0.5, -1.5]])
    assert expr_numpy.evaluate(total, p)[0, 0] == sum((p[0, i % 2] - i) ** 2 for i in range(300))
    assert parse_expr(json.loads(json.dumps(total.data()))) == total
    product = x[0]
    for i in range(1, 100):
        product = product * (1.0 + x[i % 2] / 100)
    assert expr_numpy.evaluate(product, p)[0, 0] == pytest.approx(0.5 * (0.985**50) * (1.005**49), rel=1e-12)
    assert parse_expr(json.loads(json.dumps(product.data()))) == product


SUGAR: list[Callable] = [
    lambda x: x + 1,
    lambda x: 1.5 + x,
    lambda x: x - 2.0,
    lambda x: 2.0 - x,
    lambda x: x + [1.0, 2.0, 3.0],  # noqa: RUF005
    lambda x: [1.0, 2.0, 3.0] - x,
    lambda x: np.array([1.0, 2.0, 3.0]) + x,
    lambda x: np.array([1.0, 2.0, 3.0]) - x,
    lambda x: x - np.array([1.0, 2.0, 3.0]),
    lambda x: np.float32(0.5) - x,
    lambda x: x + np.int64(3),
    lambda x: np.float64(2.0) * x,
    lambda x: 3 * x,
    lambda x: x * 0.25,
    lambda x: x / 4,
    lambda x: -x,
    lambda x: x**2,
    lambda x: x**3 - x**2,
    lambda x: x + x**2,
    lambda x: x * x,
    lambda x: x[0] * x[1],
    lambda x: x[0] * x,
    lambda x: x * x[2],
    lambda x: x[0] + x,
    lambda x: x**2 - x[1],
    lambda x: x[1] - x**2,
    lambda x: x[-1],
    lambda x: x[1] - x[0] + 2.0 * x[2] - 0.5,
    lambda x: (x[0] - x[1]) * (x[1] - x[2]) * x[0],
    lambda x: (x * x).sum(),
    lambda x: x.dot([1.0, -2.0, 0.5]),
    lambda x: ((x - [0.5, 0.5, 0.5]) ** 2).sum() / 3,
    lambda x: sum(c**2 for c in x),
    lambda x: -(x[0] - x[1]) - (x[2] - 1.0),
    lambda x: (x[0] + x) - (x * x - x[2]),
    lambda x: (x[0] * x + 1.0) - (x[1] + x**2 + 3.0),
]


@pytest.mark.parametrize("formula", SUGAR, ids=range(len(SUGAR)))
def test_operators_mean_what_numpy_means(formula):
    node = formula(variable(3))
    for point in (np.array([0.5, -1.25, 2.0]), np.array([3.0, 7.0, -11.0])):
        expected = np.atleast_1d(formula(point))
        assert np.allclose(expr_numpy.evaluate(node, point), expected, rtol=1e-14, atol=1e-14)
        assert node.out_dim == expected.size


def test_norm_and_iteration():
    x = variable(3)
    point = np.array([3.0, 4.0, 12.0])
    assert expr_numpy.evaluate(x.norm(), point) == [13.0]
    a, b, c = x
    assert [expr_numpy.evaluate(e, point)[0] for e in (a, b, c)] == [3.0, 4.0, 12.0]
    with pytest.raises(IndexError):
        x[3]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: x + [1.0],  # noqa: RUF005
        lambda x: x + x[0] * variable(2),
        lambda x: x * Stack(args=(x, x)),
        lambda x: x + Stack(args=(x, x)),
        lambda x: x + variable(2),
        lambda x: x**0,
        lambda x: x**0.5,
        lambda x: x.dot([1.0]),
        lambda x: affine([[1.0, 2.0]], [0.0], x),
        lambda x: x * float("nan"),
    ],
)
def test_mismatched_shapes_are_rejected_in_one_line(wrong):
    with pytest.raises(BadInput) as caught:
        wrong(variable(3))
    assert "\n" not in str(caught.value)


def test_two_affine_maps_are_merged_exactly():
    x = variable(2)
    inner = affine([[1, 2], [3, 4], [-5, 6]], [7, 8, -9], x)
    outer = affine([[1, 0, -2], [10, 20, 30]], [100, -200], inner)
    A, a = np.array([[1, 2], [3, 4], [-5, 6]]), np.array([7, 8, -9])
    B, b = np.array([[1, 0, -2], [10, 20, 30]]), np.array([100, -200])
    assert outer == Affine(weight=(B @ A).tolist(), bias=(B @ a + b).tolist(), of=x)
    assert (2 * (x - [1.0, 2.0]) + 3)[1] == Affine(weight=[[0.0, 2.0]], bias=[-1.0], of=x)
    assert sum(1 for n in (((x + 1) * 3 - 2) / 4).walk()) == 2


def test_reads():
    x = variable(4)
    assert x.reads() == {0, 1, 2, 3}
    assert x[2].reads() == {2}
    assert (x[0] * x[3]).reads() == {0, 3}
    assert (0.0 * x).reads() == set()
    assert affine([[0.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]], [0.0, 0.0], x)[1].reads() == {0}
    assert Stack(args=(x[1], Exp(of=x)))[0].reads() == {1}
    assert Stack(args=(x[1], Exp(of=x)))[3].reads() == {2}
    assert Min(args=(x[1], x[2] ** 2)).reads() == {1, 2}
    assert Tanh(of=x)[3].reads() == {3}
    assert (x[0] - x[0]).reads() == {0}  # structure, not algebra


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_unread_coordinates_do_not_matter(tree, kind, seed):
    rng = np.random.default_rng([KINDS.index(kind), seed, 3])
    wide = variable(5)
    node = tree(rng, kind, 3)
    pick = affine(np.eye(5)[[4, 1, 3]], [0.0] * 3, wide).data()  # reads 4, 1 and 3

    def replace(value):
        if isinstance(value, dict):
            return pick if value.get("op") == "variable" else {k: replace(v) for k, v in value.items()}
        return [replace(v) for v in value] if isinstance(value, list) else value

    moved = parse_expr(replace(node.data()))
    assert moved.in_dim == 5
    assert moved.reads() <= {1, 3, 4}
    x = rng.uniform(-1, 1, (6, 5))
    y = x.copy()
    unread = [i for i in range(5) if i not in moved.reads()]
    y[:, unread] = rng.uniform(-1, 1, (6, len(unread)))
    assert np.array_equal(expr_numpy.evaluate(moved, x), expr_numpy.evaluate(moved, y))
    assert np.allclose(expr_numpy.evaluate(moved, x), expr_numpy.evaluate(node, x[:, [4, 1, 3]]), rtol=1e-12)


@pytest.mark.parametrize(("kind", "smooth"), [(k, k not in ("Min", "Max", "Norm")) for k in KINDS])
def test_smooth(tree, kind, smooth):
    root = tree(np.random.default_rng(0), kind, 1)
    assert root.smooth == smooth
    assert (Tanh(of=root) + 1.0).smooth == smooth
