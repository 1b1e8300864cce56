"""The measured rows: benchmarks/results/NAME.csv and NAME.json, and numbers as documents write them."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from pathlib import Path
from typing import Any

WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
Row = dict[str, Any]


class Results:
    """The result files of a folder; every file is read once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read: dict[str, Any] = {}

    def json(self, name: str) -> Any:
        """Return the contents of NAME.json."""
        if f"{name}.json" not in self._read:
            self._read[f"{name}.json"] = json.loads((self.folder / f"{name}.json").read_text(encoding="utf-8"))
        return self._read[f"{name}.json"]

    def rows(self, name: str) -> list[Row]:
        """Return the rows of NAME.csv, with numbers where a column holds numbers."""
        if name not in self._read:
            with (self.folder / f"{name}.csv").open(newline="", encoding="utf-8") as file:
                self._read[name] = [{key: _value(text) for key, text in row.items()} for row in csv.DictReader(file)]
        return self._read[name]

    def cells(
        self, name: str, *keys: str, column: str = "nmse", of: Callable[[list[float]], float] = min
    ) -> dict[tuple[Any, ...], float]:
        """Return the best seed of every cell (or another statistic of its seeds), by the values of some columns."""
        seeds: dict[tuple[Any, ...], list[float]] = {}
        for row in self.rows(name):
            seeds.setdefault(tuple(row[key] for key in keys), []).append(row[column])
        return {place: of(errors) for place, errors in seeds.items()}


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def digits(value: float, rounding: str = ROUND_HALF_EVEN) -> str:
    """Write a number with two significant digits, as documents do: 3.6, 1,600, 6.4e-5."""
    exact = Decimal(repr(value))
    rounded = exact.quantize(Decimal((0, (1,), exact.adjusted() - 1)), rounding)
    if rounded.adjusted() < -3:
        return f"{rounded:.1e}"
    return f"{rounded:,.{max(1 - rounded.adjusted(), 0)}f}"


def at_most(value: float) -> str:
    """Write an upper bound, rounded up."""
    return digits(value, ROUND_CEILING)


def at_least(value: float) -> str:
    """Write a lower bound, rounded down."""
    return digits(value, ROUND_FLOOR)


def span(values: Iterable[float]) -> str:
    """Write the range of some numbers: 1.3 to 2.7."""
    found = list(values)
    return f"{digits(min(found))} to {digits(max(found))}"


def listed(items: Sequence[Any]) -> str:
    """Write a list: 16, 32 and 64."""
    texts = [str(item) for item in items]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


def share(held: Iterable[bool]) -> str:
    """Write how many of some cases hold: all 30, or 29 of 30."""
    cases = list(held)
    return f"all {len(cases)}" if all(cases) else f"{sum(cases)} of {len(cases)}"


COMPUTED: dict[str, Callable[[Results], str]] = {}


def computed(name: str) -> Callable[[Callable[[Results], str]], Callable[[Results], str]]:
    """Register a function under the name that documents mark."""

    def register(function: Callable[[Results], str]) -> Callable[[Results], str]:
        assert name not in COMPUTED
        COMPUTED[name] = function
        return function

    return register
