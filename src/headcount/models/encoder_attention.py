"""Which of torch's fused attention kernels a stack of encoders runs on: the fastest on the device, by a short trial.

They differ by factors where heads are narrow and a sequence ends just behind a tile (257 tokens in tiles of 128), and
no rule of torch's says which one wins. They agree to the rounding of their dtype.
"""

from __future__ import annotations

import warnings
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from headcount.base.errors import BadInput, nearest

KERNELS = {
    "flash": SDPBackend.FLASH_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}  # fmt: skip
_SEQUENCES = 512  # of a trial: enough to fill a GPU
_TRIALS = 3


@contextmanager
def attention(kernel: str | None) -> Generator[None]:
    """Prefer a kernel by name; where it does not apply, torch takes another. None leaves the choice to torch."""
    if kernel is None:
        yield
        return
    if kernel not in KERNELS:
        raise BadInput(f"{kernel!r} is no attention kernel: {nearest(kernel, KERNELS)}")
    with sdpa_kernel([KERNELS[kernel], SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH], set_priority=True):
        yield


@cache
def fastest(
    sequences: int, tokens: int, heads: int, head_dim: int, dtype: torch.dtype, masked: bool, device: torch.device
) -> str | None:
    """Time forward and gradient of each kernel once a shape and process; None where none of them runs."""
    shape = (min(sequences, _SEQUENCES), tokens, 3, heads, head_dim)
    parts = torch.randn(shape, dtype=dtype, device=device, requires_grad=True)
    seen = torch.ones(shape[0], 1, 1, tokens, dtype=torch.bool, device=device) if masked else None
    times: dict[str, float] = {}
    for name, kernel in KERNELS.items():
        try:
            with warnings.catch_warnings(), sdpa_kernel(kernel):
                warnings.simplefilter("ignore")  # torch says at length why a kernel does not apply
                times[name] = min(_milliseconds(parts, seen) for _ in range(1 + _TRIALS))  # the first one is slower
        except RuntimeError:  # this kernel does not know the shape, the mask or the device
            continue
    return min(times, key=lambda name: times[name]) if times else None


def _milliseconds(parts: torch.Tensor, seen: torch.Tensor | None) -> float:
    """Time one forward and gradient, laid out as in `encoder_stacked`."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    q, k, v = (part.transpose(1, 2) for part in parts.unbind(2))
    o = nn.functional.scaled_dot_product_attention(q, k, v, seen).transpose(1, 2)
    torch.autograd.grad(o, parts, torch.ones_like(o))
    end.record()
    end.synchronize()
    return start.elapsed_time(end)
