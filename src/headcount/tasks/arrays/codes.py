"""Ids and other categories as one-hot vectors: a category is not a quantity.

As a number, id 23 lies between 22 and 24 and above 7, which says nothing about what it stands for; a model then needs
heads to undo a meaningless order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headcount.core import BadInput

MAX_CATEGORIES = 64
"""Different values up to which a column of whole numbers may hold categories."""
MAX_ONE_HOT_BYTES = 2**31
"""Memory limit of the one-hot vectors."""
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Codes:
    """The columns that are categories, with the values of each in the order of its one-hot vector."""

    values: tuple[tuple[int, tuple[float, ...]], ...]

    @property
    def columns(self) -> list[int]:
        """The indices of the category columns, before encoding."""
        return [column for column, _ in self.values]

    def apply(self, X: Floats, mask: NDArray[np.bool_] | None = None) -> Floats:
        """Return X[samples, length, dim] with categories as one-hot vectors, placed after the other columns.

        An unknown value, and padding, becomes a vector of zeros.
        """
        parts = [np.delete(X, self.columns, axis=2)]
        for column, values in self.values:
            matches = X[:, :, column, None] == np.array(values)
            parts.append((matches if mask is None else matches & mask[:, :, None]).astype(np.float64))
        return np.concatenate(parts, 2)


def id_codes(where: str, X: Floats, mask: NDArray[np.bool_] | None) -> Codes:
    """Return the codes of X[samples, length, 1] in which every number is an id."""
    values = np.unique(X if mask is None else X[mask])
    if X.size * len(values) * 8 > MAX_ONE_HOT_BYTES:
        raise BadInput(
            f"{where}: X holds {len(values):,} different ids, too many for one-hot vectors: give one vector per "
            f"token, X[samples, length, dim], or X.astype(float) if the numbers are quantities"
        )
    return Codes(((0, tuple(values.tolist())),))


def category_codes(X: Floats, mask: NDArray[np.bool_] | None) -> Codes | None:
    """Return the codes of columns that look categorical (3 to `MAX_CATEGORIES` whole numbers), or None without any.

    Two values need no code: a linear map turns them into a one-hot vector.
    """
    tokens = X.reshape(-1, X.shape[2]) if mask is None else X[mask]
    found: list[tuple[int, tuple[float, ...]]] = []
    for column in range(X.shape[2]):
        numbers = tokens[:, column]
        sample = np.unique(numbers[:10_000])  # rules most columns out quickly
        if len(sample) > MAX_CATEGORIES or bool((sample != np.round(sample)).any()):
            continue
        values = np.unique(numbers)
        if 2 < len(values) <= MAX_CATEGORIES and bool((values == np.round(values)).all()):
            found.append((column, tuple(values.tolist())))
    if not found or X.size * sum(len(values) for _, values in found) * 8 > MAX_ONE_HOT_BYTES * X.shape[2]:
        return None
    return Codes(tuple(found))
