"""What a check of assumptions says: findings, their report, and how single judgements are joined."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, TypeGuard

from pydantic import JsonValue

from headcount.core import BadInput, Shown, Spec, nearest
from headcount.tasks.assumptions.branch_and_bound import Region
from headcount.tasks.assumptions.minimiser import Found, Outcome, Proof
from headcount.tasks.expressions import in_balls as expr_ball
from headcount.tasks.expressions.tree import Expr, Function, Node

SIZES = "|S_i| ≥ T/4"
Assumption = Literal["domain", "2.1", "2.2", "2.3", "2.4", "|S_i| ≥ T/4"]
Verdict = Literal["holds", "fails", "unknown"]
Evidence = Literal["proved", "measured"]

TINY = 1e-6  # a *measured* number below this share of its natural scale counts as 0


class Finding(Spec):
    """What is known about one assumption."""

    assumption: Assumption
    verdict: Verdict
    evidence: Evidence
    numbers: dict[str, JsonValue]
    sentence: str


class AssumptionReport(Shown, Spec):
    """All findings about a task; none, and `applies` is false, where the task has no retrieval structure."""

    task: str
    applies: bool
    sentence: str
    findings: tuple[Finding, ...]

    @property
    def holds(self) -> bool:
        """Whether 2.1 to 2.4 and the sizes of the index sets hold."""
        return self.applies and all(f.verdict == "holds" for f in self.findings if f.assumption != "domain")

    def finding(self, assumption: str) -> Finding:
        """Return the finding about one assumption."""
        found = {f.assumption: f for f in self.findings}
        if assumption not in found:
            raise BadInput(f"no finding about {assumption!r}: {nearest(assumption, found)}")
        return found[assumption]  # pyright: ignore[reportArgumentType]


class Judgement(NamedTuple):
    """A verdict on a part of an assumption: on one f_i, one pair, one derivative."""

    verdict: Verdict
    evidence: Evidence
    why: str = ""


class Study(NamedTuple):
    """One f: what a search found on a bounded box, and what is proved on the domain itself."""

    f: Function
    search: Region
    found: Found
    proof: Proof | None
    bounded: bool  # else the search saw a part of the domain only

    def smooth(self) -> bool:
        """Whether f is twice differentiable by its structure."""
        return isinstance(self.f, Node) and self.f.smooth

    def cut_off(self) -> bool:
        """Whether the search ended at the edge of its box although the domain goes on beyond."""
        sides = (zip(p, *self.search, strict=True) for p in self.found.points)
        return not self.bounded and any(v in ends for side in sides for v, *ends in side)

    def missed(self) -> bool:
        """Whether the enclosure of the minimum lies below what the search found: a narrow basin was missed."""
        margin = 1e-9 * (1.0 + abs(self.found.value))
        return self.proof is not None and self.proof.value[1] < self.found.value - margin

    def outcome(self) -> tuple[Outcome, Evidence]:
        """Say how many global minimisers there are."""
        if self.proof is not None and self.proof.outcome != "unclear":
            return self.proof.outcome, "proved"
        if self.cut_off() or self.missed():
            return "unclear", "measured"
        return ("unique" if len(self.found.points) == 1 else "several"), "measured"


def provable(f: Function) -> TypeGuard[Expr]:
    """Whether enclosures of derivatives are to be had."""
    return isinstance(f, Node) and f.smooth and expr_ball.flint is not None


def join(parts: Iterable[Judgement], good: str) -> Judgement:
    """Join judgements that must all hold; a proved failure comes before a measured one."""
    parts = list(parts)
    for verdict in ("fails", "unknown"):
        bad = sorted((p for p in parts if p.verdict == verdict), key=lambda p: p.evidence != "proved")
        if bad:
            return bad[0]
    proved = all(p.evidence == "proved" for p in parts)
    return Judgement("holds", "proved" if proved else "measured", good)


def finding(assumption: Assumption, judged: Judgement, **numbers: Any) -> Finding:
    """Make a finding of a joint judgement and the numbers behind it."""
    return Finding(
        assumption=assumption,
        verdict=judged.verdict,
        evidence=judged.evidence,
        numbers=numbers,
        sentence=judged.why,
    )


def finite(values: Sequence[float]) -> list[float | None]:
    """Return numbers for JSON, which knows no infinity."""
    return [float(v) if math.isfinite(v) else None for v in values]
