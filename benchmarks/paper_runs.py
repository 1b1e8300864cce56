"""Save the runs of `headcount reproduce --scale paper` as small files: a row per trial, and the errors of every cell.

    python -m benchmarks.paper_runs STORE

reads the runs of a store and writes benchmarks/results/paper-NAME.csv and .json for each. The tests read them again,
and the documents quote them.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.result_sources import RESULTS, recorded
from headcount.analysis import analyse
from headcount.core import write_json, write_text
from headcount.core.readers import read_toml
from headcount.reproduction import ITEMS, plan_of, trials_csv
from headcount.store import Run, Store
from headcount.sweeps import SweepSpec, stored_runs

EXTRA_SPECS = {"table4-longer": Path(__file__).resolve().parent.parent / "src/headcount/specs/table4-longer.toml"}


def slug(text: str) -> str:
    """Return a setting's name as a key: D = 4 becomes D4, Adam, 3,000 steps becomes Adam-3000-steps."""
    text = re.sub(r"(?<=\d),(?=\d)", "", text).replace(" = ", "").replace("√", "sqrt").replace("/", "over")
    return re.sub(r"[^\w]+", "-", text).strip("-")


def cell_path(run: Run) -> list[str]:
    """Return the keys under which a panel's errors are stored: setting, length, target, hidden size, head size."""
    found = [slug(str(run.values["setting"]))] if "setting" in run.values else []
    for name, letter in (("length", "T"), ("target", "draw"), ("hidden", "N"), ("head_dim", "n")):
        if name in run.values:
            found.append(f"{letter}{run.values[name]}")
    return found


def errors(runs: Sequence[Run]) -> dict[str, Any]:
    """Return the best, median and worst error of every cell, nested by the values in which the panels differ."""
    found: dict[str, Any] = {}
    for run in runs:
        at = found
        for part in cell_path(run):
            at = at.setdefault(part, {})
        for heads in sorted({t.heads for t in run.trials}):
            # rounded like the rows of the CSV file, so that these give the same
            level = [float(f"{t.nmse:.5g}") for t in run.trials if t.heads == heads and t.nmse is not None]
            if level:
                at[f"h{heads}"] = {
                    name: float(f"{value:.5g}")
                    for name, value in (
                        ("best", min(level)),
                        ("median", statistics.median(level)),
                        ("worst", max(level)),
                    )
                }
    return found


def computed(runs: Sequence[Run]) -> dict[str, Any]:
    """Return the analysis of the runs: answers, slopes in T and reversals."""
    analysis = analyse(runs)
    answers = {
        slug(d.setting) or "all": {"estimate": d.estimate, "low": d.low, "high": d.high, "sentence": d.sentence}
        for d in analysis.dimensions
    }
    reversals = {slug(r.setting) or "all": {} for r in analysis.reversals}
    for r in analysis.reversals:
        reversals[slug(r.setting) or "all"][f"h{r.heads}"] = {"score": round(r.score, 4), "p": round(r.p, 4)}
    slopes: dict[str, Any] = {}
    for slope in analysis.slopes:
        if slope.hidden is None or len({run.values.get("hidden") for run in runs}) == 1:
            at = slopes.setdefault(slug(slope.setting) or "all", {})
            at[f"h{slope.heads}"] = {k: round(getattr(slope, k), 4) for k in ("slope", "low", "high")}
    return {"answers": answers, "slopes": slopes, "reversals": reversals}


def write_run(name: str, spec: SweepSpec, runs: Sequence[Run], folder: Path = RESULTS) -> None:
    """Write the two files of one run."""
    found, origin = computed(runs), runs[0].provenance
    write_text(folder / f"paper-{name}.csv", trials_csv(runs))
    trials = dict(Counter(trial.state for run in runs for trial in run.trials))
    write_json(
        folder / f"paper-{name}.json",
        {
            "name": f"paper-{name}",
            "provenance": origin,
            "source": recorded(f"paper-{name}", trained=origin["commit"]),
            "seeds": list(range(spec.seeds)),
            "counts": trials,
            "spec": spec.data(),
            **found,
            "errors": errors(runs),
        },
    )
    print(name, trials, {k: a["estimate"] for k, a in found["answers"].items()}, flush=True)


def main() -> int:
    """Write the files of every finished run in the store."""
    parser = argparse.ArgumentParser()
    parser.add_argument("store", type=Path)
    options = parser.parse_args()
    specs = {item.spec: plan_of(item.spec, "paper").sweep() for item in ITEMS.values() if item.data is None}
    specs |= {name: SweepSpec.parse(read_toml(path), where=name) for name, path in EXTRA_SPECS.items()}
    with Store.open(options.store, read_only=True) as store:
        for name, spec in specs.items():
            if spec.name not in store.runs():
                continue
            runs = stored_runs(store, spec.name, spec)
            if any(run.left_out for run in runs):
                print(f"{name} is not finished, so it was skipped")
            else:
                write_run(name, spec, runs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
