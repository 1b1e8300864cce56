"""The one way out for all text: made harmless, rounded, and written to guarded streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.core.doors import open_door

if TYPE_CHECKING:
    from headcount.core.text.boxes import box_text as box_text
    from headcount.core.text.csv import csv_text as csv_text
    from headcount.core.text.durations import duration as duration
    from headcount.core.text.folding import HANGING_INDENT as HANGING_INDENT
    from headcount.core.text.folding import fold as fold
    from headcount.core.text.harmless import escape as escape
    from headcount.core.text.harmless import json_text as json_text
    from headcount.core.text.harmless import plain as plain
    from headcount.core.text.harmless import plain_data as plain_data
    from headcount.core.text.harmless import valid_text as valid_text
    from headcount.core.text.rounding import ceiling as ceiling
    from headcount.core.text.rounding import exponent_text as exponent_text
    from headcount.core.text.rounding import floor as floor
    from headcount.core.text.rounding import round_down as round_down
    from headcount.core.text.rounding import round_up as round_up
    from headcount.core.text.streams import guarded_streams as guarded_streams
    from headcount.core.text.streams import notify as notify
    from headcount.core.text.streams import write_error_text as write_error_text
    from headcount.core.text.streams import write_output as write_output
    from headcount.core.text.terminal import Terminal as Terminal
    from headcount.core.text.terminal import bold as bold
    from headcount.core.text.terminal import row_text as row_text
    from headcount.core.text.terminal import styled as styled

__getattr__, __dir__ = open_door(__name__)
