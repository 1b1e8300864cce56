"""Tasks, the functions to be approximated: expressions, the generalized D-retrieval class and its families, arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.core import open_door

if TYPE_CHECKING:
    from headcount.tasks.controls import MeanTask as MeanTask
    from headcount.tasks.families import FAMILIES as FAMILIES
    from headcount.tasks.families import family as family
    from headcount.tasks.families import make_task as make_task
    from headcount.tasks.retrieval import GeneralizedRetrieval as GeneralizedRetrieval
    from headcount.tasks.sampling import Box as Box
    from headcount.tasks.sampling import ClippedGaussian as ClippedGaussian
    from headcount.tasks.sampling import Gaussian as Gaussian
    from headcount.tasks.sampling import Marked as Marked
    from headcount.tasks.sampling import Sphere as Sphere
    from headcount.tasks.sampling import Uniform as Uniform
    from headcount.tasks.serial import parse_task as parse_task
    from headcount.tasks.serial import read_task_file as read_task_file
    from headcount.tasks.serial import saved_task as saved_task
    from headcount.tasks.serial import sized_family as sized_family
    from headcount.tasks.sets import index_sets as index_sets
    from headcount.tasks.sets import min_set_size as min_set_size
    from headcount.tasks.task import Task as Task
    from headcount.tasks.task import check_task as check_task

__getattr__, __dir__ = open_door(__name__)
