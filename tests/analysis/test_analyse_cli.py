"""`headcount analyse`: sentences and tables, JSON, a file, and one line for bad input."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from analyse_cases import panel, planted, trial, with_dimension

from headcount.analysis.of_runs import analyse
from headcount.analysis.record import Analysis
from headcount.cli import analyse as verb
from headcount.core.errors import BadInput
from headcount.core.text.terminal import Terminal


def printed(found: Analysis) -> str:
    stream = io.StringIO()
    verb.show(found, Terminal(file=stream, width=400))
    return stream.getvalue()


def test_everything_is_printed():
    runs = planted(lambda h, T, N: with_dimension(3)(h, T, N) * (16 / N) ** 2, lengths=(8, 16), hidden=(16, 32))
    runs[0] = runs[0].model_copy(update={"left_out": {"failed": 3}, "trials": [*runs[0].trials, trial(1, 9, None)]})
    found = analyse(runs, resamples=100)
    text = printed(found)
    assert found.dimensions[0].sentence in text
    assert all(reason.text in text for reason in found.dimensions[0].reasons)
    assert "1 diverged, 3 failed" in text.splitlines()[0]
    titles = (
        "Best NMSE",
        "Median NMSE",
        "How many times smaller",
        "Slope of log error in log T",
        "Reversal score",
        "Slope of log error in log N",
        "Parameters M",
        "Laws of the error",
    )
    assert [title for title in titles if title not in text] == []


def test_settings_are_named_and_brackets_are_kept():
    runs = [panel([trial(h, 0, 0.1 / h) for h in (1, 2)], length=8, kind=kind) for kind in ("[bold]a", "b")]
    text = printed(analyse(runs, resamples=100))
    assert "kind [bold]a: " in text
    assert "setting" in text


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A store whose run is planted."""
    from headcount.api import stored as room
    from headcount.store.store import Store

    Store.open(tmp_path / "store").close()
    monkeypatch.setattr(room, "stored_runs", lambda store, run: planted(with_dimension(2), heads=range(1, 5)))
    return tmp_path / "store"


def test_json_and_file_hold_the_analysis(stored, tmp_path, capsys):
    assert verb.analyse("planted", store=stored, resamples=100, json=True, out=tmp_path / "a.json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown == json.loads((tmp_path / "a.json").read_text())
    assert Analysis.parse(shown).dimensions[0].estimate == 2


def test_the_terminal_names_the_file(stored, tmp_path, capsys):
    assert verb.analyse("planted", store=stored, resamples=100, out=tmp_path / "a.json") == 0
    out = capsys.readouterr().out
    assert "2 heads are needed" in out
    assert "a.json" in out


def test_bad_input_is_refused(stored, tmp_path):
    with pytest.raises(BadInput, match=r"\.json"):
        verb.analyse("planted", store=stored, out=tmp_path / "a.txt")
    with pytest.raises(BadInput, match="resamples"):
        verb.analyse("planted", store=stored, resamples=0)
    with pytest.raises(BadInput):
        verb.analyse("planted", store=tmp_path / "none")
