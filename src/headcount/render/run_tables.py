"""The tables of a whole run: written once, for the page, the terminal and the CSV file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from headcount.analysis import Analysis, Cell, Place
from headcount.core.text import csv_text
from headcount.render.charts.chart import PaperValue, number_text
from headcount.render.charts.series import level, paper_values
from headcount.render.tables import NONE, Column, Table
from headcount.render.words.errors import terms_of
from headcount.render.words.numbers import error_text, times_text

_PLACE_COLUMNS = {
    "setting": Column(name="Setting", meaning="what else was varied", kind="text", key=True),
    "hidden": Column(name="N", meaning="hidden size of the feed-forward block", key=True),
    "length": Column(name="T", meaning="length of the sequences", key=True),
    "heads": Column(name="Heads", meaning="number of attention heads", key=True),
}


TEXT_COLUMNS = ("Coefficients", "Remark")
"""Last columns that hold text rather than numbers."""


def cell_table(analysis: Analysis) -> Table:
    """Return the table of all cells."""
    fields = _varied(analysis.cells)
    columns = [
        Column(name="Trials", meaning="models trained; if some gave no result, how many did"),
        Column(name="Error", meaning=f"{terms_of(analysis).kind}: {terms_of(analysis).targets}"),
        Column(name="Best", meaning="smallest error of all seeds and targets"),
        Column(name="Median", meaning="middle error of all seeds and targets"),
        Column(name="Worst", meaning="largest error"),
        Column(name="Seeds ×", meaning="factor by which seeds of one target typically differ", minor=True),
        Column(name="Targets ×", meaning="factor by which the targets typically differ", minor=True),
        Column(name="M", meaning="parameters of the encoder and the feed-forward block only, as in theory"),
        Column(name="Total", meaning="all parameters", minor=True),
    ]
    rows = [
        [
            _trials(c),
            _error(level(c)),
            _error(c.best),
            _error(c.median),
            _error(c.worst),
            _factor(c.seed_spread),
            _factor(c.target_spread),
            f"{c.parameters:,}",
            f"{c.parameters_total:,}",
        ]
        for c in analysis.cells
    ]
    return Table(
        caption=f"All cells ({terms_of(analysis).kind} {terms_of(analysis).data})",
        columns=[*(_PLACE_COLUMNS[f] for f in fields), *columns],
        rows=[[*_place(c, fields), *row] for c, row in zip(analysis.cells, rows, strict=True)],
    )


def drop_table(analysis: Analysis) -> Table:
    """Return the table of how much smaller the error is at the next head count, with intervals."""
    fields = _varied(analysis.drops)
    rows = [
        [
            *_place(d, fields),
            str(d.next_heads),
            "the same" if d.factor == 1 else f"{times_text(d.factor)}×",
            f"{times_text(d.low)} to {times_text(d.high)}",
        ]
        for d in analysis.drops
    ]
    columns = [
        *(_PLACE_COLUMNS[f] for f in fields),
        Column(name="Next", meaning="the next larger head count that was tried"),
        Column(name="Error smaller by", meaning="how many times smaller the error is there; below 1 it is larger"),
        Column(name="90 % interval", meaning="of the draws over seeds and targets"),
    ]
    return Table(caption="What one more head brings", columns=columns, rows=rows)


def slope_table(analysis: Analysis) -> Table:
    """Return the table of the effect of length at each head count: slope, and reversal score with its test."""
    fields = _varied([*analysis.slopes, *analysis.reversals])
    fields = [f for f in fields if f != "length"]
    scores = {(r.setting, r.hidden, r.heads): r for r in analysis.reversals}
    rows: list[list[str]] = []
    for slope in analysis.slopes:
        score = scores.get((slope.setting, slope.hidden, slope.heads))
        scores_and_p = [NONE, NONE] if score is None else [f"{score.score:.2f}", _p_text(score.p)]
        rows.append(
            [*_place(slope, fields), f"{slope.slope:+.2f}", f"{slope.low:+.2f} to {slope.high:+.2f}", *scores_and_p]
        )
    columns = [
        *(_PLACE_COLUMNS[f] for f in fields),
        Column(name="Slope", meaning="decades of error per decade of T; above 0 longer sequences are harder"),
        Column(name="90 % interval", meaning="of the draws over seeds and targets"),
        Column(name="R(h)", meaning="the paper's reversal score: how much longer sequences lower the error; 0 never"),
        Column(name="p", meaning="the share of draws without any effect of T whose score is at least as large"),
    ]
    return Table(caption=f"{terms_of(analysis).title} against length", columns=columns, rows=rows)


def scaling_table(analysis: Analysis) -> Table:
    """Return the table of the slopes in N, and what the theorem says about each."""
    fields = [f for f in _varied(analysis.scaling) if f != "hidden"]
    rows = [
        [
            *_place(s, fields),
            f"{s.slope:+.2f}",
            f"{s.low:+.2f} to {s.high:+.2f}",
            NONE if s.theory is None else f"{s.theory:+.2f}",
            NONE if s.half_k is None else f"{s.half_k:.2f}",
            s.theory_note or NONE,
        ]
        for s in analysis.scaling
    ]
    columns = [
        *(_PLACE_COLUMNS[f] for f in fields),
        Column(name="Slope", meaning="decades of error per decade of N"),
        Column(name="90 % interval", meaning="of the draws over seeds and targets"),
        Column(name="−2/k", meaning="the steepest slope that Theorem 2 (2) would allow, for orientation only"),
        Column(name="k/2", meaning="its inverse: decades of M that Theorem 2 (2) requires per decade of 1/NMSE"),
        Column(name="Remark", meaning="why the theorem does not predict the slope here", kind="text"),
    ]
    return Table(caption=f"{terms_of(analysis).title} against hidden size", columns=columns, rows=rows)


def law_table(analysis: Analysis) -> Table:
    """Return the table of the fitted laws, the chosen one marked."""
    places = [field for field in ("setting", "hidden") if len({getattr(law, field) for law in analysis.laws}) > 1]
    rows = [
        [
            law.formula + (" (chosen)" if law.chosen else ""),
            *_place(law, places),
            f"{law.score:.2f}",
            ", ".join(f"{k} = {_with_interval(v, law.intervals.get(k))}" for k, v in law.coefficients.items()),
        ]
        for law in analysis.laws
    ]
    chosen = [i for i, law in enumerate(analysis.laws) if law.chosen]
    columns = [
        Column(name="Law", meaning="the error as a function of heads h and length T", kind="text", key=True),
        *(_PLACE_COLUMNS[f] for f in places),
        Column(name="Misses by", meaning="mean absolute error of log10 on cells that were left out of the fit"),
        Column(name="Coefficients", meaning="with 90 % intervals", kind="text"),
    ]
    marked = chosen[0] if len(chosen) == 1 else None
    return Table(caption="Laws, fitted by least absolute error in log scale", columns=columns, rows=rows, marked=marked)


def paper_table(analysis: Analysis, reference: Sequence[PaperValue]) -> Table:
    """Return the table of the paper's numbers beside ours."""
    rows: list[list[str]] = []
    for setting in analysis.settings:
        for value in paper_values(reference, analysis, setting):
            found = [
                c for c in analysis.cells if (c.setting, c.heads, c.length) == (setting, value.heads, value.length)
            ]
            for cell in found or [None]:
                ours = None if cell is None else level(cell)
                ratio = NONE if not ours or not value.value else f"{times_text(ours / value.value)}×"
                size = "" if cell is None or len({c.hidden for c in analysis.cells}) < 2 else f", N = {cell.hidden}"
                rows.append(
                    [
                        f"{value.label}{size}",
                        setting or NONE,
                        str(value.heads),
                        str(value.length),
                        _with_deviation(value),
                        _error(ours),
                        _error(cell and cell.best),
                        _error(cell and cell.median),
                        ratio,
                    ]
                )
    columns = [
        Column(name="Source", meaning="where the paper has it", kind="text", key=True),
        _PLACE_COLUMNS["setting"],
        _PLACE_COLUMNS["heads"],
        _PLACE_COLUMNS["length"],
        Column(name="Paper", meaning="error in the paper, ± its deviation where it states one"),
        Column(name="Here", meaning=f"error in this run: {terms_of(analysis).targets}"),
        Column(name="Best", meaning="smallest error of all seeds and targets here"),
        Column(name="Median", meaning="middle error of all seeds and targets here"),
        Column(name="Here / paper", meaning="below 1, this run is better"),
    ]
    if len(analysis.settings) == 1:
        columns, rows = [columns[0], *columns[2:]], [[row[0], *row[2:]] for row in rows]
    caption = f"The paper's numbers and ours (mean over targets, {terms_of(analysis).seeds} of each)"
    return Table(caption=caption, columns=columns, rows=rows)


def cells_csv(analysis: Analysis) -> str:
    """Return every cell with every number, as a CSV file."""
    fields = [field for field in Cell.model_fields if field not in ("floored", "averaged")]
    if not analysis.plain:
        fields.append("floored")
    rows = [{field: _listed(getattr(cell, field)) for field in fields} for cell in analysis.cells]
    measured = {"measure": analysis.measure, "on": analysis.on} if not analysis.plain else {}
    return csv_text([*fields, *measured], [{**row, **measured} for row in rows])


def _listed(value: Any) -> Any:
    """Return a list of numbers as the text of one cell; other values as they are."""
    return " ".join(map(repr, value)) if isinstance(value, list) else value


def _varied(places: Sequence[Place]) -> list[str]:
    """Return the fields in which rows differ, and always the heads."""
    return [f for f in _PLACE_COLUMNS if f == "heads" or len({getattr(p, f) for p in places}) > 1]


def _place(place: Place, fields: Iterable[str]) -> list[str]:
    return [NONE if (v := getattr(place, f)) in (None, "") else str(v) for f in fields]


def _trials(cell: Cell) -> str:
    without_result = cell.diverged + cell.missing
    return f"{cell.trials - without_result} of {cell.trials}" if without_result else str(cell.trials)


def _error(error: float | None) -> str:
    return NONE if error is None else error_text(error)


def _with_deviation(value: PaperValue) -> str:
    """Return the paper's number with its deviation."""
    spread = value.deviation
    if spread is None and value.low is not None and value.high is not None:
        spread = (value.high - value.low) / 2
    return error_text(value.value) + ("" if spread is None else f" ± {error_text(spread)}")


def _factor(factor: float | None) -> str:
    return NONE if factor is None else times_text(factor)


def _p_text(p: float) -> str:
    return "below 0.001" if p < 0.001 else f"{p:.3f}"


def _with_interval(value: float, interval: tuple[float, float] | None) -> str:
    if interval is None:
        return number_text(value)
    return f"{number_text(value)} ({number_text(interval[0])} to {number_text(interval[1])})"
