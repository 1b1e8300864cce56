"""Ask many questions at a time: in threads that share a GPU, or in processes with their own cores.

Every answer is saved as a row when it arrives, so an interrupted run can be resumed: questions with a row are skipped.
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
    jobs: Mapping[str, Callable[[], Row]], rows_file: Path, *, at_once: int = 1, cores: int | None = None
) -> tuple[list[Row], int]:
    """Return the rows of all jobs that have one, in the order of the jobs, and how many jobs failed.

    `jobs` are callables by name, and `rows_file` has the rows so far by name. With `cores`, every worker is a process
    with this many cores to itself; otherwise workers are threads.
    """
    found: dict[str, Row] = json.loads(rows_file.read_text(encoding="utf-8")) if rows_file.exists() else {}
    pending = {name: job for name, job in jobs.items() if name not in found}
    with _pool(at_once, cores) as pool:
        names = {pool.submit(_timed, job): name for name, job in pending.items()}
        for future in as_completed(names):
            name = names[future]
            try:
                found[name] = future.result()
            except Exception as error:  # a failed question is counted, not hidden
                print("FAILED", name, repr(error), flush=True)
                continue
            print(name, json.dumps(found[name]), flush=True)
            rows_file.write_text(json.dumps(found), encoding="utf-8")
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
        raise SystemExit(f"{at_once} questions with {cores} cores each need more than this machine's {len(own)} cores")
    context = multiprocessing.get_context("spawn")
    core_sets = context.SimpleQueue()
    for n in range(at_once):
        core_sets.put(own[n * cores : (n + 1) * cores])
    return ProcessPoolExecutor(at_once, context, initializer=_pin_to_cores, initargs=(core_sets,))


def _pin_to_cores(core_sets: Any) -> None:
    """Pin this worker to the next set of cores."""
    os.sched_setaffinity(0, core_sets.get())
