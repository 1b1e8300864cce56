"""The largest error of a trained model: proved upper bounds over boxes, and the worst error found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.core import open_door

if TYPE_CHECKING:
    from headcount.theory.certify.trained import Certificate as Certificate
    from headcount.theory.certify.trained import certify as certify

__getattr__, __dir__ = open_door(__name__)
