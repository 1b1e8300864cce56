"""A model folder as the verifier reads it: with the shared strict reader, and with none of the model's own code."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headcount.core import BadInput
from headcount.core.readers import read_model_file

Array = NDArray[np.float64]


class Rejected(Exception):
    """Raised when a certificate or witness does not hold; the message says why."""


@dataclass(frozen=True)
class Weights:
    """The tensors of a model, with the settings that determine what they compute."""

    config: dict[str, Any]
    tensors: dict[str, Array]
    hash: str

    def __getitem__(self, name: str) -> Array:
        return self.tensors[name]


def read_weights(folder: Path) -> Weights:
    """Read a model folder: settings, tensors and hash, as `core/readers/model_file.py` accepts them."""
    try:
        found = read_model_file(folder)
    except BadInput as error:
        raise Rejected(f"the model cannot be read: {error}") from None
    return Weights(found.config, {name: t.astype(np.float64) for name, t in found.tensors.items()}, found.hash)
