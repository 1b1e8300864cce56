"""Measure which heads of an existing model can go, remove them and save the smaller model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.core import open_door

if TYPE_CHECKING:
    from headcount.probing.curve import MAX_TERMINAL_POINTS as MAX_TERMINAL_POINTS
    from headcount.probing.curve import curve_chart as curve_chart
    from headcount.probing.curve import curve_table as curve_table
    from headcount.probing.load import load_pruned as load_pruned
    from headcount.probing.of_folder import probe_folder as probe_folder
    from headcount.probing.of_model import probe as probe
    from headcount.probing.page import check_out as check_out
    from headcount.probing.page import write_folder as write_folder
    from headcount.probing.record import ProbeRecord as ProbeRecord
    from headcount.probing.save import check_target as check_target
    from headcount.probing.words import headline as headline
    from headcount.probing.words import layer_table as layer_table
    from headcount.probing.words import loading_text as loading_text
    from headcount.probing.words import sentences as sentences

__getattr__, __dir__ = open_door(__name__)
