"""The test of existence itself: kinks, weaker tests that would accept too much, unknown settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from flint import arb, arb_mat

from colliding import change, random_model, reason, task
from headcount.models.files import SavedModel
from headcount.recheck import heads as heads_module
from headcount.recheck import witness as witness_module
from headcount.recheck.witness import contracts, verify_witness
from headcount.tasks.expressions.tree import variable
from headcount.tasks.retrieval import GeneralizedRetrieval
from signed import sign

pytestmark = pytest.mark.usefixtures("precise")


@pytest.fixture
def kinked(tmp_path: Path) -> Path:
    """One token, one head, o(x) = relu(x) − relu(−x − 1): X1 with o ≥ 0 near a kink, X2 with o = −2^-140."""
    model = random_model(0, dim=1, length=1, heads=1, head_dim=1, hidden=2, out_dim=1)
    with torch.no_grad():
        for name, value in (
            ("inner.weight", [[1.0], [-1.0]]),
            ("inner.bias", [0.0, -1.0]),
            ("outer.weight", [[1.0, -1.0]]),
            ("outer.bias", [0.0]),
        ):
            model.encoder.get_parameter(name).copy_(torch.tensor(value))
        model.layers[0].attention.value.fill_(1.0)
    x = variable(1)
    data: dict[str, Any] = {
        "format": "headcount-witness",
        "version": 1,
        "kind": "exact",
        "model": SavedModel(model).hash(),
        "task": GeneralizedRetrieval([x[0]], None, variable(1)[0], length=1).data(),
        "box": [[-2.0], [2.0]],
        "region": None,
        "output": 0,
        "X1": [[["1", -150]]],
        "X2": [[[str(-(2**140) - 1), -140]]],
        "solved": [0],
        "radius": ["1", -133],
        "provenance": {},
        "claims": {"gap": 0.9, "distance": 1.0, "distance_one": 1.0, "sup_error": 0.4, "lipschitz": None},
    }
    SavedModel(model).save(tmp_path / "kinked", {"witness.json": data})
    return tmp_path / "kinked"


def test_invalid_betas_are_rejected(kinked: Path) -> None:
    config = json.loads((kinked / "config.json").read_text())
    for beta in (0.0, -1.0, "1", 2, True, None):
        (kinked / "config.json").write_text(json.dumps({**config, "model": {**config["model"], "beta": beta}}))
        sign(kinked)
        assert "model.beta is" in reason(kinked)


def test_a_kink_where_there_is_no_zero(kinked: Path) -> None:
    """f(x) = relu(x) + 2^-140 is tiny at the stated point and positive everywhere: only the full test notices."""
    assert "Krawczyk" in reason(kinked)
    change(kinked, X2=[[["-1", -1]]])  # f(x) = relu(x) has zeros, yet its slopes do not exclude others nearby
    assert "Krawczyk" in reason(kinked)
    change(kinked, X1=[[["1", -130]]], X2=[[["1", -130]]], claims={**CLAIMS, "gap": 0.0, "sup_error": 0.0})
    assert "gap of 0 is not a witness" in reason(kinked)  # away from the kink equal sequences collide, without a gap


CLAIMS = {"gap": 0.9, "distance": 1.0, "distance_one": 1.0, "sup_error": 0.4, "lipschitz": None}
MUTANTS: dict[str, tuple[Any, str, Any]] = {
    "the slope at the midpoint": (heads_module, "slope", lambda v: arb(1) if v.mid() > 0 else arb(0)),
    "no I − YJ": (
        witness_module,
        "contracts",
        lambda Y, f, J, r: all(abs(v) < r for v in (Y * arb_mat([[u] for u in f])).entries()),
    ),
    "slopes at the point": (
        witness_module,
        "contracts",
        lambda Y, f, J, r: contracts(Y * 0.5, f, arb_mat([[arb(1)]]), r),
    ),
}


@pytest.mark.parametrize("case", MUTANTS)
def test_weaker_tests_accept_false_witnesses(kinked: Path, monkeypatch, case: str) -> None:
    monkeypatch.setattr(*MUTANTS[case])
    assert verify_witness(kinked).holds  # which is false: so the twin above does test what it is for


def test_the_inequality_is_strict() -> None:
    zero, one, r = arb_mat([[arb(0)]]), arb_mat([[arb(1)]]), arb(2) ** -133
    assert not contracts(zero, [arb(1)], zero, r)  # Y = 0 maps everything into B, and f = 1 has no zero
    assert not contracts(one, [r], one, r)
    assert contracts(one, [r * 0.99], one, r)
    assert not contracts(one, [arb(0)], arb_mat([[arb(1, 1)]]), r)
    assert not contracts(one, [arb.nan()], one, r)
    both = arb_mat([[1, 0], [0, 1]])
    assert contracts(both, [arb(0), r / 2], arb_mat([[1, 0], [arb(0, 0.4), 1]]), r)
    assert not contracts(both, [arb(0), r / 2], arb_mat([[1, 0], [arb(0, 0.6), 1]]), r)


def test_unknown_settings_are_rejected(tmp_path: Path) -> None:
    """An unknown setting, another version, or an excessive depth, with the hash made consistent again."""
    from colliding import random_model  # the twins are made from whole folders
    from headcount.recheck.weights import Rejected, read_weights
    from headcount.recheck.witness import reader

    saved = SavedModel(random_model(), task=task().data())
    saved.save(tmp_path / "m")
    path = tmp_path / "m" / "config.json"
    whole = json.loads(path.read_text())

    def refused(change: dict[str, Any], **top: Any) -> str:
        data = {**whole, **top, "model": {**whole["model"], **change}}
        path.write_text(json.dumps(data))
        sign(tmp_path / "m")
        with pytest.raises(Rejected) as error:
            reader(read_weights(tmp_path / "m"), 6)
        return str(error.value)

    assert "unknown key 'attention'" in refused({"attention": "linear"})
    assert "from 1 to 1,000" in refused({"depth": 10**9})
    assert "version" in refused({}, version=7)


def test_width_below_the_heads_outputs_asks_for_what_F_reads(tmp_path: Path) -> None:
    """If W_O loses part of o, the equations are those of u, E numbers."""
    from colliding import random_model
    from headcount.recheck.deep import Deep
    from headcount.recheck.weights import read_weights
    from headcount.recheck.witness import reader

    SavedModel(random_model(width=3)).save(tmp_path / "m")
    found = reader(read_weights(tmp_path / "m"), 6)
    assert isinstance(found, Deep)
    assert found.count == 3
