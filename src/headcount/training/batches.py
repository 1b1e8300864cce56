"""Which sequences a step reads: a hash of seed, step and place only, so that all engines and resumed runs agree.

The hash is splitmix64 of (key of the seed, counter), so any block can be computed at any time, on any device and for
any number of trials at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Int64
from numpy.typing import NDArray
from torch import Tensor

from headcount.core import random_index, splitmix64, stream_key

FRESH_STEPS = 64  # steps that draw their batches from the same pool of fresh sequences


def stream_keys(seeds: Sequence[int], stream: str) -> NDArray[np.int64]:
    """Return key[seeds]: the start of each seed's random stream for one purpose."""
    return np.array([stream_key(seed, stream) for seed in seeds], np.int64)


def batch_indices(seed: int, first: int, count: int, batch: int, samples: int) -> NDArray[np.int64]:
    """Return index[count, batch] for steps first, …, first + count − 1 of one trial."""
    place = np.arange(1, count * batch + 1, dtype=np.int64).reshape(count, batch) + first * batch
    return random_index(splitmix64(stream_keys([seed], "batches")[0], place), samples)


def stacked_indices(
    key: Int64[Tensor, " models"], first: int, count: int, batch: int, samples: int | Int64[Tensor, "models 1"]
) -> Tensor:
    """Return index[count, models, batch] on the device of the keys: `batch_indices` of many trials.

    The number of samples may differ between trials.
    """
    place = torch.arange(1, count * batch + 1, device=key.device).reshape(count, 1, batch) + first * batch
    return random_index(splitmix64(key[:, None], place), samples)


def fresh_order(seed: int, pool: int, batch: int) -> NDArray[np.int64]:
    """Return order[steps, batch]: the order in which a trial reads a pool of fresh sequences, each sequence once."""
    place = np.arange(1, FRESH_STEPS * batch + 1, dtype=np.int64) + pool * FRESH_STEPS * batch
    order = np.argsort(splitmix64(stream_keys([seed], "fresh order")[0], place), kind="stable")
    return order.reshape(FRESH_STEPS, batch)


def stacked_fresh_order(key: Int64[Tensor, " models"], pool: int, batch: int) -> Tensor:
    """Return order[steps, models, batch]: `fresh_order` of many trials."""
    place = torch.arange(1, FRESH_STEPS * batch + 1, device=key.device) + pool * FRESH_STEPS * batch
    order = torch.argsort(splitmix64(key[:, None], place), dim=1, stable=True)
    return order.reshape(len(key), FRESH_STEPS, batch).transpose(0, 1)
