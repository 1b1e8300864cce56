"""The draw of the target whose errors are most like the paper's."""

from __future__ import annotations

import math
import statistics
from typing import NamedTuple

from headcount.reproduction.cells import Comparison
from headcount.reproduction.items import paper_tables
from headcount.reproduction.numbers import statistic


class Draw(NamedTuple):
    """One draw of the a_i beside the paper's table."""

    target: int
    distance: float
    """The mean absolute difference of log10 error from the paper's, over the cells with fewer than D heads."""


def nearest_draw(found: Comparison) -> Draw | None:
    """Return the draw whose errors with too few heads are most like the paper's; with D heads all draws are alike.

    The paper's means are compared with means over seeds, its other numbers with the best seed. A single draw is not
    compared.
    """
    intrinsic, level = found.runs[0].intrinsic or 0, statistics.fmean if beside_means(found) else min
    gaps: dict[int, list[float]] = {target: [] for cell in found.cells.values() for target in cell.draws}
    for cell in found.cells.values():
        for target, errors in cell.draws.items():
            if cell.heads < intrinsic and cell.theirs and level(errors):
                gaps[target].append(abs(math.log10(level(errors) / cell.theirs)))
    draws = [Draw(target, statistics.fmean(some)) for target, some in gaps.items() if some]
    return min(draws, key=lambda draw: draw.distance) if len(gaps) > 1 and draws else None


def beside_means(found: Comparison) -> bool:
    """Whether the paper's table has means over its seeds."""
    return any(statistic(table).startswith("mean") for table in paper_tables(found.spec).values())
