"""The panels with the sequences, the functions of the target, the heads, and the outputs of the heads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headcount.render.pair.data import HeadFocus, PairFigure, Strip, value_text
from headcount.render.style import COLOURS

Place = tuple[float, float, float, float]
"""Left, bottom, width and height in inches."""
FIRST, SECOND, INK, MUTED = COLOURS["enough"], COLOURS["few"], COLOURS["ink"], COLOURS["muted"]
LABEL_WIDTH, NUMBERS_WIDTH = 1.26, 0.8
"""Inches of a row that its name takes on the left, and its numbers on the right."""
HEADER_HEIGHT, SCALE_HEIGHT = 0.2, 0.3
"""Inches above the rows, for the headers of the columns, and below them, for the scale."""


def inches(fig: Any, place: Place) -> Any:
    """Return bare axes whose units are inches, x to the right and y downwards."""
    left, bottom, width, height = place
    wide, tall = fig.get_size_inches()
    axes = fig.add_axes((left / wide, bottom / tall, width / wide, height / tall))
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.set_axis_off()
    return axes


def series_panel(fig: Any, place: Place, figure: PairFigure) -> None:
    """Draw sequences of numbers, value against position."""
    from matplotlib.ticker import FixedLocator, MaxNLocator

    axes = _plot(fig, place, (0.5, 0.42))
    size, around, edge = _marks(72 * (place[2] - 0.5) / figure.length)
    positions = range(figure.length)
    one, other = ([x[0] for x in X] for X in (figure.X1, figure.X2))
    axes.plot(positions, one, "-o", color=FIRST, ms=size, mew=0, lw=1.3, zorder=3)
    axes.plot(positions, other, "--D", color=SECOND, ms=around, mew=edge, mfc="none", lw=1.1, zorder=4)
    _rings(axes, figure, list(enumerate(one)), list(enumerate(other)), around)
    low, high = figure.low[0], figure.high[0]
    axes.set(xlim=(-0.5, figure.length - 0.5), ylim=(low - 0.09 * (high - low), high + 0.09 * (high - low)))
    axes.set_xlabel("position", fontsize=10, labelpad=2)
    axes.xaxis.set_major_locator(MaxNLocator(16, integer=True) if figure.length > 1 else FixedLocator([0]))
    axes.grid(axis="y", color=COLOURS["grid"], linewidth=0.9)


def plane_panel(fig: Any, place: Place, figure: PairFigure) -> None:
    """Draw sequences of points in the plane, the points of a position linked."""
    from matplotlib.patches import Rectangle
    from matplotlib.ticker import MaxNLocator

    axes = _plot(fig, place, (0.5, 0.42))
    size, around, edge = _marks(72 * place[2] / figure.length)
    (left, low), (right, high) = figure.low, figure.high
    axes.add_patch(Rectangle((left, low), right - left, high - low, fill=False, ec=MUTED, lw=0.9, zorder=1))
    for a, b in zip(figure.X1, figure.X2, strict=True):
        axes.plot([a[0], b[0]], [a[1], b[1]], "-", color=MUTED, lw=0.8, alpha=0.6, zorder=2)
    axes.plot([x[0] for x in figure.X1], [x[1] for x in figure.X1], "o", color=FIRST, ms=size, mew=0, zorder=4)
    axes.plot(
        [x[0] for x in figure.X2],
        [x[1] for x in figure.X2],
        "D",
        color=SECOND,
        ms=around,
        mew=edge,
        mfc="none",
        zorder=3,
    )
    _rings(axes, figure, figure.X1, figure.X2, around)
    axes.set_xlim(left - 0.06 * (right - left), right + 0.06 * (right - left))
    axes.set_ylim(low - 0.06 * (high - low), high + 0.06 * (high - low))
    if 0.4 < (right - left) / (high - low) < 2.5:
        axes.set_aspect("equal")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(5))
    axes.set_xlabel("x₁", fontsize=10, labelpad=2)
    axes.set_ylabel("x₂", fontsize=10, labelpad=2)
    axes.spines[:].set_visible(False)


def strips_panel(fig: Any, place: Place, rows: Sequence[Strip]) -> None:
    """Draw one row per function: the first sequence's tokens above its line, the second's below, the minima linked."""
    axes, tall = inches(fig, place), (place[3] - HEADER_HEIGHT - SCALE_HEIGHT) / len(rows)
    ends = LABEL_WIDTH, place[2] - NUMBERS_WIDTH
    minima = rows[0].best is not None
    _frame(axes, place, "minimum" if minima else "")
    for number, row in enumerate(rows):
        y = HEADER_HEIGHT + (number + 0.5) * tall
        if not row.covered:
            _band(axes, place[2], y, tall)
        _label(axes, y, row.name, "" if row.covered else "no head\nfollows it")
        _line(axes, ends, y)
        size = min(5.5, 24 * tall / len(row.first) ** 0.3)
        for values, side, colour, mark in _sides(row):
            axes.plot(
                _along(row, values, ends),
                [y + side * 0.2 * tall] * len(values),
                mark,
                ms=size,
                mew=0,
                color=colour,
                alpha=0.35,
                zorder=3,
            )
        if row.best is None:
            for pair in zip(*(_along(row, values, ends) for values in (row.first, row.second)), strict=True):
                axes.plot(pair, [y - 0.2 * tall, y + 0.2 * tall], "-", color=MUTED, lw=0.7, alpha=0.5, zorder=2)
        else:
            at = [_along(row, [v[k]], ends)[0] for v, k in zip((row.first, row.second), row.best, strict=True)]
            _link(axes, at, y, 0.2 * tall)
            for x, (values, side, colour, mark), k in zip(at, _sides(row), row.best, strict=True):
                axes.plot(
                    [x],
                    [y + side * 0.2 * tall],
                    mark,
                    ms=9.5 if mark == "o" else 8,
                    mew=1.1,
                    mec=INK,
                    mfc=colour,
                    zorder=6,
                )
                axes.text(
                    place[2] - 0.05,
                    y + side * 0.2 * tall,
                    value_text(values[k], row),
                    ha="right",
                    va="center",
                    fontsize=10.5,
                    color=colour,
                    fontweight="bold",
                )


def heads_panel(fig: Any, place: Place, found: Sequence[HeadFocus]) -> None:
    """Draw one row per head: tokens placed by what it follows, sized by their weights; the averages linked."""
    axes, tall = inches(fig, place), (place[3] - HEADER_HEIGHT - SCALE_HEIGHT) / len(found)
    ends = LABEL_WIDTH, place[2] - NUMBERS_WIDTH
    _frame(axes, place, "average")
    heaviest = max(w for focus in found for weights in (focus.first, focus.second) for w in weights)
    largest = 0.46 * tall * 72 / (heaviest or 1.0) ** 0.5  # points across, at weight 1
    for number, focus in enumerate(found):
        y = HEADER_HEIGHT + (number + 0.5) * tall
        _label(axes, y, f"head {focus.head + 1}", f"along {focus.strip.name}")
        _line(axes, ends, y)
        means = [_along(focus.strip, [mean], ends)[0] for mean in focus.means]
        _link(axes, means, y, 0.44 * tall, layer=2)
        for (values, side, colour, mark), weights, mean in zip(
            _sides(focus.strip), (focus.first, focus.second), focus.means, strict=True
        ):
            x, level = _along(focus.strip, values, ends), y + side * 0.23 * tall
            _bubbles(axes, x, level, weights, largest, colour, mark)
            _positions(axes, x, level, weights, largest)
            axes.text(
                place[2] - 0.05,
                y + side * 0.2 * tall,
                value_text(mean, focus.strip),
                ha="right",
                va="center",
                fontsize=10.5,
                color=colour,
                fontweight="bold",
            )


def outputs_panel(fig: Any, place: Place, figure: PairFigure, *, grouped: bool) -> None:
    """Draw both outputs over each other, number by number, grouped by head if they belong to heads."""
    from matplotlib.ticker import MaxNLocator

    count = len(figure.out1)
    axes = _plot(fig, place, (0.55, 0.05), 0.24)
    size, around, edge = _marks(72 * (place[2] - 0.55) / count)
    numbers = range(count)
    axes.axhline(0, color=MUTED, lw=0.8, zorder=1)
    axes.vlines(numbers, 0, figure.out1, color=COLOURS["grid"], lw=1.2, zorder=1.5)
    axes.plot(numbers, figure.out1, "o", color=FIRST, ms=size, mew=0, zorder=3)
    axes.plot(numbers, figure.out2, "D", color=SECOND, ms=around, mew=edge, mfc="none", zorder=4)
    low, high = min(*figure.out1, *figure.out2, 0.0), max(*figure.out1, *figure.out2, 0.0)
    span = high - low or 1.0
    axes.set(xlim=(-0.8, count - 0.2), ylim=(low - 0.12 * span, high + 0.12 * span), xticks=[])
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.spines["bottom"].set_visible(False)
    if not grouped:
        return
    each = count // figure.heads
    for head in range(figure.heads):
        if head % 2 == 0 and figure.heads > 1:
            axes.axvspan(head * each - 0.5, (head + 1) * each - 0.5, color=COLOURS["grid"], alpha=0.45, lw=0, zorder=0)
        name = f"head {head + 1}" if figure.heads <= 8 else str(head + 1)
        if figure.heads <= 24:
            axes.text(
                head * each + (each - 1) / 2,
                1.01,
                name,
                transform=axes.get_xaxis_transform(),
                ha="center",
                va="bottom",
                fontsize=9,
                color=MUTED,
            )


def _plot(fig: Any, place: Place, room: tuple[float, float], above: float = 0.0) -> Any:
    """Return axes in the package's style, with room for numbers on the left and below, and for names above."""
    left, bottom, width, height = place
    wide, tall = fig.get_size_inches()
    axes = fig.add_axes(
        (
            (left + room[0]) / wide,
            (bottom + room[1]) / tall,
            (width - room[0]) / wide,
            (height - room[1] - above) / tall,
        )
    )
    axes.set_facecolor("none")
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(length=0, labelsize=9.5, pad=4)
    return axes


def _marks(pitch: float) -> tuple[float, float, float]:
    """Return the sizes in points of a dot, of the diamond around it and of its line, for marks `pitch` points apart."""
    around = min(9.0, max(4.0, 0.9 * pitch))
    return 0.62 * around if around > 6 else 0.5 * around, around, 1.5 if around > 6 else 0.9


def _rings(axes: Any, figure: PairFigure, one: Sequence[Any], other: Sequence[Any], size: float) -> None:
    """Ring the minima that no head follows."""
    for best, points in ((figure.best1, one), (figure.best2, other)):
        for i in figure.uncovered:
            x, y = points[(best or [])[i]]
            axes.plot([x], [y], "o", ms=1.5 * size + 5, mew=1.6, mec=INK, mfc="none", zorder=5)


def _sides(row: Strip) -> list[tuple[Sequence[float], int, str, str]]:
    """Return each sequence's values, their side of the line (y goes down), and their colour and mark."""
    return [(row.first, -1, FIRST, "o"), (row.second, 1, SECOND, "D")]


def _along(row: Strip, values: Sequence[float], ends: tuple[float, float]) -> list[float]:
    """Return the places of values along a row, which has its own scale."""
    low, high = min(*row.first, *row.second), max(*row.first, *row.second)
    left, right = ends[0] + 0.22, ends[1] - 0.22
    if high <= low:
        return [(left + right) / 2 for _ in values]
    return [left + (right - left) * (value - low) / (high - low) for value in values]


def _frame(axes: Any, place: Place, numbers: str) -> None:
    """Name the column of numbers above the rows, and the direction of the scale below them."""
    left, right, y = LABEL_WIDTH, place[2] - NUMBERS_WIDTH, place[3] - SCALE_HEIGHT + 0.17
    axes.text(place[2] - 0.05, HEADER_HEIGHT - 0.06, numbers, ha="right", va="center", fontsize=9, color=MUTED)
    for x, text, side in ((left, "← smaller", "left"), (right, "larger →", "right")):
        axes.text(x, y, text, ha=side, va="center", fontsize=9, color=MUTED)


def _band(axes: Any, width: float, y: float, tall: float) -> None:
    """Mark a row that no head follows."""
    from matplotlib.patches import Rectangle

    place = (0.0, y - 0.47 * tall), width, 0.94 * tall
    axes.add_patch(Rectangle(*place, fc=COLOURS["grid"], lw=0, clip_on=False, zorder=0))
    axes.add_patch(Rectangle(*place, fill=False, ec=INK, lw=1.3, ls=(0, (4, 2.5)), clip_on=False, zorder=0))


def _label(axes: Any, y: float, name: str, below: str) -> None:
    """Write a row's name and a remark below it, centred together on the row."""
    lines = below.count("\n") + 1 if below else 0
    start = y - 0.075 * lines
    axes.text(0.1, start, name, va="center", fontsize=11, fontweight="bold")
    if below:
        axes.text(0.1, start + 0.1, below, va="top", fontsize=8.5, linespacing=1.15, color=INK if lines > 1 else MUTED)


def _line(axes: Any, ends: tuple[float, float], y: float) -> None:
    axes.plot(ends, [y, y], "-", color=MUTED, lw=0.8, alpha=0.7, zorder=1)


def _link(axes: Any, at: Sequence[float], y: float, reach: float, layer: int = 5) -> None:
    """Link what belongs together in both sequences: the line is upright if both are equal."""
    axes.plot(at, [y - reach, y + reach], "-", color=INK, lw=1.7, zorder=layer, solid_capstyle="round")


def _bubbles(
    axes: Any, x: Sequence[float], level: float, weights: Sequence[float], largest: float, colour: str, mark: str
) -> None:
    """Draw tokens with areas proportional to their weights; those with almost none as visible points."""
    areas = [(1.0 if mark == "o" else 0.62) * largest**2 * w for w in weights]  # a diamond's area is larger by 1.6
    seen = [k for k, area in enumerate(areas) if area > 1.6]
    rest = [x[k] for k, area in enumerate(areas) if area <= 1.6]
    axes.plot(rest, [level] * len(rest), mark, ms=1.3, mew=0, color=colour, alpha=0.62, zorder=3)
    axes.scatter(
        [x[k] for k in seen],
        [level] * len(seen),
        s=[areas[k] for k in seen],
        marker=mark,
        color=colour,
        alpha=0.62,
        linewidths=0,
        zorder=3,
    )


def _positions(axes: Any, x: Sequence[float], level: float, weights: Sequence[float], largest: float) -> None:
    """Write the position into bubbles with room for it, the heaviest first, none over another."""
    written: list[float] = []
    for t in sorted(range(len(weights)), key=lambda k: -weights[k]):
        if largest * weights[t] ** 0.5 < 13:
            break
        if all(abs(x[t] - other) > 0.17 for other in written):
            axes.text(
                x[t],
                level,
                str(t),
                ha="center",
                va="center_baseline",
                fontsize=7.5,
                fontweight="bold",
                color=COLOURS["ground"],
                zorder=7,
            )
            written.append(x[t])
