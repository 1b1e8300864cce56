"""exp and the normal distribution for the CPU kernels: vectorised in float32, from the C library in float64.

numba from pip has no vector library, so `math.exp` on float32 is one call per number. The float32 versions below are
plain arithmetic that LLVM vectorises, ten times as fast; comments state their errors. float64, the precision in which
the kernels are tested, uses the C library's functions.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

F = np.float32
SQRT_HALF = math.sqrt(0.5)
DENSITY = 1.0 / math.sqrt(2.0 * math.pi)


def exp(x: float) -> float:
    """Return e^x; in float32 it is 0 below −87, where e^x would be subnormal."""
    return math.exp(x)


@overload(exp)
def _exp(x: Any) -> Any:
    def double(x: Any) -> Any:
        return math.exp(x)

    def single(x: Any) -> Any:
        # Cephes: x = n·ln 2 + r with ln 2 in two parts, a polynomial in r, 2^n by its bits; relative error 8e-8
        small = x < F(-87.0)
        x = max(min(x, F(88.0)), F(-87.0))
        n = F(np.floor(x * F(1.4426950408889634) + F(0.5)))
        r = x - n * F(0.693359375)
        r = r - n * F(-2.12194440e-4)
        p = F(1.9875691500e-4)
        p = p * r + F(1.3981999507e-3)
        p = p * r + F(8.3334519073e-3)
        p = p * r + F(4.1665795894e-2)
        p = p * r + F(1.6666665459e-1)
        p = p * r + F(5.0000001201e-1)
        p = p * r * r + r + F(1.0)
        p = p * np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)
        return F(0.0) if small else p

    return single if x == types.float32 else double


def normal(x: float) -> tuple[float, float]:
    """Return Φ(x) and φ(x) of the standard normal distribution: GELU is x·Φ(x), its slope Φ(x) + x·φ(x)."""
    return 0.5 * math.erfc(-x * SQRT_HALF), math.exp(-0.5 * x * x) * DENSITY


@overload(normal)
def _normal(x: Any) -> Any:
    def double(x: Any) -> Any:
        return 0.5 * math.erfc(-x * SQRT_HALF), math.exp(-0.5 * x * x) * DENSITY

    def single(x: Any) -> Any:
        # erfc(z) = e^(−z²)·t·P(t) with t = 1/(1 + z/2) and P fitted for minimum relative error, 2e-7, so that the tail
        # of Φ keeps its digits; Φ and φ share one exponential
        z = abs(x) * F(0.7071067811865476)
        e = exp(-z * z)
        t = F(1.0) / (F(1.0) + F(0.5) * z)
        p = F(-0.05936366234)
        p = p * t + F(0.2860133299)
        p = p * t - F(0.4901786637)
        p = p * t + F(0.2814745705)
        p = p * t - F(0.02897175936)
        p = p * t + F(0.2036784703)
        p = p * t + F(0.2428536033)
        p = p * t + F(0.2824095962)
        p = p * t + F(0.2820844713)
        tail = F(0.5) * p * t * e
        return (F(1.0) - tail if x > F(0.0) else tail), e * F(0.3989422804014327)

    return single if x == types.float32 else double
