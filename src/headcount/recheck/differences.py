"""Enclose the difference between a two-layer ReLU network and an expression on a box.

The network N(x) = Σ_k c_k·relu(w_k·x + b_k) + b and the expression f(x) are both written in terms of linear forms u of
x. If the forms fall into groups such that no term and no unit reads forms of two groups, then N − f is a sum of one
function per group, and its range lies in the sum of their ranges. The range for one group is found by branch and bound.
On a box of forms with middle m,

    a unit with w·u + b ≥ 0 (or ≤ 0) on the box is affine (or 0) there, and so it is on every part of the box;
    any other, with w·u + b in [low, high], lies in λ·(w·u + b) + [0, max(−λ·low, (1 − λ)·high)], for any λ in [0, 1];
    N − f  ∈  N(m) − f(m) + (∇N − ∇f)·(u − m) + Σ slacks.

The width of this enclosure shrinks with the square of the box, since ∇N is near ∇f. Splitting stops once no box can
widen the range that sample points attain by more than a few per cent of it. The proof does not depend on when it stops.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from flint import arb
from numpy.typing import NDArray

from headcount.recheck.trees import Forms, Leaf, Tree, dual, in_balls, number, reads, scalar, terms
from headcount.tasks.expressions import tree as e

Array = NDArray[np.float64]
MAX_BOXES = 60_000  # in one group
ZERO, UNIT = arb(0), arb(0).union(arb(1))
MAX_EXCESS = 0.04  # of the proved range beyond that attained at points, as a fraction of the latter


@dataclass(frozen=True)
class Network:
    """A two-layer ReLU network with one output; its numbers are exact."""

    inner: Array
    inner_bias: Array
    outer: Array
    bias: arb


class Unit:
    """c·relu(Σ w_k·u_k + b), with its affine form where the ReLU is on; the floats only guide the search."""

    def __init__(self, row: dict[int, arb], bias: arb, outer: arb) -> None:
        self.row, self.bias, self.outer = list(row.items()), bias, outer
        self.constant, self.slope = outer * bias, [(k, outer * w) for k, w in self.row]
        self.guess = [(k, float(w)) for k, w in self.row], float(bias), float(outer)
        self.weight = {k: abs(float(v)) for k, v in self.slope}


@dataclass
class _Box:
    """A box of forms, with the sum of the units that are affine on all of it, and the units that still bend."""

    low: dict[int, float]
    high: dict[int, float]
    constant: arb
    slope: dict[int, arb]
    bending: list[Unit]


def bound(value: arb) -> tuple[float, float]:
    """Return doubles at or below, and at or above, everything in a ball."""
    low, high = float(value.lower()), float(value.upper())
    if not math.isfinite(low) or not math.isfinite(high):
        return -math.inf, math.inf
    low = low if arb(low) <= value.lower() else math.nextafter(low, -math.inf)
    return low, high if arb(high) >= value.upper() else math.nextafter(high, math.inf)


def interval(low: float, high: float) -> arb:
    """Return a ball that contains [low, high]."""
    return arb(low).union(arb(high))


def difference(
    network: Network, f: e.Expr, component: int, low: Array, high: Array, enough: float = -math.inf
) -> tuple[float, float]:
    """Enclose network − f over a box of inputs: return a lower and an upper bound.

    If there is only one group, the search may stop as soon as the bounds lie within ±enough.
    """
    forms = Forms(expanded=False)
    tree = scalar(f, component, forms)
    used = np.flatnonzero(network.outer)
    if not _forms_cover(forms, network, used):  # a unit mixes forms: expand into coordinates
        forms = Forms(expanded=True)
        tree = scalar(f, component, forms)
    found, constant = terms(tree)
    variable_terms, constant_terms = [t for t in found if reads(t[1])], [t for t in found if not reads(t[1])]
    total, units = network.bias - number(constant), list[Unit]()
    total -= sum((number(w) * dual(in_balls(t), {})[0] for w, t in constant_terms), arb(0))
    for k in used:
        row = tuple(Fraction(v) for v in network.inner[k])
        weight, shift = number(network.outer[k]), number(network.inner_bias[k])
        if not any(row):
            total += weight * shift.max(arb(0))
            continue
        leaf = forms.leaf(row, Fraction(0), apart=False)
        parts = [(leaf.form, leaf.scale)] if isinstance(leaf, Leaf) else _axes(leaf)
        units.append(Unit({j: number(s) for j, s in parts if j is not None}, shift, weight))
    groups, shift = _groups(variable_terms, units), float(total)
    stop = (-enough - shift, enough - shift) if len(groups) == 1 else (math.inf, -math.inf)
    ranges = [_range(*group, forms, low, high, stop) for group in groups]
    return bound(sum((interval(*r) for r in ranges), total))


def _axes(tree: Tree) -> list[tuple[int | None, Fraction]]:
    return [(child.form, w * child.scale) for w, child in zip(tree.weights, tree.children, strict=True)]


def _forms_cover(forms: Forms, network: Network, used: NDArray[np.intp]) -> bool:
    """Return whether every unit reads one coordinate, or one form that the function reads too."""
    before = set(forms.rows)
    for k in used:
        row = tuple(Fraction(v) for v in network.inner[k])
        if sum(v != 0 for v in row) > 1 and tuple(v / next(w for w in row if w) for v in row) not in before:
            return False
    return True


def _groups(variable_terms: list[Any], units: list[Unit]) -> list[tuple[list[Any], list[Unit]]]:
    """Group the terms and units that are connected by common forms."""
    groups: list[tuple[set[int], list[Any], list[Unit]]] = []
    for item in (*variable_terms, *units):
        forms = set(item.weight) if isinstance(item, Unit) else reads(item[1])
        met = [g for g in groups if g[0] & forms]
        whole = (set.union(forms, *(g[0] for g in met)), [t for g in met for t in g[1]], [u for g in met for u in g[2]])
        (whole[2] if isinstance(item, Unit) else whole[1]).append(item)
        groups = [g for g in groups if g not in met] + [whole]
    return [(parts, some) for _, parts, some in groups]


def _range(
    parts: list[tuple[Fraction, Leaf | Tree]],
    units: list[Unit],
    forms: Forms,
    low: Array,
    high: Array,
    stop: tuple[float, float],
) -> tuple[float, float]:
    """Enclose the difference for one group."""
    keys = sorted(set().union(*(reads(t) for _, t in parts), *(u.weight for u in units)))
    sides = [extent(forms.rows[k], low, high) for k in keys]
    whole = Tree("linear", tuple(t for _, t in parts), tuple(w for w, _ in parts))
    target = in_balls(whole)
    pending = _first_boxes(keys, sides, units)
    attained, proved, done = [math.inf, -math.inf], [math.inf, -math.inf], 0
    while pending:
        enclosed = [(box, *_enclose(box, keys, target)) for box in pending]
        done += len(enclosed)
        attained = [min(attained[0], *(j[3] for j in enclosed)), max(attained[1], *(j[3] for j in enclosed))]
        margin = max(MAX_EXCESS * (attained[1] - attained[0]), 2.0**-42 * (1 + abs(attained[0]) + abs(attained[1])))
        pending = []
        for box, lower, upper, _, axis in enclosed:
            inside = lower >= min(attained[0] - margin, stop[0]) and upper <= max(attained[1] + margin, stop[1])
            halves = [] if inside or done + len(pending) > MAX_BOXES else _halves(box, axis)
            pending += halves
            if not halves:
                proved = [min(proved[0], lower), max(proved[1], upper)]
    return proved[0], proved[1]


def extent(row: Sequence[Fraction], low: Array, high: Array) -> tuple[float, float]:
    """Enclose a form over the box of inputs, from its values at two corners."""
    sides = [(number(w), (a, b) if w > 0 else (b, a)) for w, a, b in zip(row, low, high, strict=True) if w]
    least, greatest = (sum((w * arb(ends[k]) for w, ends in sides), arb(0)) for k in (0, 1))
    return bound(least)[0], bound(greatest)[1]


def _first_boxes(keys: list[int], sides: list[tuple[float, float]], units: list[Unit]) -> list[_Box]:
    """Return the boxes to start from: the whole box, or for a single form its parts between the kinks of the units."""
    low, high = (dict(zip(keys, end, strict=True)) for end in zip(*sides, strict=True))
    boxes, whole = list[_Box](), [_Box(low, high, arb(0), {}, units)]
    while whole and len(keys) == 1:
        box, k = whole.pop(), keys[0]
        _settle(box, {k: interval(box.low[k], box.high[k])})
        bends = sorted(v for u in box.bending if box.low[k] < (v := -u.guess[1] / u.guess[0][0][1]) < box.high[k])
        halves = _halves(box, k, bends[len(bends) // 2]) if bends else []
        whole += halves
        boxes += [] if halves else [box]
    return boxes or whole


def _settle(box: _Box, wide: dict[int, arb]) -> list[tuple[Unit, arb, arb]]:
    """Move the units that are affine on all of a box to its affine part; return the bending ones with their ranges."""
    bending: list[tuple[Unit, arb, arb]] = []
    box.slope = dict(box.slope)
    for unit in box.bending:
        over = sum((w * wide[k] for k, w in unit.row), unit.bias)
        least, greatest = _input_range(box, unit) if over.contains(0) else (over, over)
        if greatest <= 0:
            continue
        if least >= 0:
            box.constant = box.constant + unit.constant
            for k, w in unit.slope:
                box.slope[k] = box.slope[k] + w if k in box.slope else w
        else:
            bending.append((unit, least, greatest))
    box.bending = [unit for unit, _, _ in bending]
    return bending


def _enclose(box: _Box, keys: list[int], target: Any) -> tuple[float, float, float, int]:
    """Return bounds of the difference on a box, its value near the middle, and the axis to cut."""
    middles = {k: box.low[k] + (box.high[k] - box.low[k]) / 2 for k in keys}
    wide = {k: interval(box.low[k], box.high[k]) for k in keys}
    point = {k: arb(v) for k, v in middles.items()}
    offset = {k: wide[k] - point[k] for k in keys}
    bending = _settle(box, wide)
    slack, constant, slope = arb(0), box.constant, dict(box.slope)
    guess = 0.0
    for unit, least, greatest in bending:
        low, high = float(least), float(greatest)
        share = min(max(high / (high - low), 0.0), 1.0) if high > low else 0.5
        lam = arb(share)
        constant = constant + unit.constant * lam
        for k, w in unit.slope:
            slope[k] = slope[k] + w * lam if k in slope else w * lam
        slack += unit.outer * (-lam * least).max((1 - lam) * greatest) * UNIT
        row, shift, outer = unit.guess
        at = sum(w * middles[k] for k, w in row) + shift
        guess += outer * (max(at, 0.0) - share * at)
    value, steep = dual(target, point, slopes=False)[0], dual(target, wide)[1]
    middle = constant + sum((s * point[k] for k, s in slope.items()), arb(0)) - value
    spread = {k: (slope.get(k, ZERO) - steep.get(k, ZERO)) * offset[k] for k in keys}
    lower, upper = bound(sum(spread.values(), middle + slack))
    axis = keys[0] if len(keys) == 1 else max(keys, key=lambda k: _weight(box, spread, k))
    return lower, upper, float(middle) + guess, axis


def _input_range(box: _Box, unit: Unit) -> tuple[arb, arb]:
    """Enclose the least and the greatest input of a unit, from corners of the box (tighter than from a ball)."""
    least, greatest = unit.bias, unit.bias
    for k, w in unit.row:
        low, high = (box.low[k], box.high[k]) if w > 0 else (box.high[k], box.low[k])
        least, greatest = least + w * low, greatest + w * high
    return least, greatest


def _weight(box: _Box, spread: dict[int, arb], axis: int) -> float:
    """Return how much an axis matters: the spread along it, and how far it moves the inputs of the bending units."""
    moved = sum(u.weight.get(axis, 0.0) for u in box.bending) * (box.high[axis] - box.low[axis])
    return float(spread[axis].rad()) + moved / 4


def _halves(box: _Box, axis: int, at: float | None = None) -> list[_Box]:
    """Cut a box in two across one axis; return nothing if the side is too short to cut."""
    a, b = box.low[axis], box.high[axis]
    middle = a + (b - a) / 2 if at is None else at
    if not a < middle < b:
        return []
    return [
        _Box({**box.low, axis: low}, {**box.high, axis: high}, box.constant, box.slope, box.bending)
        for low, high in ((a, middle), (middle, b))
    ]
