"""Loading of the CPU kernels: from machine code that an earlier process compiled, or that a child process compiles now.

A process never runs code that it compiled itself. It would hold every inner function twice, compiled separately and as
part of the entry point, and might run a different copy than a process that loads the entry point from disk. The sums of
the two copies round differently in the last bit, so the same trial could give other bits the first time.
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
    """Return whether numba can cache the kernels on disk."""
    return hasattr(run._cache, "_cache_file")  # numba has no public function for this


def is_on_disk(dtype: str) -> bool:
    """Return whether numba's cache has the kernels for this source, processor and precision."""
    cache: Any = run._cache
    return cache._index_key(signature(dtype), run.targetctx.codegen()) in cache._cache_file._load_index()


def compile_kernels(dtype: str) -> None:
    """Load the kernels from disk, or compile them in this process and cache them on disk."""
    run.compile(signature(dtype))


def _compile_in_a_child(dtype: str) -> None:
    code = f"from headcount.kernels.step.numba_cache import compile_kernels; compile_kernels({dtype!r})"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    if folder := settings.CACHE_DIR or fallback_folder_in_use():
        environment["NUMBA_CACHE_DIR"] = folder
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        log.info("the kernels could not be compiled in a child process: %s", done.stderr.strip()[-200:])


@functools.cache
def _load(dtype: str) -> None:
    if not settings.DISABLE_JIT:
        if is_kept() and not is_on_disk(dtype):
            _compile_in_a_child(dtype)
        compile_kernels(dtype)


def load_kernels(dtype: str) -> None:
    """Load the kernels for a precision: takes half a second from disk, half a minute the first time."""
    with _lock:  # several trials may start at the same time
        _load(dtype)
