"""Charts of a run hold every number, can all be drawn, and say in the terminal what they say in the page."""

from __future__ import annotations

import io
import math
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from run_cases import made_case

import headcount as hc
from headcount.analysis.law import STEP, predicted
from headcount.analysis.measures import ROUNDING_ERROR
from headcount.analysis.of_runs import analyse
from headcount.analysis.record import Law
from headcount.core.errors import BadInput
from headcount.core.text.terminal import Terminal
from headcount.render.charts import matplotlib as chart_draw
from headcount.render.charts.chart import Axis, Chart, apart, doubling_axis, log_axis, number_text, power_text
from headcount.render.charts.html import figure
from headcount.render.charts.of_run import law_title, run_charts
from headcount.render.charts.of_trials import transition_chart
from headcount.render.charts.series import MAX_CHARTS, level, numbered
from headcount.render.charts.terminal import LINE_MARKS, character_chart, print_run


def test_every_finished_trial_has_a_dot():
    runs, analysis = made_case(diverged=4)
    chart = run_charts(analysis, runs)[0]
    dots = sorted((p.x, p.y) for s in chart.series if s.style == "dots" for p in s.points)
    assert dots == sorted((float(t.heads), t.nmse) for run in runs for t in run.trials if t.nmse is not None)
    assert {p.text for s in chart.series if s.style == "dots" for p in s.points} >= {"target 0, seed 2"}
    assert chart.notes == ["Not shown: of 60 trials, 4 diverged."]
    lines = {(s.name, p.x): p.y for s in chart.series if s.style == "line" for p in s.points}
    assert lines == {(f"T = {c.length}", float(c.heads or 0)): level(c) for c in analysis.cells if c.targets}


def test_many_seeds_stand_in_lanes_and_none_is_lost():
    runs, analysis = made_case(lengths=(8,), targets=1, seeds=60)
    lanes = [s for s in run_charts(analysis, runs)[0].series if s.style == "dots"]
    assert len({s.shift for s in lanes}) == len(lanes) == 3
    assert sorted(p.y for s in lanes for p in s.points) == sorted(t.nmse for t in runs[0].trials)


def test_too_many_charts_are_named_not_hidden():
    chart = run_charts(made_case(lengths=(8,), targets=1, seeds=1)[1])[0]
    kept = numbered([chart] * (MAX_CHARTS + 3))
    assert [c.id for c in kept] == [f"error-by-heads-{i + 1}" for i in range(MAX_CHARTS)]
    assert kept[-1].notes == ["3 more charts of this kind are left out; cells.csv has their numbers."]
    assert numbered([chart]) == [chart]


def test_with_thousands_of_trials_a_dot_is_a_target():
    runs, analysis = made_case(targets=10, seeds=8)
    chart = run_charts(analysis, runs)[0]
    dots = [p.y for s in chart.series if s.style == "dots" for p in s.points]
    assert sorted(dots) == sorted(e for cell in analysis.cells for e in cell.by_target)


def test_a_kind_of_chart_appears_only_where_there_is_data():
    kinds = lambda **options: {c.kind for c in run_charts(made_case(**options)[1])}  # noqa: E731
    assert kinds(diverged=10_000) == set()
    assert kinds(lengths=(8,), targets=1, seeds=1) == {"error-by-heads"}
    assert kinds(lengths=(8,), targets=1) == {"error-by-heads", "spread"}
    assert kinds(hidden=(16, 32)) >= {"error-by-heads", "error-by-length", "scaling", "equal-error", "spread", "laws"}


def test_settings_and_sizes_share_their_axis():
    charts = [c for c in run_charts(made_case(hidden=(16, 32, 64))[1]) if c.kind == "error-by-heads"]
    assert [c.subtitle for c in charts] == ["N = 16", "N = 32", "N = 64"]
    assert len({c.id for c in charts}) == 3
    assert all(c.y == charts[0].y for c in charts)


def test_too_few_and_enough_are_shaded_by_the_interval():
    _, analysis = made_case()
    (found,) = analysis.dimensions
    shades = run_charts(analysis)[0].shades
    assert [(s.tone, s.low, s.high) for s in shades] == [
        ("few", 0.5, found.low - 0.5),
        ("enough", found.high - 0.5, 5.5),
    ]
    unsure = analysis.model_copy(update={"dimensions": [found.model_copy(update={"estimate": None})]})
    assert run_charts(unsure)[0].shades == []


def test_a_law_is_drawn_as_it_was_fitted():
    coefficients = {"c": 2.0, "b": 0.5, "alpha": -1.5, "delta": 0.25}
    law = Law(
        name="heads over length", formula="", coefficients=coefficients, intervals={}, score=0.1, chosen=True, points=9
    )
    assert predicted(law, 3, 16) == pytest.approx(2.0 * 4.0 * math.exp(-1.5 * 3 / 2.0))


def test_a_law_that_is_a_step_is_told_in_words_and_drawn_between_its_head_counts():
    steep = {1: 0.05, 2: 0.04, 3: 0.045, 4: 1e-5, 5: 9e-6}
    runs, _ = made_case()
    trials = lambda run: [t.model_copy(update={"nmse": steep[t.heads] * (1 + 0.05 * t.seed)}) for t in run.trials]  # noqa: E731
    stepped = analyse([run.model_copy(update={"trials": trials(run)}) for run in runs], resamples=100)
    (law,) = (law for law in stepped.laws if law.chosen)
    assert (law.name, law.coefficients["s"]) == (STEP.name, 4.0)
    (chart,) = (c for c in run_charts(stepped) if c.kind == "laws")
    assert chart.title.startswith("The fitted law: the error steps down between h = 3 and 4, from 0.0")
    assert "steps down between h = 2 and 4" in law_title(law, [1, 2, 4], "error")
    a, b = law.coefficients["a"], law.coefficients["b"]
    curve = next(s for s in chart.series if s.style == "dashed")
    assert [(p.x, p.y) for p in curve.points] == [(1, a), (3.5, a), (3.5, b), (5, b)]
    for point in (p for s in chart.series if s.style == "rings" for p in s.points):
        assert point.y == pytest.approx(a if point.x < 4 else b, rel=0.3), "the law visibly fits"
    smooth = next(law for law in stepped.laws if law.name == "exponential in heads")
    assert max(abs(math.log10(predicted(smooth, h, 8) / steep[h])) for h in steep) > 0.5, "and a smooth one does not"


def test_errors_of_classes_are_named():
    runs, analysis = made_case(lengths=(8,), targets=1)
    classes = [run.model_copy(update={"task": {**run.task, "classes": 3}}) for run in runs]
    (found,) = analysis.dimensions
    for made in (lambda some: run_charts(analysis, some)[0], lambda some: transition_chart(some[0], found)):
        assert made(runs).y.label == "Error (NMSE)"
        assert made(classes).y.label == "Error (NMSE of one-hot classes)"


def test_a_sweep_of_classes_knows_that_they_are_classes():
    X = np.random.default_rng(0).standard_normal((40, 3, 1))
    labels = np.where(X.mean((1, 2)) > 0, "up", "down")
    for kind, classes in (("classification", 2), ("regression", None)):
        y = labels if classes else X.mean((1, 2))
        arrays = hc.ArrayTask.from_arrays(X, y, kind=kind)
        result = hc.sweep(arrays, heads=[1], seeds=1, steps=2, warmup=1, quiet=True)
        assert result.runs[0].task.get("classes") == classes
        assert ("one-hot" in result._view().figures[0].y.label) == bool(classes)


def test_an_error_of_zero_is_drawn_at_the_floor():
    _, analysis = made_case(lengths=(8,), targets=1, seeds=1)
    cells = [c.model_copy(update={"best": 0.0, "by_target": [0.0]}) for c in analysis.cells]
    chart = run_charts(analysis.model_copy(update={"cells": cells}))[0]
    assert [p.y for s in chart.series for p in s.points] == pytest.approx([ROUNDING_ERROR] * 5)
    assert "Errors of 0 are drawn at" in chart.notes[-1]
    chart_draw.still(chart)


@pytest.mark.parametrize("options", [{"hidden": (16, 32)}, {"diverged": 55}, {"lengths": (8,), "targets": 1}])
def test_every_chart_can_be_drawn_and_read(options):
    import matplotlib

    before = dict(matplotlib.rcParams)
    runs, analysis = made_case(**options)
    for chart in {c.kind: c for c in run_charts(analysis, runs)}.values():
        svg = ElementTree.fromstring(chart_draw.still(chart))
        texts = [t.text for t in svg.iter("text")]
        assert {chart.x.label, chart.y.label, *(s.name for s in chart.ends())} <= set(texts)
        assert chart_draw.picture(chart, dpi=30) == chart_draw.picture(chart, dpi=30)
        assert Chart.parse(chart.data()) == chart
        assert 'role="img"' in figure(chart)
    assert dict(matplotlib.rcParams) == before
    with pytest.raises(BadInput, match="png, .pdf or .svg"):
        chart_draw.picture(chart, "jpg")


def test_axes_and_numbers():
    axis = log_axis("e", [3e-7, 0.02])
    assert axis.low < 3e-7 < 0.02 < axis.high
    assert [text for _, text in axis.ticks] == ["0.01", "0.001", "0.0001", "10⁻⁵", "10⁻⁶"]
    for low, high in ((400, 900), (600, 750), (900, 1200), (0.11, 0.13)):
        assert len(log_axis("M", [low, high]).ticks) >= 3, "one tick is no scale"
    assert [text for _, text in doubling_axis("T", [8, 16, 17, 128]).ticks] == ["8", "16", "128"]
    assert (number_text(0.00031), number_text(-0.5), number_text(1234)) == ("3.1e-4", "-0.5", "1,234")
    assert (power_text(-3), power_text(0), power_text(-12)) == ("0.001", "1", "10⁻¹²")
    assert Axis(label="", scale="linear", low=0, high=4, ticks=[]).place(1) == 0.25
    for axis in (Axis(label="", scale=scale, low=2, high=32, ticks=[]) for scale in ("linear", "log")):
        assert axis.value(axis.place(5.0)) == pytest.approx(5.0)
        assert axis.place(axis.middle(4.0, 16.0)) == pytest.approx((axis.place(4.0) + axis.place(16.0)) / 2)
    assert axis.middle(4.0, 16.0) == pytest.approx(8.0)
    assert apart([5, 5, 9.5], 2, 10) == [5, 7, 9.5]
    assert apart([9, 10, 10], 2, 10) == [6, 8, 10]


# -- the terminal -------------------------------------------------------------------------------------------


def test_the_terminal_shows_the_same_numbers():
    _, analysis = made_case(diverged=3, failed=2)
    screen = io.StringIO()
    print_run(analysis, Terminal(file=screen, width=80))
    shown = screen.getvalue()
    assert max(map(len, shown.splitlines())) <= 80
    assert "60 trials: 55 done, 3 diverged, 2 failed" in shown
    assert " ".join(analysis.dimensions[0].sentence.split()) in " ".join(shown.split())
    assert all(f"T = {length}" in shown for length in (8, 32))
    assert "0 of 3" not in shown


def test_marks_stand_in_the_row_of_their_error():
    _, analysis = made_case()
    chart = run_charts(analysis)[0]
    rows = [line.partition("|") for line in character_chart(chart) if "|" in line]
    labels = {name.strip(): i for i, (name, _, _) in enumerate(rows) if name.strip()}
    for mark, series in zip(LINE_MARKS, (s for s in chart.series if s.style == "line"), strict=False):
        heights = [i for column in range(80) for i, (_, _, row) in enumerate(rows) if row[column : column + 1] == mark]
        assert len(heights) == len(series.points)
        for height, point in zip(heights, series.points, strict=True):
            exact = labels["0.01"] + (labels["0.001"] - labels["0.01"]) * (-2 - math.log10(point.y))
            assert height == pytest.approx(exact, abs=0.51)


def test_a_run_without_results_is_told():
    _, analysis = made_case(failed=10_000)
    screen = io.StringIO()
    print_run(analysis, Terminal(file=screen, width=80))
    assert "no trial has a result" in screen.getvalue()
    assert "60 failed" in screen.getvalue()
