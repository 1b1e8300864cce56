"""The layout of the picture of two colliding sequences: inputs, what the heads see, outputs, and targets."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from headcount.render.pair.data import (
    CERTAINTIES,
    MAX_ROWS,
    OUTPUT_HEADLINES,
    PairFigure,
    distance_text,
    head_focuses,
    most_informative,
    one_line,
    strips,
)
from headcount.render.pair.panels import heads_panel, outputs_panel, plane_panel, series_panel, strips_panel
from headcount.render.pair.targets import targets_panel, targets_text
from headcount.render.style import COLOURS
from headcount.render.words.numbers import heads_text

if TYPE_CHECKING:
    from headcount.render.picture import Picture

HEADER_HEIGHT, FOOTER_HEIGHT = 0.56, 0.34
"""Inches above a panel, for its headline and one line of its note, and below it."""
NOTE_LINE_HEIGHT = 0.17
"""Inches of every further line of a note."""
TARGETS_HEIGHT = 1.75


class Layout(NamedTuple):
    """The width of the picture, its margin and the gap between its columns, in inches."""

    width: float
    margin: float
    gap: float
    columns: int
    note: int
    """Characters per line of a note."""

    @property
    def inner(self) -> float:
        """Return the width between the margins."""
        return self.width - 2 * self.margin

    @property
    def column(self) -> float:
        """Return the width of a column."""
        return (self.inner - self.gap * (self.columns - 1)) / self.columns


SIDE_BY_SIDE = Layout(width=12.4, margin=0.35, gap=0.6, columns=2, note=200)
STACKED = Layout(width=4.8, margin=0.1, gap=0.0, columns=1, note=58)
"""For a phone: one panel below the other, with letters large enough to read."""


class Panel(NamedTuple):
    """One part of the picture: its texts, its smallest and largest height in inches, and how it is drawn."""

    headline: str
    note: str
    min_height: float
    max_height: float
    paint: Callable[[Any, tuple[float, float, float, float]], None]
    """Draws into a figure at a place: left, bottom, width and height in inches."""
    aside: str = ""

    @property
    def header(self) -> float:
        """Return the inches above the panel, for its headline and its note."""
        return HEADER_HEIGHT + NOTE_LINE_HEIGHT * self.note.count("\n")


def draw_pair(figure: PairFigure, *, titled: bool, stacked: bool = False) -> Picture:
    """Return the picture as a Matplotlib figure; `stacked` puts one panel below the other, for a narrow screen."""
    from headcount.render.picture import Picture

    layout = STACKED if stacked else SIDE_BY_SIDE
    left, right = _columns(figure)
    columns = [[*left, *right]] if stacked else [left, right]
    columns = [[_wrapped(panel, layout) for panel in column] for column in columns]
    headline, note = targets_text(figure)
    last = _wrapped(
        Panel(headline, note, TARGETS_HEIGHT, TARGETS_HEIGHT, lambda fig, place: targets_panel(fig, place, figure)),
        layout,
    )
    body = max(_min_height(column) for column in columns)
    if not stacked:
        body = min(body, max(_max_height(column) for column in columns))
    title = textwrap.wrap(one_line(figure.title), 88, max_lines=3, placeholder=" …") if titled else []
    text = f"{CERTAINTIES[figure.kind]}; {one_line(figure.subtitle)}".removesuffix("; ")
    subtitle = textwrap.wrap(text[0].upper() + text[1:], 128, max_lines=2, placeholder=" …")
    above = 0.2 + 0.31 * len(title) + (0.24 * len(subtitle) if titled else 0.0) + 0.6
    height = above + body + last.header + TARGETS_HEIGHT + 0.12
    fig = Picture(figsize=(layout.width, height), facecolor=COLOURS["ground"])
    if titled:
        fig.text(
            layout.margin / layout.width,
            1 - 0.16 / height,
            "\n".join(title),
            va="top",
            fontsize=16,
            fontweight="bold",
            linespacing=1.25,
        )
        fig.text(
            layout.margin / layout.width,
            1 - (0.24 + 0.31 * len(title)) / height,
            "\n".join(subtitle),
            va="top",
            fontsize=11.5,
            linespacing=1.3,
            color=COLOURS["muted"],
        )
    _keys(fig, layout, height - above + 0.3)
    for number, column in enumerate(columns):
        left_edge, top = layout.margin + number * (layout.column + layout.gap), height - above
        for panel, tall in zip(column, _heights(column, body), strict=True):
            _words(fig, panel, left_edge, top, layout.column)
            panel.paint(fig, (left_edge, top - panel.header - tall, layout.column, tall))
            top -= panel.header + tall + FOOTER_HEIGHT
    _words(fig, last, layout.margin, TARGETS_HEIGHT + last.header + 0.04, layout.inner)
    last.paint(fig, (layout.margin, 0.04, layout.inner, TARGETS_HEIGHT))
    return fig


def _wrapped(panel: Panel, layout: Layout) -> Panel:
    """Return a panel whose note is wrapped; in a single column the text right of the headline begins the note."""
    if layout.columns == 1 and panel.aside:
        panel = panel._replace(note=f"{panel.aside}; {panel.note}", aside="")
    return panel._replace(note="\n".join(textwrap.wrap(panel.note, layout.note)))


def _columns(figure: PairFigure) -> tuple[list[Panel], list[Panel]]:
    """Return the panels of the left column, with the sequences, and the right one, with the heads; the outputs go where
    there is room.
    """
    left, right = _inputs(figure), _heads(figure)
    grouped = bool(right) and len(figure.out1) % figure.heads == 0
    largest = max(abs(v) for v in (*figure.out1, *figure.out2))
    source = "the outputs of the heads" if right else "the state after the last attention"
    outputs = Panel(
        OUTPUT_HEADLINES[figure.kind],
        f"{source}, number by number; the largest is {largest:.2g}",
        1.7,
        3.2,
        lambda fig, place: outputs_panel(fig, place, figure, grouped=grouped),
        f"distance {distance_text(figure)}",
    )
    (left if _min_height(left) < _min_height(right) else right).append(outputs)
    return left, right


def _inputs(figure: PairFigure) -> list[Panel]:
    rows = most_informative(strips(figure))
    count = len(rows)
    panels: list[Panel] = []
    headline = "Two different sequences"
    ring = "; ring: a minimum that no head follows" if figure.uncovered else ""
    if figure.dim == 1:
        note = f"the {figure.length} tokens, value against position{ring}"
        panels.append(Panel(headline, note, 2.2, 3.0, lambda fig, place: series_panel(fig, place, figure)))
    elif figure.dim == 2:
        note = f"tokens in the plane, same positions linked{ring}"
        panels.append(Panel(headline, note, 3.4, 4.6, lambda fig, place: plane_panel(fig, place, figure)))
    if figure.f1 is not None or figure.dim > 2:
        if panels:
            headline = "What the target looks for"
        every = "function" if figure.f1 is not None else "coordinate"
        shown = (
            f"{count} of {len(strips(figure))} {every}s" if len(strips(figure)) > MAX_ROWS else f"one row per {every}"
        )
        note = f"{shown}; all {figure.length} tokens in each, " + (
            "its minimum large" if figure.f1 is not None else "same positions linked"
        )
        panels.append(
            Panel(
                headline,
                note,
                _rows(count, 0.64),
                _rows(count, 1.15),
                lambda fig, place: strips_panel(fig, place, rows),
            )
        )
    return panels


def _heads(figure: PairFigure) -> list[Panel]:
    found = head_focuses(figure)[:MAX_ROWS]
    if not found:
        return []
    shown = "number: position" if figure.heads <= MAX_ROWS else f"only {MAX_ROWS} of {heads_text(figure.heads)}"
    note = f"size: attention weight; {shown}; upright line: equal averages"
    headline = "What each head looks at" if figure.heads > 1 else "What the head looks at"
    return [
        Panel(
            headline,
            note,
            _rows(len(found), 0.66),
            _rows(len(found), 1.15),
            lambda fig, place: heads_panel(fig, place, found),
        )
    ]


def _rows(count: int, tall: float) -> float:
    """Return the height of a panel of rows, with its header and its scale."""
    return 0.5 + count * tall


def _min_height(column: list[Panel]) -> float:
    return sum(panel.header + panel.min_height + FOOTER_HEIGHT for panel in column)


def _max_height(column: list[Panel]) -> float:
    return sum(panel.header + panel.max_height + FOOTER_HEIGHT for panel in column)


def _heights(column: list[Panel], body: float) -> list[float]:
    """Return the heights of the panels of a column, which grow together until the column is full."""
    spare, room = body - _min_height(column), sum(panel.max_height - panel.min_height for panel in column)
    share = min(max(spare, 0.0) / room, 1.0) if room else 0.0
    return [panel.min_height + share * (panel.max_height - panel.min_height) for panel in column]


def _words(fig: Any, panel: Panel, left: float, top: float, width: float) -> None:
    wide, tall = fig.get_size_inches()
    fig.text(left / wide, (top - 0.02) / tall, panel.headline, va="top", fontsize=13.5, fontweight="bold")
    fig.text(left / wide, (top - 0.27) / tall, panel.note, va="top", fontsize=10, color=COLOURS["muted"])
    if panel.aside:
        fig.text(
            (left + width) / wide,
            (top - 0.04) / tall,
            panel.aside,
            va="top",
            ha="right",
            fontsize=12,
            fontweight="bold",
            color=COLOURS["plain"],
        )


def _keys(fig: Any, layout: Layout, middle: float) -> None:
    """Draw the legend of the three marks, once for all panels."""
    from matplotlib.lines import Line2D

    wide, tall = fig.get_size_inches()
    kinds = (
        ("first sequence", "o", "enough", 8.0),
        ("second sequence", "D", "few", 7.0),
        ("the model", "^", "plain", 8.5),
    )
    stacked = layout.columns == 1
    keys = [
        Line2D([], [], marker=mark, ls="", ms=size, mew=0, color=COLOURS[tone], label=name)
        for name, mark, tone, size in kinds
    ]
    fig.legend(
        handles=keys,
        loc="center left",
        ncols=3,
        frameon=False,
        fontsize=10.5 if stacked else 11.5,
        handletextpad=0.2,
        columnspacing=0.8 if stacked else 1.8,
        borderpad=0,
        handlelength=1.4,
        bbox_to_anchor=((layout.margin - 0.05) / wide, middle / tall),
    )
