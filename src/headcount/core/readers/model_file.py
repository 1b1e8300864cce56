"""Strict reader of model folders: config.json and model.safetensors, with one description of what they may contain.

Part of the trusted base: `recheck` and `load_model` both read models through this file, and neither has another
reader. It needs only NumPy and the standard library. Sizes are checked before weights are loaded, in this order: the
settings, the tensors that they require, the header, the length of the file, the numbers, the hash.
"""

from __future__ import annotations

import math
import os
import re
import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from headcount.core.errors import BadInput, nearest
from headcount.core.hashing import arrays_hash, content_hash
from headcount.core.readers.reading import parse_json, read_json

FORMAT = "headcount-model"
VERSION = 1
HASHED = ("format", "version", "model", "dtype", "task", "box", "standardisation")
"""The keys of config.json that the model's hash covers, together with the weights."""
KEYS = (*HASHED, "hash", "provenance")

SIZES = ("dim", "length", "out_dim", "heads", "head_dim", "hidden", "width", "hidden_ff", "depth")
MAX_SIZE = 1_000_000
MAX_LAYERS = 1000
POSITIONS = ("none", "additive", "concatenated", "gates")
FEEDFORWARD_LAYERS = {"gelu2": 2, "relu2": 2, "relu5": 5}
BETAS = ("scaled", "learned")
FLAGS = ("class_key", "layer_norm", "residual")
SETTINGS = (*SIZES, "positions", "beta", "class_key", "feedforward", "layer_norm", "residual")

DTYPES = {"float32": ("F32", np.dtype("<f4")), "float64": ("F64", np.dtype("<f8"))}
MAX_NUMBERS = 1 << 30
"""Weights of a model: 8 GiB as doubles, twenty times the most that `build` makes."""
MAX_HEADER_BYTES = 16 << 20
"""Size limit of the header of model.safetensors; 1000 layers take 3 MB."""

_BRIEF = reprlib.Repr()  # truncates long values before formatting them
_BRIEF.maxstring = 60

Shapes = dict[str, tuple[int, ...]]
Tensors = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class ModelFile:
    """The content of a model folder: the hashed part of config.json, the tensors as stored, hash, provenance."""

    config: dict[str, Any]
    tensors: Tensors
    hash: str
    provenance: dict[str, Any]


def read_model_file(folder: Path) -> ModelFile:
    """Read a model folder; raise BadInput where anything is missing, unknown, too large, altered or left over."""
    if not folder.is_dir():
        raise BadInput(f"{folder} is not a model folder: expected a folder with config.json and model.safetensors")
    path, weights = folder / "config.json", folder / "model.safetensors"
    for file in (path, weights):
        if file.exists() and not file.is_file():  # reading a pipe would wait for ever
            raise BadInput(f"{file} is not a regular file")
    config = read_json(path)
    check_config(config, str(path))
    try:
        with weights.open("rb") as handle:
            tensors = _read_tensors(handle, str(weights), tensor_shapes(config["model"]), config["dtype"])
    except FileNotFoundError:
        raise BadInput(f"no such file: {weights}") from None
    except OSError as error:
        raise BadInput(f"cannot read {weights}: {error.strerror}") from None
    hashed = {key: config[key] for key in HASHED}
    if identity(hashed, tensors) != config["hash"]:
        raise BadInput(f"{folder}: the content hash differs: a weight or a setting was changed after saving")
    return ModelFile(hashed, tensors, config["hash"], config["provenance"])


def identity(hashed: Mapping[str, Any], tensors: Tensors) -> str:
    """Return the content hash of a model: over its settings, task, box, standardisation and all bits of its weights."""
    return content_hash({**hashed, "tensors": arrays_hash(tensors)})


def check_keys(value: Any, allowed: Iterable[str], where: str) -> dict[str, Any]:
    """Return `value`, which must be a JSON object with exactly these keys."""
    if type(value) is not dict:
        raise BadInput(f"{where} is {brief(value)}: it must be a JSON object")
    found, names = cast("dict[str, Any]", value), set(allowed)
    if unknown := sorted(found.keys() - names):
        raise BadInput(f"{where}: unknown key {brief(unknown[0])}: {nearest(unknown[0][:60], names)}")
    if missing := sorted(names - found.keys()):
        raise BadInput(f"{where}: {missing[0]} is missing")
    return found


def check_config(config: Any, where: str) -> None:
    """Check the content of a config.json: its keys, the types of their values, and the model's settings."""
    check_keys(config, KEYS, where)
    for key, expected in (("format", FORMAT), ("version", VERSION)):
        if type(config[key]) is not type(expected) or config[key] != expected:
            raise BadInput(f"{where}: {key} is {brief(config[key])}: this release reads {expected!r}")
    if type(config["dtype"]) is not str or config["dtype"] not in DTYPES:
        raise BadInput(f"{where}: dtype is {brief(config['dtype'])}: allowed: {', '.join(DTYPES)}")
    _check_settings(config["model"], f"{where}: model")
    if type(config["hash"]) is not str or not re.fullmatch(r"[0-9a-f]{64}", config["hash"]):
        raise BadInput(f"{where}: hash is {brief(config['hash'])}: it must be 64 digits of 0-9 and a-f")
    for key, kinds in (("task", (dict, type(None))), ("provenance", (dict,))):
        if type(config[key]) not in kinds:
            raise BadInput(f"{where}: {key} is {brief(config[key])}: it must be a JSON object")
    model = config["model"]
    if config["box"] is not None:
        check_box(config["box"], model["dim"], f"{where}: box")
    scaling = check_keys(config["standardisation"], ("mean", "std"), f"{where}: standardisation")
    for key, values in scaling.items():
        check_numbers(values, model["out_dim"], f"{where}: standardisation.{key}")
    if not all(v > 0 for v in scaling["std"]):
        raise BadInput(f"{where}: standardisation.std must hold numbers above 0")


def _check_settings(model: Any, where: str) -> None:
    check_keys(model, SETTINGS, where)
    for key in SIZES:
        limit = MAX_LAYERS if key == "depth" else MAX_SIZE
        if type(model[key]) is not int or not 1 <= model[key] <= limit:
            raise BadInput(f"{where}.{key} is {brief(model[key])}: it must be a whole number from 1 to {limit:,}")
    for key, allowed in (("positions", POSITIONS), ("feedforward", FEEDFORWARD_LAYERS)):
        if type(model[key]) is not str or model[key] not in allowed:
            raise BadInput(f"{where}.{key} is {brief(model[key])}: allowed: {', '.join(allowed)}")
    for key in FLAGS:
        if type(model[key]) is not bool:
            raise BadInput(f"{where}.{key} is {brief(model[key])}: allowed: true, false")
    beta = model["beta"]
    if not (beta in BETAS if type(beta) is str else type(beta) is float and 0 < beta < math.inf):
        raise BadInput(f"{where}.beta is {brief(beta)}: allowed: {', '.join(BETAS)}, or a number above 0 such as 2.0")
    numbers = sum(math.prod(shape) for shape in tensor_shapes(model).values())
    if numbers > MAX_NUMBERS:
        raise BadInput(f"{where}: the settings ask for {numbers:,} weights: at most {MAX_NUMBERS:,} are read")


def check_numbers(values: Any, count: int, where: str) -> None:
    """Check that `values` is a list of `count` finite floating-point numbers; a whole number such as 2 is refused."""
    numbers = cast("list[Any]", values) if type(values) is list else None
    if numbers is None or len(numbers) != count or not all(type(v) is float and math.isfinite(v) for v in numbers):
        raise BadInput(f"{where} is {brief(values)}: it must be a list of {count} numbers such as 2.0")


def check_box(box: Any, dim: int, where: str) -> None:
    """Check that `box` has two corners of `dim` numbers each, the first below the second in every coordinate."""
    if type(box) is not list or len(cast("list[Any]", box)) != 2:
        raise BadInput(f"{where} is {brief(box)}: it must be a list of two corners")
    for corner in box:
        check_numbers(corner, dim, where)
    if not all(low < high for low, high in zip(*box, strict=True)):
        raise BadInput(f"{where} is empty: the first corner must be below the second in every coordinate")


def tensor_shapes(model: Mapping[str, Any]) -> Shapes:
    """Return the shape of every tensor of a model with these settings (docs/format.md)."""
    d, T, out, h, n, N, E, K, depth = (model[key] for key in SIZES)
    encoder = {"inner.weight": (N, d), "inner.bias": (N,), "outer.weight": (E, N), "outer.bias": (E,)}
    found: Shapes = {"class_token": (E,), **{f"encoder.{part}": shape for part, shape in encoder.items()}}
    if model["positions"] == "additive":
        found["encoder.position"] = (T, E)
    if model["positions"] == "concatenated":
        found["encoder.hidden_bias"] = (T, N)
    for k in range(depth):
        at = f"layers.{k}."
        found |= {f"{at}attention.{part}": (h, n, E) for part in ("query", "key", "value")}
        found[f"{at}attention.output"] = (h, E, n)
        if model["positions"] == "gates":
            found[f"{at}attention.gates"] = (h, T)
        if model["beta"] == "learned":
            found[f"{at}attention.log_beta"] = (h,)
        for norm in ("norm_attention", "norm_feedforward") if model["layer_norm"] else ():
            found |= {f"{at}{norm}.weight": (E,), f"{at}{norm}.bias": (E,)}
        inner = [K] * (FEEDFORWARD_LAYERS[model["feedforward"]] - 1)
        for j, (before, after) in enumerate(pairwise([E, *inner, out if k == depth - 1 else E])):
            name = f"{at}feedforward.layers.{j}."
            found |= {f"{name}weight": (after, before), f"{name}bias": (after,)}
    return found


def _read_tensors(handle: IO[bytes], where: str, shapes: Shapes, dtype: str) -> Tensors:
    """Read exactly these tensors; any other tensor, type or shape, and any unused byte, is refused."""
    size, start = os.fstat(handle.fileno()).st_size, handle.read(8)
    header_bytes = int.from_bytes(start, "little")
    if len(start) < 8 or not 2 <= header_bytes <= min(MAX_HEADER_BYTES, size - 8):
        raise BadInput(f"{where} is truncated or not a safetensors file: its header does not fit in {size:,} bytes")
    header = parse_json(handle.read(header_bytes), f"{where}: the header")
    if type(header) is not dict:
        raise BadInput(f"{where} is not a safetensors file: its header is not a JSON object")
    if odd := sorted(header.keys() ^ shapes.keys()):
        problem = "is missing" if odd[0] in shapes else "is unknown"
        raise BadInput(f"{where}: the tensors do not match the model's settings: {brief(odd[0])} {problem}")
    (stored, kind), end = DTYPES[dtype], 0
    for name, entry in header.items():  # in the order of the file
        begin, end = end, end + math.prod(shapes[name]) * kind.itemsize
        expected = {"dtype": stored, "shape": list(shapes[name]), "data_offsets": [begin, end]}
        if not _equals_entry(entry, expected):
            raise BadInput(f"{where}: {name} is stored as {brief(entry)}: config.json asks for {expected}")
    if size != 8 + header_bytes + end:
        problem = "is truncated" if size < 8 + header_bytes + end else "has bytes left over"
        raise BadInput(f"{where} {problem}: {size:,} bytes, but its header says {8 + header_bytes + end:,}")
    body, found, at = handle.read(end), Tensors(), 0
    for name in header:
        count = math.prod(shapes[name])
        found[name] = np.frombuffer(body, kind, count, at).reshape(shapes[name])
        at += count * kind.itemsize
        if not np.isfinite(found[name]).all():
            raise BadInput(f"{where}: {name} holds a number that is not finite")
    return found


def _equals_entry(entry: Any, expected: dict[str, Any]) -> bool:
    """Whether a header's entry is the expected one, with whole numbers: true and 1.0 are not 1."""
    if type(entry) is not dict or entry != expected:
        return False
    return all(type(v) is int for key in ("shape", "data_offsets") for v in cast("dict[str, Any]", entry)[key])


def brief(value: object) -> str:
    """Return a value as it appears in an error: short, on one line."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else _BRIEF.repr(value)
