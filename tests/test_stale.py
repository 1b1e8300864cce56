"""Stale figures: the hash of the source behind a result, the table of sources, the list, renewing and marks."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks import result_sources as sources
from benchmarks import stale
from benchmarks.result_sources import BENCH
from benchmarks.source import Source
from marks import mark_problems, with_marks
from results import RESULTS
from support import REPO

# -- the hash ------------------------------------------------------------------------------------------------

PACKAGE = {
    "kernels/step.py": '''"""Steps."""
from headcount.core.errors import BadInput
from headcount.kernels import rates
RATE = 0.1
"""How fast."""
def step(x, speed=RATE):
    """Take one."""
    if x < 0:
        raise BadInput(f"x must be positive, not {x}")
    return rates.scaled(x) * speed
def other():
    return 3
''',
    "kernels/rates.py": "def scaled(x):\n    return 2 * x  # twice\n",
    "train.py": """def train(x):
    from headcount.kernels.step import step as one
    return [one(x) for _ in range(3)]
""",
    "specs/a.toml": "steps = 3  # few\n",
}
ENTRIES = ("train:train", "specs/a.toml")


def changed(**files: str) -> str:
    texts = {**PACKAGE, **{name.replace("__", "/") + ".py": text for name, text in files.items()}}
    return Source.of_files(texts).hash(ENTRIES)


WHOLE = Source.of_files(PACKAGE).hash(ENTRIES)
STEP = PACKAGE["kernels/step.py"]

SAME = {
    "formatting": {"kernels__step": ast.unparse(ast.parse(STEP)).replace("    ", "\t")},
    "comments": {"kernels__rates": "# what follows\ndef scaled(x):\n    return (2\n        * x)\n"},
    "docstrings": {"kernels__step": STEP.replace("Take one", "Take a step").replace("How fast", "Speed")},
    "an import in another form": {
        "train": "import headcount.kernels.step as s\ndef train(x):\n    return [s.step(x) for _ in range(3)]\n"
    },
    "a function that is not reached": {"kernels__step": STEP.replace("return 3", "return 4")},
    "what an error says": {"kernels__step": STEP.replace("x must be positive, not", "invalid x:")},
    "the order of definitions": {"kernels__step": STEP.replace("RATE = 0.1\n", "def first():\n    pass\nRATE = 0.1\n")},
}
OTHER = {
    "a constant": {"kernels__step": STEP.replace("RATE = 0.1", "RATE = 0.2")},
    "a function below": {"kernels__rates": "def scaled(x):\n    return 3 * x\n"},
    "a default": {"kernels__step": STEP.replace("speed=RATE", "speed=0.3")},
    "another function of the same name": {"train": PACKAGE["train.py"].replace("step as one", "other as one")},
    "a decorator": {"kernels__rates": "import functools\n@functools.cache\ndef scaled(x):\n    return 2 * x\n"},
    "a statement of the module": {"kernels__rates": PACKAGE["kernels/rates.py"] + "print(scaled(1))\n"},
}


@pytest.mark.parametrize("case", SAME)
def test_what_changes_no_figure_changes_no_hash(case):
    assert changed(**SAME[case]) == WHOLE


@pytest.mark.parametrize("case", OTHER)
def test_what_may_change_a_figure_changes_the_hash(case):
    assert changed(**OTHER[case]) != WHOLE


def test_a_move_with_its_imports_changes_no_hash():
    moved = {name: text.replace("headcount.kernels", "headcount.maths") for name, text in PACKAGE.items()}
    moved = {name.replace("kernels/", "maths/"): text for name, text in moved.items()}
    assert Source.of_files(moved).hash(ENTRIES) == WHOLE
    joined = {
        **PACKAGE,
        "kernels/rates.py": "",
        "kernels/step.py": STEP.replace("rates.scaled", "scaled").replace(
            "from headcount.kernels import rates\n", PACKAGE["kernels/rates.py"]
        ),
    }
    assert Source.of_files(joined).hash(ENTRIES) == WHOLE
    away = {**PACKAGE, "loops.py": PACKAGE["train.py"]}
    del away["train.py"]
    assert Source.of_files(away).hash(ENTRIES) == WHOLE  # the entry itself is found by its name


def test_scripts_keep_their_hash_when_their_folder_becomes_a_package():
    """Bare names before, those of the folder's modules afterwards."""
    one, two = "def f(x):\n    return 2 * x\n", "from one import f\ndef run():\n    return f(1)\n"
    before = Source.of_files(PACKAGE, {"benchmarks/one.py": one, "benchmarks/two.py": two})
    packed = {"benchmarks/__init__.py": "", "benchmarks/peers/one.py": one}
    packed |= {"benchmarks/two.py": two.replace("from one", "from benchmarks.peers.one")}
    after = Source.of_files(PACKAGE, packed)
    assert set(before.definitions(["two:run"])) == {"one:f", "two:run"}
    assert set(after.definitions(["benchmarks.two:run"])) == {"benchmarks.peers.one:f", "benchmarks.two:run"}
    assert after.hash(["benchmarks.two:run"]) == before.hash(["two:run"])
    changed_peer = {**packed, "benchmarks/peers/one.py": one.replace("2", "3")}
    assert Source.of_files(PACKAGE, changed_peer).hash(["benchmarks.two:run"]) != before.hash(["two:run"])


def test_data_files_count_by_their_values():
    assert Source.of_files({**PACKAGE, "specs/a.toml": "# three\nsteps=3"}).hash(ENTRIES) == WHOLE
    assert Source.of_files({**PACKAGE, "specs/a.toml": "steps = 4"}).hash(ENTRIES) != WHOLE


def test_a_module_that_is_left_out_is_not_followed():
    found = Source.of_files(PACKAGE).definitions(["train:train", "!kernels.rates"])
    assert sorted(found) == ["headcount.kernels.step:RATE", "headcount.kernels.step:step", "headcount.train:train"]


def test_an_entry_that_is_nowhere_is_an_error():
    for entry in ("train:walk", "trane", "specs/b.toml"):
        with pytest.raises(LookupError, match=entry):
            Source.of_files(PACKAGE).hash([entry])


# -- the package's own source --------------------------------------------------------------------------------


def package_files() -> dict[str, str]:
    root = REPO / "src" / "headcount"
    kept = [p for p in root.rglob("*") if p.suffix in (".py", ".toml", ".json") and "__pycache__" not in p.parts]
    return {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in kept}


SCRIPTS = {
    path.relative_to(REPO).as_posix(): path.read_text(encoding="utf-8") for path in (REPO / "benchmarks").rglob("*.py")
}


def test_the_bench_is_stale_after_a_change_and_not_after_a_move_or_a_format():
    files = package_files()
    here = Source.of_files(files, SCRIPTS)
    before = here.hash(BENCH)
    assert before == sources.recorded("bench-cpu")["timed"]["hash"]  # what a new measurement writes
    reached = {place.split(":")[0] for place in here.definitions(BENCH)}
    assert {"headcount.kernels.step.numba", "headcount.kernels.step.triton", "headcount.training.stacked"} <= reached
    assert "benchmarks.peers.turns" in reached
    new = {
        name.replace("step/numba.py", "step/on_cores.py").replace("kernels/", "maths/"): re.sub(
            r"(kernels\.step(?:\.| import ))numba\b", r"\1on_cores", text
        ).replace("headcount.kernels", "headcount.maths")
        for name, text in files.items()
    }
    formatted = {f"{place.removeprefix('headcount.').replace('.', '/')}.py" for place in reached}
    assert formatted & new.keys()
    new |= {name: ast.unparse(ast.parse(new[name])) for name in formatted & new.keys()}
    assert Source.of_files(new, SCRIPTS).hash(BENCH) == before
    text = files["kernels/adam/plain.py"].replace("BETA1, BETA2, EPS = 0.9, 0.999", "BETA1, BETA2, EPS = 0.9, 0.99")
    sabotaged = {**files, "kernels/adam/plain.py": text}
    assert sabotaged != files
    assert Source.of_files(sabotaged, SCRIPTS).hash(BENCH) != before


def test_the_table_covers_every_result_and_names_what_exists():
    names = {path.stem for path in RESULTS.glob("*.json")}
    for name in names:
        for part in sources.parts_of(name).values():
            assert sources.source_now().definitions(part.entries), name
    unused = [form for form in sources.TABLE if not any(sources.fnmatchcase(name, form) for name in names)]
    assert unused == []
    with pytest.raises(LookupError, match="result_sources"):
        sources.parts_of("unheard-of")


# -- the list ------------------------------------------------------------------------------------------------


@pytest.fixture
def result(tmp_path: Path) -> Path:
    """A timing and an error in one file, measured with this code."""
    content = {
        "name": "built-tasks",
        "provenance": {"time": "2026-11-16T01:02:03+00:00"},
        "rows": [1.5],
        "source": sources.recorded("built-tasks"),
        "most_seconds": 3.0,
    }
    for part in content["source"].values():
        part["date"] = "2026-11-16"
    file = tmp_path / "built-tasks.json"
    file.write_text(json.dumps(content))
    return file


def outdated(file: Path, part: str) -> None:
    """Say that a part was measured with other code."""
    content = json.loads(file.read_text())
    content["source"][part]["hash"] = "0" * 32
    file.write_text(json.dumps(content))


def test_a_fresh_result_is_not_listed_and_one_of_other_code_is(result: Path):
    assert stale.stale_parts(result) == []
    files = package_files()
    text = files["theory/certify/worst_found.py"]
    constant = re.search(r"\nPOOL_SIZE = (\d+)", text)
    assert constant is not None
    sabotaged = {**files, "theory/certify/worst_found.py": text[: constant.start(1)] + "7" + text[constant.end(1) :]}
    (found,) = stale.stale_parts(result, Source.of_files(sabotaged, SCRIPTS))
    assert (found.part, found.date) == ("measured", "2026-11-16")
    assert found.covers("rows")


def test_a_result_without_a_source_is_listed(result: Path):
    content = json.loads(result.read_text())
    del content["source"]
    result.write_text(json.dumps(content))
    assert [one.part for one in stale.stale_parts(result)] == ["measured", "timed"]
    assert stale.what_changed(stale.stale_parts(result)[0]) == "the file names no source"


def test_rows_that_were_trained_before_keep_their_commit_and_date():
    trained = json.loads((RESULTS / "dimension-study.json").read_text())["source"]["measured"]
    told = sources.recorded("dimension-study", trained["commit"])
    assert told["measured"] == trained
    assert told["computed"]["hash"] == sources.source_now().hash(
        sources.parts_of("dimension-study")["computed"].entries
    )


def test_what_changed_is_named():
    before = Source.of_files(PACKAGE).definitions(ENTRIES)
    after = Source.of_files({**PACKAGE, "kernels/rates.py": "TWO = 2\ndef scaled(x):\n    return TWO * x\n"})
    assert stale.changes(before, after.definitions(ENTRIES)) == "changed kernels.rates:scaled; new kernels.rates:TWO"


def test_the_list_names_file_date_and_change(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    one = stale.Stale(RESULTS / "bench-cpu.json", "timed", "2026-01-02", "0" * 12)
    monkeypatch.setattr(stale, "all_stale", lambda: [one])
    assert stale.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("bench-cpu.json (timed): measured 2026-01-02; unknown: the history has no commit 000")
    assert lines[1].startswith("1 of ")


# -- renewing ------------------------------------------------------------------------------------------------


def test_a_timing_is_never_renewed(result: Path, capsys: pytest.CaptureFixture[str]):
    outdated(result, "timed")
    before = result.read_bytes()
    assert stale.main(["--renew", str(result)]) == 2
    assert "a timing cannot be renewed: measure it again" in capsys.readouterr().err
    assert result.read_bytes() == before


@pytest.mark.parametrize(
    ("again", "complaint"),
    [
        (None, "no sample of it is cheap"),
        (lambda _: {"rows": [1.5000000000000002]}, "rows differs with today's code"),
    ],
)
def test_an_error_without_equal_bits_is_not_renewed(again: Any, complaint: str, result: Path):
    outdated(result, "measured")
    before = result.read_bytes()
    reason = stale.renew(result, lambda _name, _part: again)["measured"]
    assert complaint in reason
    assert result.read_bytes() == before


def test_an_error_with_equal_bits_is_renewed(result: Path):
    outdated(result, "measured")
    outdated(result, "timed")
    found = stale.renew(result, lambda _name, _part: lambda _: {"rows": [1.5]})
    assert found["measured"] is None
    assert "cannot be renewed" in found["timed"]
    assert [one.part for one in stale.stale_parts(result)] == ["timed"]
    assert json.loads(result.read_text())["source"]["measured"]["renewed"]


def test_the_samples_belong_to_results():
    for name, part in stale.SAMPLES:
        assert part in sources.parts_of(name)
        assert part != "timed"
    assert stale.sample_of("paper-table2", "computed") is not None
    assert stale.sample_of("paper-table2", "measured") is None  # trained on a GPU
    assert stale.sample_of("advisor-study", "measured") is None


# -- marks ---------------------------------------------------------------------------------------------------

MARK = "(measured 2026-11-16, code changed since)"
FIGURE, FRESH = "[3 s](../built-tasks.json#most_seconds)", "[1.5](../built-tasks.json#rows.0)"
MARKED = {
    "in the paragraph": f"It takes {FIGURE}\n{MARK}.\n",
    "in the item": f"- a\n- {FIGURE} {MARK}\n- b\n",
    "above a table": f"{MARK}\n\n| a |\n| --- |\n| {FIGURE} |\n",
    "above the section": f"## A\n\nOlder {MARK}.\n\n{FIGURE}\n\n### B\n\n{FIGURE}\n",
    "a figure of a fresh part": f"It is {FRESH}.\n",
    "in a block": f"```text\n{FIGURE}\n```\n",
    "nothing": "Nothing.\n",
}
UNMARKED = {
    "no mark": f"It takes {FIGURE}.\n",
    "another date": f"It takes {FIGURE} {MARK.replace('16', '15')}.\n",
    "in another paragraph": f"It takes {FIGURE}.\n\nIt is {FRESH} {MARK}.\n",
    "in another item": f"- {FIGURE}\n- {FRESH} {MARK}\n",
    "in another section": f"## A\n\nOlder {MARK}.\n\n{FIGURE}\n\n## B\n\n{FIGURE}\n",
    "a mark too many": f"It is {FRESH} {MARK}.\n",
    "a mark of nothing": f"Older {MARK}.\n\n{FRESH}\n",
}


@pytest.fixture
def page(result: Path) -> Path:
    outdated(result, "timed")
    (result.parent / "docs").mkdir()
    return result.parent / "docs/page.md"


def stale_of(page: Path) -> list[Any]:
    return stale.stale_parts(page.parent.parent / "built-tasks.json")


@pytest.mark.parametrize("case", MARKED)
def test_a_marked_figure_passes(case: str, page: Path):
    page.write_text(f"# Page\n\n{MARKED[case]}")
    assert mark_problems(page, stale_of(page)) == []
    assert with_marks(page.read_text(), page, stale_of(page)) == page.read_text()


@pytest.mark.parametrize("case", UNMARKED)
def test_an_unmarked_figure_is_reported_and_can_be_marked(case: str, page: Path):
    page.write_text(f"# Page\n\n{UNMARKED[case]}")
    assert mark_problems(page, stale_of(page))
    page.write_text(with_marks(page.read_text(), page, stale_of(page)))
    assert mark_problems(page, stale_of(page)) == []
    page.write_text(with_marks(page.read_text(), page, []))
    assert "code changed since" not in page.read_text()


def test_many_stale_figures_share_one_mark_below_the_title(page: Path):
    page.write_text("# Page\n\n" + f"It takes {FIGURE}.\n\n" * 8)
    page.write_text(with_marks(page.read_text(), page, stale_of(page)))
    assert page.read_text().count(MARK) == 1
    assert mark_problems(page, stale_of(page)) == []
