"""The rules of the house: which room may import which (docs/house.md), small files, a light front door."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest

from documents import document_paths
from doors import Modules, cycles, imported_by_documents, past_doors, room_of, unused_offers
from support import tracked_files

PACKAGE = "headcount"
HEAVY = ("torch", "matplotlib", "scipy", "flint", "numpy", "jinja2")

# -- which room may import which ----------------------------------------------------------------------------


def house_table(text: str) -> tuple[dict[str, set[str]], set[str]]:
    """Read the table of docs/house.md: what each room may import, and the rooms to come."""
    rules: dict[str, set[str]] = {}
    to_come: set[str] = set()
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        names = re.findall(r"`([\w.]+?)/?`", cells[0])
        if not line.startswith("|") or len(cells) != 3 or not names:
            continue
        allowed = {"*"} if cells[2] == "everything" else set(re.findall(r"`([\w.]+)`", cells[2]))
        if not allowed and cells[2] != "–":
            raise ValueError(f"docs/house.md: {names[0]}: cannot read {cells[2]!r}")
        for name in names:
            rules[name] = allowed
        if "to come" in cells[0]:
            to_come.update(names)
    return rules, to_come


def import_problems(root: Path, rules: dict[str, set[str]]) -> list[str]:
    """Check every file below the package's folder against the table."""
    problems: list[str] = []
    modules = Modules(root)
    for module, found in modules.imports.items():
        where = modules.paths[module].relative_to(root)
        room = where.parts[0]
        if room not in rules:
            problems.append(f"{where}: {room} is not in the table of docs/house.md")
            continue
        allowed = rules[room] | {room}
        for one in found:
            name = f"{one.module}.{one.name}".strip(".").removeprefix(PACKAGE).strip(".")
            if "*" in allowed or any(name == a or name.startswith(f"{a}.") for a in allowed):
                continue
            what = f"{PACKAGE}.{name}" if name else PACKAGE
            problems.append(f"{where}:{one.line}: {room} may not import {what}")
    return problems


@pytest.fixture(scope="module")
def source(repo: Path) -> Path:
    return repo / "src" / PACKAGE


@pytest.fixture(scope="module")
def table(repo: Path) -> tuple[dict[str, set[str]], set[str]]:
    return house_table((repo / "docs/house.md").read_text(encoding="utf-8"))


def test_rooms_import_only_what_the_house_allows(source, table):
    assert import_problems(source, table[0]) == []


def test_the_table_names_the_rooms_that_exist(source, table):
    rules, to_come = table
    rooms = {name for name in rules if not name.endswith(".py")}
    folders = {p.name for p in source.iterdir() if p.is_dir() and p.name != "__pycache__"}
    assert rooms - to_come == folders, "docs/house.md and src/ disagree; a room that exists is not 'to come'"
    assert {part.split(".")[0] for allowed in rules.values() for part in allowed} <= rooms | {"*"}


FORBIDDEN = {
    "plain": ("core/a.py", "import headcount.tasks.expressions.tree"),
    "from": ("store/a.py", "from headcount.training.loop import train"),
    "from the package": ("models/a.py", "from headcount import tasks"),
    "relative": ("analysis/a.py", "from ..training import loop"),
    "inside a function": ("tasks/a.py", "def f():\n    from headcount.models import spec"),
    "for type checkers": ("models/a.py", "if TYPE_CHECKING:\n    from headcount.tasks.task import Task"),
    "by string": ("theory/a.py", "import importlib\nimportlib.import_module('headcount.sweeps')"),
    "the front door": ("render/a.py", "import headcount as hc"),
    "a part of a room": ("recheck/a.py", "from headcount.tasks.families import family"),
    "a longer name": ("recheck/a.py", "import headcount.tasks.expressions_more"),
    "an unknown room": ("attic/a.py", "x = 1"),
}


@pytest.mark.parametrize("case", FORBIDDEN)
def test_a_forbidden_import_is_reported(case, table, tmp_path):
    name, text = FORBIDDEN[case]
    path = tmp_path / PACKAGE / name
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert len(import_problems(tmp_path / PACKAGE, table[0])) == 1


def test_allowed_imports_pass(table, tmp_path):
    root = tmp_path / PACKAGE
    for name, text in {
        "recheck/a.py": "from headcount.core import BadInput\nfrom headcount.tasks.expressions import in_balls",
        "sweeps/a.py": "from .b import x\nfrom ..store import records\nimport headcount.models, torch",
        "cli/main.py": "import headcount\nfrom headcount.sweeps import plan",
        "__init__.py": "import importlib\nimportlib.import_module('headcount.sweeps')",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    assert import_problems(root, table[0]) == []


@pytest.fixture(scope="module")
def modules(source) -> Modules:
    return Modules(source)


def test_rooms_and_benchmarks_talk_through_their_doors(repo, source):
    """A package's `__init__` names what others may use; nobody imports another room's inner modules."""
    modules = Modules(source, repo / "benchmarks")
    assert {"benchmarks.speed", "benchmarks.peers.run"} <= modules.paths.keys()
    assert past_doors(modules) == []
    documented = imported_by_documents(path.read_text(encoding="utf-8") for path in document_paths(repo))
    past = [f"{module}: {name}" for module, name in documented if name not in modules.doors.get(module, {})]
    assert past == [], "a document imports what no door offers"
    assert ("headcount.theory.density", "Approximant") in documented
    assert unused_offers(modules, documented) == [], "a door offers what nobody takes"


def test_modules_import_each_other_in_one_direction(modules):
    """No cycles, imports inside functions included."""
    assert cycles(modules.edges()) == []


def test_every_door_opens(modules):
    """What a door lists is there, Triton's kernels where that is installed."""
    lacking = () if importlib.util.find_spec("triton") else ("triton",)
    for door, names in modules.doors.items():
        package = importlib.import_module(door)
        for name, (module, _) in names.items():
            if module.rpartition(".")[2] not in lacking:
                assert getattr(package, name) is not None, f"{door} does not have {name}"
    assert hidden_offers(modules) == []
    with pytest.raises(AttributeError, match="'headcount.core' has no attribute 'nothing'"):
        importlib.import_module("headcount.core").nothing  # noqa: B018


DOOR = (
    "from typing import TYPE_CHECKING\nfrom headcount.core import open_door\nif TYPE_CHECKING:\n"
    "    from headcount.tasks.task import Task as Task\n    from headcount.tasks.task import make as make_task\n"
    "__getattr__, __dir__ = open_door(__name__)\n"
)
PAST_A_DOOR = {
    "an inner module": "from headcount.tasks.task import Task",
    "inside a function": "def f():\n    from headcount.tasks.task import Task",
    "for type checkers": "if TYPE_CHECKING:\n    from headcount.tasks.task import Task",
    "a module as such": "from headcount.tasks import task",
    "a plain import": "import headcount.tasks.task",
    "the room as such": "import headcount.tasks",
    "what is not offered": "from headcount.tasks import make",
    "by string": "import importlib\nimportlib.import_module('headcount.tasks.task')",
    "by dots": "from ..tasks.task import Task",
}


def hidden_offers(modules: Modules) -> list[str]:
    """Return what doors offer under the name of a module of theirs: once that is loaded, the name means the module."""
    return [
        f"{door}: {name}"
        for door, names in modules.doors.items()
        for name, (module, _) in names.items()
        if f"{door}.{name}" in modules.paths and module != door
    ]


def test_an_offer_that_a_module_hides_is_reported(tmp_path):
    root = _small_house(tmp_path, "")
    assert hidden_offers(Modules(root)) == []
    (root / "tasks/__init__.py").write_text(DOOR.replace("Task as Task", "task as task"))
    assert hidden_offers(Modules(root)) == ["headcount.tasks: task"]


PAST_THE_PACKAGE = {
    **{case: text for case, text in PAST_A_DOOR.items() if case != "by dots"},
    "the front door's own": ("from headcount.api import sweep"),
}


@pytest.mark.parametrize("case", PAST_THE_PACKAGE)
def test_a_benchmark_that_goes_past_a_door_is_reported(case, tmp_path):
    """And what a benchmark takes at a door may be offered there."""
    root, beside = _small_house(tmp_path, ""), tmp_path / "benchmarks"
    (beside / "peers").mkdir(parents=True)
    (beside / "__init__.py").write_text("")
    script = beside / "peers/run.py"
    script.write_text(PAST_THE_PACKAGE[case])
    assert len(past_doors(Modules(root, beside))) == 1
    script.write_text(
        "import headcount as hc\nfrom headcount import train\nfrom headcount.tasks import Task, make_task"
    )
    assert past_doors(Modules(root, beside)) == []
    assert unused_offers(Modules(root, beside)) == []
    assert unused_offers(Modules(root)) == ["headcount.tasks: Task", "headcount.tasks: make_task"]


@pytest.mark.parametrize("case", PAST_A_DOOR)
def test_a_way_past_a_door_is_reported(case, tmp_path):
    """And the way through it is not."""
    root = _small_house(tmp_path, PAST_A_DOOR[case])
    assert len(past_doors(Modules(root))) == 1
    root = _small_house(tmp_path, "from headcount.tasks import Task, make_task")
    assert past_doors(Modules(root)) == []
    assert unused_offers(Modules(root)) == []
    root = _small_house(tmp_path, "from headcount.tasks import Task")
    assert unused_offers(Modules(root)) == ["headcount.tasks: make_task"]


def test_a_cycle_is_found(tmp_path):
    """Through doors and inside functions; imports for type checkers alone make none."""
    root = _small_house(tmp_path, "from headcount.tasks import Task")
    assert cycles(Modules(root).edges()) == []
    task = root / "tasks/task.py"
    (root / "models/__init__.py").write_text("if True:\n    from headcount.models.a import x as x\n")
    task.write_text("if TYPE_CHECKING:\n    from headcount.models import x\n")
    assert cycles(Modules(root).edges()) == []
    task.write_text("def f():\n    from headcount.models import x\n")
    assert cycles(Modules(root).edges()) == [["headcount.models.a", "headcount.tasks.task"]]


def _small_house(folder: Path, text: str) -> Path:
    root = folder / PACKAGE
    files = {"tasks/__init__.py": DOOR, "tasks/task.py": "", "models/__init__.py": "", "models/a.py": text}
    files |= {"core/__init__.py": "from headcount.core.doors import open_door\n", "core/doors.py": ""}
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


# -- files --------------------------------------------------------------------------------------------------


def style_problems(path: Path) -> list[str]:
    """Star imports, and modules, public functions and classes without a docstring."""
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    problems = [
        f"{path}:{node.lineno}: star import"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names)
    ]
    if ast.get_docstring(tree) is None:
        problems.append(f"{path}: the module has no docstring")
    for node in tree.body:
        public = isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
        if public and ast.get_docstring(node) is None:
            problems.append(f"{path}:{node.lineno}: {node.name} has no docstring")
    return problems


def test_no_star_imports_and_a_docstring_on_everything_public(source):
    assert [problem for path in sorted(source.rglob("*.py")) for problem in style_problems(path)] == []


def test_style_problems_are_reported(tmp_path):
    path = tmp_path / "a.py"
    path.write_text("from os import *\n\ndef f():\n    pass\n\nclass C:\n    pass\n\ndef _g():\n    pass\n")
    assert len(style_problems(path)) == 4


def write_problems(path: Path) -> list[str]:
    """Files that are opened to be written, or written by a path's own method: both leave half a file on a full disk."""
    problems: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        modes = [value.value for value in given if isinstance(value, ast.Constant) and isinstance(value.value, str)]
        opened = name in ("open", "fdopen") and any(re.fullmatch("[rwaxbt+]*[wax+][rwaxbt+]*", mode) for mode in modes)
        if opened or (isinstance(node.func, ast.Attribute) and name in ("write_text", "write_bytes")):
            problems.append(f"{path}:{node.lineno}: {name} writes in place: take headcount.core.files")
    return problems


def test_files_are_written_whole_or_not_at_all(source):
    found = {path: write_problems(path) for path in sorted(source.rglob("*.py"))}
    assert [path.relative_to(source).as_posix() for path, lines in found.items() if lines] == [
        "core/files.py",
        "core/worker.py",  # the worker writes to a pipe
    ]


def test_writing_in_place_is_reported(tmp_path):
    path = tmp_path / "a.py"
    bad = ["p.write_text('x')", "p.write_bytes(b'x')", "open(p, 'w')", "p.open('ab')", "open(p, mode='r+')"]
    path.write_text("\n".join([*bad, "open(p)", "p.open('rb')", "write_text(p, 'x')", "zip.open('a.csv')"]))
    assert len(write_problems(path)) == len(bad)


def code_lines(path: Path) -> int:
    """Lines that do something: no blank ones, no comments, no docstrings."""
    text = path.read_text()
    prose: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            prose |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    lines = enumerate(text.splitlines(), 1)
    return sum(bool(line.strip()) and not line.lstrip().startswith("#") and i not in prose for i, line in lines)


SHARED_BELOW = {
    "tasks/expressions/tree.py",
    "tasks/expressions/in_balls.py",
    "core/errors.py",
    "core/readers/model_file.py",
    "core/readers/statement_file.py",
}
FURTHER_BELOW = {"core/readers/reading.py", "core/hashing.py", "core/doors.py", "core/spec.py", "core/text/harmless.py"}


def shared_files(text: str) -> dict[str, set[str]]:
    """Read the table of docs/build.md: which files the verifier and the search share, by who imports them."""
    rows = (line.strip().strip("|").split("|") for line in text.splitlines() if line.startswith("| `"))
    found = {cells[0].strip().strip("`"): set(re.findall(r"`((?:\w+/)+\w+[.]py)`", cells[1])) for cells in rows}
    return {name: files for name, files in found.items() if files}


def imported_files(modules: Modules, names: Iterable[str]) -> set[str]:
    """The files of the package that some modules import, through doors; the doors themselves apart."""
    homes = {modules.home(one.module, one.name) for name in names for one in modules.imports[name]}
    root = modules.paths[PACKAGE].parent
    return {modules.paths[home].relative_to(root).as_posix() for home in homes - modules.packages}


def reached_files(modules: Modules, room: str) -> set[str]:
    """The files outside of a room that it needs, imports of imports included; `__init__`s apart, which are doors."""
    edges, root = modules.edges(), modules.paths[PACKAGE].parent
    found = {name for name in modules.paths if name == room or name.startswith(f"{room}.")}
    pending = set(found)
    while pending:
        pending = set().union(*(edges[name] for name in pending)) - found
        found |= pending
    files = {modules.paths[name].relative_to(root).as_posix() for name in found - modules.packages}
    return {name for name in files if not name.startswith(f"{room_of(room)}/")}


def test_the_verifier_rests_on_what_the_house_names(repo, modules):
    text = (repo / "docs/house.md").read_text(encoding="utf-8")
    told = text.partition("What must be trusted for a proof is")[2].partition("\n\n")[0]
    names = set(re.findall(r"`(?:core/)?([\w/]+[.]py)`", told))
    assert names == {f.removeprefix("core/") for f in reached_files(modules, "headcount.recheck")}


def test_imports_of_imports_are_reached(tmp_path):
    files = {
        "recheck/a.py": "from headcount.core import b",
        "core/__init__.py": "from headcount.core.b import b as b",
        "core/b.py": "def b():\n    from headcount.core.c import c",
        "core/c.py": "c = 1",
        "core/d.py": "d = 1",
        "__init__.py": "",
    }
    for name, text in files.items():
        (tmp_path / PACKAGE / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / PACKAGE / name).write_text(text)
    assert reached_files(Modules(tmp_path / PACKAGE), "headcount.recheck") == {"core/b.py", "core/c.py"}


def test_what_verifier_and_search_share_is_stated(repo, source, modules):
    stated = shared_files((repo / "docs/build.md").read_text())
    inside = {name: path.relative_to(source).as_posix() for name, path in modules.paths.items()}
    verifier = imported_files(modules, [n for n in inside if n.startswith("headcount.recheck.")])
    assert stated["recheck/"] == SHARED_BELOW == {name for name in verifier if not name.startswith("recheck/")}
    theory = {name: file for name, file in inside.items() if name.startswith("headcount.theory.")}
    found = {file: imported_files(modules, [name]) for name, file in theory.items()}
    shared = {name: {f for f in files if f.startswith("recheck/")} for name, files in found.items()}
    assert {name: files for name, files in shared.items() if files} == {
        name: files for name, files in stated.items() if name.startswith("theory/")
    }


def test_the_trusted_part_is_small(source, modules, tmp_path):
    lines = {p.stem: code_lines(p) for p in (source / "recheck").glob("*.py")}
    witness = {"heads", "witness", "support", "pooled", "deep"}
    certificate = sum(n for name, n in lines.items() if name not in {*witness, "wide", "rounding"})
    assert certificate <= 700  # all that a certificate of Theorem 2 (1) rests on, in exact arithmetic
    assert lines["rounding"] <= 110  # what float64 adds
    below = {*SHARED_BELOW, *FURTHER_BELOW}
    assert reached_files(modules, "headcount.recheck") == below  # and nothing beyond
    assert sum(code_lines(source / name) for name in below) <= 830  # what all of it imports from other rooms
    assert lines["wide"] <= 160  # what one of Theorem 2 (3) adds
    assert lines["heads"] + lines["witness"] <= 365  # what a witness of colliding inputs adds
    assert lines["support"] <= 85  # and whether they are inputs of the task
    assert lines["pooled"] <= 50  # and one of tokens that share linear pieces
    assert lines.get("deep", 0) <= 120  # and one of a model with more layers, or layer norms
    path = tmp_path / "a.py"
    path.write_text('"""Prose,\nmore."""\n\n# why\ndef f():\n    """What."""\n    return 1  # so\n')
    assert code_lines(path) == 2


def test_the_front_door_is_light():
    code = f"import sys, headcount, headcount.cli.main; print(*[m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [], "imported before it is needed"


def test_shapes_are_checked_at_run_time():
    import torch
    from jaxtyping import TypeCheckError

    from headcount.models.transformer.reference import Transformer
    from headcount.models.transformer.spec import ModelSpec

    model = Transformer(ModelSpec(dim=2, length=3, heads=1))
    assert model(torch.zeros(4, 3, 2)).shape == (4, 1)
    with pytest.raises(TypeCheckError):
        model(torch.zeros(4, 3, 2, dtype=torch.int64))


# -- one way out for text -----------------------------------------------------------------------------------

MAY_SHOW = {
    "core/text/harmless.py": "makes text harmless",
    "core/text/streams.py": "writes to standard output and standard error",
    "core/text/terminal.py": "the terminal for results",
    "render/picture.py": "draws every picture",
    "render/pages.py": "makes every page",
}
"""The files through which all text goes out, and what each is for (docs/house.md)."""
ONLY_THERE = {
    "html",
    "jinja2",
    "markupsafe",
    "rich.console",
    "rich.text",
    "rich.markup",
    "matplotlib.figure",
    "matplotlib.pyplot",
}
"""Modules that would show a text as it stands."""
SHOWING = {"print", "savefig", "from_markup", "from_ansi", "StreamHandler", "basicConfig", "get_console", "Console"}
STREAMS = {f"sys.{name}" for name in ("stdout", "stderr", "__stdout__", "__stderr__")}
HARMLESS = {"isatty", "flush"}
"""What may be asked of a standard stream."""


def output_problems(path: Path) -> list[str]:
    """Ways around the one way out: bare prints, streams, consoles, markup, pages and pictures of one's own."""
    problems: list[str] = []
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    for node in ast.walk(tree):
        found = ""
        if isinstance(node, ast.Import):
            found = next((a.name for a in node.names if a.name in ONLY_THERE), "")
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {node.module, *(f"{node.module}.{a.name}" for a in node.names)}
            found = next(iter(sorted(names & {*ONLY_THERE, "rich.print", "rich.get_console"})), "")
        elif isinstance(node, ast.Call):
            found = _showing_call(node)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute):
            stream = ast.unparse(node.value)
            if (
                stream.removeprefix("sys.") in ("stdout", "stderr", "__stdout__", "__stderr__")
                and node.attr not in HARMLESS
            ):
                found = ast.unparse(node)
        if found:
            problems.append(f"{path}:{node.lineno}: {found} shows text as it stands: take {', '.join(MAY_SHOW)}")
    return problems


def _showing_call(node: ast.Call) -> str:
    """Name a call that shows text by itself; `.print` of the terminal is the way, a bare `print` is not."""
    named, member = isinstance(node.func, ast.Name), isinstance(node.func, ast.Attribute)
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    if (named and name in SHOWING) or (member and name in SHOWING - {"print"}):
        return name
    if member and ast.unparse(node.func) in ("os.write", "rich.print", "builtins.print"):
        return ast.unparse(node.func)
    for keyword in node.keywords:
        if keyword.arg == "markup" and not (isinstance(keyword.value, ast.Constant) and keyword.value.value is False):
            return "markup"
    return ""


def test_text_goes_out_one_way(source):
    found = {path.relative_to(source).as_posix(): output_problems(path) for path in sorted(source.rglob("*.py"))}
    assert {name: lines for name, lines in found.items() if lines and name not in MAY_SHOW} == {}
    assert all(found[name] for name in MAY_SHOW), "a file that shows nothing needs no leave"


WAYS_AROUND = [
    "print(x)",
    "print(x, file=sys.stderr)",
    "sys.stderr.write(x)",
    "sys.stdout.buffer.write(x)",
    "sys.__stderr__.write(x)",
    "from rich.console import Console",
    "import rich.console",
    "from rich import print",
    "from rich.text import Text",
    "from rich.markup import escape",
    "rich.console.Console(stderr=True)",
    "terminal.print(x, markup=True)",
    "terminal.print(x, markup=styled)",
    "Text.from_markup(x)",
    "import html",
    "from html import escape",
    "from markupsafe import Markup",
    "import jinja2",
    "figure.savefig('a.png')",
    "from matplotlib.figure import Figure",
    "import matplotlib.pyplot as plt",
    "logging.StreamHandler()",
    "os.write(1, x)",
]


@pytest.mark.parametrize("line", WAYS_AROUND)
def test_a_way_around_is_reported(line, tmp_path):
    path = tmp_path / "a.py"
    path.write_text(line)
    assert len(output_problems(path)) >= 1


def test_the_way_out_is_not_reported(tmp_path):
    path = tmp_path / "a.py"
    path.write_text(
        "terminal.print(bold('It holds'), f': {reason}', sep='')\nsys.stdout.isatty()\nsys.stdout.flush()\ntell(x)\n"
        "from rich.table import Table\nTextColumn(x, markup=False)\nfrom headcount.core.text.harmless import escape\n"
        "picture.as_png(200)\nput_line(x, sys.stderr)\n"
    )
    assert output_problems(path) == []


# -- nothing of one machine ---------------------------------------------------------------------------------

# Spelt with classes, so that this file does not match itself.
PRIVATE = re.compile(
    r"(?<![\w.~])/(?:wor[k]|roo[t]|hom[e]|User[s])/|(?:extra-)?index[-_]ur[l]|INDEX_UR[L]"
    r"|pytorch[.]org/wh[l]|https?://\S+/simpl[e]\b|trusted-hos[t]|find-link[s]"
)


def private_lines(path: Path) -> list[str]:
    """Lines that name a folder or a package index of somebody's machine; binary files have none."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        return []
    return [f"{path}:{i}: {line.strip()[:80]}" for i, line in enumerate(lines, 1) if PRIVATE.search(line)]


def test_no_tracked_file_names_a_machine(repo):
    files = tracked_files(repo)
    assert len(files) > 30
    assert [problem for path in files for problem in private_lines(path)] == []


SLASH, DASH = "/", "-"


@pytest.mark.parametrize("line", [f"x = '{SLASH}root/a'", f"see {SLASH}work/b", f"--index{DASH}url http://h"])
def test_a_private_line_is_reported(line, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(f"fine\n{line}\n")
    assert len(private_lines(path)) == 1


def test_torch_is_pinned_plainly_and_ranged_honestly(repo):
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)$", (repo / "constraints.txt").read_text(), re.M))
    assert re.fullmatch(r"\d+\.\d+\.\d+", pins["torch"]), "no local suffix such as +cpu"
    project = tomllib.loads((repo / "pyproject.toml").read_text())["project"]
    assert "torch>=2.10" in project["dependencies"]
    cited = re.search(r"^version: (\S+)$", (repo / "CITATION.cff").read_text(), re.M)
    assert cited, "CITATION.cff states no version"
    assert cited[1] == project["version"]
