"""Numbers in words: errors, ratios, shares and head counts, written the same way everywhere."""

from __future__ import annotations

import math


def error_text(error: float) -> str:
    """Write an error with two digits: 0.012 as it is, smaller ones as 6.0e-5."""
    if error == 0:
        return "0"
    exponent = math.floor(math.log10(float(f"{error:.1e}")))
    if exponent < -3:
        return f"{float(f'{error:.1e}') / 10.0**exponent:.1f}e{exponent}"
    return f"{error:.{max(1 - exponent, 0)}f}"


def times_text(factor: float) -> str:
    """Write a ratio with two digits: 6.2, 140, 12,000; above a million the exact number does not matter."""
    if factor >= 1e6:
        return "more than a million"
    if factor < 0.1:
        return f"{factor:.1g}"
    if factor < 9.95:
        return f"{factor:.1f}"
    return f"{float(f'{factor:.1e}'):,.0f}"


def percent(share: float) -> str:
    """Write a share in percent; only 1 is written as 100 %, and only 0 as 0 %."""
    text = f"{100 * share:.0f}"
    if (text == "100" and share < 1) or (text == "0" and share > 0):
        text = f"{100 * share:.7g}" if share > 0.5 else f"{100 * share:.1g}"
    return f"{text} %"


def heads_text(heads: int) -> str:
    """Write a head count: 1 head, 2 heads."""
    return "1 head" if heads == 1 else f"{heads} heads"
