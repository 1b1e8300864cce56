"""Which sequences a step reads: a hash of seed, step and place alone, so that every engine and every resume agree.

splitmix64 of (key of the seed, counter): any block may be asked for at any time, on any device, for any number of
trials at once. The arithmetic is written once and runs on NumPy's and torch's whole numbers, whose products wrap
alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64
from numpy.typing import NDArray
from torch import Tensor

FRESH_STEPS = 64  # steps that share a pool of fresh sequences


def keys(seeds: Sequence[int], stream: str) -> NDArray[np.int64]:
    """Return key[seeds], the start of each seed's numbers for one purpose."""
    states = [np.random.SeedSequence([seed, *stream.encode()]).generate_state(1, np.uint64) for seed in seeds]
    return np.concatenate(states).view(np.int64)


def _mixed(key: Any, counter: Any) -> Any:
    """Return splitmix64 at (key, counter): 64 even bits as a signed number."""
    z = key + counter * -0x61C8864680B583EB  # 0x9E3779B97F4A7C15 as a signed number
    z = (z ^ ((z >> 30) & 0x3FFFFFFFF)) * -0x40A7B892E31B1A47  # >> keeps the sign: the mask drops it
    z = (z ^ ((z >> 27) & 0x1FFFFFFFFF)) * -0x6B2FB644ECCEEE15
    return z ^ ((z >> 31) & 0x1FFFFFFFF)


def _below(z: Any, samples: int) -> Any:
    """Turn 31 of the bits into a whole number from 0 to samples − 1."""
    return (((z >> 33) & 0x7FFFFFFF) * samples) >> 31


def batch_indices(seed: int, first: int, count: int, batch: int, samples: int) -> NDArray[np.int64]:
    """Return index[count, batch] for the steps first, …, first + count − 1 of one trial."""
    place = np.arange(1, count * batch + 1, dtype=np.int64).reshape(count, batch) + first * batch
    return _below(_mixed(keys([seed], "batches")[0], place), samples)


def stacked_indices(key: Int64[Tensor, " models"], first: int, count: int, batch: int, samples: int) -> Tensor:
    """Return index[count, models, batch] on the device of the keys: the same numbers for many trials."""
    place = torch.arange(1, count * batch + 1, device=key.device).reshape(count, 1, batch) + first * batch
    return _below(_mixed(key[:, None], place), samples)


def fresh_order(seed: int, pool: int, batch: int) -> NDArray[np.int64]:
    """Return order[steps, batch]: in which order a trial reads the pool-th set of fresh sequences, each once."""
    place = np.arange(1, FRESH_STEPS * batch + 1, dtype=np.int64) + pool * FRESH_STEPS * batch
    order = np.argsort(_mixed(keys([seed], "fresh order")[0], place), kind="stable")
    return order.reshape(FRESH_STEPS, batch)


def stacked_fresh_order(key: Int64[Tensor, " models"], pool: int, batch: int) -> Tensor:
    """Return order[steps, models, batch], the same for many trials."""
    place = torch.arange(1, FRESH_STEPS * batch + 1, device=key.device) + pool * FRESH_STEPS * batch
    order = torch.argsort(_mixed(key[:, None], place), dim=1, stable=True)
    return order.reshape(len(key), FRESH_STEPS, batch).transpose(0, 1)
