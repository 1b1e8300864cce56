"""Images at random positions in a larger frame, cut into patches: the same numbers on every device.

The paper varies the length T by the size of the frame, not of the image: an image of 32 × 32 pixels lies somewhere in
a frame of side 32 to 128, and its border pixels are repeated to fill the frame. Sides 32, 48, 64, 96 and 128 in
patches of 4 give 64, 144, 256, 576 and 1024 tokens; with the class token these are the paper's 65 to 1025.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int64, UInt8
from torch import Tensor

from headcount.core import BadInput, random_index, splitmix64, stream_key

MAX_IMAGES_PER_STEP = 1 << 24  # images that a step may place: the low bits of the random counter number them
_IMAGE_SIDE = 32


class ChannelMoments(NamedTuple):
    """The mean and the standard deviation of each channel, in pixel values from 0 to 255."""

    mean: Float[Tensor, " channels"]
    deviation: Float[Tensor, " channels"]


def place_images(
    pixels: UInt8[Tensor, "b 32 32 3"],
    side: int,
    rows: Int64[Tensor, " b"],
    columns: Int64[Tensor, " b"],
    flip: Bool[Tensor, " b"] | None = None,
    by: ChannelMoments | None = None,
) -> Float[Tensor, "b 3 side side"]:
    """Return frames with image i at the offset (rows[i], columns[i]), its border repeated, mirrored if flip[i].

    Values stay between 0 and 255, or are normalised with `by`: the result is that of `normalise` on the frames, but
    the work is done on the smaller images. Offsets lie between 0 and side − 32. They are checked on the CPU only: on a
    GPU the check would stall the queue, and an offset out of range merely moves the image out of the frame.
    """
    count = _offset_count(side)
    if pixels.dtype != torch.uint8 or pixels.shape[1:] != (_IMAGE_SIDE, _IMAGE_SIDE, 3):
        raise BadInput(f"pixels must be bytes[images, 32, 32, 3], not {pixels.dtype}{list(pixels.shape)}")
    for name, offsets in (("rows", rows), ("columns", columns)):
        if offsets.dtype != torch.int64 or offsets.shape != pixels.shape[:1]:
            raise BadInput(f"{name} must be int64[{len(pixels)}], not {offsets.dtype}{list(offsets.shape)}")
        if offsets.device.type == "cpu" and ((offsets < 0) | (offsets >= count)).any():
            raise BadInput(f"{name} must lie between 0 and {count - 1} for frames of side {side}")
    pixel = torch.arange(side, device=pixels.device)
    down = (pixel - rows[:, None]).clamp(0, _IMAGE_SIDE - 1)  # [b, side]: the image row shown in each frame row
    across = (pixel - columns[:, None]).clamp(0, _IMAGE_SIDE - 1)
    if flip is not None:
        across = torch.where(flip[:, None], _IMAGE_SIDE - 1 - across, across)
    planes = pixels.permute(0, 3, 1, 2).float()  # [b, 3, 32, 32]: permuted before it grows
    planes = planes if by is None else normalise(planes, by)
    wide = planes.gather(3, across[:, None, None, :].expand(-1, 3, _IMAGE_SIDE, -1))  # [b, 3, 32, side]
    plane = torch.arange(len(pixels) * 3, device=pixels.device).reshape(-1, 3, 1)
    # copying whole rows is faster than a second gather
    whole_rows = (plane * _IMAGE_SIDE + down[:, None, :]).reshape(-1)
    return wide.reshape(-1, side).index_select(0, whole_rows).reshape(-1, 3, side, side)


def random_offsets(
    count: int, side: int, *, seed: int, step: int = 0, first: int = 0, device: torch.device | str = "cpu"
) -> tuple[Int64[Tensor, " count"], Int64[Tensor, " count"]]:
    """Return uniformly random row and column offsets for the images first, …, first + count − 1 of one step.

    They depend on the seed, the step and the image's number only, not on the device or on how a step is split.
    """
    rows, columns = (
        _random_below(_offset_count(side), stream, count, seed, step, first, device) for stream in ("rows", "columns")
    )
    return rows, columns


def random_flips(
    count: int, *, seed: int, step: int = 0, first: int = 0, device: torch.device | str = "cpu"
) -> Bool[Tensor, " count"]:
    """Return which images are mirrored, each with probability 1/2; as reproducible as `random_offsets`."""
    return _random_below(2, "flips", count, seed, step, first, device) == 1


def channel_moments(pixels: UInt8[Tensor, "n 32 32 3"]) -> ChannelMoments:
    """Return mean and deviation of each channel over all images, from exact counts: the same on every device."""
    counts = torch.stack([torch.bincount(pixels[..., c].reshape(-1), minlength=256) for c in range(3)]).double().cpu()
    values = torch.arange(256, dtype=torch.float64)
    total = counts.sum(1)
    mean = (counts * values).sum(1) / total
    deviation = ((counts * (values - mean[:, None]) ** 2).sum(1) / total).sqrt()
    if not (deviation > 0).all():
        raise BadInput("a channel is the same in all images, or there are no images: they cannot be normalised")
    return ChannelMoments(mean.float().to(pixels.device), deviation.float().to(pixels.device))


def normalise(frames: Float[Tensor, "b 3 h w"], by: ChannelMoments) -> Float[Tensor, "b 3 h w"]:
    """Return frames scaled by these moments; those of the training images give mean 0 and deviation 1."""
    return (frames - by.mean[:, None, None]) / by.deviation[:, None, None]


def patch_count(side: int, size: int) -> int:
    """Return how many patches of `size` × `size` pixels a frame has; the class token is not counted."""
    if size < 1 or side < 1 or side % size:
        raise BadInput(f"a frame of side {side} cannot be cut into patches of {size}: the size must divide the side")
    return (side // size) ** 2


def cut_patches(frames: Float[Tensor, "b 3 side side"], size: int) -> Float[Tensor, "b T 3*size*size"]:
    """Return frames cut into patches, row by row; a token lists channel by channel, and each channel row by row."""
    if frames.ndim != 4 or frames.shape[1] != 3 or frames.shape[2] != frames.shape[3]:
        raise BadInput(f"frames must be frames[images, 3, side, side], not of shape {list(frames.shape)}")
    batch, _, side, _ = frames.shape
    T, across = patch_count(side, size), side // size
    cut = frames.reshape(batch, 3, across, size, across, size)
    return cut.permute(0, 2, 4, 1, 3, 5).reshape(batch, T, 3 * size * size)


def _offset_count(side: int) -> int:
    """Return the number of possible offsets of an image along one side of a frame."""
    if side < _IMAGE_SIDE:
        raise BadInput(f"the side of a frame must be at least {_IMAGE_SIDE}, not {side}")
    return side - _IMAGE_SIDE + 1


def _random_below(
    choices: int, stream: str, count: int, seed: int, step: int, first: int, device: torch.device | str
) -> Int64[Tensor, " count"]:
    """Return random whole numbers from 0 to choices − 1: the key is seed and stream, the counter step and image."""
    if min(count, seed, step, first) < 0 or first + count > MAX_IMAGES_PER_STEP or step >= 1 << 38:
        raise BadInput(
            f"count, seed, step and first must be at least 0, first + count at most {MAX_IMAGES_PER_STEP} and step "
            f"below 2^38; got count={count}, seed={seed}, step={step}, first={first}"
        )
    counter = torch.arange(first + 1, first + count + 1, device=device) + step * MAX_IMAGES_PER_STEP
    return random_index(splitmix64(stream_key(seed, f"frame {stream}"), counter), choices)
