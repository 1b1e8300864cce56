"""Results of a check of assumptions: findings, their report, and the combination of single judgements."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, TypeGuard

from pydantic import JsonValue

from headcount.core import BadInput, Displayable, Spec, nearest
from headcount.tasks.assumptions.branch_and_bound import Region
from headcount.tasks.assumptions.minimiser import Outcome, Proof, SearchResult
from headcount.tasks.expressions import in_balls as expr_ball
from headcount.tasks.expressions.tree import Expr, Function, Node

SET_SIZES = "|S_i| ≥ T/4"
Assumption = Literal["domain", "2.1", "2.2", "2.3", "2.4", "|S_i| ≥ T/4"]
Verdict = Literal["holds", "fails", "unknown"]
Evidence = Literal["proved", "measured"]

ZERO_TOLERANCE = 1e-6
"""Fraction of its natural scale below which a *measured* number counts as 0."""


class Finding(Spec):
    """The result about one assumption."""

    assumption: Assumption
    verdict: Verdict
    evidence: Evidence
    numbers: dict[str, JsonValue]
    sentence: str


class AssumptionReport(Displayable, Spec):
    """All findings about a task; `applies` is false, and there are none, if the task has no retrieval structure."""

    task: str
    applies: bool
    sentence: str
    findings: tuple[Finding, ...]

    @property
    def holds(self) -> bool:
        """Whether assumptions 2.1 to 2.4 and the bound on the sizes of index sets hold."""
        return self.applies and all(f.verdict == "holds" for f in self.findings if f.assumption != "domain")

    def finding(self, assumption: str) -> Finding:
        """Return the finding about one assumption."""
        found = {f.assumption: f for f in self.findings}
        if assumption not in found:
            raise BadInput(f"no finding about {assumption!r}: {nearest(assumption, found)}")
        return found[assumption]  # pyright: ignore[reportArgumentType]


class Judgement(NamedTuple):
    """A verdict on a part of an assumption: one f_i, one pair or one derivative."""

    verdict: Verdict
    evidence: Evidence
    why: str = ""


class Study(NamedTuple):
    """One f: the result of a search on a bounded box, and what is proved on the domain itself."""

    f: Function
    search: Region
    found: SearchResult
    proof: Proof | None
    bounded: bool  # otherwise the search covers only a part of the domain

    def smooth(self) -> bool:
        """Return whether f is twice differentiable by its structure."""
        return isinstance(self.f, Node) and self.f.smooth

    def cut_off(self) -> bool:
        """Return whether the search ended at the edge of its box although the domain extends beyond it."""
        sides = (zip(p, *self.search, strict=True) for p in self.found.points)
        return not self.bounded and any(v in ends for side in sides for v, *ends in side)

    def missed(self) -> bool:
        """Return whether the proved minimum lies below the one found, so that the search missed a narrow basin."""
        margin = 1e-9 * (1.0 + abs(self.found.value))
        return self.proof is not None and self.proof.value[1] < self.found.value - margin

    def outcome(self) -> tuple[Outcome, Evidence]:
        """Return how many global minimisers there are, and how this is known."""
        if self.proof is not None and self.proof.outcome != "unclear":
            return self.proof.outcome, "proved"
        if self.cut_off() or self.missed():
            return "unclear", "measured"
        return ("unique" if len(self.found.points) == 1 else "several"), "measured"


def provable(f: Function) -> TypeGuard[Expr]:
    """Return whether the derivatives of f can be enclosed."""
    return isinstance(f, Node) and f.smooth and expr_ball.flint is not None


def combine(parts: Iterable[Judgement], why_holds: str) -> Judgement:
    """Return the judgement that all parts hold; a proved failure takes precedence over a measured one."""
    parts = list(parts)
    for verdict in ("fails", "unknown"):
        bad = sorted((p for p in parts if p.verdict == verdict), key=lambda p: p.evidence != "proved")
        if bad:
            return bad[0]
    proved = all(p.evidence == "proved" for p in parts)
    return Judgement("holds", "proved" if proved else "measured", why_holds)


def finding(assumption: Assumption, judged: Judgement, **numbers: Any) -> Finding:
    """Return the finding of a combined judgement and the numbers behind it."""
    return Finding(
        assumption=assumption,
        verdict=judged.verdict,
        evidence=judged.evidence,
        numbers=numbers,
        sentence=judged.why,
    )


def finite(values: Sequence[float]) -> list[float | None]:
    """Return numbers for JSON, with None for infinity."""
    return [float(v) if math.isfinite(v) else None for v in values]
