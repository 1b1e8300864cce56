"""Which fused attention kernel a stack of encoders runs on: the fastest on the device, by a short trial.

They differ by factors where heads are narrow and a sequence ends just behind a tile (257 tokens in tiles of 128), and
no rule says which one wins: three of torch's, and our own for narrow heads. They agree to the rounding of their dtype.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from headcount.core import BadInput, nearest
from headcount.kernels.dispatch import ATTEND, SHORT, narrow_preferred
from headcount.kernels.operations import attend

_LOG = logging.getLogger(__name__)
NARROW = "narrow"
KERNELS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    NARROW: None,
}
"""By name; None is ours."""

TRIED_HEADS = 8  # which one wins hangs on length and head size, so all head counts share one trial: it costs a second
_SEQUENCES = 512  # of a trial: enough to fill a GPU
_TRIALS = 3


@contextmanager
def prefer_attention(kernel: str | None) -> Generator[None]:
    """Prefer a kernel by name; where it does not apply, torch takes another. None leaves the choice to torch."""
    if kernel is None:
        yield
        return
    if kernel not in KERNELS:
        raise BadInput(f"{kernel!r} is no attention kernel: {nearest(kernel, KERNELS)}")
    backend = KERNELS[kernel]
    if backend is None:
        token = narrow_preferred.set(True)
        try:
            yield
        finally:
            narrow_preferred.reset(token)
        return
    with sdpa_kernel([backend, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH], set_priority=True):
        yield


def tries_attention(tokens: int, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether there is something to try: in float32 there is one fused kernel, and short sequences take none."""
    return device.type == "cuda" and tokens > SHORT and dtype == torch.bfloat16


@cache
def fastest_attention(
    sequences: int,
    tokens: int,
    head_dim: int,
    dtype: torch.dtype,
    masked: bool,
    device: torch.device,
    heads: int = TRIED_HEADS,
) -> str | None:
    """Time forward and gradient of each kernel once a shape and process; None where none of them runs."""
    shape = (min(sequences, _SEQUENCES), tokens, 3, heads, head_dim)
    parts = torch.randn(shape, dtype=dtype, device=device, requires_grad=True)
    seen = torch.ones(shape[0], tokens, dtype=torch.bool, device=device) if masked else None
    times: dict[str, float] = {}
    why_not: dict[str, str] = {}
    for name, backend in KERNELS.items():
        if backend is None and (reason := _why_not_narrow(parts)) is not None:
            why_not[name] = reason
            continue
        try:
            with warnings.catch_warnings(), prefer_attention(name) if backend is None else sdpa_kernel(backend):
                warnings.simplefilter("ignore")  # torch says at length why a kernel does not apply
                times[name] = min(_milliseconds(parts, seen) for _ in range(1 + _TRIALS))  # the first one is slower
        except RuntimeError:  # this kernel does not know the shape, the mask or the device
            why_not[name] = "it does not take this shape, mask or device"
    found = min(times, key=lambda name: times[name]) if times else None
    _tell(tokens, found, times, why_not)
    return found


def _why_not_narrow(packed: Tensor) -> str | None:
    with prefer_attention(NARROW):
        return ATTEND.explain(packed)[0].why_not


def _tell(tokens: int, found: str | None, times: Mapping[str, float], why_not: Mapping[str, str]) -> None:
    """Say what attention runs on, and why not on the others."""
    others = {name: f"{times[name]:.3g} ms" for name in times if name != found} | dict(why_not)
    chosen = f"on {found} ({times[found]:.3g} ms)" if found is not None else "as torch chooses"
    reasons = "; ".join(f"{name}: {reason}" for name, reason in others.items())
    _LOG.info("attention over %d tokens runs %s, not on %s", tokens, chosen, reasons)


def _milliseconds(parts: Tensor, seen: Tensor | None) -> float:
    """Time one forward and gradient."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    o = attend(parts, seen)
    torch.autograd.grad(o, parts, torch.ones_like(o))
    end.record()
    end.synchronize()
    return start.elapsed_time(end)
