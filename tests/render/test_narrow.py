"""No number is cut, however narrow the terminal."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from run_cases import made_case, made_runs

from headcount.cli import analyse as verb
from headcount.core.errors import BadInput
from headcount.core.text.terminal import Terminal
from headcount.render.charts.terminal import print_run
from headcount.render.narrow import parts, print_table, widened

SETTINGS = ({"kind": "a rather long name of a setting"}, {"kind": "[b]"})


def numbers(text: str) -> list[str]:
    return re.findall(r"[-−]?\d[\d,.]*(?:e-?\d+)?", text)


@pytest.mark.parametrize("width", [24, 40, 60, 80, 110])
def test_every_number_appears_whole(width: int):
    _, analysis = made_case(hidden=(16, 32), settings=SETTINGS, failed=3)
    screen = io.StringIO()
    verb.show(analysis, Terminal(file=screen, width=width))
    shown = screen.getvalue()
    assert "…" not in shown
    found = numbers(shown)
    for table in verb.tables(analysis):
        for row in table.rows:
            for number in numbers(" ".join(row)):
                assert number in found, (table.title, row)
    if width >= 60:
        assert max(len(line.rstrip()) for line in shown.splitlines()) <= width


@pytest.mark.parametrize("width", [60, 80])
def test_the_cells_of_the_report_are_whole_too(width: int):
    runs, analysis = made_case(hidden=(16, 32), settings=SETTINGS)
    screen = io.StringIO()
    print_run(analysis, Terminal(file=screen, width=width), runs)
    shown = screen.getvalue().split("All cells")[1]
    assert "…" not in shown
    assert {f"{c.parameters:,}" for c in analysis.cells} <= set(numbers(shown))
    assert "[b]" in shown
    assert max(len(line.rstrip()) for line in shown.splitlines()) <= width


def test_columns_go_below_each_other():
    assert parts([2, 5, 5, 5], 1, 30) == [[0, 1, 2, 3]]
    assert parts([2, 5, 5, 5], 1, 23) == [[0, 1, 2, 3]]
    assert parts([2, 5, 5, 5], 1, 22) == [[0, 1, 2], [0, 3]]
    assert parts([20, 50, 5], 1, 10) == [[0, 1], [0, 2]]
    assert widened({0: (3, 3), 1: (2, 10)}, 12) == {0: 3, 1: 7}
    assert widened({0: (3, 3), 1: (2, 10)}, 4) == {0: 3, 1: 2}
    screen = io.StringIO()
    print_table(Terminal(file=screen, width=9), "t", ["T", "a", "b"], [["8", "0.123", "4.5e-6"]], keys=1)
    assert [line.split() for line in screen.getvalue().splitlines() if "8" in line] == [["8", "0.123"], ["8", "4.5e-6"]]


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    from headcount.store.store import Store
    from headcount.sweeps import results as room

    Store.open(tmp_path / "store").close()
    monkeypatch.setattr(room, "stored_runs", lambda store, run: made_runs(targets=1))
    return tmp_path / "store"


def test_a_pipe_is_as_wide_as_columns_says(stored: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    widths: list[int] = []
    for columns in ("50", "200", ""):
        monkeypatch.setenv("COLUMNS", columns)
        assert verb.analyse("grid", store=stored, resamples=100) == 0
        tables = capsys.readouterr().out.split("Best NMSE")[1].splitlines()
        widths.append(max(len(line.rstrip()) for line in tables if "─" in line))
    assert widths[0] <= 50
    assert widths[0] < widths[2] <= 110 < widths[1]


def test_a_folder_as_out_is_refused_before_the_work(stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "a.json").mkdir()
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("headcount.analysis.of_runs.analyse", lambda *_, **__: pytest.fail("worked first"))
    with pytest.raises(BadInput, match=r"a\.json is a folder"):
        verb.analyse("grid", store=stored, out=tmp_path / "a.json")
    with pytest.raises(BadInput, match="cannot be|can be written"):
        verb.analyse("grid", store=stored, out=tmp_path / "file" / "b.json")
    assert list((tmp_path / "a.json").iterdir()) == []
