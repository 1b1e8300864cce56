"""The views of results whose rooms may not import the room that draws: Analysis, AssumptionReport, Trained."""

from __future__ import annotations

from typing import Any

from headcount.analysis import Analysis
from headcount.render import Column, Table, View, cell_table, trial_table, trial_text
from headcount.render.charts import SHAPES, Chart, ChartSeries, Dot, curve_chart, error_by_heads, linear_axis, ramp
from headcount.render.words import summary
from headcount.tasks.assumptions import AssumptionReport
from headcount.training import Trained

NESTED = {"by_target"}
"""Fields of a cell that hold lists: they stay in `Analysis.cells`."""


def view_of(result: Any) -> View:
    """Return the view of a result."""
    if isinstance(result, Analysis):
        return analysis_view(result)
    if isinstance(result, AssumptionReport):
        return assumptions_view(result)
    if isinstance(result, Trained):
        return trained_view(result)
    raise TypeError(f"{type(result).__name__} has no view")


def analysis_view(analysis: Analysis) -> View:
    """The answer of every setting, all cells, and error against heads."""
    told = [found.labelled for found in analysis.dimensions]
    name, several = analysis.title or analysis.run, f"{len(told)} settings (read .dimensions); " if told[1:] else ""
    return View(
        sentences=[*told, f"{name}: {summary(analysis)}."],
        tables=[cell_table(analysis)],
        figures=error_by_heads(analysis) if any(cell.best is not None for cell in analysis.cells) else [],
        rows=[cell.model_dump(exclude=NESTED) for cell in analysis.cells],
        headline=f"{name}: {several}{summary(analysis)}." if several else "",
    )


def assumptions_view(report: AssumptionReport) -> View:
    """What was found about each assumption, and where the f_i are least."""
    columns = [
        Column(name="Assumption", meaning="by its number in the paper"),
        Column(name="Verdict", meaning="holds, fails or unknown"),
        Column(name="Evidence", meaning="proved in ball arithmetic, or measured by a search"),
        Column(name="What was found", meaning="in words"),
    ]
    rows = [[f.assumption, f.verdict, f.evidence, f.sentence] for f in report.findings]
    chart = _minimisers(report)
    return View(
        sentences=[f"{report.sentence}."],
        tables=[Table(caption=f"The assumptions on {report.task}", columns=columns, rows=rows, marked=None)],
        figures=[] if chart is None else [chart],
        rows=[f.model_dump(include={"assumption", "verdict", "evidence", "sentence"}) for f in report.findings],
    )


def _minimisers(report: AssumptionReport) -> Chart | None:
    """Where every f_i is least, in the first two coordinates of a token; the value at it where there is one only."""
    if not report.applies:
        return None
    numbers: dict[str, Any] = report.finding("2.1").numbers
    points: list[list[list[float]]] = numbers["minimisers"]
    flat = all(len(point) == 1 for some in points for point in some)
    series = [
        ChartSeries(
            name=f"f_{i + 1}",
            style="rings",
            colour=ramp(i, len(points)),
            shape=SHAPES[i % len(SHAPES)],
            points=[Dot(x=point[0], y=least if flat else point[1]) for point in some],
        )
        for i, (some, least) in enumerate(zip(points, numbers["minima"], strict=True))
    ]
    dots = [dot for one in series for dot in one.points]
    told = ", ".join(f"{one.name} at ({dot.x:.3g}, {dot.y:.3g})" for one in series[:8] for dot in one.points)
    more = " (the first two coordinates)" if any(len(point) > 2 for some in points for point in some) else ""
    return Chart(
        id="minimisers",
        kind="minimisers",
        title="Where every f_i is least",
        subtitle=f"{report.task}{more}",
        x=linear_axis("x_1", [dot.x for dot in dots]),
        y=linear_axis("Least value z_i" if flat else "x_2", [dot.y for dot in dots]),
        series=series,
        alt=f"Where every f_i is least{more}: {told}{', and more' if len(series) > 8 else ''}.",
    )


def trained_view(trained: Trained) -> View:
    """The error and the sizes, and how the error fell during training."""
    trial, name = trained.trial, trained.task.name
    return View(
        sentences=[trial_text(trial, trained.wrong), f"Task: {name}."],
        tables=[trial_table(trial, trained.wrong)],
        figures=[curve_chart(trial, name)] if trial.curve else [],
        rows=[{"step": step, "nmse": error} for step, error in trial.curve],
    )
