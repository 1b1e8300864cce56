"""The walks of docs/trial.md: which functions a document names in order, and which ones a command calls.

A walk is a table under a heading whose rows name a file and a function of it: | `sweeps/run.py` | `run` | … |.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Sequence
from inspect import CO_OPTIMIZED
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import headcount

ROOT = Path(headcount.__file__).parent
Step = tuple[str, str]
"""A file below the package's folder, and the qualified name of a function in it."""
_ROW = re.compile(r"\| *`([\w/]+\.py)` *\| *`([\w.]+)`")


def walks(text: str) -> dict[str, list[Step]]:
    """Return the steps below each heading of a document that has any."""
    found: dict[str, list[Step]] = {}
    heading = ""
    for line in text.splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        elif match := _ROW.match(line):
            found.setdefault(heading, []).append((match[1], match[2]))
    return found


class Calls:
    """The functions of the package that are called, in this thread and those that it starts, by their first call."""

    def __init__(self) -> None:
        self._first: dict[Any, None] = {}

    def __enter__(self) -> Calls:
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_flags & CO_OPTIMIZED:  # not the body of a class or module
            self._first.setdefault(frame.f_code)

    def steps(self) -> list[Step]:
        """Return them in order."""
        inside = [code for code in self._first if Path(code.co_filename).is_relative_to(ROOT)]
        return [(str(Path(code.co_filename).relative_to(ROOT)), code.co_qualname) for code in inside]


def problems(walk: Sequence[Step], called: Sequence[Step]) -> list[str]:
    """Say which steps were not called, or not after the one before them."""
    place = {step: number for number, step in reversed(list(enumerate(called)))}
    found = [f"{file}: {name} is not called" for file, name in walk if (file, name) not in place]
    there = [step for step in walk if step in place]
    for one, other in pairwise(there):
        if place[one] > place[other]:
            found.append(f"{other[0]}: {other[1]} is called before {one[1]}")
    return found


def calls_of(action: Callable[[], object]) -> list[Step]:
    """Return what an action calls."""
    with Calls() as calls:
        action()
    return calls.steps()
