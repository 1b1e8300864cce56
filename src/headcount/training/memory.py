"""Whether a trial fits into memory, checked before anything is allocated."""

from __future__ import annotations

import os
from pathlib import Path

from headcount.core import BadInput
from headcount.models.transformer import ModelSpec
from headcount.training.batches import FRESH_STEPS
from headcount.training.spec import TrainSpec


def count_weights(spec: ModelSpec) -> int:
    """Return the approximate number of weights of a model (leading terms: norms, gates and biases are small)."""
    E, h, n, K = spec.E, spec.heads, spec.head_dim, spec.N_ff
    encoder = spec.hidden * (spec.dim + E)
    inner = 3 * K * K if spec.feedforward == "relu5" else 0
    positions = spec.length * max(spec.hidden, E, h) if spec.positions != "none" else 0
    inner_outputs = (spec.depth - 1) * K * E
    return encoder + positions + spec.depth * (4 * h * n * E + K * E + inner) + inner_outputs + K * spec.out_dim


def free_bytes() -> int | None:
    """Return the memory available now (counting caches that can be dropped), or None if the system does not tell."""
    table = Path("/proc/meminfo")
    if table.exists():
        rows = (line.split() for line in table.read_text().splitlines())
        available = [int(row[1]) * 1024 for row in rows if row[0] == "MemAvailable:"]
        if available:
            return available[0]
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None


def check_memory(model: ModelSpec, train: TrainSpec) -> None:
    """Raise BadInput if a trial cannot fit into memory.

    Counted are weights, gradient and two moments; the data as drawn and as kept; the hidden layer of a batch.
    """
    size = 8 if train.dtype == "float64" else 4
    tokens = (train.train_size + train.validation_size) * model.length
    batch = train.batch * model.length * (model.hidden + model.E + 3 * model.heads * model.head_dim)
    if train.fresh:
        tokens += FRESH_STEPS * train.batch * model.length
    need = size * (4 * count_weights(model) + batch) + tokens * model.dim * (8 + size)
    free = free_bytes()
    if free is not None and need > free:
        raise BadInput(
            f"this needs about {need / 1e9:,.1f} GB of memory, but only {free / 1e9:,.1f} GB are free: "
            "choose fewer heads, a smaller width, hidden, length, batch or train_size"
        )
