"""Constructions are computed in doubles: where the numbers of a task leave their range, one line says so."""

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
    """Refuse a task where floats overflow. NumPy gives an infinity, which no proof accepts: no warning of it."""

    @functools.wraps(make)
    def made(task: Task, *args: P.args, **options: P.kwargs) -> R:
        try:
            with np.errstate(all="ignore"):
                return make(task, *args, **options)
        except ArithmeticError:
            raise BadInput(f"{task.name} cannot be built: its numbers leave the range of doubles: scale it") from None

    return made
