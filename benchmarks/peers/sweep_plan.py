"""The trials of the benchmark's sweep."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from headcount.models.transformer import ModelSpec
from headcount.training import TrainSpec

Errors = dict[tuple[int, int], list[float | None]]
"""Final validation NMSE of every seed by (heads, length); None if a trial diverged."""


@dataclass(frozen=True)
class BenchSweep:
    """The trials to train."""

    train: TrainSpec
    heads: tuple[int, ...] = (1, 2, 3, 4, 5)
    lengths: tuple[int, ...] = (8, 16, 32, 64, 128)
    seeds: int = 16
    hidden: int = 32

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """(heads, length) of every shape, long ones first."""
        return [(h, T) for T in sorted(self.lengths, reverse=True) for h in sorted(self.heads, reverse=True)]

    @property
    def parts(self) -> list[range]:
        """The steps between two evaluations."""
        every = math.ceil(self.train.steps / self.train.evaluations)
        return [range(first, min(first + every, self.train.steps)) for first in range(0, self.train.steps, every)]

    @property
    def programs(self) -> int:
        """How many programs a shape needs in JAX: one, or two if the last part is shorter."""
        return len({len(part) for part in self.parts})

    def model(self, heads: int, length: int) -> ModelSpec:
        """Return the model of one shape: n = 8, E = 8·h."""
        return ModelSpec(dim=4, length=length, heads=heads, head_dim=8, hidden=self.hidden)

    def description(self) -> str:
        """Return the trials in words."""
        t = self.train
        seeds = f"{self.seeds} seed{'s' if self.seeds > 1 else ''}"
        return (
            f"sum of four maxima: heads {_list(self.heads)} × T {_list(self.lengths)} × {seeds}, {t.steps:,} steps of "
            f"batch {t.batch}, {t.train_size:,} training and {t.validation_size:,} validation sequences"
        )


def _list(values: Sequence[int]) -> str:
    return ", ".join(map(str, values))
