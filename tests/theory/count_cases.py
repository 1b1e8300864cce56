"""Slow readable twins of the count behind Theorem 2 (2), and the checks that sabotaged twins must not pass."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import torch

from headcount.tasks.expressions.tree import variable
from headcount.tasks.retrieval import GeneralizedRetrieval
from headcount.theory.bounds.counting import Basin, Heads, least_width
from headcount.theory.bounds.of_task import Segment

Widths = Callable[[Fraction, Sequence[Basin], Heads], Fraction]


FLOORS = [
    (Fraction(1, 18 * points), Basin(8, Fraction(1)), Heads(1, 4, 2)) for points in (5, 9, 36, 38)
] + [
    (Fraction(1, 395), Basin(14, Fraction(1, 5)), Heads(2, 2, 3)),
    (Fraction(1, 284), Basin(11, Fraction(1, 4)), Heads(1, 1, 3)),
]  # fmt: skip
"""Where rounding down decides: one point fewer in each grid is better, or a t that the bound puts second."""


def definition(eps: Fraction, t: int, basin: Basin, sizes: Heads) -> Fraction:
    """Return W of one basin, one t and one ε, straight from its definition; n·s is a square, so V is an integer."""
    s, n = sizes.heads, sizes.head_dim
    q = int(basin.variation / (3 * t * eps))
    if q < 2:
        return Fraction(0)
    G = 0
    while (G + 1) ** ((n + 1) * s) < q**t:
        G += 1
    V = math.isqrt(n * s)
    assert n * s == V * V
    return eps * G / (n * s * n * s * 3 * t * V)


def brute(eps: Fraction, basins: Sequence[Basin], sizes: Heads, *, more: int = 0, below: bool = False) -> Fraction:
    """The least over basins of the best over all t and all ε' ≥ ε at which the number of points changes.

    Sabotage: `more` positions too many in every S_i; `below` takes ε' ≤ ε instead.
    """
    least: list[Fraction] = []
    for b in basins:
        found = [Fraction(0)]
        last = b.size + more - sizes.heads - sizes.intrinsic + 1
        for t in range((sizes.head_dim + 1) * sizes.heads + 1, last + 1):
            most = int(b.variation / (3 * t * eps))
            points = range(max(most, 2), most + 9) if below else range(2, most + 1)
            found += [definition(b.variation / (3 * t * q), t, b, sizes) for q in points]
        least.append(max(found))
    return min(least)


def cases() -> list[tuple[Fraction, tuple[Basin, ...], Heads]]:
    """Return tiny settings: unequal sets and variations, one and two heads; and the settings of `FLOORS`."""
    found: list[tuple[Fraction, tuple[Basin, ...], Heads]] = []
    starts = ((Heads(1, 1, 2), 4), (Heads(1, 1, 3), 5), (Heads(2, 2, 3), 11), (Heads(1, 4, 2), 8))
    for sizes, start in starts:
        for size, inverse in itertools.product(range(start, start + 7, 2), (60, 250, 700)):
            basins = (Basin(size, Fraction(1, 3)), Basin(size + 1, Fraction(1, 4)), Basin(size + 2, Fraction(3, 16)))
            found.append((Fraction(1, inverse), basins[: sizes.intrinsic], sizes))
    return [*found, *((eps, (basin,) * sizes.intrinsic, sizes) for eps, basin, sizes in FLOORS)]


def exact(eps: Fraction, basins: Sequence[Basin], sizes: Heads) -> Fraction:
    """Return the package's answer."""
    return least_width(eps, basins, sizes).width


def disagreements(widths: Widths) -> int:
    """Return in how many of the cases a function of widths differs from the definition."""
    return sum(widths(*case) != brute(*case) for case in cases())


# -- tasks and their segments --------------------------------------------------------------------------------


def basins_task(centres: Sequence[Sequence[float]], scales: Sequence[float], **more: object) -> GeneralizedRetrieval:
    """Make a task of basins scale·|x − c|² under their sum, or another F0."""
    x = variable(len(centres[0]))
    f = [((x - list(c)) ** 2).sum() * a for c, a in zip(centres, scales, strict=True)]
    settings: dict[str, object] = {"S": None, "F0": variable(len(f)).sum(), "length": 32, **more}
    return GeneralizedRetrieval(f, settings.pop("S"), settings.pop("F0"), **settings)  # pyright: ignore[reportArgumentType, reportCallIssue]


def along(task: GeneralizedRetrieval, i: int, s: Segment, heights: Sequence[float]) -> np.ndarray:
    """Return the points of a segment at which f_i has risen by the given heights, by bisection."""
    start = np.array([float(v) for v in s.minimiser])
    step = np.zeros(len(start))
    step[s.axis] = s.towards

    def rise(u: np.ndarray) -> np.ndarray:
        return value(task, i, start + u[:, None] * step) - value(task, i, start[None])

    low, high = np.zeros(len(heights)), np.full(len(heights), 100.0)
    for _ in range(80):
        middle = (low + high) / 2
        less = rise(middle) < np.array(heights)
        low, high = np.where(less, middle, low), np.where(less, high, middle)
    return start + high[:, None] * step


def value(task: GeneralizedRetrieval, i: int, points: np.ndarray) -> np.ndarray:
    """Return f_i at points[k, dim]."""
    return task.tokens(torch.from_numpy(points)[:, None])[:, i, 0].numpy()


def segment_faults(task: GeneralizedRetrieval, found: Sequence[Segment]) -> list[str]:
    """Return the requirements of the count that the segments violate on a fine sample."""
    assert task.box is not None
    low, high = (np.array(side) for side in task.box)
    faults: list[str] = []
    every = np.stack(np.meshgrid(*np.linspace(low, high, 25).T), -1).reshape(-1, task.dim)
    points = [along(task, i, s, [0.0, *(float(s.rise) * k / 40 for k in range(1, 41))]) for i, s in enumerate(found)]
    z = np.array([value(task, i, p[:1])[0] for i, p in enumerate(points)])
    for i, own in enumerate(points):
        f = value(task, i, own)
        if (own < low - 1e-12).any() or (own > high + 1e-12).any():
            faults.append(f"segment {i} leaves the box")
        if f[0] > value(task, i, every).min() + 1e-12:
            faults.append(f"segment {i} does not begin at a minimiser on the box")
        others = np.concatenate([p for j, p in enumerate(points) if j != i])
        if value(task, i, others).min() < f[-1] - 1e-12:
            faults.append(f"another segment hides segment {i}")
        ends = np.repeat(z[None], 2, 0)
        ends[1, i] = f[-1]
        moved = np.diff(outer(task, ends), axis=0)
        if not math.isclose(np.abs(moved).max(), float(found[i].variation), rel_tol=1e-9):
            faults.append(f"the target does not change by the variation along segment {i}")
    return faults


def outer(task: GeneralizedRetrieval, z: np.ndarray) -> np.ndarray:
    """Return F0 at z[k, D]."""
    from headcount.theory.attack.target import outer as evaluate

    return evaluate(task, torch.from_numpy(z)).numpy()


# -- the proof, step by step, on a random attention layer ----------------------------------------------------


def follow_proof(
    task: GeneralizedRetrieval,
    found: Sequence[Segment],
    *,
    heads: int,
    t: int,
    q: int,
    seed: int,
    filler_of: Callable[[int, int], int] = lambda i, D: D - 1 if i != D - 1 else 0,
) -> tuple[float, float, float, int]:
    """Return the largest move of a head's output over its bound, the target gap, its 3ε, and the hidden basin i.

    Weights and values are random numbers for every point and position: nothing else is known of an encoder. n = 1.
    """
    rng, D, T, s = np.random.default_rng(seed), len(task.f), task.length, heads
    grids = [along(task, i, g, [float(g.rise) * k / (q * t) for k in range(1, q * t + 1)]) for i, g in enumerate(found)]
    minimisers = np.array([[float(v) for v in g.minimiser] for g in found])
    A = np.concatenate([*grids, minimisers])
    owner = np.concatenate([np.repeat(np.arange(D), q * t), np.arange(D)])
    weight = np.exp(5 * rng.normal(size=(s, len(A), T)))
    V = math.sqrt(s)
    v = rng.uniform(-V, V, size=(s, len(A), T))
    held: dict[int, int] = {}  # position: index of a point of A
    peaks: list[float] = []
    for k in range(s):
        masked = np.where(np.isin(np.arange(T), list(held)), -1.0, weight[k])
        point, position = np.unravel_index(masked.argmax(), masked.shape)
        held[int(position)] = int(point)
        peaks.append(float(masked.max()))
    hidden = min(set(range(D)) - {int(owner[point]) for point in held.values()})
    for j in set(range(D)) - {hidden}:
        held[next(p for p in task.S[j] if p not in held)] = D * q * t + j
    free = [p for p in task.S[hidden] if p not in held][:t]
    assert len(free) == t
    filler = D * q * t + filler_of(hidden, D)
    rest = {p: held.get(p, filler) for p in range(T) if p not in free}
    choices = np.array(list(itertools.product(range(q), repeat=t)))
    points = hidden * q * t + choices + q * np.arange(t)  # the l-th free position takes a point of U_l
    units = np.array(peaks)[:, None, None]
    a = weight[:, points, free] / units  # [s, sequences, t]
    sums = np.concatenate([a.sum(-1), (a * v[:, points, free]).sum(-1)])  # [2s, sequences]
    m = 2 * s
    G = next(g for g in itertools.count(1) if (g + 1) ** m >= q**t)
    side = np.array([t / G] * s + [2 * t * V / G] * s)[:, None]
    cell = np.floor((sums + np.array([0.0] * s + [t * V] * s)[:, None]) / side).clip(0, G - 1)
    seen: dict[tuple[float, ...], int] = {}
    first, second = next((seen[key], c) for c, key in enumerate(map(tuple, cell.T)) if seen.setdefault(key, c) != c)
    alike = choices[first] == choices[second]
    outputs, targets = [], []
    for c in (first, second):
        whole = {**rest, **{p: filler if same else int(x) for p, same, x in zip(free, alike, points[c], strict=True)}}
        order = [whole[p] for p in range(T)]
        w = weight[:, order, range(T)]
        outputs.append((w * v[:, order, range(T)]).sum(-1) / w.sum(-1))
        targets.append(task.value(torch.from_numpy(A[order])[None])[0].numpy())
    moved = np.abs(outputs[0] - outputs[1]).max() / (3 * t * V / G)
    gap = np.abs(targets[0] - targets[1]).max()
    return float(moved), float(gap), float(found[hidden].variation) / (t * q), hidden
