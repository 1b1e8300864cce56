"""A box of tokens in words."""

from __future__ import annotations

from collections.abc import Sequence


def box_text(box: Sequence[Sequence[float]]) -> str:
    """Return a box of tokens by its two corners, or by two numbers where all coordinates are alike."""
    low, high = box
    alike = len(set(low)) == len(set(high)) == 1
    corners = [f"{side[0]!r}" if alike else f"({', '.join(map(repr, side))})" for side in (low, high)]
    return f"tokens from {corners[0]} to {corners[1]}" + (" in every coordinate" if alike and len(low) > 1 else "")
