"""Arrays for a model of transformers from an .npz file, named as the model names its inputs; checked before use."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headcount.core import BadInput
from headcount.core.readers import read_npz


def read_arrays(path: Path, model: Any) -> dict[str, Tensor]:
    """Read inputs and labels; `X` and `images` stand for the main input, `y` for the labels."""
    arrays = read_npz(path)
    renamed = {"X": model.main_input_name, "images": model.main_input_name, "y": "labels"}
    arrays = {renamed.get(name, name): array for name, array in arrays.items()}
    if model.main_input_name not in arrays:
        raise BadInput(f"{path} has no array {model.main_input_name} (or X): it holds {', '.join(arrays) or 'nothing'}")
    allowed = set(inspect.signature(model.forward).parameters)
    unknown = sorted(set(arrays) - allowed)
    if unknown:
        raise BadInput(f"{path}: {type(model).__name__} takes no input called {unknown[0]}")
    count = len(arrays[model.main_input_name])
    for name, array in arrays.items():
        if array.ndim == 0 or len(array) != count or not count:
            raise BadInput(f"{path}: {name} has {len(array) if array.ndim else 0} samples, {count} are needed")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise BadInput(f"{path}: {name} holds numbers that are not finite")
    return {name: _tensor(path, name, array, model) for name, array in arrays.items()}


def _tensor(path: Path, name: str, array: Any, model: Any) -> Tensor:
    config = model.config
    if array.dtype.kind not in "biuf":
        raise BadInput(f"{path}: {name} holds {array.dtype}, numbers are needed")
    if name == "pixel_values":
        return _images(path, array, config)
    if name == "input_ids":
        most, longest = int(config.vocab_size), int(getattr(config, "max_position_embeddings", array.shape[-1]))
        if array.dtype.kind not in "iu" or array.ndim != 2:
            raise BadInput(f"{path}: input_ids are whole numbers [samples, length], not {array.dtype} {array.shape}")
        if array.min() < 0 or array.max() >= most:
            raise BadInput(f"{path}: input_ids must lie from 0 to {most - 1}, not {array.min()} to {array.max()}")
        if array.shape[1] > longest or array.shape[1] < 2:
            raise BadInput(f"{path}: input_ids have {array.shape[1]} tokens, and the model takes 2 to {longest}")
    if name == "labels" and array.dtype.kind in "iu":
        _labels(path, array, model)
    return torch.from_numpy(array).float() if array.dtype.kind == "f" else torch.from_numpy(array.astype(np.int64))


def _labels(path: Path, array: Any, model: Any) -> None:
    """Refuse classes and tokens that the model does not know; −100 is a token that does not count."""
    whole = type(model).__name__.endswith(("ForSequenceClassification", "ForImageClassification"))
    classes = whole or type(model).__name__.endswith("ForTokenClassification")
    known = int(model.config.num_labels if classes else getattr(model.config, "vocab_size", 0))
    if known < 2:  # a regression, or a kind of model whose labels we do not know
        return
    counted = array if whole else array[array != -100]
    if counted.size and (counted.min() < 0 or counted.max() >= known):
        raise BadInput(f"{path}: labels must lie from 0 to {known - 1}, not {counted.min()} to {counted.max()}")


def image_shape(config: Any) -> tuple[int, int, int]:
    """Channels, height and width of the images that a model takes."""
    size = config.image_size
    high, wide = (int(v) for v in (size if isinstance(size, tuple | list) else (size, size)))
    return int(config.num_channels), high, wide


def _images(path: Path, array: Any, config: Any) -> Tensor:
    """Images as [samples, channels, height, width]; channels last are turned, bytes are scaled to −1 … 1."""
    wanted = image_shape(config)
    if array.ndim == 4 and tuple(array.shape[1:]) == (*wanted[1:], wanted[0]):
        array = array.transpose(0, 3, 1, 2)
    if array.ndim != 4 or tuple(array.shape[1:]) != wanted:
        raise BadInput(f"{path}: images are {list(array.shape[1:])}, and the model takes {list(wanted)}")
    values = torch.from_numpy(np.ascontiguousarray(array))
    return values.float() / 127.5 - 1.0 if array.dtype == np.uint8 else values.float()
