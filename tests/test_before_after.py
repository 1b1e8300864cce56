"""Two codes are timed in turns, the first repetition does not count, and a slower one is seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.before_after import Question, ask, in_turns, questions
from benchmarks.old_code import REPO, unpack_code

OLD, NEW = Path("old"), Path("new")


@pytest.mark.parametrize(("slowdown", "ratio"), [(1.0, 1.0), (1.5, 1.5), (0.5, 0.5)])
def test_codes_take_turns_and_a_slower_one_is_seen(slowdown: float, ratio: float) -> None:
    asked: list[Path] = []

    def timer(question: Question, source: Path) -> float:
        asked.append(source)
        first = len(asked) <= 2  # caches are cold
        return (100.0 if first else 1.0) * (slowdown if source == NEW else 1.0)

    row = in_turns(Question("nothing", (), 4), OLD, NEW, timer)
    assert row.ratio == ratio
    assert len(row.before) == len(row.after) == 4
    assert max(row.before) == 1.0
    assert asked[:4] == [NEW, OLD, OLD, NEW]


def test_a_question_is_asked_of_the_code_it_names(tmp_path: Path) -> None:
    """The command finds the package on the path it is given, and a failing one ends the run."""
    package = tmp_path / "headcount"
    package.mkdir()
    (package / "__init__.py").write_text("SECONDS = 12.5\n")
    told = Question("seconds", ("-c", "import headcount; print(headcount.SECONDS)"), 1, prints_seconds=True)
    assert ask(told, tmp_path) == 12.5
    assert 0 < ask(questions(1)[0], tmp_path) < 60
    with pytest.raises(SystemExit, match="SECONDS"):
        ask(told, REPO / "src")


def test_the_code_of_a_commit_is_unpacked(tmp_path: Path) -> None:
    source = unpack_code("HEAD", tmp_path)
    assert (source / "headcount" / "__init__.py").is_file()
    assert [path.name for path in tmp_path.iterdir()] == ["code"]
