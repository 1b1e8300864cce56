"""The arithmetic floor: what the training must compute at least, at the device's full rate.

A token costs d·N + 2·h·N multiply-adds forward: the hidden layer, and for every head its score and its part of the
pool. Back it costs twice that: the gradients of the pool and of the scores (2·h·N towards the hidden layer, 2·h·N
towards the weights), that of the first layer's weights (d·N), and the hidden layer once more (d·N), since to keep it
would cost more. What happens once a sequence or once a step is small beside it and left out.
"""

from __future__ import annotations

import time

import torch

from headcount.models.transformer import ModelSpec

# float32 multiply-adds outside of tensor cores, by the makers' data sheets
DATA_SHEETS = {"H200": 67e12, "H100": 67e12, "A100": 19.5e12, "L40S": 91.6e12, "L4": 30.3e12, "V100": 15.7e12}


def flop_a_token(spec: ModelSpec) -> int:
    """Floating-point operations a token in one training step: 2,304 for d = 4, N = 32, h = 4."""
    return 6 * (spec.dim * spec.hidden + 2 * spec.heads * spec.hidden)


def peak(device: str) -> tuple[float, str]:
    """Return float32 operations a second at the device's best, and how we know; 0 where we do not."""
    if device == "cuda":
        name = torch.cuda.get_device_name()
        words = name.replace("-", " ").split()
        for known, rate in DATA_SHEETS.items():
            if known in words:
                return rate, f"{rate / 1e12:g} TFLOP/s, float32 outside of tensor cores, by the data sheet of {known}"
        return 0.0, f"no peak rate is known here for {name}"
    size, best = 1024, 0.0
    a, b = torch.ones(size, size), torch.ones(size, size)
    for _ in range(5):
        start = time.perf_counter()
        torch.mm(a, b)
        best = max(best, 2 * size**3 / (time.perf_counter() - start))
    return best, f"{best / 1e9:.0f} GFLOP/s, the best of five float32 matrix products of size {size} on all cores"
