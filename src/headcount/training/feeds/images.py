"""Images in frames as training batches: pixels are stored as bytes on the device; placement and patching run there.

In training an image is placed at a new random offset each time it is read, and mirrored half of the time; both depend
only on the trial's seed, the step and the place in the batch, so a trial sees the same frames whatever else is in the
stack. For evaluation each image has a fixed offset, drawn from the data's seed, and is not mirrored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor

from headcount.core import BadInput, random_index, splitmix64
from headcount.datasets.cifar10 import PLACES, SIDE, Images, Moments, moments, patches, place, random_offsets, tokens
from headcount.training.batches import stream_keys

_FIXED_PLACEMENT_STEP = 1 << 37  # step number that draws the fixed offsets: larger than any training step


@dataclass(frozen=True, eq=False)
class ImagesOnDevice:
    """The images on a device, shared by the feeds of all frame sizes."""

    train_pixels: UInt8[Tensor, "train 32 32 3"]
    train_labels: Int64[Tensor, " train"]
    test_pixels: UInt8[Tensor, "test 32 32 3"]
    test_labels: Int64[Tensor, " test"]
    classes: int
    channel_moments: Moments

    @staticmethod
    def of(images: Images, device: torch.device | str) -> ImagesOnDevice:
        """Copy the images to the device; the channels' mean and deviation are those of the training images."""
        for name, pixels in (("training", images.train_pixels), ("test", images.test_pixels)):
            if len(pixels) == 0:
                raise BadInput(f"{images.source}: no {name} images: both splits need at least one")
        train, test = images.train_pixels.to(device), images.test_pixels.to(device)
        measured = moments(images.train_pixels)
        channel_moments = Moments(measured.mean.to(device), measured.deviation.to(device))
        labels = images.train_labels.to(device), images.test_labels.to(device)
        return ImagesOnDevice(train, labels[0], test, labels[1], len(images.classes), channel_moments)


def frame_tokens(side: int, patch: int) -> int:
    """Return the number of tokens of a frame, including the class token; raise BadInput if it cannot be cut evenly."""
    if side < SIDE or patch < 1 or side % patch:
        raise BadInput(
            f"side {side} with patches of {patch}: a side must be at least {SIDE} and a multiple of the patch "
            f"(with patches of 4 use 32, 48, 64, 96 or 128)"
        )
    return tokens(side, patch) + 1


class ImageFeed:
    """Frames of one side, cut into patches of one size, for models that read a class token."""

    readout: Literal["class", "each"] = "class"
    read: Tensor | None = None
    captured = True  # after the first step nothing is copied from the host

    def __init__(
        self,
        images: ImagesOnDevice,
        side: int,
        *,
        patch: int = 4,
        data_seed: int = 0,
        flips: bool = True,
        moving: bool = True,
    ) -> None:
        """Take images on their device; without `moving`, training also shows each image only at its fixed offset."""
        self.length = self.tokens = frame_tokens(side, patch)
        self.images, self.side, self.patch, self.flips, self.moving = images, side, patch, flips, moving
        self.inputs, self.outputs = 3 * patch * patch, images.classes
        self.train_size, self.validation_size = len(images.train_labels), len(images.test_labels)
        self.device = images.train_pixels.device
        self._fixed_offsets = {
            name: random_offsets(count, side, seed=data_seed, step=_FIXED_PLACEMENT_STEP + n, device=self.device)
            for n, (name, count) in enumerate((("train", self.train_size), ("validation", self.validation_size)))
        }
        self._keys: dict[tuple[int, ...], Int64[Tensor, "3 models 1"]] = {}

    def train(
        self, index: Int64[Tensor, "models batch"], step: int | Tensor, seeds: Sequence[int]
    ) -> tuple[Float[Tensor, "models batch T inputs"], Int64[Tensor, "models batch"], None]:
        """Return frames and labels of one step; `step` may be a tensor on the device, as in a captured step."""
        models, batch = index.shape
        flat = index.reshape(-1)
        key = self._stream_keys(seeds)
        counter = torch.arange(1, batch + 1, device=self.device) + step * PLACES
        offsets_per_axis = self.side - SIDE + 1
        if self.moving:  # the same numbers as `random_offsets` and `random_flips`, for all seeds at once
            rows, columns = (random_index(splitmix64(key[n], counter), offsets_per_axis).reshape(-1) for n in (0, 1))
        else:
            rows, columns = (offsets[flat] for offsets in self._fixed_offsets["train"])
        flip = random_index(splitmix64(key[2], counter), 2).reshape(-1) == 1 if self.flips else None
        X = self._to_patches(self.images.train_pixels[flat], rows, columns, flip)
        return X.reshape(models, batch, *X.shape[1:]), self.images.train_labels[index], None

    def part(
        self, name: Literal["train", "validation"], first: int, count: int
    ) -> tuple[Float[Tensor, "b T inputs"], Int64[Tensor, " b"], None]:
        """Return images of one part at their fixed offsets."""
        chosen, images = slice(first, first + count), self.images
        train, test = (images.train_pixels, images.train_labels), (images.test_pixels, images.test_labels)
        pixels, labels = train if name == "train" else test
        rows, columns = (offsets[chosen] for offsets in self._fixed_offsets[name])
        return self._to_patches(pixels[chosen], rows, columns, None), labels[chosen], None

    def _to_patches(self, pixels: Tensor, rows: Tensor, columns: Tensor, flip: Tensor | None) -> Tensor:
        return patches(place(pixels, self.side, rows, columns, flip, by=self.images.channel_moments), self.patch)

    def _stream_keys(self, seeds: Sequence[int]) -> Tensor:
        """Return the seeds' stream keys, computed on the host the first time only: later steps stay on the device."""
        cache_key = tuple(seeds)
        if cache_key not in self._keys:
            streams = [torch.from_numpy(stream_keys(seeds, f"frame {name}")) for name in ("rows", "columns", "flips")]
            self._keys[cache_key] = torch.stack(streams)[:, :, None].to(self.device)
        return self._keys[cache_key]
