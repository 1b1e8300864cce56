"""Search for two inputs that attention maps to the same numbers, and make a witness of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.core import open_door

if TYPE_CHECKING:
    from headcount.theory.attack import search as search
    from headcount.theory.attack.domain import Among as Among
    from headcount.theory.attack.layer import state_map as state_map
    from headcount.theory.attack.search import Found as Found
    from headcount.theory.attack.search import OnProgress as OnProgress
    from headcount.theory.attack.search import attack as attack
    from headcount.theory.attack.witness import NOT_INPUTS as NOT_INPUTS
    from headcount.theory.attack.witness import Witness as Witness
    from headcount.theory.attack.witness import conclusions as conclusions
    from headcount.theory.attack.witness import make_witness as make_witness
    from headcount.theory.attack.witness import pair_figure as pair_figure

__getattr__, __dir__ = open_door(__name__)
