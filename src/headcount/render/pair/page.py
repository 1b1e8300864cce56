"""The page of two colliding sequences: the picture, then its numbers as tables, in one file."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from headcount.render.pages import Illustration
from headcount.render.pages import page as html_page
from headcount.render.pair.data import (
    CERTAINTIES,
    HeadFocus,
    PairFigure,
    distance_text,
    head_focuses,
    number_text,
    one_line,
    strips,
)
from headcount.render.pair.draw import draw_pair
from headcount.render.pair.targets import deviations, gap_text, targets_text
from headcount.render.style import _settings  # pyright: ignore[reportPrivateUsage] (one style for all)
from headcount.render.tables import NONE, Column, Table

DIGITS = 6
MAX_NAMED_TOKENS = 4
"""Tokens of a head that are named, unless they have almost no weight."""


def page(figure: PairFigure) -> str:
    """Return the page as one HTML document that has no scripts and loads nothing."""
    title = one_line(figure.title)
    return html_page(
        "render/pair.html.j2",
        live=False,
        title=title,
        question=one_line(figure.subtitle),
        answer=f"{title} ({CERTAINTIES[figure.kind]})",
        evidence=_claim(figure),
        pictures=[Illustration(picture(figure), _caption(figure), [picture(figure, stacked=True)])],
        targets=_targets(figure),
        facts=_facts(figure),
        implied=[one_line(text) for text in figure.sentences],
        functions=None if figure.f1 is None else _functions(figure),
        heads=_heads(figure),
        data=_data(figure),
    )


def picture(figure: PairFigure, *, stacked: bool = False) -> str:
    """Return the picture as an SVG element whose colours follow the page."""
    with _settings():
        drawn = draw_pair(figure, titled=False, stacked=stacked)
    return drawn.as_element("pair", _alt(figure))


def _caption(figure: PairFigure) -> str:
    upright = " A line between the two stands upright where they agree." if figure.weights1 or figure.f1 else ""
    return f"Circles belong to the first sequence, diamonds to the second.{upright}"


def _claim(figure: PairFigure) -> str:
    note = targets_text(figure)[1]
    gap = deviations(figure.gap / figure.unit) if figure.in_units else _number(figure.gap)
    outside = f"These sequences are not inputs of the task: {one_line(figure.outside)}. " if figure.outside else ""
    return f"{outside}The targets are {gap} apart, the attention outputs {distance_text(figure)}" + (
        f"; {note}." if note else "."
    )


def _alt(figure: PairFigure) -> str:
    """Return a description of the picture."""
    names = [row.name for row in strips(figure) if not row.covered]
    without = f" No head follows {', '.join(names)}." if names else ""
    return (
        f"{one_line(figure.title)}. Two sequences of {figure.length} tokens, and both "
        f"attention outputs drawn over each other, at a distance of {distance_text(figure)}.{without} "
        f"Targets {_number(figure.y1)} and {_number(figure.y2)}, {gap_text(figure)}; "
        f"the model says {_number(figure.prediction1)} and {_number(figure.prediction2)}."
    )


def _number(value: float) -> str:
    return number_text(value, DIGITS)


def _targets(figure: PairFigure) -> Table:
    pairs = {
        "Target": (figure.y1, figure.y2),
        "The model says": (figure.prediction1, figure.prediction2),
        "Error": (abs(figure.prediction1 - figure.y1), abs(figure.prediction2 - figure.y2)),
    }
    rows = [
        [name, _number(one), _number(other), NONE if name == "Error" else _number(abs(one - other))]
        for name, (one, other) in pairs.items()
    ]
    columns = _columns(
        ("Compared", "what is compared"), ("First sequence", ""), ("Second sequence", ""), ("Difference", "")
    )
    return Table(caption="Targets and predictions", columns=columns, rows=rows, marked=None)


def _facts(figure: PairFigure) -> list[tuple[str, str]]:
    facts = [
        ("Gap of the targets", _in_units(figure, figure.gap)),
        ("Standard deviation", f"{_number(figure.unit)}, of the target over the inputs of the task"),
        ("After attention", f"{figure.distance:.{DIGITS}g} apart, in {len(figure.out1)} numbers"),
    ]
    if figure.wrong:
        facts.append(("Error at least, measured", f"{_in_units(figure, figure.wrong)}, on one of the two"))
    if figure.outside is not None:
        facts.append(("Inputs of the task", f"no: {one_line(figure.outside)}" if figure.outside else "yes, both"))
    return facts


def _in_units(figure: PairFigure, value: float) -> str:
    return f"{_number(value)}, {deviations(value / figure.unit)}" if figure.in_units else _number(value)


def _functions(figure: PairFigure) -> Table:
    rows: list[list[str]] = []
    for row, name in zip(strips(figure), figure.names or (), strict=True):
        one, other = row.best or (0, 0)
        full = one_line(name)
        rows.append(
            [
                row.name if full in ("", row.name) else f"{row.name}: {full}",
                f"{_number(row.first[one])} at {one}",
                f"{_number(row.second[other])} at {other}",
                _number(abs(row.first[one] - row.second[other])),
                "" if row.covered else "no head follows it",
            ]
        )
    columns = _columns(
        ("Function", "what is minimised over the tokens"),
        ("First sequence", "its minimum, and the position"),
        ("Second sequence", "its minimum, and the position"),
        ("Difference", "of the minima"),
        ("Heads", ""),
    )
    return Table(
        caption="The minima, and the positions of their tokens (from 0)", columns=columns, rows=rows, marked=None
    )


def _heads(figure: PairFigure) -> Table | None:
    """Return the table of what each head looks at; None if that is not the tokens."""
    found = head_focuses(figure)
    if not found:
        return None
    rows = [
        [str(focus.head + 1), _tokens(focus.first), _tokens(focus.second), focus.strip.name, _means(focus)]
        for focus in found
    ]
    columns = _columns(
        ("Head", ""),
        ("First sequence", "positions by attention weight"),
        ("Second sequence", "positions by attention weight"),
        ("Along", "the function or coordinate it follows best"),
        ("Averages", "its weighted averages in both sequences"),
    )
    caption = "Positions (from 0) with their attention weights, the heaviest first"
    return Table(caption=caption, columns=columns, rows=rows, marked=None)


def _means(focus: HeadFocus) -> str:
    return f"{_number(focus.means[0])} and {_number(focus.means[1])}"


def _tokens(weights: Sequence[float]) -> str:
    """Return the tokens that a head looks at, with their weights, and the weight of all others."""
    order = sorted(range(len(weights)), key=lambda t: -weights[t])
    kept = [t for k, t in enumerate(order) if k < MAX_NAMED_TOKENS and (k == 0 or weights[t] >= 0.02)]
    texts = [f"{t}:\u00a0{100 * weights[t]:.1f}\u00a0%" for t in kept]
    if len(kept) < len(order):
        rest = sum(weights[t] for t in order[len(kept) :])
        texts.append(f"{len(order) - len(kept)} others:\u00a0{100 * rest:.1f}\u00a0%")
    return ", ".join(texts)


def _columns(*columns: tuple[str, str]) -> list[Column]:
    return [Column(name=name, meaning=meaning or name) for name, meaning in columns]


def _data(figure: PairFigure) -> str:
    text = json.dumps(figure.data(), ensure_ascii=False)
    return re.sub(r', "(?=\w+": )', ',\n "', text)  # one key per line
