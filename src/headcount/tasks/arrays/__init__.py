"""Users' own data as tasks: arrays from files or memory, with ids and labels as one-hot vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headcount.core import open_door

if TYPE_CHECKING:
    from headcount.tasks.arrays.codes import Codes as Codes
    from headcount.tasks.arrays.codes import category_codes as category_codes
    from headcount.tasks.arrays.files import read_arrays as read_arrays
    from headcount.tasks.arrays.labels import VARY_TARGETS as VARY_TARGETS
    from headcount.tasks.arrays.labels import Kind as Kind
    from headcount.tasks.arrays.labels import check_kind as check_kind
    from headcount.tasks.arrays.labels import class_labels as class_labels
    from headcount.tasks.arrays.labels import one_hot as one_hot
    from headcount.tasks.arrays.task import ArrayTask as ArrayTask

__getattr__, __dir__ = open_door(__name__)
