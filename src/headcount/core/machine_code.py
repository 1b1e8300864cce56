"""numba's decorator with a disk cache for the machine code, wherever the package is installed.

numba caches machine code beside the source or in the home folder. Where neither is writable, the cache goes to a
folder among the system's temporary files that nobody else can write to, since whoever can write there decides what
this process runs.
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
    """Return numba's decorator with these options and a disk cache, or no cache where no folder is safe."""
    import numba

    def decorate(function: F) -> F:
        decorated: Any = None
        try:
            decorated = numba.njit(cache=True, **options)(function)
        except RuntimeError as error:
            if "no locator" not in str(error):
                raise
        return _with_fallback_cache(function, options) if decorated is None else decorated

    return decorate


def _with_fallback_cache(function: F, options: dict[str, Any]) -> F:
    """Decorate a function for which numba finds no cache folder of its own."""
    import numba
    from numba.core import config

    settings: Any = config
    folder = fallback_folder()
    before, settings.CACHE_DIR = settings.CACHE_DIR, folder or ""
    try:  # numba reads the setting only now
        decorated: Any = numba.njit(cache=folder is not None, **options)(function)
    finally:
        settings.CACHE_DIR = before
    return decorated


@functools.cache
def fallback_folder() -> str | None:
    """Return the fallback cache folder, the same for all processes of a user; None where no folder is safe."""
    try:
        parent = Path(tempfile.gettempdir())
        mode = parent.stat().st_mode
        if mode & 0o022 and not mode & stat.S_ISVTX:  # anybody could replace our folder
            raise PermissionError
        folder = _user_folder(parent) or _process_folder(parent)
    except OSError:
        log.info("compiled code is not cached (no folder is safe to write to): every process compiles it again")
        return None
    log.info("compiled code is cached in %s: neither the installed package nor the home folder is writable", folder)
    return str(folder)


def fallback_folder_in_use() -> str | None:
    """Return the fallback cache folder if some function uses it; None where numba found its own."""
    return fallback_folder() if fallback_folder.cache_info().currsize else None


def _user_folder(parent: Path) -> Path | None:
    """Return the folder shared by all processes of this user; None where somebody else owns or can write to it."""
    if not hasattr(os, "geteuid"):
        return None
    folder = parent / f"headcount-{os.geteuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()  # of a link itself, not of its target
    private = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077
    return folder if private and os.access(folder, os.W_OK | os.X_OK) else None


def _process_folder(parent: Path) -> Path:
    """Make a folder for this process and its children, which is removed at exit."""
    folder = Path(tempfile.mkdtemp(prefix="headcount-", dir=parent))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
