"""Families against the formulas that their summaries state, written out in NumPy without expressions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from headcount.core.errors import BadInput
from headcount.core.hashing import content_hash
from headcount.core.random import generator
from headcount.tasks.families import FAMILIES, family, make_task, orthonormal
from headcount.tasks.serial import parse_task
from headcount.tasks.sets import index_sets

OUTER = {
    "sum": lambda z: z.sum(),
    "product": lambda z: np.prod(1 + z),
    "sum-product": lambda z: z.sum() + np.prod(1 + z),
    "square": lambda z: (1 + z.sum()) ** 2,
    "tanh": lambda z: np.tanh(z.sum()),
    "exp": lambda z: np.exp(-z.sum()),
    "vector": np.cumsum,
}

DRAWN = {
    "sum-of-maxima, gaussian": "7bbf7934b01812b2",
    "sum-of-maxima, unit": "12efc8319582160f",
    "sum-of-maxima, orthonormal": "8c869aa2484e2988",
    "quadratic-basins": "53b2d51d83926a93",
    "sphere-anchors": "968a248d9f0e67ea",
    "linear": "492d04d95e2d165a",
}


def same(task, formula) -> None:
    """Check that the task equals the formula at thirty sequences."""
    X = task.sample(30, seed=2)
    expected = np.stack([np.atleast_1d(formula(x)) for x in X.numpy()])
    np.testing.assert_allclose(task.value(X).numpy(), expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("draw", ["gaussian", "unit", "orthonormal"])
@pytest.mark.parametrize("sets", ["all", "bands", "halves", "random"])
def test_sum_of_maxima(draw, sets):
    spec = family("sum-of-maxima", intrinsic=3, dim=4, length=11, draw=draw, sets=sets, seed=5)
    a = spec.directions()
    S = index_sets(sets, 3, 11, seed=5)
    same(spec.task(), lambda x: sum(max(a[i] @ x[t] for t in S[i]) for i in range(3)))
    gram = a @ a.T
    if draw != "gaussian":
        np.testing.assert_allclose(np.diag(gram), 1.0, rtol=1e-12)
    if draw == "orthonormal":
        np.testing.assert_allclose(gram, np.eye(3), atol=1e-12)
    assert not np.array_equal(a, family("sum-of-maxima", intrinsic=3, dim=4, draw=draw, seed=6).directions())


@pytest.mark.parametrize("outer", OUTER)
@pytest.mark.parametrize("dim", [1, 2, 5])
def test_quadratic_basins(outer, dim):
    spec = family("quadratic-basins", intrinsic=4, dim=dim, outer=outer, length=6, sets="bands", seed=dim)
    c, S = spec.centres(), index_sets("bands", 4, 6, seed=dim)
    assert ((c >= 0.1) & (c <= 0.9)).all()
    distances = [np.linalg.norm(c[i] - c[j]) for i in range(4) for j in range(i)]
    assert min(distances) > 0.02
    same(
        spec.task(),
        lambda x: OUTER[outer](np.array([min(((x[t] - c[i]) ** 2).mean() for t in S[i]) for i in range(4)])),
    )


@pytest.mark.parametrize("outer", OUTER)
def test_sparse_regression_reads_the_marked_tokens(outer):
    task = make_task("sparse-regression", q=3, length=7, outer=outer)
    X = task.sample(30, seed=2).numpy()
    assert (X[..., 1:].sum(1) == 1).all()  # every mark at one position
    same(task, lambda x: OUTER[outer](np.array([x[x[:, 1 + j].argmax(), 0] for j in range(3)])))


@pytest.mark.parametrize("outer", OUTER)
def test_sphere_anchors(outer):
    task = make_task("sphere-anchors", intrinsic=3, dim=4, length=5, outer=outer, seed=9)
    q = generator(9, "anchors").standard_normal((3, 4))
    q /= np.linalg.norm(q, axis=1, keepdims=True)
    same(task, lambda x: OUTER[outer](((x[None] - q[:, None]) ** 2).sum(-1).min(1) / 4))
    assert np.allclose(np.linalg.norm(task.sample(5).numpy(), axis=-1), 1.0)


def test_min_plus_max():
    same(make_task("min-plus-max", length=5), lambda x: x.max() + x.min())


def test_controls():
    same(make_task("mean", dim=3), lambda x: ((x - 0.5) ** 2).sum(1).mean())
    linear = make_task("linear", dim=3, length=4, seed=3)
    w = generator(3, "weights").standard_normal((4, 3))
    same(linear, lambda x: (w * x).sum())
    same(make_task("nearest-neighbour"), lambda x: x[np.linalg.norm(x[:-1] - x[-1], axis=1).argmin()])


def test_a_wrong_formula_is_detected():
    with pytest.raises(AssertionError):
        same(make_task("min-plus-max", length=5), lambda x: x.max() + x.min() + 1e-9)


@pytest.mark.parametrize("intrinsic", [1, 2, 5])
@pytest.mark.parametrize("length", [5, 8, 13])
@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
def test_index_sets(intrinsic, length, share):
    for kind in ("all", "bands", "halves", "random"):
        S = index_sets(kind, intrinsic, length, share=share, seed=1)
        assert len(S) == intrinsic
        for s in S:
            assert s == sorted(set(s))
            assert s[0] >= 0
            assert s[-1] < length
            assert len(s) >= length / 4
            if kind in ("bands", "random"):
                assert len(s) == int(np.ceil(share * length))
    everything = set(range(length))
    assert all(set(s) == everything for s in index_sets("all", intrinsic, length))
    bands = index_sets("bands", intrinsic, length, share=share)
    assert all(s[-1] - s[0] == len(s) - 1 for s in bands)
    if intrinsic > 1:
        assert bands[0][0] == 0
        assert bands[-1][-1] == length - 1
        first, second = index_sets("halves", intrinsic, length)[:2]
        assert set(first) | set(second) == everything
        assert not set(first) & set(second)
    if share < 1:
        drawn = [index_sets("random", 5, length, share=share, seed=seed) for seed in (0, 0, 1)]
        assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize(
    ("name", "parameters", "pattern"),
    [
        ("sum-of-maximum", {}, "unknown task 'sum-of-maximum': did you mean 'sum-of-maxima'"),
        ("sum-of-maxima", {"intrinsics": 3}, "unknown key 'intrinsics': did you mean 'intrinsic'"),
        ("sum-of-maxima", {"intrinsic": 5, "dim": 4}, "at most dim = 4 vectors can be orthonormal, not 5"),
        ("sum-of-maxima", {"intrinsic": 9, "dim": 9}, "length must be at least the intrinsic dimension 9"),
        ("sum-of-maxima", {"draw": "given"}, "given: state the vectors"),
        ("sum-of-maxima", {"given": [[1.0] * 4] * 4}, "given: state the vectors"),
        ("sum-of-maxima", {"draw": "given", "given": [[1.0]]}, "given: needs 4 vectors of 4 numbers"),
        ("sum-of-maxima", {"draw": "normal"}, "draw must be 'gaussian', .*, not 'normal'"),
        ("sum-of-maxima", {"seed": -1}, "seed must be .*, not -1"),
        ("sum-of-maxima", {"intrinsic": 0}, "intrinsic must be .*, not 0"),
        ("sum-of-maxima", {"intrinsic": 2.0}, "intrinsic must be .*, not 2.0"),
        ("sum-of-maxima", {"share": 0.1}, "share must be .*, not 0.1"),
        ("sum-of-maxima", {"share": float("nan")}, "share"),
        ("sum-of-maxima", {"sets": "some"}, "sets must be "),
        ("quadratic-basins", {"outer": "cube"}, "outer must be "),
        ("min-plus-max", {"length": 1}, "length must be .*, not 1"),
        ("sparse-regression", {"q": 9}, "length must be at least q = 9"),
        ("sphere-anchors", {"dim": 1}, "dim must be .*, not 1"),
        ("nearest-neighbour", {"length": 1}, "length must be .*, not 1"),
        ("mean", {"dim": 0}, "dim must be .*, not 0"),
        ("linear", {"length": 0}, "length must be .*, not 0"),
    ],
)
def test_wrong_parameters_are_rejected_in_one_line(name, parameters, pattern):
    for make in (lambda: make_task(name, **parameters), lambda: parse_task({"family": name, **parameters})):
        with pytest.raises(BadInput, match=pattern) as caught:
            make()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "pattern"),
    [
        ({"kind": "retrieve"}, "'retrieve'"),
        ({"length": 9}, "length is 9, but the rest of the task gives 8"),
        ({"dim": 3}, "dim is 3, but the rest of the task gives 2"),
        ({"length": "8"}, "length"),
        ({"law": {"law": "cauchy"}}, "cauchy"),
        ({"law": {"law": "gaussian", "std": 0.0}}, "std"),
        ({"law": {"law": "uniform", "low": [1.0], "high": [0.0]}}, "low must be below high"),
        (
            {"law": {"law": "uniform", "low": [0.0] * 3, "high": [1.0] * 3}},
            "cannot draw tokens of dimension 2",
        ),
        ({"law": np.zeros(2)}, "not JSON data"),
        ({"weight": [[1.0, 2.0], [1.0]]}, "rectangular table"),
        ({"weight": []}, "rectangular table"),
    ],
)
def test_wrong_task_data_is_rejected_in_one_line(change, pattern):
    data = make_task("linear").data()
    assert parse_task(data).hash() == make_task("linear").hash()
    with pytest.raises(BadInput, match=pattern) as caught:
        parse_task({**data, **change})
    assert "\n" not in str(caught.value)


def test_nearest_neighbour_has_one_law():
    data = make_task("nearest-neighbour").data()
    with pytest.raises(BadInput, match="law is .* but the rest of the task gives"):
        parse_task({**data, "law": {"law": "gaussian", "std": 1.0}})


@pytest.mark.parametrize("name", [["mean"], None, 3])
def test_an_invalid_family_name_is_rejected(name):
    with pytest.raises(BadInput, match="unknown task"):
        parse_task({"family": name})


@pytest.mark.parametrize(
    ("name", "law", "box"),
    [
        ("sum-of-maxima", "gaussian", None),
        ("quadratic-basins", "uniform", ((0.0, 0.0), (1.0, 1.0))),
        ("min-plus-max", "uniform", ((0.0,), (1.0,))),
        ("sparse-regression", "marked", ((0.0,) * 4, (1.0,) * 4)),
        ("sphere-anchors", "sphere", ((-1.0,) * 3, (1.0,) * 3)),
        ("nearest-neighbour", "sphere", ((-1.0,) * 4, (1.0,) * 4)),
        ("mean", "uniform", ((0.0, 0.0), (1.0, 1.0))),
        ("linear", "gaussian", None),
    ],
)
def test_laws_and_boxes(name, law, box):
    task = make_task(name)
    assert task.law.law == law
    assert task.box == box


def test_summaries_are_one_line():
    for kind in FAMILIES.values():
        assert kind.summary
        assert "\n" not in kind.summary
        assert torch.isfinite(kind().task().value(kind().task().sample(3))).all()


def test_clipped_tokens_are_gaussian_tokens_clipped_to_the_box() -> None:
    """The same draws, moved to the nearest point of the box, which is the task's domain."""
    plain, clipped = (make_task("sum-of-maxima", intrinsic=2, dim=2, length=8, limit=limit) for limit in (None, 1.5))
    assert (plain.box, clipped.box) == (None, ((-1.5, -1.5), (1.5, 1.5)))
    X = plain.sample(200, seed=3)
    assert float(X.abs().max()) > 1.5
    assert torch.equal(clipped.sample(200, seed=3), X.clamp(-1.5, 1.5))
    assert parse_task(clipped.data()).hash() == clipped.hash() != plain.hash()
    with pytest.raises(BadInput, match="limit"):
        make_task("sum-of-maxima", limit=0.0)


def test_directions_match_a_qr_decomposition():
    """Gram–Schmidt in a fixed order agrees with LAPACK's QR."""
    for dim in (1, 2, 5, 40):
        rows = generator(dim, "rows").standard_normal((dim, dim))
        q, r = np.linalg.qr(rows.T)
        np.testing.assert_allclose(orthonormal(rows), (q * np.sign(np.diag(r))).T, atol=1e-13)


@pytest.mark.parametrize(("what", "digest"), DRAWN.items())
def test_every_machine_draws_the_same_task(what, digest):
    """To the last bit, since trials are identified by the content of their task."""
    name, _, draw = what.partition(", ")
    task = make_task(name, seed=3, **({"draw": draw} if draw else {}))
    assert content_hash(task.data())[:16] == digest
