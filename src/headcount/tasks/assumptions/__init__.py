"""Check whether a task meets the paper's assumptions: proved by branch and bound, or measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.core import open_door

if TYPE_CHECKING:
    from headcount.tasks.assumptions.check import check_assumptions as check_assumptions
    from headcount.tasks.assumptions.minimiser import find_minimiser as find_minimiser
    from headcount.tasks.assumptions.verdicts import SET_SIZES as SET_SIZES
    from headcount.tasks.assumptions.verdicts import AssumptionReport as AssumptionReport

__getattr__, __dir__ = open_door(__name__)
