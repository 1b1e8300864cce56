"""The hot operations, each in plain PyTorch and as faster kernels; `dispatch.py` lists which of them runs when."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.core import open_door

if TYPE_CHECKING:
    from headcount.kernels.adam.plain import adam_plain as adam_plain
    from headcount.kernels.adam.triton import adam_triton as adam_triton
    from headcount.kernels.attention.trial import ATTENTION_KERNELS as ATTENTION_KERNELS
    from headcount.kernels.attention.trial import attention_needs_trial as attention_needs_trial
    from headcount.kernels.attention.trial import fastest_attention as fastest_attention
    from headcount.kernels.attention.trial import prefer_attention as prefer_attention
    from headcount.kernels.dispatch import explain as explain
    from headcount.kernels.dispatch import has_triton as has_triton
    from headcount.kernels.dispatch import without_kernels as without_kernels
    from headcount.kernels.operations import adam_at as adam_at
    from headcount.kernels.operations import add_norm as add_norm
    from headcount.kernels.operations import attend as attend
    from headcount.kernels.operations import load_kernels as load_kernels
    from headcount.kernels.operations import pool_tokens as pool_tokens
    from headcount.kernels.operations import step_on_core as step_on_core
    from headcount.kernels.operations import whole_step as whole_step
    from headcount.kernels.pool.plain import pool_plain as pool_plain
    from headcount.kernels.pool.triton import pool_triton as pool_triton
    from headcount.kernels.residual_norm.plain import add_residual as add_residual

__getattr__, __dir__ = open_door(__name__)
