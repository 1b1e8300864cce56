"""What a terminal of any width must show: lines that fit, numbers that are whole, and nothing lost without a word."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from rich.cells import cell_len

from hostile import hidden

WIDTHS = (40, 60, 80, 120)
NUMBER = re.compile(r"(?<!\w)[-−+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?(?![a-zA-Z0-9])")


def line_problems(text: str, width: int) -> list[str]:
    """Return what is wrong with the lines: too long (unless it is a single word), a number cut, a character hidden."""
    found = [f"hidden: {sorted(hidden(text))}"] if hidden(text) else []
    for line in text.splitlines():
        if cell_len(line) > width and " " in line.strip():
            found.append(f"{cell_len(line)} cells: {line}")
        if line != line.rstrip():
            found.append(f"blanks at the end: {line!r}")
        if re.search(r"\d…|…\d", line):
            found.append(f"a number is cut: {line}")
    return found


def missing(values: Iterable[float], text: str) -> list[float]:
    """Return the numbers that no number of a text stands for; one may be rounded in its last digit, either way."""
    shown = [_read(match) for match in NUMBER.findall(text)]
    return [v for v in values if not any(_same(v, number, unit) for number, unit in shown)]


def _read(text: str) -> tuple[float, float]:
    """Return a number and the unit of its last digit."""
    digits, _, power = text.replace(",", "").replace("−", "-").partition("e")
    decimals = len(digits.partition(".")[2])
    return float(f"{digits}e{power or 0}"), 10.0 ** (int(power or 0) - decimals)


def _same(value: float, number: float, unit: float) -> bool:
    exact = isinstance(value, int) or (float(value).is_integer() and unit == 1)
    return value == number if exact else abs(value - number) <= unit * (1 + 1e-9) and unit <= abs(value) + 1e-300


def numbers_under(data: Any, names: Collection[str], but: Collection[str] = ()) -> Iterator[float]:
    """Yield all numbers of JSON data that stand under these names, and not inside of what is called as in `but`."""
    if isinstance(data, dict):
        for name, value in data.items():
            if name not in but:
                yield from _numbers(value) if name in names else numbers_under(value, names, but)
    elif isinstance(data, list):
        for value in data:
            yield from numbers_under(value, names, but)


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, bool):
        return
    if isinstance(value, int | float) and math.isfinite(value):
        yield value
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _numbers(one)
