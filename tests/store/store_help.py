"""What the tests of the store share: specs, arrays of many kinds, and when two sets of arrays are the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from headcount.store.store import Store

SPECS = [{"model": {"heads": heads}, "seed": seed} for heads in (1, 2) for seed in (0, 1)]
ORIGIN = {"commit": "abc", "seconds": 1.5}


def arrays(value: float = 0.0) -> dict[str, np.ndarray]:
    """Arrays of many kinds and shapes, one of them not dense."""
    return {
        "weight": np.arange(12, dtype=np.float32).reshape(3, 4).T + value,
        "step": np.asarray(7, np.int64),
        "none": np.zeros((0, 2)),
        "mask": np.array([True, False]),
        "half": np.array([value], np.float16),
    }


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    return a.keys() == b.keys() and all(
        a[name].dtype == b[name].dtype and a[name].shape == b[name].shape and (a[name] == b[name]).all() for name in a
    )


def checkpoint_files(store: Store) -> list[Path]:
    return sorted((store.folder / "checkpoints").iterdir())
