"""Pages, pictures, terminal and command line of error rates: one set of words, and the part that was asked for."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from run_cases import made_case, made_runs

from headcount.analysis.measures import Part
from headcount.analysis.of_runs import analyse
from headcount.analysis.record import Analysis
from headcount.cli.analyse import show
from headcount.core.text.terminal import Terminal
from headcount.render.charts.of_run import error_by_heads, run_charts
from headcount.render.charts.terminal import print_run
from headcount.render.run_page import run_page, write_run_report
from headcount.render.run_tables import cell_table, cells_csv
from headcount.store.records import Run

sys.path.insert(0, str(Path(__file__).parent.parent / "reproduction"))
from real_cases import cifar_runs, marco_runs

PARTS: tuple[Part, ...] = ("train", "validation")


def said(html: str) -> str:
    """The words of a page, without its data and styles."""
    body = re.sub(r"<(script|style)\b.*?</\1>", " ", html, flags=re.S)
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", body))).replace(" :", ":")


def printed(draw: Any, found: Analysis, *more: Any) -> str:
    terminal = Terminal(width=100, file=io.StringIO(), record=True)
    draw(found, terminal, *more)
    return re.sub(r"\s+", " ", terminal.export_text())


def cases(on: Part) -> list[tuple[list[Run], Analysis]]:
    options: dict[str, Any] = {"heads": (1, 2, 4, 8, 12), "seeds": 2}
    runs = [marco_runs(lengths=(8, 32), **options), cifar_runs(lengths=(65, 257), **options)]
    return [(some, analyse(some, resamples=100, on=on)) for some in runs]


@pytest.mark.parametrize("on", PARTS)
def test_all_places_use_the_words_of_the_measure(on: Part) -> None:
    for runs, found in cases(on):
        noun = {"train": "Training error", "validation": "Validation error"}[on]
        axis = f"{noun} (1 − accuracy)"
        charts = run_charts(found, runs)
        errors = [c for c in charts if c.kind in ("error-by-heads", "error-by-length", "laws")]
        assert {c.y.label for c in errors} == {axis}
        assert charts[0].title == f"{noun} by number of heads"
        page, terminal, line = said(run_page(runs, found)), printed(print_run, found, runs), printed(show, found)
        data = {"train": "on the training data", "validation": "on the validation data"}[on]
        for text in (page, terminal, line):
            assert "NMSE" not in text
            assert f"error rate {data}" in text
            assert found.dimensions[0].sentence in text
            for note in found.notes:
                assert note in text
        assert "1 − top-1 accuracy" in page
        assert cell_table(found).caption == f"All cells (error rate {data})"
        assert "hidden size" not in line
        assert "N = 0" not in page + terminal + line


def check_zeros_told(runs: list[Run], found: Analysis) -> None:
    """The picture's notes, the page and the table of cells tell of errors of zero."""
    (note,) = found.notes
    assert note in error_by_heads(found, runs)[0].notes
    rows = list(csv.DictReader(io.StringIO(cells_csv(found))))
    zeros = sum(t.train_nmse == 0 for run in runs for t in run.trials)
    assert zeros > 0
    assert sum(int(row["floored"]) for row in rows) == zeros
    assert f"{zeros} trials have no wrong answer" in said(run_page(runs, found))
    assert {(row["measure"], row["on"]) for row in rows} == {("error rate", "train")}


def test_zeros_are_told_everywhere() -> None:
    runs = marco_runs(lengths=(8, 16), heads=(4, 8, 16), noise=0.0005)
    check_zeros_told(runs, analyse(runs, resamples=100, on="train"))


def test_zeros_that_nobody_tells_fail_the_check() -> None:
    """The twin: an analysis that forgot its notes, and one that forgot its counts."""
    runs = marco_runs(lengths=(8, 16), heads=(4, 8, 16), noise=0.0005)
    found = analyse(runs, resamples=100, on="train")
    hidden = [cell.model_copy(update={"floored": 0}) for cell in found.cells]
    for twin in ({"notes": []}, {"cells": hidden}):
        with pytest.raises((AssertionError, ValueError)):
            check_zeros_told(runs, found.model_copy(update=twin))


@pytest.mark.parametrize("on", PARTS)
def test_small_marks_are_the_trials_of_the_part(on: Part) -> None:
    runs, found = cases(on)[0]
    (chart,) = error_by_heads(found, runs)
    dots = sorted(p.y for s in chart.series if s.style == "dots" for p in s.points)
    errors = [t.train_nmse if on == "train" else t.nmse for run in runs for t in run.trials]
    least = 0.5 / runs[0].samples[on]
    assert dots == pytest.approx(sorted(e or least for e in errors if e is not None))


def test_the_line_of_guessing_is_that_of_the_task() -> None:
    _, (runs, found) = cases("validation")
    assert [(lev.y, lev.text) for lev in error_by_heads(found, runs)[0].levels] == [(0.9, "guessing at random")]
    marco, other = cases("validation")[0]  # candidates of 8 and 32: no one line is right for both
    assert error_by_heads(other, marco)[0].levels == []


def test_real_tasks_in_words() -> None:
    (marco, first), (cifar, second) = cases("validation")
    text = said(run_page(marco, first))
    assert "MS MARCO: of T passages one answers the query" in text
    assert "Each candidate (query and passage) enters as one vector" in text
    assert "10,000 samples" in text
    assert "all errors on this page are measured on them" in text
    text = said(run_page(cifar, second))
    assert "squares of 4 by 4 pixels" in text
    assert "one of 10 classes" in text
    one = said(run_page(cifar[:1], analyse(cifar[:1], resamples=100)))
    assert "frame of side 32" in one
    assert "T = 65" in one


def test_pages_of_training_nmse_say_so() -> None:
    runs = made_runs()
    found = analyse(runs, resamples=100, on="train")
    text = said(run_page(runs, found))
    assert "All cells (NMSE on the training sequences)" in text
    assert "that the model was trained on" in text
    assert error_by_heads(found, runs)[0].y.label == "Training error (NMSE)"
    runs, plain = made_case()
    assert "Training error" not in said(run_page(runs, plain))
    assert "floored" not in cells_csv(plain).splitlines()[0]


def test_reports_are_written(tmp_path: Path) -> None:
    runs, found = cases("train")[1]
    files = write_run_report(runs, found, tmp_path / "page")
    assert json.loads(files.analysis.read_text())["on"] == "train"
    assert Analysis.parse(json.loads(files.analysis.read_text())) == found
    assert all(path.stat().st_size > 1000 for path in files.pictures)
