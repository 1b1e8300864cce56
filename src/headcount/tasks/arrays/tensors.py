"""Tensors as what NumPy reads."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def readable(value: Any) -> Any:
    """Return what NumPy reads of a tensor, whatever its device, gradient and precision; all else as it is."""
    if not isinstance(value, Tensor):
        return value
    return (value.float() if value.dtype is torch.bfloat16 else value).detach().cpu()
