"""The last step of every construction: `recheck` verifies its files, and float64's rounding is added to the claim."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from headcount.core import BadInput
from headcount.models import SavedModel
from headcount.recheck import Checked, CheckedWide, Verdict, verify

Proved = Checked | CheckedWide
ROUNDING_ROOM = 1.01  # a margin for machines that add the bounds in another order


class Construction(Protocol):
    """A model with its claimed error, as `build` and `build_wide` make them."""

    @property
    def budget(self) -> Any:
        """Where ε goes, with the fields bound and rounding."""

    @property
    def proved(self) -> Proved | None:
        """What `recheck` proved, None before."""

    @property
    def model(self) -> SavedModel:
        """The weights, with task and box."""
        ...

    def certificate(self) -> dict[str, Any]:
        """Return certificate.json as data."""
        ...


C = TypeVar("C", bound=Construction)


def save_verified(
    model: SavedModel, certificate: dict[str, Any], folder: Path | str, extra: Mapping[str, bytes] | None = None
) -> Verdict:
    """Write a model folder with its certificate, and return the verdict on the files as they lie on the disk.

    The files are read again and verified before the folder gets its name. If the certificate does not hold, an error
    is raised, and nothing is left behind.
    """
    verdicts = list[Verdict]()

    def check(written: Path) -> None:
        verdicts.append(verify(written))
        if not verdicts[-1].holds:
            reason = verdicts[-1].reason
            raise BadInput(f"the construction cannot be verified ({reason}): try another eps, and report this")

    model.save(folder, {"certificate.json": certificate, **(extra or {})}, check)
    return verdicts[-1]


def verified(built: C, name: str) -> C:
    """Return a construction with the result of `recheck` on its files and a bound for float64; reject it if this fails.

    built: claims a bound in exact arithmetic. name: the task's, for messages.
    """
    with tempfile.TemporaryDirectory() as folder:
        proved = save_verified(built.model, built.certificate(), Path(folder) / "built").proved
    assert proved is not None
    budget, rounding = built.budget, ROUNDING_ROOM * proved.rounding
    bound = (budget.bound + rounding) * (1 + 1e-15)
    if not bound <= budget.eps:
        raise BadInput(
            f"{name}: eps = {budget.eps:g} is out of reach of float64: rounding adds up to {rounding:.3g} to the exact "
            f"bound {budget.bound:.6g} (state a larger eps)"
        )
    return replace(built, budget=replace(budget, bound=bound, rounding=rounding), proved=proved)  # type: ignore[type-var]
