"""Doors of packages: the names that others may import from one, each loaded from its module on first use.

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
    """Return the names that the text of a door offers, each with its module and its name there."""
    return {offered: (module, name) for module, name, offered in _LISTED.findall(text)}


def open_door(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package, from the imports in its own text."""
    names: dict[str, tuple[str, str]] = {}

    def load_names() -> dict[str, tuple[str, str]]:
        if not names:
            loader: Any = getattr(sys.modules[package].__spec__, "loader", None)
            names.update(listed(loader.get_source(package)))
        return names

    def get_attribute(name: str) -> Any:
        if name == "__all__":
            return sorted(load_names())
        if name.startswith("__") or name not in load_names():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, inner = names[name]
        if module == package:  # a module of the package itself
            return import_module(f"{package}.{inner}")
        return getattr(import_module(module), inner)

    return get_attribute, lambda: sorted(load_names())
