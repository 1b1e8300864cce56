"""Errors that users see: one line that says what is wrong, what is allowed and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from headcount.core.text.harmless import plain


class HeadcountError(Exception):
    """Base class of all errors meant for users; the command line prints one line and exits with status 2."""

    def __str__(self) -> str:
        """Return the message without control characters: names in it come from files and users."""
        return plain(super().__str__(), lines=True)


class BadInput(HeadcountError):
    """A value, name or file that cannot be used."""


class MissingExtra(HeadcountError):
    """An optional package is not installed; the hint names the source folder, since headcount is not on PyPI."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package {package}, which is not installed: "
            f"run pip install '.[{extra}]' in headcount's source folder"
        )


def nearest(word: object, allowed: Iterable[str]) -> str:
    """Return "did you mean …?" for the closest allowed word, if any, and the list of all allowed words."""
    names = sorted(allowed)
    close = difflib.get_close_matches(str(word), names, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}allowed: {', '.join(names)}"
