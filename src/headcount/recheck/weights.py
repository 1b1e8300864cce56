"""A model folder read from scratch: NumPy alone, nothing of the model's own code."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headcount.base.files import read_json
from headcount.base.hashing import arrays_hash, content_hash

Array = NDArray[np.float64]
_TYPES = {"F32": np.dtype("<f4"), "F64": np.dtype("<f8")}


class Rejected(Exception):
    """A certificate or witness does not hold; the message says why."""


@dataclass(frozen=True)
class Weights:
    """The tensors of a one-layer model with the settings that decide what they compute."""

    config: dict[str, Any]
    tensors: dict[str, Array]
    hash: str

    def __getitem__(self, name: str) -> Array:
        return self.tensors[name]

    def check_shapes(self, more: dict[str, tuple[int, ...]], layers: int) -> None:
        """Refuse a model whose tensors are not exactly those that its settings say; `more` are a kind's own."""
        spec = self.config["model"]
        sizes = [spec[key] for key in ("dim", "length", "out_dim", "heads", "head_dim", "hidden", "width", "hidden_ff")]
        if any(type(v) is not int or v < 1 for v in sizes):
            raise Rejected("a size of the model is no whole number from 1 on")
        d, _, out, h, n, N, E, K = sizes
        a, wide = "layers.0.attention.", [E, *[K] * (layers - 1), out]
        wanted = {"class_token": (E,), "encoder.inner.weight": (N, d), "encoder.inner.bias": (N,),
                  "encoder.outer.weight": (E, N), "encoder.outer.bias": (E,), a + "query": (h, n, E),
                  a + "key": (h, n, E), a + "value": (h, n, E), a + "output": (h, E, n), **more}  # fmt: skip
        for k, (before, after) in enumerate(pairwise(wide)):
            wanted[f"layers.0.feedforward.layers.{k}.weight"] = (after, before)
            wanted[f"layers.0.feedforward.layers.{k}.bias"] = (after,)
        if wanted != {name: tensor.shape for name, tensor in self.tensors.items()}:
            raise Rejected("the tensors are not those of the model's settings")


def read_weights(folder: Path) -> Weights:
    """Read config.json and model.safetensors; the content hash is computed anew."""
    config = read_json(folder / "config.json")
    try:
        raw = (folder / "model.safetensors").read_bytes()
        size = int.from_bytes(raw[:8], "little")
        header, body = json.loads(raw[8 : 8 + size]), raw[8 + size :]
        tensors = {name: _tensor(body, entry) for name, entry in header.items() if name != "__metadata__"}
        named = {key: config[key] for key in ("format", "version", "model", "dtype", "task", "box", "standardisation")}
    except (OSError, ValueError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise Rejected(f"the model in {folder} cannot be read: {type(error).__name__} {error}") from None
    if type(named["version"]) is not int or named["version"] != 1:
        raise Rejected("the model's format has another version than 1")
    if named["format"] != "headcount-model" or {str(t.dtype) for t in tensors.values()} != {named["dtype"]}:
        raise Rejected("the model's format or the type of its weights is not what config.json says")
    found = content_hash({**named, "tensors": arrays_hash(tensors)})
    return Weights(named, {name: t.astype(np.float64) for name, t in tensors.items()}, found)


def _tensor(body: bytes, entry: dict[str, Any]) -> NDArray[Any]:
    """One tensor; a file that ends too early, or numbers that are none, are refused."""
    start, end = entry["data_offsets"]
    if not 0 <= start <= end <= len(body):
        raise ValueError("the file is truncated")
    tensor = np.frombuffer(body[start:end], _TYPES[entry["dtype"]]).reshape(entry["shape"])
    if not np.isfinite(tensor).all():
        raise ValueError("a weight is not a finite number")
    return tensor
