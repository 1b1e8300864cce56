"""Upper bounds on the irreducible error of a layer: linear programs over pairs of inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.core import open_door

if TYPE_CHECKING:
    from headcount.theory.irreducible.bound import Enclosed as Enclosed
    from headcount.theory.irreducible.bound import check_enclosable as check_enclosable
    from headcount.theory.irreducible.bound import irreducible_bound as irreducible_bound

__getattr__, __dir__ = open_door(__name__)
