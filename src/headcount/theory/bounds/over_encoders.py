"""The bound over all encoders as rows for 1 to D − 1 heads, beside the model built with D heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headcount.core import BadInput
from headcount.models import SavedModel
from headcount.tasks import Box, GeneralizedRetrieval
from headcount.theory.bounds.lipschitz import copies, find_alphabet, least_error, least_reach, least_width
from headcount.theory.bounds.reach import reach
from headcount.theory.construct.enough_heads import build


@dataclass(frozen=True)
class EveryEncoder:
    """The bound for one head count; fields with `_any` hold with positions of any kind, the others without."""

    heads: int
    length: int
    gap: float
    """γ, the least change of the target when one of h + 1 letters is left out, proved."""
    letters: tuple[tuple[float, ...], ...]
    copies: int
    """N."""
    copies_any: int
    reach: float | None
    """R of the given model, or of the one built with D heads, over the letters of this row; None without either."""
    error: float | None
    """The least sup error of every model with that reach and h heads."""
    error_any: float | None
    needed: float | None
    """The least reach of every model within ε; None if no ε was stated."""
    needed_any: float | None
    width_any: float | None
    """The width of F that is then needed under Assumptions 1.1 to 1.3."""


@dataclass(frozen=True)
class Transition:
    """Rows for h < D, the proved error of the model built with D heads, and the reasons for missing entries."""

    intrinsic: int
    length: int
    rows: list[EveryEncoder]
    built: float | None
    missing: list[str]


def every_encoder(
    task: GeneralizedRetrieval,
    heads: Sequence[int],
    *,
    head_dim: int = 2,
    eps: float | None = None,
    model: SavedModel | None = None,
    box: Box | None = None,
) -> Transition:
    """Return the bound for every h < D, at the reach of `model` or of the model built within ε with D heads."""
    missing = list[str]()
    built, other = None, model
    if eps is not None and model is None:
        try:
            built = build(task, eps, box=box)
            other = built.model
        except BadInput as error:
            missing.append(f"no errors at the reach of a model with D heads, which could not be built: {error}")
    rows = list[EveryEncoder]()
    for h in sorted({h for h in heads if h < task.intrinsic}):
        try:
            rows.append(_row(task, h, head_dim, eps, other, box))
        except BadInput as error:
            missing.append(f"h = {h}: {error}")
    return Transition(task.intrinsic, task.length, rows, None if built is None else built.budget.bound, missing)


def _row(
    task: GeneralizedRetrieval, heads: int, head_dim: int, eps: float | None, model: SavedModel | None, box: Box | None
) -> EveryEncoder:
    alphabet = find_alphabet(task, heads, box)
    gap, N, N_any = alphabet.gap, copies(alphabet, heads, "none"), copies(alphabet, heads, "any")
    R = None if model is None else reach(model, alphabet)[alphabet.output]
    width = None if eps is None else least_width(gap, eps, N_any, heads=heads, head_dim=head_dim)
    return EveryEncoder(
        heads=heads,
        length=task.length,
        gap=gap,
        letters=alphabet.letters,
        copies=N,
        copies_any=N_any,
        reach=R,
        error=None if R is None else least_error(gap, R, N),
        error_any=None if R is None else least_error(gap, R, N_any),
        needed=None if eps is None else least_reach(gap, eps, N),
        needed_any=None if eps is None else least_reach(gap, eps, N_any),
        width_any=width,
    )
