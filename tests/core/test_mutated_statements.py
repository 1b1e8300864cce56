"""A few hundred mutated models, certificates and witnesses: each is refused in one line, or means the same."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colliding import BOX, collide, drawn, random_model, task
from headcount import BadInput, SavedModel, load_model, make_task
from headcount.recheck.certificate import verify
from headcount.recheck.weights import Rejected, Weights, read_weights
from headcount.recheck.witness import verify_witness
from headcount.theory.attack.exact import prove_pair
from headcount.theory.construct.enough_heads import build
from mutations import mutate_bytes, mutate_json
from signed import sign

COUNT = 150  # of each kind


@pytest.fixture(scope="module", params=["certificate", "witness"])
def folder(request, tmp_path_factory) -> Path:
    where = tmp_path_factory.mktemp(request.param) / "model"
    if request.param == "certificate":
        build(make_task("min-plus-max", length=3), 0.1).save(where)
        return where
    model = random_model(1, positions="gates", beta="learned", heads=1)
    X = collide(model, drawn(1))
    saved = SavedModel(model, std=(1.5, 0.7), mean=(0.1, 0.2))
    saved.save(where)
    data = prove_pair(where, task().data(), BOX, None, 1, X[0], X[1])
    saved.save(where, {"witness.json": {**data, "provenance": {}}})
    return where


def loaded(folder: Path) -> SavedModel | None:
    try:
        return load_model(folder)
    except BadInput as error:
        one_line(error)
        return None


def read(folder: Path) -> Weights | None:
    try:
        return read_weights(folder)
    except Rejected as error:
        one_line(error)
        return None


def one_line(error: Exception) -> None:
    assert "\n" not in str(error)
    assert 10 < len(str(error)) < 1000


def stated(folder: Path) -> Any:
    """Return what a witness is about: it may prove something about another output or task if it says so."""
    path = folder / "witness.json"
    data = json.loads(path.read_bytes()) if path.is_file() else {}
    return {key: value for key, value in data.items() if key not in ("claims", "provenance")}


def judged(folder: Path) -> Any:
    """Return what is proved about a folder; None if it is rejected."""
    try:
        verdict = (verify if (folder / "certificate.json").is_file() else verify_witness)(folder)
    except BadInput as error:
        one_line(error)
        return None
    assert verdict.holds == (verdict.proved is not None)
    assert verdict.holds or (verdict.reason and "\n" not in verdict.reason)
    return verdict.proved


def test_a_mutated_statement_is_rejected_or_still_holds(folder: Path, tmp_path: Path) -> None:
    whole, proved = load_model(folder), judged(folder)
    assert proved is not None
    names = sorted(p.name for p in folder.iterdir())
    rng, refused, held = random.Random(9), 0, 0
    for k in range(COUNT):
        copy = Path(shutil.copytree(folder, tmp_path / str(k)))
        path, signed = copy / names[k % len(names)], False
        if path.suffix == ".safetensors" or rng.random() < 0.3:
            path.write_bytes(mutate_bytes(rng, path.read_bytes()))
        else:
            path.write_text(mutate_json(rng, json.loads(path.read_text())), errors="surrogateescape")
            if path.name == "config.json" and rng.random() < 0.7:
                try:
                    sign(copy)
                    signed = True
                except (ValueError, TypeError, RecursionError):  # NaN, or no config at all: it stays unsigned
                    pass
        model, weights, found = loaded(copy), read(copy), judged(copy)
        assert (model is None) == (weights is None), k
        if model is not None and weights is not None:
            assert signed or model.hash() == whole.hash(), k
            assert model.hash() == weights.hash
            for name, tensor in model.transformer.tensors():
                np.testing.assert_array_equal(tensor.numpy(), weights[name])
        if found is not None:
            assert model is not None
            assert signed or found == proved or stated(copy) != stated(folder), (k, found, proved)
        refused, held = refused + (found is None), held + (found is not None)
        shutil.rmtree(copy)
    assert refused > COUNT / 3, refused
    assert held > 0  # a changed provenance, or blanks: the fuzz does reach what is accepted
