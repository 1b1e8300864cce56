"""All bounds for given sizes: the rows that `headcount bounds` prints."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from headcount.core import BadInput
from headcount.core.text import exponent_text
from headcount.tasks import FAMILIES, GeneralizedRetrieval, min_set_size
from headcount.tasks.assumptions import SET_SIZES, check_assumptions
from headcount.theory.bounds import related_work as known
from headcount.theory.bounds.counting import Basin, Heads, bites_below_eps, least_width
from headcount.theory.bounds.of_task import segments
from headcount.theory.bounds.too_few_heads import Exponent, SetRule, all_positions, check, exponents, rounded_down

MAX_ROWS = 2000
"""Rows of one table."""


@dataclass(frozen=True)
class Facts:
    """What the rows need to know at one length, taken from a task or stated by the user."""

    length: int
    sizes: tuple[int, ...]
    """|S_i| of every basin, exact."""
    variations: tuple[Fraction, ...] | None
    """How much the target changes along each basin's segment, exact; None if unknown."""
    rule: SetRule | None
    """The smallest |S_i| at other lengths; None if no rule is known."""
    failing: tuple[str, ...] = ()
    """Assumptions that the task breaks; then the theorem does not apply, whatever k is."""
    why: str = ""
    """Where a task's variations come from, or why they are unknown; empty without a task."""

    @property
    def smallest_set(self) -> int:
        """min|S_i|."""
        return min(self.sizes)

    def basins(self) -> tuple[Basin, ...]:
        """Return the basins to count with; none if a variation is unknown or an assumption fails."""
        if self.variations is None or self.failing:
            return ()
        return tuple(Basin(size, variation) for size, variation in zip(self.sizes, self.variations, strict=True))


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
    """The proved lower bound on the width of F at ε, with all constants; None if the task's variation is unknown."""
    positions_used: int | None
    """t, the number of free positions that gives that width."""
    basin: int | None
    """The basin, counted from 1, that gives it: a model may ignore any basin, so only the least over all is proved."""
    bites_below_eps: float | None
    """The ε below which that width exceeds one unit."""
    verdict: str

    def data(self) -> dict[str, Any]:
        """Return the row as JSON data, with the numbers of the sharp form at the top level."""
        flat = {key: value for key, value in asdict(self).items() if key not in ("printed", "sharp")}
        return {**asdict(self.sharp), **flat, "printed": asdict(self.printed)}


def of_tasks(
    tasks: Iterable[GeneralizedRetrieval], rule: SetRule | None = None, variation: Fraction | None = None
) -> list[Facts]:
    """Return the facts of a task at several lengths; `variation` replaces the variations of all its basins."""
    studies: dict[Any, tuple[tuple[str, ...], tuple[Fraction, ...] | None, str]] = {}
    found: list[Facts] = []
    for task in tasks:
        key = (task.f, task.F0, task.law)  # these do not depend on the length: check them once
        if key not in studies:
            studies[key] = _study(task)
        failing, variations, why = studies[key]
        if variation is not None:
            variations, why = (variation,) * len(task.S), "stated with --variation"
        sizes = tuple(len(s) for s in task.S)
        if 4 * min(sizes) < task.length:
            failing = (*failing, SET_SIZES)
        found.append(Facts(task.length, sizes, variations, rule, failing, why))
    return found


def _study(task: GeneralizedRetrieval) -> tuple[tuple[str, ...], tuple[Fraction, ...] | None, str]:
    """Return the assumptions that fail, the basins' variations, and where these come from or why they are unknown."""
    findings = check_assumptions(task).findings
    failing = tuple(f.assumption for f in findings if f.verdict == "fails" and f.assumption != SET_SIZES)
    found = segments(task)
    if isinstance(found, str):
        return failing, None, found
    return failing, tuple(s.variation for s in found), "quadratic basins, affine F0"


def family_rule(name: str, settings: Mapping[str, Any]) -> SetRule | None:
    """Return the rule for the smallest |S_i| of a family at any length, given its settings `sets` and `share`.

    None if the name is not a family's: a task in a file has its sets at one length only.
    """
    if name not in FAMILIES:
        return None
    fields = FAMILIES[name].model_fields
    chosen = {key: settings.get(key, fields[key].default) for key in ("sets", "share") if key in fields}
    if not chosen:
        return all_positions

    return lambda length: min_set_size(chosen["sets"], length, share=chosen["share"])


def of_share(
    lengths: Sequence[int], intrinsic: int, share: Fraction = Fraction(1), variation: Fraction | None = None
) -> list[Facts]:
    """Return the facts stated without a task: D sets of ⌈share·T⌉ positions at every length, and one variation."""
    check(intrinsic=intrinsic, length=min(lengths))
    check(length=max(lengths))
    if not Fraction(1, 4) <= share <= 1:
        raise BadInput(f"share must be from 0.25 to 1, not {share}: each S_i has a quarter to all of the positions")

    def rule(length: int) -> int:
        return math.ceil(share * length)

    variations = None if variation is None else (variation,) * intrinsic
    return [Facts(length, (rule(length),) * intrinsic, variations, rule) for length in lengths]


def check_rows(*, heads: Sequence[int], head_dims: Sequence[int], lengths: Sequence[int], eps: float | None) -> None:
    """Reject a table that is too long and an invalid ε, before the work."""
    if eps is not None and not 0 < eps < 1:
        raise BadInput(f"eps must lie between 0 and 1, not {eps}")
    if len(heads) * len(head_dims) * len(lengths) > MAX_ROWS:
        raise BadInput(f"at most {MAX_ROWS} rows: shorten a range")


def rows(
    facts: Sequence[Facts], *, intrinsic: int, heads: Sequence[int], head_dims: Sequence[int], eps: float | None = None
) -> list[Row]:
    """Return a row for every combination of a length with its facts, a head dimension and a head count."""
    check_rows(heads=heads, head_dims=head_dims, lengths=[f.length for f in facts], eps=eps)
    return [_row(f, intrinsic, h, n, eps) for f, n, h in itertools.product(facts, head_dims, heads)]


def _row(facts: Facts, intrinsic: int, heads: int, head_dim: int, eps: float | None) -> Row:
    printed, sharp = exponents(
        length=facts.length,
        heads=heads,
        head_dim=head_dim,
        intrinsic=intrinsic,
        smallest_set=facts.smallest_set,
        rule=facts.rule,
    )
    width = t = basin = bites_below = None
    basins, sizes = facts.basins(), Heads(heads, head_dim, intrinsic)
    if basins and heads < intrinsic:
        bites_below = bites_below_eps(basins, sizes)
        if eps is not None:
            proved = least_width(eps, basins, sizes)
            width, t, basin = rounded_down(proved.width), proved.positions, proved.basin + 1
    verdict = _verdict(sharp, heads, intrinsic, facts.failing, bites_below)
    return Row(
        heads,
        head_dim,
        facts.length,
        intrinsic,
        facts.smallest_set,
        printed,
        sharp,
        width,
        t,
        basin,
        bites_below,
        verdict,
    )


def _verdict(sharp: Exponent, heads: int, intrinsic: int, failing: Sequence[str], bites_below: float | None) -> str:
    """Return in a few words what the theorem says here."""
    if heads >= intrinsic:
        return "enough heads: 2 (1) holds"
    if failing:
        return f"assumption {failing[0]} fails here"
    if sharp.vacuous and bites_below is not None:  # T0 = (n + 1)s + 1: k = 0 and the count still grows
        return "k = 0, yet the count bites below ε"
    if sharp.vacuous:
        since = sharp.bites_from_length
        return "vacuous here" if since is None else f"vacuous here: bites from T = {since}"
    return f"M = Ω(1/ε^{exponent_text(sharp.k)})"


def related(
    *, intrinsic: int, heads: int, head_dim: int, length: int, dim: int | None = None, depth: int = 1
) -> list[known.Known]:
    """Return the results of other theorems for one combination of sizes."""
    found = [known.conjecture_one(depth, heads, intrinsic), known.other_representations(intrinsic, length)]
    if dim is not None and length % 4 == 0:
        found.append(known.density_primitives(length, dim))
    found += [known.rank_bottleneck(length, head_dim), known.memorised(heads, head_dim, length)]
    if dim is not None and dim >= 2:
        found.append(known.nearest_neighbour_heads(dim, head_dim))
    found += [known.sparse_averaging(heads, head_dim, intrinsic), known.sparse_regression_heads(intrinsic)]
    return found
