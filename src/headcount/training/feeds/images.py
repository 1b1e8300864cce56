"""Images in frames as batches for training: pixels stay bytes on the device, placement and patching run there.

In training an image lies at a new random spot each time it is read, and is mirrored one time in two; both depend on
the trial's seed, the step and the place in the batch alone, so that a trial sees the same frames whoever stands beside
it in the stack. For evaluation each image has one fixed spot, drawn from the data's seed, and is not mirrored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor

from headcount.core import BadInput, below, mixed
from headcount.datasets.cifar10 import PLACES, SIDE, Images, Moments, moments, patches, place, random_offsets, tokens
from headcount.training.batches import keys

_FIXED = 1 << 37  # the step that stands for the fixed placement: beyond all steps of a training


@dataclass(frozen=True, eq=False)
class Shelf:
    """The images on a device, which the feeds of all sides share."""

    train_pixels: UInt8[Tensor, "train 32 32 3"]
    train_labels: Int64[Tensor, " train"]
    test_pixels: UInt8[Tensor, "test 32 32 3"]
    test_labels: Int64[Tensor, " test"]
    classes: int
    by: Moments

    @staticmethod
    def of(images: Images, device: torch.device | str) -> Shelf:
        """Copy the images to the device, and measure the channels on the training images."""
        for name, pixels in (("training", images.train_pixels), ("test", images.test_pixels)):
            if len(pixels) == 0:
                raise BadInput(f"{images.source}: there are no {name} images: both splits need at least one")
        train, test = images.train_pixels.to(device), images.test_pixels.to(device)
        measured = moments(images.train_pixels)
        by = Moments(measured.mean.to(device), measured.deviation.to(device))
        labels = images.train_labels.to(device), images.test_labels.to(device)
        return Shelf(train, labels[0], test, labels[1], len(images.classes), by)


def frame_tokens(side: int, patch: int) -> int:
    """Return how many tokens a frame has, the class token among them; a frame that cannot be cut is refused."""
    if side < SIDE or patch < 1 or side % patch:
        raise BadInput(
            f"side {side} with patches of {patch}: a side is at least {SIDE} and a multiple of the patch; "
            f"with patches of 4 take 32, 48, 64, 96 or 128"
        )
    return tokens(side, patch) + 1


class ImageFeed:
    """Frames of one side, cut into patches of one size, for models that read a class token."""

    readout: Literal["class", "each"] = "class"
    read: Tensor | None = None
    captured = True  # from the second step on nothing comes from the host

    def __init__(
        self, shelf: Shelf, side: int, *, patch: int = 4, data_seed: int = 0, flips: bool = True, moving: bool = True
    ) -> None:
        """Take images on their device; without `moving` training too shows each image at its fixed spot only."""
        self.length = self.tokens = frame_tokens(side, patch)
        self.shelf, self.side, self.patch, self.flips, self.moving = shelf, side, patch, flips, moving
        self.inputs, self.outputs = 3 * patch * patch, shelf.classes
        self.train_size, self.validation_size = len(shelf.train_labels), len(shelf.test_labels)
        self.device = shelf.train_pixels.device
        self._fixed = {
            name: random_offsets(count, side, seed=data_seed, step=_FIXED + n, device=self.device)
            for n, (name, count) in enumerate((("train", self.train_size), ("validation", self.validation_size)))
        }
        self._keys: dict[tuple[int, ...], Int64[Tensor, "3 models 1"]] = {}

    def train(
        self, index: Int64[Tensor, "models batch"], step: int | Tensor, seeds: Sequence[int]
    ) -> tuple[Float[Tensor, "models batch T inputs"], Int64[Tensor, "models batch"], None]:
        """Return frames and labels of one step; `step` may be a number on the device, as in a captured step."""
        models, batch = index.shape
        flat = index.reshape(-1)
        key = self._stream_keys(seeds)
        counter = torch.arange(1, batch + 1, device=self.device) + step * PLACES
        room = self.side - SIDE + 1
        if self.moving:  # the numbers of `random_offsets` and `random_flips`, for all seeds at once
            rows, columns = (below(mixed(key[n], counter), room).reshape(-1) for n in (0, 1))
        else:
            rows, columns = (offsets[flat] for offsets in self._fixed["train"])
        flip = below(mixed(key[2], counter), 2).reshape(-1) == 1 if self.flips else None
        X = self._patched(self.shelf.train_pixels[flat], rows, columns, flip)
        return X.reshape(models, batch, *X.shape[1:]), self.shelf.train_labels[index], None

    def part(
        self, name: Literal["train", "validation"], first: int, count: int
    ) -> tuple[Float[Tensor, "b T inputs"], Int64[Tensor, " b"], None]:
        """Return images of one part at their fixed spots."""
        some, shelf = slice(first, first + count), self.shelf
        known, unseen = (shelf.train_pixels, shelf.train_labels), (shelf.test_pixels, shelf.test_labels)
        pixels, labels = known if name == "train" else unseen
        rows, columns = (offsets[some] for offsets in self._fixed[name])
        return self._patched(pixels[some], rows, columns, None), labels[some], None

    def _patched(self, pixels: Tensor, rows: Tensor, columns: Tensor, flip: Tensor | None) -> Tensor:
        return patches(place(pixels, self.side, rows, columns, flip, by=self.shelf.by), self.patch)

    def _stream_keys(self, seeds: Sequence[int]) -> Tensor:
        """Return the keys of the seeds' numbers, made once on the host: later steps stay on the device."""
        wanted = tuple(seeds)
        if wanted not in self._keys:
            made = [torch.from_numpy(keys(wanted, f"frame {name}")) for name in ("rows", "columns", "flips")]
            self._keys[wanted] = torch.stack(made)[:, :, None].to(self.device)
        return self._keys[wanted]
