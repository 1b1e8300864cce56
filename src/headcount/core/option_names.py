"""How a message names an option: `--data` on the command line, `data` in Python."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

_as_flags: ContextVar[bool] = ContextVar("headcount_options_as_flags", default=False)


def option(name: str) -> str:
    """Return an option's name as the caller writes it."""
    return f"--{name.replace('_', '-')}" if _as_flags.get() else name


@contextmanager
def options_as_flags() -> Generator[None]:
    """Name options as flags of the command line in all messages made inside."""
    token = _as_flags.set(True)
    try:
        yield
    finally:
        _as_flags.reset(token)
