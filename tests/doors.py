"""Who imports what, through the doors: the graph of modules that the rules of the house are checked on."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "headcount"
LISTED = re.compile(r"^(?:    )?from (headcount[\w.]*) import \(?\s*(\w+)(?: as (\w+))?", re.M)
"""What a door lists, and what the one of `core` imports at once."""


@dataclass(frozen=True)
class Import:
    """One name that a module imports from the package."""

    line: int
    module: str
    """The module that it is imported from."""
    name: str
    """The name, or nothing where the module itself is imported."""
    typing: bool
    """Whether it stands below `if TYPE_CHECKING`."""


class Modules:
    """The modules of the package by dotted name, their imports, and what each door lists.

    Modules of a folder `beside` the package are named after that folder; they use the package and are no part of it.
    """

    def __init__(self, root: Path, beside: Path | None = None) -> None:
        paths = {path: [PACKAGE, *path.relative_to(root).with_suffix("").parts] for path in sorted(root.rglob("*.py"))}
        if beside is not None:
            paths |= {
                path: path.relative_to(beside.parent).with_suffix("").parts for path in sorted(beside.rglob("*.py"))
            }
        self.paths = {".".join(parts).removesuffix(".__init__"): path for path, parts in paths.items()}
        self.packages = {name for name, path in self.paths.items() if path.name == "__init__.py"}
        texts = {name: path.read_text(encoding="utf-8") for name, path in self.paths.items()}
        self.doors = {name: _listed(texts[name]) for name in self.packages}
        self.imports = {name: list(self._imports(name, ast.parse(text))) for name, text in texts.items()}

    def _imports(self, module: str, tree: ast.Module) -> Iterator[Import]:
        package = module.split(".") if module in self.packages else module.split(".")[:-1]
        typing = {
            id(inner)
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
            for inner in ast.walk(node)
        }
        for node in ast.walk(tree):
            found: list[tuple[str, str]] = []
            if isinstance(node, ast.Import):
                found = [(alias.name, "") for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                above = package[: len(package) - node.level + 1] if node.level else []
                origin = ".".join([*above, *([node.module] if node.module else [])])
                found = [(origin, alias.name) for alias in node.names]
            elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
                called = getattr(node.func, "attr", getattr(node.func, "id", ""))
                found = [(str(node.args[0].value), "")] if called in ("import_module", "__import__") else []
            for origin, name in found:
                if origin.split(".")[0] == PACKAGE:
                    yield Import(getattr(node, "lineno", 0), origin, name, id(node) in typing)

    def home(self, module: str, name: str) -> str:
        """Return the module that an import loads in the end: through doors, to where the name is made."""
        seen: set[tuple[str, str]] = set()
        while name:
            inner = f"{module}.{name}"
            if inner in self.paths:
                return inner
            if (module, name) in seen or name not in self.doors.get(module, {}):
                break
            seen.add((module, name))
            module, name = self.doors[module][name]
        return module

    def edges(self) -> dict[str, set[str]]:
        """Return what each module needs of the package when it runs, lazy imports included; doors need nothing."""
        return {
            module: {self.home(one.module, one.name) for one in found if not one.typing} - {module}
            for module, found in self.imports.items()
        }


def _listed(text: str) -> dict[str, tuple[str, str]]:
    return {offered or name: (module, name) for module, name, offered in LISTED.findall(text)}


def room_of(module: str) -> str:
    """Return the room of a module: the folder below the package, or the one beside it; the front door is a room too."""
    parts = module.split(".")
    if parts[0] != PACKAGE:
        return f"{parts[0]} beside the package"
    return parts[1] if len(parts) > 1 else ""


def past_doors(modules: Modules) -> list[str]:
    """Return imports that reach past another room's door: inner modules, and names that the door does not list."""
    problems: list[str] = []
    for module, found in modules.imports.items():
        for one in found:
            own = ("api", "views", room_of(module)) if module.startswith(PACKAGE) else ()
            if room_of(one.module) in ("", *own) or room_of(module) == "__main__":
                continue
            package, _, name = one.module.rpartition(".")
            if not one.name and name in modules.doors.get(package, {}):
                continue
            if one.module not in modules.packages:
                problems.append(f"{module}:{one.line}: {one.module} is inside of a room: import from its package")
            elif one.name not in modules.doors[one.module]:
                problems.append(f"{module}:{one.line}: {one.module} does not offer {one.name or 'itself'}")
    return problems


def unused_offers(modules: Modules, documented: Iterable[tuple[str, str]] = ()) -> list[str]:
    """Return what doors list and neither another room, a module beside the package nor a document imports."""
    used = {
        (one.module, one.name)
        for module, found in modules.imports.items()
        for one in found
        if room_of(module) != room_of(one.module)
    } | set(documented)
    return [
        f"{door}: {name}"
        for door, names in modules.doors.items()
        if door != PACKAGE
        for name, (module, _) in names.items()
        if name != "open_door" and (door, name) not in used and room_of(module) == room_of(door)
    ]


_BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


def imported_by_documents(texts: Iterable[str]) -> set[tuple[str, str]]:
    """Return what the Python blocks of documents import from the package: module and name."""
    found: set[tuple[str, str]] = set()
    for block in (block for text in texts for block in _BLOCK.findall(text)):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(f"{PACKAGE}."):
                found |= {(node.module, one.name) for one in node.names}
            if isinstance(node, ast.Import):
                found |= {(one.name, "") for one in node.names if one.name.startswith(f"{PACKAGE}.")}
    return found


def cycles(edges: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that import each other, in one way or another (Tarjan's algorithm)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(edges.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            group: list[str] = []
            while not group or group[-1] != node:
                group.append(stack.pop())
            if len(group) > 1:
                found.append(sorted(group))

    for node in edges:
        if node not in index:
            visit(node)
    return found
