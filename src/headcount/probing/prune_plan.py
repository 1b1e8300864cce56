"""Plan which heads can go: remove the cheapest again and again; each loss is measured with all of them removed.

For the curve of loss against heads removed, this continues beyond the budget until each layer has one unit left.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Sequence
from typing import NamedTuple

from headcount.probing.measure import Meter, OnProgress
from headcount.probing.record import CurvePoint, PrunePlan, Step

MAX_REMEASURE_SECONDS = 60.0
"""If measuring all remaining heads again after every removal would take longer, only candidates are measured."""
MAX_CURVE_SECONDS = 30.0
"""Seconds that the curve beyond the budget may take."""


class _Unit(NamedTuple):
    """Heads of one layer that are removed together, and the last measurement of what that adds to the loss."""

    cost: float
    layer: int
    heads: tuple[int, ...]


def plan_removals(
    meter: Meter,
    full: float,
    ablations: Sequence[Sequence[float]],
    budget: float,
    on_progress: OnProgress,
    max_seconds: float = MAX_REMEASURE_SECONDS,
) -> PrunePlan:
    """Remove heads one by one while the loss stays within the budget, a fraction of the full model's loss.

    Every layer keeps at least one head (or group), because it cannot run without any.
    """
    allowed, current = full + budget * abs(full), full
    left = [
        _Unit(sum(ablations[i][head] for head in heads), i, heads)
        for i, layer in enumerate(meter.layers)
        for heads in layer.units()
    ]
    count = len(left)
    start = time.perf_counter()
    meter.loss()
    measure_all = (time.perf_counter() - start) * count * count / 2 <= max_seconds
    spare = [len(layer.units()) - 1 for layer in meter.layers]
    gone: list[tuple[int, int]] = []
    steps: list[Step] = []
    while True:
        left = [unit for unit in left if spare[unit.layer]]
        if not left:
            break
        left = _remeasured(meter, left, gone, current, measure_all=measure_all)
        best = min(left)
        left.remove(best)
        on_progress(1 - len(left) / count, f"plan: {len(gone)} of {count} removed")
        if current + best.cost > allowed:
            if measure_all:
                break
            continue  # the other costs may be outdated, so each unit is tried once
        current += best.cost
        spare[best.layer] -= 1
        gone += [(best.layer, head) for head in best.heads]
        steps.append(Step(layer=best.layer, heads=list(best.heads), loss=current))
    remeasured = "all" if measure_all else "candidates"
    return PrunePlan(budget=budget, allowed=allowed, loss=current, steps=steps, remeasured=remeasured)


def loss_curve(
    meter: Meter, full: float, plan: PrunePlan, on_progress: OnProgress, seconds: float = MAX_CURVE_SECONDS
) -> list[CurvePoint]:
    """Return the loss against the number of heads removed: the plan's removals, then the cheapest again and again.

    It ends when each layer has one unit left, or after `seconds` spent beyond the plan.
    """
    points = [CurvePoint(removed=0, loss=full, layer=None, heads=[], within=True)]
    for step in plan.steps:
        count = points[-1].removed + len(step.heads)
        points.append(CurvePoint(removed=count, loss=step.loss, layer=step.layer, heads=step.heads, within=True))
    gone, current, measure_all = plan.gone(), plan.loss, plan.remeasured == "all"
    spare = [len(layer.units()) - 1 for layer in meter.layers]
    for step in plan.steps:
        spare[step.layer] -= 1
    removed = set(gone)
    left = [
        _Unit(0.0, i, heads)
        for i, layer in enumerate(meter.layers)
        for heads in layer.units()
        if (i, heads[0]) not in removed
    ]
    end, count, ranked = time.perf_counter() + seconds, max(sum(spare), 1), False
    while left := [unit for unit in left if spare[unit.layer]]:
        if time.perf_counter() > end:
            break
        if measure_all or not ranked:  # with many heads the first order is kept, and only each step's loss measured
            left, ranked = _remeasured(meter, left, gone, current, measure_all=True), True
        best = min(left)
        left.remove(best)
        gone += [(best.layer, head) for head in best.heads]
        spare[best.layer] -= 1
        current = current + best.cost if measure_all else meter.loss(gone)
        points.append(
            CurvePoint(removed=len(gone), loss=current, layer=best.layer, heads=list(best.heads), within=False)
        )
        on_progress(1 - sum(spare) / count, f"curve: {len(gone)} heads removed")
    return points


def _remeasured(
    meter: Meter, left: list[_Unit], gone: list[tuple[int, int]], current: float, *, measure_all: bool
) -> list[_Unit]:
    """Measure costs again with the heads in `gone` removed: of all units, or until the cheapest one is up to date."""

    def measured(unit: _Unit) -> _Unit:
        without = [*gone, *((unit.layer, head) for head in unit.heads)]
        return unit._replace(cost=meter.loss(without) - current)

    if measure_all:
        return [measured(unit) for unit in left]
    heapq.heapify(left)
    up_to_date: set[tuple[int, tuple[int, ...]]] = set()
    while left[0][1:] not in up_to_date:
        unit = heapq.heappop(left)
        up_to_date.add(unit[1:])
        heapq.heappush(left, measured(unit))
    return left
