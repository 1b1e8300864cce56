"""What does a large store cost? Time a small sweep in it, its listings, and one more trial, before and after a change.

    python -m benchmarks.store_scale --before COMMIT

builds one store of 101,000 finished trials with the code of the commit and one with the code of this checkout, and
measures both. Each question runs in a process of its own. It measures the seconds in this store and in a small one, and
the memory beyond what imports and the small store take; the smallest of several repetitions counts. The script writes
benchmarks/results/store-scale.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import runpy
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.old_code import REPO, environment, unpack_code

sys.path.append(str(REPO / "tests"))
STORED_TRIALS = 101_000
TRIALS_PER_COMMIT = 500
REPEATS = 3
TIMED_TRIALS = 300
"""How many trials are claimed and finished to find the cost of one."""
PLAN: dict[str, Any] = {
    "heads": [1, 2],
    "seeds": 2,
    "task": {"family": "min-plus-max", "length": 4},
    "model": {"head_dim": 2, "hidden": 4},
    "train": {"steps": 2, "warmup": 0, "batch": 2, "train_size": 4, "validation_size": 4, "evaluations": 1},
}


def spec(number: int) -> dict[str, Any]:
    """Return the spec of one trial, as large as those of real sweeps."""
    from headcount.sweeps import SweepSpec

    if "data" not in _FIRST_SPEC:
        _FIRST_SPEC["data"] = SweepSpec.parse({"name": "first", **PLAN}).panels()[0].trial(1, 0).data()
    return {**_FIRST_SPEC["data"], "seed": number}


_FIRST_SPEC: dict[str, dict[str, Any]] = {}


def outcome(trial: str, number: int, weights: bool = True) -> Any:
    """Return how a trial ended, with a curve of twenty points and small weights."""
    import numpy as np

    from headcount.store import Outcome

    metrics = {"heads": 1, "seed": number, "nmse": 1 / (1 + number), "train_nmse": 0.5, "steps": 40, "parameters": 40}
    where = {"commit": "0" * 12, "versions": {"python": "3.11", "torch": "2"}, "machine": {"cores": 2}, "seconds": 0.1}
    curve = [(step, 1 / step) for step in range(1, 21)]
    arrays = {"theta": np.zeros(40, np.float32)} if weights else None
    return Outcome(trial, "done", metrics, where, curve, step=40, arrays=arrays)


def build(folder: Path, number: int) -> None:
    """Fill a store with a number of finished trials, many per commit, as stacks do."""
    from headcount.store import Store

    with Store.open(folder) as store:
        for start in range(0, number, TRIALS_PER_COMMIT):
            names = store.add_run("big", [spec(one) for one in range(start, min(start + TRIALS_PER_COMMIT, number))])
            store.claim(names)
            store.finish_many([outcome(name, start + place) for place, name in enumerate(names)])


def sweep(folder: Path, name: str) -> None:
    """Run a sweep of four new trials and read it back."""
    from headcount.store import Store
    from headcount.sweeps import SweepSpec, run_on_store, stored_runs

    length = 5 + int(name)  # new trials each time
    plan = SweepSpec.parse({"name": f"new{name}", **PLAN, "task": {"family": "min-plus-max", "length": length}})
    with Store.open(folder) as store:
        run_on_store(plan, store, quiet=True, workers=1)
        stored_runs(store, plan.name, plan)


def headcount(*arguments: str) -> None:
    """Run the command line in this process."""
    with mock.patch.object(sys, "argv", ["headcount", *arguments]):
        try:
            runpy.run_module("headcount", run_name="__main__")
        except SystemExit as left:
            if left.code:
                raise


def listing(folder: Path, _: str) -> None:
    """Run `headcount runs --json`."""
    headcount("runs", "--store", str(folder), "--json")


def rows(folder: Path, _: str) -> None:
    """Run `headcount runs RUN --json` for all trials of the store's first run."""
    from headcount.store import Store

    with Store.open(folder, create=False) as store:
        run = next(iter(store.runs()))
    headcount("runs", run, "--store", str(folder), "--json")


def trial(folder: Path, name: str) -> None:
    """Claim and finish some trials, one at a time."""
    from headcount.store import Store

    with Store.open(folder) as store:
        first = 10_000_000 + int(name) * TIMED_TRIALS
        names = store.add_run("more", [spec(first + number) for number in range(TIMED_TRIALS)])
        for number, one in enumerate(names):
            store.claim([one])
            store.finish_many([outcome(one, number)])


QUESTIONS: dict[str, Callable[[Path, str], None]] = {"sweep": sweep, "runs": listing, "runs RUN": rows, "trial": trial}


def measure(question: str, folder: Path, name: str) -> dict[str, float]:
    """Answer one question in this process, after a warm-up: for a small store, then for the given one."""
    run_question = QUESTIONS[question]
    with (
        tempfile.TemporaryDirectory() as other,
        Path(os.devnull).open("w") as nowhere,
        contextlib.redirect_stdout(nowhere),
    ):
        sweep(Path(other), "0")
        run_question(Path(other), "1")
        start = time.perf_counter()
        run_question(Path(other), "2")
        small = time.perf_counter() - start
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start = time.perf_counter()
        run_question(folder, name)
        seconds = time.perf_counter() - start
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {"seconds": seconds, "seconds_small": small, "megabytes": grown / 1024}


def ask(source: Path, *arguments: str) -> dict[str, float]:
    """Run this script as a child process that imports the package from `source`."""
    command = [sys.executable, "-m", "benchmarks.store_scale", "--child", *arguments]
    done = subprocess.run(command, env=environment(source), capture_output=True, text=True, cwd=REPO, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout or "{}")


def smallest(source: Path, question: str, folder: Path, first: int) -> dict[str, float]:
    """Return the smallest value of each measurement over several repetitions."""
    tries = [ask(source, question, str(folder), str(first + number)) for number in range(REPEATS)]
    return {key: round(min(one[key] for one in tries), 4) for key in tries[0]}


def measure_code(source: Path, place: Path) -> dict[str, Any]:
    """Build the large store with the code in `source`, and answer all questions."""
    large, thousand = place / "large", place / "thousand"
    start = time.perf_counter()
    ask(source, "build", str(large), str(STORED_TRIALS))
    print(f"built in {time.perf_counter() - start:.0f} s", flush=True)
    ask(source, "build", str(thousand), "1000")
    found: dict[str, Any] = {}
    for number, question in enumerate(QUESTIONS):
        found[question.replace(" ", "_")] = smallest(source, question, large, 10 * (number + 1))
        print(question, found[question.replace(" ", "_")], flush=True)
    small = smallest(source, "trial", thousand, 100)
    large_ms, small_ms = (1e3 * one["seconds"] / TIMED_TRIALS for one in (found["trial"], small))
    found["milliseconds_a_trial"] = {"in_1000": round(small_ms, 3), "in_101000": round(large_ms, 3)}
    return found


def child(what: str, folder: Path, number: str) -> None:
    """Build a store or answer one question about it, in a child process."""
    if what == "build":
        build(folder, int(number))
    else:
        sys.stdout.write(json.dumps(measure(what, folder, number)))


def main() -> None:
    """Measure the code of a commit and of this checkout, and write the result."""
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], Path(sys.argv[3]), sys.argv[4])
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", required=True, help="the commit to compare with")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        before = measure_code(unpack_code(options.before, Path(folder)), Path(folder) / "a")
        after = measure_code(REPO / "src", Path(folder) / "b")
    from results import write_result  # not in the children, which run older code too

    names = [question.replace(" ", "_") for question in QUESTIONS]
    ratios = {name: round(before[name]["seconds"] / after[name]["seconds"], 1) for name in names}
    payload = {"before_commit": options.before, "before": before, "after": after, "times_faster": ratios}
    write_result(
        "store-scale", payload, seeds=[0], counts={"rows": STORED_TRIALS, "repeats": REPEATS, "trials": TIMED_TRIALS}
    )


if __name__ == "__main__":
    main()
