"""The paper's numbers as data, one spec per table or figure, theirs and ours side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.core import open_door

if TYPE_CHECKING:
    from headcount.reproduction.catalogue import Catalogue as Catalogue
    from headcount.reproduction.catalogue import list_names as list_names
    from headcount.reproduction.cells import mean_and_deviation as mean_and_deviation
    from headcount.reproduction.cells import read_cells as read_cells
    from headcount.reproduction.items import ITEMS as ITEMS
    from headcount.reproduction.plan import Entry as Entry
    from headcount.reproduction.plan import RealDataOptions as RealDataOptions
    from headcount.reproduction.plan import Scale as Scale
    from headcount.reproduction.plan import plan_of as plan_of
    from headcount.reproduction.plan import write_sweep as write_sweep
    from headcount.reproduction.run import Reproduction as Reproduction
    from headcount.reproduction.run import reproduce as reproduce
    from headcount.reproduction.tables import trials_csv as trials_csv
    from headcount.reproduction.words import stated_findings as stated_findings

__getattr__, __dir__ = open_door(__name__)
