"""How far a two-layer ReLU network is from an expression on a box: an enclosure of all differences, proved.

N(x) = Σ_k c_k·relu(w_k·x + b_k) + b is set against f(x), both written over linear forms of x. Where the forms fall into
groups that no term and no unit joins, the difference is a sum of one function a group, and its range lies in the
sum of their ranges. In a group, branch and bound: on a box of forms with middle m,

    a unit with w·u + b ≥ 0 (≤ 0) on the box is affine (0) there, and stays so on every part of the box;
    another, with w·u + b in [low, high], is λ·(w·u + b) + [0, max(−λ·low, (1 − λ)·high)] for any λ in [0, 1];
    N − f  ∈  N(m) − f(m) + (∇N − ∇f)·(u − m) + Σ slacks,

which shrinks with the square of the box, since ∇N is near ∇f. Splitting stops where no box can widen the range that
points have shown by more than a few hundredths of it; when it stops is no part of the proof.
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
BOXES = 60_000  # boxes of one group, at most
ZERO, UNIT = arb(0), arb(0).union(arb(1))
SHARE = 0.04  # of the range that points have shown: how much wider the proved range may be


@dataclass(frozen=True)
class Network:
    """Two layers of ReLU with one output, in exact doubles."""

    inner: Array
    inner_bias: Array
    outer: Array
    bias: arb


class Unit:
    """c·relu(Σ w_k·u_k + b), with what it is once it is affine; the floats are for guesses only."""

    def __init__(self, row: dict[int, arb], bias: arb, outer: arb) -> None:
        self.row, self.bias, self.outer = list(row.items()), bias, outer
        self.constant, self.slope = outer * bias, [(k, outer * w) for k, w in self.row]
        self.guess = [(k, float(w)) for k, w in self.row], float(bias), float(outer)
        self.weight = {k: abs(float(v)) for k, v in self.slope}


@dataclass
class _Box:
    """A box of forms with what is already affine on it, and the units that still bend."""

    low: dict[int, float]
    high: dict[int, float]
    constant: arb
    slope: dict[int, arb]
    bent: list[Unit]


def bound(value: arb) -> tuple[float, float]:
    """Return doubles below and above everything in a ball."""
    low, high = float(value.lower()), float(value.upper())
    if not math.isfinite(low) or not math.isfinite(high):
        return -math.inf, math.inf
    low = low if arb(low) <= value.lower() else math.nextafter(low, -math.inf)
    return low, high if arb(high) >= value.upper() else math.nextafter(high, math.inf)


def interval(low: float, high: float) -> arb:
    """Return a ball around [low, high]."""
    return arb(low).union(arb(high))


def difference(
    network: Network, f: e.Expr, component: int, low: Array, high: Array, enough: float = -math.inf
) -> tuple[float, float]:
    """Enclose network − f over a box of inputs: all differences lie between the two numbers.

    Work may stop, where there is one group, once they lie within ±enough.
    """
    forms = Forms(expanded=False)
    tree = scalar(f, component, forms)
    used = np.flatnonzero(network.outer)
    if not _covers(forms, network, used):  # a unit that mixes forms: take the coordinates
        forms = Forms(expanded=True)
        tree = scalar(f, component, forms)
    found, constant = terms(tree)
    kept, fixed = [t for t in found if reads(t[1])], [t for t in found if not reads(t[1])]
    total, units = network.bias - number(constant), list[Unit]()
    total -= sum((number(w) * dual(in_balls(t), {})[0] for w, t in fixed), arb(0))
    for k in used:
        row = tuple(Fraction(v) for v in network.inner[k])
        weight, shift = number(network.outer[k]), number(network.inner_bias[k])
        if not any(row):
            total += weight * shift.max(arb(0))
            continue
        leaf = forms.leaf(row, Fraction(0), apart=False)
        parts = [(leaf.form, leaf.scale)] if isinstance(leaf, Leaf) else _axes(leaf)
        units.append(Unit({j: number(s) for j, s in parts if j is not None}, shift, weight))
    groups, shift = _groups(kept, units), float(total)
    stop = (-enough - shift, enough - shift) if len(groups) == 1 else (math.inf, -math.inf)
    ranges = [_range(*group, forms, low, high, stop) for group in groups]
    return bound(sum((interval(*r) for r in ranges), total))


def _axes(tree: Tree) -> list[tuple[int | None, Fraction]]:
    return [(child.form, w * child.scale) for w, child in zip(tree.weights, tree.children, strict=True)]


def _covers(forms: Forms, network: Network, used: NDArray[np.intp]) -> bool:
    """Whether every unit reads one form that the function reads too, or one coordinate."""
    before = set(forms.rows)
    for k in used:
        row = tuple(Fraction(v) for v in network.inner[k])
        if sum(v != 0 for v in row) > 1 and tuple(v / next(w for w in row if w) for v in row) not in before:
            return False
    return True


def _groups(kept: list[Any], units: list[Unit]) -> list[tuple[list[Any], list[Unit]]]:
    """Join terms and units that share a form."""
    groups: list[tuple[set[int], list[Any], list[Unit]]] = []
    for item in (*kept, *units):
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
    """Enclose the difference of one group."""
    keys = sorted(set().union(*(reads(t) for _, t in parts), *(u.weight for u in units)))
    sides = [extent(forms.rows[k], low, high) for k in keys]
    whole = Tree("linear", tuple(t for _, t in parts), tuple(w for w, _ in parts))
    target = in_balls(whole)
    pending = _first_boxes(keys, sides, units)
    shown, proved, done = [math.inf, -math.inf], [math.inf, -math.inf], 0
    while pending:
        judged = [(box, *_enclose(box, keys, target)) for box in pending]
        done += len(judged)
        shown = [min(shown[0], *(j[3] for j in judged)), max(shown[1], *(j[3] for j in judged))]
        margin = max(SHARE * (shown[1] - shown[0]), 2.0**-42 * (1 + abs(shown[0]) + abs(shown[1])))
        pending = []
        for box, lower, upper, _, axis in judged:
            inside = lower >= min(shown[0] - margin, stop[0]) and upper <= max(shown[1] + margin, stop[1])
            halves = [] if inside or done + len(pending) > BOXES else _halves(box, axis)
            pending += halves
            if not halves:
                proved = [min(proved[0], lower), max(proved[1], upper)]
    return proved[0], proved[1]


def extent(row: Sequence[Fraction], low: Array, high: Array) -> tuple[float, float]:
    """Enclose a form over the box of inputs, by its values at two corners."""
    sides = [(number(w), (a, b) if w > 0 else (b, a)) for w, a, b in zip(row, low, high, strict=True) if w]
    least, most = (sum((w * arb(ends[k]) for w, ends in sides), arb(0)) for k in (0, 1))
    return bound(least)[0], bound(most)[1]


def _first_boxes(keys: list[int], sides: list[tuple[float, float]], units: list[Unit]) -> list[_Box]:
    """The whole box; for a single form, cut where units bend, so that the network is affine on each part."""
    low, high = (dict(zip(keys, end, strict=True)) for end in zip(*sides, strict=True))
    boxes, whole = list[_Box](), [_Box(low, high, arb(0), {}, units)]
    while whole and len(keys) == 1:
        box, k = whole.pop(), keys[0]
        _settle(box, {k: interval(box.low[k], box.high[k])})
        bends = sorted(v for u in box.bent if box.low[k] < (v := -u.guess[1] / u.guess[0][0][1]) < box.high[k])
        halves = _halves(box, k, bends[len(bends) // 2]) if bends else []
        whole += halves
        boxes += [] if halves else [box]
    return boxes or whole


def _settle(box: _Box, wide: dict[int, arb]) -> list[tuple[Unit, arb, arb]]:
    """Add what is affine on all of a box to its affine part, once for all parts of it; return what still bends."""
    bent: list[tuple[Unit, arb, arb]] = []
    box.slope = dict(box.slope)
    for unit in box.bent:
        over = sum((w * wide[k] for k, w in unit.row), unit.bias)
        least, most = _ends(box, unit) if over.contains(0) else (over, over)
        if most <= 0:
            continue
        if least >= 0:
            box.constant = box.constant + unit.constant
            for k, w in unit.slope:
                box.slope[k] = box.slope[k] + w if k in box.slope else w
        else:
            bent.append((unit, least, most))
    box.bent = [unit for unit, _, _ in bent]
    return bent


def _enclose(box: _Box, keys: list[int], target: Any) -> tuple[float, float, float, int]:
    """Return bounds of the difference on a box, its value near the middle, and the side that matters most."""
    middles = {k: box.low[k] + (box.high[k] - box.low[k]) / 2 for k in keys}
    wide = {k: interval(box.low[k], box.high[k]) for k in keys}
    point = {k: arb(v) for k, v in middles.items()}
    offset = {k: wide[k] - point[k] for k in keys}
    bent = _settle(box, wide)
    slack, constant, slope = arb(0), box.constant, dict(box.slope)
    guess = 0.0
    for unit, least, most in bent:
        low, high = float(least), float(most)
        share = min(max(high / (high - low), 0.0), 1.0) if high > low else 0.5
        lam = arb(share)
        constant = constant + unit.constant * lam
        for k, w in unit.slope:
            slope[k] = slope[k] + w * lam if k in slope else w * lam
        slack += unit.outer * (-lam * least).max((1 - lam) * most) * UNIT
        row, shift, outer = unit.guess
        at = sum(w * middles[k] for k, w in row) + shift
        guess += outer * (max(at, 0.0) - share * at)
    value, steep = dual(target, point, slopes=False)[0], dual(target, wide)[1]
    middle = constant + sum((s * point[k] for k, s in slope.items()), arb(0)) - value
    spread = {k: (slope.get(k, ZERO) - steep.get(k, ZERO)) * offset[k] for k in keys}
    lower, upper = bound(sum(spread.values(), middle + slack))
    axis = keys[0] if len(keys) == 1 else max(keys, key=lambda k: _weight(box, spread, k))
    return lower, upper, float(middle) + guess, axis


def _ends(box: _Box, unit: Unit) -> tuple[arb, arb]:
    """Enclose the least and the largest input of a unit: at corners of the box, not over a ball around it."""
    least, most = unit.bias, unit.bias
    for k, w in unit.row:
        low, high = (box.low[k], box.high[k]) if w > 0 else (box.high[k], box.low[k])
        least, most = least + w * low, most + w * high
    return least, most


def _weight(box: _Box, spread: dict[int, arb], axis: int) -> float:
    """How much a side matters: the spread along it, and how far the bending units' inputs move."""
    moved = sum(u.weight.get(axis, 0.0) for u in box.bent) * (box.high[axis] - box.low[axis])
    return float(spread[axis].rad()) + moved / 4


def _halves(box: _Box, axis: int, at: float | None = None) -> list[_Box]:
    """Cut a box in two across one side; a side too short to cut ends the search there."""
    a, b = box.low[axis], box.high[axis]
    middle = a + (b - a) / 2 if at is None else at
    if not a < middle < b:
        return []
    return [
        _Box({**box.low, axis: low}, {**box.high, axis: high}, box.constant, box.slope, box.bent)
        for low, high in ((a, middle), (middle, b))
    ]
