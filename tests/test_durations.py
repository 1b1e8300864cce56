"""Durations: numbers and texts, the same in Python and at the shell."""

from __future__ import annotations

import numpy as np
import pytest

from headcount.core.errors import BadInput
from headcount.core.text.durations import duration


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (120, 120),
        ("120", 120),
        ("2m", 120),
        ("120s", 120),
        (0.5, 0.5),
        (".5m", 30),
        ("1.5h", 5400),
        (" 9m ", 540),
        (np.int64(3), 3),
        (np.float32(0.5), 0.5),
    ],
)
def test_a_duration_in_seconds(value, seconds):
    assert duration(value) == seconds


@pytest.mark.parametrize(
    "value",
    [
        "",
        "soon",
        "0",
        "0s",
        "-5s",
        "5 minutes",
        "1e3",
        "٣s",
        "2d",
        "m",
        ".",
        "nan",
        0,
        -1,
        float("nan"),
        None,
        True,
        [2],
    ],
)
def test_what_is_no_duration_is_refused(value):
    with pytest.raises(BadInput, match="^--for: invalid duration") as told:
        duration(value, "--for")
    assert len(str(told.value).splitlines()) == 1
