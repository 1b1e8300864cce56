"""Theirs and ours, cell by cell: the table of a name, and the draw of the target that is most like the paper's."""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

from headcount.analysis.record import Analysis, Cell
from headcount.analysis.wording import error_text, times_text
from headcount.paper.numbers import PaperCell, statistic
from headcount.report.tables import NONE, Column, Table
from headcount.store.records import Run

Place = tuple[int, int]  # heads, length


class Draw(NamedTuple):
    """One draw of the a_i beside the paper's table."""

    target: int
    errors: dict[Place, float]
    distance: float
    """The mean absolute difference of log10 error from the paper's, over the cells with fewer than D heads."""


def nearest_draw(runs: Sequence[Run], theirs: Sequence[PaperCell]) -> Draw | None:
    """Return the draw whose errors with too few heads are most like the paper's; with D heads all are alike.

    Beside a table of means stand means over the seeds, beside any other the best seed.
    """
    mean = bool(theirs) and statistic(theirs[0].table).startswith("mean")
    found: dict[int, dict[Place, float]] = {}
    for run in runs:
        for heads in {t.heads for t in run.trials}:
            errors = [t.nmse for t in run.trials if t.heads == heads and t.nmse is not None]
            if errors and "target" in run.values:
                level = statistics.fmean(errors) if mean else min(errors)
                found.setdefault(int(run.values["target"]), {})[heads, int(run.values["length"])] = level
    intrinsic = runs[0].intrinsic or 0
    draws: list[Draw] = []
    for target, errors in found.items():
        gaps = [
            abs(math.log10(errors[c.heads, c.length] / c.value)) for c in theirs
            if c.heads < intrinsic and errors.get((c.heads, c.length))
        ]  # fmt: skip
        if gaps:
            draws.append(Draw(target, errors, statistics.fmean(gaps)))
    return min(draws, key=lambda draw: draw.distance, default=None)


def comparison(title: str, analysis: Analysis, runs: Sequence[Run], theirs: Sequence[PaperCell]) -> Table:
    """Return the table in the paper's shape: rows by head count, columns by length, the paper's number first.

    For runs of one setting and one hidden size.
    """
    cells = {(c.heads or 0, c.length or 0): c for c in analysis.cells}
    paper = {(c.heads, c.length): c for c in theirs}
    lengths = sorted({length for _, length in cells})
    draw = nearest_draw(runs, theirs)
    rows: list[list[str]] = []
    for heads in sorted({heads for heads, _ in cells}):
        for name, texts in _rows(heads, lengths, cells, paper, draw):
            rows.append([str(heads), name, *texts])
    columns = [
        Column(name="h", meaning="heads"),
        Column(name="what", meaning="whose number it is"),
        *(
            Column(name=f"T\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{length}", meaning=f"NMSE at length {length}")
            for length in lengths
        ),
    ]
    return Table(caption=title, columns=columns, rows=rows, marked=None)


def _rows(
    heads: int, lengths: Sequence[int], cells: dict[Place, Cell], paper: dict[Place, PaperCell], draw: Draw | None
) -> list[tuple[str, list[str]]]:
    """Return the lines of one head count: the paper's, and ours with both spreads."""
    ours = [cells.get((heads, length)) for length in lengths]
    found: list[tuple[str, list[str]]] = []
    if paper:
        found.append(("paper", [_theirs(paper.get((heads, length))) for length in lengths]))
    found.append(("ours, best", [_error(c.best if c else None) for c in ours]))
    found.append(("ours, median", [_error(c.median if c else None) for c in ours]))
    found.append(("spread over seeds", [_factor(c.seed_spread if c else None) for c in ours]))
    if any(c is not None and c.targets > 1 for c in ours):
        found.append(("spread over targets", [_factor(c.target_spread if c else None) for c in ours]))
    if draw is not None and any(c is not None and c.targets > 1 for c in ours):
        found.append((f"ours, draw {draw.target}", [_error(draw.errors.get((heads, length))) for length in lengths]))
    if any(c is not None and c.diverged for c in ours):
        found.append(("diverged", [NONE if c is None else f"{c.diverged} of {c.trials}" for c in ours]))
    return found


def remarks(analysis: Analysis, runs: Sequence[Run], theirs: Sequence[PaperCell], note: str) -> list[str]:
    """Return what a reader must know to read the table."""
    said = [note] if note else []
    if theirs:
        kind = statistic(theirs[0].table)
        said.append(
            "The paper's numbers are means over its seeds, with their standard deviation."
            if kind.startswith("mean")
            else "The paper does not state whether its numbers are the best or the mean over seeds."
        )
    targets = sorted({int(run.values["target"]) for run in runs if "target" in run.values})
    if theirs and targets:
        drawn = ", ".join(map(str, targets))
        said.append(
            f"The paper's a_i are unknown. Here they are drawn by seed ({drawn}), and one draw can differ from another "
            "a hundredfold with D − 1 heads: best, median and spread are over all draws."
        )
    draw = nearest_draw(runs, theirs) if len(targets) > 1 else None
    if draw is not None:
        said.append(
            f"Draw {draw.target} is most like the paper's table: with fewer than D heads its errors differ from the "
            f"paper's by a factor of {times_text(10**draw.distance)} on average."
        )
    lost = {state: n for state, n in analysis.counts.items() if n and state != "done"}
    told = ", ".join(f"{n} {state}" for state, n in lost.items()) or "none failed or diverged"
    said.append(f"{sum(analysis.counts.values())} trials: {told}.")
    return said


CSV = [
    "name", "paper_cell", "setting", "heads", "length", "hidden", "head_dim", "paper", "paper_deviation", "best",
    "median", "worst", "seed_spread", "target_spread", "targets", "trials", "diverged", "parameters",
    "parameters_total",
]  # fmt: skip


def as_csv(name: str, analysis: Analysis, theirs: Sequence[PaperCell]) -> str:
    """Return every cell of a run with the paper's number beside it, as a CSV file."""
    paper = {(c.heads, c.length): c for c in theirs}
    text = io.StringIO()
    writer = csv.DictWriter(text, CSV, lineterminator="\n")
    writer.writeheader()
    for cell in analysis.cells:
        match = paper.get((cell.heads or 0, cell.length or 0))
        row: dict[str, Any] = {key: getattr(cell, key) for key in CSV if hasattr(cell, key)}
        row |= {"name": name, "paper_cell": match.cell if match else "", "paper": match.value if match else ""}
        row["paper_deviation"] = match.deviation if match else ""
        writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})
    return text.getvalue()


def _theirs(cell: PaperCell | None) -> str:
    if cell is None:
        return NONE
    return error_text(cell.value) + (f" ± {error_text(cell.deviation)}" if cell.deviation is not None else "")


def _error(error: float | None) -> str:
    return NONE if error is None else error_text(error)


def _factor(factor: float | None) -> str:
    return NONE if factor is None else f"× {times_text(factor)}"
