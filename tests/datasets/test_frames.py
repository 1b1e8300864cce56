"""Frames and patches against NumPy's np.pad and loops, to the last bit; offsets against splitmix64 in whole numbers."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch

from headcount.core.errors import BadInput
from headcount.datasets.cifar10.frames import (
    channel_moments,
    cut_patches,
    normalise,
    patch_count,
    place_images,
    random_flips,
    random_offsets,
)
from headcount.datasets.cifar10.read import read_cifar
from support import REPO

REAL = REPO.parent / "shared" / "data" / "cifar10"
SIDES = {32: 64, 48: 144, 64: 256, 96: 576, 128: 1024}  # the paper's sides, and their patches of 4
DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")),
]


def some(count: int = 7) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(count).integers(0, 256, (count, 32, 32, 3), dtype=np.uint8))


def padded(pixels, side, rows, columns, flip=None) -> np.ndarray:
    """The slow twin of `place`: one image at a time."""
    frames = []
    for i, image in enumerate(pixels.cpu().numpy()):
        image = image[:, ::-1] if flip is not None and flip[i] else image
        up, left = int(rows[i]), int(columns[i])
        edges = ((up, side - 32 - up), (left, side - 32 - left), (0, 0))
        frames.append(np.pad(image, edges, mode="edge").transpose(2, 0, 1))
    return np.stack(frames).astype(np.float32)


def cut(frames: np.ndarray, size: int) -> np.ndarray:
    """The slow twin of `patches`."""
    found = [
        [frame[:, r : r + size, c : c + size].ravel() for r in range(0, side, size) for c in range(0, side, size)]
        for frame in frames
        for side in [frame.shape[1]]
    ]
    return np.array(found)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("side", [*SIDES, 33, 45])
@pytest.mark.parametrize("flipped", [False, True])
def test_place_is_padding_with_the_edge(side, flipped, device):
    pixels = some().to(device)
    rows, columns = random_offsets(7, side, seed=side, device=device)
    rows[:2], columns[:2] = torch.tensor([0, side - 32]), torch.tensor([side - 32, 0])  # the corners
    flip = random_flips(7, seed=side, device=device) if flipped else None
    frames = place_images(pixels, side, rows, columns, flip)
    assert frames.dtype == torch.float32
    assert frames.device.type == device
    assert frames.is_contiguous()
    assert np.array_equal(frames.cpu().numpy(), padded(pixels, side, rows, columns, flip))


def test_the_comparison_sees_a_shift_and_the_channels():
    pixels, side = some(), 48
    rows, columns = random_offsets(7, side, seed=1)
    frames = place_images(pixels, side, rows, columns).numpy()
    shifted = torch.where(rows > 0, rows - 1, rows + 1)
    flips = torch.arange(7) == 3
    for wrong in (
        padded(pixels, side, shifted, columns),
        padded(pixels, side, columns, rows),
        padded(pixels.flip(3), side, rows, columns),
        padded(pixels.transpose(1, 2), side, rows, columns),
        padded(pixels, side, rows, columns, flips),
        padded(pixels.roll(1, 0), side, rows, columns),
    ):
        assert wrong.shape == frames.shape
        assert not np.array_equal(frames, wrong)
    right = cut(frames, 4)
    assert np.array_equal(cut_patches(torch.from_numpy(frames), 4).numpy(), right)
    for wrong in (frames[:, ::-1], frames.transpose(0, 1, 3, 2), np.roll(frames, 1, axis=3)):
        assert not np.array_equal(cut(wrong, 4), right)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("side", SIDES)
def test_patches_are_cut_row_by_row(side, device):
    frames = torch.randn(2, 3, side, side, device=device)
    for size in (4, 8, 16, side):
        found = cut_patches(frames, size)
        assert found.shape == (2, patch_count(side, size), 3 * size * size)
        assert np.array_equal(found.cpu().numpy(), cut(frames.cpu().numpy(), size))
    assert patch_count(side, 4) == SIDES[side]


def splitmix(seed: int, stream: str, step: int, spot: int, choices: int) -> int:
    """The slow twin of one random number, in Python's whole numbers."""
    key = int(np.random.SeedSequence([seed, *f"frame {stream}".encode()]).generate_state(1, np.uint64)[0])
    z = (key + (step * 2**24 + spot + 1) * 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return (((z ^ (z >> 31)) >> 33) * choices) >> 31


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("seed", "step"), [(0, 0), (3, 0), (3, 1), (2**40, 10**9)])
def test_offsets_depend_on_seed_step_and_place_alone(seed, step, device):
    rows, columns = random_offsets(40, 128, seed=seed, step=step, device=device)
    assert rows.tolist() == [splitmix(seed, "rows", step, i, 97) for i in range(40)]
    assert columns.tolist() == [splitmix(seed, "columns", step, i, 97) for i in range(40)]
    flips = random_flips(40, seed=seed, step=step, device=device)
    assert flips.tolist() == [splitmix(seed, "flips", step, i, 2) == 1 for i in range(40)]
    part = random_offsets(15, 128, seed=seed, step=step, first=25, device=device)
    assert torch.equal(part[0], rows[25:])
    assert torch.equal(part[1], columns[25:])
    for other in ({"seed": seed + 1, "step": step}, {"seed": seed, "step": step + 1}):
        assert not torch.equal(random_offsets(40, 128, **other)[0], rows.cpu())
    assert random_offsets(5, 32, seed=seed)[0].tolist() == [0] * 5


def test_all_spots_are_alike():
    rows, columns = random_offsets(97 * 1000, 128, seed=5)
    for offsets in (rows, columns):
        counts = offsets.bincount(minlength=97).double()
        assert len(counts) == 97
        assert ((counts - 1000) ** 2 / 1000).sum() < 154  # the 1 − 1e-4 quantile of χ² with 96 degrees
    assert abs(torch.corrcoef(torch.stack([rows, columns]).double())[0, 1]) < 0.015
    assert abs(random_flips(100_000, seed=5).double().mean() - 0.5) < 0.008


def test_normalise_brings_the_training_images_to_mean_0_and_deviation_1():
    pixels = some(50)
    pixels[..., 1] //= 3
    by = channel_moments(pixels)
    assert torch.allclose(by.mean.double(), pixels.double().mean((0, 1, 2)), rtol=1e-6)
    assert torch.allclose(by.deviation.double(), pixels.double().std((0, 1, 2), correction=0), rtol=1e-6)
    zero = torch.zeros(50, dtype=torch.int64)
    frames = normalise(place_images(pixels, 32, zero, zero), by)
    assert torch.allclose(frames.mean((0, 2, 3)), torch.zeros(3), atol=1e-5)
    assert torch.allclose(frames.std((0, 2, 3)), torch.ones(3), atol=1e-4)
    rows, columns = random_offsets(50, 64, seed=1)
    early = place_images(pixels, 64, rows, columns, by=by)
    assert torch.equal(early, normalise(place_images(pixels, 64, rows, columns), by))
    assert not torch.equal(early, place_images(pixels, 64, rows, columns))


ZERO = torch.zeros(7, dtype=torch.int64)
BAD = {
    "side": (lambda: place_images(some(), 31, ZERO, ZERO), "side of a frame must be at least 32, not 31"),
    "side of offsets": (lambda: random_offsets(3, 8, seed=0), "at least 32, not 8"),
    "floats": (lambda: place_images(some().float(), 32, ZERO, ZERO), "pixels must be bytes.images, 32, 32, 3., not"),
    "channels first": (
        lambda: place_images(some().permute(0, 3, 1, 2), 32, ZERO, ZERO),
        r"not torch.uint8.7, 3, 32, 32.",
    ),
    "few rows": (lambda: place_images(some(), 32, ZERO[:3], ZERO), r"rows must be int64.7., not torch.int64.3."),
    "short columns": (
        lambda: place_images(some(), 32, ZERO, ZERO.int()),
        "columns must be int64.7., not torch.int32.7.",
    ),
    "out to the right": (
        lambda: place_images(some(), 48, ZERO, ZERO + 17),
        "columns must lie between 0 and 16 .* side 48",
    ),
    "out at the top": (lambda: place_images(some(), 48, ZERO - 1, ZERO), "rows must lie between 0 and 16"),
    "patch": (lambda: cut_patches(torch.zeros(1, 3, 32, 32), 5), "side 32 cannot be cut into patches of 5: .* divide"),
    "no patch": (lambda: cut_patches(torch.zeros(1, 3, 32, 32), 0), "cannot be cut into patches of 0"),
    "tokens": (lambda: patch_count(50, 4), "side 50 cannot be cut into patches of 4"),
    "oblong": (lambda: cut_patches(torch.zeros(1, 3, 32, 36), 4), r"frames must be .* not of shape .1, 3, 32, 36."),
    "channels last": (lambda: cut_patches(torch.zeros(1, 32, 32, 3), 4), r"not of shape .1, 32, 32, 3."),
    "seed": (lambda: random_offsets(3, 48, seed=-1), "must be at least 0.*seed=-1"),
    "step": (lambda: random_flips(3, seed=1, step=2**38), "step below 2.38; got"),
    "too many": (lambda: random_flips(3, seed=1, first=2**24), "at most 16777216"),
    "constant": (
        lambda: channel_moments(torch.zeros(2, 32, 32, 3, dtype=torch.uint8)),
        "a channel is the same in all images",
    ),
    "no images": (lambda: channel_moments(some()[:0]), "or there are no images"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_done_is_refused_with_one_line(case):
    make, pattern = BAD[case]
    with pytest.raises(BadInput, match=pattern) as caught:
        make()
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(not REAL.is_dir(), reason="the real images, ../shared/data/cifar10, are not on this machine")
def test_the_real_images_are_counted_placed_and_cut():
    start = time.process_time()
    images = read_cifar(REAL)
    assert time.process_time() - start < 20  # about 5 seconds of one core
    assert images.train_pixels.shape == (25_000, 32, 32, 3)
    assert images.test_pixels.shape == (5_000, 32, 32, 3)
    assert images.train_labels.bincount().tolist() == [2_500] * 10
    assert images.test_labels.bincount().tolist() == [500] * 10
    assert (images.classes[0], images.classes[9]) == ("airplane", "truck")
    by = channel_moments(images.train_pixels)
    assert torch.allclose(by.mean / 255, torch.tensor([0.4914, 0.4822, 0.4465]), atol=0.005)  # as everybody finds
    assert torch.allclose(by.deviation / 255, torch.tensor([0.247, 0.243, 0.262]), atol=0.005)
    frames = place_images(images.test_pixels[:32], 128, *random_offsets(32, 128, seed=0), by=by)
    assert cut_patches(frames, 4).shape == (32, 1024, 48)
