"""Small data for the encoder's training, on any device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from headcount.models.encoder.spec import EncoderSpec, Readout
from headcount.training.encoder.stacked import Batch, PartName, RealTrain


class TinyFeed:
    """Gaussian tokens. "class": which of the classes' directions the first tokens show; "each": where the largest is.

    Augmentation is a number added by (seed, step); a poisoned seed gets one that is not finite from a step on.
    """

    inputs, train_size, validation_size = 4, 96, 40

    def __init__(
        self,
        readout: Readout,
        device: torch.device | str = "cpu",
        *,
        masked: bool = False,
        captured: bool = False,
        poison: tuple[int, int] | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.readout, self.captured, self.poison, self.device = readout, captured, poison, torch.device(device)
        self.length = tokens_in = 6
        self.tokens, self.outputs = (tokens_in + 1, 3) if readout == "class" else (tokens_in, 1)
        self.read: Tensor | None = None
        self._kept: dict[tuple[int, ...], tuple[Tensor, Tensor]] = {}
        rng = torch.Generator().manual_seed(5)
        X = torch.randn(136, tokens_in, self.inputs, generator=rng)
        self.mask = None
        y = X[:, 0, :3].argmax(1) if readout == "class" else X[:, :4, 0].argmax(1)
        if masked:
            self.mask = (torch.rand(136, tokens_in, generator=rng) < 0.7).to(device)
            self.mask[:, :4] = True
        self.X, self.y = X.to(device, dtype), y.to(device)

    def train(self, index: Tensor, step: int | Tensor, seeds: Sequence[int]) -> Batch:
        shift, bad = self._of_seeds(tuple(seeds))
        X = self.X[index] + shift * (step % 3)
        if self.poison is not None:
            late = step >= self.poison[1]
            X = torch.where(bad & late, torch.inf, X)
        return X, self.y[index], None if self.mask is None else self.mask[index]

    def _of_seeds(self, seeds: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """What depends on the seeds, brought to the device once: a captured step can bring nothing."""
        if seeds not in self._kept:
            bad = torch.tensor([self.poison is not None and seed == self.poison[0] for seed in seeds])
            shift = 0.01 * (torch.tensor(seeds) % 5)
            self._kept[seeds] = (
                shift.to(self.X)[:, None, None, None],
                bad.to(self.device)[:, None, None, None],
            )
        return self._kept[seeds]

    def part(self, name: PartName, first: int, count: int) -> Batch:
        start = first if name == "train" else self.train_size + first
        rows = slice(start, start + count)
        return self.X[rows], self.y[rows], None if self.mask is None else self.mask[rows]


def tiny_spec(feed: TinyFeed, **options: Any) -> EncoderSpec:
    """Return a small encoder that fits the feed."""
    sizes = {"inputs": feed.inputs, "tokens": feed.tokens, "outputs": feed.outputs, "readout": feed.readout}
    return EncoderSpec(**{"heads": 2, "head_dim": 4, "depth": 2, **sizes, **options})


def tiny_train(**options: Any) -> RealTrain:
    """Return short settings whose clip and decay bite."""
    settings = {"learning_rate": 3e-3, "warmup": 4, "steps": 24, "batch": 8, "clip": 0.5, "weight_decay": 0.3}
    return RealTrain(**{**settings, **options})
