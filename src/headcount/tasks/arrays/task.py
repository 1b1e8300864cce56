"""Tasks made of users' own data: arrays of sequences and targets from memory, .npz, .npy, .parquet or .csv files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from headcount.core import BadInput, arrays_hash, generator
from headcount.core.text import plain, valid_text
from headcount.tasks.arrays.codes import Codes, id_codes
from headcount.tasks.arrays.files import read_arrays
from headcount.tasks.arrays.labels import Kind, check_kind, class_labels, one_hot
from headcount.tasks.arrays.tensors import readable

MIN_SAMPLES = 10
"""Samples that a task needs."""


class Part(NamedTuple):
    """A subset of the samples as tensors: X[n, length, dim], y[n, out_dim], mask[n, length] or None."""

    X: Tensor
    y: Tensor
    mask: Tensor | None


@dataclass(frozen=True, eq=False)
class ArrayTask:
    """Samples of an unknown function: X[samples, length, dim], y[samples, out_dim], mask[samples, length].

    Made by `from_arrays` or `load`. It has the attributes of every task (name, length, dim, out_dim, intrinsic)
    but is not a `Task`: no function is known, so it can be split, but neither evaluated at new inputs nor
    sampled. Numbers are stored as 64-bit floats and are read-only. mask is True at real tokens, and None if all
    are real; padding is set to 0, so nothing depends on its content.
    """

    name: str
    X: NDArray[np.float64]
    y: NDArray[np.float64]
    mask: NDArray[np.bool_] | None
    classes: tuple[Any, ...] | None = None
    """The labels in the order of the columns of y if y holds classes, which makes it one-hot; otherwise None."""
    codes: Codes | None = None
    """The ids behind one-hot vectors if X was given as whole numbers X[samples, length]; otherwise None."""

    @classmethod
    def from_arrays(
        cls,
        X: Any,
        y: Any,
        mask: Any = None,
        name: str = "arrays",
        where: str | None = None,
        kind: Kind = "regression",
    ) -> ArrayTask:
        """Return a task of X[samples, length, dim], y[samples] or y[samples, out], mask[samples, length].

        The arrays are checked and copied. X[samples, length] holds one number per token; whole numbers (of an integer
        type) are ids, and become one-hot vectors in the order of `codes`. `kind` says what y holds: numbers
        ("regression"), or one label per sample ("classification"), which become one-hot targets named by `classes`;
        "auto" takes text and a few different whole numbers for labels, like `advise`. Errors begin with `where`, the
        source of the arrays (default: the name).
        """
        where = where or name
        check_kind(kind)
        labels = None if kind == "regression" else class_labels(where, y, kind)
        if labels is None:
            return _checked(name, where, X, y, mask)
        targets, classes = one_hot(where, labels)
        return replace(_checked(name, where, X, targets, mask), classes=classes)

    @classmethod
    def load(cls, path: str | Path, y: str | Path | None = None, kind: Kind = "auto") -> ArrayTask:
        """Return a task read from a file, by its ending; `kind` says what y holds, as in `from_arrays`.

        .npz: the arrays X, y and, if some tokens are padding, mask. .npy: X; y is a second file, by default the
        sibling whose name has y for X (X.npy → y.npy, X_train.npy → y_train.npy). .parquet and .csv: one row per
        token, with columns sequence (a number or text), position (0, 1, 2, … in each sequence, or from 1) and target
        (or target_0, target_1, … for a vector), constant within a sequence; every other column is a feature.
        Shorter sequences are padded. A .csv file is UTF-8 with commas, and its first line names the columns.
        """
        path = Path(path)
        X, targets, mask = read_arrays(path, None if y is None else Path(y), text=kind != "regression")
        return cls.from_arrays(X, targets, mask, valid_text(path.stem), str(path), kind)

    @property
    def samples(self) -> int:
        """The number of sequences."""
        return self.X.shape[0]

    @property
    def length(self) -> int:
        """The number of tokens per sequence, padding included."""
        return self.X.shape[1]

    @property
    def dim(self) -> int:
        """The number of features per token."""
        return self.X.shape[2]

    @property
    def out_dim(self) -> int:
        """The number of targets."""
        return self.y.shape[1]

    @property
    def intrinsic(self) -> None:
        """None: the intrinsic dimension D of data is not known."""
        return

    def hash(self) -> str:
        """Return the identity of the data: a hash over the numbers, independent of their file and type."""
        arrays: dict[str, NDArray[Any]] = {"X": self.X, "y": self.y}
        if self.mask is not None:
            arrays["mask"] = self.mask
        return arrays_hash(arrays)

    def split(self, seed: int, fraction: float = 0.2, *, dtype: torch.dtype = torch.float64) -> tuple[Part, Part]:
        """Return (training, validation): disjoint, together all samples, the same for the same seed.

        fraction: the fraction of the samples used for validation. dtype: of the tensors.
        """
        if not 0 < fraction < 1:
            raise BadInput(f"fraction must be above 0 and below 1, not {fraction}")
        if seed < 0:
            raise BadInput(f"seed must be at least 0, not {seed}")
        order = generator(seed, "split").permutation(self.samples)
        count = min(max(round(fraction * self.samples), 1), self.samples - 1)
        return self._part(order[count:], dtype), self._part(order[:count], dtype)

    def _part(self, rows: NDArray[np.int64], dtype: torch.dtype) -> Part:
        """Return these samples as tensors."""
        mask = None if self.mask is None else torch.from_numpy(self.mask[rows])
        return Part(torch.from_numpy(self.X[rows]).to(dtype), torch.from_numpy(self.y[rows]).to(dtype), mask)

    def __repr__(self) -> str:
        sizes = f"{self.samples} samples, d={self.dim}, T={self.length}, out={self.out_dim}"
        return f"<ArrayTask {plain(self.name)}: {sizes}>"


def _checked(name: str, where: str, inputs: Any, targets: Any, padding: Any) -> ArrayTask:
    """Return a task of checked, read-only copies of the arrays."""
    given, y = _numbers(where, "X", inputs), _numbers(where, "y", targets)
    ids = given.ndim == 2 and _array(where, "X", inputs).dtype.kind in "iu"
    X = given[:, :, None] if given.ndim == 2 else given
    if X.ndim != 3:
        raise BadInput(
            f"{where}: X must be X[samples, length, dim], or X[samples, length] with one number or id per token, not "
            f"of shape {list(X.shape)}"
        )
    if y.ndim not in (1, 2):
        raise BadInput(f"{where}: y must be y[samples] or y[samples, out], not of shape {list(y.shape)}")
    if len(X) != len(y):
        raise BadInput(f"{where}: X has {len(X)} samples but y has {len(y)}: the first axis of both must count samples")
    for what, array in (("X", X), ("y", y)):
        if array.size == 0:
            raise BadInput(f"{where}: {what} is empty (shape {list(array.shape)}): no axis may have length 0")
    if len(X) < MIN_SAMPLES:
        few = "1 sample is" if len(X) == 1 else f"{len(X)} samples are"
        raise BadInput(f"{where}: {few} too few: give {MIN_SAMPLES} or more")
    y = y.reshape(len(y), -1)
    mask = None if padding is None else _mask(where, padding, X.shape[:2])
    if mask is not None:
        X[~mask] = 0.0
        mask = None if mask.all() else mask
    _finite(where, "X", X, ("sample", "position", "feature"))
    _finite(where, "y", y, ("sample", "component"))
    codes = id_codes(where, X, mask) if ids else None
    tokens = X if codes is None else codes.apply(X, mask)
    for array in (tokens, y) if mask is None else (tokens, y, mask):
        array.flags.writeable = False
    return ArrayTask(name, tokens, y, mask, codes=codes)


def _array(where: str, what: str, value: Any) -> NDArray[Any]:
    """Return anything array-like as an array of numbers or booleans; everything else is refused."""
    try:
        array = np.asarray(readable(value))
    except (TypeError, ValueError):
        remedy = "; pad shorter sequences and mark real tokens True in mask" if what == "X" else ""
        raise BadInput(
            f"{where}: {what} is not an array: its rows differ in length, or hold something other than numbers{remedy}"
        ) from None
    if array.dtype.kind not in "biuf":
        kind = "Python objects" if array.dtype.kind == "O" else f"entries of type {array.dtype}"
        labels = ', or set kind="classification"' if what == "y" and array.dtype.kind in "US" else ""
        raise BadInput(f"{where}: {what} holds {kind}: give whole or floating-point numbers{labels}")
    return array


def _numbers(where: str, what: str, value: Any) -> NDArray[np.float64]:
    """Return a copy in 64-bit floats."""
    array = np.array(_array(where, what, value), dtype=np.float64, order="C")
    array += 0.0  # −0 is 0: equal numbers, equal hash
    return array


def _mask(where: str, value: Any, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return a checked mask: True or 1 at real tokens, of which every sample has at least one."""
    array = _array(where, "mask", value)
    if array.shape != shape:
        raise BadInput(f"{where}: mask must be mask[samples, length] = {list(shape)}, not {list(array.shape)}")
    if not np.isin(array, (0, 1)).all():
        raise BadInput(f"{where}: mask must hold only True (real tokens) and False (padding), or 1 and 0")
    mask = array.astype(np.bool_)
    empty = np.flatnonzero(~mask.any(axis=1))
    if empty.size:
        raise BadInput(f"{where}: mask has no real token in sample {empty[0]} (from 0): drop it, or mark a token True")
    return mask


def _finite(where: str, what: str, array: NDArray[np.float64], axes: tuple[str, ...]) -> None:
    """Refuse NaN and infinity; the error names the place of the first one."""
    bad = ~np.isfinite(array)
    if bad.any():
        place = np.unravel_index(int(bad.argmax()), array.shape)
        named = ", ".join(f"{axis} {i}" for axis, i in zip(axes, place, strict=True))
        padding = ", or mark padding in mask" if what == "X" else ""
        raise BadInput(
            f"{where}: {what} holds {array[place]} at {named} (from 0; {int(bad.sum())} in all): "
            f"drop or fill such entries{padding}"
        )
