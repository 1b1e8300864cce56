"""Durations, the same in Python and at the shell: a number of seconds, or a text such as `9m`."""

from __future__ import annotations

import numbers
import re
from typing import Any

from headcount.core.errors import BadInput

UNITS = {"": 1, "s": 1, "m": 60, "h": 3600}
"""Seconds of each unit; a bare number counts seconds."""


def duration(value: str | float, name: str = "") -> float:
    """Return a duration in seconds.

    `value` is a number of seconds, or a text such as 90, 90s, 9m or 2h; it must be above 0. `name` begins the error.
    """
    where = f"{name}: " if name else ""
    given: Any = value
    if isinstance(given, bool) or not isinstance(given, str | numbers.Real):
        raise BadInput(f"{where}invalid duration {value!r}: use a number of seconds, or a text such as '90s' or '2m'")
    if isinstance(given, str):
        found = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)(s|m|h|)", given.strip(), re.ASCII)
        seconds = float(found[1]) * UNITS[found[2]] if found is not None else 0.0
    else:
        seconds = float(given)
    if not seconds > 0:  # NaN fails every comparison
        raise BadInput(f"{where}invalid duration {value!r}: use a positive time such as 120, 90s, 9m or 2h")
    return seconds
