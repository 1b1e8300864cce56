"""Proved bounds in a few digits, rounded to the side on which they still hold."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

EXACT = Context(prec=1200)
"""More digits than any double has."""
DOUBLE_SLACK = 1e-12
"""Relative. An exponent is a ratio of whole numbers: 0.7, whose double is below 0.7, must not become 0.69."""


def round_up(value: float, digits: int = 4) -> str:
    """Return a proved upper bound as text of `digits` significant digits, rounded upward."""
    return _rounded(value, digits, ROUND_CEILING)


def round_down(value: float, digits: int = 4) -> str:
    """Return a proved lower bound as text of `digits` significant digits, rounded downward."""
    return _rounded(value, digits, ROUND_FLOOR)


def ceiling(value: float, places: int) -> str:
    """Return a proved upper bound as text with `places` decimals, rounded upward."""
    return _fixed(value, places, ROUND_CEILING)


def floor(value: float, places: int) -> str:
    """Return a proved lower bound as text with `places` decimals, rounded downward."""
    return _fixed(value, places, ROUND_FLOOR)


def exponent_text(k: float) -> str:
    """Return a proved exponent with two decimals, rounded downward; one of at most 0 proves nothing."""
    return f"{k:.2f}" if k <= 0 else floor(k * (1 + DOUBLE_SLACK), 2)


def _fixed(value: float, places: int, mode: str) -> str:
    number = Decimal(value)
    return f"{_to_place(number, -places, mode) if number.is_finite() else number:.{places}f}"


def _rounded(value: float, digits: int, mode: str) -> str:
    number = Decimal(value)
    if not number.is_finite() or not number:
        return f"{value:g}"
    return f"{float(_to_place(number, number.adjusted() - digits + 1, mode)):.{digits}g}"


def _to_place(number: Decimal, place: int, mode: str) -> Decimal:
    return number.quantize(Decimal(1).scaleb(place), mode, EXACT)
