"""The attention layer for users' own models, with any number of heads of any size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.core import open_door

if TYPE_CHECKING:
    from headcount.models.attention.layer import Attention as Attention

__getattr__, __dir__ = open_door(__name__)
