"""Certificates: what is built holds from the weights up, and every spoilt one is rejected with its reason."""

from __future__ import annotations

import json
import shutil
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from headcount import BadInput, make_task
from headcount.recheck.certificate import verify
from headcount.recheck.enough import _encoder
from headcount.recheck.weights import read_weights
from headcount.tasks.expressions.tree import variable
from headcount.tasks.retrieval import GeneralizedRetrieval
from headcount.theory.construct.enough_heads import build
from signed import sign
from support import Cli


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    task = make_task("quadratic-basins", intrinsic=3, length=8, sets="bands", outer="square")
    where = tmp_path_factory.mktemp("built") / "model"
    build(task, 0.1).save(where)
    return where


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def change(folder: Path, name: str = "certificate.json", **values) -> None:
    data = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps({**data, **values}))


def test_a_valid_file_is_verified_and_says_what_is_proved(folder: Path) -> None:
    verdict = verify(folder)
    assert verdict.holds, verdict.reason
    assert verdict.proved is not None
    assert 0.05 < verdict.proved.bound <= verdict.certificate["bound"] <= 0.1
    assert verify(folder / "certificate.json").holds


TENSORS = {
    "encoder.inner.weight": lambda a: a * 1.01,
    "encoder.inner.bias": lambda a: a + 0.02,
    "encoder.outer.weight": lambda a: a * 1.05,
    "encoder.outer.bias": lambda a: a + 0.05,
    "class_token": lambda a: a * 1.5,
    "layers.0.attention.query": lambda a: a * 0.5,
    "layers.0.attention.key": lambda a: np.where(a != 0, -0.9, 0.0),
    "layers.0.attention.value": lambda a: np.where(a != 0, 0.9, 0.0),
    "layers.0.attention.output": lambda a: a * 1.1,
    "layers.0.attention.gates": lambda a: a * 0.3,
    "layers.0.feedforward.layers.0.weight": lambda a: a * 1.05,
    "layers.0.feedforward.layers.0.bias": lambda a: a + 0.05,
    "layers.0.feedforward.layers.1.weight": lambda a: a * 1.05,
    "layers.0.feedforward.layers.1.bias": lambda a: a - 0.1,
}


@pytest.mark.parametrize("name", list(TENSORS))
@pytest.mark.parametrize("signed", [False, True])
def test_a_changed_weight_is_rejected(copy: Path, name: str, signed: bool) -> None:
    tensors = load_file(copy / "model.safetensors")
    assert set(tensors) == set(TENSORS)
    tensors[name] = np.ascontiguousarray(TENSORS[name](tensors[name]))
    save_file(tensors, copy / "model.safetensors")
    if signed:
        sign(copy)
    verdict = verify(copy)
    assert not verdict.holds
    assert ("hash differs" in verdict.reason) is not signed
    assert len(verdict.reason) > 10


def test_a_changed_gate_on_its_own_set_is_rejected(copy: Path) -> None:
    tensors = load_file(copy / "model.safetensors")
    gates = tensors["layers.0.attention.gates"].copy()
    inside = int(np.flatnonzero(gates[0] == 0)[0])
    gates[0, inside] = -0.1
    save_file({**tensors, "layers.0.attention.gates": gates}, copy / "model.safetensors")
    sign(copy)
    assert "gates differ" in verify(copy).reason


def test_the_papers_gate_is_rejected(tmp_path: Path) -> None:
    """A gate of −1 against an f of range 1 lets the tokens off S_i in, whatever beta; a gate of −2 does not."""
    x, z = variable(1), variable(1)
    task = GeneralizedRetrieval([x[0]], [[0, 1]], z[0], length=8)
    build(task, 0.01).save(tmp_path / "model")
    assert verify(tmp_path / "model").holds
    tensors = load_file(tmp_path / "model/model.safetensors")
    gates = tensors["layers.0.attention.gates"]
    assert gates.min() <= -2
    save_file(
        {**tensors, "layers.0.attention.gates": np.where(gates < 0, -1.0, 0.0)}, tmp_path / "model/model.safetensors"
    )
    sign(tmp_path / "model")
    assert "is proved, not" in verify(tmp_path / "model").reason


def test_claims_that_are_too_strong_are_rejected(copy: Path, folder: Path) -> None:
    whole = json.loads((folder / "certificate.json").read_text())
    for values, said in (
        ({"bound": 0.9 * verify(folder).proved.bound}, "is proved, not"),
        ({"eps": 0.05}, "exceeds its own eps"),
        ({"eps": -1.0}, "it must be a finite number ≥ 0"),
        ({"eps": 0.0}, "above 0"),
        ({"scale": 0.5}, "proved, not"),
        ({"scale": 3.0}, "power of two"),
        ({"steps": {**whole["steps"], "encoder": [v * 0.5 for v in whole["steps"]["encoder"]]}}, "budget"),
        ({"steps": {**whole["steps"], "leakage": []}}, "budget"),
        ({"steps": {}}, "encoder is missing"),
        ({"box": [[0.0, 0.0], [0.9, 0.9]]}, "another input box"),
        ({"model": "0" * 64}, "hash differs"),
    ):
        change(copy, **{**whole, **values})
        verdict = verify(copy)
        assert not verdict.holds, values
        assert said in verdict.reason, (values, verdict.reason)


def test_another_task_is_rejected(copy: Path) -> None:
    other = make_task("quadratic-basins", intrinsic=3, length=8, sets="bands", outer="square", seed=1).data()
    change(copy, task=other)
    assert "another task" in verify(copy).reason
    change(copy, "config.json", task=other)
    sign(copy)
    assert "is proved, not" in verify(copy).reason


def spoil(folder: Path, **tensors: np.ndarray) -> None:
    """Replace tensors (None removes one), with hashes that match."""
    found = {**load_file(folder / "model.safetensors"), **{k.replace("__", "."): v for k, v in tensors.items()}}
    save_file({k: np.ascontiguousarray(v) for k, v in found.items() if v is not None}, folder / "model.safetensors")
    sign(folder)


def settings(folder: Path, **values) -> None:
    config = json.loads((folder / "config.json").read_text())
    change(folder, "config.json", model={**config["model"], **values})
    sign(folder)


def test_a_negative_beta_is_a_maximum(copy: Path) -> None:
    beta = json.loads((copy / "config.json").read_text())["model"]["beta"]
    for bad in (-beta, 0.0, "scaled", 3, "1"):
        settings(copy, beta=bad)
        said = recheck_reason(copy)
        assert "model.beta is" in said or "fixed beta above 0" in said, (bad, said)


def recheck_reason(folder: Path) -> str:
    verdict = verify(folder)
    assert not verdict.holds
    return verdict.reason


def test_scales_at_the_limits_of_doubles(copy: Path) -> None:
    """Dividing by them in float64 would lose weights; in fractions nothing is lost, and the claim is refuted."""
    for scale in (2.0**1000, 2.0**-1000, 5e-324):
        change(copy, scale=scale)
        assert any(said in recheck_reason(copy) for said in ("is proved, not", "could not be bounded")), scale
    weights, scale = read_weights(copy), 2.0**1023
    row = weights["layers.0.attention.value"][0, 0]
    network = _encoder(weights, row, scale)
    assert [v * Fraction(scale) for v in network.outer] == [Fraction(v) for v in row @ weights["encoder.outer.weight"]]


def test_tensors_that_the_settings_do_not_allow(copy: Path) -> None:
    gates = load_file(copy / "model.safetensors")["layers.0.attention.gates"]
    for tensors in (
        {"layers__0__attention__gates": gates[:, :1]},
        {"encoder__position": np.ones((8, 6))},
        {"encoder__hidden_bias": np.ones((8, 3))},
        {"encoder__outer__bias": None},
        {"class_token": np.zeros(7)},
    ):
        before = {p.name: p.read_bytes() for p in copy.iterdir()}
        spoil(copy, **tensors)
        said = recheck_reason(copy)
        assert "the tensors do not match" in said or "config.json asks for" in said, (tensors, said)
        for name, data in before.items():
            (copy / name).write_bytes(data)
    found = load_file(copy / "model.safetensors")
    save_file({**found, "class_token": np.zeros(6, np.float32)}, copy / "model.safetensors")
    assert "class_token is stored as {'data_offsets'" in recheck_reason(copy)


@pytest.mark.parametrize("key", ["width", "heads", "head_dim", "hidden", "hidden_ff"])
def test_sizes_that_differ_from_the_tensors(copy: Path, key: str) -> None:
    size = json.loads((copy / "config.json").read_text())["model"][key]
    for value in (size + 1, True, float(size), -1):
        settings(copy, **{key: value})
        said = recheck_reason(copy)
        assert "it must be a whole number" in said or "config.json asks for" in said, (value, said)


def test_invalid_tasks_are_rejected(copy: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    task = config["task"]
    low = [-1, *task["S"][0][1:]]
    for values in (
        {"S": [low, *task["S"][1:]]},
        {"S": [[0, 0, 1, 2], *task["S"][1:]]},
        {"S": [*task["S"], [0]]},
        {"S": [[]] * 3},
        {"S": [[0.0, 1.0, 2.0, 3.0], *task["S"][1:]]},
        {"kind": "mean"},
        {"length": 8.0},
        {"length": True},
        {"more": 1},
        {"f": task["f"][:2]},
        {"F0": task["f"][0]},
        {"dim": 3},
        {"S": [[9], *task["S"][1:]]},
    ):
        change(copy, task={**task, **values})
        change(copy, "config.json", task={**task, **values})
        sign(copy)
        said = recheck_reason(copy)
        assert any(part in said for part in ("D-retrieval", "functions do not fit", "index set of the task")), said


def test_invalid_boxes_are_rejected(copy: Path) -> None:
    point, reversed_ = [[0.5, 0.5], [0.5, 0.5]], [[1.0, 1.0], [0.0, 0.0]]
    for box in ([["0", "0"], ["1", "1"]], point, reversed_, [[0.0], [1.0]], [[0, 0], [1, 1]]):
        change(copy, box=box)
        change(copy, "config.json", box=box)
        sign(copy)
        assert "box" in recheck_reason(copy), box


def test_heads_of_another_kind(copy: Path) -> None:
    """Every hypothesis on the heads: one row, idle where it must be, nothing of the class token in F."""
    tensors = load_file(copy / "model.safetensors")
    value, token = tensors["layers.0.attention.value"], tensors["class_token"]
    two, idle, moved = value.copy(), value.copy(), token.copy()
    two[0, 1, 3] = 1e-3
    idle[0] = 0.0
    moved[0] = 0.05  # F reads this coordinate
    for name, tensor, said in (
        ("layers__0__attention__value", two, "returns 2 numbers"),
        ("layers__0__attention__value", idle, "idle"),
        ("class_token", moved, ""),
    ):
        before = (copy / "model.safetensors").read_bytes()
        spoil(copy, **{name: tensor})
        assert said in recheck_reason(copy)
        (copy / "model.safetensors").write_bytes(before)


def test_a_leakage_without_its_softmin(folder: Path) -> None:
    """The proved leakage is at least half the worst case of a softmax, W((s − 1)/e)/β, attained by equal others.

    Half of it, since F takes the other half off; stated without that shift, the certificate does not hold.
    """
    verdict = verify(folder)
    beta = json.loads((folder / "config.json").read_text())["model"]["beta"]
    s = len(verdict.certificate["task"]["S"][0])
    x = np.linspace(0, 20, 200_001) / beta
    worst = ((s - 1) * x * np.exp(-beta * x) / (1 + (s - 1) * np.exp(-beta * x))).max()
    assert all(worst / 2 <= v * (1 + 1e-9) for v in verdict.proved.leakage)
    assert all(worst > v for v in verdict.proved.leakage)


def test_a_claimed_shift_is_recomputed(copy: Path) -> None:
    """Any shift keeps the proof valid, but a shift other than the built one makes the proved error larger."""
    right = json.loads((copy / "certificate.json").read_text())["shift"]
    assert all(v > 0 for v in right)
    for wrong in ([0.0] * 3, [2 * v for v in right], [1.0] * 3, [right[0], right[1], 0.0]):
        change(copy, shift=wrong)
        assert any(said in recheck_reason(copy) for said in ("is proved, not", "error budget")), wrong
    for wrong in ([-v for v in right], right[:2], [10**400] * 3, ["0"] * 3, 0.1, [[v] for v in right]):
        change(copy, shift=wrong)
        assert any(said in recheck_reason(copy) for said in ("shift", "no number", "digits", "inconsistent")), wrong
    change(copy, shift=right)
    assert verify(copy).holds


def test_invalid_numbers_are_rejected(copy: Path, folder: Path) -> None:
    whole = json.loads((folder / "certificate.json").read_text())
    for values in (
        {"eps": 10**400},
        {"bound": 10**400},
        {"eps": "0.1"},
        {"bound": True},
        {"scale": "1"},
        {"scale": 10**400},
        {"steps": {**whole["steps"], "encoder": ["x"] * 3}},
        {"steps": []},
        {"task": []},
    ):
        change(copy, **{**whole, **values})
        recheck_reason(copy)
    for values in ({"kind": ["x"]}, {"version": True}, {"kind": None}):
        change(copy, **{**whole, **values})
        with pytest.raises(BadInput, match="unknown version or kind"):
            verify(copy)
    change(copy, **whole)
    (copy / "config.json").unlink()
    with pytest.raises(BadInput, match="no such file: .*config.json"):
        verify(copy)


def test_a_wider_box(copy: Path) -> None:
    box = [[0.0, 0.0], [1.5, 1.5]]
    change(copy, box=box)
    change(copy, "config.json", box=box)
    sign(copy)
    assert not verify(copy).holds


def test_settings_that_the_proof_does_not_cover(copy: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    for key, value in (("beta", 1.0), ("depth", 2), ("class_key", True), ("feedforward", "gelu2"), ("length", 9)):
        change(copy, "config.json", model={**config["model"], key: value})
        sign(copy)
        assert not verify(copy).holds, key
    change(copy, "config.json", model=config["model"], standardisation={"mean": [0.0], "std": [2.0]})
    sign(copy)
    assert "rescales" in verify(copy).reason


def test_broken_files_are_rejected(copy: Path, tmp_path: Path) -> None:
    text = (copy / "certificate.json").read_text()
    for broken in (text[: len(text) // 2], "[]", "{}", '{"format": "headcount-certificate"}'):
        (copy / "certificate.json").write_text(broken)
        with pytest.raises(BadInput):
            verify(copy)
    (copy / "certificate.json").write_text(text)
    raw = (copy / "model.safetensors").read_bytes()
    for part in (raw[:-9], raw[:5], b""):
        (copy / "model.safetensors").write_bytes(part)
        assert "cannot be read" in verify(copy).reason
    with pytest.raises(BadInput, match="no such file"):
        verify(tmp_path / "nowhere")


def test_the_command(copy: Path, headcount_here: Cli) -> None:
    done = headcount_here("recheck", str(copy / "certificate.json"))
    assert (done.returncode, "It holds" in done.stdout) == (0, True)
    found = json.loads(headcount_here("recheck", str(copy), "--json").stdout)
    assert found["holds"]
    assert found["proved"]["bound"] <= found["claimed"]
    change(copy, bound=0.01)
    done = headcount_here("recheck", str(copy))
    assert (done.returncode, "does not hold" in done.stdout, done.stderr) == (1, True, "")
    done = headcount_here("recheck", str(copy / "config.json"))
    assert (done.returncode, len(done.stderr.strip().splitlines())) == (2, 1)
