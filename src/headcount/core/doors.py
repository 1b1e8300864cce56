"""The door of a package: the names that others may import from it, each loaded from its module on first use.

A door is the `__init__` of a room, or of a folder in a room. It lists its names once, as imports for type checkers:

    if TYPE_CHECKING:
        from headcount.tasks.families import make_task as make_task

    __getattr__, __dir__ = open_door(__name__)

So `from headcount.tasks import make_task` loads `families.py` and nothing else, and a package costs nothing until one
of its names is used. `tests/test_house.py` keeps rooms from reaching past each other's doors.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

_LISTED = re.compile(r"^    from ([\w.]+) import \(?\s*(\w+) as (\w+)", re.M)


def listed(text: str) -> dict[str, tuple[str, str]]:
    """Return what the text of a door lists: the name that it offers, its module, and its name there."""
    return {offered: (module, name) for module, name, offered in _LISTED.findall(text)}


def open_door(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package, from what its own text lists."""
    names: dict[str, tuple[str, str]] = {}

    def read() -> dict[str, tuple[str, str]]:
        if not names:
            loader: Any = getattr(sys.modules[package].__spec__, "loader", None)
            names.update(listed(loader.get_source(package)))
        return names

    def find(name: str) -> Any:
        if name == "__all__":
            return sorted(read())
        if name.startswith("__") or name not in read():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, inner = names[name]
        if module == package:  # one of its own modules, offered as such
            return import_module(f"{package}.{inner}")
        return getattr(import_module(module), inner)

    return find, lambda: sorted(read())
