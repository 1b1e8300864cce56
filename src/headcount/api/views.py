"""The views of results whose rooms may not import `render`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headcount.analysis import Analysis, Dimension
from headcount.api import model_views, proof_views
from headcount.models import SavedModel
from headcount.render import Column, Table, View, cell_table, transition_table
from headcount.render.charts import SHAPES, Chart, ChartSeries, Dot, error_by_heads, linear_axis, ramp
from headcount.render.words import summary
from headcount.tasks.assumptions import AssumptionReport
from headcount.theory.certify import Certificate
from headcount.theory.construct import Built, BuiltWide
from headcount.theory.density import Density
from headcount.training import Trained

NESTED = {"by_target"}
"""Fields of a cell that hold lists; the rows of the table leave them out."""


def view_of(result: Any) -> View:
    """Return the view of a result."""
    for kind, view in _views().items():
        if isinstance(result, kind):
            return view(result)
    raise TypeError(f"{type(result).__name__} has no view")


def _views() -> dict[type, Callable[[Any], View]]:
    """Return the function that makes the view, for every type of result."""
    return {
        Analysis: analysis_view,
        Dimension: dimension_view,
        AssumptionReport: assumptions_view,
        Trained: model_views.trained_view,
        SavedModel: model_views.saved_model_view,
        Certificate: proof_views.certificate_view,
        Density: proof_views.density_view,
        Built: proof_views.built_view,
        BuiltWide: proof_views.built_view,
    }


def dimension_view(found: Dimension) -> View:
    """Return the answer, its reasons, and the errors by head count."""
    return View(
        sentences=[found.labelled, *(f"{reason.text} ({reason.tag})" for reason in found.reasons)],
        tables=[transition_table(found)],
        rows=[row.model_dump() for row in found.rows],
    )


def analysis_view(analysis: Analysis) -> View:
    """Return the answer of every setting, all cells, and error against heads."""
    answers = [found.labelled for found in analysis.dimensions]
    name = analysis.title or analysis.run
    several = f"{len(answers)} settings (read .dimensions); " if len(answers) > 1 else ""
    return View(
        sentences=[*answers, f"{name}: {summary(analysis)}."],
        tables=[cell_table(analysis)],
        figures=error_by_heads(analysis) if any(cell.best is not None for cell in analysis.cells) else [],
        rows=[cell.model_dump(exclude=NESTED) for cell in analysis.cells],
        headline=f"{name}: {several}{summary(analysis)}." if several else "",
    )


def assumptions_view(report: AssumptionReport) -> View:
    """Return the finding on each assumption, and a chart of the minimisers of the f_i."""
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
    """Return a chart of each f_i's minimisers in the first two coordinates, or coordinate and value if there is one."""
    if not report.applies:
        return None
    numbers: dict[str, Any] = report.finding("2.1").numbers
    points: list[list[list[float]]] = numbers["minimisers"]
    flat = all(len(point) == 1 for minimisers in points for point in minimisers)
    series = [
        ChartSeries(
            name=f"f_{i + 1}",
            style="rings",
            colour=ramp(i, len(points)),
            shape=SHAPES[i % len(SHAPES)],
            points=[Dot(x=point[0], y=least if flat else point[1]) for point in minimisers],
        )
        for i, (minimisers, least) in enumerate(zip(points, numbers["minima"], strict=True))
    ]
    dots = [dot for function in series for dot in function.points]
    listed = ", ".join(f"{f.name} at ({dot.x:.3g}, {dot.y:.3g})" for f in series[:8] for dot in f.points)
    more = (
        " (the first two coordinates)" if any(len(point) > 2 for minimisers in points for point in minimisers) else ""
    )
    return Chart(
        id="minimisers",
        kind="minimisers",
        title="Where every f_i is least",
        subtitle=f"{report.task}{more}",
        x=linear_axis("x_1", [dot.x for dot in dots]),
        y=linear_axis("Least value z_i" if flat else "x_2", [dot.y for dot in dots]),
        series=series,
        alt=f"Where every f_i is least{more}: {listed}{', and more' if len(series) > 8 else ''}.",
    )
