"""numba's decorator, with a place for the machine code wherever the package is installed.

numba keeps machine code beside the source or in the home folder. Where neither can be written to, a folder of our own
takes it, among the system's temporary files: one that nobody else can write to, since whoever can write there decides
what this process runs.
"""

from __future__ import annotations

import atexit
import functools
import logging
import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
log = logging.getLogger("headcount")


def cached_njit(**options: Any) -> Callable[[F], F]:
    """Return numba's decorator with these options and a cache on disk; without one where there is no safe place."""
    import numba

    def decorate(function: F) -> F:
        decorated: Any = None
        try:
            decorated = numba.njit(cache=True, **options)(function)
        except RuntimeError as error:
            if "no locator" not in str(error):
                raise
        return _in_own_folder(function, options) if decorated is None else decorated

    return decorate


def _in_own_folder(function: F, options: dict[str, Any]) -> F:
    """Decorate a function whose machine code has no place of numba's choice."""
    import numba
    from numba.core import config

    settings: Any = config
    folder = own_folder()
    before, settings.CACHE_DIR = settings.CACHE_DIR, folder or ""
    try:  # numba looks at the setting now and never again
        decorated: Any = numba.njit(cache=folder is not None, **options)(function)
    finally:
        settings.CACHE_DIR = before
    return decorated


@functools.cache
def own_folder() -> str | None:
    """Return our folder for machine code, the same for all processes of a user; None where none is safe."""
    try:
        parent = Path(tempfile.gettempdir())
        mode = parent.stat().st_mode
        if mode & 0o022 and not mode & stat.S_ISVTX:  # anybody could put another folder in the place of ours
            raise PermissionError
        folder = _lasting_folder(parent) or _passing_folder(parent)
    except OSError:
        log.info("compiled code cannot be kept (no folder is safe to write to): every process compiles it anew")
        return None
    log.info(
        "compiled code is kept in %s, since neither the installed package nor the home folder can be written to", folder
    )
    return str(folder)


def folder_in_use() -> str | None:
    """Return our folder where some machine code is kept there; None where numba found a place."""
    return own_folder() if own_folder.cache_info().currsize else None


def _lasting_folder(parent: Path) -> Path | None:
    """Return the user's own folder in the temporary one; None where that name is taken by somebody else."""
    if not hasattr(os, "geteuid"):
        return None
    folder = parent / f"headcount-{os.geteuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()  # not what a link points to
    private = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
    return folder if private and os.access(folder, os.W_OK | os.X_OK) else None


def _passing_folder(parent: Path) -> Path:
    """Make a folder for this process and its children, and remove it at the end."""
    folder = Path(tempfile.mkdtemp(prefix="headcount-", dir=parent))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
