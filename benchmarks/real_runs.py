"""Save the runs of `headcount reproduce marco | cifar --scale paper` as small files: a row per trial, and every cell.

    python -m benchmarks.real_runs STORE [--name long] [--folder benchmarks/results]

reads the runs of a store and writes real-KIND.csv and .json for each. With --name the files are real-KIND-NAME, and a
run that is not finished is saved too, with the number of trials that are missing. The tests and the documents read the
files again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.result_sources import RESULTS, recorded
from headcount.analysis import analyse
from headcount.core import write_json, write_text
from headcount.reproduction import mean_and_deviation, read_cells, stated_findings, trials_csv
from headcount.store import FINISHED, Run, Store
from headcount.sweeps import stored_runs, stored_spec


def accuracies(kind: str, runs: Sequence[Run]) -> dict[str, Any]:
    """Return mean, deviation and number of seeds of every cell with results, by part, length and heads."""
    found: dict[str, Any] = {}
    for (part, heads, length), cell in read_cells(kind, runs).items():
        mean, deviation = mean_and_deviation(cell.results)
        if mean is not None:
            numbers = {"mean": round(mean, 5), "seeds": len(cell.results)}
            numbers |= {} if deviation is None else {"deviation": round(deviation, 5)}
            found.setdefault(part, {}).setdefault(f"T{length}", {})[f"h{heads}"] = numbers
    return found


def pieces(store: Store, run: str) -> list[dict[str, Any]]:
    """Return the processes that trained a run: when each began, how many trials it finished, and how long it took."""
    found: dict[str, list[float]] = {}
    for trial in store.trials(run=run, states=FINISHED):
        if trial.provenance is not None:
            found.setdefault(trial.provenance["time"], []).append(trial.updated)
    return [
        {"start": start, "trials": len(ends), "seconds": round(max(ends) - _seconds(start), 1)}
        for start, ends in sorted(found.items())
    ]


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()


def write_run(kind: Any, name: str, store: Store, run: str, folder: Path) -> None:
    """Write the two files of one run."""
    runs, spec, times = stored_runs(store, run), stored_spec(store, run).data(), pieces(store, run)
    left = sum(sum(one.left_out.values()) for one in runs)
    if left and not name:
        print(f"{run} is not finished, so it was skipped (--name saves it all the same)")
        return
    stem = f"real-{kind}-{name}" if name else f"real-{kind}"
    on_train = analyse(runs, on="train")
    trials = {state: n for state, n in on_train.counts.items() if n}
    content: dict[str, Any] = {
        "name": stem,
        "provenance": runs[0].provenance,
        "source": recorded(stem, trained=runs[0].provenance["commit"]),
        "seeds": list(range(spec["seeds"])),
        "counts": {**trials, "left": left},
        "spec": spec,
        "accuracies": accuracies(kind, runs),
        "pieces": times,
        "seconds": round(sum(piece["seconds"] for piece in times), 1),
    }
    if not left:
        content["findings"] = [one.data() for one in stated_findings(read_cells(kind, runs), kind, on_train)]
    write_text(folder / f"{stem}.csv", trials_csv(runs))
    write_json(folder / f"{stem}.json", content)
    print(stem, content["counts"], flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files of both runs, if the store has them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("--name", default="")
    parser.add_argument("--folder", type=Path, default=RESULTS)
    parser.add_argument("--scale", default="paper")
    options = parser.parse_args(arguments)
    with Store.open(options.store, read_only=True) as store:
        for kind in ("marco", "cifar"):
            run = f"{kind}-{options.scale}"
            if run in store.runs():
                write_run(kind, options.name, store, run, options.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
