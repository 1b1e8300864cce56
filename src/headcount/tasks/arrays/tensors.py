"""Conversion of tensors to a form that NumPy reads."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def readable(value: Any) -> Any:
    """Return a tensor in a form that NumPy reads, whatever its device, gradient and precision; others unchanged."""
    if not isinstance(value, Tensor):
        return value
    return (value.float() if value.dtype is torch.bfloat16 else value).detach().cpu()
