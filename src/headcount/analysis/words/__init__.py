"""Numbers in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.core import open_door

if TYPE_CHECKING:
    from headcount.analysis.words.numbers import error_text as error_text
    from headcount.analysis.words.numbers import heads_text as heads_text
    from headcount.analysis.words.numbers import percent as percent
    from headcount.analysis.words.numbers import times_text as times_text

__getattr__, __dir__ = open_door(__name__)
