"""Which heads can go: greedily the cheapest, at a loss that is measured with all of them gone.

Beyond the budget the removal goes on for the curve of loss against heads removed, until each layer has one unit left.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Sequence
from typing import NamedTuple

from headcount.probing.measure import Meter, Told
from headcount.probing.record import CurvePoint, Plan, Step

AFFORDABLE = 60.0
"""Seconds: up to here all heads that are left are measured again after every removal; beyond, only candidates."""
CURVE_SECONDS = 30.0
"""Seconds that the curve beyond the budget may take."""


class _Unit(NamedTuple):
    """Heads of one layer that go together, and what that added to the loss when it was last measured."""

    cost: float
    layer: int
    heads: tuple[int, ...]


def plan(
    meter: Meter,
    full: float,
    ablations: Sequence[Sequence[float]],
    budget: float,
    told: Told,
    affordable: float = AFFORDABLE,
) -> Plan:
    """Remove heads one by one while the loss stays within the budget, a share of the full model's loss.

    At least one head (or group) of each layer stays: a layer without any has no attention to run.
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
    every = (time.perf_counter() - start) * count * count / 2 <= affordable
    spare = [len(layer.units()) - 1 for layer in meter.layers]
    gone: list[tuple[int, int]] = []
    steps: list[Step] = []
    while True:
        left = [unit for unit in left if spare[unit.layer]]
        if not left:
            break
        left = _measured(meter, left, gone, current, every=every)
        best = min(left)
        left.remove(best)
        told(1 - len(left) / count, f"plan: {len(gone)} of {count} gone")
        if current + best.cost > allowed:
            if every:
                break
            continue  # the others are as old as they are: each may be tried once
        current += best.cost
        spare[best.layer] -= 1
        gone += [(best.layer, head) for head in best.heads]
        steps.append(Step(layer=best.layer, heads=list(best.heads), loss=current))
    return Plan(budget=budget, allowed=allowed, loss=current, steps=steps, remeasured="all" if every else "candidates")


def loss_curve(meter: Meter, full: float, plan: Plan, told: Told, seconds: float = CURVE_SECONDS) -> list[CurvePoint]:
    """The loss against the number of heads removed: the plan's removals, then the cheapest again and again.

    It ends where each layer has one unit left, or after `seconds` spent beyond the plan.
    """
    points = [CurvePoint(removed=0, loss=full, layer=None, heads=[], within=True)]
    for step in plan.steps:
        count = points[-1].removed + len(step.heads)
        points.append(CurvePoint(removed=count, loss=step.loss, layer=step.layer, heads=step.heads, within=True))
    gone, current, every = plan.gone(), plan.loss, plan.remeasured == "all"
    spare = [len(layer.units()) - 1 for layer in meter.layers]
    for step in plan.steps:
        spare[step.layer] -= 1
    lost = set(gone)
    units = [(i, heads) for i, layer in enumerate(meter.layers) for heads in layer.units() if (i, heads[0]) not in lost]
    left = [_Unit(0.0, i, heads) for i, heads in units]
    end, count, fresh = time.perf_counter() + seconds, max(sum(spare), 1), False
    while left := [unit for unit in left if spare[unit.layer]]:
        if time.perf_counter() > end:
            break
        if every or not fresh:  # with many heads the order found once is kept, and the loss of each step measured
            left, fresh = _measured(meter, left, gone, current, every=True), True
        best = min(left)
        left.remove(best)
        gone += [(best.layer, head) for head in best.heads]
        spare[best.layer] -= 1
        current = current + best.cost if every else meter.loss(gone)
        points.append(
            CurvePoint(removed=len(gone), loss=current, layer=best.layer, heads=list(best.heads), within=False)
        )
        told(1 - sum(spare) / count, f"curve: {len(gone)} heads gone")
    return points


def _measured(
    meter: Meter, left: list[_Unit], gone: list[tuple[int, int]], current: float, *, every: bool
) -> list[_Unit]:
    """Measure again, beside what is gone: all, or the cheapest until the cheapest one is fresh."""

    def fresh(unit: _Unit) -> _Unit:
        without = [*gone, *((unit.layer, head) for head in unit.heads)]
        return unit._replace(cost=meter.loss(without) - current)

    if every:
        return [fresh(unit) for unit in left]
    heapq.heapify(left)
    known: set[tuple[int, tuple[int, ...]]] = set()
    while left[0][1:] not in known:
        unit = heapq.heappop(left)
        known.add(unit[1:])
        heapq.heappush(left, fresh(unit))
    return left
