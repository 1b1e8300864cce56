"""Frame batches against a slow twin that pads one image at a time; augmentation depends on seed, step and place."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from headcount.core.errors import BadInput
from headcount.datasets.cifar10.frames import random_flips, random_offsets
from headcount.training.feeds.images import ImageFeed, ImagesOnDevice
from real_tiny import pictures

INDEX = torch.tensor([[3, 0, 59, 3], [7, 7, 1, 30]])
SEEDS = (5, 2)


def slow(images, image: np.ndarray, side: int, patch: int, row: int, column: int, flip: bool) -> np.ndarray:
    """Return one frame by plain loops: mirror, pad with the edge, normalise, cut."""
    train = images.train_pixels.numpy().astype(np.float64).reshape(-1, 3)
    image = image[:, ::-1] if flip else image
    frame = np.pad(image, ((row, side - 32 - row), (column, side - 32 - column), (0, 0)), mode="edge")
    frame = ((frame - train.mean(0)) / train.std(0)).transpose(2, 0, 1)
    starts = range(0, side, patch)
    return np.array([frame[:, r : r + patch, c : c + patch].ravel() for r in starts for c in starts])


@pytest.mark.parametrize(("side", "patch"), [(32, 4), (48, 4), (64, 8)])
@pytest.mark.parametrize("flips", [True, False])
def test_training_frames(side, patch, flips):
    images = pictures()
    feed = ImageFeed(ImagesOnDevice.of(images, "cpu"), side, patch=patch, flips=flips)
    assert (feed.tokens, feed.length) == ((side // patch) ** 2 + 1,) * 2
    assert (feed.inputs, feed.outputs, feed.readout) == (3 * patch**2, 3, "class")
    X, y, mask = feed.train(INDEX, 11, SEEDS)
    assert mask is None
    assert X.dtype == torch.float32
    assert torch.equal(y, images.train_labels[INDEX])
    for m, seed in enumerate(SEEDS):
        rows, columns = random_offsets(4, side, seed=seed, step=11)
        mirrored = random_flips(4, seed=seed, step=11) if flips else torch.zeros(4, dtype=torch.bool)
        for b, i in enumerate(INDEX[m].tolist()):
            image = images.train_pixels[i].numpy()
            twin = slow(images, image, side, patch, int(rows[b]), int(columns[b]), bool(mirrored[b]))
            assert np.abs(X[m, b].numpy() - twin).max() < 1e-5


def test_frames_do_not_depend_on_other_trials():
    feed = ImageFeed(ImagesOnDevice.of(pictures(), "cpu"), 48)
    together = feed.train(INDEX, 4, SEEDS)[0]
    for m, seed in enumerate(SEEDS):
        assert torch.equal(feed.train(INDEX[m : m + 1], 4, [seed])[0][0], together[m])
    assert torch.equal(feed.train(INDEX, torch.tensor(4), SEEDS)[0], together), "a step counted on the device"
    assert not torch.equal(feed.train(INDEX, 5, SEEDS)[0], together)
    assert not torch.equal(feed.train(INDEX, 4, (5, 3))[0][1], together[1])
    again = ImageFeed(ImagesOnDevice.of(pictures(), "cpu"), 48).train(INDEX, 4, SEEDS)[0]
    assert torch.equal(again, together)


def test_evaluation_uses_fixed_offsets():
    images = pictures()
    device_images = ImagesOnDevice.of(images, "cpu")
    feed = ImageFeed(device_images, 64, data_seed=1)
    X, y, _ = feed.part("validation", 0, 30)
    assert torch.equal(y, images.test_labels)
    cut = torch.cat([feed.part("validation", first, 8)[0] for first in range(0, 30, 8)])
    assert torch.equal(cut, X), "in blocks, the last one shorter, as at once"
    assert not torch.equal(ImageFeed(device_images, 64, data_seed=2).part("validation", 0, 30)[0], X)
    frames = feed.part("train", 0, 60)[0]
    still = ImageFeed(device_images, 64, data_seed=1, flips=False, moving=False)
    assert torch.equal(still.train(INDEX, 9, SEEDS)[0], frames[INDEX]), "the fixed spots in training too"
    spots = [tuple(frame.abs().sum(1).topk(3).indices.tolist()) for frame in frames]
    assert len(set(spots)) > 30, "spots differ from image to image"


def test_pixels_stay_bytes():
    device_images = ImagesOnDevice.of(pictures(), "cpu")
    assert device_images.train_pixels.dtype == torch.uint8
    assert ImageFeed(device_images, 32).images is ImageFeed(device_images, 96).images


@pytest.mark.parametrize(("side", "patch"), [(31, 4), (0, 4), (16, 4), (46, 4), (33, 2), (32, 0)])
def test_bad_sides(side, patch):
    with pytest.raises(BadInput, match=r"a side must be at least 32 and a multiple of the patch") as caught:
        ImageFeed(ImagesOnDevice.of(pictures(), "cpu"), side, patch=patch)
    assert "\n" not in str(caught.value)


def test_an_empty_split():
    with pytest.raises(BadInput, match="no test images"):
        ImagesOnDevice.of(pictures(test=0), "cpu")
