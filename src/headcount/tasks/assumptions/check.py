"""Check whether a task meets the assumptions of the theorems: proved by ball arithmetic if possible, else measured.

A verdict is "proved" if it follows from enclosures with outward rounding (or from whole numbers), for exactly the
functions that the task's JSON states. Where a proof is out of reach (a bare callable; min, max and norm; too many
boxes; a tie, which balls cannot tell from a near tie) a search decides: the evidence is "measured".
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch

from headcount.core import BadInput
from headcount.tasks.assumptions.branch_and_bound import Region, hull
from headcount.tasks.assumptions.domain import check_domain, domain_note
from headcount.tasks.assumptions.minimiser import derivatives, find_minimiser, kinked, prove_minimiser
from headcount.tasks.assumptions.verdicts import (
    SET_SIZES,
    ZERO_TOLERANCE,
    AssumptionReport,
    Finding,
    Judgement,
    Study,
    combine,
    finding,
    finite,
    provable,
)
from headcount.tasks.expressions import tree as e
from headcount.tasks.expressions.in_balls import ball
from headcount.tasks.expressions.jet_arithmetic import balls, curvature, definite, jets
from headcount.tasks.retrieval import GeneralizedRetrieval
from headcount.tasks.sampling import Gaussian

__all__ = ["AssumptionReport", "Finding", "check_assumptions"]

MAX_PROOF_DIM = 64
"""Dimension above which the pivots of a dense Hessian take too long in ball arithmetic."""


def check_assumptions(task: Any, *, seed: int = 0) -> AssumptionReport:
    """Check a task's domain, assumptions 2.1 to 2.4 and sizes of index sets; `seed` draws the points of searches."""
    if not isinstance(task, GeneralizedRetrieval):
        name = str(getattr(task, "name", type(task).__name__))
        text = f"{name} is not given by f, S and F0: the assumptions do not apply to it"
        return AssumptionReport(task=name, applies=False, sentence=text, findings=())
    if seed < 0:
        raise BadInput(f"seed must be at least 0, not {seed}")
    radius = 3.0 * task.law.std if isinstance(task.law, Gaussian) else 3.0
    search = Region(*(task.box or ((-radius,) * task.dim, (radius,) * task.dim)))
    domain = search if task.box else Region((-math.inf,) * task.dim, (math.inf,) * task.dim)
    study_of = {f: _study(f, domain, search, seed) for f in dict.fromkeys(task.f)}
    studies = [study_of[f] for f in task.f]
    findings = (
        check_domain(task, studies, seed),
        _check_unique(task, studies),
        _check_distinct(studies),
        _check_curvature(studies),
        _check_sensitivity(task, studies),
        _check_set_sizes(task),
    )
    bad = [
        f"{f.assumption} {'fails' if f.verdict == 'fails' else 'is unknown'}" for f in findings if f.verdict != "holds"
    ]
    text = f"{task.name}: " + (", ".join(bad) if bad else "all assumptions hold")
    return AssumptionReport(task=task.name, applies=True, sentence=text, findings=findings)


def _study(f: e.Function, domain: Region, search: Region, seed: int) -> Study:
    """Search for minimisers of f, in larger boxes while an unbounded domain may go lower; then try a proof."""
    study = Study(f, search, find_minimiser(f, search, seed), None, domain.bounded())
    for power in range(1, 6):
        if not study.cut_off():
            break
        larger = Region(tuple(v * 4.0**power for v in search.low), tuple(v * 4.0**power for v in search.high))
        wider = Study(f, larger, find_minimiser(f, larger, seed), None, False)
        study = study if wider.cut_off() else wider
    if provable(f) and len(domain.low) <= MAX_PROOF_DIM:
        proof = prove_minimiser(f, domain, study.found.points[0])
        if proof.proved:  # the other points found are not ties
            study = study._replace(found=study.found._replace(points=study.found.points[:1]))
        study = study._replace(proof=proof)
    return study


# -- 2.1, 2.2 ------------------------------------------------------------------------------------------------


def _check_unique(task: GeneralizedRetrieval, studies: list[Study]) -> Finding:
    """Return the finding on 2.1: every f_i has one global minimiser."""

    def judge(i: int, s: Study) -> Judgement:
        outcome, evidence = s.outcome()
        if outcome == "unique":
            return Judgement("holds", evidence)
        if outcome == "none":
            return Judgement("fails", evidence, f"f_{i} falls without end on the unbounded domain: it has no minimiser")
        if outcome == "unclear":
            edge = f"f_{i} is least at the edge of the searched box, but the domain is unbounded"
            why = f"f_{i} has values below all that the search found: a narrow basin was missed" if s.missed() else edge
            return Judgement("unknown", evidence, why)
        why = f"f_{i} takes its least value at several points, e.g. {_show(s.found.points)}"
        return Judgement("fails", evidence, why)

    judged = combine((judge(i, s) for i, s in enumerate(studies, 1)), "every f_i has exactly one global minimiser")
    search = hull([s.search for s in studies])
    return finding(
        "2.1",
        judged,
        minimisers=[[list(p) for p in s.found.points[:4]] for s in studies],
        minima=[s.found.value for s in studies],
        least=[finite(s.proof.value) if s.proof else None for s in studies],
        boxes=[s.proof.boxes if s.proof else 0 for s in studies],
        searched={"low": list(search.low), "high": list(search.high)},
        **domain_note(task),
    )


def _show(points: list[tuple[float, ...]]) -> str:
    """Return the first two points as short text."""
    return " and ".join("(" + ", ".join(f"{v:.3g}" for v in p) + ")" for p in points[:2])


def _check_distinct(studies: list[Study]) -> Finding:
    """Return the finding on 2.2: the minimisers differ."""
    gaps = {
        (i, j): math.dist(a.found.points[0], b.found.points[0])
        for (i, a), (j, b) in itertools.combinations(enumerate(studies, 1), 2)
    }

    def judge(i: int, j: int, gap: float) -> Judgement:
        a, b = studies[i - 1], studies[j - 1]
        same = f"f_{i} and f_{j} have the same minimiser"
        if a.f == b.f:
            return Judgement("fails", "proved", f"{same}: they are the same function")
        if a.outcome()[0] != "unique" or b.outcome()[0] != "unique":
            return Judgement("unknown", "measured", f"f_{i} or f_{j} has no single minimiser to compare")
        if a.proof and b.proof and a.proof.proved and b.proof.proved:
            sides = list(zip(*a.proof.box, *b.proof.box, strict=True))
            if any(p > s or r > q for p, q, r, s in sides):
                return Judgement("holds", "proved")
            if a.proof.box == b.proof.box and not a.proof.box.free():
                return Judgement("fails", "proved", same)
        if gap <= ZERO_TOLERANCE * math.dist(*a.search):
            return Judgement("fails", "measured", same)
        return Judgement("holds", "measured")

    judged = combine((judge(i, j, gap) for (i, j), gap in gaps.items()), "the minimisers differ")
    closest = min(gaps, key=lambda pair: gaps[pair], default=None)
    return finding(
        "2.2", judged, distance=gaps[closest] if closest else None, closest_pair=list(closest) if closest else None
    )


# -- 2.3 -----------------------------------------------------------------------------------------------------


def _check_curvature(studies: list[Study]) -> Finding:
    """Return the finding on 2.3: the Hessian of f_i at its minimiser is positive definite."""
    smallest: list[float] = []
    at_least: list[float] = []

    def judge(i: int, s: Study) -> Judgement:
        x = torch.tensor(s.found.points[:8], dtype=torch.float64)
        H = derivatives(s.f, x)[2].nan_to_num(0.0, 0.0, 0.0)
        smallest.append(float(torch.linalg.eigvalsh(H).min()))
        at_least.append(0.0)
        why = f"the Hessian of f_{i} is not positive definite at its minimiser (eigenvalue {smallest[-1]:.3g})"
        if s.proof is not None and isinstance(s.f, e.Node):
            axes = range(len(s.search.low))
            hessian = jets(s.f, balls(*s.proof.box))[0].hessian
            decided = definite(hessian, axes)
            if decided:
                at_least[-1] = curvature(hessian, axes)
                return Judgement("holds", "proved")
            if decided is False:
                return Judgement("fails", "proved", f"{why}: f_{i} is linear" if not hessian else why)
            if s.proof.outcome == "none":
                return Judgement("unknown", "measured", f"f_{i} has no minimiser")
        elif not s.smooth() and kinked(s.f, x[0], s.search, s.found.spread):
            return Judgement(
                "fails",
                "measured",
                f"f_{i} has a kink at its minimiser, so no Hessian",
            )
        side = torch.tensor(s.search.high, dtype=H.dtype) - torch.tensor(s.search.low, dtype=H.dtype)
        relative = float(torch.linalg.eigvalsh(side[:, None] * H * side).min()) / s.found.spread
        return Judgement("holds" if relative > ZERO_TOLERANCE else "fails", "measured", why)

    judged = combine([judge(i, s) for i, s in enumerate(studies, 1)], "every Hessian is positive definite")
    return finding("2.3", judged, smallest_eigenvalue=smallest, at_least=at_least)


# -- 2.4 and sizes -------------------------------------------------------------------------------------------


def _check_sensitivity(task: GeneralizedRetrieval, studies: list[Study]) -> Finding:
    """Return the finding on 2.4: no partial derivative of F0 at (z_1, …, z_D) is 0.

    If F0 has several outputs, no column of the Jacobian may be 0: every z_i changes at least one output.
    """
    z = torch.tensor([[s.found.value for s in studies]], dtype=torch.float64)
    rows = [derivatives(_output(task.F0, k), z, order=1)[1][0] for k in range(task.out_dim)]
    jacobian = torch.stack(rows).nan_to_num(0.0, 0.0, 0.0)
    sizes = jacobian.abs().amax(0)
    around = Region(tuple((z[0] - 1).tolist()), tuple((z[0] + 1).tolist()))
    enclosed = None
    if provable(task.F0):
        line = (-math.inf, math.inf)
        enclosed = jets(task.F0, [ball(*(s.proof.value if s.proof else line)) for s in studies], 1)
    has_kink = enclosed is None and any(
        kinked(_output(task.F0, k), z[0], around, 1.0, order=1) for k in range(task.out_dim)
    )

    def judge(i: int) -> Judgement:
        zero = f"the derivative of F0 by z_{i + 1} vanishes at the minima"
        if enclosed is not None:
            slopes = [u.gradient[i] for u in enclosed if i in u.gradient]
            if any(g > 0 or g < 0 for g in slopes):
                return Judgement("holds", "proved")
            if not slopes:
                return Judgement("fails", "proved", zero)
        if has_kink:
            return Judgement("fails", "measured", "F0 has a kink at the minima: it is not differentiable there")
        vanishes = float(sizes[i]) <= ZERO_TOLERANCE * float(sizes.max())
        return Judgement("fails" if vanishes else "holds", "measured", zero)

    judged = combine((judge(i) for i in range(len(studies))), "no partial derivative of F0 vanishes at the minima")
    return finding("2.4", judged, z=z[0].tolist(), jacobian=jacobian.tolist())


def _output(F0: e.Function, k: int) -> e.Function:
    """Return one output of F0 as a separate function."""
    if isinstance(F0, e.Node):
        return F0 if F0.out_dim == 1 else F0[k]
    return lambda z: y[..., k] if (y := F0(z)).ndim == z.ndim else y


def _check_set_sizes(task: GeneralizedRetrieval) -> Finding:
    """Return the finding on the sizes of the S_i in definition 1: whole numbers, so always proved."""
    sizes = [len(s) for s in task.S]
    small = [i for i, size in enumerate(sizes, 1) if 4 * size < task.length]
    good = Judgement("holds", "proved", "every S_i has at least T/4 positions")
    bad = Judgement(
        "fails", "proved", f"S_{small[0] if small else 0} has fewer than T/4 = {task.length / 4:g} positions"
    )
    return finding(SET_SIZES, bad if small else good, sizes=sizes, length=task.length)
