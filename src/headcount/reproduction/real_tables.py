"""The tables on real data: the paper's cell and ours, the sizes of the data, and all of it as CSV."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Sequence
from typing import Any

from headcount.analysis import Part
from headcount.core.text import plain_data
from headcount.render import NONE, Column, Table
from headcount.reproduction.real_cells import PARTS, UNITS, Cells, RealCell, heads_of, kind_of, lengths_of
from headcount.reproduction.real_items import RealKind, paper_table
from headcount.store import Run

THEIRS: dict[RealKind, dict[Part, int]] = {
    "marco": {"train": 28_000, "validation": 2_000},
    "cifar": {"train": 50_000, "validation": 10_000},
}
"""How much data the paper has."""
SAMPLES: dict[RealKind, str] = {"marco": "queries", "cifar": "images"}
PART_NAMES: dict[Part, str] = {"train": "train", "validation": "valid."}
_BLANK = "\N{NO-BREAK SPACE}"


def accuracy_table(title: str, cells: Cells, kind: RealKind, first: Part = "train") -> Table:
    """Return accuracies in the paper's shape: for every head count the paper's and ours, on both parts.

    `first` is the part whose table of the paper this is: it comes first. Ours is mean ± standard deviation over seeds.
    """
    lengths, digits = lengths_of(cells), (3, 3) if kind == "marco" else (1, 2)
    unit = "percent" if kind == "cifar" else "from 0 to 1"
    columns = [
        Column(name="h", meaning="heads"), Column(name="what", meaning="whose number it is, on which part of the data"),
        *(Column(name=f"T{_BLANK}={_BLANK}{t}", meaning=f"top-1 accuracy, {unit}, at length {t}") for t in lengths),
    ]  # fmt: skip
    rows: list[list[str]] = []
    for heads in heads_of(cells):
        for part in sorted(PARTS, key=lambda part: part != first):
            line = [cells.get((part, heads, t)) for t in lengths]
            pairs = [(None, None) if c is None else (c.theirs, c.deviation) for c in line]
            ours = [(None, None) if c is None else (c.mean, c.spread) for c in line]
            rows.append([str(heads), f"paper {PART_NAMES[part]}", *(_plus(*p, UNITS[kind], digits) for p in pairs)])
            rows.append([str(heads), f"ours {PART_NAMES[part]}", *(_plus(*p, UNITS[kind], digits) for p in ours)])
        lost = [cells.get((first, heads, t)) for t in lengths]
        if any(c is not None and c.diverged + c.missing for c in lost):
            rows.append([str(heads), "seeds", *(_seeds(c) for c in lost)])
    return Table(caption=f"{title} (accuracy, {unit})", columns=columns, rows=rows, marked=None)


def _plus(mean: float | None, deviation: float | None, unit: float, digits: tuple[int, int]) -> str:
    if mean is None:
        return NONE
    # without blanks, so that five lengths fit 80 columns
    spread = "" if deviation is None else f"±{unit * deviation:.{digits[1]}f}"
    return f"{unit * mean:.{digits[0]}f}{spread}"


def _seeds(cell: RealCell | None) -> str:
    return NONE if cell is None else f"{len(cell.accuracies)} of {cell.trials}"


def rank_table(title: str, cells: Cells) -> Table:
    """Return the mean reciprocal ranks, mean ± standard deviation over seeds."""
    lengths = lengths_of(cells)
    rows = [
        [str(heads), f"ours {PART_NAMES[part]}", *(_rank(cells.get((part, heads, t))) for t in lengths)]
        for heads in heads_of(cells) for part in PARTS
    ]  # fmt: skip
    columns = [
        Column(name="h", meaning="heads"), Column(name="what", meaning="on which part of the data"),
        *(Column(name=f"T{_BLANK}={_BLANK}{t}", meaning=f"mean reciprocal rank at length {t}") for t in lengths),
    ]  # fmt: skip
    return Table(caption=f"{title} (mean reciprocal rank)", columns=columns, rows=rows, marked=None)


def _rank(cell: RealCell | None) -> str:
    ranks = () if cell is None else cell.ranks
    spread = statistics.stdev(ranks) if len(ranks) > 1 else None
    return _plus(statistics.fmean(ranks) if ranks else None, spread, 1.0, (3, 3))


def sizes_table(runs: Sequence[Run]) -> Table:
    """Return how much data and training stand behind the numbers, the paper's beside ours."""
    kind, first = kind_of(runs), runs[0]
    train: dict[str, Any] = first.spec.get("train") or {}
    steps, batch, count = train.get("steps"), train.get("batch"), first.task.get("train")
    what = SAMPLES[kind]
    rows = [
        [f"training {what}", f"{THEIRS[kind]['train']:,}", _count(count)],
        [f"validation {what}", f"{THEIRS[kind]['validation']:,}", _count(first.task.get("validation"))],
        [f"training {what} measured", NONE, _count(first.samples.get("train"))],
        ["seeds", NONE, _count(first.spec.get("seeds"))],
        ["steps", NONE, _count(steps)],
        ["batch", NONE, _count(batch)],
    ]
    if isinstance(steps, int) and isinstance(batch, int) and isinstance(count, int):
        rows.append(["passes over the data", NONE, f"{steps * batch / count:.3g}"])
    columns = [
        Column(name="what", meaning="how much of it"), Column(name="paper", meaning="as stated; – where it is not"),
        Column(name="ours", meaning="in this run"),
    ]  # fmt: skip
    return Table(caption="The size of the data, theirs and ours", columns=columns, rows=rows, marked=None)


def _count(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else NONE


CSV = [
    "name", "part", "heads", "length", "paper_cell", "paper", "paper_deviation", "accuracy", "deviation", "least",
    "most", "mrr", "mrr_deviation", "seeds", "trials", "diverged", "missing", "samples",
]  # fmt: skip


def real_csv(name: str, cells: Cells, kind: RealKind) -> str:
    """Return every cell with the paper's number beside it; accuracies go from 0 to 1 whatever the paper's unit."""
    text = io.StringIO()
    writer = csv.DictWriter(text, CSV, lineterminator="\n")
    writer.writeheader()
    for cell in cells.values():
        table = paper_table(kind, cell.part).replace("table", "table ")
        where = f"{table}, h = {cell.heads}, T = {cell.length}" if cell.theirs is not None else ""
        ranks = cell.ranks
        row: dict[str, Any] = {
            "name": name, "part": cell.part, "heads": cell.heads, "length": cell.length, "paper_cell": where,
            "paper": cell.theirs, "paper_deviation": cell.deviation, "accuracy": cell.mean, "deviation": cell.spread,
            "least": min(cell.accuracies) if cell.accuracies else None,
            "most": max(cell.accuracies) if cell.accuracies else None,
            "mrr": statistics.fmean(ranks) if ranks else None,
            "mrr_deviation": statistics.stdev(ranks) if len(ranks) > 1 else None, "seeds": len(cell.accuracies),
            "trials": cell.trials, "diverged": cell.diverged, "missing": cell.missing, "samples": cell.samples,
        }  # fmt: skip
        writer.writerow(plain_data({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()}))
    return text.getvalue()
