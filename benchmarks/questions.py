"""Asks many questions at once: in threads that share a GPU, or in processes with cores of their own.

Rows are kept as they come, so that a run that was cut off can be resumed: what has a row is not asked again.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def ask_all(
    jobs: Mapping[str, Callable[[], Row]], kept: Path, *, at_once: int = 1, cores: int | None = None
) -> tuple[list[Row], int]:
    """Return a row for every job that has one, in the order of the jobs, and how many failed.

    `jobs` are named; `kept` is a file with the rows so far, by name. With `cores` every worker is a process that has so
    many to itself; else workers are threads.
    """
    found: dict[str, Row] = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    asked = {name: job for name, job in jobs.items() if name not in found}
    with _pool(at_once, cores) as pool:
        waiting = {pool.submit(_timed, job): name for name, job in asked.items()}
        for done in as_completed(waiting):
            name = waiting[done]
            try:
                found[name] = done.result()
            except Exception as error:  # a lost case is counted, not hidden
                print("FAILED", name, repr(error), flush=True)
                continue
            print(name, json.dumps(found[name]), flush=True)
            kept.write_text(json.dumps(found), encoding="utf-8")
    return [found[name] for name in jobs if name in found], sum(name not in found for name in jobs)


def _timed(job: Callable[[], Row]) -> Row:
    start = time.monotonic()
    row = job()
    return {"seconds": round(time.monotonic() - start, 1)} | row


def _pool(at_once: int, cores: int | None) -> Executor:
    if cores is None:
        return ThreadPoolExecutor(at_once)
    own = sorted(os.sched_getaffinity(0))
    if at_once * cores > len(own):
        raise SystemExit(f"{at_once} questions with {cores} cores each need more than the {len(own)} that are here")
    context = multiprocessing.get_context("spawn")
    sets = context.SimpleQueue()
    for n in range(at_once):
        sets.put(own[n * cores : (n + 1) * cores])
    return ProcessPoolExecutor(at_once, context, initializer=_pin, initargs=(sets,))


def _pin(sets: Any) -> None:
    os.sched_setaffinity(0, sets.get())
