"""Run the benchmark: the table of steps, then the sweep if requested, as one result with its provenance."""

from __future__ import annotations

import gc
import importlib.metadata
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch

from benchmarks.peers.floor import peak_rate
from benchmarks.peers.steps import CPU_ROWS, CUDA_ROWS, BenchPlan, check_device, measure
from benchmarks.peers.sweep import BenchSweep, run_sweep_bench, sweep_of
from benchmarks.result_sources import recorded
from headcount.core import BadInput, Progress, cores, nearest, provenance
from headcount.training import full_precision, start_kernels

Result = dict[str, Any]


def help_seconds(times: int = 7) -> float:
    """Return the median time of several runs of `headcount --help`."""
    seconds: list[float] = []
    for _ in range(times):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "headcount", "--help"], check=True, capture_output=True)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def result_name(device: str, hardware: str) -> str:
    """Return the name of a result, after the hardware: bench-cpu or bench-h200, for example."""
    if device == "cpu":
        return "bench-cpu"
    words = re.findall(r"[a-z0-9]+", hardware.lower())
    return "-".join(["bench", *(word for word in words if word not in ("nvidia", "geforce", "tesla"))])


def check_skip(skip: Sequence[str], device: str, *, sweep: bool) -> None:
    """Refuse to skip an unknown row, or everything."""
    rows = CPU_ROWS if device == "cpu" else CUDA_ROWS
    allowed = ["steps", *(row for row in rows if row != "engine")]
    for name in skip:
        if name not in allowed:
            raise BadInput(f"unknown row or table {name!r} for --skip: {nearest(name, allowed)}")
    if "steps" in skip and not sweep:
        raise BadInput("--skip steps leaves nothing to time: add --sweep")


def run_bench(
    device: str = "cpu",
    *,
    sweep: bool = False,
    steps: int | None = None,
    skip: Sequence[str] = (),
    quiet: bool = False,
    save: Callable[[Result], None] | None = None,
    plan: BenchPlan | None = None,
    trials: BenchSweep | None = None,
) -> Result:
    """Measure everything; `save` is called after every part, so that an interrupted run keeps what it has.

    `plan` and `trials` are smaller sizes for tests.
    """
    check_skip(skip, device, sweep=sweep)
    trials = trials or sweep_of(device, steps)
    check_device(device)
    plan = plan or BenchPlan(device=device, skip=tuple(skip))
    hardware = "cpu" if device == "cpu" else torch.cuda.get_device_name()
    origin = provenance(hardware)
    cast("dict[str, str]", origin["versions"]).update(_versions("jax", "triton", "numba"))
    rate = peak_rate(device)
    name = result_name(device, hardware)
    result: Result = {
        "name": name,
        "provenance": origin,
        "source": recorded(name),
        "seeds": [0],
        "counts": {"turns": plan.turns, "cores": cores(), "models": plan.stacked},
        "what": "µs per model and training step: batch 256, d = 4, h = 4, n = 8, N = 32, Adam included",
        "peak": rate[1],
    }
    keep = save or (lambda _: None)
    with full_precision():
        if "steps" not in skip:
            _steps(result, plan, rate[0], quiet, keep)
        if sweep:
            result["seeds"] = list(range(trials.seeds))
            result["counts"]["trials"] = len(trials.shapes) * trials.seeds
            result["sweep"] = run_sweep_bench(
                trials, device, rate, skip=skip, quiet=quiet, keep=lambda part: keep({**result, "sweep": part})
            )
            keep(result)
    return result


def _steps(result: Result, plan: BenchPlan, rate: float, quiet: bool, keep: Callable[[Result], None]) -> None:
    threads = torch.get_num_threads()
    with Progress("timing", len(plan.lengths) * plan.turns + 1, quiet=quiet) as progress:
        if plan.device == "cpu":
            start_kernels(progress, "float32", [plan.model(length) for length in plan.lengths])
        for length in plan.lengths:
            result[f"T={length}"] = measure(plan, length, rate, progress)
            torch.set_num_threads(threads)
            gc.collect()  # compiled programs keep their arrays alive in reference cycles
            if plan.device == "cuda":
                torch.cuda.empty_cache()
            keep(result)
        if plan.device == "cpu":
            result["help_seconds"] = help_seconds()
        progress.advance(note="done")


def _versions(*packages: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
