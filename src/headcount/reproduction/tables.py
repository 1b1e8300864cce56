"""Theirs and ours, cell by cell: the tables of a name, the draw of the target most like the paper's, CSV files."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from headcount.analysis import Part
from headcount.core.text import csv_text
from headcount.render import NONE, Column, Table, cell_table, scaling_table
from headcount.render.words import error_text, times_text
from headcount.reproduction.cells import PART_NAMES, PARTS, Cells, ComparedCell, Comparison, mean_and_deviation
from headcount.reproduction.items import DATA, Item, paper_tables
from headcount.reproduction.law import law_table, reversal_table
from headcount.reproduction.numbers import statistic
from headcount.store import Run


def tables_of(item: Item, title: str, found: Comparison) -> list[Table]:
    """Return the tables of a name: its own first, then those that stand behind it."""
    if item.data is None:
        return _of_task(item, title, found)
    ranks = item.picture == "mrr"
    own = [rank_table(title, found.cells) if ranks else accuracy_table(title, found, item.part)]
    if item.picture == "law" or (item.spec == "marco" and item.picture == "accuracy"):
        own.append(law_table(found.cells))
    return [*own, reversal_table(found), sizes_table(found)]


def _of_task(item: Item, title: str, found: Comparison) -> list[Table]:
    """Return the tables of errors on a task; where settings or hidden sizes vary there is a row for every cell."""
    analysis = found.analysis
    if item.picture == "reversal":
        return [reversal_table(found)]
    if len(analysis.settings) == 1 and len({c.hidden for c in analysis.cells}) == 1:
        return [error_table(title, found, item.heads)]
    slopes = [scaling_table(analysis)] if item.picture.startswith("hidden") else []
    return [*slopes, cell_table(analysis)]


Lines = Iterable[tuple[str, list[str]]]
"""What stands in the rows of one head count: whose numbers they are, and a text for every length."""
_BLANK = "\N{NO-BREAK SPACE}"


def _by_length(caption: str, what: str, cells: Cells, lines: Callable[[int], Lines]) -> Table:
    """Return a table in the paper's shape: rows by head count, columns by length; `what` is what a cell holds."""
    columns = [
        Column(name="h", meaning="heads"),
        Column(name="what", meaning="whose number it is, on which part of the data"),
        *(Column(name=f"T{_BLANK}={_BLANK}{t}", meaning=f"{what} at length {t}") for t in cells.lengths),
    ]
    rows = [[str(heads), name, *texts] for heads in cells.heads for name, texts in lines(heads)]
    return Table(caption=caption, columns=columns, rows=rows, marked=None)


# -- errors on a task ---------------------------------------------------------------------------------------


class Draw(NamedTuple):
    """One draw of the a_i beside the paper's table."""

    target: int
    distance: float
    """The mean absolute difference of log10 error from the paper's, over the cells with fewer than D heads."""


def nearest_draw(found: Comparison) -> Draw | None:
    """Return the draw whose errors with too few heads are most like the paper's; with D heads all are alike.

    Beside a table of means stand means over the seeds, beside any other the best seed. One draw alone is not compared.
    """
    intrinsic, level = found.runs[0].intrinsic or 0, statistics.fmean if beside_means(found) else min
    gaps: dict[int, list[float]] = {target: [] for cell in found.cells.values() for target in cell.draws}
    for cell in found.cells.values():
        for target, errors in cell.draws.items():
            if cell.heads < intrinsic and cell.theirs and level(errors):
                gaps[target].append(abs(math.log10(level(errors) / cell.theirs)))
    draws = [Draw(target, statistics.fmean(some)) for target, some in gaps.items() if some]
    return min(draws, key=lambda draw: draw.distance) if len(gaps) > 1 and draws else None


def beside_means(found: Comparison) -> bool:
    """Whether the paper's table has means over its seeds."""
    return any(statistic(table).startswith("mean") for table in paper_tables(found.spec).values())


def error_table(title: str, found: Comparison, heads: Sequence[int] | None = None) -> Table:
    """Return errors in the paper's shape, of some head counts alone where these are given.

    For runs of one setting and one hidden size. Best and median are named for seeds and for draws of the target apart.
    """
    cells = Cells({place: cell for place, cell in found.cells.items() if heads is None or cell.heads in heads})
    spreads = {(c.heads, c.length): c for c in found.analysis.cells}
    several = any(len(cell.draws) > 1 for cell in cells.values())
    mean, like = beside_means(found), nearest_draw(found)

    def lines(heads: int) -> Lines:
        line = cells.with_heads("validation", heads)

        def over(seeds: Callable[[Sequence[float]], float], draws: Callable[[Sequence[float]], float]) -> list[str]:
            levels = [[seeds(errors) for errors in c.draws.values()] for c in line]
            return [_error(draws(some) if some else None) for some in levels]

        if any(c.theirs is not None for c in cells.values()):
            yield "paper", [_theirs(c) for c in line]
        if several:
            yield "best seed, best draw", over(min, min)
            yield "best seed, median draw", over(min, statistics.median)
            yield "median seed, median draw", over(statistics.median, statistics.median)
        else:
            yield "best seed", over(min, min)
            yield "median seed", over(statistics.median, min)
        if mean:
            yield "mean seed, median draw" if several else "mean seed", over(statistics.fmean, statistics.median)
        yield "spread over seeds", [_factor(spreads[heads, c.length].seed_spread) for c in line]
        if several:
            yield "spread over draws", [_factor(spreads[heads, c.length].target_spread) for c in line]
        if like is not None:
            level, kind = (statistics.fmean, "mean seed") if mean else (min, "best seed")
            own = [c.draws.get(like.target) for c in line]
            yield f"draw {like.target}, {kind}", [_error(level(errors) if errors else None) for errors in own]
        for name, counts in (("diverged", [c.diverged for c in line]), ("no result", [c.missing for c in line])):
            if any(counts):
                yield name, [f"{count} of {c.trials}" for c, count in zip(line, counts, strict=True)]

    return _by_length(f"{title} (NMSE)", "NMSE", cells, lines)


def _theirs(cell: ComparedCell) -> str:
    if cell.theirs is None:
        return NONE
    texts = [f"{cell.theirs:.3g}", *([] if cell.deviation is None else [f"{cell.deviation:.2g}"])]
    return " ± ".join(texts).replace("e-0", "e-")


def _error(error: float | None) -> str:
    return NONE if error is None else error_text(error)


def _factor(factor: float | None) -> str:
    return NONE if factor is None else f"× {times_text(factor)}"


# -- accuracies on real data --------------------------------------------------------------------------------


def accuracy_table(title: str, found: Comparison, first: Part = "train") -> Table:
    """Return accuracies in the paper's shape: for every head count the paper's and ours, on both parts.

    `first` is the part whose table of the paper this is: it comes first. Ours is mean ± standard deviation over seeds.
    """
    cells, unit = found.cells, DATA[found.spec].unit
    named, digits = ("percent", (1, 2)) if unit == 100 else ("from 0 to 1", (3, 3))

    def lines(heads: int) -> Lines:
        for part in sorted(PARTS, key=lambda part: part != first):
            line = cells.with_heads(part, heads)
            yield f"paper {PART_NAMES[part]}", [_plus(c.theirs, c.deviation, unit, digits) for c in line]
            yield f"ours {PART_NAMES[part]}", [_plus(*mean_and_deviation(c.results), unit, digits) for c in line]
        line = cells.with_heads(first, heads)
        if any(c.diverged + c.missing for c in line):
            yield "seeds", [f"{len(c.results)} of {c.trials}" for c in line]

    return _by_length(f"{title} (accuracy, {named})", f"top-1 accuracy, {named},", cells, lines)


def rank_table(title: str, cells: Cells) -> Table:
    """Return the mean reciprocal ranks, mean ± standard deviation over seeds."""

    def lines(heads: int) -> Lines:
        for part in PARTS:
            ranks = [mean_and_deviation(c.ranks) for c in cells.with_heads(part, heads)]
            yield f"ours {PART_NAMES[part]}", [_plus(*pair, 1.0, (3, 3)) for pair in ranks]

    return _by_length(f"{title} (mean reciprocal rank)", "mean reciprocal rank", cells, lines)


def _plus(mean: float | None, deviation: float | None, unit: float, digits: tuple[int, int]) -> str:
    if mean is None:
        return NONE
    # without blanks, so that five lengths fit 80 columns
    spread = "" if deviation is None else f"±{unit * deviation:.{digits[1]}f}"
    return f"{unit * mean:.{digits[0]}f}{spread}"


def sizes_table(found: Comparison) -> Table:
    """Return how much data and training stand behind the numbers, the paper's beside ours."""
    data, first = DATA[found.spec], found.runs[0]
    train: dict[str, Any] = first.spec.get("train") or {}
    steps, batch, count = train.get("steps"), train.get("batch"), first.task.get("train")
    rows = [
        [f"training {data.samples}", f"{data.sizes['train']:,}", _count(count)],
        [f"validation {data.samples}", f"{data.sizes['validation']:,}", _count(first.task.get("validation"))],
        [f"training {data.samples} measured", NONE, _count(first.samples.get("train"))],
        ["seeds", NONE, _count(first.spec.get("seeds"))],
        ["steps", NONE, _count(steps)],
        ["batch", NONE, _count(batch)],
    ]
    if isinstance(steps, int) and isinstance(batch, int) and isinstance(count, int):
        rows.append(["passes over the data", NONE, f"{steps * batch / count:.3g}"])
    columns = [
        Column(name="what", meaning="how much of it"),
        Column(name="paper", meaning="as stated; – where it is not"),
        Column(name="ours", meaning="in this run"),
    ]
    return Table(caption="The size of the data, theirs and ours", columns=columns, rows=rows, marked=None)


def _count(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else NONE


# -- CSV files ----------------------------------------------------------------------------------------------

ON_TASKS = [
    "name",
    "paper_cell",
    "setting",
    "heads",
    "length",
    "hidden",
    "head_dim",
    "paper",
    "paper_deviation",
    "best",
    "median",
    "worst",
    "seed_spread",
    "target_spread",
    "targets",
    "trials",
    "diverged",
    "missing",
    "parameters",
    "parameters_total",
]
ON_REAL_DATA = [
    "name",
    "part",
    "heads",
    "length",
    "paper_cell",
    "paper",
    "paper_deviation",
    "accuracy",
    "deviation",
    "least",
    "most",
    "mrr",
    "mrr_deviation",
    "seeds",
    "trials",
    "diverged",
    "missing",
    "samples",
]
OF_TRIALS = [
    "setting",
    "length",
    "target",
    "hidden",
    "head_dim",
    "learning_rate",
    "intrinsic",
    "heads",
    "seed",
    "state",
    "nmse",
    "train_nmse",
    "accuracy",
    "train_accuracy",
    "mrr",
    "train_mrr",
    "steps",
    "parameters",
    "parameters_total",
    "seconds",
]
REQUIRED = {"intrinsic", "heads", "seed", "state", "nmse", "train_nmse"}


def cells_csv(name: str, item: Item, found: Comparison) -> str:
    """Return every cell with the paper's number beside it; accuracies go from 0 to 1 whatever the paper's unit."""
    if item.data is None:
        analysed = [cell for cell in found.analysis.cells if item.heads is None or cell.heads in item.heads]
        rows = [
            {**_beside(name, found.cells["validation", cell.heads or 0, cell.length or 0]), **cell.model_dump()}
            for cell in analysed
        ]
        return _csv(ON_TASKS, rows)
    return _csv(ON_REAL_DATA, [{**_beside(name, cell), **_accuracies(cell)} for cell in found.cells.values()])


def _beside(name: str, cell: ComparedCell) -> dict[str, Any]:
    """What a row says of every cell."""
    told = {"paper_cell": cell.source, "paper": cell.theirs, "paper_deviation": cell.deviation}
    return {"name": name, **{key: getattr(cell, key) for key in ("part", "heads", "length")}, **told}


def _accuracies(cell: ComparedCell) -> dict[str, Any]:
    (mean, deviation), (rank, of_ranks) = mean_and_deviation(cell.results), mean_and_deviation(cell.ranks)
    return {
        "accuracy": mean,
        "deviation": deviation,
        "least": min(cell.results, default=None),
        "most": max(cell.results, default=None),
        "mrr": rank,
        "mrr_deviation": of_ranks,
        "seeds": len(cell.results),
        **{key: getattr(cell, key) for key in ("trials", "diverged", "missing", "samples")},
    }


def trials_csv(runs: Sequence[Run]) -> str:
    """Return every finished trial as a row: what is left when the store is gone."""
    rows = [
        {**run.values, "intrinsic": run.intrinsic, **trial.model_dump(exclude={"curve"})}
        for run in runs
        for trial in run.trials
    ]
    used = [c for c in OF_TRIALS if c in REQUIRED or any(row.get(c) is not None for row in rows)]
    return _csv(used, rows, digits=5)


def _csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]], digits: int = 6) -> str:
    """Write rows with so many digits; what a row lacks stays empty."""
    return csv_text(columns, ({name: _short(row.get(name), digits) for name in columns} for row in rows))


def _short(value: Any, digits: int) -> Any:
    return f"{value:.{digits}g}" if isinstance(value, float) else value
