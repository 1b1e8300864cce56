"""`make bench`: a training step of the reference beside torch's own layers, and the start of the command line.

The reference is written to be read; the figure here is the baseline that a fast engine has to beat.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from headcount.base.files import write_json
from headcount.base.progress import Progress
from headcount.base.provenance import provenance
from headcount.bench.peers import TorchLayers
from headcount.experiments.data import prepare
from headcount.experiments.spec import TrainSpec
from headcount.models.reference import Transformer
from headcount.models.spec import ModelSpec
from headcount.tasks.families import make_task

LENGTHS = (8, 32, 128)
REPEATS = 5


def _stepper(model: nn.Module, X: torch.Tensor, y: torch.Tensor) -> Callable[[], None]:
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)

    def step() -> None:
        loss = (model(X) - y).square().mean()
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()

    return step


def _microseconds(step: Callable[[], None], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        step()
    return (time.perf_counter() - start) / count * 1e6


def measure(length: int) -> dict[str, float]:
    """Time both on the same batch, in turns, so that a noisy machine disturbs both alike."""
    task = make_task("sum-of-maxima", intrinsic=4, dim=4, length=length)
    part = prepare(task, TrainSpec(train_size=256, validation_size=2)).train
    spec = ModelSpec(dim=4, length=length, heads=4, head_dim=8, hidden=32)
    models = {"reference": Transformer(spec), "torch_layers": TorchLayers(spec)}
    steps = {name: _stepper(model, part.X, part.y) for name, model in models.items()}
    count = max(10, 800 // length)
    for step in steps.values():
        _microseconds(step, 5)
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(REPEATS):
        for name, step in steps.items():
            times[name].append(_microseconds(step, count))
    medians = {f"{name}_us": statistics.median(values) for name, values in times.items()}
    ratios = [a / b for a, b in zip(times["torch_layers"], times["reference"], strict=True)]
    return {**medians, "torch_layers_over_reference": statistics.median(ratios)}


def help_seconds() -> float:
    """Time `headcount --help`, the median of several."""
    times: list[float] = []
    for _ in range(7):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "headcount", "--help"], check=True, capture_output=True)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    """Measure, print and, with a path, write the result."""
    torch.set_num_threads(1)
    with Progress("timing", len(LENGTHS) + 1) as progress:
        results: dict[str, object] = {}
        for length in LENGTHS:
            results[f"T={length}"] = measure(length)
            progress.advance(note=f"T = {length}")
        results["help_seconds"] = help_seconds()
        progress.advance(note="headcount --help")
    payload = {
        "name": "bench-plain",
        "provenance": provenance(),
        "seeds": [0],
        "counts": {"repeats": REPEATS},
        "what": "one training step, batch 256, d = 4, h = 4, n = 8, N = 32, one thread, optimiser included",
        **results,
    }
    sys.stdout.write(json.dumps(payload, indent=2) + "\n")
    if len(sys.argv) > 1:
        write_json(Path(sys.argv[1]), payload)


if __name__ == "__main__":
    main()
