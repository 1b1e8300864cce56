"""Old names that go on working: each warns once a place, and says what to write and when it goes.

The policy is in docs/decisions.md: a public name, argument or flag that changes works for two more minor versions.
"""

from __future__ import annotations

import warnings
from typing import TypeVar

from headcount.core.errors import BadInput

T = TypeVar("T")


def warn_deprecated(old: str, instead: str, removed: str, *, depth: int = 2) -> None:
    """Warn that a name is deprecated: what to use instead, and the version in which it goes.

    depth: how many calls up the caller's own line is; 2 is that of who called the deprecated function.
    """
    told = f"{old} is deprecated and goes in headcount {removed}: {instead}"
    warnings.warn(told, DeprecationWarning, stacklevel=depth + 1)


def renamed_argument(old: str, value: T | None, new: str, given: T | None, removed: str) -> T | None:
    """Return the value of an argument that was renamed, whichever of its names was used; refuse both at once."""
    if value is None:
        return given
    if given is not None:
        raise BadInput(f"{old} is the old name of {new}: give {new} alone")
    warn_deprecated(old, f"use {new}", removed, depth=3)
    return value
