"""Sentences about our own rows, computed: `<!-- computed: NAME -->` in a document follows the text that NAME returns.

    The curves differ by a factor of up to 3.6. <!-- computed: fixed-size-curves -->

Each function of this package reads the measured rows (rows.py) and returns the words that must stand before the mark,
so that a number or an "all" that the rows do not bear fails the tests. For a single number that stands in a result
file a link does (tests/claims.py); this is for what is counted or compared over many rows.
"""

from __future__ import annotations

from computed import findings, real_data, studies
from computed.rows import COMPUTED, Results

__all__ = ["COMPUTED", "Results", "findings", "real_data", "studies"]
