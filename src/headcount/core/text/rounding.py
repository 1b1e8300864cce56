"""Proved bounds in a few digits, rounded to the side on which they still hold."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal


def round_up(value: float, digits: int = 4) -> str:
    """Return a proved upper bound as text of `digits` significant digits, rounded upward."""
    return _rounded(value, digits, ROUND_CEILING)


def round_down(value: float, digits: int = 4) -> str:
    """Return a proved lower bound as text of `digits` significant digits, rounded downward."""
    return _rounded(value, digits, ROUND_FLOOR)


def _rounded(value: float, digits: int, mode: str) -> str:
    number = Decimal(value)
    if not number.is_finite() or not number:
        return f"{value:g}"
    place = Decimal(1).scaleb(number.adjusted() - digits + 1)
    return f"{float(number.quantize(place, mode)):.{digits}g}"
