"""The names of docs/symbols.md are those of the code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

HEADER = ["paper", "code", "shape", "meaning", "where"]


def rows(text: str) -> list[list[str]]:
    """The rows of all tables."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if row != HEADER and not set("".join(row)) <= set("- ")]


def identifiers(path: Path) -> set[str]:
    """All names that a file uses: variables, arguments, attributes, functions, classes."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        for kind in ("id", "arg", "attr", "name"):
            value = getattr(node, kind, None)
            if isinstance(value, str):
                found.add(value)
    return found


def symbol_problems(text: str, source: Path) -> list[str]:
    """Rows whose name does not occur in one of the files that they state."""
    problems: list[str] = []
    for row in rows(text):
        if len(row) != len(HEADER) or not re.fullmatch(r"`[\w.]+`", row[1]):
            problems.append(f"cannot read the row {row}")
            continue
        name, files = row[1].strip("`"), re.findall(r"`([\w./]+)`", row[4])
        if "to come" in row[4]:
            continue
        if not files:
            problems.append(f"{name}: no file is stated")
        for file in files:
            path = source / file
            if not path.is_file():
                problems.append(f"{name}: there is no {file}")
            elif not set(name.split(".")) <= identifiers(path):
                problems.append(f"{name}: does not occur in {file}")
    return problems


def test_every_symbol_is_in_the_code(repo):
    text = (repo / "docs/symbols.md").read_text(encoding="utf-8")
    assert len(rows(text)) > 30
    assert symbol_problems(text, repo / "src/headcount") == []


def test_a_wrong_symbol_is_reported(tmp_path):
    (tmp_path / "a.py").write_text("def f(heads):\n    'width'\n    return heads.inner\n")
    good = "| h | `heads` | number | m | `a.py` |\n| e | `f.inner` | s | m | `a.py` |\n"
    good += "| g | `gamma` | s | m | *to come* |\n"
    assert symbol_problems(good, tmp_path) == []
    for bad in (
        "| E | `width` | number | only in a string | `a.py` |",
        "| h | `heads.outer` | number | m | `a.py` |",
        "| h | `heads` | number | m | `b.py` |",
        "| h | `heads` | number | m | somewhere |",
        "| h | heads | number | m | `a.py` |",
        "| h | `heads` | `a.py` |",
    ):
        assert len(symbol_problems(bad, tmp_path)) == 1, bad
