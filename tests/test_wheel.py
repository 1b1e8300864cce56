"""The wheel: it holds every data file, works outside the checkout, and declares what the package imports."""

from __future__ import annotations

import ast
import functools
import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from documents import environment
from support import REPO, tracked_files
from wheel_smoke import COMMANDS

SOURCE = REPO / "src" / "headcount"
ONLY_FOR_DEVELOPMENT = ("test", "lint")
"""Extras whose packages no module of the package may import."""

# -- the files of the wheel ---------------------------------------------------------------------------------


def data_files() -> set[str]:
    """All files of the package that are not Python, by their path in a wheel."""
    inside = [path for path in tracked_files(REPO) if path.is_relative_to(SOURCE)]
    return {path.relative_to(REPO / "src").as_posix() for path in inside if path.suffix != ".py"}


def missing_files(wheel: Path) -> list[str]:
    """The data files that a wheel lacks."""
    with zipfile.ZipFile(wheel) as archive:
        return sorted(data_files() - set(archive.namelist()))


def pip(*arguments: str | Path) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", *map(str, arguments), "--no-deps", "--no-index"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of the checkout as it is now, built from a copy: a build leaves folders behind."""
    copy = tmp_path_factory.mktemp("copy")
    for path in tracked_files(REPO):
        name = path.relative_to(REPO)
        if name.parts[0] == "src" or name.name in ("pyproject.toml", "README.md", "LICENSE"):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copy / name)
    pip("wheel", "--no-build-isolation", "--wheel-dir", copy / "dist", copy)
    (built,) = (copy / "dist").glob("headcount-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel installed in it, and with the kernels that the checkout has compiled already."""
    folder = tmp_path_factory.mktemp("installed")
    pip("install", "--no-compile", "--target", folder, wheel)
    for compiled in SOURCE.rglob("__pycache__/*.nb?"):
        kept = folder / "headcount" / compiled.relative_to(SOURCE)
        kept.parent.mkdir(exist_ok=True)
        shutil.copy2(compiled, kept)
        for source in compiled.parents[1].glob("*.py"):
            shutil.copystat(source, kept.parents[1] / source.name)  # numba compares the time of the source
    return folder


def test_the_wheel_has_every_data_file(wheel: Path):
    assert len(data_files()) > 20
    assert missing_files(wheel) == [], "name them in [tool.setuptools.package-data] of pyproject.toml"


def test_the_wheel_has_nothing_of_the_machine(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]
    assert [name for name in names if not name.startswith("headcount/") or "__pycache__" in name] == []


# -- the installed package works ----------------------------------------------------------------------------


def run_installed(folder: Path, cwd: Path, *command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command elsewhere, with the installed package first and the checkout nowhere in sight."""
    variables = {**environment(), "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        list(map(str, command)), cwd=cwd, env=variables, capture_output=True, text=True, timeout=300, check=False
    )


def smoke(folder: Path, cwd: Path, *verbs: str) -> dict[str, Any]:
    script = REPO / "tests" / "wheel_smoke.py"
    done = run_installed(folder, cwd, sys.executable, "-P", script, *verbs)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_verb_and_the_library_work_where_the_wheel_is_installed(installed: Path, tmp_path: Path):
    found = smoke(installed, tmp_path)
    assert found["package"] == str(installed / "headcount")
    assert {command.split()[0] for command in COMMANDS} == set(found["verbs"])
    assert found["failed"] == {}


def test_the_installed_command_runs(installed: Path, tmp_path: Path):
    version = run_installed(installed, tmp_path, installed / "bin/headcount", "--version")
    project = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (version.returncode, version.stdout.strip()) == (0, project["version"]), version.stderr
    listed = run_installed(installed, tmp_path, installed / "bin/headcount", "reproduce")
    assert listed.returncode == 0, listed.stderr
    assert "table2" in listed.stdout


def test_a_wheel_without_a_data_file_is_reported(wheel: Path, installed: Path, tmp_path: Path):
    lost = "headcount/reproduction/specs/table4.toml"
    with zipfile.ZipFile(wheel) as whole, zipfile.ZipFile(tmp_path / wheel.name, "w") as twin:
        for name in whole.namelist():
            if name != lost:
                twin.writestr(name, whole.read(name))
    assert missing_files(tmp_path / wheel.name) == [lost]
    shutil.copytree(installed, tmp_path / "twin", ignore=shutil.ignore_patterns("*.nb?"))
    (tmp_path / "twin" / lost).unlink()
    command = [tmp_path / "twin/bin/headcount", "reproduce", "table4", "--scale", "smoke"]
    done = run_installed(tmp_path / "twin", tmp_path, *command)
    assert done.returncode != 0
    assert "table4.toml" in done.stderr


# -- what is imported is declared ---------------------------------------------------------------------------


def imported(path: Path) -> Iterator[str]:
    """The top-level names of other packages that a file imports, by a statement or by a string."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or ""]
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            function = getattr(node.func, "attr", getattr(node.func, "id", ""))
            names = [str(node.args[0].value)] if function in ("import_module", "__import__") else []
        for name in names:
            top = name.split(".")[0]
            if top != "headcount" and top not in sys.stdlib_module_names:
                yield top


@functools.cache
def distributions() -> Mapping[str, list[str]]:
    """The installed packages by the modules that they hold."""
    return importlib.metadata.packages_distributions()


def distribution(module: str) -> str:
    """The name on an index of the package that a module belongs to; for what is not installed, the module's own."""
    return normal(distributions().get(module, [module])[0])


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def declared(project: dict[str, Any]) -> set[str]:
    """The packages of a project's dependencies and of the extras that users install."""
    extras = [lines for extra, lines in project["optional-dependencies"].items() if extra not in ONLY_FOR_DEVELOPMENT]
    return {normal(re.split(r"[^\w.-]", line)[0]) for lines in (project["dependencies"], *extras) for line in lines}


def import_differences(source: Path, project: dict[str, Any]) -> tuple[set[str], set[str]]:
    """What is imported but not declared, and what is declared but not imported."""
    used = {distribution(name) for name in {name for path in source.rglob("*.py") for name in imported(path)}}
    return used - declared(project), declared(project) - used


def project_table() -> dict[str, Any]:
    return tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_what_is_imported_is_declared():
    assert import_differences(SOURCE, project_table()) == (set(), set())


def test_an_undeclared_import_is_reported(tmp_path: Path):
    (tmp_path / "a.py").write_text("def f():\n    from PIL import Image\n    import_module('sklearn.base')\n")
    assert import_differences(
        tmp_path, {"dependencies": ["rich>=13"], "optional-dependencies": {"test": ["pillow"]}}
    ) == (
        {"pillow", "scikit-learn"},
        {"rich"},
    )


def test_the_pins_cover_what_builds_the_wheel():
    pins = (REPO / "constraints.txt").read_text(encoding="utf-8")
    assert "setuptools>=77" in project_table()["optional-dependencies"]["test"]
    assert re.search(r"^setuptools==\d", pins, re.M)


# -- hints name what can be installed -----------------------------------------------------------------------

# Spelt with classes, so that this file does not match itself.
NOT_ON_AN_INDEX = re.compile(r"pip3? instal[l] (?:-\S+ )*['\"]?headcoun[t]|['\"]headcoun[t]\[")


def test_no_hint_installs_headcount_from_an_index():
    texts = {path: path.read_bytes().decode(errors="ignore") for path in tracked_files(REPO)}
    assert [str(path.relative_to(REPO)) for path, text in texts.items() if NOT_ON_AN_INDEX.search(text)] == []
    name = "headcount"
    for hint in (f"pip install {name}", f"pip install '{name}[probe]'", f"pip install -U {name}"):
        assert NOT_ON_AN_INDEX.search(hint)
    assert not NOT_ON_AN_INDEX.search("pip install '.[probe]' in headcount's source folder")


def test_the_hint_of_a_missing_extra_names_one_that_exists():
    from headcount.core.errors import MissingExtra

    calls = [
        line
        for path in SOURCE.rglob("*.py")
        for line in re.findall(r'MissingExtra\("[^"]+", "(\w+)"', path.read_text())
    ]
    assert len(calls) >= 4
    assert set(calls) <= set(project_table()["optional-dependencies"])
    assert "pip install '.[probe]'" in str(MissingExtra("transformers", "probe", "headcount probe"))
