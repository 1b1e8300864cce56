"""Speed against what people use instead, in one run on the same work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.core import open_door

if TYPE_CHECKING:
    from headcount.bench.run import run_bench as run_bench
    from headcount.bench.steps import Plan as Plan
    from headcount.bench.tables import steps_table as steps_table
    from headcount.bench.tables import sweep_lines as sweep_lines
    from headcount.bench.tables import sweep_table as sweep_table

__getattr__, __dir__ = open_door(__name__)
