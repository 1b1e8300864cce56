"""The model folder read strictly: config.json and model.safetensors, with one description of what may stand in them.

Part of the trusted base: `recheck` and `load_model` both read models through this file, and neither has another
reader. It needs NumPy and the standard library alone. Sizes are compared before weights are held, in this order: the
settings, the tensors that they ask for, the header, the length of the file, the numbers, the hash.
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
"""The keys of config.json that its hash covers, beside the weights."""
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
"""Weights of a model: 8 GiB as doubles, twenty times what `build` may make."""
MAX_HEADER_BYTES = 16 << 20
"""Of the header of model.safetensors: 1000 layers take 3 MB."""

_SHORT = reprlib.Repr()  # cuts what is long before it is written out
_SHORT.maxstring = 60

Shapes = dict[str, tuple[int, ...]]
Tensors = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class ModelFile:
    """What a model folder holds: the hashed part of config.json, the tensors as stored, their hash, the rest."""

    config: dict[str, Any]
    tensors: Tensors
    hash: str
    provenance: dict[str, Any]


def read_model_file(folder: Path) -> ModelFile:
    """Read a model folder; whatever is missing, not known, too large, altered or left over gives one line."""
    if not folder.is_dir():
        raise BadInput(f"{folder} is no model folder: expected a folder with config.json and model.safetensors")
    path, weights = folder / "config.json", folder / "model.safetensors"
    for file in (path, weights):
        if file.exists() and not file.is_file():  # reading a pipe would wait for ever
            raise BadInput(f"{file} is no ordinary file")
    config = read_json(path)
    check_config(config, str(path))
    try:
        with weights.open("rb") as handle:
            tensors = _read_tensors(handle, str(weights), tensor_shapes(config["model"]), config["dtype"])
    except FileNotFoundError:
        raise BadInput(f"there is no file {weights}") from None
    except OSError as error:
        raise BadInput(f"cannot read {weights}: {error.strerror}") from None
    hashed = {key: config[key] for key in HASHED}
    if identity(hashed, tensors) != config["hash"]:
        raise BadInput(f"{folder}: the hash differs from the content hash: a weight or a setting was changed")
    return ModelFile(hashed, tensors, config["hash"], config["provenance"])


def identity(hashed: Mapping[str, Any], tensors: Tensors) -> str:
    """Return the content hash of a model: of settings, task, box and standardisation, and all bits of its weights."""
    return content_hash({**hashed, "tensors": arrays_hash(tensors)})


def check_keys(value: Any, allowed: Iterable[str], where: str) -> dict[str, Any]:
    """Return an object that has these keys and no others."""
    if type(value) is not dict:
        raise BadInput(f"{where} is {shown(value)}: it must be a JSON object")
    found, names = cast("dict[str, Any]", value), set(allowed)
    if unknown := sorted(found.keys() - names):
        raise BadInput(f"{where}: unknown key {shown(unknown[0])}: {nearest(unknown[0][:60], names)}")
    if missing := sorted(names - found.keys()):
        raise BadInput(f"{where}: {missing[0]} is missing")
    return found


def check_config(config: Any, where: str) -> None:
    """Refuse what is no config.json of a model: its keys, the types of their values, and settings not known here."""
    check_keys(config, KEYS, where)
    for key, wanted in (("format", FORMAT), ("version", VERSION)):
        if type(config[key]) is not type(wanted) or config[key] != wanted:
            raise BadInput(f"{where}: {key} is {shown(config[key])}: this release reads {wanted!r}")
    if type(config["dtype"]) is not str or config["dtype"] not in DTYPES:
        raise BadInput(f"{where}: dtype is {shown(config['dtype'])}: allowed are {', '.join(DTYPES)}")
    _check_settings(config["model"], f"{where}: model")
    if type(config["hash"]) is not str or not re.fullmatch(r"[0-9a-f]{64}", config["hash"]):
        raise BadInput(f"{where}: hash is {shown(config['hash'])}: it must be 64 digits of 0-9 and a-f")
    for key, kinds in (("task", (dict, type(None))), ("provenance", (dict,))):
        if type(config[key]) not in kinds:
            raise BadInput(f"{where}: {key} is {shown(config[key])}: it must be a JSON object")
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
        most = MAX_LAYERS if key == "depth" else MAX_SIZE
        if type(model[key]) is not int or not 1 <= model[key] <= most:
            raise BadInput(f"{where}.{key} is {shown(model[key])}: it must be a whole number from 1 to {most:,}")
    for key, allowed in (("positions", POSITIONS), ("feedforward", FEEDFORWARD_LAYERS)):
        if type(model[key]) is not str or model[key] not in allowed:
            raise BadInput(f"{where}.{key} is {shown(model[key])}: allowed are {', '.join(allowed)}")
    for key in FLAGS:
        if type(model[key]) is not bool:
            raise BadInput(f"{where}.{key} is {shown(model[key])}: allowed are true and false")
    beta = model["beta"]
    if not (beta in BETAS if type(beta) is str else type(beta) is float and 0 < beta < math.inf):
        raise BadInput(f"{where}.beta is {shown(beta)}: allowed are {', '.join(BETAS)} and numbers above 0, as 2.0")
    numbers = sum(math.prod(shape) for shape in tensor_shapes(model).values())
    if numbers > MAX_NUMBERS:
        raise BadInput(f"{where} has {numbers:,} weights: at most {MAX_NUMBERS:,} are read")


def check_numbers(values: Any, count: int, where: str) -> None:
    """Refuse what is no list of so many finite floating-point numbers."""
    numbers = cast("list[Any]", values) if type(values) is list else None
    if numbers is None or len(numbers) != count or not all(type(v) is float and math.isfinite(v) for v in numbers):
        raise BadInput(f"{where} is {shown(values)}: it must be a list of {count} numbers, as 2.0")


def check_box(box: Any, dim: int, where: str) -> None:
    """Refuse what is no pair of corners with `dim` numbers each, the first below the second in all of them."""
    if type(box) is not list or len(cast("list[Any]", box)) != 2:
        raise BadInput(f"{where} is {shown(box)}: it must be the list of its two corners")
    for corner in box:
        check_numbers(corner, dim, where)
    if not all(low < high for low, high in zip(*box, strict=True)):
        raise BadInput(f"{where} is empty: every number of the first corner must be below that of the second")


def tensor_shapes(model: Mapping[str, Any]) -> Shapes:
    """Return the shape of every tensor that a model of these settings has (docs/format.md)."""
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
    """Read the tensors that are wanted: no other may be there, in any other type or shape, and no byte between."""
    size, start = os.fstat(handle.fileno()).st_size, handle.read(8)
    header_bytes = int.from_bytes(start, "little")
    if len(start) < 8 or not 2 <= header_bytes <= min(MAX_HEADER_BYTES, size - 8):
        raise BadInput(f"{where} is truncated or no safetensors file: its header does not fit into {size:,} bytes")
    header = parse_json(handle.read(header_bytes), f"{where}: the header")
    if type(header) is not dict:
        raise BadInput(f"{where} is no safetensors file: its header is no JSON object")
    if odd := sorted(header.keys() ^ shapes.keys()):
        what = "is missing" if odd[0] in shapes else "is not known"
        raise BadInput(f"{where}: the tensors are not those of the model's settings: {shown(odd[0])} {what}")
    (stored, kind), end = DTYPES[dtype], 0
    for name, entry in header.items():  # in the order of the file
        begin, end = end, end + math.prod(shapes[name]) * kind.itemsize
        wanted = {"dtype": stored, "shape": list(shapes[name]), "data_offsets": [begin, end]}
        if not _same(entry, wanted):
            raise BadInput(f"{where}: {name} is stored as {shown(entry)}: config.json asks for {wanted}")
    if size != 8 + header_bytes + end:
        what = "is truncated" if size < 8 + header_bytes + end else "has bytes left over"
        raise BadInput(f"{where} {what}: {size:,} bytes, its header says {8 + header_bytes + end:,}")
    body, found, at = handle.read(end), Tensors(), 0
    for name in header:
        count = math.prod(shapes[name])
        found[name] = np.frombuffer(body, kind, count, at).reshape(shapes[name])
        at += count * kind.itemsize
        if not np.isfinite(found[name]).all():
            raise BadInput(f"{where}: {name} holds a number that is not finite")
    return found


def _same(entry: Any, wanted: dict[str, Any]) -> bool:
    """Whether a header's entry says this, whole numbers as such: true and 1.0 are not 1."""
    if type(entry) is not dict or entry != wanted:
        return False
    return all(type(v) is int for key in ("shape", "data_offsets") for v in cast("dict[str, Any]", entry)[key])


def shown(value: object) -> str:
    """Return a value for a complaint: short, on one line."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else _SHORT.repr(value)
