"""What the tests of the store share: specs, arrays of many kinds, and when two sets of arrays are the same."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import numpy as np

from headcount.store.store import Store

SPECS = [{"model": {"heads": heads}, "seed": seed} for heads in (1, 2) for seed in (0, 1)]
ORIGIN = {"commit": "abc", "seconds": 1.5}
SWEEP = """
name = "small"
heads = [1, 2]
seeds = 3
[task]
family = "min-plus-max"
length = 3
[model]
head_dim = 2
hidden = 4
[train]
steps = 40
warmup = 4
batch = 8
train_size = 40
validation_size = 20
evaluations = 2
"""


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


def to_version_1(folder: Path) -> Path:
    """Turn a closed store into what headcount wrote before rows had checksums."""
    with contextlib.closing(sqlite3.connect(folder / "trials.sqlite", isolation_level=None)) as db:
        db.executescript(
            "BEGIN; DROP TABLE seals; DROP TABLE run_seals; DELETE FROM meta WHERE key <> 'schema_version'; "
            "UPDATE meta SET value = '1'; COMMIT; VACUUM"
        )
    (folder / "trials.commits").unlink()
    (folder / ".checkpoints.clean").unlink(missing_ok=True)
    return folder
