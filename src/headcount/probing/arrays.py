"""Read and check arrays for a model of transformers from an .npz file, with the names of the model's inputs."""

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
    """Return inputs and labels; `X` and `images` stand for the main input, `y` for the labels."""
    arrays, main = read_npz(path), model.main_input_name
    renamed = {"X": main, "images": main, "y": "labels"}
    arrays = {renamed.get(name, name): array for name, array in arrays.items()}
    if main not in arrays:
        raise BadInput(f"{path} has no array {main} (or X): its arrays are {', '.join(arrays) or 'none'}")
    allowed = set(inspect.signature(model.forward).parameters)
    unknown = sorted(set(arrays) - allowed)
    if unknown:
        raise BadInput(f"{path}: {type(model).__name__} has no input named {unknown[0]!r}")
    count = len(arrays[main]) if arrays[main].ndim else 0
    if not count:
        raise BadInput(f"{path}: {main} has no samples")
    for name, array in arrays.items():
        if array.ndim == 0 or len(array) != count:
            samples = len(array) if array.ndim else "no"
            raise BadInput(f"{path}: {name} has {samples} samples, but {main} has {count}")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise BadInput(f"{path}: {name} contains values that are not finite")
    return {name: _tensor(path, name, array, model) for name, array in arrays.items()}


def _tensor(path: Path, name: str, array: Any, model: Any) -> Tensor:
    config = model.config
    if array.dtype.kind not in "biuf":
        raise BadInput(f"{path}: {name} has type {array.dtype}, numbers are needed")
    if name == "pixel_values":
        return _images(path, array, config)
    if name == "input_ids":
        tokens, max_length = int(config.vocab_size), int(getattr(config, "max_position_embeddings", array.shape[-1]))
        if array.dtype.kind not in "iu" or array.ndim != 2:
            shape = list(array.shape)
            raise BadInput(f"{path}: input_ids must be whole numbers [samples, length], not {array.dtype} {shape}")
        if array.shape[1] > max_length or array.shape[1] < 2:
            raise BadInput(
                f"{path}: input_ids have {array.shape[1]} tokens per sample, the model takes 2 to {max_length}"
            )
        if array.min() < 0 or array.max() >= tokens:
            raise BadInput(f"{path}: input_ids must be from 0 to {tokens - 1}, found {array.min()} to {array.max()}")
    if name == "labels" and array.dtype.kind in "iu":
        _labels(path, array, model)
    return torch.from_numpy(array).float() if array.dtype.kind == "f" else torch.from_numpy(array.astype(np.int64))


def _labels(path: Path, array: Any, model: Any) -> None:
    """Refuse classes and tokens that the model does not know; a token of −100 is ignored."""
    one_per_sample = type(model).__name__.endswith(("ForSequenceClassification", "ForImageClassification"))
    classes = one_per_sample or type(model).__name__.endswith("ForTokenClassification")
    known = int(model.config.num_labels if classes else getattr(model.config, "vocab_size", 0))
    if known < 2:  # a regression, or a kind of model whose labels we do not know
        return
    counted = array if one_per_sample else array[array != -100]
    if counted.size and (counted.min() < 0 or counted.max() >= known):
        raise BadInput(f"{path}: labels must be from 0 to {known - 1}, found {counted.min()} to {counted.max()}")


def image_shape(config: Any) -> tuple[int, int, int]:
    """Return the channels, height and width of the images that a model takes."""
    size = config.image_size
    high, wide = (int(v) for v in (size if isinstance(size, tuple | list) else (size, size)))
    return int(config.num_channels), high, wide


def _images(path: Path, array: Any, config: Any) -> Tensor:
    """Return images as [samples, channels, height, width]; channels may come last, and bytes are scaled to −1 … 1."""
    wanted = image_shape(config)
    if array.ndim == 4 and tuple(array.shape[1:]) == (*wanted[1:], wanted[0]):
        array = array.transpose(0, 3, 1, 2)
    if array.ndim != 4 or tuple(array.shape[1:]) != wanted:
        raise BadInput(f"{path}: images have shape {list(array.shape[1:])}, but the model takes {list(wanted)}")
    values = torch.from_numpy(np.ascontiguousarray(array))
    return values.float() / 127.5 - 1.0 if array.dtype == np.uint8 else values.float()
