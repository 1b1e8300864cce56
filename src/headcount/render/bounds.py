"""Pictures of what the theorems state: plain figure data in (this room does not know the theory), a file out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headcount.core import BadInput
from headcount.core.text import round_down, round_up
from headcount.render.charts.chart import Chart, ChartSeries, Dot, log_axis
from headcount.render.charts.matplotlib import save
from headcount.render.style import check_ending
from headcount.render.tables import Column, Table

MIN_BAR, MAX_BAR, CELLS_BEFORE_BAR = 8, 40, 46
"""Cells of a bar in a terminal at least and at most, and of the columns before it."""
MIN_DRAWN_ERROR = 1e-16
"""Smaller errors are rounding, and have no place on a logarithmic axis."""
DOT_RADIUS = 5.5
"""Dots are large, since there are few."""
LOWER_NOTE = "; ▼ lower still"


def check_picture(path: Path) -> None:
    """Raise BadInput for a path that cannot be a picture, before the work instead of after it."""
    check_ending(path)
    if path.is_dir():
        raise BadInput(f"{path} is a folder: a picture needs the name of a file")


def save_errors(figure: Mapping[str, Any], path: Path) -> None:
    """Save a plot of errors against a growing parameter; the file extension selects png, pdf or svg."""
    check_picture(path)
    save(errors_chart(figure), path)


def errors_chart(figure: Mapping[str, Any]) -> Chart:
    """Return errors against a growing parameter, both logarithmic, as a chart.

    The figure holds `title`, `subtitle`, `x_label`, `y_label`, `x`, and `series`, each with `name`, `style` (line,
    dashes, dots, rings, or faint: dots that do not decide how far down the picture reaches), `tone` (a colour) and `y`.
    Counts are drawn in the same way, from a figure whose series have an `x` each.
    """
    leading = [
        y for series in figure["series"] if series["style"] != "faint" for y in series["y"] if y > MIN_DRAWN_ERROR
    ]
    floor = min(leading, default=1.0) / (30 if "x" in figure else 1.5)  # room for ▼ below errors, none below counts
    series = [one for given in figure["series"] for one in _series(given, figure, floor)] if leading else []
    xs, ys = ([value for one in series for value in (getattr(p, side) for p in one.points)] for side in ("x", "y"))
    spoken = "; ".join(f"{s.name}: {s.points[0].y:.2g} to {s.points[-1].y:.2g}" for s in series if s.points)
    return Chart(
        id="errors",
        kind="errors",
        title=figure["title"],
        subtitle=figure["subtitle"],
        x=log_axis(figure["x_label"], xs),
        y=log_axis(figure["y_label"], ys),
        series=series,
        notes=[] if series else ["Every error is 0."],
        alt=f"{figure['title']}. {spoken}.",
    )


def _series(given: Mapping[str, Any], figure: Mapping[str, Any], floor: float) -> list[ChartSeries]:
    """Return one series, and the points below the floor as ▼ on the floor, under the same name."""
    points = list(zip(given.get("x") or figure["x"], given["y"], strict=True))
    inside, low = [Dot(x=x, y=y) for x, y in points if y > floor], [Dot(x=x, y=floor) for x, y in points if y <= floor]
    tone, name = given["tone"], given["name"]
    if given["style"] in ("line", "dashes"):
        style: dict[str, Any] = {"style": "line", "marks": "none"} if given["style"] == "line" else {"style": "dashed"}
        return [ChartSeries(name=name, tone=tone, points=inside, **style)]
    name = f"{name}{LOWER_NOTE}" if low else name
    dots = "rings" if given["style"] == "rings" else "dots"
    found = [ChartSeries(name=name, style=dots, tone=tone, radius=DOT_RADIUS, points=inside)]
    below = ChartSeries(name=name, style="dots", tone=tone, radius=DOT_RADIUS, shape="down", points=low)
    return [*found, below] if low else found


BUDGET_STEPS = {
    "encoder": "Ψ, the encoder",
    "leakage": "leakage of the softmax",
    "maximum": "Lemma 9's maximum",
    "feedforward": "F",
}


def budget_table(shares: Mapping[str, float], eps: float, width: int) -> Table:
    """Return an error budget, the share of ε that every step takes, with bars if `width` cells have room for them."""
    values = {BUDGET_STEPS[name]: share for name, share in shares.items()}
    values["left"] = max(eps - sum(shares.values()), 0.0)
    sides = {name: round_down if name == "left" else round_up for name in values}
    rows = [[name, sides[name](value, 3), f"{100 * value / eps:.1f}\u00a0%"] for name, value in values.items()]
    columns = [Column(name="step", kind="text", key=True), Column(name="error"), Column(name="of ε")]
    bar = min(MAX_BAR, width - CELLS_BEFORE_BAR)
    if bar >= MIN_BAR:
        columns.append(Column(name="", kind="text"))
        rows = [[*row, "█" * round(bar * value / eps)] for row, value in zip(rows, values.values(), strict=True)]
    return Table(caption="", columns=columns, rows=rows)
