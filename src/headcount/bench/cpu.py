"""Training speed on this machine's CPU, beside what people use instead, on the same work in one run.

The work: the paper's synthetic model (d = 4, h = 4, n = 8, N = 32), batch 256, Adam included, T = 8, 32, 128. The
peers train one model at a time, with one thread or with all, whichever is faster; the engine trains a model a core.
All are timed in turns, several times, so that a noisy machine disturbs all alike; a ratio is the median over turns.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import nn

from headcount.base.progress import Progress
from headcount.base.provenance import cores, provenance
from headcount.bench.peers import TorchLayers
from headcount.experiments.cpu import single_threaded_blas, start_kernels
from headcount.experiments.data import Part, prepare
from headcount.experiments.spec import TrainSpec
from headcount.models.compiled import NO_MASK, Compiled
from headcount.models.reference import Transformer
from headcount.models.spec import ModelSpec
from headcount.tasks.families import make_task

LENGTHS = (8, 32, 128)
TURNS = 5
PEERS = {
    "nn_mha": "nn.MultiheadAttention, all rows ask",
    "class_query": "nn.MultiheadAttention, the class token asks",
    "reference": "our reference, written to be read",
    "engine": "our engine, a model a core",
}


def _torch_work(model: nn.Module, part: Part, steps: int, threads: int) -> Callable[[], int]:
    """Return a function that trains one model for some steps and says how many model-steps that was."""
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)

    def work() -> int:
        torch.set_num_threads(threads)
        for _ in range(steps):
            loss = (model(part.X) - part.y).square().mean()
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
        return steps

    return work


def _engine_work(spec: ModelSpec, part: Part, steps: int) -> Callable[[], int]:
    """Return a function that trains as many models as there are cores, side by side."""
    compiled, count = Compiled(spec), cores()
    start = compiled.flat.pack(Transformer(spec))
    states = [(start.copy(), np.zeros_like(start), np.zeros_like(start)) for _ in range(count)]
    X, y = part.X.numpy(), part.y.numpy()
    index, rates = np.tile(np.arange(len(X)), (steps, 1)), np.full(steps, 1e-3)
    pool = ThreadPoolExecutor(count)

    def one(state: tuple[Any, Any, Any]) -> int:
        return compiled.steps(*state, X, y, NO_MASK, index, rates, 0, 0.0, False)

    def work() -> int:
        with single_threaded_blas():
            return sum(pool.map(one, states))

    return work


def measure(length: int) -> dict[str, float]:
    """Time all of them on the same batch; return µs per model-step and the ratios to the engine."""
    task = make_task("sum-of-maxima", intrinsic=4, dim=4, length=length)
    part = prepare(task, TrainSpec(train_size=256, batch=256, validation_size=2)).train
    spec = ModelSpec(dim=4, length=length, heads=4, head_dim=8, hidden=32)
    few = max(3, 160 // length)
    models = {
        "nn_mha": TorchLayers(spec, all_rows=True), "class_query": TorchLayers(spec, all_rows=False),
        "reference": Transformer(spec),
    }  # fmt: skip
    works = {
        (name, threads): _torch_work(model, part, few, threads)
        for name, model in models.items()
        for threads in sorted({1, cores()})
    }
    works["engine", cores()] = _engine_work(spec, part, 16 * few)
    for work in works.values():
        work()
    turns: dict[tuple[str, int], list[float]] = {key: [] for key in works}
    for _ in range(TURNS):
        for key, work in works.items():
            start = time.perf_counter()
            steps = work()
            turns[key].append((time.perf_counter() - start) / steps * 1e6)
    times = {name: min((v for key, v in turns.items() if key[0] == name), key=statistics.median) for name in PEERS}
    result = {f"{name}_us": statistics.median(values) for name, values in times.items()}
    for name in models:
        ratios = [a / b for a, b in zip(times[name], times["engine"], strict=True)]
        result[f"{name}_over_engine"] = statistics.median(ratios)
    return result


def help_seconds() -> float:
    """Time `headcount --help`, the median of several."""
    times: list[float] = []
    for _ in range(7):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "headcount", "--help"], check=True, capture_output=True)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def run_bench(*, quiet: bool = False) -> dict[str, Any]:
    """Measure everything and return a result with its provenance."""
    results: dict[str, Any] = {}
    with Progress("timing", len(LENGTHS) + 1, quiet=quiet) as progress:
        start_kernels(progress, "float32")
        for length in LENGTHS:
            results[f"T={length}"] = measure(length)
            progress.advance(note=f"T = {length}")
        results["help_seconds"] = help_seconds()
        progress.advance(note="headcount --help")
    return {
        "name": "bench-cpu", "provenance": provenance(), "seeds": [0], "counts": {"turns": TURNS, "cores": cores()},
        "what": "µs per model and training step: batch 256, d = 4, h = 4, n = 8, N = 32, Adam included", **results,
    }  # fmt: skip
