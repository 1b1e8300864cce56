"""Random numbers by purpose: equal seeds give equal numbers, and different purposes are independent."""

from __future__ import annotations

import numpy as np


def generator(seed: int, stream: str) -> np.random.Generator:
    """Return the random numbers of one purpose (`stream`) under one seed."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, *stream.encode()])))
