"""Random numbers by purpose: equal seeds give equal numbers, and different purposes are independent."""

from __future__ import annotations

from typing import Any

import numpy as np


def generator(seed: int, stream: str) -> np.random.Generator:
    """Return the random numbers of one purpose (`stream`) under one seed."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, *stream.encode()])))


def stream_key(seed: int, stream: str) -> int:
    """Return the start of one purpose's numbers under one seed, as a signed number of 64 bits."""
    state = np.random.SeedSequence([seed, *stream.encode()]).generate_state(1, np.uint64)
    return int(state.view(np.int64)[0])


def mixed(key: Any, counter: Any) -> Any:
    """Return splitmix64 at (key, counter): 64 even bits as a signed number.

    Any block of numbers may be asked for at any time, on any device: the arithmetic runs on NumPy's and torch's whole
    numbers, whose products wrap alike.
    """
    z = key + counter * -0x61C8864680B583EB  # 0x9E3779B97F4A7C15 as a signed number
    z = (z ^ ((z >> 30) & 0x3FFFFFFFF)) * -0x40A7B892E31B1A47  # >> keeps the sign: the mask drops it
    z = (z ^ ((z >> 27) & 0x1FFFFFFFFF)) * -0x6B2FB644ECCEEE15
    return z ^ ((z >> 31) & 0x1FFFFFFFF)


def below(z: Any, choices: Any) -> Any:
    """Turn 31 of the bits into a whole number from 0 to choices − 1."""
    return (((z >> 33) & 0x7FFFFFFF) * choices) >> 31
