"""Random numbers by seed and purpose: equal ones give equal numbers, different purposes are independent."""

from __future__ import annotations

from typing import Any

import numpy as np


def generator(seed: int, stream: str) -> np.random.Generator:
    """Return a generator of the random numbers of one purpose (`stream`) under one seed."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, *stream.encode()])))


def stream_key(seed: int, stream: str) -> int:
    """Return the key of one purpose's numbers under one seed, for `splitmix64`: a signed 64-bit number."""
    state = np.random.SeedSequence([seed, *stream.encode()]).generate_state(1, np.uint64)
    return int(state.view(np.int64)[0])


def splitmix64(key: Any, counter: Any) -> Any:
    """Return splitmix64 at (key, counter): 64 uniform bits as a signed number.

    Any block of numbers can be computed at any time, on any device: the arithmetic runs on NumPy and torch integers,
    whose products wrap alike.
    """
    z = key + counter * -0x61C8864680B583EB  # 0x9E3779B97F4A7C15 as a signed number
    z = (z ^ ((z >> 30) & 0x3FFFFFFFF)) * -0x40A7B892E31B1A47  # >> keeps the sign: the mask drops it
    z = (z ^ ((z >> 27) & 0x1FFFFFFFFF)) * -0x6B2FB644ECCEEE15
    return z ^ ((z >> 31) & 0x1FFFFFFFF)


def random_index(bits: Any, choices: Any) -> Any:
    """Return a whole number from 0 to choices − 1, from 31 of the random bits."""
    return (((bits >> 33) & 0x7FFFFFFF) * choices) >> 31
