"""The runs that `benchmarks/paper_runs.py` kept, read again from their CSV files."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from headcount.core.readers.reading import read_json
from headcount.store.records import Run, Trial

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
NAMES = sorted(path.stem.removeprefix("paper-") for path in RESULTS.glob("paper-*.csv"))
WHOLE = ("length", "target", "hidden", "head_dim")


def kept_json(name: str) -> dict[str, Any]:
    """Return the file that documents quote."""
    return read_json(RESULTS / f"paper-{name}.json")


def kept_runs(name: str) -> list[Run]:
    """Return the panels of a run, in their order, with every trial."""
    about = kept_json(name)
    panels: dict[tuple[tuple[str, Any], ...], list[dict[str, str]]] = {}
    with (RESULTS / f"paper-{name}.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            values = {k: int(row[k]) for k in WHOLE if row.get(k)}
            named = {"setting": row["setting"], **values} if row.get("setting") else values
            panels.setdefault(tuple(named.items()), []).append(row)
    return [
        Run(
            name=name,
            title=about["spec"]["title"],
            task={"length": dict(values).get("length", 0)},
            intrinsic=int(rows[0]["intrinsic"]),
            spec=about["spec"],
            values=dict(values),
            trials=[_trial(row) for row in rows],
            provenance=about["provenance"],
            seconds=0.0,
        )
        for values, rows in panels.items()
    ]


def _trial(row: dict[str, str]) -> Trial:
    return Trial.parse(
        {
            **{k: int(row[k]) for k in ("heads", "seed", "steps", "parameters", "parameters_total")},
            **{k: float(row[k]) if row[k] else None for k in ("nmse", "train_nmse")},
            "state": row["state"],
            "seconds": float(row["seconds"]),
        }
    )
