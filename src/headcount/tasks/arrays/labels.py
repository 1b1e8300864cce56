"""Class labels: when targets are labels, and labels as one-hot targets; one rule for `advise` and `train`."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from headcount.core import BadInput
from headcount.tasks.arrays.tensors import readable

Kind = Literal["auto", "regression", "classification"]
MAX_CLASSES = 20
"""Different values up to which whole numbers are taken for classes, unless the caller says otherwise, …"""
MIN_SAMPLES_PER_CLASS = 20
"""… provided that a value has this many samples on average."""
VARY_TARGETS = "give a y that differs between samples"
"""What to do about a constant target."""


def check_kind(kind: str) -> None:
    """Refuse an unknown kind."""
    if kind not in ("auto", "regression", "classification"):
        raise BadInput(f"kind must be auto, regression or classification, not {kind!r}")


def class_labels(where: str, y: Any, kind: Kind) -> NDArray[Any] | None:
    """Return y as labels if it holds classes, and None if it holds numbers."""
    try:
        labels = np.asarray(readable(y))
    except ValueError:
        raise BadInput(f"{where}: the rows of y differ in length: give a number, label or vector per sample") from None
    if kind == "regression":
        if labels.dtype.kind in "US":
            raise BadInput(f"{where}: y holds text: give numbers, or set kind to classification")
        return None
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1 or labels.size == 0:
        if kind == "classification":
            raise BadInput(
                f"{where}: classes must be y[samples], one label per sequence, not of shape {list(labels.shape)}"
            )
        return None
    if labels.dtype.kind == "S":
        return np.char.decode(labels, "utf-8", "replace")
    if kind == "classification" or labels.dtype.kind in "bUS":
        return labels
    if labels.dtype.kind == "O":
        texts = [isinstance(label, str) for label in labels]
        if any(texts) and not all(texts):
            raise BadInput(
                f"{where}: y holds text and, at sample {texts.index(False)} (from 0), {labels[texts.index(False)]!r}: "
                f"give a text for every sample, and drop samples without a label"
            )
        return labels.astype(str) if all(texts) else None
    if labels.dtype.kind not in "iu" and not (labels.dtype.kind == "f" and bool((labels == np.round(labels)).all())):
        return None
    count = len(np.unique(labels))
    return labels if count <= MAX_CLASSES and count * MIN_SAMPLES_PER_CLASS <= len(labels) else None


def one_hot(where: str, labels: NDArray[Any]) -> tuple[NDArray[np.float64], tuple[Any, ...]]:
    """Return the labels as one-hot rows, and the names of the classes in the order of the columns."""
    if labels.dtype.kind == "f" and not bool(np.isfinite(labels).all()):
        raise BadInput(
            f"{where}: y holds NaN or infinity at sample {int(np.argmin(np.isfinite(labels)))} (from 0): "
            f"drop or fill such entries"
        )
    try:
        names, places = np.unique(labels, return_inverse=True)
    except TypeError:
        raise BadInput(f"{where}: y mixes labels of different types: give only text or only numbers") from None
    if 2 * len(names) > len(labels):
        numbers = labels.dtype.kind in "iuf"
        remedy = "set kind to regression if y is a quantity" if numbers else "give at least two samples per class"
        raise BadInput(
            f"{where}: {len(names)} classes for {len(labels)} samples: most labels occur only once, so no class can "
            f"be learned; {remedy}"
        )
    if len(names) == 1:
        raise BadInput(f"{where}: y is constant ({names[0]}): there is nothing to learn; {VARY_TARGETS}")
    return np.eye(len(names))[places], tuple(names.tolist())
