"""The irreducible error of a layer, enclosed: pairs of inputs bounded by linear programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.core import open_door

if TYPE_CHECKING:
    from headcount.theory.irreducible.bound import Enclosed as Enclosed
    from headcount.theory.irreducible.bound import enclosable as enclosable
    from headcount.theory.irreducible.bound import irreducible_bound as irreducible_bound

__getattr__, __dir__ = open_door(__name__)
