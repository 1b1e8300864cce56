"""Images at random spots of a larger frame, cut into patches: the same numbers on every device.

The paper varies the length T by the frame, not by the image: an image of 32 × 32 lies somewhere in a frame of side
32 to 128, and its border pixels are extended to fill it. Sides 32, 48, 64, 96 and 128 in patches of 4 give 64, 144,
256, 576 and 1024 tokens, and with the class token the paper's 65 to 1025.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int64, UInt8
from torch import Tensor

from headcount.core import BadInput, random_index, splitmix64, stream_key

PLACES = 1 << 24  # the largest number of images a step may place: the counter has its low bits for them
_IMAGE = 32


class Moments(NamedTuple):
    """The mean and the deviation of each channel, in units of pixel values from 0 to 255."""

    mean: Float[Tensor, " channels"]
    deviation: Float[Tensor, " channels"]


def place(
    pixels: UInt8[Tensor, "b 32 32 3"],
    side: int,
    rows: Int64[Tensor, " b"],
    columns: Int64[Tensor, " b"],
    flip: Bool[Tensor, " b"] | None = None,
    by: Moments | None = None,
) -> Float[Tensor, "b 3 side side"]:
    """Put image i with its upper left corner at (rows[i], columns[i]), extend its border, and mirror it if flip[i].

    Values stay between 0 and 255, or are normalised with `by`: the same numbers as `normalise` gives on the frames,
    for the work of the small images. Offsets lie between 0 and side − 32; they are checked on the CPU only,
    because on a GPU the check would stop the queue (one out of range moves the image out of the frame, no more).
    """
    room = _room(side)
    if pixels.dtype != torch.uint8 or pixels.shape[1:] != (_IMAGE, _IMAGE, 3):
        raise BadInput(f"pixels must be bytes[images, 32, 32, 3], not {pixels.dtype}{list(pixels.shape)}")
    for name, offsets in (("rows", rows), ("columns", columns)):
        if offsets.dtype != torch.int64 or offsets.shape != pixels.shape[:1]:
            raise BadInput(f"{name} must be int64[{len(pixels)}], not {offsets.dtype}{list(offsets.shape)}")
        if offsets.device.type == "cpu" and ((offsets < 0) | (offsets >= room)).any():
            raise BadInput(f"{name} must lie between 0 and {room - 1} for frames of side {side}")
    spot = torch.arange(side, device=pixels.device)
    down = (spot - rows[:, None]).clamp(0, _IMAGE - 1)  # [b, side]: the row of the image that a row of the frame shows
    across = (spot - columns[:, None]).clamp(0, _IMAGE - 1)
    if flip is not None:
        across = torch.where(flip[:, None], _IMAGE - 1 - across, across)
    planes = pixels.permute(0, 3, 1, 2).float()  # [b, 3, 32, 32]: turned while it is small
    planes = planes if by is None else normalise(planes, by)
    wide = planes.gather(3, across[:, None, None, :].expand(-1, 3, _IMAGE, -1))  # [b, 3, 32, side]
    plane = torch.arange(len(pixels) * 3, device=pixels.device).reshape(-1, 3, 1)
    whole_rows = (plane * _IMAGE + down[:, None, :]).reshape(-1)  # a row at a time copies faster than a second gather
    return wide.reshape(-1, side).index_select(0, whole_rows).reshape(-1, 3, side, side)


def random_offsets(
    count: int, side: int, *, seed: int, step: int = 0, first: int = 0, device: torch.device | str = "cpu"
) -> tuple[Int64[Tensor, " count"], Int64[Tensor, " count"]]:
    """Return rows and columns for the places first, …, first + count − 1 of one step, all spots alike.

    They depend on seed, step and place alone: not on the device, nor on how a step is cut into blocks.
    """
    rows, columns = (_below(_room(side), stream, count, seed, step, first, device) for stream in ("rows", "columns"))
    return rows, columns


def random_flips(
    count: int, *, seed: int, step: int = 0, first: int = 0, device: torch.device | str = "cpu"
) -> Bool[Tensor, " count"]:
    """Return for each place whether its image is mirrored, one time in two; reproducible as `random_offsets` is."""
    return _below(2, "flips", count, seed, step, first, device) == 1


def moments(pixels: UInt8[Tensor, "n 32 32 3"]) -> Moments:
    """Return the channels' moments over all images, from exact counts of the 256 values, so the same everywhere."""
    counts = torch.stack([torch.bincount(pixels[..., c].reshape(-1), minlength=256) for c in range(3)]).double().cpu()
    values = torch.arange(256, dtype=torch.float64)
    total = counts.sum(1)
    mean = (counts * values).sum(1) / total
    deviation = ((counts * (values - mean[:, None]) ** 2).sum(1) / total).sqrt()
    if not (deviation > 0).all():
        raise BadInput("a channel is the same in all images, or there are no images: they cannot be normalised")
    return Moments(mean.float().to(pixels.device), deviation.float().to(pixels.device))


def normalise(frames: Float[Tensor, "b 3 h w"], by: Moments) -> Float[Tensor, "b 3 h w"]:
    """Bring each channel to mean 0 and deviation 1, as measured on the training images."""
    return (frames - by.mean[:, None, None]) / by.deviation[:, None, None]


def tokens(side: int, size: int) -> int:
    """Return how many patches of this size a frame has, the class token not among them."""
    if size < 1 or side < 1 or side % size:
        raise BadInput(f"a frame of side {side} cannot be cut into patches of {size}: the size must divide the side")
    return (side // size) ** 2


def patches(frames: Float[Tensor, "b 3 side side"], size: int) -> Float[Tensor, "b T 3*size*size"]:
    """Cut frames into patches, row by row; in a token the channel comes first, then the row, then the column."""
    if frames.ndim != 4 or frames.shape[1] != 3 or frames.shape[2] != frames.shape[3]:
        raise BadInput(f"frames must be frames[images, 3, side, side], not of shape {list(frames.shape)}")
    batch, _, side, _ = frames.shape
    T, across = tokens(side, size), side // size
    cut = frames.reshape(batch, 3, across, size, across, size)
    return cut.permute(0, 2, 4, 1, 3, 5).reshape(batch, T, 3 * size * size)


def _room(side: int) -> int:
    """Return in how many ways an image fits into the frame along one side."""
    if side < _IMAGE:
        raise BadInput(f"the side of a frame must be at least {_IMAGE}, not {side}")
    return side - _IMAGE + 1


def _below(
    choices: int, stream: str, count: int, seed: int, step: int, first: int, device: torch.device | str
) -> Int64[Tensor, " count"]:
    """Return whole numbers from 0 to choices − 1 by (key of seed and stream, counter of step and place)."""
    if min(count, seed, step, first) < 0 or first + count > PLACES or step >= 1 << 38:
        raise BadInput(
            f"count, seed, step and first must be at least 0, first + count at most {PLACES} and step below 2^38; "
            f"got count={count}, seed={seed}, step={step}, first={first}"
        )
    counter = torch.arange(first + 1, first + count + 1, device=device) + step * PLACES
    return random_index(splitmix64(stream_key(seed, f"frame {stream}"), counter), choices)
