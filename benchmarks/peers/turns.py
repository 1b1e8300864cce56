"""Timing on a noisy machine: everything runs in turns, several times, and is compared within a turn."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeVar

import torch

LEARNING_RATE = 1e-3  # of everything that is timed; it does not change the amount of work
Key = TypeVar("Key", bound=Hashable)
Work = Callable[[], int]
"""Does some training and returns the number of model-steps."""


class PeerUnavailable(Exception):
    """Raised by a peer that cannot run here; its row shows the message as the reason."""


def settle(device: str) -> None:
    """Wait until the device has finished, because kernels start later than the calls that launch them."""
    if device == "cuda":
        torch.cuda.synchronize()


def in_turns(
    works: Mapping[Key, Work], turns: int, device: str, on_turn: Callable[[int], None] = lambda _: None
) -> dict[Key, list[float]]:
    """Return µs per model-step of every turn; all works must have run before, so that everything is compiled."""
    times: dict[Key, list[float]] = {key: [] for key in works}
    for turn in range(turns):
        for key, work in works.items():
            settle(device)
            start = time.perf_counter()
            steps = work()
            settle(device)
            times[key].append((time.perf_counter() - start) / steps * 1e6)
        on_turn(turn)
    return times


def ratio(these: Sequence[float], those: Sequence[float]) -> float:
    """Return the median over turns of the ratio of two times of the same turn."""
    return statistics.median(a / b for a, b in zip(these, those, strict=True))


def short_reason(error: BaseException) -> str:
    """Return in one short line why a peer did not run."""
    text = f"{type(error).__name__}: {error}"
    if "compiler" in text.lower() and ("c++" in text.lower() or "Cxx" in text or "Cpp" in text):
        return "torch.compile needs a C++ compiler"
    if "out of memory" in text.lower() or "RESOURCE_EXHAUSTED" in text:
        return "out of memory"
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    return f"did not run: {first[:90]}"
