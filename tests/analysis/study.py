"""The study of the estimate of D, as runs: `benchmarks/dimension_study.py` trained them, a CSV file keeps them."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from analyse_cases import covers

from headcount.analysis.of_runs import answers
from headcount.store.records import Run, Trial

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
STUDIES = ("dimension-study", "dimension-study-fresh")
"""The rule for D was chosen with the first in view; the tasks of the second were drawn and trained after that."""


def studied(study: str) -> dict[str, list[Run]]:
    """Return the panels of every task of a study, by its name."""
    rows: dict[tuple[str, int], list[dict[str, str]]] = {}
    with (RESULTS / f"{study}.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            rows.setdefault((row["run"], int(row["length"])), []).append(row)
    found: dict[str, list[Run]] = {}
    for (name, length), group in rows.items():
        intrinsic = int(group[0]["intrinsic"]) if group[0]["intrinsic"] else None
        about: dict[str, Any] = {"model": {"head_dim": 4, "hidden": 32}}
        found.setdefault(name, []).append(
            Run(
                name=name,
                task={"length": length},
                intrinsic=intrinsic,
                spec=about,
                values={"length": length},
                trials=[_trial(row) for row in group],
                provenance={},
                seconds=0.0,
            )
        )
    return found


def figures(study: str) -> dict[str, Any]:
    """Return what the full bootstrap answers for every task of a study, and how often it is right."""
    rows = {}
    for name, runs in studied(study).items():
        (found,) = answers(runs)
        D = runs[0].intrinsic
        rows[name] = {
            "intrinsic": D,
            "estimate": found.estimate,
            "low": found.low,
            "high": found.high,
            "verdict": found.verdict,
            "covered": covers(found, D) if D else found.verdict == "one-head",
        }
    tasks = [row for name, row in rows.items() if name.startswith("study")]
    by_D = {
        f"D={D}": {
            "right": sum(r["estimate"] == D for r in tasks if r["intrinsic"] == D),
            "covered": sum(r["covered"] for r in tasks if r["intrinsic"] == D),
        }
        for D in range(2, 7)
    }
    right, covered = sum(r["right"] for r in by_D.values()), sum(r["covered"] for r in by_D.values())
    one = sum(row["verdict"] == "one-head" for name, row in rows.items() if name.startswith("control"))
    return {"right": right, "covered": covered, "controls_one_head": one, "by_D": by_D, "tasks": rows}


def _trial(row: dict[str, str]) -> Trial:
    return Trial.parse(
        {
            "heads": int(row["heads"]),
            "seed": int(row["seed"]),
            "state": row["state"],
            "steps": 0,
            "seconds": 0.0,
            "nmse": float(row["nmse"]) if row["nmse"] else None,
            "train_nmse": float(row["train_nmse"]) if row["train_nmse"] else None,
            "parameters": int(row["parameters"]),
            "parameters_total": int(row["parameters_total"]),
        }
    )
