"""Attention of narrow heads, in plain PyTorch and in Triton."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.core import open_door

if TYPE_CHECKING:
    from headcount.kernels.attention.plain import attend_narrow as attend_narrow
    from headcount.kernels.attention.plain import attend_plain as attend_plain
    from headcount.kernels.attention.plain import why_not_narrow as why_not_narrow

__getattr__, __dir__ = open_door(__name__)
