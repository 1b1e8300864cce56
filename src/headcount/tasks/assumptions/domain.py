"""The domain of definition 1: bounded tokens, f_i into [0, 1], functions with enough derivatives."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from headcount.core import generator
from headcount.tasks.assumptions.branch_and_bound import Region, hull
from headcount.tasks.assumptions.minimiser import find_minimiser, prove_minimiser, values
from headcount.tasks.assumptions.verdicts import Finding, Judgement, Study, combine, finding
from headcount.tasks.expressions import in_balls as expr_ball
from headcount.tasks.expressions import tree as e
from headcount.tasks.expressions.jet_arithmetic import balls, ceil, floor
from headcount.tasks.retrieval import GeneralizedRetrieval
from headcount.tasks.sampling import Sphere

RANGE_TOLERANCE = 1e-12
"""How far a *measured* range may leave [0, 1]: coefficients such as 1/3 are rounded."""
NOTES = {
    "sphere": "tokens lie on the unit sphere: ranges are taken there, minimisers on the box around it",
    "gaussian": "tokens are unbounded: proofs speak of all of R^d, measurements of this box",
    "marked": "marks are 0 or 1: ranges and minimisers are taken on the box around all tokens",
}


def domain_note(task: GeneralizedRetrieval) -> dict[str, str]:
    """Return a note, for the numbers of a finding, on how the searched box differs from the tokens' support."""
    return {"note": NOTES[task.law.law]} if task.law.law in NOTES else {}


def check_domain(task: GeneralizedRetrieval, studies: list[Study], seed: int) -> Finding:
    """Return the finding on definition 1: bounded tokens, f_i in [0, 1] and twice differentiable, F0 differentiable."""
    bounded, proved = task.box is not None, "proved"
    parts = [Judgement("holds" if bounded else "fails", proved, f"{task.law.law} tokens are not bounded")]
    for g, name in [*((s.f, f"f_{i}") for i, s in enumerate(studies, 1)), (task.F0, "F0")]:
        if isinstance(g, e.Node):
            kinds = sorted({n.op for n in g.walk()} & {"min", "max", "norm"})
            why = f"{name} uses {', '.join(kinds)}, which has kinks: it may not be differentiable"
            parts.append(Judgement("holds", proved) if g.smooth else Judgement("unknown", "measured", why))
        else:
            why = f"{name} is a bare function: that it is differentiable cannot be seen"
            parts.append(Judgement("unknown", "measured", why))
    ranges: list[list[float]] = []
    for i, s in enumerate(studies, 1):
        judged, low, high = _range(s, f"f_{i}", isinstance(task.law, Sphere), seed)
        ranges.append([low, high])
        parts.append(judged)
    judged = combine(parts, "tokens are bounded, every f_i maps into [0, 1], all functions are differentiable")
    box = hull([s.search for s in studies])
    return finding(
        "domain",
        judged,
        law=task.law.law,
        bounded=bounded,
        low=list(box.low),
        high=list(box.high),
        ranges=ranges,
        **domain_note(task),
    )


def _range(s: Study, name: str, sphere: bool, seed: int) -> tuple[Judgement, float, float]:
    """Return the judgement whether f maps the domain into [0, 1], and the measured range."""
    lowest, highest = s.found, find_minimiser(lambda x: -values(s.f, x), s.search, seed)
    low, high = lowest.value, -highest.value
    if sphere:
        low, high = _range_on_sphere(s, seed)
    inside = low >= -RANGE_TOLERANCE and high <= 1 + RANGE_TOLERANCE
    good = f"{name} maps the domain into [{low:.3g}, {high:.3g}]"
    bad = f"{name} leaves [0, 1]: it ranges from {low:.3g} to {high:.3g}"
    if isinstance(s.f, e.Node) and expr_ball.flint is not None and not sphere:
        at = [expr_ball.evaluate(s.f, balls(p, p))[0] for p in (lowest.points[0], highest.points[0])]
        if not inside:
            return Judgement("fails", "proved" if at[0] < 0 or at[1] > 1 else "measured", bad), low, high
        bottom, top = _proved_range(s, highest.points[0])
        if bottom >= 0 and top <= 1:
            return Judgement("holds", "proved", good), low, high
    return Judgement("holds" if inside else "fails", "measured", good if inside else bad), low, high


def _range_on_sphere(s: Study, seed: int) -> tuple[float, float]:
    """Return the range of f over random points of the sphere, the one nearest to the minimiser, and its opposite."""
    x = torch.from_numpy(Sphere().draw(generator(seed, "sphere"), 1, 4096, len(s.search.low))[0])
    p = torch.tensor(s.found.points[:1], dtype=x.dtype)
    near = p / p.norm().clamp(min=1e-300)
    y = values(s.f, torch.cat([x, near, -near]))
    return float(y.min()), float(y.max())


def _proved_range(s: Study, highest: Sequence[float]) -> tuple[float, float]:
    """Return proved bounds of f on the box; by its structure an even power is never negative."""
    assert isinstance(s.f, e.Node)
    natural = expr_ball.evaluate(s.f, balls(*s.search))[0]
    bottom, top = floor(natural), ceil(natural)
    if s.proof is not None:
        bottom = max(bottom, s.proof.value[0])
        if top > 1:
            top = min(top, -prove_minimiser(-s.f, s.search, highest, budget=300).value[0])
    return 0.0 if bottom < 0 and _nonnegative(s.f, s.search) else bottom, top


def _nonnegative(node: e.Expr, box: Region) -> bool:
    """Return whether no component can be negative, by structure alone."""
    match node:
        case e.Variable():
            return min(box.low) >= 0
        case e.Exp() | e.Softplus() | e.Norm():
            return True
        case e.Power() if node.exponent % 2 == 0:
            return True
        case e.Affine() if min(*node.bias, *(w for row in node.weight for w in row)) < 0:
            return False
        case _:
            return all(_nonnegative(child, box) for child in node.children)
