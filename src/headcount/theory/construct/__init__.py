"""Transformers built with a proved error: with enough heads, or with one wide head."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.core import open_door

if TYPE_CHECKING:
    from headcount.theory.construct.enough_heads import Built as Built
    from headcount.theory.construct.enough_heads import build as build
    from headcount.theory.construct.enough_heads import largest_weights as largest_weights
    from headcount.theory.construct.one_wide_head import BuiltWide as BuiltWide
    from headcount.theory.construct.one_wide_head import build_wide as build_wide
    from headcount.theory.construct.verified import save_verified as save_verified

__getattr__, __dir__ = open_door(__name__)
