"""The one reader of models: every liberty that a file could take is refused by `load_model` and by `recheck` alike."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from headcount import BadInput, HeadcountError, ModelSpec, SavedModel, Transformer, load_model, make_task
from headcount.core.readers import model_file
from headcount.core.readers.model_file import check_config, read_model_file, tensor_shapes
from headcount.models.transformer.spec import FeedForwardKind, Positions
from headcount.recheck import certificate as certificate_module
from headcount.recheck.certificate import verify
from headcount.recheck.weights import Rejected, read_weights
from headcount.theory.construct.enough_heads import build
from headcount.theory.construct.one_wide_head import build_wide
from signed import edit, sign


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    where = tmp_path_factory.mktemp("built") / "model"
    build(make_task("min-plus-max", length=3), 0.1).save(where)
    return where


@pytest.fixture(scope="module")
def wide(tmp_path_factory) -> Path:
    where = tmp_path_factory.mktemp("wide") / "model"
    build_wide(make_task("min-plus-max", length=3), 0.3).save(where)
    return where


@pytest.fixture
def copy(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "copy"))


def refusal(folder: Path) -> str:
    """Return why a folder is rejected: one line, on which both readers and the verdict agree."""
    with pytest.raises(BadInput) as loading:
        load_model(folder)
    with pytest.raises(Rejected) as reading:
        read_weights(folder)
    verdict = verify(folder)
    assert not verdict.holds
    said = str(loading.value)
    assert str(reading.value).endswith(said)
    assert verdict.reason.endswith(said)
    assert "\n" not in said
    assert len(said) < 600
    return said


# -- one description of the settings --------------------------------------------------------------------------


def test_settings_match_the_spec() -> None:
    assert set(model_file.SETTINGS) == set(ModelSpec.model_fields)
    assert get_args(Positions) == model_file.POSITIONS
    assert tuple(model_file.FEEDFORWARD_LAYERS) == get_args(FeedForwardKind)
    for key in model_file.SIZES:
        most = model_file.MAX_LAYERS if key == "depth" else model_file.MAX_SIZE
        sizes = {"dim": 1, "length": 1, "heads": 1, "width": 1, "hidden_ff": 1}
        assert ModelSpec(**{**sizes, key: most}).data()[key] == most
        with pytest.raises(BadInput, match=key):
            ModelSpec(**{**sizes, key: most + 1})


def test_shapes_match_the_reference() -> None:
    sizes = {"dim": 2, "length": 3, "out_dim": 2, "heads": 2, "head_dim": 3, "hidden": 5, "width": 4, "hidden_ff": 7}
    options = product(get_args(Positions), ("scaled", "learned", 2.0), get_args(FeedForwardKind), (1, 2), (False, True))
    for positions, beta, feedforward, depth, norm in options:
        spec = ModelSpec(**sizes, positions=positions, beta=beta, feedforward=feedforward, depth=depth, layer_norm=norm)
        wanted = {name: tuple(t.shape) for name, t in Transformer(spec).tensors()}
        assert tensor_shapes(spec.data()) == wanted


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_written_models_can_be_read(tmp_path: Path, dtype: torch.dtype) -> None:
    spec = ModelSpec(dim=2, length=3, heads=2, positions="gates", beta="learned", depth=2, layer_norm=True)
    saved = SavedModel(Transformer(spec, dtype=dtype), {"kind": "arrays"}, ((0, 0), (1, 2)), (1,), (2,))
    assert saved.save(tmp_path / "m") == read_model_file(tmp_path / "m").hash == load_model(tmp_path / "m").hash()
    assert load_model(tmp_path / "m").box == ((0.0, 0.0), (1.0, 2.0))


@pytest.mark.parametrize(
    "odd",
    [
        {"std": (0.0,)},
        {"std": (-1.0,)},
        {"mean": (float("nan"),)},
        {"box": ((1.0, 0.0), (0.0, 1.0))},
        {"box": ((0.0,), (1.0,))},
    ],
    ids=str,
)
def test_unreadable_models_are_not_written(tmp_path: Path, odd: dict[str, Any]) -> None:
    saved = SavedModel(Transformer(ModelSpec(dim=2, length=3, heads=2)), **odd)
    with pytest.raises(BadInput, match="the new"):
        saved.save(tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


# -- liberties in config.json ---------------------------------------------------------------------------------


def model(**values: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return an edit of the settings; `...` drops one."""
    return lambda c: {"model": {k: v for k, v in {**c["model"], **values}.items() if v is not ...}}


def scaling(mean: Any, std: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda c: {"standardisation": {"mean": mean, "std": std}}


CONFIGS: dict[str, tuple[Callable[[dict[str, Any]], dict[str, Any]], str]] = {
    "residual a word": (model(residual="banana"), "model.residual is 'banana': allowed: true, false"),
    "residual a number": (model(residual=0), "model.residual is 0"),
    "dropout in place of a flag": (model(residual=..., dropout=0.0), "unknown key 'dropout'"),
    "a flag missing": (model(residual=...), "residual is missing"),
    "positions not known": (model(positions="gated"), "model.positions is 'gated': allowed: none"),
    "positions a list": (model(positions=["gates"]), "model.positions is"),
    "feedforward not known": (model(feedforward="relu3"), "allowed: gelu2, relu2, relu5"),
    "beta a word": (model(beta="banana"), "model.beta is 'banana'"),
    "beta below 0": (model(beta=-1.0), "model.beta is -1.0"),
    "beta whole": (model(beta=3), "model.beta is 3"),
    "beta true": (model(beta=True), "model.beta is true"),
    "a size true": (model(heads=True), "model.heads is true: it must be a whole number"),
    "a size of digits": (model(heads="2"), "model.heads is '2'"),
    "a size too large": (model(hidden=10**9), "from 1 to 1,000,000"),
    "too many weights": (model(hidden=10**6, width=10**6), "weights: at most 1,073,741,824 are read"),
    "a size of 400 digits": (model(hidden=10**400), "it must be a whole number"),
    "the model a list": (lambda c: {"model": [c["model"]]}, "it must be a JSON object"),
    "means by name": (scaling({"0.0": 1.0}, [1.0]), "standardisation.mean is {'0.0': 1.0}"),
    "deviations by name": (scaling([0.0], {"1.0": 2.0}), "standardisation.std is {'1.0': 2.0}"),
    "means of text": (scaling(["0.0"], [1.0]), "standardisation.mean is ['0.0']"),
    "a mean whole": (scaling([0], [1.0]), "standardisation.mean is [0]"),
    "two means": (scaling([0.0, 0.0], [1.0]), "a list of 1 numbers"),
    "a deviation of 0": (scaling([0.0], [0.0]), "numbers above 0"),
    "a scaling more": (lambda c: {"standardisation": {**c["standardisation"], "shift": [0.0]}}, "unknown key 'shift'"),
    "a key more": (lambda c: {"more": 1}, "unknown key 'more'"),
    "another format": (lambda c: {"format": "headcount"}, "format is 'headcount'"),
    "version true": (lambda c: {"version": True}, "version is true: this release reads 1"),
    "version 1.0": (lambda c: {"version": 1.0}, "version is 1.0"),
    "dtype not known": (lambda c: {"dtype": "float16"}, "dtype is 'float16'"),
    "dtype of others": (lambda c: {"dtype": "float32"}, "config.json asks for {'dtype': 'F32'"),
    "the task a text": (lambda c: {"task": "min-plus-max"}, "task is 'min-plus-max'"),
    "a box of texts": (lambda c: {"box": [["0"], ["1"]]}, "box is ['0']"),
    "a box upside down": (lambda c: {"box": [[1.0], [0.0]]}, "box is empty"),
    "a box of three": (lambda c: {"box": [[0.0], [1.0], [2.0]]}, "two corners"),
    "provenance a list": (lambda c: {"provenance": []}, "provenance is []"),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_nonstandard_configs_are_rejected(copy: Path, case: str) -> None:
    change, said = CONFIGS[case]
    edit(copy / "config.json", **change(json.loads((copy / "config.json").read_text())))
    sign(copy)
    assert said in refusal(copy)


def test_the_order_of_config_keys_does_not_matter(copy: Path) -> None:
    """The harmless twin: whitespace and the order of keys do not matter."""
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(dict(reversed(config.items())), indent=7))
    assert verify(copy).holds
    assert load_model(copy).hash() == config["hash"]


@pytest.mark.parametrize("hashed", ["0" * 64, "F" * 64, "", None, 1])
def test_a_false_hash(copy: Path, hashed: Any) -> None:
    edit(copy / "config.json", hash=hashed)
    assert "hash" in refusal(copy)


def test_provenance_does_not_change_the_model_hash(copy: Path) -> None:
    before = load_model(copy).hash()
    edit(copy / "config.json", provenance={"anything": 1})
    assert load_model(copy).hash() == before
    assert verify(copy).holds


TEXTS = {
    "a key twice": (lambda t: t.replace('"dtype"', '"dtype": "float64",\n  "dtype"', 1), "'dtype' occurs twice"),
    "a setting twice": (lambda t: t.replace('"heads"', '"heads": 7, "heads"', 1), "'heads' occurs twice"),
    "NaN": (lambda t: t.replace('"provenance": {', '"provenance": {"x": NaN,', 1), "NaN is not a JSON number"),
    "beyond the doubles": (
        lambda t: t.replace('"provenance": {', '"provenance": {"x": 1e999,', 1),
        "finite number",
    ),
    "deep": (lambda t: t.replace('"provenance": {', f'"provenance": {{"x": {"[" * 300}{"]" * 300},', 1), "too deeply"),
    "very deep": (lambda t: t.replace('"provenance": {', f'"provenance": {{"x": {"[" * 9**5}', 1), "too deeply"),
    "many digits": (lambda t: t.replace('"provenance": {', f'"provenance": {{"x": {"9" * 5000},', 1), "5,000 digits"),
    "not UTF-8": (lambda t: t.replace('"provenance": {', '"provenance": {"x": "\udcff",', 1), "utf-8"),
    "more after it": (lambda t: t + "{}", "not valid JSON"),
}


@pytest.mark.parametrize("case", TEXTS)
def test_ambiguous_or_invalid_json_is_rejected(copy: Path, case: str) -> None:
    change, said = TEXTS[case]
    text = change((copy / "config.json").read_text())
    (copy / "config.json").write_bytes(text.encode(errors="surrogateescape"))
    assert said in refusal(copy)


# -- liberties in model.safetensors ---------------------------------------------------------------------------


def parts(path: Path) -> tuple[dict[str, Any], bytes]:
    raw = path.read_bytes()
    (size,) = struct.unpack("<Q", raw[:8])
    return json.loads(raw[8 : 8 + size]), raw[8 + size :]


def put(path: Path, header: dict[str, Any] | str, body: bytes, size: int | None = None) -> None:
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    path.write_bytes(struct.pack("<Q", len(text) if size is None else size) + text + body)


def entry(**values: Any) -> Callable[[dict[str, Any], bytes], tuple[Any, bytes]]:
    """Return an edit of the first tensor's entry."""

    def change(header: dict[str, Any], body: bytes) -> tuple[Any, bytes]:
        first = next(iter(header))
        return {**header, first: {**header[first], **values}}, body

    return change


def twice(header: dict[str, Any], body: bytes) -> tuple[str, bytes]:
    """Name a tensor twice: readers that keep the last one and readers that keep the first see different models."""
    text = json.dumps(header)
    name = next(iter(header))
    return "{" + f'"{name}": {json.dumps(header[name])}, ' + text[1:], body


def gap(header: dict[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
    *rest, last = header
    start, end = header[last]["data_offsets"]
    moved = {**header[last], "data_offsets": [start + 8, end + 8]}
    return {**{name: header[name] for name in rest}, last: moved}, body[:start] + bytes(8) + body[start:]


def reordered(header: dict[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
    return dict(reversed(header.items())), body


STORED: dict[str, tuple[Callable[[dict[str, Any], bytes], tuple[Any, bytes]], str]] = {
    "a tensor twice": (twice, "occurs twice"),
    "bytes left over": (lambda h, b: (h, b + b"\0"), "has bytes left over"),
    "a page left over": (lambda h, b: (h, b + bytes(4096)), "has bytes left over"),
    "truncated": (lambda h, b: (h, b[:-1]), "is truncated"),
    "no body": (lambda h, b: (h, b""), "is truncated"),
    "bytes between": (gap, "is stored as"),
    "entries out of order": (reordered, "is stored as"),
    "overlapping": (entry(data_offsets=[8, 16]), "is stored as"),
    "a negative offset": (entry(data_offsets=[-8, 0]), "is stored as"),
    "a type not known": (entry(dtype="BF16"), "is stored as"),
    "another type": (entry(dtype="I64"), "is stored as"),
    "a giant shape": (entry(shape=[10**9, 10**9]), "is stored as"),
    "a shape of floats": (entry(shape=[2.0]), "is stored as"),
    "a key more": (entry(more=1), "is stored as"),
    "metadata": (lambda h, b: ({"__metadata__": {"format": "pt"}, **h}, b), "'__metadata__' is unknown"),
    "a tensor more": (
        lambda h, b: ({**h, "more": {"dtype": "F64", "shape": [0], "data_offsets": [len(b), len(b)]}}, b),
        "'more' is unknown",
    ),
    "a tensor missing": (lambda h, b: (dict(list(h.items())[:-1]), b), "is missing"),
    "no object": (lambda h, b: ("[]", b), "header is not a JSON object"),
    "no JSON": (lambda h, b: ("{" * 50, b), "not valid JSON"),
}


@pytest.mark.parametrize("case", STORED)
def test_nonstandard_weight_files_are_rejected(copy: Path, case: str) -> None:
    path, (change, said) = copy / "model.safetensors", STORED[case]
    put(path, *change(*parts(path)))
    assert said in refusal(copy)


@pytest.mark.parametrize("size", [0, 1, 2**40, 2**64 - 1])
def test_headers_that_do_not_fit(copy: Path, size: int) -> None:
    path = copy / "model.safetensors"
    put(path, *parts(path), size=size)
    assert "its header does not fit" in refusal(copy)


def test_numbers_that_are_not_finite(copy: Path) -> None:
    path = copy / "model.safetensors"
    tensors = load_file(path)
    for value in (np.nan, np.inf, -np.inf):
        save_file({**tensors, "class_token": np.full_like(tensors["class_token"], value)}, path)
        sign(copy)
        assert "class_token holds a number that is not finite" in refusal(copy)


def test_rewriting_the_same_weights_keeps_the_hash(copy: Path) -> None:
    """The harmless twin: whitespace in the header does not matter."""
    path = copy / "model.safetensors"
    header, body = parts(path)
    put(path, json.dumps(header, indent=1), body)
    assert verify(copy).holds
    save_file(load_file(path), path)
    assert verify(copy).holds
    assert load_model(copy).hash() == json.loads((copy / "config.json").read_text())["hash"]


def test_a_sparse_giant_takes_no_memory(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file size is compared before any byte of the weights is read."""
    with (copy / "model.safetensors").open("r+b") as handle:
        handle.truncate(1 << 42)
    assert "has bytes left over" in refusal(copy)
    monkeypatch.setattr(model_file, "MAX_NUMBERS", 10)
    assert "weights: at most 10 are read" in refusal(copy)


# -- the wide form --------------------------------------------------------------------------------------------


def test_beta_of_the_wide_form(wide: Path, tmp_path: Path) -> None:
    assert verify(wide).holds
    for beta, said in ((2.0, "this proof needs 1.0"), ("banana", "model.beta is"), (-1.0, "model.beta is")):
        folder = Path(shutil.copytree(wide, tmp_path / str(beta)))
        config = json.loads((folder / "config.json").read_text())
        edit(folder / "config.json", model={**config["model"], "beta": beta})
        sign(folder)
        verdict = verify(folder)
        assert not verdict.holds
        assert said in verdict.reason


# -- what is built is verified as it was written --------------------------------------------------------------


def test_a_built_model_is_verified_from_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that changes one weight during writing: the build fails, and nothing is left behind."""
    problem = build(make_task("min-plus-max", length=3), 0.1)
    problem.save(tmp_path / "whole")
    assert verify(tmp_path / "whole").holds
    from headcount.models import files

    written = files.write_bytes

    def careless(path: Path, content: bytes) -> None:
        flipped = bytes([content[-1] ^ 1])
        written(path, content[:-1] + flipped if path.name == "model.safetensors" else content)

    monkeypatch.setattr(files, "write_bytes", careless)
    with pytest.raises(HeadcountError, match="cannot be verified .*hash differs"):
        problem.save(tmp_path / "careless")
    assert [p.name for p in tmp_path.iterdir()] == ["whole"]


def test_the_verdict_is_about_the_folder_that_is_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from headcount.theory.construct import verified

    seen: list[tuple[Path, int]] = []

    def watched(path: Path) -> certificate_module.Verdict:
        seen.append((path, (path / "model.safetensors").stat().st_ino))
        return verify(path)

    built = build(make_task("min-plus-max", length=3), 0.1)
    monkeypatch.setattr(verified, "verify", watched)
    built.save(tmp_path / "m")
    ((path, inode),) = seen
    assert path.parent == tmp_path
    assert (tmp_path / "m" / "model.safetensors").stat().st_ino == inode


def test_a_config_can_be_checked_alone() -> None:
    with pytest.raises(BadInput, match="it must be a JSON object"):
        check_config([], "config.json")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_pipe_in_a_model_folder_is_rejected_immediately(tmp_path: Path, name: str) -> None:
    build(make_task("min-plus-max", length=3), 0.1).save(tmp_path / "m")
    (tmp_path / "m" / name).unlink()
    os.mkfifo(tmp_path / "m" / name)
    with pytest.raises(BadInput, match="is not a regular file"):
        load_model(tmp_path / "m")
