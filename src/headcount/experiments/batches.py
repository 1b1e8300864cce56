"""Which sequences a step reads: a function of seed and step alone, so that every engine and every resume agree."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headcount.base.random import generator

BLOCK = 64  # steps whose indices are drawn together


def batch_indices(seed: int, first: int, count: int, batch: int, samples: int) -> NDArray[np.int64]:
    """Return index[count, batch] for the steps first, …, first + count − 1."""
    blocks = range(first // BLOCK, (first + count - 1) // BLOCK + 1)
    drawn = [generator(seed, f"batches {block}").integers(samples, size=(BLOCK, batch)) for block in blocks]
    start = first - blocks[0] * BLOCK
    return np.concatenate(drawn)[start : start + count]
