"""Sequences in long form, one row a token: which column is what, and rows in any order as padded arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headcount.core import BadInput
from headcount.core.readers import check_size

Arrays = tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None]
"""X, y and the mask of a file, still unchecked."""

_COLUMNS = "a row is a token, with columns sequence, position, target (or target_0, target_1, …), the rest features"


@dataclass(frozen=True, eq=False)
class Tokens:
    """The rows of a file: codes number the sequences in the order in which they first appear.

    label names a sequence by its code, place a row as the user counts it.
    """

    codes: NDArray[np.int64]
    position: NDArray[np.int64]
    features: NDArray[np.float64]
    targets: NDArray[np.float64]
    label: Callable[[int], int | str]
    place: Callable[[int], str]


def wanted(name: str) -> str:
    """What the column of this name must hold."""
    return {"sequence": "whole numbers or text", "position": "whole numbers from 0 on, not too large"}.get(
        name, "numbers"
    )


def roles(where: str, names: list[str]) -> tuple[list[str], list[str]]:
    """Say which columns are targets and which are features."""
    for name in ("sequence", "position"):
        if name not in names:
            raise BadInput(f"{where}: there is no column {name!r}: {_COLUMNS}")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise BadInput(f"{where}: there are two columns {twice[0]!r}: name every column once")
    found = [name for name in names if name.startswith("target")]
    numbered = [f"target_{i}" for i in range(len(found))]
    if set(found) not in ({"target"}, set(numbered)) or not found:
        what = f"the columns of the target are {', '.join(found)}" if found else "there is no column 'target'"
        raise BadInput(f"{where}: {what}: {_COLUMNS}")
    others = {"sequence", "position", *found}
    features = [name for name in names if name not in others]
    if not features:
        raise BadInput(f"{where}: there is no column of features: {_COLUMNS}")
    return (found if found == ["target"] else numbered), features


def padded(path: Path, tokens: Tokens) -> Arrays:
    """Place every token, in whatever order the rows come; check positions and targets of each sequence."""
    codes, position, targets = tokens.codes, tokens.position, tokens.targets
    counts = np.bincount(codes)
    order = np.lexsort((position, codes))
    starts = np.cumsum(counts) - counts
    first = int(position.min() == 1)  # all counted from 1, or all from 0
    expected = np.arange(len(codes)) - starts[codes[order]] + first
    wrong = np.flatnonzero(position[order] != expected)
    if wrong.size:
        row, due = int(order[wrong[0]]), int(expected[wrong[0]])
        raise BadInput(
            f"{path}: the positions of sequence {tokens.label(int(codes[row]))!r} are not {first}, {first + 1}, "
            f"{first + 2}, … each once: {_misplaced(int(position[row]), due, first)} {tokens.place(row)}; "
            "number the tokens, as df.groupby('sequence').cumcount() does"
        )
    y = targets[order[starts]]
    same = (targets == y[codes]) | (np.isnan(targets) & np.isnan(y[codes]))
    moved = np.flatnonzero(~same.all(axis=1))
    if moved.size:
        row = int(moved[0])
        raise BadInput(
            f"{path}: the target changes within sequence {tokens.label(int(codes[row]))!r}: "
            f"it must be the same in all its rows, but is another in {tokens.place(row)}"
        )
    check_size(
        8 * len(counts) * int(counts.max()) * tokens.features.shape[1],
        tokens.features.nbytes,
        f"{path}: {len(counts):,} sequences padded to the longest, {int(counts.max()):,} tokens,",
    )
    X = np.zeros((len(counts), int(counts.max()), tokens.features.shape[1]))
    mask = np.zeros(X.shape[:2], dtype=np.bool_)
    X[codes, position - first] = tokens.features
    mask[codes, position - first] = True
    return X, y, mask


def with_names(arrays: Arrays, names: list[str] | None) -> Arrays:
    """Return y[samples] as text where it came as the places of these names; without names, all as it is."""
    X, y, mask = arrays
    return arrays if names is None else (X, np.array(names)[y[:, 0].astype(np.int64)], mask)


def _misplaced(found: int, due: int, first: int) -> str:
    """Say how the first wrong position of a sorted sequence is wrong; the place of its row follows."""
    if found > due:
        return f"{due} is missing before {found} in"
    return f"{found} is too small in" if found < first else f"{found} comes again in"
