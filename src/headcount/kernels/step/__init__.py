"""Loss and gradient of a whole training step, in plain PyTorch, numba and Triton."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.core import open_door

if TYPE_CHECKING:
    from headcount.kernels.step import numba as numba
    from headcount.kernels.step import numba_cache as numba_cache

__getattr__, __dir__ = open_door(__name__)
