"""Theorem 1 as a construction: approximants of a permutation-invariant function, proved and measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.core import open_door

if TYPE_CHECKING:
    from headcount.theory.density.approximant import Approximant as Approximant
    from headcount.theory.density.approximant import selector_constant as selector_constant
    from headcount.theory.density.measured import Density as Density
    from headcount.theory.density.measured import measure as measure

__getattr__, __dir__ = open_door(__name__)
