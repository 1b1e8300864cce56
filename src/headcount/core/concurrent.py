"""Pieces of work side by side where they gain by it: in threads, of which each fills a part of a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TypeVar

T = TypeVar("T")


def together(calls: Sequence[Callable[[], T]], *, threads: bool, halt: Callable[[], object]) -> list[T]:
    """Return what the calls return, made in threads or one after the other.

    Where one fails, or Ctrl-C comes, `halt` tells the others to end.
    """
    if not threads or len(calls) < 2:
        return [call() for call in calls]
    with ThreadPoolExecutor(len(calls)) as pool:
        work = [pool.submit(call) for call in calls]
        try:
            wait(work, return_when=FIRST_EXCEPTION)
            failed = next((one for one in work if one.done() and one.exception() is not None), work[0])
            failed.result()
            return [one.result() for one in work]
        except BaseException:
            halt()
            raise
