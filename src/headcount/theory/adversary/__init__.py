"""The adversary of the lower bound as an algorithm: two inputs that too few heads cannot tell apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.core import open_door

if TYPE_CHECKING:
    from headcount.theory.adversary.algorithm import Collision as Collision
    from headcount.theory.adversary.figure import DISTANCE_FLOOR as DISTANCE_FLOOR
    from headcount.theory.adversary.figure import POINTS_PER_GRID as POINTS_PER_GRID
    from headcount.theory.adversary.figure import AdversaryRun as AdversaryRun
    from headcount.theory.adversary.figure import run_adversary as run_adversary

__getattr__, __dir__ = open_door(__name__)
