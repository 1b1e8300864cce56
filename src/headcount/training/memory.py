"""Whether a trial fits into memory: counted before anything is allocated."""

from __future__ import annotations

import os
from pathlib import Path

from headcount.core import BadInput
from headcount.models.transformer import ModelSpec
from headcount.training.batches import FRESH_STEPS
from headcount.training.spec import TrainSpec


def weights(spec: ModelSpec) -> int:
    """Count the weights of a model by its sizes (the leading terms; norms, gates and biases are small beside them)."""
    E, h, n, K = spec.E, spec.heads, spec.head_dim, spec.N_ff
    encoder = spec.hidden * (spec.dim + E)
    inner = 3 * K * K if spec.feedforward == "relu5" else 0
    positions = spec.length * max(spec.hidden, E, h) if spec.positions != "none" else 0
    inside = (spec.depth - 1) * K * E
    return encoder + positions + spec.depth * (4 * h * n * E + K * E + inner) + inside + K * spec.out_dim


def free_bytes() -> int | None:
    """Return the memory that can be had now, caches given up, or None where the system does not say."""
    table = Path("/proc/meminfo")
    if table.exists():
        rows = (line.split() for line in table.read_text().splitlines())
        found = [int(row[1]) * 1024 for row in rows if row[0] == "MemAvailable:"]
        if found:
            return found[0]
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None


def check_memory(model: ModelSpec, train: TrainSpec) -> None:
    """Refuse what cannot fit: weights, gradient and two moments; data as drawn and as kept; a batch's hidden layer."""
    size = 8 if train.dtype == "float64" else 4
    tokens = (train.train_size + train.validation_size) * model.length
    batch = train.batch * model.length * (model.hidden + model.E + 3 * model.heads * model.head_dim)
    if train.fresh:
        tokens += FRESH_STEPS * train.batch * model.length
    need = size * (4 * weights(model) + batch) + tokens * model.dim * (8 + size)
    free = free_bytes()
    if free is not None and need > free:
        raise BadInput(
            f"this needs about {need / 1e9:,.1f} GB and {free / 1e9:,.1f} GB are free: "
            "choose fewer heads, a smaller width, hidden, length, batch or train_size"
        )
