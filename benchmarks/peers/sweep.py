"""Time a whole sweep, table 2 of the paper, by our engine and by JAX: the same trials from the same initial weights.

Sum of four maxima, heads 1 to 5, five lengths, 16 seeds, N = 32, n = 8, batch 256, 8,000 training and 2,000
validation sequences. Both draw their own batches, evaluate at the same steps and report the same error, so the best
errors side by side show that both did the work. Compiling is timed separately: our first call with a step or two per
trial, and JAX's compilation of one program per shape. Only we also evaluate the training set at the end.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from benchmarks.peers.floor import flop_per_token
from benchmarks.peers.jax_sweep import jax_twin
from benchmarks.peers.sweep_plan import BenchSweep, Errors
from benchmarks.peers.turns import PeerUnavailable, settle, short_reason
from headcount.core import BadInput, Progress
from headcount.sweeps import train_jobs
from headcount.tasks import Task, make_task
from headcount.training import Dataset, Job, TrainSpec, prepare


def sweep_of(device: str, steps: int | None = None) -> BenchSweep:
    """Return table 2 on a GPU, or on a CPU a sample of it that takes a minute or two."""
    steps = (2000 if device == "cuda" else 100) if steps is None else steps
    if steps < 1:
        raise BadInput(f"--steps must be at least 1, not {steps}")
    train = TrainSpec(steps=steps, warmup=min(200, steps // 2))
    return BenchSweep(train) if device == "cuda" else BenchSweep(train, lengths=(8, 32), seeds=2)


def _jobs(sweep: BenchSweep, tasks: dict[int, Task], data: dict[int, Dataset], train: TrainSpec) -> list[Job]:
    return [
        Job(tasks[T], sweep.model(h, T), train, seed, data[T]) for h, T in sweep.shapes for seed in range(sweep.seeds)
    ]


def run_ours(
    sweep: BenchSweep, tasks: dict[int, Task], data: dict[int, Dataset], device: str
) -> tuple[dict[str, Any], Errors]:
    """Train everything with `train_jobs`; a first call with the same shapes and two steps compiles."""
    short = TrainSpec.parse({**sweep.train.data(), "steps": 2, "warmup": 0, "evaluations": 1})
    seconds: list[float] = []
    errors: Errors = {}
    for train in (short, sweep.train):
        jobs = _jobs(sweep, tasks, data, train)
        settle(device)
        start = time.perf_counter()
        trials = train_jobs(jobs, device=device, quiet=True)
        settle(device)
        seconds.append(time.perf_counter() - start)
        errors = {shape: [] for shape in sweep.shapes}
        for job, trial in zip(jobs, trials, strict=True):
            errors[job.model.heads, job.model.length].append(trial.nmse)
    return {"seconds": seconds[1], "first_call_seconds": seconds[0]}, errors


def best(sweep: BenchSweep, errors: Errors) -> dict[str, dict[str, float | None]]:
    """Return the smallest final error over the seeds, by heads and length."""
    found = {shape: [e for e in values if e is not None] for shape, values in errors.items()}
    return {
        f"h={h}": {f"T={T}": min(found[h, T], default=None) for T in sorted(sweep.lengths)} for h in sorted(sweep.heads)
    }


def run_sweep_bench(
    sweep: BenchSweep,
    device: str,
    peak: tuple[float, str],
    *,
    skip: Sequence[str] = (),
    quiet: bool = False,
    keep: Callable[[dict[str, Any]], None] = lambda _: None,
) -> dict[str, Any]:
    """Time the sweep by both; compare times, errors and the arithmetic floor. `keep` is called with our part first."""
    tasks = {T: make_task("sum-of-maxima", intrinsic=4, dim=4, length=T) for T in sweep.lengths}
    data = {T: prepare(tasks[T], sweep.train) for T in sweep.lengths}
    trials = len(sweep.shapes) * sweep.seeds
    steps = trials * sweep.train.steps
    with Progress("sweep", 1 + (1 + sweep.programs) * len(sweep.shapes), quiet=quiet) as progress:
        progress.advance(0, note="ours")
        ours, errors = run_ours(sweep, tasks, data, device)
        progress.advance(note=f"ours: {ours['seconds']:.1f} s")
        result: dict[str, Any] = {
            "what": sweep.description(),
            "trials": trials,
            "shapes": len(sweep.shapes),
            "steps": sweep.train.steps,
            "ours": {**ours, "us_per_model_step": ours["seconds"] / steps * 1e6, "best": best(sweep, errors)},
        }
        result |= floor_of(sweep, peak, ours["seconds"])
        keep({**result, "absent": {"jax": "the run was cut off"}})
        if device == "cuda":
            torch.cuda.empty_cache()  # JAX has its own allocator
        try:
            if "jax" in skip:
                raise PeerUnavailable("left out")
            theirs, others = jax_twin(sweep, data, device, progress)
        except PeerUnavailable as reason:
            return {**result, "absent": {"jax": str(reason)}}
        except Exception as error:  # a failing peer must not lose our own times
            return {**result, "absent": {"jax": short_reason(error)}}
    result["jax"] = {**theirs, "us_per_model_step": theirs["seconds"] / steps * 1e6, "best": best(sweep, others)}
    return {**result, **compare(ours, theirs, errors, others)}


def floor_of(sweep: BenchSweep, peak: tuple[float, str], seconds: float) -> dict[str, Any]:
    """Return the least time that the arithmetic takes, and its share of ours."""
    tokens = {(h, T): sweep.seeds * sweep.train.steps * sweep.train.batch * T for h, T in sweep.shapes}
    flop = sum(count * flop_per_token(sweep.model(h, T)) for (h, T), count in tokens.items())
    found: dict[str, Any] = {"tokens": sum(tokens.values()), "flop": flop, "peak": peak[1]}
    if peak[0]:
        found |= {"peak_flops": peak[0], "floor_seconds": flop / peak[0], "share_of_floor": flop / peak[0] / seconds}
    return found


def compare(ours: dict[str, Any], theirs: dict[str, Any], errors: Errors, others: Errors) -> dict[str, Any]:
    """Return how many times longer JAX took, and the ratios of the best errors of the shapes (1 means equal)."""
    ratios: list[float] = []
    for shape, values in errors.items():
        a = [e for e in values if e is not None]
        b = [e for e in others[shape] if e is not None]
        if a and b:
            ratios.append(min(a) / min(b))
    found: dict[str, Any] = {
        "jax_over_ours": theirs["seconds"] / ours["seconds"],
        "jax_over_ours_with_compiling": (theirs["seconds"] + theirs["compile_seconds"])
        / (ours["seconds"] + ours["first_call_seconds"]),
    }
    if ratios:
        found["best_error_ours_over_jax"] = {
            "median": statistics.median(ratios),
            "least": min(ratios),
            "greatest": max(ratios),
        }
    return found
