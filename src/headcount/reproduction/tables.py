"""The tables and CSV files of a table or figure, the paper's numbers beside ours."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from headcount.analysis import Part
from headcount.core.text import csv_text
from headcount.render import NONE, Column, Table, cell_table, scaling_table
from headcount.render.words import error_text, times_text
from headcount.reproduction import numbers
from headcount.reproduction.cells import PART_NAMES, PARTS, Cells, ComparedCell, Comparison, mean_and_deviation
from headcount.reproduction.draws import beside_means, nearest_draw
from headcount.reproduction.items import DATA, Item
from headcount.reproduction.law import LAW_TABLE, LEFT_OUT_BY_PAPER, FittedLaw, laws_of, reversals_of
from headcount.reproduction.words import signed
from headcount.store import Run


def tables_of(item: Item, title: str, found: Comparison) -> list[Table]:
    """Return the tables of a table or figure: its own first, then those with its background."""
    if item.data is None:
        return _of_task(item, title, found)
    ranks = item.picture == "mrr"
    own = [rank_table(title, found.cells) if ranks else accuracy_table(title, found, item.part)]
    if item.picture == "law" or (item.spec == "marco" and item.picture == "accuracy"):
        own.append(law_table(found.cells))
    return [*own, reversal_table(found), sizes_table(found)]


def _of_task(item: Item, title: str, found: Comparison) -> list[Table]:
    """Return the tables of errors on a task; if settings or hidden sizes vary, there is a row for every cell."""
    analysis = found.analysis
    if item.picture == "reversal":
        return [reversal_table(found)]
    if len(analysis.settings) == 1 and len({c.hidden for c in analysis.cells}) == 1:
        return [error_table(title, found, item.heads)]
    slopes = [scaling_table(analysis)] if item.picture.startswith("hidden") else []
    return [*slopes, cell_table(analysis)]


Lines = Iterable[tuple[str, list[str]]]
"""The rows of one head count: whose numbers they are, and a text for every length."""
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


def error_table(title: str, found: Comparison, heads: Sequence[int] | None = None) -> Table:
    """Return errors in the paper's shape, of all head counts or of those given.

    For runs of one setting and one hidden size. Rows name best and median separately for seeds and draws of the target.
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

    `first` is the part that the paper's table is about; it comes first. Ours are mean ± standard deviation over seeds.
    """
    cells, unit = found.cells, DATA[found.spec].unit
    named, digits = ("percent", (1, 2)) if unit == 100 else ("from 0 to 1", (3, 3))

    def lines(heads: int) -> Lines:
        for part in sorted(PARTS, key=lambda part: part != first):
            line = cells.with_heads(part, heads)
            yield f"paper {PART_NAMES[part]}", [_mean_text(c.theirs, c.deviation, unit, digits) for c in line]
            yield f"ours {PART_NAMES[part]}", [_mean_text(*mean_and_deviation(c.results), unit, digits) for c in line]
        line = cells.with_heads(first, heads)
        if any(c.diverged + c.missing for c in line):
            yield "seeds", [f"{len(c.results)} of {c.trials}" for c in line]

    return _by_length(f"{title} (accuracy, {named})", f"top-1 accuracy, {named},", cells, lines)


def rank_table(title: str, cells: Cells) -> Table:
    """Return the mean reciprocal ranks, mean ± standard deviation over seeds."""

    def lines(heads: int) -> Lines:
        for part in PARTS:
            ranks = [mean_and_deviation(c.ranks) for c in cells.with_heads(part, heads)]
            yield f"ours {PART_NAMES[part]}", [_mean_text(*pair, 1.0, (3, 3)) for pair in ranks]

    return _by_length(f"{title} (mean reciprocal rank)", "mean reciprocal rank", cells, lines)


def _mean_text(mean: float | None, deviation: float | None, unit: float, digits: tuple[int, int]) -> str:
    if mean is None:
        return NONE
    # without spaces, so that five lengths fit into 80 columns
    spread = "" if deviation is None else f"±{unit * deviation:.{digits[1]}f}"
    return f"{unit * mean:.{digits[0]}f}{spread}"


def sizes_table(found: Comparison) -> Table:
    """Return how much data and training the numbers are based on, the paper's beside ours."""
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
        Column(name="paper", meaning="as stated; – if it is not"),
        Column(name="ours", meaning="in this run"),
    ]
    return Table(caption="The size of the data, theirs and ours", columns=columns, rows=rows, marked=None)


def _count(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else NONE


# -- the law and the reversal scores -------------------------------------------------------------------------


def law_table(cells: Cells) -> Table:
    """Return the fitted laws below the one that the paper states."""
    stated, left_out = numbers.fitted_law(), ", ".join(map(str, LEFT_OUT_BY_PAPER))
    rows = [["paper, stated", f"{stated['delta']:.2f}", signed(stated["alpha"]), NONE, NONE, NONE]]
    for law in laws_of(cells):
        whose = "ours" if law.ours else LAW_TABLE.replace("table", "table ")
        name = f"{whose}, {'some h' if law.without else 'all h'}"
        rows.append(
            [
                name,
                _within(law, "delta"),
                _within(law, "alpha"),
                signed(law.coefficients["b"]),
                str(law.cells),
                f"{law.missed:.2f}",
            ]
        )
    columns = [
        Column(
            name="whose",
            meaning=f"whose errors; some h: without h = {left_out}, as the paper's own fit",
        ),
        Column(name="δ", meaning="the power of T that divides h, with 90 % of the draws of seeds"),
        Column(name="α", meaning="the rate in h/T^δ, likewise"),
        Column(name="b", meaning="the power of T"),
        Column(name="cells", meaning="how many it was fitted to; those of accuracy 1 in the paper have no log"),
        Column(name="off", meaning="mean absolute error of log10 on them"),
    ]
    caption = f"The law Err = c·T^b·exp(α·h/T^δ); some h: without {left_out}"
    return Table(caption=caption, columns=columns, rows=rows, marked=None)


def _within(law: FittedLaw, key: str) -> str:
    value, ends = signed(law.coefficients[key]), law.intervals.get(key)
    return value if ends is None else f"{value} ({signed(ends[0])}, {signed(ends[1])})"


def reversal_table(found: Comparison) -> Table:
    """Return the weighted reversal score of every head count, the paper's beside ours."""
    columns, scores = [Column(name="h", meaning="heads")], reversals_of(found)
    levels = "best seeds, averaged over the draws in log scale" if found.data is None else "mean errors over seeds"
    for part, *_ in scores:
        name = "" if found.data is None else PART_NAMES[part]
        columns += [
            Column(name=f"paper {name}".strip(), meaning="R(h) of its table, over our lengths"),
            Column(name=f"ours {name}".strip(), meaning=f"R(h) of the {levels}"),
            Column(name=f"{name} 90 %".strip(), meaning="the middle of the draws of seeds"),
        ]
        if found.data is None:
            columns.append(Column(name="p", meaning="the chance of a score as large if T had no effect"))
    rows: list[list[str]] = []
    for heads in found.cells.heads:
        row = [str(heads)]
        for _, theirs, ours in scores:
            row.append(f"{theirs[heads]:.2f}" if heads in theirs else NONE)
            one = ours.get(heads)
            row += [NONE, NONE] if one is None else [f"{one.score:.2f}", f"{one.low:.2f} to {one.high:.2f}"]
            if found.data is None:
                row.append(NONE if one is None or one.p is None else f"{one.p:.2f}")
        rows.append(row)
    caption = "Weighted reversal score R(h): above 0, some longer sequences are easier"
    return Table(caption=caption, columns=columns, rows=rows, marked=None)


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


def cell_rows(name: str, item: Item, found: Comparison) -> list[dict[str, Any]]:
    """Return every cell with the paper's number beside it; accuracies go from 0 to 1 never in percent."""
    if item.data is None:
        columns = ON_TASKS
        analysed = [cell for cell in found.analysis.cells if item.heads is None or cell.heads in item.heads]
        rows = [
            {**_beside(name, found.cells["validation", cell.heads or 0, cell.length or 0]), **cell.model_dump()}
            for cell in analysed
        ]
    else:
        columns = ON_REAL_DATA
        rows = [{**_beside(name, cell), **_accuracies(cell)} for cell in found.cells.values()]
    return [{column: row.get(column) for column in columns} for row in rows]


def cells_csv(name: str, item: Item, found: Comparison) -> str:
    """Return the rows of `cell_rows` as a CSV file."""
    columns = ON_TASKS if item.data is None else ON_REAL_DATA
    return _csv(columns, cell_rows(name, item, found))


def _beside(name: str, cell: ComparedCell) -> dict[str, Any]:
    """Return what every row says: name, place, and the paper's number."""
    paper = {"paper_cell": cell.source, "paper": cell.theirs, "paper_deviation": cell.deviation}
    return {"name": name, **{key: getattr(cell, key) for key in ("part", "heads", "length")}, **paper}


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
    """Return every finished trial as a row: all that remains without the store."""
    rows = [
        {**run.values, "intrinsic": run.intrinsic, **trial.model_dump(exclude={"curve"})}
        for run in runs
        for trial in run.trials
    ]
    used = [c for c in OF_TRIALS if c in REQUIRED or any(row.get(c) is not None for row in rows)]
    return _csv(used, rows, digits=5)


def _csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]], digits: int = 6) -> str:
    """Return rows as CSV, numbers with so many digits; fields that a row lacks stay empty."""
    return csv_text(columns, ({name: _short(row.get(name), digits) for name in columns} for row in rows))


def _short(value: Any, digits: int) -> Any:
    return f"{value:.{digits}g}" if isinstance(value, float) else value
