"""What F reads, in balls: the reference model's numbers and slopes, and enclosures of all that lies within."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from flint import arb

from colliding import BOX, OPTIONS, balls, collide, drawn, random_model, read_by_F, task, weights_of, with_plain_output
from headcount.models.files import SavedModel
from headcount.recheck.deep import Deep
from headcount.recheck.heads import Heads, lipschitz
from headcount.recheck.witness import reader, verify_witness
from headcount.theory.attack.exact import prove_pair

pytestmark = pytest.mark.usefixtures("precise")


# -- what F reads ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "-".join(map(str, o.values())))
def test_outputs_and_slopes_match_the_model(options, tmp_path):
    model = random_model(3, head_dim=3, width=6, **options)
    X = drawn(5)
    found = Heads(weights_of(model, tmp_path / "a"), 6)
    assert found.count == 6
    plain = with_plain_output(model)
    for Xs in X:
        o = read_by_F(plain, Xs) - plain.class_token
        jacobian = torch.autograd.functional.jacobian(lambda Y: read_by_F(plain, Y), Xs).flatten(1)
        outputs, slopes = found.outputs(balls(Xs)), found.slopes(balls(Xs))
        assert max(float(v.rad()) for v in (*outputs, *(v for column in slopes for v in column))) < 1e-25
        np.testing.assert_allclose([float(v) for v in outputs], o.detach(), atol=1e-13)
        np.testing.assert_allclose([[float(v) for v in column] for column in slopes], jacobian.T, atol=1e-13)
    delta = found.difference(*(found.outputs(balls(Xs)) for Xs in X))
    wanted = (read_by_F(model, X[0]) - read_by_F(model, X[1])).detach()
    np.testing.assert_allclose([float(v) for v in delta], wanted, atol=1e-13)


def test_scores_of_thousands_and_weights_in_float32(tmp_path):
    model = random_model(4, torch.float32, beta=1e5)
    X = drawn(6)[0].float().double()
    found = Heads(weights_of(model, tmp_path / "a"), 6).outputs(balls(X))
    exact = with_plain_output(model)
    assert all(v.is_finite() and v.rad() < 1e-25 for v in found)
    np.testing.assert_allclose([float(v) for v in found], (read_by_F(exact, X) - exact.class_token).detach(), atol=1e-9)


def test_balls_enclose_the_outputs_of_all_sequences_in_them(tmp_path):
    model = random_model(5, positions="concatenated")
    found, plain = Heads(weights_of(model, tmp_path / "a"), 6), with_plain_output(model)
    X, rng, wide = drawn(7)[0], np.random.default_rng(0), 0.05  # wide enough for kinks to lie inside
    over = [[arb(float(v), wide) for v in row] for row in X]
    outputs, slopes = found.outputs(over), found.slopes(over)
    start = read_by_F(plain, X)
    for _ in range(50):
        Y = X + torch.from_numpy(rng.uniform(-wide, wide, (6, 2)))
        o = read_by_F(plain, Y)
        jacobian = torch.autograd.functional.jacobian(lambda Z: read_by_F(plain, Z), Y).flatten(1)
        assert all(b.contains(arb(v, 1e-12)) for b, v in zip(outputs, (o - plain.class_token).tolist(), strict=True))
        assert all(
            b.contains(arb(float(v), 1e-12))
            for c, row in zip(slopes, jacobian.T, strict=True)
            for b, v in zip(c, row, strict=True)
        )
        step = (Y - X).flatten().tolist()  # the mean-value form, across the kinks
        for r, v in enumerate((o - start).tolist()):
            assert sum(c[r] * s for c, s in zip(slopes, step, strict=True)).contains(arb(v, 1e-12))


def test_zero_rows_of_value_add_no_equation(tmp_path):
    model = random_model(6)
    with torch.no_grad():
        model.layers[0].attention.value[1, 0] = 0.0
    found, X = Heads(weights_of(model, tmp_path / "a"), 6), drawn(1)
    assert found.count == 3
    delta = found.difference(*(found.outputs(balls(Xs)) for Xs in X))
    wanted = (read_by_F(model, X[0]) - read_by_F(model, X[1])).detach()
    np.testing.assert_allclose([float(v) for v in delta], wanted, atol=1e-13)


@pytest.mark.parametrize("kind", ["gelu2", "relu2", "relu5"])
def test_the_lipschitz_constant(kind, tmp_path):
    model = random_model(7, feedforward=kind)
    bound = lipschitz(weights_of(model, tmp_path / "a", std=(1.0, 2.5)), 1)
    layers = [layer.weight.detach() for layer in model.layers[0].feedforward.layers]
    product = 2.5 * float(layers[-1][1].norm()) * np.prod([float(torch.linalg.matrix_norm(W, 2)) for W in layers[:-1]])
    product *= 1.129 if kind == "gelu2" else 1.0
    assert product <= float(bound.upper()) <= 1.05 ** len(layers) * product
    u = 3 * torch.randn(300, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    u.requires_grad_()
    model.layers[0].feedforward(u)[:, 1].sum().backward()
    assert 2.5 * float(u.grad.norm(dim=1).max()) <= float(bound.lower())


# -- several layers and layer norms ---------------------------------------------------------------------------

DEEP = [
    {"layer_norm": True},
    {"layer_norm": True, "width": 6, "class_key": True},
    {"layer_norm": True, "width": 3},
    {"depth": 2, "positions": "gates"},
    {"depth": 2, "residual": True, "feedforward": "relu2", "positions": "gates", "class_key": True},
    {"depth": 2, "layer_norm": True, "residual": True, "positions": "concatenated", "beta": "learned", "width": 5},
    {"depth": 3, "layer_norm": True, "feedforward": "relu5", "positions": "additive", "beta": 1.5, "class_key": True},
]


@pytest.mark.parametrize("options", DEEP, ids=lambda o: "-".join(f"{k}={v}" for k, v in o.items()))
def test_deep_models(options, tmp_path):
    model = random_model(9, **options)
    found = reader(weights_of(model, tmp_path / "a"), 6)
    assert isinstance(found, Deep)
    assert found.count == (4 if model.spec.depth == 1 and model.spec.E >= 4 else model.spec.E)
    X = drawn(9)
    o, slopes = ([part(balls(Xs)) for Xs in X] for part in (found.outputs, found.slopes))
    assert max(float(v.rad()) for v in (*o[0], *(v for column in slopes[0] for v in column))) < 1e-25
    wanted = [read_by_F(model, Xs).detach() for Xs in X]
    np.testing.assert_allclose([float(v) for v in found.difference(*o)], wanted[0] - wanted[1], atol=1e-12)
    jacobian = torch.autograd.functional.jacobian(lambda Y: read_by_F(model, Y), X[0]).flatten(1)
    zero = [arb(0)] * found.count
    through = [[float(v) for v in found.difference(column, zero)] for column in slopes[0]]
    np.testing.assert_allclose(through, jacobian.T, atol=1e-12)
    if not found.heads_only:
        np.testing.assert_allclose([float(v) for v in o[0]], wanted[0], atol=1e-12)


def test_deep_balls_enclose_the_outputs_of_all_sequences_in_them(tmp_path):
    model = random_model(5, depth=2, layer_norm=True, residual=True, feedforward="relu2")
    found = reader(weights_of(model, tmp_path / "a"), 6)
    X, rng, wide = drawn(7)[0], np.random.default_rng(0), 3e-3
    over = [[arb(float(v), wide) for v in row] for row in X]
    outputs, slopes, start = found.outputs(over), found.slopes(over), read_by_F(model, X).tolist()
    for _ in range(20):
        Y = X + torch.from_numpy(rng.uniform(-wide, wide, (6, 2)))
        u, step = read_by_F(model, Y).tolist(), (Y - X).flatten().tolist()
        assert all(b.contains(arb(v, 1e-12)) for b, v in zip(outputs, u, strict=True))
        for r, v in enumerate(u):
            assert sum(c[r] * s for c, s in zip(slopes, step, strict=True)).contains(arb(v - start[r], 1e-12))


@pytest.mark.parametrize("options", [DEEP[0], DEEP[3], DEEP[4]], ids=str)
def test_pairs_of_deep_models(options, tmp_path):
    model = random_model(9, **options)
    X = collide(model, drawn(9))
    weights = weights_of(model, tmp_path / "a")
    data = prove_pair(weights, task().data(), BOX, None, 0, X[0], X[1])
    assert data["kind"] == "exact"
    assert (data["claims"]["lipschitz"] is None) == model.spec.layer_norm
    SavedModel(model).save(tmp_path / "a", {"witness.json": {**data, "provenance": {}}})
    verdict = verify_witness(tmp_path / "a")
    assert verdict.holds, verdict.reason
    data["X1"][0][0] = ["1", -3]
    SavedModel(model).save(tmp_path / "a", {"witness.json": {**data, "provenance": {}}})
    assert "Krawczyk" in verify_witness(tmp_path / "a").reason
    corners = np.full((6, 2), -1.0), np.tile([-1.0, 1.0], (6, 1))  # no coordinate is free
    near = prove_pair(weights, task().data(), BOX, None, 0, *corners)
    assert near["kind"] == "near"
    assert near["claims"]["sup_error"] == 0.0 or not model.spec.layer_norm
