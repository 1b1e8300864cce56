"""The arithmetic floor: the least time that training can take, at the device's full rate.

Per token, the forward pass takes d·N + 2·h·N multiply-adds: the hidden layer, and for every head its score and its part
of the pool. The backward pass takes twice as many: the gradients of the pool and of the scores (2·h·N for the hidden
layer, 2·h·N for the weights), the gradient of the first layer's weights (d·N), and the hidden layer once more (d·N),
because storing it would cost more. Work per sequence or per step is small in comparison and is left out.
"""

from __future__ import annotations

import time

import torch

from headcount.models.transformer import ModelSpec

PEAK_FLOPS = {"H200": 67e12, "H100": 67e12, "A100": 19.5e12, "L40S": 91.6e12, "L4": 30.3e12, "V100": 15.7e12}
"""Float32 operations per second without tensor cores, by the manufacturer's data sheets."""


def flop_per_token(spec: ModelSpec) -> int:
    """Return the floating-point operations per token of one training step: 2,304 for d = 4, N = 32, h = 4."""
    return 6 * (spec.dim * spec.hidden + 2 * spec.heads * spec.hidden)


def peak_rate(device: str) -> tuple[float, str]:
    """Return the device's peak in float32 operations per second (0 if not known), and where the number comes from."""
    if device == "cuda":
        name = torch.cuda.get_device_name()
        words = name.replace("-", " ").split()
        for known, rate in PEAK_FLOPS.items():
            if known in words:
                return rate, f"{rate / 1e12:g} TFLOP/s, float32 without tensor cores, by the data sheet of {known}"
        return 0.0, f"no peak rate is known for {name}"
    size, best = 1024, 0.0
    a, b = torch.ones(size, size), torch.ones(size, size)
    for _ in range(5):
        start = time.perf_counter()
        torch.mm(a, b)
        best = max(best, 2 * size**3 / (time.perf_counter() - start))
    return best, f"{best / 1e9:.0f} GFLOP/s, the best of five float32 matrix products of size {size} on all cores"
