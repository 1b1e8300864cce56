"""Ids and other whole numbers as one-hot vectors: a category is not an amount.

As a number, id 23 lies between 22 and 24 and above 7, which says nothing about what it stands for; a model then needs
heads to undo an order that is not there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headcount.core import BadInput

MAX_VALUES = 64
"""A column of whole numbers with at most this many different values may hold categories."""
MAX_BYTES = 2**31
"""Memory that one-hot vectors may take."""
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Codes:
    """Which columns are categories, and the values of each in the order of the one-hot vector."""

    values: tuple[tuple[int, tuple[float, ...]], ...]

    @property
    def columns(self) -> list[int]:
        """The columns, as counted before encoding."""
        return [column for column, _ in self.values]

    def apply(self, X: Floats, mask: NDArray[np.bool_] | None = None) -> Floats:
        """Return X[samples, length, dim] with categories as one-hot vectors, after the other columns.

        A value that was not seen before, and padding, is a vector of zeros.
        """
        parts = [np.delete(X, self.columns, axis=2)]
        for column, values in self.values:
            found = X[:, :, column, None] == np.array(values)
            parts.append((found if mask is None else found & mask[:, :, None]).astype(np.float64))
        return np.concatenate(parts, 2)


def id_codes(where: str, X: Floats, mask: NDArray[np.bool_] | None) -> Codes:
    """Return the codes of X[samples, length, 1], all of whose numbers are ids."""
    values = np.unique(X if mask is None else X[mask])
    if X.size * len(values) * 8 > MAX_BYTES:
        raise BadInput(
            f"{where}: X holds {len(values):,} different ids, too many for one-hot vectors: give a vector a token, "
            f"X[samples, length, dim] (numbers that are amounts: X.astype(float))"
        )
    return Codes(((0, tuple(values.tolist())),))


def category_codes(X: Floats, mask: NDArray[np.bool_] | None) -> Codes | None:
    """Return the codes of all columns that may hold categories: 3 to `MAX_VALUES` different whole numbers.

    Two values need no code: a linear map turns them into a one-hot vector.
    """
    tokens = X.reshape(-1, X.shape[2]) if mask is None else X[mask]
    found: list[tuple[int, tuple[float, ...]]] = []
    for column in range(X.shape[2]):
        numbers = tokens[:, column]
        some = np.unique(numbers[:10_000])  # most columns are ruled out at once
        if len(some) > MAX_VALUES or bool((some != np.round(some)).any()):
            continue
        values = np.unique(numbers)
        if 2 < len(values) <= MAX_VALUES and bool((values == np.round(values)).all()):
            found.append((column, tuple(values.tolist())))
    if not found or X.size * sum(len(values) for _, values in found) * 8 > MAX_BYTES * X.shape[2]:
        return None
    return Codes(tuple(found))
