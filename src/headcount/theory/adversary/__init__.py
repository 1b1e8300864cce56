"""The adversary of the lower bound, run: two inputs that a narrow head cannot tell apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.core import open_door

if TYPE_CHECKING:
    from headcount.theory.adversary.algorithm import Collision as Collision
    from headcount.theory.adversary.figure import FLOOR as FLOOR
    from headcount.theory.adversary.figure import POINTS as POINTS
    from headcount.theory.adversary.figure import Run as Run
    from headcount.theory.adversary.figure import run_adversary as run_adversary

__getattr__, __dir__ = open_door(__name__)
