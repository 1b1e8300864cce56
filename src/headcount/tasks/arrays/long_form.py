"""Sequences in long form, one row per token: the roles of columns, and rows in any order as padded arrays."""

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
"""X, y and the mask of a file, not yet checked."""

_COLUMNS = "give one row per token, with columns sequence, position, target (or target_0, target_1, …) and features"


@dataclass(frozen=True, eq=False)
class Tokens:
    """The rows of a file; `codes` numbers the sequences in the order in which they first appear.

    label: the name of a sequence, by its code. place: a row as the user counts it, such as "line 7".
    """

    codes: NDArray[np.int64]
    position: NDArray[np.int64]
    features: NDArray[np.float64]
    targets: NDArray[np.float64]
    label: Callable[[int], int | str]
    place: Callable[[int], str]


def required_content(name: str) -> str:
    """Return what the column of this name must hold."""
    return {"sequence": "whole numbers or text", "position": "whole numbers from 0 on (of 64 bits)"}.get(
        name, "numbers"
    )


def column_roles(where: str, names: list[str]) -> tuple[list[str], list[str]]:
    """Return the names of the target columns and of the feature columns."""
    for name in ("sequence", "position"):
        if name not in names:
            raise BadInput(f"{where}: missing column {name!r}: {_COLUMNS}")
    duplicates = [name for name, count in Counter(names).items() if count > 1]
    if duplicates:
        raise BadInput(f"{where}: several columns are called {duplicates[0]!r}: every name must be unique")
    targets = [name for name in names if name.startswith("target")]
    numbered = [f"target_{i}" for i in range(len(targets))]
    if set(targets) not in ({"target"}, set(numbered)) or not targets:
        problem = f"the columns of the target are {', '.join(targets)}" if targets else "missing column 'target'"
        raise BadInput(f"{where}: {problem}: {_COLUMNS}")
    features = [name for name in names if name not in {"sequence", "position", *targets}]
    if not features:
        raise BadInput(f"{where}: no feature columns: {_COLUMNS}")
    return (targets if targets == ["target"] else numbered), features


def pad_sequences(path: Path, tokens: Tokens) -> Arrays:
    """Return padded arrays of tokens given in any order, after checking the positions and targets of each sequence."""
    codes, position, targets = tokens.codes, tokens.position, tokens.targets
    counts = np.bincount(codes)
    order = np.lexsort((position, codes))
    starts = np.cumsum(counts) - counts
    first = int(position.min() == 1)  # all sequences count from 1, or all from 0
    expected = np.arange(len(codes)) - starts[codes[order]] + first
    wrong = np.flatnonzero(position[order] != expected)
    if wrong.size:
        row, correct = int(order[wrong[0]]), int(expected[wrong[0]])
        raise BadInput(
            f"{path}: the positions of sequence {tokens.label(int(codes[row]))!r} are not {first}, {first + 1}, "
            f"{first + 2}, … each once: {_position_problem(int(position[row]), correct, first)} {tokens.place(row)}; "
            "number the tokens, e.g. by df.groupby('sequence').cumcount()"
        )
    y = targets[order[starts]]
    constant = (targets == y[codes]) | (np.isnan(targets) & np.isnan(y[codes]))
    changes = np.flatnonzero(~constant.all(axis=1))
    if changes.size:
        row = int(changes[0])
        raise BadInput(
            f"{path}: the target changes within sequence {tokens.label(int(codes[row]))!r}: "
            f"it must be the same in all its rows, but differs in {tokens.place(row)}"
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


def with_class_names(arrays: Arrays, names: list[str] | None) -> Arrays:
    """Return the arrays with the indices in y replaced by these class names; unchanged where names is None."""
    X, y, mask = arrays
    return arrays if names is None else (X, np.array(names)[y[:, 0].astype(np.int64)], mask)


def _position_problem(found: int, correct: int, first: int) -> str:
    """Return what is wrong with the first wrong position of a sorted sequence; the place of its row follows."""
    if found > correct:
        return f"{correct} is missing before {found} in"
    return f"{found} is too small in" if found < first else f"{found} is repeated in"
