"""The page of a whole run: whole, small, safe, and it says what was measured and what went wrong."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import re

import pytest
from run_cases import made_case, made_runs

from headcount.analysis.of_runs import analyse
from headcount.analysis.record import Analysis
from headcount.core.errors import BadInput
from headcount.render.charts import matplotlib as chart_draw
from headcount.render.charts.chart import Chart, PaperValue
from headcount.render.charts.html import script
from headcount.render.charts.of_run import run_charts
from headcount.render.run_page import run_page, write_run_report
from test_report import read

CASES = {
    "grid": {"diverged": 2, "failed": 1},
    "one panel": {"lengths": (8,), "targets": 1},
    "one seed": {"lengths": (8,), "targets": 1, "seeds": 1},
    "sizes": {"hidden": (16, 32, 64)},
    "settings": {"settings": ({"head_dim": 4}, {"head_dim": 8})},
    "all diverged": {"diverged": 10_000},
    "nothing done": {"failed": 10_000},
}
PAPER = [PaperValue(heads=h, length=8, value=v, label="paper, table 3") for h, v in ((1, 0.0175), (4, 1.32e-6))]


def embedded(html: str) -> list[Chart]:
    """The charts whose data a page carries."""
    found = re.findall(r'<script type="application/json">(.*?)</script>', html, flags=re.DOTALL)
    return [Chart.parse(json.loads(text)) for text in found]


def words(html: str) -> str:
    return re.sub(r"\s+", " ", " ".join(read(html).text))


@pytest.mark.parametrize("case", CASES)
def test_the_page_is_whole_and_loads_nothing(case):
    runs, analysis = made_case(**CASES[case])
    html = run_page(runs, analysis, PAPER)
    seen = read(html)
    assert {ref for ref in seen.references if not ref.startswith("#")} <= {"cells.csv", "analysis.json"}
    assert {ref[1:] for ref in seen.references if ref.startswith("#")} <= set(seen.ids)
    assert len(seen.ids) == len(set(seen.ids)), "an id twice"
    assert not {tag for tag, _ in seen.tags} & {"link", "iframe", "img", "object"}
    assert not re.search(r"https?://|@import|url\((?!#)|import\(|fetch\(|XMLHttpRequest", html)
    assert set(re.findall(r"url\(#([^)]+)\)", html)) <= set(seen.ids) | {"${clip}"}
    assert not {"nan", "none", "inf"} & set(" ".join(seen.text).lower().split())
    pictures = [a for tag, a in seen.tags if tag == "svg" and a.get("role") == "img"]
    assert all(len(attrs["aria-label"]) > 20 for attrs in pictures)


def test_only_the_packages_own_script_may_run():
    html = run_page(*made_case())
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', html).group(1)
    (code,) = re.findall(r"<script>(.*?)</script>", html, flags=re.DOTALL)
    named = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{named}'"
    assert code == script()
    assert len(code.encode()) < 24_000
    assert f"sha256-{base64.b64encode(hashlib.sha256((code + ' ').encode()).digest()).decode()}" not in policy


def test_it_says_what_was_found_and_what_went_wrong():
    runs, analysis = made_case(diverged=7, failed=3)
    text = words(run_page(runs, analysis))
    (found,) = analysis.dimensions
    assert found.estimate == 4
    assert all(part in text for part in found.sentence.split(": "))
    for reason in found.reasons:
        assert f"{reason.tag} {reason.text}" in text
    assert "60 trials: 50 done, 7 diverged, 3 failed" in text
    assert "7 diverged 3 failed" in text
    assert "known D = 4" in text
    assert "0123456789ab" in text
    clean = words(run_page(*made_case()))
    assert "60 trials: 60 done" in clean
    assert "diverged" not in clean
    assert "failed" not in clean


def test_three_thousand_trials_stay_small():
    for options in (
        {"lengths": (8, 16, 32), "targets": 20, "seeds": 10},
        {"lengths": (8,), "targets": 1, "seeds": 600},
    ):
        runs, analysis = made_case(**options)
        assert sum(len(run.trials) for run in runs) == 3000
        assert len(run_page(runs, analysis).encode()) < 600_000


def test_what_the_page_carries_is_what_the_pictures_are_drawn_from(tmp_path, monkeypatch):
    drawn: list[Chart] = []
    monkeypatch.setattr("headcount.render.run_page.picture", lambda chart, _: drawn.append(chart) or b"")
    runs, analysis = made_case(hidden=(16, 32))
    write_run_report(runs, analysis, tmp_path, PAPER)
    carried = embedded((tmp_path / "index.html").read_text(encoding="utf-8"))
    assert len(carried) > 5
    assert carried == drawn[::2] == drawn[1::2] == run_charts(analysis, runs, PAPER)
    # a twin with one number moved is not the same
    (tmp_path / "index.html").unlink()
    moved = carried[0].model_copy(update={"series": carried[0].series[1:]})
    assert [moved, *carried[1:]] != drawn[::2]


def test_everything_is_escaped():
    evil = '</script><script>alert(1)</script><b> & "quotes" $x$ {T}'
    runs = made_runs(
        name=evil,
        title=evil,
        task={"name": evil, "length": 8, "dim": 2},
        lengths=(8,),
        targets=1,
        settings=({"kind": evil}, {"kind": "b"}),
        provenance={"commit": evil, evil: evil},
    )
    reference = [PaperValue(heads=1, length=8, value=0.1, label=evil, setting=f"kind {evil}")]
    analysis = analyse(runs, resamples=100)
    html = run_page(runs, analysis, reference)
    seen = read(html)
    assert [tag for tag, _ in seen.tags].count("script") == 1 + len(embedded(html))
    assert "alert" not in "".join(re.findall(r"<script>(.*?)</script>", html, flags=re.DOTALL))
    assert "<b> &" not in html
    assert "alert(1)" in "".join(seen.text)
    assert any(evil in s.name for chart in embedded(html) for s in chart.series)
    chart_draw.picture(embedded(html)[0], dpi=30)


def test_the_folder_is_whole_and_the_same_every_time(tmp_path):
    runs, analysis = made_case(diverged=2)
    first, second = (write_run_report(runs, analysis, tmp_path / name, PAPER) for name in "ab")
    names = sorted(p.name for p in (tmp_path / "a").iterdir())
    kinds = ("error-by-heads", "error-by-length", "laws", "spread")
    assert names == sorted(
        ["index.html", "cells.csv", "analysis.json", *(f"{k}.{e}" for k in kinds for e in ("png", "pdf"))]
    )
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name
    assert first.pictures[0].read_bytes().startswith(b"\x89PNG")
    assert Analysis.parse(json.loads(second.analysis.read_text(encoding="utf-8"))) == analysis
    rows = list(csv.DictReader(io.StringIO(first.cells.read_text(encoding="utf-8"))))
    assert [float(row["best"]) for row in rows] == [cell.best for cell in analysis.cells]
    assert [len(row["by_target"].split()) for row in rows] == [cell.targets for cell in analysis.cells]
    bare = made_case(lengths=(8,), targets=1, seeds=1)
    write_run_report(*bare, tmp_path / "a")  # an earlier report is replaced, whatever it held
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == [
        "analysis.json",
        "cells.csv",
        "error-by-heads.pdf",
        "error-by-heads.png",
        "index.html",
    ]


def test_a_folder_of_the_user_is_refused(tmp_path):
    case = made_case(lengths=(8,), targets=1, seeds=1)
    for name in ("thesis.tex", "index.html", "laws.svg", "scaling-x.png"):
        folder = tmp_path / name.replace(".", "-")
        folder.mkdir()
        (folder / name).write_text("mine")
        with pytest.raises(BadInput, match="holds other files"):
            write_run_report(*case, folder)
        assert [p.read_text() for p in folder.iterdir()] == ["mine"]
    with pytest.raises(BadInput, match="not a folder"):
        write_run_report(*case, tmp_path / "thesis-tex" / "thesis.tex")


def test_nothing_is_written_where_drawing_fails(tmp_path, monkeypatch):
    def broken(*_: object) -> bytes:
        raise MemoryError

    monkeypatch.setattr("headcount.render.run_page.picture", broken)
    with pytest.raises(MemoryError):
        write_run_report(*made_case(), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_the_paper_stands_beside_ours():
    runs, analysis = made_case()
    text = words(run_page(runs, analysis, PAPER))
    assert "Compared with the paper" in text
    (ours,) = (c for c in analysis.cells if (c.heads, c.length) == (4, 8))
    assert ours.best is not None
    rings = [s for s in run_charts(analysis, runs, PAPER)[0].series if s.style == "rings"]
    assert [(p.x, p.y) for s in rings for p in s.points] == [(1.0, 0.0175), (4.0, 1.32e-6)]
    assert "Compared with the paper" not in words(run_page(runs, analysis))
