"""Model folders: exact to the bit, hashed, whole or absent, and every damage is answered with one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from headcount import BadInput, ModelSpec, SavedModel, Transformer, load_model, make_task

SPEC = ModelSpec(
    dim=2,
    length=6,
    heads=3,
    head_dim=2,
    hidden=5,
    positions="gates",
    beta="learned",
    depth=2,
    layer_norm=True,
)


def make(dtype: torch.dtype = torch.float32) -> SavedModel:
    task = make_task("quadratic-basins", length=6)
    return SavedModel(Transformer(SPEC, seed=3, dtype=dtype), task.data(), task.box, (0.5,), (2.0,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_round_trip_to_the_bit(tmp_path: Path, dtype: torch.dtype) -> None:
    model = make(dtype)
    identity = model.save(tmp_path / "m")
    again = load_model(tmp_path / "m")
    assert again.hash() == identity == model.hash()
    assert (again.task, again.box, again.mean, again.std) == (model.task, model.box, model.mean, model.std)
    for (name, a), (other, b) in zip(model.transformer.tensors(), again.transformer.tensors(), strict=True):
        assert name == other
        assert torch.equal(a, b)
    X = torch.rand(7, 6, 2)
    assert torch.equal(again.predict(X), model.predict(X))


def test_saving_twice_writes_equal_files(tmp_path: Path) -> None:
    make().save(tmp_path / "a")
    load_model(tmp_path / "a").save(tmp_path / "b")
    for name in ("model.safetensors", "config.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_the_hash_covers_every_part() -> None:
    base = make().hash()
    other_weight, other_scale, other_task = make(), make(), make()
    with torch.no_grad():
        p = other_weight.transformer.class_token
        p[0] = torch.nextafter(p[0], torch.tensor(torch.inf))
    other_scale.std = (2.0000000000000004,)
    other_task.task = None
    assert len({base, other_weight.hash(), other_scale.hash(), other_task.hash()}) == 4


def test_tampered_weight_is_rejected(tmp_path: Path) -> None:
    make().save(tmp_path / "m")
    path = tmp_path / "m" / "model.safetensors"
    weights = load_file(path)
    weights["class_token"][0] += 1e-3
    save_file(weights, path)
    with pytest.raises(BadInput, match="content hash"):
        load_model(tmp_path / "m")


def test_tampered_config_is_rejected(tmp_path: Path) -> None:
    make().save(tmp_path / "m")
    path = tmp_path / "m" / "config.json"
    config = json.loads(path.read_text())
    for change, complaint in (
        ({"standardisation": {"mean": [0.4], "std": [2.0]}}, "content hash"),
        ({"extra": 1}, "unknown key"),
        ({"version": 2}, "version"),
        ({"model": {**config["model"], "heads": 4}}, "layers.0.attention"),
        ({"model": {**config["model"], "head": 4}}, "did you mean 'heads'"),
    ):
        path.write_text(json.dumps({**config, **change}))
        with pytest.raises(BadInput, match=complaint) as caught:
            load_model(tmp_path / "m")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_truncated_or_missing_files(tmp_path: Path, name: str) -> None:
    make().save(tmp_path / "m")
    path = tmp_path / "m" / name
    whole = path.read_bytes()
    for cut in (0, 1, 7, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        if json_is_whole(path):
            continue
        with pytest.raises(BadInput) as caught:
            load_model(tmp_path / "m")
        assert "\n" not in str(caught.value)
    path.unlink()
    with pytest.raises(BadInput, match="no such file:"):
        load_model(tmp_path / "m")


def json_is_whole(path: Path) -> bool:
    """Cutting the last line break off leaves the JSON whole."""
    try:
        json.loads(path.read_bytes())
    except ValueError:
        return False
    return path.name == "config.json"


def test_failed_save_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make().save(tmp_path / "m")
    before = {p.name: p.read_bytes() for p in (tmp_path / "m").iterdir()}
    with pytest.raises(ValueError, match="JSON"):  # NaN in an extra file: the last of the files to be written
        make().save(tmp_path / "m", extra={"history.json": float("nan")})
    assert {p.name: p.read_bytes() for p in (tmp_path / "m").iterdir()} == before
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


def test_a_folder_of_the_user_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(BadInput, match="thesis.tex"):
        make().save(tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"
    assert len(list(tmp_path.iterdir())) == 1
