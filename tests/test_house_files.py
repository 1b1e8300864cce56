"""docs/house.md lists every file with what it is for, as the files themselves say."""

from __future__ import annotations

from pathlib import Path

import pytest

from house_files import about, file_lines, with_files


def test_the_map_lists_every_file_as_it_is(repo: Path) -> None:
    source = repo / "src/headcount"
    text = (repo / "docs/house.md").read_text(encoding="utf-8")
    assert text == with_files(text, source), "python tests/house_files.py writes the list anew"
    listed = [line for line in file_lines(source) if line.startswith("- ")]
    rooms = [path for path in source.iterdir() if path.is_dir()]
    assert len(listed) == sum(path.name != "__init__.py" for room in rooms for path in room.rglob("*.py"))


def test_a_new_file_or_another_purpose_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "room").mkdir()
    module = tmp_path / "room/rule.py"
    module.write_text('"""The one rule: from how many heads on. More of it."""\n')
    assert about(module) == "The one rule: from how many heads on."
    text = with_files("# Map\n<!-- files: written by tests/house_files.py --><!-- end of files -->\n", tmp_path)
    assert "- `rule.py`: The one rule: from how many heads on." in text
    assert with_files(text, tmp_path) == text
    (tmp_path / "room/other.py").write_text('"""Another."""\n')
    assert with_files(text, tmp_path) != text
    with pytest.raises(ValueError, match="lacks"):
        with_files("# Map\n", tmp_path)
