"""No figure without a result file: what README and docs claim is what was measured (how: tests/claims.py)."""

from __future__ import annotations

import copy
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.stale import all_stale
from claims import MARK, NUMBER, claim_problems
from computed import COMPUTED, Results
from computed.rows import WORDS, at_least, at_most, digits, listed, share, span
from documents import document_paths
from marks import mark_problems
from results import RESULTS, result_problems, write_result
from support import REPO

DOCUMENTS = [*document_paths(REPO), REPO / "CHANGELOG.md"]


@pytest.mark.parametrize("document", DOCUMENTS, ids=[str(path.relative_to(REPO)) for path in DOCUMENTS])
def test_every_figure_is_in_a_result_file(document: Path):
    problems = claim_problems(document, RESULTS)
    assert not problems, "\n" + "\n".join(problems)


@pytest.fixture(scope="module")
def stale_figures() -> list[Any]:
    return all_stale()


@pytest.mark.parametrize("document", DOCUMENTS, ids=[str(path.relative_to(REPO)) for path in DOCUMENTS])
def test_stale_figures_are_marked(document: Path, stale_figures: list[Any]):
    problems = mark_problems(document, stale_figures)
    assert not problems, "python -m benchmarks.stale --mark\n" + "\n".join(problems)


def test_every_result_says_where_it_comes_from():
    files = sorted(RESULTS.glob("*.json"))
    assert files, "benchmarks/results is empty: make test-slow writes it"
    assert [problem for path in files for problem in result_problems(path)] == []
    others = [p for p in RESULTS.iterdir() if p.suffix != ".json" and not p.name.startswith(".")]
    # a table of trials has the result of its name beside it, which says where both come from
    assert [p.name for p in others if p.suffix != ".csv" or not p.with_suffix(".json").exists()] == []


# -- the check itself can fail ------------------------------------------------------------------------------

PAYLOAD = {
    "drop": 139.6,
    "nmse": [2.6e-2, 8.14e-6],
    "seconds": 0.2749,
    "share": 0.933,
    "heads": {"best": 4},
    "ok": True,
}


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """A document in docs/ beside a folder of results."""
    write_result("demo", PAYLOAD, seeds=[0, 1], counts={"trials": 10}, folder=tmp_path / "results", commit="0" * 12)
    (tmp_path / "docs").mkdir()
    return tmp_path / "docs/page.md"


def problems_of(page: Path, text: str) -> list[str]:
    page.write_text(text.replace("(demo", "(../results/demo.json"), encoding="utf-8")
    return claim_problems(page, page.parent.parent / "results")


GOOD = {
    "integer": "the error falls [140 times](demo#drop) here",
    "one digit more": "[139.6×](demo#drop)",
    "scientific": "NMSE [8.1e-6](demo#nmse.1) and [0.026](demo#nmse.0)",
    "with unit": "in [0.27 s](demo#seconds)",
    "over a line": "in [0.27\ns](demo#seconds)",
    "percent": "[93%](demo#share) of them",
    "exact": "[4](demo#heads.best) heads",
    "the file": "[all results](demo)",
    "a string": "of [demo](demo#name)",
    "inline code": "`--eps 3e-5` takes `0.27 s`",
    "a block": "```text\n0.27 s\n```",
    "exempt": "below 3e-5 <!-- not measured: the paper's number -->",
    "words": "under two minutes, a hundred times faster",
    "sizes": "4 heads, T = 128, a 3 × 4 grid, 2 cores, version 2.10, arXiv 2510.06662, 8 seeds, 4 × heads",
    "an address": "https://example.org/a%20b/5%25 and [paper](https://example.org/1e-5)",
    "a table of definitions": "| heads | 4 |\n| --- | --- |\n| n | 8 |",
    "computed": "It falls by 5 % in all 30 cells. <!-- computed: tested -->",
    "computed over lines": "**It** falls (by 5 %\nin all 30\u00a0cells). <!-- computed: tested -->",
}

BROKEN = {
    "wrong number": "[141 times](demo#drop)",
    "too generous": "[100 times](demo#drop)",
    "wrong last digit": "[8.2e-6](demo#nmse.1)",
    "digits it does not have": "[0.275 s](demo#nmse.0)",
    "percent": "[0.93%](demo#share)",
    "missing file": "[140](../results/other.json#drop)",
    "a file elsewhere": "[140](../demo.json#drop)",
    "missing path": "[140](demo#fall)",
    "path too deep": "[140](demo#drop.x)",
    "index too high": "[8.1e-6](demo#nmse.2)",
    "no path": "[140](demo)",
    "not a number": "[1](demo#ok)",
    "not that string": "[domo](demo#name)",
    "two numbers": "[140 of 150](demo#drop)",
    "no number": "[many](demo#drop)",
    "exempt without a reason": "3e-5 <!-- not measured: -->",
    "exempt on another line": "3e-5\n<!-- not measured: the paper's -->",
    "text of another link": "[3e-5](https://example.org)",
    "decimal cell": "| a | b |\n| --- | --- |\n| x | 0.0003 |",
    "exempt for what our rows say": "3e-5 <!-- not measured: read from the picture -->",
    "computed by nothing": "in all 30 cells <!-- computed: fables -->",
    "computed without a name": "in all 30 cells <!-- computed -->",
    "computed wrongly": "in 29 of 30 cells <!-- computed: tested -->",
    "computed elsewhere": "by five in all 30 cells, but not in others <!-- computed: tested -->",
    "part of a larger number": "by 15 in all 30 cells <!-- computed: tested -->",
    "computed from rows that do not bear it": "in all cells <!-- computed: untrue -->",
}
UNLINKED = (
    "0.27 s",
    "27 ms",
    "12 µs",
    "90 seconds",
    "2 minutes",
    "200 MB",
    "1.5 GiB",
    "93%",
    "93 %",
    "140×",
    "140x",
    "140 times larger",
    "3 times as fast",
    "10-fold",
    "a factor of 12",
    "3e-5",
    "1.4e-5",
    "3·10⁻⁵",
    "10^-6",
    "NMSE of 0.0003",
    "an accuracy of 0.93",
    "2.5× faster",
    "1.5\nseconds",
)


@pytest.fixture
def _tested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMPUTED, "tested", lambda results: "by 5 % in all 30 cells")
    monkeypatch.setitem(COMPUTED, "untrue", lambda results: results.json("demo")["no such key"])


@pytest.mark.usefixtures("_tested")
@pytest.mark.parametrize("case", GOOD)
def test_a_good_claim_passes(case, page):
    assert problems_of(page, GOOD[case]) == []


@pytest.mark.usefixtures("_tested")
@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_claim_is_reported(case, page):
    assert len(problems_of(page, BROKEN[case])) == 1


@pytest.mark.parametrize("figure", UNLINKED)
def test_an_unlinked_figure_is_reported(figure, page):
    problems = problems_of(page, f"It takes\n{figure}, or so.\n")
    assert len(problems) == 1, problems
    assert problems[0].startswith("page.md:2: ")


def test_a_missing_document_is_reported(tmp_path):
    assert claim_problems(tmp_path / "README.md", tmp_path)


@pytest.mark.parametrize("key", ["name", "provenance", "source", "seeds", "counts"])
def test_a_result_without_its_origin_is_reported(key, page):
    path = page.parent.parent / "results/demo.json"
    assert result_problems(path) == []
    result = json.loads(path.read_text())
    del result[key]
    path.write_text(json.dumps(result))
    assert result_problems(path)


def test_write_result_refuses_what_the_check_would(tmp_path):
    with pytest.raises(ValueError, match="seeds"):
        write_result("demo", {"seeds": 3}, seeds=[0], counts={"n": 1}, folder=tmp_path, commit="0" * 12)
    with pytest.raises(ValueError, match="counts"):
        write_result("demo", {}, seeds=[0], counts={}, folder=tmp_path, commit="0" * 12)
    with pytest.raises(ValueError, match="JSON"):
        write_result("demo", {"x": float("nan")}, seeds=[0], counts={"n": 1}, folder=tmp_path, commit="0" * 12)
    with pytest.raises(LookupError, match="result_sources"):
        write_result("a", {}, seeds=[0], counts={"n": 1}, folder=tmp_path, commit="0" * 12)
    assert list(tmp_path.iterdir()) == []


# -- what is computed from the rows -------------------------------------------------------------------------

MARKED = [path for path in DOCUMENTS if MARK.search(path.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("document", MARKED, ids=[path.name for path in MARKED])
def test_a_changed_number_of_a_computed_statement_is_reported(document: Path, tmp_path: Path):
    """Every number before a mark, changed by one in a copy of the document."""
    text = document.read_text(encoding="utf-8")
    results = Results(RESULTS)
    changed = text
    for mark in reversed(list(MARK.finditer(text))):
        words = r"\s+".join(map(re.escape, COMPUTED[mark[1]](results).split()))
        phrase = re.search(rf"{words}[.,;:)]*\s*\Z", text[: mark.start()])
        assert phrase is not None
        first = re.search(rf"{NUMBER.pattern}|\b(?:{'|'.join(WORDS)})\b", phrase[0])
        assert first is not None, "a computed statement holds a number"
        other = "nine" if first[0].isalpha() else f"{first[0][:-1]}{(int(first[0][-1]) + 1) % 10}"
        start = phrase.start() + first.start()
        changed = changed[:start] + other + changed[start + len(first[0]) :]
    (tmp_path / "docs").mkdir()
    copied = tmp_path / "docs" / document.name
    copied.write_text(changed, encoding="utf-8")
    told = [problem for problem in claim_problems(copied, RESULTS) if ": computed: " in problem]
    assert len(told) == len(MARK.findall(text))


class Spoiled(Results):
    """The same files with every measured number changed at random, and some rows missing."""

    def json(self, name: str) -> Any:
        fresh = f"{name}.json" not in self._read
        value = super().json(name)
        if fresh:
            value = self._read[f"{name}.json"] = _spoil(copy.deepcopy(value), random.Random(name))
        return value

    def rows(self, name: str) -> list[dict[str, Any]]:
        fresh = name not in self._read
        rows = super().rows(name)
        if fresh:
            draw = random.Random(name)
            measured = ("nmse", "accuracy", "train_accuracy", "parameters_total")
            rows = [{k: _spoil(v, draw) if k in measured else v for k, v in row.items()} for row in rows]
            rows = [row for row in rows if row["seed"] < 2 or draw.random() < 0.7]
            rows = self._read[name] = rows[: len(rows) - 9 * (name == "real-marco-long")]
        return rows


def _spoil(value: Any, draw: random.Random, key: str = "") -> Any:
    """Change every measured number; what says where a number was measured stays."""
    if isinstance(value, dict):
        kept = ("task", "model", "heads", "lengths")
        return {k: v if k in kept and isinstance(v, dict | list) else _spoil(v, draw, k) for k, v in value.items()}
    if isinstance(value, list):
        return [_spoil(v, draw, key) for v in value[: len(value) - (key in ("typical", "all", "random"))]]
    if key == "device":
        return "another"
    if key in ("deviations_proved", "high") and value is None:
        return 9.0
    if key in ("length", "heads", "seed", "intrinsic", "level", "layer", "claim", "part", "setting"):
        return value
    if isinstance(value, str):
        return re.sub(r"\d+\.\d+|(?<=in )\d+", lambda number: f"{float(number[0]) + 1:.2f}", value)
    if isinstance(value, bool):
        return draw.random() < 0.5
    if isinstance(value, int):
        return value + draw.randint(1, 3)
    return value * 10 ** draw.uniform(-2, 4) if isinstance(value, float) else value


@pytest.mark.parametrize("name", COMPUTED)
def test_other_rows_give_another_statement(name: str):
    """A function that returns its words whatever the rows are would prove nothing."""
    try:
        other = COMPUTED[name](Spoiled(RESULTS))
    except (AssertionError, ValueError, IndexError):
        return
    assert other != COMPUTED[name](Results(RESULTS))


def test_every_statement_that_is_computed_stands_in_a_document():
    marked = {name for path in MARKED for name in MARK.findall(path.read_text(encoding="utf-8"))}
    assert sorted(marked) == sorted(COMPUTED)


def test_numbers_are_written_as_documents_do():
    assert [digits(x) for x in (3.574, 1582.0, 6.36e-5, 0.0999, 26.0, 0.996)] == [
        "3.6",
        "1,600",
        "6.4e-5",
        "0.10",
        "26",
        "1.0",
    ]
    assert (at_most(1.03), at_least(16.9), at_most(2.3274e-8), at_least(2.496)) == ("1.1", "16", "2.4e-8", "2.4")
    assert span([3.0, 1.26, 2.0]) == "1.3 to 3.0"
    assert (listed([8]), listed([16, 32, 64])) == ("8", "16, 32 and 64")
    assert (share([True, True]), share([True, False])) == ("all 2", "1 of 2")
