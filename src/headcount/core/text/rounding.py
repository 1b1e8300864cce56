"""Proved numbers in a few digits, rounded to the side on which they still hold."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal


def above(value: float, digits: int = 4) -> str:
    """Write a proved upper bound with a few digits, rounded upward."""
    return _rounded(value, digits, ROUND_CEILING)


def below(value: float, digits: int = 4) -> str:
    """Write a proved lower bound with a few digits, rounded downward."""
    return _rounded(value, digits, ROUND_FLOOR)


def _rounded(value: float, digits: int, way: str) -> str:
    number = Decimal(value)
    if not number.is_finite() or not number:
        return f"{value:g}"
    place = Decimal(1).scaleb(number.adjusted() - digits + 1)
    return f"{float(number.quantize(place, way)):.{digits}g}"
