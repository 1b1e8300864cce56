"""Does bf16 change the accuracy of the real experiments by more than the spread over seeds?

    python -m benchmarks.precision_study OUT (marco | cifar) --data DIR [--embeddings DIR] [--device cuda] [--smoke]

trains some cells of the paper scale with the same seeds in float32 and in bf16, prints both, and writes
OUT/precision-KIND.json. A cell differs if its two means are further apart than chance explains: a paired t test over
seeds, at 1 % for all cells together (Bonferroni). With --kept FILE the bf16 trials come from a saved grid
(results/real-KIND.csv), and only float32 is trained, on any device and with the same seeds; --heads and --lengths
select the cells.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import numpy as np
from scipy import stats

from headcount.reproduction import plan_of
from headcount.store import Store
from headcount.sweeps import CifarSource, MarcoSource, open_cifar, open_marco, run_on_store, stored_runs
from headcount.training import device_name, find_device
from results import write_result

CELLS: dict[str, dict[str, list[int]]] = {
    "marco": {"heads": [1, 4, 16], "lengths": [8, 64]},
    "cifar": {"heads": [2, 8], "lengths": [32, 64]},
}
SIGNIFICANCE_LEVEL = 0.01
"""Of the paired t tests of all cells together."""


def compare(rows: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Compare the two precisions in every cell, on training and validation data, paired by seed."""
    found: list[dict[str, Any]] = []
    places = sorted({(row["length"], row["heads"]) for row in rows["bf16"]})
    for length, heads in places:
        for part in ("accuracy", "train_accuracy"):
            both = {
                precision: np.array(
                    [
                        row[part]
                        for row in sorted(these, key=lambda row: row["seed"])
                        if (row["length"], row["heads"]) == (length, heads)
                    ]
                )
                for precision, these in rows.items()
            }
            differences = both["bf16"] - both["float32"]
            p = 1.0
            if differences.any():
                p = float(stats.ttest_1samp(differences, 0.0).pvalue)  # pyright: ignore[reportAttributeAccessIssue]
            found.append(
                {
                    "length": length,
                    "heads": heads,
                    "part": part,
                    "p": p,
                    **{f"mean_{k}": float(v.mean()) for k, v in both.items()},
                    **{f"spread_{k}": float(v.std(ddof=1)) for k, v in both.items()},
                    "differs": p < SIGNIFICANCE_LEVEL / (2 * len(places)),
                }
            )
    return found


def train(source: MarcoSource | CifarSource, stated: dict[str, Any], device: str) -> list[dict[str, Any]]:
    """Train the cells and return one row per trial."""
    from headcount.sweeps import RealSpec

    spec = RealSpec.parse({**stated, "source": source.data.data()}, where="the study")
    with TemporaryDirectory() as folder, Store.open(Path(folder)) as store:
        run_on_store(spec, store, feeds=source.feeds(device), device=device, quiet=True)
        return [
            {
                "length": run.values["length"],
                "heads": t.heads,
                "seed": t.seed,
                "accuracy": t.accuracy,
                "train_accuracy": t.train_accuracy,
            }
            for run in stored_runs(store, spec.name)
            for t in run.trials
        ]


def kept_rows(file: Path, cells: dict[str, list[int]], tokens: dict[int, int]) -> list[dict[str, Any]]:
    """Read the trials of some cells from a saved grid; `tokens` maps the cells' lengths (or sides) to its lengths."""
    wanted = {tokens[length] for length in cells["lengths"]}
    with file.open(newline="") as lines:
        return [
            {
                "length": int(row["length"]),
                "heads": int(row["heads"]),
                "seed": int(row["seed"]),
                "accuracy": float(row["accuracy"]),
                "train_accuracy": float(row["train_accuracy"]),
            }
            for row in csv.DictReader(lines)
            if row["state"] == "done" and int(row["length"]) in wanted and int(row["heads"]) in cells["heads"]
        ]


def main(arguments: Sequence[str] | None = None) -> Path:
    """Train both precisions, compare them and print every cell; return the result file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("kind", choices=sorted(CELLS))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--embeddings", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--kept", type=Path, help="read the bf16 trials from this saved grid instead of training them")
    parser.add_argument("--heads", type=int, nargs="+")
    parser.add_argument("--lengths", type=int, nargs="+", help="T, or sides of frames")
    parser.add_argument("--smoke", action="store_true", help="use tiny sizes, to show that the script runs")
    options = parser.parse_args(arguments)
    device = find_device(options.device)
    plan = plan_of(options.kind, "smoke" if options.smoke else "paper")
    cells = {"heads": [1, 2], "lengths": plan.stated["lengths"]} if options.smoke else CELLS[options.kind]
    cells = {"heads": options.heads or cells["heads"], "lengths": options.lengths or cells["lengths"]}
    stated = {**plan.stated, **cells, "seeds": options.seeds}
    if options.kind == "marco":
        lengths = cells["lengths"]
        source = open_marco(
            options.data, options.embeddings, lengths=lengths, cache=options.cache, quiet=True, **plan.opened_with
        )
    else:
        source = open_cifar(options.data, **plan.opened_with)
    rows: dict[str, list[dict[str, Any]]] = {}
    if options.kept:
        patch = plan.opened_with.get("patch", 4)
        tokens = {n: (n // patch) ** 2 + 1 if options.kind == "cifar" else n for n in cells["lengths"]}
        rows["bf16"] = [row for row in kept_rows(options.kept, cells, tokens) if row["seed"] < options.seeds]
    for precision in ("float32",) if options.kept else ("float32", "bf16"):
        train_with = {**plan.stated["train"], "precision": precision}
        rows[precision] = train(source, {**stated, "train": train_with}, str(device))
    found = compare(rows)
    for row in found:
        means = "  ".join(f"{k} {row[f'mean_{k}']:.4f} ± {row[f'spread_{k}']:.4f}" for k in ("float32", "bf16"))
        mark = "DIFFERS" if row["differs"] else ""
        print(f"T = {row['length']:<5} h = {row['heads']:<3} {row['part']:<15} {means}  p = {row['p']:.3f} {mark}")
    options.out.mkdir(parents=True, exist_ok=True)
    content = {
        "cells": found,
        "rows": rows,
        "level": SIGNIFICANCE_LEVEL,
        "train": plan.stated["train"],
        "hardware": device_name(device),
        "bf16_from": options.kept.name if options.kept else None,
    }
    counts = {"cells": len(found), "differ": sum(row["differs"] for row in found)}
    return write_result(
        f"precision-{options.kind}",
        content,
        seeds=list(range(options.seeds)),
        counts=counts,
        device=str(device),
        folder=options.out,
    )


if __name__ == "__main__":
    print(main())
