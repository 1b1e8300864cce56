"""Make the CPU kernels ready: load the machine code that an earlier process compiled, or have a child compile it.

A process never runs what it compiled itself. It would hold every inner function twice, as compiled alone and as
compiled into the entry, and might run the other copy than a process that loads the entry from disk: two codes of one
function, whose sums round differently in the last bit. So the same trial could end in other bits the first time.
"""

from __future__ import annotations

import functools
import logging
import os
import subprocess
import sys
import threading
from typing import Any

from numba.core import config

from headcount.core import fallback_folder_in_use
from headcount.kernels.step import numba as cpu_step
from headcount.kernels.step.numba import signature

run: Any = cpu_step.run
settings: Any = config
log = logging.getLogger("headcount")
_lock = threading.Lock()


def is_kept() -> bool:
    """Say whether there is a place on disk for the kernels."""
    return hasattr(run._cache, "_cache_file")  # numba has no public way to ask


def is_on_disk(dtype: str) -> bool:
    """Say whether numba's cache has the kernels for this source, this processor and this precision."""
    cache: Any = run._cache
    return cache._index_key(signature(dtype), run.targetctx.codegen()) in cache._cache_file._load_index()


def compile_kernels(dtype: str) -> None:
    """Load the kernels, or compile them in this process and leave them on disk."""
    run.compile(signature(dtype))


def _compile_in_a_child(dtype: str) -> None:
    code = f"from headcount.kernels.step.numba_cache import compile_kernels; compile_kernels({dtype!r})"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    if folder := settings.CACHE_DIR or fallback_folder_in_use():
        environment["NUMBA_CACHE_DIR"] = folder
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        log.info("the kernels could not be compiled in a process of their own: %s", done.stderr.strip()[-200:])


@functools.cache
def _load(dtype: str) -> None:
    if not settings.DISABLE_JIT:
        if is_kept() and not is_on_disk(dtype):
            _compile_in_a_child(dtype)
        compile_kernels(dtype)


def load_kernels(dtype: str) -> None:
    """Have the kernels for a precision in memory: half a second from disk, half a minute the first time."""
    with _lock:  # trials start side by side
        _load(dtype)
