"""A decorator for constructions, which are computed in doubles: report a task whose numbers leave their range."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

import numpy as np

from headcount.core import BadInput
from headcount.tasks import Task

P = ParamSpec("P")
R = TypeVar("R")


def in_range_of_doubles(make: Callable[Concatenate[Task, P], R]) -> Callable[Concatenate[Task, P], R]:
    """Reject a task for which doubles overflow; NumPy's infinities need no warning, as no proof accepts them."""

    @functools.wraps(make)
    def wrapper(task: Task, *args: P.args, **options: P.kwargs) -> R:
        try:
            with np.errstate(all="ignore"):
                return make(task, *args, **options)
        except ArithmeticError:
            raise BadInput(
                f"{task.name} cannot be built: its numbers leave the range of doubles (scale the task)"
            ) from None

    return wrapper
