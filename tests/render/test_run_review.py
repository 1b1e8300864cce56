"""What a run's page says is true of unfinished, uneven and odd runs too, and charts of other rooms have a place."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from run_cases import made_case
from test_run_page import PAPER, embedded, words

from headcount.analysis.of_runs import analyse
from headcount.analysis.record import Analysis, EqualError, Scaling
from headcount.core.errors import BadInput
from headcount.core.text.terminal import Terminal
from headcount.render.charts.chart import Axis, Chart, ChartSeries, Dot, PaperValue, whole_axis
from headcount.render.charts.of_run import no_size, run_charts
from headcount.render.charts.series import dot, level, missing_trials
from headcount.render.charts.terminal import LINE_MARKS, character_chart, print_run
from headcount.render.run_page import MAX_TITLE, run_page, write_run_report
from headcount.render.run_tables import paper_table, scaling_table
from headcount.render.words.run import done, known, rises
from headcount.store.records import Run


def made_extra(name: str = "reversal", **changes: object) -> Chart:
    points = [Dot(x=float(h), y=y, low=y - 0.1, high=y + 0.1, text="p = 0.02") for h, y in ((1, 0.0), (2, 0.4))]
    fields: dict[str, object] = {
        "id": name,
        "kind": name,
        "title": "Weighted reversal score",
        "alt": "Line chart of the reversal score.",
        "x": whole_axis("Heads", [1, 2]),
        "y": Axis(label="R(h)", scale="linear", low=-1, high=1, ticks=[(0.0, "0"), (1.0, "1")]),
        "series": [ChartSeries(name="ours", style=style, points=points) for style in ("band", "line")],
    }
    return Chart.model_validate({**fields, **changes})


# -- the known D ----------------------------------------------------------------------------------------------


def with_dimensions(*dimensions: int | None) -> tuple[list[Run], Analysis]:
    settings = tuple({"setting": f"D = {D}" if D else f"kind {i}"} for i, D in enumerate(dimensions))
    runs, _ = made_case(settings=settings)
    each = len(runs) // len(settings)
    runs = [run.model_copy(update={"intrinsic": dimensions[i // each]}) for i, run in enumerate(runs)]
    return runs, analyse(runs, resamples=100)


def test_every_setting_is_compared_with_its_own_dimension():
    runs, analysis = with_dimensions(4, 2)
    assert analysis.intrinsic is None
    assert [d.estimate for d in analysis.dimensions] == [4, 4]
    text = words(run_page(runs, analysis))
    assert "Theory knows no D" not in text
    assert "D = 4: the estimate fits; D = 2: the estimate is 4 and does not fit." in text
    marks = {c.subtitle: [m.text for m in c.marks] for c in run_charts(analysis, runs) if c.kind == "error-by-heads"}
    assert marks == {"D = 4, N = 32": ["known D = 4"], "D = 2, N = 32": ["known D = 2"]}
    screen = io.StringIO()
    print_run(analysis, Terminal(file=screen, width=200), runs)
    assert "D = 4: the estimate fits" in screen.getvalue()


def test_a_setting_without_a_dimension_is_told_apart():
    runs, analysis = with_dimensions(4, None)
    assert "D = 4: the estimate fits; kind 1: no D is known." in known(analysis, runs)
    assert known(analysis).startswith("There is no one known D on record")
    none = with_dimensions(None, None)
    assert known(none[1], none[0]).startswith("Theory knows no D for this task")
    runs, analysis = made_case(targets=2)
    mixed = [run.model_copy(update={"intrinsic": i}) for i, run in enumerate(runs)]
    assert "one setting were built with different D" in known(analysis.model_copy(update={"intrinsic": None}), mixed)


# -- charts and remarks of other rooms --------------------------------------------------------------------------


def test_extra_charts_stand_at_the_top_and_are_drawn_too(tmp_path: Path):
    runs, analysis = made_case(lengths=(8,), targets=1, seeds=1)
    extra = [made_extra(), made_extra("a-name-of-their-own")]
    files = write_run_report(runs, analysis, tmp_path, PAPER, remarks=["the paper's a_i are <unknown>"], extra=extra)
    html = files.page.read_text(encoding="utf-8")
    assert [chart for chart in embedded(html) if chart in extra] == extra
    assert [chart for chart in embedded(html) if chart not in extra] == run_charts(analysis, runs, PAPER)
    section = re.search(r"<h2>Compared with the paper</h2>(.*?)</section>", html, flags=re.DOTALL).group(1)
    assert "<li>the paper's a_i are &lt;unknown&gt;</li>" in section.replace("&#39;", "'")
    names = {f"{name}.{e}" for name in ("reversal", "a-name-of-their-own") for e in ("png", "pdf")}
    assert names < {p.name for p in files.pictures} <= {p.name for p in tmp_path.iterdir()}
    write_run_report(runs, analysis, tmp_path)  # the next report knows them from the page, and takes them away
    assert not names & {p.name for p in tmp_path.iterdir()}
    (tmp_path / "a-name-of-their-own.png").write_text("mine")
    with pytest.raises(BadInput, match="holds other files"):
        write_run_report(runs, analysis, tmp_path)


def test_extra_charts_share_no_name_and_none_is_shown_twice():
    runs, analysis = made_case()
    own = run_charts(analysis, runs)
    other = own[1].model_copy(update={"title": "another"})
    empty = made_extra("steps", series=[])
    shown = embedded(run_page(runs, analysis, extra=[own[0], other, made_extra(), made_extra(), empty]))
    assert [c.id for c in shown[:4]] == ["error-by-heads", f"{own[1].id}-2", "reversal", "reversal-2"]
    assert shown[4:] == own[1:]
    assert "Compared with the paper" not in words(run_page(runs, analysis))
    assert "only a remark" in words(run_page(runs, analysis, remarks=["only a remark"]))


def test_the_paper_stands_beside_mean_best_and_median():
    runs, analysis = made_case()
    (cell,) = (c for c in analysis.cells if (c.heads, c.length) == (4, 8))
    reference = [
        PaperValue(heads=4, length=8, value=0.01, low=0.008, high=0.012),
        PaperValue(heads=4, length=8, value=0.01, deviation=0.02),
        PaperValue(heads=4, length=8, value=0.01),
    ]
    table = paper_table(analysis, reference)
    names = [c.name for c in table.columns]
    assert [row[names.index("Paper")] for row in table.rows] == ["0.010 ± 0.0020", "0.010 ± 0.020", "0.010"]
    shown = dict(zip(names, table.rows[0], strict=True))
    for name, error in (("Here", level(cell)), ("Best", cell.best), ("Median", cell.median)):
        assert float(shown[name]) == pytest.approx(error, rel=0.06)
    text = words(run_page(runs, analysis, reference))
    assert "mean over targets (in log scale), best seed of each" in text
    assert "(mean over targets, best seed of each)" in table.caption


# -- what became of the trials ----------------------------------------------------------------------------------


def test_a_point_says_how_many_trials_are_behind_it():
    _, analysis = made_case(lengths=(8,), targets=1, seeds=8)
    cell = analysis.cells[0]
    assert dot(cell, 1.0).text == "best of 8 seeds"
    assert dot(cell.model_copy(update={"missing": 5, "diverged": 2}), 1.0).text == "best of 1 finished (8 planned)"
    many = made_case(failed=1)[1].cells[-1]
    assert dot(many, 1.0).text == "mean of 2 targets, best seed of each (5 of 6 trials finished)"


def test_planned_seeds_are_named_beside_those_that_ran():
    runs, _ = made_case(lengths=(8,), targets=1, seeds=8)
    assert dict(done(runs))["Seeds"].startswith("8 random starts per head count")
    some = [run.model_copy(update={"trials": [t for t in run.trials if t.seed < 6]}) for run in runs]
    assert dict(done(some))["Seeds"] == "6 of 8 planned random starts per head count: 0 to 5"


def test_lost_trials_are_told_by_state():
    runs, analysis = made_case(failed=7, diverged=2)
    states = [{"failed": 3, "pending": 4} if run.left_out else {} for run in runs]
    runs = [run.model_copy(update={"left_out": left}) for run, left in zip(runs, states, strict=True)]
    chart = run_charts(analysis, runs)[0]
    assert chart.notes == ["Not shown: of 60 trials, 2 diverged, 3 failed and 4 pending."]
    assert missing_trials(analysis.cells) == ["Not shown: of 60 trials, 2 diverged and 7 without a result."]
    assert run_charts(analysis)[0].notes == ["Not shown: of 60 trials, 2 diverged and 7 failed."]
    # of two sizes each chart tells its own
    runs, analysis = made_case(hidden=(16, 32), failed=3)
    notes = [c.notes for c in run_charts(analysis, runs) if c.kind == "error-by-heads"]
    assert notes == [[], ["Not shown: of 60 trials, 3 failed."]]


# -- folders in the way -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["analysis.json", "error-by-heads.png", "reversal.pdf"])
def test_a_folder_in_the_way_is_refused_before_anything_is_written(tmp_path: Path, name: str):
    (tmp_path / name).mkdir()
    with pytest.raises(BadInput, match=f"{name} is a folder"):
        write_run_report(*made_case(lengths=(8,), targets=1, seeds=1), tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == [name]


# -- odd runs -------------------------------------------------------------------------------------------------------


def test_without_a_chart_nothing_is_said_about_charts():
    runs, analysis = made_case(diverged=10_000)
    text = words(run_page(runs, analysis))
    assert "Point at a mark" not in text
    assert "Intervals hold" not in text
    assert "60 diverged" in text
    whole = words(run_page(*made_case()))
    assert "Point at a mark" in whole
    assert "Intervals hold 90 %" in whole


def test_a_long_title_is_cut_in_the_header_only():
    runs, analysis = made_case(lengths=(8,), targets=1, seeds=1, title="How many " * 170)
    html = run_page(runs, analysis)
    for tag in ("<title>", '<p class="question">'):
        shown = re.search(f"{tag}([^<]*)<", html).group(1)
        assert MAX_TITLE - 20 < len(shown) <= MAX_TITLE
        assert shown.endswith("…")


def test_a_terminal_says_which_lines_it_leaves_out():
    lengths = tuple(8 * k for k in range(1, len(LINE_MARKS) + 5))
    chart = run_charts(made_case(lengths=lengths, targets=1, seeds=1)[1])[0]
    assert "and 4 more not drawn: T = 72 and on" in character_chart(chart)[-1]
    assert not any("not drawn" in line for line in character_chart(run_charts(made_case()[1])[0]))


def test_an_error_that_rises_with_the_heads_is_told():
    runs, analysis = made_case(lengths=(8,), targets=1)
    assert rises(analysis, "") == []
    errors = {1: 0.001, 2: 0.0015, 3: 0.01, 4: 0.03, 5: 0.002}
    cells = [c.model_copy(update={"by_target": [errors[c.heads or 0]]}) for c in analysis.cells]
    risen = analysis.model_copy(update={"cells": cells})
    assert "With 4 heads the error is 30 times larger than with 1." in words(run_page(runs, risen))
    rounding = [c.model_copy(update={"by_target": [10.0 ** (c.heads or 0) * 1e-20]}) for c in analysis.cells]
    assert rises(analysis.model_copy(update={"cells": rounding}), "") == []


# -- sizes ------------------------------------------------------------------------------------------------------------


def test_both_exponents_of_the_theorem_are_shown():
    _, analysis = made_case(hidden=(16, 32))
    one = Scaling(slope=-1.0, low=-1.2, high=-0.8, points=[(16, 0.1), (32, 0.05)], theory=-0.5, half_k=2.0, heads=1)
    table = scaling_table(analysis.model_copy(update={"scaling": [one]}))
    shown = dict(zip((c.name for c in table.columns), table.rows[0], strict=True))
    assert (shown["−2/k"], shown["k/2"]) == ("-0.50", "2.00")
    assert all("Theorem 2 (2)" in c.meaning for c in table.columns if c.name in ("−2/k", "k/2"))


def test_a_missing_size_says_why():
    line = EqualError(error=0.01, points=[(8, None), (16, 300.0), (32, None)], heads=1)
    assert no_size(line).startswith("Error 0.010 has no point at T = 8, 32: not reached, or reached by the smallest")

    class WithReasons(EqualError):
        reasons: list[str]

    line = WithReasons(error=0.01, points=line.points, reasons=["a smaller N suffices", "", "not reached"], heads=1)
    assert no_size(line) == "Error 0.010 has no point at T = 8: a smaller N suffices; at T = 32: not reached."
    assert no_size(line.model_copy(update={"points": [(8, 300.0)]})) == ""
    _, analysis = made_case(hidden=(16, 32))
    lines = [line, line.model_copy(update={"error": 0.02, "points": [(8, 1.0), (16, 2.0)]})]
    charts = run_charts(analysis.model_copy(update={"equal_errors": lines}))
    (chart,) = (c for c in charts if c.kind == "equal-error")
    assert chart.notes == [no_size(line)]
    assert chart.subtitle == "1 head"
    alone = run_charts(analysis.model_copy(update={"equal_errors": lines[1:]}))
    assert [c.subtitle for c in alone if c.kind == "equal-error"] == ["1 head, error 0.020"]
