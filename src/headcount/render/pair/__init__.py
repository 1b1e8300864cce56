"""The picture and the page of a colliding pair."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.core import open_door

if TYPE_CHECKING:
    from headcount.render.pair import picture as picture

__getattr__, __dir__ = open_door(__name__)
