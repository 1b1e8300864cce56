"""The paper's numbers as data, one spec per table or figure, theirs and ours side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.core import open_door

if TYPE_CHECKING:
    from headcount.reproduction import findings as findings
    from headcount.reproduction import real_cells as real_cells
    from headcount.reproduction.items import BEYOND as BEYOND
    from headcount.reproduction.items import GROUPS as GROUPS
    from headcount.reproduction.items import ITEMS as ITEMS
    from headcount.reproduction.items import PAPER as PAPER
    from headcount.reproduction.items import Scale as Scale
    from headcount.reproduction.items import names_of as names_of
    from headcount.reproduction.items import sweep_of as sweep_of
    from headcount.reproduction.numbers import cells as cells
    from headcount.reproduction.real_items import REAL as REAL
    from headcount.reproduction.real_items import REAL_GROUPS as REAL_GROUPS
    from headcount.reproduction.real_items import RealKind as RealKind
    from headcount.reproduction.real_items import RealPlan as RealPlan
    from headcount.reproduction.real_items import real_names as real_names
    from headcount.reproduction.real_items import real_plan as real_plan
    from headcount.reproduction.real_items import real_scale_text as real_scale_text
    from headcount.reproduction.real_shown import analyses as analyses
    from headcount.reproduction.real_shown import page_real as page_real
    from headcount.reproduction.real_shown import print_real as print_real
    from headcount.reproduction.real_shown import show_real as show_real
    from headcount.reproduction.shown import Shown as Shown
    from headcount.reproduction.shown import check_folders as check_folders
    from headcount.reproduction.shown import page as page
    from headcount.reproduction.shown import read_run as read_run
    from headcount.reproduction.shown import show as show
    from headcount.reproduction.shown import trials_csv as trials_csv

__getattr__, __dir__ = open_door(__name__)
