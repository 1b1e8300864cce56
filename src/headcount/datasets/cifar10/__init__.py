"""CIFAR-10: its public files, and images placed in larger frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.core import open_door

if TYPE_CHECKING:
    from headcount.datasets.cifar10.frames import MAX_IMAGES_PER_STEP as MAX_IMAGES_PER_STEP
    from headcount.datasets.cifar10.frames import ChannelMoments as ChannelMoments
    from headcount.datasets.cifar10.frames import channel_moments as channel_moments
    from headcount.datasets.cifar10.frames import cut_patches as cut_patches
    from headcount.datasets.cifar10.frames import patch_count as patch_count
    from headcount.datasets.cifar10.frames import place_images as place_images
    from headcount.datasets.cifar10.frames import random_offsets as random_offsets
    from headcount.datasets.cifar10.read import IMAGE_SIDE as IMAGE_SIDE
    from headcount.datasets.cifar10.read import Images as Images
    from headcount.datasets.cifar10.read import read_cifar as read_cifar

__getattr__, __dir__ = open_door(__name__)
