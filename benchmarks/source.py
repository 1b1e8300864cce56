"""A hash of the code behind a result, which formatting and moves do not change.

The hash covers definitions, not files. It starts from some entries (a function, a class or a whole module), follows the
names that they use through imports to their definitions, and continues from there. Every definition that is reached
counts with its own name and its syntax tree.

Ignored is everything that does not change what runs: positions, comments, docstrings, imports, `__all__`, the text of
errors, types of parameters, casts, and the names of modules, also in strings. `from a.b import c as d`, `d(1)` and
`import a.e as e`, `e.c(1)` count as equal. So files may be formatted, renamed, split or joined, as long as the imports
follow.

Calls that depend on the type of an object are not followed: a method counts if its class is named, in code or in an
annotation. A class that is only named in a registry of another module must be an entry itself.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

PACKAGE = "headcount"
UNCOUNTED_NAMES = ("errors", "files", "progress", "provenance", "origin", "source", "spec")
UNCOUNTED = tuple(
    f"{PACKAGE}.{room}.{name}" for room in ("core", "base") for name in UNCOUNTED_NAMES
)  # base: until it moved
"""Modules that do not affect any figure: errors, files, specs, progress, and the provenance of results."""
DOTTED = re.compile(rf"\b{PACKAGE}(?:\.\w+)+")
IGNORED_FIELDS = ("ctx", "kind", "type_comment")
"""Redundant fields of syntax trees."""
TYPE_FIELDS = ("annotation", "returns")
"""Fields of functions and their parameters that only a type checker reads."""
Place = tuple[str, str]
"""A module and a name in it."""


@dataclass
class _Module:
    """A parsed module: its imports, its definitions by name, and the statements that bind no name."""

    name: str
    package: str
    imports: dict[str, set[Place]] = field(default_factory=dict[str, set[Place]])
    definitions: dict[str, list[ast.stmt]] = field(default_factory=dict[str, list[ast.stmt]])
    loose: list[ast.stmt] = field(default_factory=list[ast.stmt])


class Source:
    """The modules of one state of the code, by their dotted names, and its data files."""

    def __init__(self, modules: Mapping[str, str], data: Mapping[str, str] | None = None) -> None:
        self.texts, self.data = modules, data or {}
        self._parsed: dict[str, _Module] = {}
        self._read: dict[Place, tuple[str, list[Place]]] = {}

    @classmethod
    def of_folders(cls, package: Path, scripts: Path) -> Source:
        """Read the package in one folder, and the scripts in another."""
        beside = {f"{scripts.name}/{name}": text for name, text in _texts(scripts, ".py").items()}
        return cls.of_files(_texts(package, ".py", ".toml", ".json"), beside)

    @classmethod
    def of_files(cls, package: Mapping[str, str], scripts: Mapping[str, str] | None = None) -> Source:
        """Take the texts of a package's files by their path in it, and of scripts by their path with its folder.

        In a folder without an `__init__.py`, scripts are modules by their bare names.
        """
        scripts = scripts or {}
        modules = {f"{PACKAGE}/{path}": text for path, text in package.items() if path.endswith(".py")}
        for path, text in scripts.items():
            packed = f"{path.split('/')[0]}/__init__.py" in scripts
            modules[path if packed else path.rpartition("/")[2]] = text
        texts = {_module_name(path): text for path, text in modules.items()}
        return cls(texts, {path: text for path, text in package.items() if not path.endswith(".py")})

    def definitions(self, entries: Sequence[str]) -> dict[str, str]:
        """Return all definitions that the entries reach, as digests by module and name; data files by their name.

        An entry is `room.module:name` or `room.module` of the package, `benchmarks.script:name`, or a data file
        `room/file.toml`; `!room.module` is not followed. A name that has moved is found in its new module, if only one
        module defines it.
        """
        found: dict[str, str] = {}
        places: list[Place] = []
        excluded = {*UNCOUNTED, *(f"{PACKAGE}.{entry[1:]}" for entry in entries if entry.startswith("!"))}
        for entry in entries:
            if entry.startswith("!"):
                continue
            if entry in self.data:
                found[entry] = _digest(Path(entry).name, _data(entry, self.data[entry]))
            else:
                places += self._entry(entry)
        seen: set[Place] = set()
        while places:
            place = places.pop()
            if place in seen or place[0] in excluded:
                continue
            seen.add(place)
            digest, used = self._definition(place)
            if digest:
                found[f"{place[0]}:{place[1]}"] = digest
            places += used
        return found

    def hash(self, entries: Sequence[str]) -> str:
        """Return the hash of all definitions that the entries reach, wherever they are."""
        return hashlib.sha256("\n".join(sorted(self.definitions(entries).values())).encode()).hexdigest()[:32]

    def _definition(self, place: Place) -> tuple[str, list[Place]]:
        """Return the digest of one definition, or of a module's statements without names, and what it uses."""
        if place not in self._read:
            name, module = place[1], self._module(place[0])
            statements = module.definitions.get(name, []) if name else module.loose
            text = "\n".join(self._text(module, statement) for statement in statements)
            used = [target for statement in statements for target in self._used(module, statement)]
            # whoever uses a name also runs its module
            self._read[place] = _digest(name, text) if text else "", [*used, *([(place[0], "")] if name else [])]
        return self._read[place]

    def _entry(self, entry: str) -> list[Place]:
        path, _, name = entry.partition(":")
        module = path if path in self.texts else f"{PACKAGE}.{path}"
        if not name and module in self.texts:
            return self._all_names(module)
        if module in self.texts and name in self._module(module).definitions:
            return [(module, name)]
        others = [other for other in self.texts if name and name in self._module(other).definitions]
        if len(others) != 1:
            raise LookupError(f"the source has no {entry!r}, and {len(others) or 'no'} modules define {name!r}")
        return [(others[0], name)]

    def _all_names(self, module: str) -> list[Place]:
        return [(module, name) for name in ("", *self._module(module).definitions)]

    def _module(self, name: str) -> _Module:
        if name not in self._parsed:
            self._parsed[name] = _parse(
                name, self.texts[name], is_package=any(n.startswith(f"{name}.") for n in self.texts)
            )
        return self._parsed[name]

    def resolve(self, module: _Module, name: str, visited: frozenset[Place] = frozenset()) -> list[Place]:
        """Return what a name in a module means: definitions, modules (with an empty name), or nothing of ours."""
        if name in module.definitions:
            return [(module.name, name)]
        if (module.name, name) in visited:  # a door that offers what is not there
            return []
        found: list[Place] = []
        for origin, imported in module.imports.get(name, ()):
            inner = f"{origin}.{imported}" if imported else origin
            if inner in self.texts:
                found.append((inner, ""))
            elif origin in self.texts:
                found += self.resolve(self._module(origin), imported, visited | {(module.name, name)})
        return found

    def _text(self, module: _Module, value: Any) -> str:
        """Return a syntax tree as text, without anything that a move, a formatter or a version of Python may change."""
        if isinstance(value, list):
            nodes = [node for node in cast("list[Any]", value) if not (isinstance(node, ast.stmt) and _is_silent(node))]
            return "[" + ",".join(self._text(module, node) for node in nodes) + "]"
        if isinstance(value, ast.Raise) and isinstance(value.exc, ast.Call):
            return f"Raise({self._text(module, value.exc.func)})"
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "cast":
            return self._text(module, value.args[1])
        if isinstance(value, ast.Attribute) and isinstance(value.value, ast.Name):
            places = self.resolve(module, value.value.id)
            if places and all(name == "" for _, name in places):
                return f"Name({value.attr})"
        if isinstance(value, ast.Name):
            places = self.resolve(module, value.id)
            return f"Name({places[0][1] if len(places) == 1 and places[0][1] else value.id})"
        if not isinstance(value, ast.AST):
            return repr(DOTTED.sub(PACKAGE, value) if isinstance(value, str) else value)
        typed = isinstance(value, ast.arg | ast.FunctionDef | ast.AsyncFunctionDef)
        ignored = (*IGNORED_FIELDS, *TYPE_FIELDS) if typed else IGNORED_FIELDS
        fields = ((name, getattr(value, name, None)) for name in value._fields if name not in ignored)
        inner = (f"{name}={self._text(module, one)}" for name, one in fields if one is not None and one != [])
        return f"{type(value).__name__}({','.join(inner)})"

    def _used(self, module: _Module, statement: ast.stmt) -> Iterator[Place]:
        """Yield what a statement names: definitions, attributes of modules, modules, and modules in strings."""
        taken: set[ast.AST] = set()
        for node in _walk(statement):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                for place in self.resolve(module, node.value.id):
                    if place[1] == "":
                        taken.add(node.value)
                        inner = self._module(place[0])
                        whole = f"{place[0]}.{node.attr}"
                        yield from self._all_names(whole) if whole in self.texts else self.resolve(inner, node.attr)
            if isinstance(node, ast.Name) and node not in taken:
                for place in self.resolve(module, node.id):
                    yield from [place] if place[1] else self._all_names(place[0])
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                for dotted in DOTTED.findall(node.value):
                    if dotted in self.texts and dotted != module.name:
                        yield from self._all_names(dotted)


def source_of(entries: Sequence[str], source: Source) -> dict[str, Any]:
    """Return what a result file records about its code: the entries, and the hash of everything that they reach."""
    return {"entries": list(entries), "hash": source.hash(entries)}


def _texts(folder: Path, *suffixes: str) -> dict[str, str]:
    """Return the texts of a folder's files with some suffixes, by their path in it."""
    paths = (path for path in sorted(folder.rglob("*.*")) if path.suffix in suffixes)
    kept = {path.relative_to(folder).as_posix(): path for path in paths if "__pycache__" not in path.parts}
    return {name: path.read_text(encoding="utf-8") for name, path in kept.items()}


def _module_name(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def _data(path: str, text: str) -> str:
    """Return a data file's values as text, without its formatting and comments."""
    return json.dumps(tomllib.loads(text) if path.endswith(".toml") else json.loads(text), sort_keys=True)


def _digest(name: str, content: str) -> str:
    return hashlib.sha256(f"{name}\n{content}".encode()).hexdigest()


@functools.lru_cache(maxsize=4096)  # different commits share most of their files
def _parse(name: str, text: str, *, is_package: bool) -> _Module:
    tree = ast.parse(text)
    module = _Module(name, name if is_package else name.rpartition(".")[0])
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound = (alias.asname, alias.name) if alias.asname else (alias.name.split(".")[0],) * 2
                module.imports.setdefault(bound[0], set()).add((bound[1], ""))
        elif isinstance(node, ast.ImportFrom):
            above = module.package.split(".")[: len(module.package.split(".")) - node.level + 1] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                module.imports.setdefault(alias.asname or alias.name, set()).add((origin, alias.name))
    for statement in tree.body:
        names = [name for name in _bound(statement) if name != "__all__"]
        for name in names:
            module.definitions.setdefault(name, []).append(statement)
        if not names and not _is_silent(statement):
            module.loose.append(statement)
    return module


def _bound(statement: ast.stmt) -> list[str]:
    """Return the names that a statement of a module binds, except by imports."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [statement.name]
    if isinstance(statement, ast.If | ast.Try | ast.With):
        inner = [node for node in ast.iter_child_nodes(statement) if isinstance(node, ast.stmt)]
        handlers = [node for one in getattr(statement, "handlers", []) for node in one.body]
        return list(dict.fromkeys(name for node in [*inner, *handlers] for name in _bound(node)))
    targets = [node for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    return list(dict.fromkeys(node.id for node in targets))


def _is_silent(statement: ast.stmt) -> bool:
    """Whether a statement without names is ignored: a docstring, imports, or the main guard of a script."""
    if isinstance(statement, ast.If) and ast.unparse(statement.test).endswith(("TYPE_CHECKING", "'__main__'")):
        return True
    text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    exports = isinstance(statement, ast.Assign | ast.AugAssign | ast.AnnAssign) and _bound(statement) == ["__all__"]
    return text or exports or isinstance(statement, ast.Import | ast.ImportFrom | ast.Pass)


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes except the text of errors; an attribute comes before the name that it belongs to."""
    yield node
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
        yield from _walk(node.exc.func)
        return
    for child in ast.iter_child_nodes(node):
        yield from _walk(child)
