"""The data of the picture of two colliding sequences, checked, and the numbers that follow from them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple, Self

from pydantic import Field, model_validator

from headcount.core import Spec
from headcount.core.text import plain
from headcount.render.words.numbers import error_text

MAX_ROWS = 12
"""Rows that are drawn; if there are more, the most informative are kept."""
MAX_NAME_LENGTH = 7
"""Characters; longer names of functions are not written beside a row."""
CERTAINTIES = {
    "exact": "an exact collision",
    "near": "a near collision",
    "evidence": "numerical evidence, not a proof",
}
OUTPUT_HEADLINES = {
    "exact": "After attention: the same",
    "near": "After attention: almost the same",
    "evidence": "After attention: measured equal",
}


class PairFigure(Spec):
    """Two sequences, what attention makes of them, and their targets; positions and functions count from 0."""

    title: str
    subtitle: str
    kind: Literal["exact", "near", "evidence"]
    X1: list[list[float]]
    X2: list[list[float]]
    low: list[float]
    high: list[float]
    f1: list[list[float]] | None
    """[D, T]: the functions whose minima make the target, at every token; None where there are none."""
    f2: list[list[float]] | None
    best1: list[int] | None
    best2: list[int] | None
    names: list[str] | None
    weights1: list[list[float]] | None
    """[heads, T]; None for deeper models, whose last layer does not see the tokens directly."""
    weights2: list[list[float]] | None
    out1: list[float] = Field(min_length=1)
    out2: list[float] = Field(min_length=1)
    heads: int = Field(ge=1)
    uncovered: list[int]
    y1: float
    y2: float
    unit: float = Field(gt=0)
    """The target's standard deviation over the task's own inputs."""
    prediction1: float
    prediction2: float
    sentences: list[str]
    outside: str | None = None
    """Why the sequences are not inputs of the task; empty if they are, None if that is not known."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        T, d = len(self.X1), len(self.low)
        if not T or not d:
            raise ValueError("a pair needs at least one token of at least one number")
        _shape("X1", self.X1, T, d)
        _shape("X2", self.X2, T, d)
        _shape("high", [self.high], 1, d)
        if not all(a < b for a, b in zip(self.low, self.high, strict=True)):
            raise ValueError("low must be below high in every coordinate")
        _shape("out2", [self.out2], 1, len(self.out1))
        if (self.f1 is None) != (self.f2 is None) or (self.weights1 is None) != (self.weights2 is None):
            raise ValueError("f1 and f2, weights1 and weights2 are given for both sequences or for none")
        names = self.names or []
        D = len(names)
        if self.f1 is None and (names or self.best1 or self.best2 or self.uncovered):
            raise ValueError("names, best1, best2 and uncovered need f1 and f2")
        if self.f1 is not None and not D:
            raise ValueError("f1 and f2 need a name for every function")
        for which, f, best in (("1", self.f1, self.best1), ("2", self.f2, self.best2)):
            if f is not None:
                _shape(f"f{which}", f, D, T)
                if best is None or len(best) != D or not all(0 <= t < T for t in best):
                    raise ValueError(f"best{which} must hold {D} positions from 0 to {T - 1}")
        if len(set(self.uncovered)) != len(self.uncovered) or not all(0 <= i < D for i in self.uncovered):
            raise ValueError(f"uncovered must hold different numbers of functions from 0 to {D - 1}")
        for which, weights in (("1", self.weights1), ("2", self.weights2)):
            if weights is not None:
                _shape(f"weights{which}", weights, self.heads, T)
                if any(w < 0 for row in weights for w in row) or any(sum(row) > 1.001 for row in weights):
                    raise ValueError(f"weights{which} must not be negative, nor a head's sum above 1")
        return self

    @property
    def length(self) -> int:
        """Return T."""
        return len(self.X1)

    @property
    def dim(self) -> int:
        """Return d."""
        return len(self.low)

    @property
    def distance(self) -> float:
        """Return the distance between the attention outputs."""
        return math.dist(self.out1, self.out2)

    @property
    def gap(self) -> float:
        """Return the distance between the targets."""
        return abs(self.y1 - self.y2)

    @property
    def in_units(self) -> bool:
        """Whether gaps are stated in standard deviations: not for sequences that are not inputs of the task."""
        return not self.outside

    @property
    def wrong(self) -> float:
        """Return a lower bound of the larger of the two errors, whatever the order of the targets."""
        return max(self.gap - abs(self.prediction1 - self.prediction2), 0.0) / 2


class Strip(NamedTuple):
    """One number for every token of both sequences: a function of the target, or a coordinate."""

    name: str
    number: int
    first: Sequence[float]
    second: Sequence[float]
    best: tuple[int, int] | None
    """The positions of the two minima."""
    covered: bool


class HeadFocus(NamedTuple):
    """What one head looks at, along the function or coordinate that it follows best."""

    head: int
    strip: Strip
    first: Sequence[float]
    second: Sequence[float]
    """The attention weights of the two sequences."""
    means: tuple[float, float]


def strips(figure: PairFigure) -> list[Strip]:
    """Return the functions of the target or, if there are none, the coordinates."""
    if figure.f1 is None or figure.f2 is None:
        columns = enumerate(zip(zip(*figure.X1, strict=True), zip(*figure.X2, strict=True), strict=True))
        return [Strip(f"x{subscript(k + 1)}", k, a, b, None, True) for k, (a, b) in columns]
    best = zip(figure.best1 or (), figure.best2 or (), strict=True)
    rows = zip(labels(figure.names or ()), figure.f1, figure.f2, best, strict=True)
    return [Strip(name, i, a, b, at, i not in figure.uncovered) for i, (name, a, b, at) in enumerate(rows)]


def labels(names: Sequence[str]) -> list[str]:
    """Return names that fit beside a row: the given ones or, if one is too long, the paper's f with numbers."""
    shown = [one_line(name) for name in names]
    if all(0 < len(name) <= MAX_NAME_LENGTH for name in shown) and len(set(shown)) == len(shown):
        return shown
    return [f"f{subscript(i + 1)}" for i in range(len(shown))]


def most_informative(rows: list[Strip]) -> list[Strip]:
    """Return the rows to draw, in order: those that no head follows, then those that differ most."""

    def weight(row: Strip) -> tuple[bool, float]:
        scale = max(*row.first, *row.second) - min(*row.first, *row.second) or 1.0
        if row.best is not None:
            return not row.covered, abs(row.first[row.best[0]] - row.second[row.best[1]]) / scale
        return False, math.dist(sorted(row.first), sorted(row.second)) / scale

    return sorted(sorted(rows, key=weight, reverse=True)[:MAX_ROWS], key=lambda row: row.number)


def head_focuses(figure: PairFigure) -> list[HeadFocus]:
    """Return what each head looks at, along what it follows best; empty for deeper models."""
    if figure.weights1 is None or figure.weights2 is None:
        return []
    rows = strips(figure)
    rows = [row for row in rows if row.covered] or rows
    found: list[HeadFocus] = []
    for head, (a, b) in enumerate(zip(figure.weights1, figure.weights2, strict=True)):
        # a head's scores are the logarithms of its weights up to a constant; it follows a function if they fall with it
        pulls = [_correlation(row, a, b) for row in rows]
        pulls = [-pull if figure.f1 is not None else abs(pull) for pull in pulls]
        row = rows[pulls.index(max(pulls))]
        found.append(HeadFocus(head, row, a, b, (_mean(row.first, a), _mean(row.second, b))))
    return found


def number_text(value: float, digits: int = 3) -> str:
    """Return a number as text with so many digits and a true minus sign."""
    text = f"{value:.0f}" if 10.0**digits <= abs(value) < 1e6 else f"{value:.{digits}g}"
    return "0" if float(text) == 0 else text.replace("-", "−", 1) if value < 0 else text


def value_text(value: float, row: Strip) -> str:
    """Return a value of a row as text with as many decimals as its scale needs."""
    span = max(*row.first, *row.second) - min(*row.first, *row.second)
    if not 1e-3 <= span < 1e4:
        return number_text(value)
    text = f"{value:.{max(2 - math.floor(math.log10(span)), 0)}f}"
    return text.removeprefix("-") if float(text) == 0 else text.replace("-", "−")


def distance_text(figure: PairFigure) -> str:
    """Return the distance after attention as text."""
    return error_text(figure.distance)


def subscript(number: int) -> str:
    """Return a number as a subscript."""
    return str(number).translate(str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉"))


def one_line(text: str) -> str:
    """Return a harmless text without line breaks."""
    return " ".join(plain(text, lines=True).split())


def _shape(name: str, rows: Sequence[Sequence[float]], count: int, size: int) -> None:
    if len(rows) != count or any(len(row) != size for row in rows):
        shape = f"{count} rows of {size} numbers" if count > 1 else f"{size} numbers"
        raise ValueError(f"there must be {shape} in {name}")


def _mean(values: Sequence[float], weights: Sequence[float]) -> float:
    total = math.fsum(weights)
    if not total:
        return math.fsum(values) / len(values)
    return math.fsum(v * w for v, w in zip(values, weights, strict=True)) / total


def _correlation(row: Strip, first: Sequence[float], second: Sequence[float]) -> float:
    """Return the correlation of values and log weights, both centred within each sequence."""
    x: list[float] = []
    y: list[float] = []
    for values, weights in ((row.first, first), (row.second, second)):
        logs = [math.log(max(w, 1e-12)) for w in weights]
        for into, numbers in ((x, values), (y, logs)):
            middle = math.fsum(numbers) / len(numbers)
            into += [number - middle for number in numbers]
    size = math.hypot(*x) * math.hypot(*y)
    return math.fsum(a * b for a, b in zip(x, y, strict=True)) / size if size else 0.0
