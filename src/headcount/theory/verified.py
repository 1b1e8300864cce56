"""The last step of every construction: its own files go through `recheck`, and float64's rounding joins the claim."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from headcount.base.errors import BadInput
from headcount.recheck.certificate import verify
from headcount.recheck.enough import Checked
from headcount.recheck.wide import CheckedWide

Proved = Checked | CheckedWide
ROUNDING_ROOM = 1.01  # another machine adds the same bounds in another order


class Construction(Protocol):
    """A model with its claimed error, as `build` and `build_wide` make them."""

    @property
    def budget(self) -> Any:
        """Where ε goes, with the fields bound and rounding."""

    @property
    def proved(self) -> Proved | None:
        """What `recheck` proved of it."""

    def save(self, folder: Path) -> str:
        """Write model and certificate."""
        ...


C = TypeVar("C", bound=Construction)


def verified(built: C, name: str) -> C:
    """Return a construction with what `recheck` proves of its files and a bound for float64; refuse one that fails.

    built claims what holds in exact arithmetic so far; name is the task's, for messages.
    """
    with tempfile.TemporaryDirectory() as folder:
        built.save(Path(folder) / "built")
        verdict = verify(Path(folder) / "built")
    proved = verdict.proved
    if proved is None:
        raise BadInput(
            f"{name}: what was built cannot be verified ({verdict.reason}): state another eps, and report it"
        )
    budget, rounding = built.budget, ROUNDING_ROOM * proved.rounding
    bound = (budget.bound + rounding) * (1 + 1e-15)
    if not bound <= budget.eps:
        raise BadInput(
            f"{name}: eps = {budget.eps:g} is out of reach of float64, whose rounding adds up to {rounding:.3g} to "
            f"{budget.bound:.6g}: state a larger eps"
        )
    return replace(built, budget=replace(budget, bound=bound, rounding=rounding), proved=proved)  # type: ignore[type-var]
