"""The step of Adam for a stack of models, in plain PyTorch and in Triton."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.core import open_door

if TYPE_CHECKING:
    from headcount.kernels.adam.plain import adam as adam
    from headcount.kernels.adam.plain import adam_at as adam_at
    from headcount.kernels.adam.plain import adam_plain as adam_plain

__getattr__, __dir__ = open_door(__name__)
