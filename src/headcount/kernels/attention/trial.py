"""The choice of the fused attention kernel for a stack of encoders: the fastest on the device, by a short trial.

The candidates are three kernels of torch and our own for narrow heads. Their times differ by factors if heads are
narrow and a sequence is slightly longer than a multiple of the tile (257 tokens in tiles of 128), and no simple rule
tells which one is fastest. They agree up to the rounding of their dtype.
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
from headcount.kernels.dispatch import ATTEND, MAX_UNFUSED_TOKENS, narrow_preferred
from headcount.kernels.operations import attend

_LOG = logging.getLogger(__name__)
_NARROW = "narrow"
ATTENTION_KERNELS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    _NARROW: None,
}
"""Torch's backends by name; None stands for our own kernel."""

TRIAL_HEADS = 8  # the winner depends on length and head size, so all head counts share one trial, which takes a second
_MAX_TRIAL_SEQUENCES = 512  # enough to fill a GPU
_REPETITIONS = 3  # timed runs per kernel


@contextmanager
def prefer_attention(kernel: str | None) -> Generator[None]:
    """Prefer a kernel by name; if it does not apply, torch uses another. None leaves the choice to torch."""
    if kernel is None:
        yield
        return
    if kernel not in ATTENTION_KERNELS:
        raise BadInput(f"unknown attention kernel {kernel!r}: {nearest(kernel, ATTENTION_KERNELS)}")
    backend = ATTENTION_KERNELS[kernel]
    if backend is None:
        token = narrow_preferred.set(True)
        try:
            yield
        finally:
            narrow_preferred.reset(token)
        return
    with sdpa_kernel([backend, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH], set_priority=True):
        yield


def attention_needs_trial(tokens: int, dtype: torch.dtype, device: torch.device) -> bool:
    """Return whether there is a choice: float32 has only one fused kernel, and short sequences use none."""
    return device.type == "cuda" and tokens > MAX_UNFUSED_TOKENS and dtype == torch.bfloat16


@cache
def fastest_attention(
    sequences: int,
    tokens: int,
    head_dim: int,
    dtype: torch.dtype,
    masked: bool,
    device: torch.device,
    heads: int = TRIAL_HEADS,
) -> str | None:
    """Return the kernel with the fastest forward and gradient, timed once per shape and process; None if none runs."""
    shape = (min(sequences, _MAX_TRIAL_SEQUENCES), tokens, 3, heads, head_dim)
    packed = torch.randn(shape, dtype=dtype, device=device, requires_grad=True)
    seen = torch.ones(shape[0], tokens, dtype=torch.bool, device=device) if masked else None
    times: dict[str, float] = {}
    why_not: dict[str, str] = {}
    for name, backend in ATTENTION_KERNELS.items():
        if backend is None and (reason := _why_not_narrow(packed)) is not None:
            why_not[name] = reason
            continue
        try:
            with warnings.catch_warnings(), prefer_attention(name) if backend is None else sdpa_kernel(backend):
                warnings.simplefilter("ignore")  # torch explains at length why a kernel does not apply
                times[name] = min(
                    _milliseconds(packed, seen) for _ in range(1 + _REPETITIONS)
                )  # the first is a warm-up
        except RuntimeError:  # raised for an unsupported shape, mask or device
            why_not[name] = "it does not support this shape, mask or device"
    fastest = min(times, key=lambda name: times[name]) if times else None
    _log_choice(tokens, fastest, times, why_not)
    return fastest


def _why_not_narrow(packed: Tensor) -> str | None:
    with prefer_attention(_NARROW):
        return ATTEND.explain(packed)[0].why_not


def _log_choice(tokens: int, fastest: str | None, times: Mapping[str, float], why_not: Mapping[str, str]) -> None:
    """Log which kernel attention runs on, and why not the others."""
    others = {name: f"{times[name]:.3g} ms" for name in times if name != fastest} | dict(why_not)
    chosen = f"on {fastest} ({times[fastest]:.3g} ms)" if fastest is not None else "as torch chooses"
    reasons = "; ".join(f"{name}: {reason}" for name, reason in others.items())
    _LOG.info("attention over %d tokens runs %s, not on %s", tokens, chosen, reasons)


def _milliseconds(packed: Tensor, seen: Tensor | None) -> float:
    """Return the time of one forward and gradient in milliseconds."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    o = attend(packed, seen)
    torch.autograd.grad(o, packed, torch.ones_like(o))
    end.record()
    end.synchronize()
    return start.elapsed_time(end)
