"""Does bf16 change the accuracy of the real experiments beyond the spread over seeds? The same seeds in both.

    python -m benchmarks.precision_study OUT (marco | cifar) --data DIR [--embeddings DIR] [--device cuda] [--smoke]

trains some cells of the paper scale in float32 and in bf16, prints both, and writes OUT/precision-KIND.json. A cell
differs where the means of the two are further apart than chance explains: a paired t test over seeds, at 1 % for all
cells together (Bonferroni). With --kept FILE the bf16 trials are those of a kept grid (results/real-KIND.csv), and only
float32 is trained, on whatever device: it takes the same seeds, and --heads and --lengths say which cells.
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
LEVEL = 0.01


def compare(rows: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Set the two precisions side by side, cell by cell and part by part, paired by seed."""
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
            apart = both["bf16"] - both["float32"]
            p = 1.0 if np.ptp(apart) == 0 and apart[0] == 0 else float(stats.ttest_1samp(apart, 0.0).pvalue)  # pyright: ignore[reportAttributeAccessIssue]
            found.append(
                {
                    "length": length,
                    "heads": heads,
                    "part": part,
                    "p": p,
                    **{f"mean_{k}": float(v.mean()) for k, v in both.items()},
                    **{f"spread_{k}": float(v.std(ddof=1)) for k, v in both.items()},
                    "differs": p < LEVEL / (2 * len(places)),
                }
            )
    return found


def train(source: MarcoSource | CifarSource, stated: dict[str, Any], device: str) -> list[dict[str, Any]]:
    """Train the cells and return one row a trial."""
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
    """Read the trials of some cells from a kept grid, whose lengths count tokens where cells may state sides."""
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
    """Train, compare, print, write; return the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("kind", choices=sorted(CELLS))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--embeddings", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--kept", type=Path, help="bf16 trials of a kept grid, instead of training them")
    parser.add_argument("--heads", type=int, nargs="+")
    parser.add_argument("--lengths", type=int, nargs="+", help="T, or sides of frames")
    parser.add_argument("--smoke", action="store_true", help="tiny: shows that it runs")
    asked = parser.parse_args(arguments)
    device = find_device(asked.device)
    plan = plan_of(asked.kind, "smoke" if asked.smoke else "paper")
    cells = {"heads": [1, 2], "lengths": plan.stated["lengths"]} if asked.smoke else CELLS[asked.kind]
    cells = {"heads": asked.heads or cells["heads"], "lengths": asked.lengths or cells["lengths"]}
    stated = {**plan.stated, **cells, "seeds": asked.seeds}
    if asked.kind == "marco":
        lengths = cells["lengths"]
        source = open_marco(
            asked.data, asked.embeddings, lengths=lengths, cache=asked.cache, quiet=True, **plan.opened_with
        )
    else:
        source = open_cifar(asked.data, **plan.opened_with)
    rows: dict[str, list[dict[str, Any]]] = {}
    if asked.kept:
        patch = plan.opened_with.get("patch", 4)
        tokens = {n: (n // patch) ** 2 + 1 if asked.kind == "cifar" else n for n in cells["lengths"]}
        rows["bf16"] = [row for row in kept_rows(asked.kept, cells, tokens) if row["seed"] < asked.seeds]
    for precision in ("float32",) if asked.kept else ("float32", "bf16"):
        train_with = {**plan.stated["train"], "precision": precision}
        rows[precision] = train(source, {**stated, "train": train_with}, str(device))
    found = compare(rows)
    for row in found:
        means = "  ".join(f"{k} {row[f'mean_{k}']:.4f} ± {row[f'spread_{k}']:.4f}" for k in ("float32", "bf16"))
        mark = "DIFFERS" if row["differs"] else ""
        print(f"T = {row['length']:<5} h = {row['heads']:<3} {row['part']:<15} {means}  p = {row['p']:.3f} {mark}")
    asked.out.mkdir(parents=True, exist_ok=True)
    content = {
        "cells": found,
        "rows": rows,
        "level": LEVEL,
        "train": plan.stated["train"],
        "hardware": device_name(device),
        "bf16_from": asked.kept.name if asked.kept else None,
    }
    counts = {"cells": len(found), "differ": sum(row["differs"] for row in found)}
    return write_result(
        f"precision-{asked.kind}",
        content,
        seeds=list(range(asked.seeds)),
        counts=counts,
        device=str(device),
        folder=asked.out,
    )


if __name__ == "__main__":
    print(main())
