"""Witnesses of colliding inputs: what is proved holds from the weights up, and every spoilt one is rejected."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from colliding import BOX, OPTIONS, change, collide, drawn, random_model, reason, task, weights_of
from headcount import BadInput
from headcount.models.files import SavedModel
from headcount.recheck import witness as witness_module
from headcount.recheck.weights import read_weights
from headcount.recheck.witness import verify_witness
from headcount.theory.attack import exact as exact_module
from headcount.theory.attack.exact import prove_pair
from signed import sign
from support import Cli

pytestmark = pytest.mark.usefixtures("precise")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    where = tmp_path_factory.mktemp("pair") / "model"
    model = random_model(1, positions="gates", beta="learned")
    X = collide(model, drawn(1))
    saved = SavedModel(model, std=(1.5, 0.7), mean=(0.1, 0.2))
    saved.save(where)
    z = task().features(torch.from_numpy(X)).numpy()
    region = {"low": (z.min(0) - 0.01).tolist(), "high": (z.max(0) + 0.01).tolist()}
    data = prove_pair(where, task().data(), BOX, region, 1, X[0], X[1])
    saved.save(where, {"witness.json": {**data, "provenance": {}}})
    return where


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def moved(number: list[Any], by: Fraction) -> list[Any]:
    value = Fraction(int(number[0])) * Fraction(2) ** number[1] + by
    return [str(value.numerator), 1 - value.denominator.bit_length()]


def test_a_lipschitz_constant_beyond_doubles_is_not_reported(copy: Path, headcount_here: Cli) -> None:
    """|F'| is at most the product of the layers' norms; if that is not a double, nothing is reported."""
    tensors = load_file(copy / "model.safetensors")
    steep = {name: 1e200 * t if "feedforward" in name and name.endswith("weight") else t for name, t in tensors.items()}
    save_file(steep, copy / "model.safetensors")
    sign(copy)
    claims = json.loads((copy / "witness.json").read_text())["claims"]
    change(copy, claims={**claims, "lipschitz": None})
    verdict = verify_witness(copy)
    assert verdict.holds, verdict.reason
    assert verdict.proved is not None
    assert verdict.proved.lipschitz is None
    done = headcount_here("recheck", copy, "--json")
    assert json.loads(done.stdout)["proved"]["lipschitz"] is None
    change(copy, claims={**claims, "lipschitz": 1e308})
    assert "its lipschitz is not proved: no bound is" in reason(copy)


# -- pairs that hold ------------------------------------------------------------------------------------------


def test_a_valid_file_is_verified_and_says_what_is_proved(folder: Path) -> None:
    verdict = verify_witness(folder)
    assert verdict.holds, verdict.reason
    data, proved = verdict.witness, verdict.proved
    assert data["kind"] == "exact"
    assert len(set(data["solved"])) == 4
    assert proved.radius <= 1e-40
    assert proved.distance <= proved.distance_one < 1e-45
    assert proved.sup_error == proved.gap / 2 > 0.01
    X = [[[int(m) * 2.0**k for m, k in row] for row in data[name]] for name in ("X1", "X2")]
    y = task().value(torch.tensor(X, dtype=torch.float64))[:, 1]
    assert abs(float(y[0] - y[1])) == pytest.approx(proved.gap, rel=1e-12)
    assert verify_witness(folder / "witness.json").holds


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("options", OPTIONS[::5], ids=lambda o: "-".join(map(str, o.values())))
def test_models_with_every_option_are_verified(heads, options, tmp_path):
    model = random_model(8, heads=heads, **options)
    X = collide(model, drawn(8))
    weights = weights_of(model, tmp_path / "a")
    data = prove_pair(weights, task().data(), BOX, None, 0, X[0], X[1])
    assert data["kind"] == "exact"
    assert len(data["solved"]) == 2 * heads
    SavedModel(model).save(tmp_path / "a", {"witness.json": {**data, "provenance": {}}})
    assert verify_witness(tmp_path / "a").holds


def near(folder: Path, monkeypatch: pytest.MonkeyPatch, X: np.ndarray) -> None:
    """Put a near witness of a pair into a model folder."""
    with monkeypatch.context() as patch:
        patch.setattr(exact_module, "_solve", lambda *_: None)
        data = prove_pair(folder, task().data(), BOX, None, 1, X[0], X[1])
    (folder / "witness.json").write_text(json.dumps({**data, "provenance": {}}))


def floats(folder: Path) -> np.ndarray:
    data = json.loads((folder / "witness.json").read_text())
    return np.array([[[int(m) * 2.0**k for m, k in row] for row in data[name]] for name in ("X1", "X2")])


def test_a_near_pair(copy: Path, monkeypatch) -> None:
    X = floats(copy)
    X[0, 0, 0] += 1e-4
    near(copy, monkeypatch, X)
    verdict = verify_witness(copy)
    assert verdict.holds, verdict.reason
    proved, claims = verdict.proved, verdict.witness["claims"]
    assert (verdict.witness["kind"], proved.radius) == ("near", None)
    assert 1e-7 < proved.distance <= proved.distance_one < 1e-3
    assert proved.sup_error == pytest.approx((proved.gap - proved.lipschitz * proved.distance) / 2, rel=1e-12)
    assert 0 < proved.sup_error < proved.gap / 2
    for name, value in (("gap", 1 + 1e-9), ("sup_error", 1 + 1e-9), ("lipschitz", 1 - 1e-9), ("distance", 1 - 1e-9)):
        change(copy, claims={**claims, name: value * claims[name]})
        assert f"its {name} is not proved" in reason(copy)
    change(copy, claims={**claims, "lipschitz": None})  # nothing is claimed, and the rest still holds
    assert verify_witness(copy).holds
    change(copy, claims=claims, kind="exact")
    assert "is missing" in reason(copy)
    change(copy, solved=[0, 1, 2, 3], radius=["1", -133])
    assert "Krawczyk" in reason(copy)


def test_a_pair_that_cannot_be_solved_is_near(copy: Path) -> None:
    X, corner = floats(copy), np.stack([-np.ones((6, 2)), np.ones((6, 2))])
    weights = read_weights(copy)
    data = prove_pair(weights, task().data(), BOX, None, 1, corner[0], corner[1])  # no coordinate is free
    assert (data["kind"], "solved" in data) == ("near", False)
    X[0] = 0.5  # far from colliding: Newton's method may go anywhere, and nothing false comes of it
    assert prove_pair(weights, task().data(), BOX, None, 1, X[0], X[1])["kind"] in ("exact", "near")
    with pytest.raises(BadInput, match="leaves the box"):
        prove_pair(weights, task().data(), BOX, None, 1, corner[0] * 1.01, corner[1])


# -- spoilt twins ---------------------------------------------------------------------------------------------


def test_a_changed_weight_is_rejected(copy: Path) -> None:
    whole = (copy / "witness.json").read_text()
    for name, tensor in load_file(copy / "model.safetensors").items():
        spoilt = load_file(copy / "model.safetensors")
        before = (copy / "model.safetensors").read_bytes()
        save_file({**spoilt, name: np.nextafter(tensor, 9)}, copy / "model.safetensors")
        assert "hash differs" in reason(copy)
        # what does not move o(X1) − o(X2): b2 of the encoder moves both alike
        if not any(part in name for part in ("attention.output", "feedforward", "outer.bias")):
            spoilt[name] = tensor + 1e-3 * np.random.default_rng(0).standard_normal(tensor.shape)
            save_file(spoilt, copy / "model.safetensors")
            sign(copy)
            assert "Krawczyk" in reason(copy), name
        (copy / "model.safetensors").write_bytes(before)
        (copy / "witness.json").write_text(whole)


@pytest.mark.parametrize("by", [Fraction(1, 2**100), Fraction(1, 2**131), Fraction(1, 1000)])
def test_a_changed_coordinate_is_rejected(copy: Path, by: Fraction) -> None:
    data = json.loads((copy / "witness.json").read_text())
    by = Fraction(round(by * 2**140), 2**140)
    for place in {0, 11, 13, *data["solved"]}:
        name, X = ("X1", "X2")[place // 12], json.loads(json.dumps([data["X1"], data["X2"]]))
        row = X[place // 12][place % 12 // 2]
        row[place % 2] = moved(row[place % 2], by)
        change(copy, **{name: X[place // 12]})
        verdict = verify_witness(copy)
        # a coordinate that hardly matters may move by 2^-131 and leave a zero near: all larger moves are refused
        assert not verdict.holds or by < Fraction(1, 2**130)
        change(copy, **data)
    if by < Fraction(1, 2**130):
        change(copy, X1=[[moved(v, by) for v in row] for row in data["X1"]])
        assert "Krawczyk" in reason(copy)


def claim(**values: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return an edit of claims: a function of the claim, or its replacement."""

    def edit(w: dict[str, Any]) -> dict[str, Any]:
        return {"claims": {**w["claims"], **{k: v(w["claims"][k]) if callable(v) else v for k, v in values.items()}}}

    return edit


SPOILT = {
    "gap raised": (claim(gap=lambda v: v * (1 + 1e-9)), "its gap"),
    "gap raised by a bit": (claim(gap=lambda v: float(np.nextafter(v, 9))), "its gap"),
    "error raised": (claim(sup_error=lambda v: v * (1 + 1e-9)), "its sup"),
    "distance lowered": (claim(distance=lambda v: v * 0.999), "its dist"),
    "distance 0": (claim(distance=0.0), "its distance"),
    "distance_one lowered": (claim(distance_one=1e-60), "its distance_one"),
    "lipschitz lowered": (claim(lipschitz=1e-3), "its lipschitz"),
    "a claim missing": (lambda w: {"claims": {"gap": 0.1}}, "its claims"),
    "a claim more": (claim(more=1.0), "its claims"),
    "no claims": (lambda w: {"claims": []}, "its claims"),
    "a claim below 0": (claim(gap=-1.0), "it must be a finite number ≥ 0"),
    "gap is a text": (claim(gap="0.1"), "it must be a finite number ≥ 0"),
    "gap is true": (claim(gap=True), "it must be a finite number ≥ 0"),
    "distance is huge": (claim(distance=10**400), "it must be a finite number ≥ 0"),
    "radius 0": (lambda w: {"radius": ["0", 0]}, "radius is not above 0"),
    "radius negative": (lambda w: {"radius": ["-1", -133]}, "radius is not above 0"),
    "radius too small": (lambda w: {"radius": ["1", -200]}, "Krawczyk"),
    "radius far too small": (lambda w: {"radius": ["1", -9000]}, "Krawczyk"),
    "radius too large": (lambda w: {"radius": ["1", -4]}, "Krawczyk"),
    "radius leaves the box": (lambda w: {"radius": ["1", 0]}, "leaves the box"),
    "radius is a number": (lambda w: {"radius": 1e-40}, "is not a number"),
    "solved twice": (lambda w: {"solved": [*w["solved"][:-1], w["solved"][0]]}, "solved twice"),
    "solved out of range": (lambda w: {"solved": [*w["solved"][:-1], 24]}, "not places"),
    "solved below 0": (lambda w: {"solved": [*w["solved"][:-1], -1]}, "not places"),
    "solved a boolean": (lambda w: {"solved": [*w["solved"][:-1], True]}, "not places"),
    "solved a text": (lambda w: {"solved": "0123"}, "not places"),
    "one solved missing": (lambda w: {"solved": w["solved"][:-1]}, "3 coordinates are solved for 4"),
    "one solved more": (
        lambda w: {"solved": [*w["solved"], *(set(range(24)) - set(w["solved"]))][:5]},
        "5 coordinates",
    ),
    "kind near": (lambda w: {"kind": "near"}, "unknown key 'radius'"),
    "a key more": (lambda w: {"more": 1}, "unknown key 'more'"),
    "another model": (lambda w: {"model": "0" * 64}, "hash differs"),
    "another task": (lambda w: {"task": {**w["task"], "f": w["task"]["f"][::-1]}}, "in the region"),
    "other index sets": (lambda w: {"task": {**w["task"], "S": [[0], [1]]}}, "in the region"),
    "another F0": (lambda w: {"task": {**w["task"], "F0": {"op": "stack", "args": [w["task"]["f"][0]] * 2}}}, "gap"),
    "no task": (lambda w: {"task": None}, "is inconsistent"),
    "a task of another kind": (lambda w: {"task": {**w["task"], "kind": "mean"}}, "not a generalized D-retrieval"),
    "another length": (lambda w: {"task": {**w["task"], "length": 7}}, "must have 7 tokens"),
    "another dim": (lambda w: {"task": {**w["task"], "dim": 3}}, "functions do not fit"),
    "a smaller box": (lambda w: {"box": [[-0.5, -0.5], [0.5, 0.5]]}, "leaves the box"),
    "no box": (lambda w: {"box": None}, "is inconsistent"),
    "an empty box": (lambda w: {"box": [[1.0, 1.0], [-1.0, -1.0]]}, "empty"),
    "region violated": (lambda w: {"region": {**w["region"], "low": [v + 0.02 for v in w["region"]["low"]]}}, "z_"),
    "region violated above": (
        lambda w: {"region": {**w["region"], "high": [v - 0.02 for v in w["region"]["high"]]}},
        "z_",
    ),
    "half a region": (lambda w: {"region": {"low": w["region"]["low"]}}, "region must have"),
    "region of one": (lambda w: {"region": {"low": [-9.0], "high": [9.0]}}, "region must have"),
    "region of texts": (lambda w: {"region": {"low": ["-9", "-9"], "high": [9.0, 9.0]}}, "not a finite number"),
    "output out of range": (lambda w: {"output": 2}, "no such output: 2"),
    "output below 0": (lambda w: {"output": -1}, "no such output: -1"),
    "output a boolean": (lambda w: {"output": True}, "no such output: True"),
    "another output": (lambda w: {"output": 0}, "its"),
    "a token missing": (lambda w: {"X1": w["X1"][:-1]}, "must have 6 tokens"),
    "a number missing": (lambda w: {"X1": [w["X1"][0][:1], *w["X1"][1:]]}, "must have 6 tokens"),
    "X a text": (lambda w: {"X2": "x" * 6}, "must have 6 tokens"),
}


@pytest.mark.parametrize("case", SPOILT)
def test_corrupted_witnesses_are_rejected(copy: Path, case: str) -> None:
    edit, said = SPOILT[case]
    change(copy, **edit(json.loads((copy / "witness.json").read_text())))
    assert said in reason(copy)


NUMBERS = [
    0.5,
    "0.5",
    None,
    [0.5, 0],
    ["0.5", 0],
    [1, -1],
    [True, 0],
    ["1", True],
    ["1", 0.0],
    ["1", "0"],
    ["1"],
    ["1", 0, 0],
    ["nan", 0],
    ["inf", 0],
    ["", 0],
    [" 1", 0],
    ["1\n", 0],
    ["+1", 0],
    ["-0", 0],
    ["01", 0],
    ["1_0", 0],
    ["1e3", 0],
    ["0x1", 0],
    ["１", 0],
    ["1" * 4001, -14000],
    ["1", 20001],
    ["1", -20001],
    ["1", 10**30],
    {"0": "1", "1": 0},
]


@pytest.mark.parametrize("number", NUMBERS, ids=lambda v: str(v)[:12])
def test_invalid_numbers_are_rejected(copy: Path, number: Any) -> None:
    data = json.loads((copy / "witness.json").read_text())
    for values in ({"X2": [*data["X2"][:5], [data["X2"][5][0], number]]}, {"radius": number}):
        change(copy, **{**data, **values})
        assert any(said in reason(copy) for said in ("is not a number", "exponent"))


def test_broken_files_are_rejected(copy: Path, tmp_path: Path) -> None:
    text = (copy / "witness.json").read_text()
    data = json.loads(text)
    whole = [k for k in data if k not in ("solved", "radius")]
    broken = [
        text[: len(text) // 2],
        "[]",
        "{}",
        json.dumps({**data, "format": "headcount-certificate"}),
    ]
    broken += [json.dumps({k: v for k, v in data.items() if k != gone}) for gone in whole]
    odd = {"version": (2, True, 1.0, "1"), "kind": (["exact"], "other", None, 1), "provenance": ("x", None)}
    broken += [json.dumps({**data, key: v}) for key, values in odd.items() for v in values]
    broken += [json.dumps({**data, "claims": {**data["claims"], "gap": v}}) for v in (float("nan"), float("inf"))]
    for said in broken:
        (copy / "witness.json").write_text(said)
        with pytest.raises(BadInput):
            verify_witness(copy)
    for gone in ("solved", "radius"):
        (copy / "witness.json").write_text(json.dumps({k: v for k, v in data.items() if k != gone}))
        assert "is missing" in reason(copy)
    (copy / "witness.json").write_text(text)
    raw = (copy / "model.safetensors").read_bytes()
    for part in (raw[:-9], raw[:5], b""):
        (copy / "model.safetensors").write_bytes(part)
        assert "cannot be read" in reason(copy)
    (copy / "config.json").unlink()
    with pytest.raises(BadInput, match="no such file: .*config.json"):
        verify_witness(copy)
    with pytest.raises(BadInput, match="no such file"):
        verify_witness(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"beta": "1"}, "model.beta is"),
        ({"positions": "x"}, "model.positions is"),
        ({"class_key": 0}, "model.class_key is 0"),
        ({"feedforward": "relu5"}, "tensors"),
        ({"feedforward": "tanh"}, "model.feedforward is"),
        ({"positions": "none"}, "tensors"),
        ({"beta": 2.0}, "tensors"),
        ({"heads": 3}, "asks for"),
        ({"out_dim": 1}, "standardisation.mean is"),
        ({"depth": True}, "model.depth is true"),
        ({"class_key": True}, "Krawczyk"),
        ({"length": 7}, "asks for"),
        ({"depth": 2}, "tensors"),
        ({"layer_norm": True}, "tensors"),
        ({"layer_norm": 0}, "model.layer_norm is 0"),
        ({"width": 4.0}, "model.width is 4.0"),
        ({"hidden_ff": 9}, "asks for"),
        ({"residual": None}, "model.residual is"),
    ],
    ids=str,
)
def test_other_settings_are_rejected(copy: Path, settings: dict[str, Any], said: str) -> None:
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "model": {**config["model"], **settings}}))
    sign(copy)
    assert said in reason(copy)


def test_a_pair_without_a_gap_is_not_a_witness(copy: Path, monkeypatch) -> None:
    """Equal targets are rejected whatever is claimed, and so is a claim of no gap; the tiniest gap is accepted."""
    data = json.loads((copy / "witness.json").read_text())
    for gap in (0.0, 1e-9):
        change(copy, **{**data, "X2": data["X1"], "claims": {**data["claims"], "gap": gap, "sup_error": 0.0}})
        assert "is not a witness" in reason(copy) or "Krawczyk" in reason(copy)
    X = floats(copy)
    with pytest.raises(BadInput, match="gap of 0 is not a witness"):
        near(copy, monkeypatch, np.stack([X[0], X[0]]))
    change(copy, **{**data, "claims": {**data["claims"], "gap": 0.0, "sup_error": 0.0}})
    assert "its gap is not above 0" in reason(copy)
    other = X[0] + 1e-13  # every z_i changes in the thirteenth digit
    near(copy, monkeypatch, np.stack([X[0], other]))
    verdict = verify_witness(copy)
    assert verdict.holds, verdict.reason
    assert 0 < verdict.witness["claims"]["gap"] < 1e-11


# -- where the proof could go wrong ---------------------------------------------------------------------------


def test_gap_and_region_are_those_of_the_whole_ball(copy: Path) -> None:
    data = json.loads((copy / "witness.json").read_text())
    t = data["solved"][0] % 12 // 2  # both minima are taken at a token that is solved for
    data |= {"task": {**data["task"], "S": [[t], [t]]}, "region": None}
    stated = {k: v for k, v in data.items() if k not in ("claims", "provenance")}
    proved = witness_module.prove(stated, read_weights(copy))
    assert proved.gap > 0.01
    change(copy, **{**data, "claims": {**data["claims"], "gap": proved.gap, "sup_error": 0.0}})
    assert verify_witness(copy).holds
    change(copy, radius=["1", -40])
    assert "its gap" in reason(copy)  # proved at the centre, not 2^-40 away from it
    x = floats(copy)[:, t]
    z = np.stack([x[:, 0], x[:, 0] ** 2 - x[:, 1]], 1)
    region = {"low": (z.min(0) - 1e-14).tolist(), "high": (z.max(0) + 1e-14).tolist()}
    change(copy, radius=data["radius"], region=region)
    assert verify_witness(copy).holds
    change(copy, radius=["1", -40])
    assert "the region" in reason(copy)
