"""Predictions of the best model that an advice found, for new sequences in the user's units."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headcount.advisor.data import Material
from headcount.advisor.measures import predicted
from headcount.advisor.trials import Outcome
from headcount.core import BadInput
from headcount.training import Part


def predict(best: Outcome, material: Material, X: Any, mask: Any = None) -> NDArray[Any]:
    """Return y[samples], y[samples, out], or labels."""
    sequences, real = _checked(best, material, X, mask)
    inputs = material.inputs(sequences, real)
    part = Part(inputs, torch.zeros(len(inputs), 1), None if real is None else torch.from_numpy(real))
    values = predicted(best.network(), part) * material.width.numpy() + material.center.numpy()
    if material.classes is not None:
        return np.asarray(material.classes)[values.argmax(1)]
    return values[:, 0] if values.shape[1] == 1 else values


def _checked(
    best: Outcome, material: Material, X: Any, mask: Any
) -> tuple[NDArray[np.float64], NDArray[np.bool_] | None]:
    """Return the sequences and the mask as arrays; raise BadInput for what the model cannot take."""
    dim, length = material.dim, material.task.length
    try:
        found = np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError):
        raise BadInput(f"X must hold numbers, [samples, length, {dim}]") from None
    found = found[:, :, None] if found.ndim == 2 and dim == 1 else found
    if found.ndim != 3 or found.shape[2] != dim or 0 in found.shape:
        raise BadInput(f"X must be [samples, length, {dim}], as it was trained on, not {list(found.shape)}")
    if best.model.positions != "none" and found.shape[1] != length:
        raise BadInput(
            f"the best model uses positions: X must have {length} tokens, as in training, not {found.shape[1]}"
        )
    real = None if mask is None else np.asarray(mask, dtype=np.bool_)
    if real is not None and (real.shape != found.shape[:2] or not real.any(1).all()):
        raise BadInput(f"mask must be {list(found.shape[:2])}, True on at least one token of every sequence")
    if not np.isfinite(found if real is None else found[real]).all():
        raise BadInput("X holds numbers that are not finite: fill them in, or hide their tokens with a mask")
    return found, real
