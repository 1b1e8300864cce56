"""Is the advice right? Ask about tasks that are drawn by seed, with noise, distractors and classes, not by hand.

    python -m benchmarks.advisor_study OUT [--budget 120] [--device cuda] [--first 0] [--tasks 20] [--controls 10]

asks the advisor about every task, prints one line for each and writes OUT/advisor-study.csv. With --result the outcome
of the whole study is written to OUT/advisor-study.json, or advisor-study-cuda.json on a GPU. Tasks from number 1000 on
are for development. The study itself uses numbers 300 to 319, and on a GPU 280 to 299, which nobody had looked at
before. --at-once asks several questions at a time: in threads, which suits a GPU, or with --cores 2 in processes with
two cores each.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.dimension_study import is_fair
from benchmarks.questions import ask_all
from headcount.advisor import advise
from headcount.tasks import parse_task
from headcount.training import device_name, find_device

OUTER_MAPS = ["sum", "product", "sum-product", "square", "tanh", "exp"]
SAMPLES = 10_000
"""Sequences of each data set."""


@dataclass(frozen=True)
class StudyData:
    """One data set of the study, with the facts known about it."""

    name: str
    X: NDArray[np.float64]
    y: NDArray[Any]
    intrinsic: int | None
    """D; None for a control."""
    about: dict[str, Any]


def study_task(number: int) -> StudyData:
    """Draw a task by its number: D from 1 to 6 in turn, everything else by seed."""
    rng = np.random.default_rng([20_261_118, number])
    D = 1 + number % 6
    family = str(rng.choice(["sum-of-maxima", "quadratic-basins", "sphere-anchors"]))
    sets = str(rng.choice(["all", "all", "halves", "random", "bands"]))
    share = float(rng.uniform(0.4, 0.8))
    length = int(rng.choice([12, 16, 24, 32]))
    if family == "sum-of-maxima":
        task: dict[str, Any] = {"dim": int(D + rng.integers(0, 3)), "draw": "orthonormal"}
    else:
        task = {"dim": int(rng.integers(2 if D < 4 else 3, 5)), "outer": str(rng.choice(OUTER_MAPS))}
    for _ in range(1000):
        spec = {"family": family, "intrinsic": D, "sets": sets, "share": share, **task}
        spec["seed"] = int(rng.integers(10_000))
        if is_fair(spec, length):
            break
    else:
        raise RuntimeError(f"no fair task of {spec}")  # pyright: ignore[reportPossiblyUnboundVariable]
    return _data(f"task-{number}", {**spec, "length": length}, rng, D)


def study_control(number: int) -> StudyData:
    """Draw a control by its number: a mean or a linear map of all tokens, in turn."""
    rng = np.random.default_rng([20_261_119, number])
    length, dim = int(rng.choice([12, 16, 24, 32])), int(rng.integers(1, 5))
    task: dict[str, Any] = {"family": "linear" if number % 2 else "mean", "dim": dim, "length": length}
    if number % 2:
        task["seed"] = int(rng.integers(10_000))
    return _data(f"control-{number}", task, rng, None)


def study_noise(number: int) -> StudyData:
    """Draw data in which y does not depend on X."""
    rng = np.random.default_rng([20_261_120, number])
    X = rng.standard_normal((SAMPLES, int(rng.choice([12, 24])), int(rng.integers(1, 5))))
    y = rng.standard_normal(SAMPLES) if number % 2 == 0 else rng.integers(0, 3, SAMPLES)
    return StudyData(f"noise-{number}", X, y, None, {"kind": "noise"})


def _data(name: str, spec: dict[str, Any], rng: np.random.Generator, D: int | None) -> StudyData:
    """Sample a task, add distractors and noise, and turn some targets into classes."""
    task = parse_task(spec)
    X = task.sample(SAMPLES, int(rng.integers(10_000)), dtype=torch.float64)
    y: NDArray[Any] = task.value(X)[:, 0].numpy()
    distractors = int(rng.integers(0, 3))
    extra = rng.standard_normal((SAMPLES, task.length, distractors))
    noise, classes = float(rng.uniform(0.0, 0.1)), int(rng.choice([0, 0, 2, 3]))
    if classes:
        cuts = np.quantile(y, np.arange(1, classes) / classes)
        y = np.searchsorted(cuts, y)
        y = np.where(rng.random(SAMPLES) < noise, rng.integers(0, classes, SAMPLES), y)
    else:
        y = y + noise * y.std() * rng.standard_normal(SAMPLES)
    order = rng.permutation(task.dim + distractors)
    inputs = np.concatenate([X.numpy(), extra], 2)[:, :, order]
    about = {**spec, "distractors": distractors, "noise": round(noise, 3), "classes": classes}
    return StudyData(name, inputs, y, D, about)


def ask(draw: Callable[[int], StudyData], number: int, budget: float, device: str) -> dict[str, Any]:
    """Draw a data set and ask the advisor about it."""
    return ask_about(draw(number), budget, device)


def ask_about(drawn: StudyData, budget: float, device: str) -> dict[str, Any]:
    """Ask the advisor about one data set and return its answer, with whether it is right."""
    found = advise(drawn.X, drawn.y, budget=budget, device=device, quiet=True).record
    low, high = found.interval
    D = drawn.intrinsic
    return {
        "name": drawn.name,
        "intrinsic": D,
        "recommended": found.recommended_heads,
        "low": low,
        "high": high,
        "verdict": found.verdict,
        "no_transition": found.no_transition,
        "right": found.recommended_heads in (D, (D or 0) + 1) if D else found.verdict == expected(drawn),
        "covered": low <= D <= high if D else None,
        "open": found.interval_open,
        "settled": found.settled,
        "kind": found.kind,
        "error": round(found.curve[-1].validation, 6),
        "seconds": round(found.seconds, 1),
        "about": drawn.about,
        "curve": {p.heads: float(f"{p.validation:.3g}") for p in found.curve},
    }


def expected(drawn: StudyData) -> str:
    """Return the verdict that is right for data without a D."""
    return "noise" if drawn.about.get("kind") == "noise" else "one-head"


def summary(rows: list[dict[str, Any]]) -> dict[str, int]:
    """Count right answers by kind of data; a settled answer is right if it is D, or one head for a control."""
    kinds = {kind: [row for row in rows if row["name"].startswith(kind)] for kind in ("task", "control", "noise")}
    settled = [row for row in (*kinds["task"], *kinds["control"]) if row["settled"]]
    return {
        "tasks": len(kinds["task"]),
        "tasks_right": sum(row["right"] for row in kinds["task"]),
        "tasks_covered": sum(bool(row["covered"]) for row in kinds["task"]),
        "controls": len(kinds["control"]),
        "controls_right": sum(row["right"] for row in kinds["control"]),
        "noise": len(kinds["noise"]),
        "noise_right": sum(row["right"] for row in kinds["noise"]),
        "tasks_open": sum(row["open"] for row in kinds["task"]),
        "settled": len(settled),
        "settled_right": sum(row["recommended"] == (row["intrinsic"] or 1) for row in settled),
    }


def main() -> int:
    """Ask about every data set of the study and count the right answers."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--budget", type=float, default=300.0, help="seconds per data set")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--first", type=int, default=0, help="number of the first data set of each kind")
    parser.add_argument("--tasks", type=int, default=20)
    parser.add_argument("--controls", type=int, default=10)
    parser.add_argument("--noise", type=int, default=2)
    parser.add_argument("--at-once", type=int, default=1, help="questions asked at a time")
    parser.add_argument("--cores", type=int, help="cores per question (default: threads of one process)")
    parser.add_argument("--result", action="store_true", help="also write the outcome as a result file")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    drawers = {
        "task": (study_task, options.tasks),
        "control": (study_control, options.controls),
        "noise": (study_noise, options.noise),
    }
    jobs = {
        f"{kind}-{number}": partial(ask, draw, number, options.budget, options.device)
        for kind, (draw, count) in drawers.items()
        for number in range(options.first, options.first + count)
    }
    start = time.monotonic()
    rows, failed = ask_all(jobs, options.out / "advisor-study-rows.json", at_once=options.at_once, cores=options.cores)
    if failed:
        print(f"{failed} questions have no answer: run the same command again to resume")
        return 1
    with (options.out / "advisor-study.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    counts = summary(rows)
    print(counts)
    if options.result:
        sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
        from results import write_result

        device = find_device(options.device)
        write_result(
            "advisor-study" if device.type == "cpu" else f"advisor-study-{device.type}",
            {
                "rows": rows,
                "budget": options.budget,
                "at_once": options.at_once,
                "cores": options.cores,
                "seconds": round(time.monotonic() - start, 1),
            },
            seeds=list(range(options.first, options.first + options.tasks)),
            counts=counts,
            device=device_name(device),
            folder=options.out,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
