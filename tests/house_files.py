"""The list of files at the end of docs/house.md: every module with the first sentence of its docstring.

python tests/house_files.py    writes the list anew
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
START, END = "<!-- files: written by tests/house_files.py -->", "<!-- end of files -->"


def about(module: Path) -> str:
    """Return the first sentence of a module's docstring, on one line."""
    text = " ".join((ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or "").split("\n\n")[0].split())
    sentence = text.split(". ")[0]
    return sentence if sentence.endswith((".", "?")) else f"{sentence}."


def file_lines(source: Path) -> Iterator[str]:
    """Yield a heading for every folder of the package and a line for every module in it; doors are left out."""
    for room in sorted(path for path in source.iterdir() if path.is_dir()):
        for folder in sorted([room, *(path for path in room.rglob("*") if path.is_dir())]):
            modules = sorted(path for path in folder.glob("*.py") if path.name != "__init__.py")
            if modules:
                yield ""
                yield f"**{folder.relative_to(source).as_posix()}/**"
                yield ""
                yield from (f"- `{path.name}`: {about(path)}" for path in modules)


def with_files(text: str, source: Path) -> str:
    """Return the document with the list of today's files between its two marks."""
    before, _, rest = text.partition(START)
    _, mark, after = rest.partition(END)
    if not mark:
        raise ValueError(f"docs/house.md lacks {START!r} or {END!r}")
    return "\n".join([before + START, *file_lines(source), "", END]) + after


def main() -> None:
    """Write the list into docs/house.md."""
    document = REPO / "docs" / "house.md"
    document.write_text(with_files(document.read_text(encoding="utf-8"), REPO / "src" / "headcount"), encoding="utf-8")


if __name__ == "__main__":
    main()
