"""Is the estimate of D right? Train tasks that are drawn by seed, not by hand, with 1 to 8 heads at two lengths.

    python -m benchmarks.dimension_study OUT [--device cuda] [--part 1/8]

trains the remaining tasks of the study into a store in OUT and writes OUT/dimension-study.csv with a row per trial.
`tests/analysis` reads it, so the answers are checked without a GPU.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from headcount.store import Store
from headcount.sweeps import SweepSpec, run_on_store, stored_runs
from headcount.tasks import GeneralizedRetrieval, parse_task
from headcount.tasks.expressions import Expr, in_torch

HEADS = list(range(1, 9))
OUTER_MAPS = ["sum", "product", "sum-product", "square", "tanh", "exp"]
TRAIN = {"steps": 10_000, "train_size": 32_768, "learning_rate": 5e-3, "evaluations": 4}
COLUMNS = [
    "run",
    "intrinsic",
    "length",
    "heads",
    "seed",
    "state",
    "nmse",
    "train_nmse",
    "parameters",
    "parameters_total",
]


def task_spec(number: int) -> dict[str, Any]:
    """Draw a task of the study by its number: D in turn, family, d, N, index sets and outer map by seed."""
    rng = np.random.default_rng([20_261_116, number])
    D = 2 + number % 5
    family = str(rng.choice(["sum-of-maxima", "quadratic-basins", "sphere-anchors"]))
    sets = str(rng.choice(["all", "all", "halves", "random"]))
    if family == "sum-of-maxima":
        dim = int(D + rng.integers(0, 3))
        task = {"family": family, "dim": dim, "draw": "orthonormal"}
    else:
        # leaves room for D minimisers far from each other
        dim = int(rng.integers(2 if D < 4 else 3, 5))
        task = {"family": family, "dim": dim, "outer": str(rng.choice(OUTER_MAPS))}
    lengths = [12, 24] if rng.random() < 0.5 else [16, 32]
    # keeps T·d > n·h for every head count: otherwise one wide layer could copy the whole sequence
    head_dim = 2 if lengths[0] * dim <= 4 * HEADS[-1] else 4
    model = {
        "head_dim": head_dim,
        "hidden": int(rng.choice([24, 32])),
        "positions": "none" if sets == "all" else "concatenated",
    }
    for _ in range(1000):
        spec = {"intrinsic": D, "sets": sets, "seed": int(rng.integers(10_000)), **task}
        if is_fair(spec, lengths[0]):
            return {"task": spec, "lengths": lengths, "model": model}
    raise RuntimeError(f"no fair task of {spec}")  # pyright: ignore[reportPossiblyUnboundVariable]


def is_fair(task: dict[str, Any], length: int) -> bool:
    """Whether every z_i carries at least half of its even share of the variance, and the minimisers lie apart.

    The share of z_i is its total effect: how much the target changes when z_i alone is drawn again.
    """
    made = parse_task({**task, "length": length})
    assert isinstance(made, GeneralizedRetrieval)
    z = made.features(made.sample(2000, 0, dtype=torch.float64))
    outer = partial(in_torch.evaluate, cast("Expr", made.F0))
    y, D = outer(z), z.shape[1]
    for i in range(D):
        other = z.clone()
        other[:, i] = z[:, i].roll(1)
        if float((outer(other) - y).square().mean() / 2 / y.var()) < 0.5 / D:
            return False
    # two minimisers whose nearest token is often the same do not lie apart
    at = made.positions(made.sample(2000, 0, dtype=torch.float64))
    same = [(at[:, i] == at[:, j]).double().mean() for i in range(D) for j in range(i)]
    return max(map(float, same), default=0.0) < 0.35


def control_spec(number: int) -> dict[str, Any]:
    """Draw a control by its number: a task with one look-up, or with none."""
    rng = np.random.default_rng([20_261_117, number])
    dim = int(rng.integers(2, 5))
    if number % 2:
        return {"task": {"family": "mean", "dim": dim}, "lengths": [16, 32], "model": {"head_dim": 4, "hidden": 32}}
    family = str(rng.choice(["sum-of-maxima", "quadratic-basins"]))
    task = {"family": family, "intrinsic": 1, "dim": dim, "seed": int(rng.integers(1000))}
    return {"task": task, "lengths": [16, 32], "model": {"head_dim": 4, "hidden": 32}}


def names(first: int = 0) -> list[str]:
    """Return the names of fifty tasks and ten controls; those with `first` = 50 were not used to choose the rule."""
    return [f"study-{first + n:02d}" for n in range(50)] + [f"control-{first + n:02d}" for n in range(10)]


def sweep_of(name: str) -> SweepSpec:
    """Return the sweep of one task of the study."""
    kind, number = name.split("-")
    drawn = (task_spec if kind == "study" else control_spec)(int(number))
    return SweepSpec.parse({"name": name, "heads": HEADS, "seeds": 3, "train": TRAIN, **drawn}, where=name)


def main() -> int:
    """Train the remaining tasks and write the table of all finished trials."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--part", default="1/1", help="which part of the tasks to train, so that processes can share the work"
    )
    parser.add_argument("--first", type=int, default=0, help="number of the first task; 50 is a fresh study")
    parser.add_argument("--seconds", type=float, default=1e9)
    options = parser.parse_args()
    part, parts = map(int, options.part.split("/"))
    start, chosen = time.monotonic(), names(options.first)[part - 1 :: parts]
    options.out.mkdir(parents=True, exist_ok=True)
    table = options.out / (f"dimension-study-{part}.csv" if parts > 1 else "dimension-study.csv")
    with Store.open(options.out / f"store-{part}") as store, table.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore")
        writer.writeheader()
        for name in chosen:
            spec = sweep_of(name)
            left = options.seconds - (time.monotonic() - start)
            if left > 0:
                run_on_store(spec, store, device=options.device, seconds=left, quiet=True)
            if spec.name not in store.runs():
                break
            for run in stored_runs(store, spec.name, spec):
                for trial in run.trials:
                    row = {
                        **trial.model_dump(exclude={"curve"}),
                        "run": spec.name,
                        "intrinsic": run.intrinsic,
                        **run.values,
                    }
                    writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})
            print(f"{spec.name}: {time.monotonic() - start:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
