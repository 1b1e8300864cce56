"""Tokens to the pooled hidden state of every head, in plain PyTorch, numba and Triton."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.core import open_door

if TYPE_CHECKING:
    from headcount.kernels.pool.plain import pool as pool
    from headcount.kernels.pool.plain import pool_plain as pool_plain
    from headcount.kernels.pool.plain import whole_step as whole_step
    from headcount.kernels.pool.plain import without_kernels as without_kernels
    from headcount.kernels.pool.triton import pool_triton as pool_triton
    from headcount.kernels.pool.triton import why_not as why_not

__getattr__, __dir__ = open_door(__name__)
