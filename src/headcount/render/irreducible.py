"""The irreducible-error curve as a table and a picture: the largest gaps found against the head count."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from headcount.core.text import floor
from headcount.render.charts.chart import Axis, Chart, ChartSeries, Dot, Shade, whole_axis
from headcount.render.charts.matplotlib import panels
from headcount.render.tables import NONE, Column, Table

PANEL_KEYS = ("intrinsic", "length", "head_dim")
SERIES_LOOKS: dict[str, tuple[str, dict[str, Any]]] = {
    "typical": ("trained, typical inputs", {"tone": "enough", "shape": "circle"}),
    "all": ("trained, all inputs in the box", {"tone": "few", "shape": "diamond"}),
    "random": ("random weights, all inputs", {"tone": "muted", "shape": "square"}),
}
MIN_DRAWN_GAP = 0.02
"""Smaller gaps, and searches that found no pair, are drawn here."""
GAP_CAPTION = (
    "Largest target gap of two inputs with equal attention output, in standard deviations: no feed-forward block can "
    "avoid an error of half of it."
)


def curve_rows(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one summary per head count: the gaps of all seeds in standard deviations, by kind, and the median NMSE.

    `effort` has by kind how many starts there were over all seeds, how many converged, and whether every search had as
    many converged starts as the spec asks for, so that head counts may be compared.
    """
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        if "error" not in row:
            groups.setdefault((*(row[k] for k in PANEL_KEYS), row["heads"]), []).append(row)
    summary: list[dict[str, Any]] = []
    for key, members in groups.items():
        trained = [m for m in members if m["layer"] == "trained"]
        errors = [m["nmse_measured"] for m in trained]
        entry: dict[str, Any] = dict(zip((*PANEL_KEYS, "heads"), key, strict=True))
        entry["nmse_measured"] = statistics.median(errors) if errors else None
        for among in ("typical", "all"):
            entry[among] = [m[among]["deviations"] for m in trained if among in m]
        entry["proved"] = [m["all"]["deviations_proved"] or 0.0 for m in trained if "all" in m]
        random = [m for m in members if m["layer"] == "random" and "all" in m]
        entry["random"] = [m["all"]["deviations"] for m in random]
        searches = {among: [m[among] for m in trained if among in m] for among in ("typical", "all")}
        searches["random"] = [m["all"] for m in random]
        entry["effort"] = {kind: _effort(found) for kind, found in searches.items()}
        summary.append(entry)
    return summary


def _effort(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    sums = {key: sum(one[key] for one in found) for key in ("converged", "starts")}
    return {**sums, "equal": all(one["equal_effort"] for one in found)}


def curve_table(summary: Sequence[Mapping[str, Any]]) -> Table:
    """Return the gaps as a table: medians over seeds, with the range if there are several, and the effort."""
    rows: list[list[str]] = []
    for row in summary:
        nmse = NONE if row["nmse_measured"] is None else f"{row['nmse_measured']:.1e}"
        efforts = {**row["effort"], "proved": row["effort"]["all"]}
        kinds = ("typical", "all", "proved", "random")
        cells = [_spread(row[kind], efforts[kind], proved=kind == "proved") for kind in kinds]
        rows.append([*(str(row[key]) for key in (*PANEL_KEYS, "heads")), nmse, *cells])
    columns = [
        *(Column(name=name, key=True) for name in ("D", "T", "n", "heads")),
        Column(name="NMSE, measured"),
        *(
            Column(name=name, lines=True)
            for name in ("typical inputs", "all in the box", "of these proved", "random weights")
        ),
    ]
    notes = ["In brackets: converged starts of all starts, over all seeds."]
    if not equal_effort(summary):
        notes.append(
            "* at unequal effort: a search used up its starts or its time before as many starts had converged as "
            "elsewhere. Do not compare its gap with those of other head counts."
        )
    return Table(caption="", columns=columns, rows=rows, notes=notes)


def equal_effort(summary: Sequence[Mapping[str, Any]]) -> bool:
    """Whether every search of the table had as many converged starts as the spec asks for."""
    return all(effort["equal"] for row in summary for effort in row["effort"].values())


def _spread(values: Sequence[float], effort: Mapping[str, Any], *, proved: bool) -> str:
    if not values:
        return NONE
    low, median, high = (
        floor(value, 2) if proved else f"{value:.2f}" for value in (min(values), statistics.median(values), max(values))
    )
    middle = f"{median}{'' if effort['equal'] else '*'}"
    gaps = middle if len(values) == 1 else f"{middle} ({low}–{high})"
    return f"{gaps}\n[{effort['converged']} of {effort['starts']}]"


def curve_png(summary: Sequence[Mapping[str, Any]], title: str) -> bytes:
    """Return a PNG with one panel per task and head size, the same bytes every time."""
    return curve_picture(summary, title).as_png(160)


def curve_picture(summary: Sequence[Mapping[str, Any]], title: str) -> Any:
    """Return a picture with one panel per task and head size."""
    effort = (
        "Every search ran until equally many starts had converged."
        if equal_effort(summary)
        else "NOT all searches had as many converged starts: see the table before comparing head counts."
    )
    return panels(curve_charts(summary), title or "Irreducible gaps", f"{GAP_CAPTION} {effort}")


def curve_charts(summary: Sequence[Mapping[str, Any]]) -> list[Chart]:
    """Return one chart per task and head size, on a common y axis: the largest gap found against the head count."""
    grouped: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in summary:
        grouped.setdefault(tuple(row[k] for k in PANEL_KEYS), []).append(row)
    top = max(max([MIN_DRAWN_GAP, *row[kind]]) for row in summary for kind in SERIES_LOOKS)
    ticks = [
        (v, f"≤ {v:g}" if v == MIN_DRAWN_GAP else f"{v:g}") for v in (0.02, 0.1, 0.5, 1, 2, 5, 10, 20) if v <= 1.6 * top
    ]
    y = Axis(label="gap", scale="log", low=MIN_DRAWN_GAP / 1.4, high=1.6 * top, ticks=ticks)
    return [_chart(i, key, rows, y) for i, (key, rows) in enumerate(grouped.items(), 1)]


def _chart(number: int, key: tuple[Any, ...], rows: Sequence[Mapping[str, Any]], y: Axis) -> Chart:
    D, T, n = key
    x = whole_axis("heads", [row["heads"] for row in rows])
    series: list[ChartSeries] = []
    for k, (kind, (name, look)) in enumerate(SERIES_LOOKS.items()):
        found = [(row["heads"], [max(gap, MIN_DRAWN_GAP) for gap in row[kind]]) for row in rows if row[kind]]
        line = [Dot(x=heads, y=statistics.median(gaps)) for heads, gaps in found]
        dots = [Dot(x=heads, y=gap) for heads, gaps in found for gap in gaps]
        series.append(ChartSeries(name=name, style="dots", radius=2.5, shift=7.0 * (k - 1), points=dots, **look))
        series.append(ChartSeries(name=name, style="line", points=line, **look))
    spoken = "; ".join(f"{s.name}: {s.points[0].y:.2g} to {s.points[-1].y:.2g}" for s in series[1::2] if s.points)
    return Chart(
        id=f"gaps-{number}",
        kind="gaps",
        title=f"D = {D}, T = {T}, n = {n}",
        x=x,
        y=y,
        series=series,
        shades=[Shade(low=max(D - 0.5, x.low), high=x.high, tone="enough", text="")] if x.high > D - 0.5 else [],
        alt=f"Largest gap by number of heads. {spoken}.",
    )
