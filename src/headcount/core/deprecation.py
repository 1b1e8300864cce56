"""Deprecated names that still work: each warns once per call site what to use instead and when it is removed.

The policy is in docs/decisions.md: a public name, argument or flag that changes works for two more minor versions.
"""

from __future__ import annotations

import warnings
from typing import TypeVar

from headcount.core.errors import BadInput

T = TypeVar("T")


def warn_deprecated(old: str, instead: str, removed: str, *, depth: int = 2) -> None:
    """Warn that `old` is deprecated: what to do instead, and the version in which it is removed.

    depth: how many calls up the user's own line is; 2 is the caller of the deprecated function.
    """
    message = f"{old} is deprecated and will be removed in headcount {removed}: {instead}"
    warnings.warn(message, DeprecationWarning, stacklevel=depth + 1)


def renamed_argument(old: str, value: T | None, new: str, given: T | None, removed: str) -> T | None:
    """Return the value of a renamed argument, given under its old or its new name; both at once are refused."""
    if value is None:
        return given
    if given is not None:
        raise BadInput(f"{old} is the old name of {new}: give only {new}")
    warn_deprecated(old, f"use {new}", removed, depth=3)
    return value
