"""CIFAR-10: its public files, and images placed in larger frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.core import open_door

if TYPE_CHECKING:
    from headcount.datasets.cifar10.frames import PLACES as PLACES
    from headcount.datasets.cifar10.frames import Moments as Moments
    from headcount.datasets.cifar10.frames import moments as moments
    from headcount.datasets.cifar10.frames import patches as patches
    from headcount.datasets.cifar10.frames import place as place
    from headcount.datasets.cifar10.frames import random_offsets as random_offsets
    from headcount.datasets.cifar10.frames import tokens as tokens
    from headcount.datasets.cifar10.read import SIDE as SIDE
    from headcount.datasets.cifar10.read import Images as Images
    from headcount.datasets.cifar10.read import read_cifar as read_cifar

__getattr__, __dir__ = open_door(__name__)
