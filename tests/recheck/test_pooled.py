"""Fewer equations where tokens share linear pieces: their slopes, a pair that only they prove, and spoilt twins."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from flint import arb
from scipy.optimize import brentq

import headcount as hc
from headcount.models.files import SavedModel
from headcount.models.transformer.reference import Transformer
from headcount.models.transformer.spec import ModelSpec
from headcount.recheck.heads import Heads
from headcount.recheck.pooled import Pooled
from headcount.recheck.weights import read_weights
from headcount.recheck.witness import verify_witness
from headcount.theory.attack.exact import prove_pair
from headcount.theory.attack.layer import HeadMap


def one_piece(seed: int = 0, **options) -> SavedModel:
    """One head of four numbers over tokens of one number: units 0 and 1 are on everywhere in [0, 1], unit 2 is off."""
    spec = ModelSpec(**{"dim": 1, "length": 3, "heads": 1, "head_dim": 4, "hidden": 3, **options})
    model = Transformer(spec, seed=seed, dtype=torch.float64)
    with torch.no_grad():
        model.encoder.inner.weight.copy_(torch.tensor([[1.0], [-0.5], [1.0]]))
        model.encoder.inner.bias.copy_(torch.tensor([0.5, 2.0, -3.0]))
    task = hc.make_task("min-plus-max", length=3)
    return SavedModel(model, task=task.data())


def colliding(model: SavedModel) -> tuple[np.ndarray, np.ndarray]:
    """Two sequences with equal attention output: one token of the second is solved for."""
    layer, X1 = HeadMap(model.transformer), np.array([[0.1], [0.5], [0.9]])

    def second(v: float) -> np.ndarray:
        return np.array([[0.4], [v], [0.45]])

    def moved(v: float) -> float:
        o = layer(torch.from_numpy(np.stack([X1, second(v)])))
        return float((o[0] - o[1]) @ (layer(torch.ones(1, 3, 1, dtype=torch.float64))[0] - o[0]))

    return X1, second(brentq(moved, 0.0, 1.0, xtol=1e-15))


def saved_weights(model: SavedModel, folder: Path):
    model.save(folder)
    return read_weights(folder)


def test_the_slopes_are_those_of_the_pooled_numbers(tmp_path: Path) -> None:
    """Compare with differences of the enclosed values, with a unit that is active at some tokens only."""
    model = one_piece(heads=2)
    with torch.no_grad():
        model.transformer.encoder.inner.bias[2] = -0.5
    heads = Heads(saved_weights(model, tmp_path / "m"), 3)
    X = [[arb(v)] for v in (0.1, 0.45, 0.9)]
    pooled = Pooled(heads, [X, X])
    assert (pooled.mixed, pooled.count) == ([2], 4)
    columns = pooled.slopes(X)
    for t in range(3):
        at = [[x[0] + (arb(2) ** -30 if k == t else 0)] for k, x in enumerate(X)]
        for r, (a, b) in enumerate(zip(pooled.outputs(at), pooled.outputs(X), strict=True)):
            assert float((a - b) * 2**30) == pytest.approx(float(columns[t][r]), abs=1e-6)


def test_a_pair_that_is_proved_only_with_fewer_equations(tmp_path: Path) -> None:
    """Four outputs on a line: Krawczyk's test is singular for four equations and succeeds for one."""
    model = one_piece()
    weights, (X1, X2) = saved_weights(model, tmp_path / "m"), colliding(model)
    witness = prove_pair(weights, model.task or {}, [[0.0], [1.0]], None, 0, X1, X2)
    assert witness["kind"] == "exact"
    assert len(witness["solved"]) == 1
    assert witness["claims"]["gap"] > 0.04
    good = tmp_path / "good"
    model.save(good, {"witness.json": {**witness, "provenance": {}}})
    assert verify_witness(good).holds

    def reason(**change: object) -> str:
        data = {**copy.deepcopy(witness), "provenance": {}, **change}
        (good / "witness.json").write_text(json.dumps(data))
        return verify_witness(good).reason

    assert "2 coordinates are solved" in reason(solved=[1, 4])
    mantissa, exponent = witness["X2"][0][0]
    moved = [[[str(int(mantissa) + 2 ** (-exponent - 20)), exponent]], *witness["X2"][1:]]
    assert "no exact collision" in reason(X2=moved)
    assert reason() == ""


@pytest.mark.parametrize("options", [{"positions": "concatenated"}, {"positions": "additive"}, {"class_key": True}])
def test_where_pieces_are_not_shared_nothing_is_reduced(tmp_path: Path, options: dict) -> None:
    """Equal pooled tokens do not imply equal outputs there: the witness of the plain model is rejected."""
    plain = one_piece()
    weights, (X1, X2) = saved_weights(plain, tmp_path / "m"), colliding(plain)
    witness = prove_pair(weights, plain.task or {}, [[0.0], [1.0]], None, 0, X1, X2)
    other = one_piece(**options)
    other.save(tmp_path / "o", {"witness.json": {**witness, "model": other.hash(), "provenance": {}}})
    assert "1 coordinates are solved for 4 equations" in verify_witness(tmp_path / "o").reason


def test_a_unit_that_changes_between_tokens_counts(tmp_path: Path) -> None:
    """A kink at a token makes the unit mixed: the count no longer matches, and the pair is rejected."""
    model = one_piece()
    X1, X2 = colliding(model)
    with torch.no_grad():  # the kink of the third unit lies at the second token of the first sequence
        model.transformer.encoder.inner.bias[2] = -float(X1[1, 0])
    weights = saved_weights(model, tmp_path / "m")
    plain = one_piece()
    witness = prove_pair(saved_weights(plain, tmp_path / "p"), plain.task or {}, [[0.0], [1.0]], None, 0, X1, X2)
    model.save(tmp_path / "w", {"witness.json": {**witness, "model": weights.hash, "provenance": {}}})
    assert "1 coordinates are solved" in verify_witness(tmp_path / "w").reason
