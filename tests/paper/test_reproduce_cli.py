"""`headcount reproduce`: real training at the smallest scale, stopped and taken up again, and every file it writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

SMOKE = ("--scale", "smoke")


def test_a_table_is_trained_stopped_taken_up_and_shown(tmp_path: Path, headcount_here: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    cut = headcount_here("reproduce", "table4", *SMOKE, "--for", "0.5s", "--json")
    assert cut.returncode == 0
    assert json.loads(cut.stdout)["unfinished"] > 0
    whole = headcount_here("reproduce", "table4", *SMOKE)
    assert whole.returncode == 0
    assert "paper" in whole.stdout
    assert "Not finished" not in whole.stdout
    again = headcount_here("reproduce", "table4", *SMOKE, "--json")  # nothing is left to train: it only shows
    told = json.loads(again.stdout)
    assert told["unfinished"] == 0
    assert told["shown"]["table4"]["counts"]["done"] == 16
    folder = tmp_path / "reproduce-table4"
    files = {p.name for p in (folder / "table4").iterdir()}
    assert files == {
        "table4.md", "table4.csv", "trials.csv", "provenance.json", "error-by-heads.png", "error-by-heads.pdf",
    }  # fmt: skip
    text = (folder / "table4" / "table4.md").read_text()
    assert "1.1e-3" in text or "0.0011" in text  # the paper's h = 2, T = 8
    assert "most like" not in text  # one draw is not compared with itself
    page = (folder / "table4-page" / "index.html").read_text()
    assert "paper, table 4" in page
    assert len((folder / "table4" / "trials.csv").read_text().splitlines()) == 17
    origin = json.loads((folder / "table4" / "provenance.json").read_text())
    assert origin["counts"]["done"] == 16
    assert origin["provenance"]["machine"]["device"] == "cpu"


def test_the_list(headcount_here: Any) -> None:
    found = json.loads(headcount_here("reproduce", "--json").stdout)
    assert {"table2", "figure2e", "wide-head"} <= set(found["names"])
    assert "synthetic" in headcount_here("reproduce").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tabel2",), "table2"),
        (("table2", "--scale", "huge"), "huge"),
        (("table2", "--workers", "0"), "--workers"),
        (("table2", "--for", "soon"), "soon"),
        (("table2", "--out", "taken"), "is a file"),
        (("table2", "--device", "tpu"), "tpu"),
    ],
)
def test_bad_input_is_one_line(
    arguments: tuple[str, ...], message: str, tmp_path: Path, headcount_here: Any, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("mine")
    result = headcount_here("reproduce", *arguments)
    assert result.returncode == 2
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["taken"]
