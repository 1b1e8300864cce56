"""The last panel: both targets and the model's answer on one axis, with the gap in standard deviations."""

from __future__ import annotations

import math
from typing import Any

from headcount.analysis.words import times_text
from headcount.core.text import round_down
from headcount.render.pair.data import PairFigure, number_text
from headcount.render.pair.panels import FIRST, INK, MUTED, SECOND, Place, inches
from headcount.render.style import COLOURS

LEVEL = 0.98
"""Inches from the panel's top to the axis."""
TOP = 0.38
"""Inches from the panel's top to the arrow of the gap."""
NARROW = 6.0
"""Inches below which the axis has fewer ticks, and its texts are smaller."""
LETTER = 0.096
"""Inches of a bold letter there, about."""
SPAN = 0.3, 0.7
"""The numbers take this part of the axis; the rest is for their names."""
NARROW_SPAN = 0.36, 0.64


def digits(figure: PairFigure) -> int:
    """Return how many digits tell the numbers of the axis apart."""
    numbers = figure.y1, figure.y2, figure.prediction1, figure.prediction2
    span, size = max(numbers) - min(numbers), max(abs(number) for number in numbers)
    return 3 + min(max(math.floor(math.log10(size / span)), 0), 9) if span and size else 3


def gap_text(figure: PairFigure) -> str:
    """Write the gap, in the target's own unit, and in standard deviations where the pair are inputs of the task."""
    apart = f"{number_text(figure.gap)} apart"
    return f"{apart}, {deviations(figure.gap / figure.unit)}" if figure.in_units else apart


def deviations(times: float) -> str:
    """Write so many standard deviations."""
    text = times_text(times) if times else "0"
    return f"{text} standard deviation" + ("" if text == "1.0" else "s")


def targets_text(figure: PairFigure) -> tuple[str, str]:
    """Return the panel's headline and note."""
    one = number_text(figure.prediction1, digits(figure)) == number_text(figure.prediction2, digits(figure))
    headline = "Two targets, one answer" if one else "Two targets, almost one answer"
    if not figure.wrong:
        return "Two targets, two answers", ""
    least = round_down(figure.wrong, 3)
    if figure.in_units:
        least = f"{least}, or {round_down(figure.wrong / figure.unit, 2)} standard deviations"
    return headline, f"so at one of the two the model is wrong by at least {least} (measured)"


def targets_panel(fig: Any, place: Place, figure: PairFigure) -> None:
    """Draw the axis, targets above it and answers below it."""
    from matplotlib.ticker import MaxNLocator

    axes, width = inches(fig, place), place[2]
    narrow = width < NARROW
    letters, span = (10.0, NARROW_SPAN) if narrow else (12.0, SPAN)
    numbers = figure.y1, figure.y2, figure.prediction1, figure.prediction2
    low, high = min(numbers), max(numbers)
    if high <= low:
        low, high = low - figure.unit, high + figure.unit

    def at(value: float) -> float:
        return width * (span[0] + (span[1] - span[0]) * (value - low) / (high - low))

    axes.plot([0, width], [LEVEL, LEVEL], "-", color=MUTED, lw=1.2, zorder=1)
    answers = sorted((figure.prediction1, figure.prediction2))
    most = 5 if narrow else 12
    ticks = [
        t for t in MaxNLocator(most).tick_values(low - (high - low), high + (high - low)) if 0.3 < at(t) < width - 0.3
    ]
    for tick in ticks:
        axes.plot([at(tick)] * 2, [LEVEL, LEVEL + 0.06], "-", color=MUTED, lw=0.9, zorder=1)
        if all(abs(at(tick) - at(answer)) > 0.4 for answer in answers):
            axes.text(
                at(tick),
                LEVEL + 0.2,
                number_text(tick, digits(figure)),
                ha="center",
                va="center",
                fontsize=9.5,
                color=MUTED,
            )
    _targets(axes, figure, at(figure.y1), at(figure.y2), letters)
    middle = (at(figure.y1) + at(figure.y2)) / 2
    if narrow:  # a long text keeps inside
        half = 0.53 * LETTER * len(gap_text(figure))
        middle = min(max(middle, half), width - half) if 2 * half < width else width / 2
    axes.text(middle, TOP - 0.22, gap_text(figure), ha="center", va="center", fontsize=letters + 0.5, fontweight="bold")
    axes.annotate(
        "",
        (at(figure.y1), TOP),
        (at(figure.y2), TOP),
        arrowprops={
            "arrowstyle": "<|-|>,head_width=0.26,head_length=0.55",
            "lw": 1.7,
            "color": INK,
            "shrinkA": 0,
            "shrinkB": 0,
        },
    )
    for answer in answers:
        axes.plot([at(answer)] * 2, [LEVEL + 0.18, LEVEL + 0.4], "-", color=COLOURS["plain"], lw=1.2, zorder=2)
        axes.plot([at(answer)], [LEVEL + 0.12], "^", ms=10.5, mew=0, color=COLOURS["plain"], zorder=4)
    one, other = (number_text(answer, digits(figure)) for answer in (figure.prediction1, figure.prediction2))
    said = f"the model says {one} to both" if one == other else f"the model says {one} and {other}"
    axes.text(
        (at(answers[0]) + at(answers[1])) / 2,
        LEVEL + 0.53,
        said,
        ha="center",
        va="center",
        fontsize=letters,
        fontweight="bold",
        color=COLOURS["plain"],
    )


def _targets(axes: Any, figure: PairFigure, one: float, other: float, letters: float) -> None:
    """Draw both targets on the axis, their names outwards, so that these never meet."""
    for x, value, colour, mark, outward in (
        (one, figure.y1, FIRST, "o", one > other),
        (other, figure.y2, SECOND, "D", one <= other),
    ):
        axes.plot([x, x], [TOP, LEVEL], "-", color=colour, lw=1.2, zorder=2)
        axes.plot([x], [LEVEL - 0.08], mark, ms=10 if mark == "o" else 8.5, mew=0, color=colour, zorder=5)
        axes.text(
            x + (0.16 if outward else -0.16),
            LEVEL - 0.3,
            f"target {number_text(value, digits(figure))}",
            ha="left" if outward else "right",
            va="center",
            fontsize=letters,
            fontweight="bold",
            color=colour,
        )
