"""Which fused attention kernel a stack of encoders runs on: the fastest on the device, by a short trial.

They differ by factors where heads are narrow and a sequence ends just behind a tile (257 tokens in tiles of 128), and
no rule says which one wins: three of torch's, and our own for narrow heads. They agree to the rounding of their dtype.
"""

from __future__ import annotations

import warnings
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from headcount.core import BadInput, nearest
from headcount.kernels.attention import attend_narrow, why_not_narrow

NARROW = "narrow"
KERNELS = {
    "flash": SDPBackend.FLASH_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION, NARROW: None,
}  # fmt: skip
"""By name; None is ours."""

_SEQUENCES = 512  # of a trial: enough to fill a GPU
_TRIALS = 3
_narrow = ContextVar("narrow", default=False)


@contextmanager
def attention(kernel: str | None) -> Generator[None]:
    """Prefer a kernel by name; where it does not apply, torch takes another. None leaves the choice to torch."""
    if kernel is None:
        yield
        return
    if kernel not in KERNELS:
        raise BadInput(f"{kernel!r} is no attention kernel: {nearest(kernel, KERNELS)}")
    backend = KERNELS[kernel]
    if backend is None:
        token = _narrow.set(True)
        try:
            yield
        finally:
            _narrow.reset(token)
        return
    with sdpa_kernel([backend, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH], set_priority=True):
        yield


def attend(
    packed: Float[Tensor, "sequences tokens 3 heads n"], seen: Bool[Tensor, "sequences tokens"] | None = None
) -> Float[Tensor, "sequences tokens heads n"]:
    """Return what every head reads, by the kernel that is preferred."""
    if _narrow.get() and why_not_narrow(packed) is None:
        return attend_narrow(packed, seen)
    # cut along the axis of the maps where it lies: its gradient is then one copy, in the order that the product wants
    q, k, v = (part.transpose(1, 2) for part in packed.unbind(2))
    allowed = None if seen is None else seen[:, None, None, :]
    return nn.functional.scaled_dot_product_attention(q, k, v, allowed).transpose(1, 2)


@cache
def fastest(
    sequences: int, tokens: int, heads: int, head_dim: int, dtype: torch.dtype, masked: bool, device: torch.device
) -> str | None:
    """Time forward and gradient of each kernel once a shape and process; None where none of them runs."""
    shape = (min(sequences, _SEQUENCES), tokens, 3, heads, head_dim)
    parts = torch.randn(shape, dtype=dtype, device=device, requires_grad=True)
    seen = torch.ones(shape[0], tokens, dtype=torch.bool, device=device) if masked else None
    times: dict[str, float] = {}
    for name, backend in KERNELS.items():
        if backend is None and why_not_narrow(parts) is not None:
            continue
        try:
            with warnings.catch_warnings(), attention(name) if backend is None else sdpa_kernel(backend):
                warnings.simplefilter("ignore")  # torch says at length why a kernel does not apply
                times[name] = min(_milliseconds(parts, seen) for _ in range(1 + _TRIALS))  # the first one is slower
        except RuntimeError:  # this kernel does not know the shape, the mask or the device
            continue
    return min(times, key=lambda name: times[name]) if times else None


def _milliseconds(parts: torch.Tensor, seen: torch.Tensor | None) -> float:
    """Time one forward and gradient."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    o = attend(parts, seen)
    torch.autograd.grad(o, parts, torch.ones_like(o))
    end.record()
    end.synchronize()
    return start.elapsed_time(end)
