"""Records hold codes and numbers: the rooms that make them make no sentences."""

from __future__ import annotations

from pathlib import Path

import pytest

from sentences import text_in

TEXTS_OF_REPRODUCTION = {"words.py", "catalogue.py", "charts.py", "tables.py", "items.py"}
"""What states results in words, what draws and tabulates them, and the list of what can be reproduced."""


def wordless(source: Path) -> list[Path]:
    """Return the modules whose results are codes and numbers."""
    modules = [*(source / "analysis").rglob("*.py"), *(source / "reproduction").glob("*.py")]
    return sorted(path for path in modules if path.name not in TEXTS_OF_REPRODUCTION)


def test_analysis_and_reproduction_make_no_sentences(repo: Path) -> None:
    modules = wordless(repo / "src/headcount")
    assert {"heads_needed.py", "scaling.py", "findings.py"} <= {path.name for path in modules}
    assert {path.name: text for path in modules if (text := text_in(path))} == {}


def test_the_words_of_results_are_text(repo: Path) -> None:
    words = repo / "src/headcount/render/words"
    for path in (words / "heads_needed.py", words / "errors.py", words / "fits.py"):
        assert len(text_in(path)) >= 5, path


SENTENCES = {
    "a literal": 'note = "the task has no known D"',
    "an f-string": 'note = f"{count} trials have no error"',
    "inside an f-string": "note = f\"{'fitted without the largest' if some else ''} h\"",
    "a sum": 'note = count + " trials have" + " no error"',
    "pieces": 'note = "; ".join(["outside the assumptions", "more than one layer"])',
    "a default": 'def why(note: str = "the models did not learn"): ...',
    "a constant": 'WHY = {"blind": "these models see no positions"}',
}
NO_SENTENCES = {
    "a docstring": 'def f():\n    """Return what the trials say."""',
    "a comment on a name": 'SIZE = 3\n"""How many errors are compared."""',
    "an error": 'raise BadInput(f"{runs} has no trials at all: train some")',
    "a stream": 'rng = generator(seed, "places of the rule")',
    "a code": 'Why = Literal["smaller N suffices at once"]\nwhy = "smaller N suffices at once"',
    "a formula": 'formula = "a for h < s, b for h >= s"',
    "a key": 'row = {"drop_from": 1, "no result": 2}',
}


@pytest.mark.parametrize("case", SENTENCES)
def test_a_sentence_is_found(case: str, tmp_path: Path) -> None:
    (tmp_path / "room.py").write_text(SENTENCES[case])
    assert text_in(tmp_path / "room.py")


@pytest.mark.parametrize("case", NO_SENTENCES)
def test_what_is_no_sentence_passes(case: str, tmp_path: Path) -> None:
    (tmp_path / "room.py").write_text(NO_SENTENCES[case])
    assert text_in(tmp_path / "room.py") == []
