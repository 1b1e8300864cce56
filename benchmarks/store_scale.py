"""What a large store costs: a sweep of four trials in it, its listings, and one more trial, before and after.

    python -m benchmarks.store_scale --before COMMIT

builds a store of 101,000 finished trials with the code of the commit and one with this checkout's, and measures both,
each question in a process of its own: seconds and memory beyond what imports and the same question to an empty store
take; of several repetitions the least. It writes benchmarks/results/store-scale.json.
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
ROWS = 101_000
BATCH = 500
REPEATS = 3
TRIALS = 300
"""So many trials are claimed and finished to find the cost of one."""
PLAN: dict[str, Any] = {
    "heads": [1, 2],
    "seeds": 2,
    "task": {"family": "min-plus-max", "length": 4},
    "model": {"head_dim": 2, "hidden": 4},
    "train": {"steps": 2, "warmup": 0, "batch": 2, "train_size": 4, "validation_size": 4, "evaluations": 1},
}


def spec(number: int) -> dict[str, Any]:
    """The spec of one trial, of the size that sweeps have."""
    from headcount.sweeps import SweepSpec

    if "data" not in _FIRST:
        _FIRST["data"] = SweepSpec.parse({"name": "first", **PLAN}).panels()[0].trial(1, 0).data()
    return {**_FIRST["data"], "seed": number}


_FIRST: dict[str, dict[str, Any]] = {}


def outcome(trial: str, number: int, weights: bool = True) -> Any:
    """How a trial ended, with a curve of twenty points and small weights."""
    import numpy as np

    from headcount.store import Outcome

    metrics = {"heads": 1, "seed": number, "nmse": 1 / (1 + number), "train_nmse": 0.5, "steps": 40, "parameters": 40}
    where = {"commit": "0" * 12, "versions": {"python": "3.11", "torch": "2"}, "machine": {"cores": 2}, "seconds": 0.1}
    curve = [(step, 1 / step) for step in range(1, 21)]
    arrays = {"theta": np.zeros(40, np.float32)} if weights else None
    return Outcome(trial, "done", metrics, where, curve, step=40, arrays=arrays)


def build(folder: Path, number: int) -> None:
    """Fill a store with so many finished trials, as stacks do."""
    from headcount.store import Store

    with Store.open(folder) as store:
        for start in range(0, number, BATCH):
            names = store.add_run("big", [spec(one) for one in range(start, min(start + BATCH, number))])
            store.claim(names)
            store.finish_many([outcome(name, start + place) for place, name in enumerate(names)])


def sweep(folder: Path, name: str) -> None:
    """A sweep of four new trials, read back."""
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
    """`headcount runs --json`."""
    headcount("runs", "--store", str(folder), "--json")


def rows(folder: Path, _: str) -> None:
    """`headcount runs RUN --json` of all trials, or of the few of an empty store."""
    from headcount.store import Store

    with Store.open(folder, create=False) as store:
        run = next(iter(store.runs()))
    headcount("runs", run, "--store", str(folder), "--json")


def trial(folder: Path, name: str) -> None:
    """Claim and finish some trials, each by itself."""
    from headcount.store import Store

    with Store.open(folder) as store:
        first = 10_000_000 + int(name) * TRIALS
        names = store.add_run("more", [spec(first + number) for number in range(TRIALS)])
        for number, one in enumerate(names):
            store.claim([one])
            store.finish_many([outcome(one, number)])


QUESTIONS: dict[str, Callable[[Path, str], None]] = {"sweep": sweep, "runs": listing, "runs RUN": rows, "trial": trial}


def measure(question: str, folder: Path, name: str) -> dict[str, float]:
    """Ask one question in this process, warm: once of a small store, then of the store."""
    asked = QUESTIONS[question]
    with (
        tempfile.TemporaryDirectory() as other,
        Path(os.devnull).open("w") as nowhere,
        contextlib.redirect_stdout(nowhere),
    ):
        sweep(Path(other), "0")
        asked(Path(other), "1")
        begun = time.perf_counter()
        asked(Path(other), "2")
        small = time.perf_counter() - begun
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        begun = time.perf_counter()
        asked(folder, name)
        seconds = time.perf_counter() - begun
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {"seconds": seconds, "seconds_small": small, "megabytes": grown / 1024}


def ask(source: Path, *arguments: str) -> dict[str, float]:
    """Run this script with the code of some source."""
    command = [sys.executable, "-m", "benchmarks.store_scale", "--child", *arguments]
    done = subprocess.run(command, env=environment(source), capture_output=True, text=True, cwd=REPO, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout or "{}")


def least(source: Path, question: str, folder: Path, first: int) -> dict[str, float]:
    """The least of several repetitions, each number by itself."""
    tries = [ask(source, question, str(folder), str(first + number)) for number in range(REPEATS)]
    return {key: round(min(one[key] for one in tries), 4) for key in tries[0]}


def both(source: Path, place: Path) -> dict[str, Any]:
    """Build the large store with the code of a source, and ask everything."""
    large, thousand = place / "large", place / "thousand"
    begun = time.perf_counter()
    ask(source, "build", str(large), str(ROWS))
    print(f"built in {time.perf_counter() - begun:.0f} s", flush=True)
    ask(source, "build", str(thousand), "1000")
    found: dict[str, Any] = {}
    for number, question in enumerate(QUESTIONS):
        found[question.replace(" ", "_")] = least(source, question, large, 10 * (number + 1))
        print(question, found[question.replace(" ", "_")], flush=True)
    small = least(source, "trial", thousand, 100)
    large_ms, small_ms = (1e3 * one["seconds"] / TRIALS for one in (found["trial"], small))
    found["milliseconds_a_trial"] = {"in_1000": round(small_ms, 3), "in_101000": round(large_ms, 3)}
    return found


def child(what: str, folder: Path, number: str) -> None:
    """Build a store, or answer one question about it."""
    if what == "build":
        build(folder, int(number))
    else:
        sys.stdout.write(json.dumps(measure(what, folder, number)))


def main() -> None:
    """Measure the code of a commit and that of this checkout, and write both down."""
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], Path(sys.argv[3]), sys.argv[4])
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", required=True, help="The commit to compare with.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        before = both(unpack_code(options.before, Path(folder)), Path(folder) / "a")
        after = both(REPO / "src", Path(folder) / "b")
    from results import write_result  # not in the children, which run older code too

    names = [question.replace(" ", "_") for question in QUESTIONS]
    ratios = {name: round(before[name]["seconds"] / after[name]["seconds"], 1) for name in names}
    payload = {"before_commit": options.before, "before": before, "after": after, "times_faster": ratios}
    write_result("store-scale", payload, seeds=[0], counts={"rows": ROWS, "repeats": REPEATS, "trials": TRIALS})


if __name__ == "__main__":
    main()
