"""A residual sum and its layer norm in one pass, in plain PyTorch and in Triton."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.core import open_door

if TYPE_CHECKING:
    from headcount.kernels.residual_norm.plain import grown as grown
    from headcount.kernels.residual_norm.plain import join as join

__getattr__, __dir__ = open_door(__name__)
