"""Words, tables, pictures and self-contained HTML pages, made from records and figure data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.core import open_door

if TYPE_CHECKING:
    from headcount.render import tables as tables
    from headcount.render.bounds import budget_table as budget_table
    from headcount.render.bounds import check_picture as check_picture
    from headcount.render.bounds import errors_chart as errors_chart
    from headcount.render.bounds import save_errors as save_errors
    from headcount.render.error_budget import budget_picture as budget_picture
    from headcount.render.error_budget import budget_png as budget_png
    from headcount.render.irreducible import curve_picture as curve_picture
    from headcount.render.irreducible import curve_png as curve_png
    from headcount.render.irreducible import curve_rows as curve_rows
    from headcount.render.irreducible import curve_table as curve_table
    from headcount.render.irreducible import equal_effort as equal_effort
    from headcount.render.notebook import Drawing as Drawing
    from headcount.render.notebook import View as View
    from headcount.render.notebook import filled as filled
    from headcount.render.pages import Illustration as Illustration
    from headcount.render.pages import page as page
    from headcount.render.panel_page import check_report_folder as check_report_folder
    from headcount.render.panel_page import write_report as write_report
    from headcount.render.picture import Picture as Picture
    from headcount.render.run_page import check_run_folder as check_run_folder
    from headcount.render.run_page import write_run_report as write_run_report
    from headcount.render.run_tables import cell_table as cell_table
    from headcount.render.run_tables import scaling_table as scaling_table
    from headcount.render.style import COLOURS as COLOURS
    from headcount.render.style import _settings as drawing_style  # pyright: ignore[reportUnusedImport, reportPrivateUsage]
    from headcount.render.tables import NONE as NONE
    from headcount.render.tables import Column as Column
    from headcount.render.tables import Table as Table
    from headcount.render.tables import as_markdown as as_markdown
    from headcount.render.tables import as_terminal as as_terminal
    from headcount.render.tables import terminal_list as terminal_list
    from headcount.render.tables import transition_table as transition_table
    from headcount.render.trial import trial_table as trial_table
    from headcount.render.trial import trial_text as trial_text

__getattr__, __dir__ = open_door(__name__)
