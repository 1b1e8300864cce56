"""All bounds for given sizes in one answer: what `headcount bounds` prints, row by row."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from headcount.base.errors import BadInput
from headcount.tasks.assumptions import check_assumptions
from headcount.tasks.retrieval import GeneralizedRetrieval
from headcount.theory import known
from headcount.theory.lower import Exponent, bites_below_eps, counting_width, exponents
from headcount.theory.task_bounds import segment

MOST_ROWS = 2000


@dataclass(frozen=True)
class Row:
    """Theorem 2 (2) for one combination of sizes."""

    heads: int
    head_dim: int
    length: int
    intrinsic: int
    smallest_set: int
    printed: Exponent
    sharp: Exponent
    width: float | None
    """The proved least width of F at ε with all constants; None where the task's variation is not known."""
    bites_below_eps: float | None
    """The ε below which that width exceeds one unit."""
    verdict: str

    def data(self) -> dict[str, Any]:
        """Return it as JSON data, the sharp form's numbers at the top."""
        flat = {key: value for key, value in asdict(self).items() if key not in ("printed", "sharp")}
        return {**asdict(self.sharp), **flat, "printed": asdict(self.printed)}


def rows(
    *, intrinsic: int, heads: Sequence[int], head_dims: Sequence[int], lengths: Sequence[int],
    share: float = 1.0, variation: float | None = None, eps: float | None = None, failing: Sequence[str] = (),
) -> list[Row]:  # fmt: skip
    """Return a row for every combination; `share` of the positions lies in the smallest S_i.

    `failing` names assumptions that the task breaks: the theorem then does not speak of it, whatever k is.
    """
    if not 0.25 <= share <= 1:
        raise BadInput(f"each S_i holds a quarter to all of the positions: share must be 0.25 to 1, not {share}")
    if eps is not None and not 0 < eps < 1:
        raise BadInput(f"eps must lie between 0 and 1, not {eps}")
    if variation is not None and not 0 < variation < float("inf"):
        raise BadInput(f"variation must be above 0, not {variation}")
    if len(heads) * len(head_dims) * len(lengths) > MOST_ROWS:
        raise BadInput(f"at most {MOST_ROWS} rows: shorten a range")
    found: list[Row] = []
    for T, n, h in itertools.product(lengths, head_dims, heads):
        smallest = max(1, -int(-share * T // 1))
        printed, sharp = exponents(length=T, heads=h, head_dim=n, intrinsic=intrinsic, smallest_set=smallest)
        width = below = None
        if variation is not None and h < intrinsic and not failing:
            sizes = {"smallest_set": smallest, "heads": h, "head_dim": n, "intrinsic": intrinsic}
            below = bites_below_eps(**sizes, variation=variation)
            if eps is not None:
                width = float(min(counting_width(eps, **sizes, variation=variation), 10**300))
        found.append(
            Row(h, n, T, intrinsic, smallest, printed, sharp, width, below, _verdict(sharp, h, intrinsic, failing))
        )
    return found


def _verdict(sharp: Exponent, heads: int, intrinsic: int, failing: Sequence[str]) -> str:
    """Say in a few words what the theorem says here."""
    if heads >= intrinsic:
        return "enough heads: 2 (1) holds"
    if failing:
        return f"assumption {failing[0]} fails here"
    if sharp.vacuous:
        return f"vacuous here: bites from T = {sharp.bites_from_length}"
    return f"M = Ω(1/ε^{sharp.k:.2f})"


def of_task(task: GeneralizedRetrieval) -> dict[str, Any]:
    """Return what the rows need to know of a task: share of the smallest set, variation, assumptions that fail."""
    report = check_assumptions(task)
    failing = [f.assumption for f in report.findings if f.verdict == "fails"]
    found = segment(task)
    variation = None if isinstance(found, str) else found.variation
    return {
        "share": min(len(s) for s in task.S) / task.length, "variation": variation, "failing": failing,
        "why": found if isinstance(found, str) else found.why,
    }  # fmt: skip


def related(
    *, intrinsic: int, heads: int, head_dim: int, length: int, dim: int | None = None, depth: int = 1
) -> list[known.Known]:
    """Return the results of other theorems for one combination of sizes."""
    found = [known.conjecture_one(depth, heads, intrinsic), known.corollary_one(heads, intrinsic, length)]
    if dim is not None and length % 4 == 0:
        found.append(known.density_primitives(length, dim))
    found += [known.rank_bottleneck(length, head_dim), known.memorised(heads, head_dim, length)]
    if dim is not None and dim >= 2:
        found.append(known.nearest_neighbour_heads(dim, head_dim))
    found += [known.sparse_averaging(heads, head_dim, intrinsic), known.sparse_regression_heads(intrinsic)]
    return found
