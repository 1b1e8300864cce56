"""Pictures of what the theorems say: plain figure data in (this room does not know the theory), a file out."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headcount.core import BadInput, write_bytes
from headcount.render.style import COLOURS, SIZE, _settings  # pyright: ignore[reportPrivateUsage] (one style for all)
from headcount.render.tables import Column, Table

ENDINGS = (".png", ".pdf", ".svg")
SHORTEST_BAR, LONGEST_BAR, BESIDE_BARS = 8, 40, 46
"""Cells of a bar in a terminal, and of the columns before it."""
SMALLEST = 1e-16
"""Errors below are rounding, and have no place on a logarithmic axis."""


def check_picture(path: Path) -> None:
    """Refuse a name that no picture can have, before the work instead of after it."""
    if path.suffix.lower() not in ENDINGS:
        raise BadInput(f"a picture is saved as .png, .pdf or .svg, not {path.name!r}")
    if path.is_dir():
        raise BadInput(f"a picture is a file, and {path} is a folder")


def save_errors(figure: Mapping[str, Any], path: Path) -> None:
    """Draw errors against a growing parameter, both logarithmic, into a file: png, pdf or svg, by its ending.

    The figure holds `title`, `subtitle`, `x_label`, `y_label`, `x`, and `series`, each with `name`, `style` (line,
    dashes, dots, rings, or faint: dots that do not decide how far down the picture reaches), `tone` (a colour) and `y`.
    Counts are drawn in the same way, from a figure whose series have an `x` each.
    """
    check_picture(path)
    with _settings():
        drawn = _errors(figure)
    write_bytes(path, drawn.as_file(path))


def _errors(figure: Mapping[str, Any]) -> Any:
    """Lay out title, axes and a legend below."""
    from headcount.render.picture import Picture

    title = textwrap.wrap(figure["title"], 56)
    above, below, height = 0.6 + 0.27 * len(title), 0.8 + 0.25 * len(figure["series"]), SIZE[1] + 1.0
    fig = Picture(figsize=(SIZE[0], height), facecolor=COLOURS["ground"])
    axes = fig.add_axes((0.15, below / height, 0.82, (height - above - below) / height))
    axes.set_facecolor("none")
    axes.set_xlabel(figure["x_label"], fontsize=13, labelpad=5)
    axes.set_ylabel(figure["y_label"], fontsize=13, labelpad=5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", which="major", color=COLOURS["grid"], linewidth=0.9)
    fig.text(0.02, 1 - 0.14 / height, "\n".join(title), va="top", fontsize=14.5, fontweight="bold", linespacing=1.25)
    fig.text(0.02, 1 - (above - 0.12) / height, figure["subtitle"], va="bottom", fontsize=11, color=COLOURS["muted"])
    leading = [y for series in figure["series"] if series["style"] != "faint" for y in series["y"] if y > SMALLEST]
    if leading:
        floor = min(leading) / (30 if "x" in figure else 1.5)  # room for ▼ below errors, none below counts
        for series in figure["series"]:
            _series(axes, series.get("x") or figure["x"], series, floor)
        _logarithmic(axes, floor)
        fig.legend(loc="lower left", frameon=False, fontsize=11, handlelength=1.8, bbox_to_anchor=(0.13, 0.0))
    else:
        axes.text(0.5, 0.5, "Every error is 0.", transform=axes.transAxes, ha="center", va="center", fontsize=14)
        axes.set(xticks=[], yticks=[])
    axes.tick_params(which="both", length=0)
    return fig


def _logarithmic(axes: Any, floor: float) -> None:
    """Whole powers of ten, written out as long as that is short; the lowest place is that of ▼."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes.set(xscale="log", yscale="log")
    axes.set_ylim(floor / 1.6, None)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(numticks=7))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(
            FuncFormatter(lambda value, _: f"{value:,.9g}" if 1e-5 < value < 1e7 else f"{value:.0e}")
        )


def _series(axes: Any, x: list[float], series: Mapping[str, Any], floor: float) -> None:
    """Draw one series with its name in the legend; what lies below the floor becomes a ▼ there."""
    style, colour, name = series["style"], COLOURS[series["tone"]], series["name"]
    points = list(zip(x, series["y"], strict=True))
    kept, low = [point for point in points if point[1] > floor], [a for a, b in points if b <= floor]
    if style in ("line", "dashes"):
        axes.plot(
            *_columns(kept), ls="-" if style == "line" else (0, (4, 2.5)), lw=2, color=colour, label=name, zorder=2
        )
        return
    if low:
        name = f"{name}; ▼ lower still"
        axes.plot(low, [floor] * len(low), "v", ms=9, mew=0, color=colour, zorder=3)
    look = {"ms": 10, "mew": 1.8, "mfc": "none"} if style == "rings" else {"ms": 8.5, "mew": 0}
    axes.plot(*_columns(kept), "o", **look, color=colour, label=name, zorder=4)


def _columns(points: list[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [a for a, _ in points], [b for _, b in points]


STEPS = {
    "encoder": "Ψ, the encoder",
    "leakage": "leakage of the softmax",
    "maximum": "Lemma 9's maximum",
    "feedforward": "F",
}


def budget_table(shares: Mapping[str, float], eps: float, width: int) -> Table:
    """Return an error budget, what every step takes of ε, with bars where a line of `width` cells has room for them."""
    values = {STEPS[name]: share for name, share in shares.items()}
    values["left"] = max(eps - sum(shares.values()), 0.0)
    rows = [[name, f"{value:.3g}", f"{100 * value / eps:.1f}\u00a0%"] for name, value in values.items()]
    columns = [Column(name="step", kind="text", key=True), Column(name="error"), Column(name="of ε")]
    bar = min(LONGEST_BAR, width - BESIDE_BARS)
    if bar >= SHORTEST_BAR:
        columns.append(Column(name="", kind="text"))
        rows = [[*row, "█" * round(bar * value / eps)] for row, value in zip(rows, values.values(), strict=True)]
    return Table(caption="", columns=columns, rows=rows)
