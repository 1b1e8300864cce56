"""The page of an advice: the answer and its evidence for every verdict, one file, nothing foreign in it."""

from __future__ import annotations

import re
from html import unescape

import numpy as np
import pytest
from record_cases import VERDICTS, made_record

import headcount as hc
from headcount.advisor.charts import advice_charts, answer_chart, error_chart
from headcount.advisor.configuration import configuration
from headcount.advisor.page import advice_page, write_page
from headcount.advisor.record import ShorterPoint, WitnessRecord
from headcount.analysis.record import Reason
from headcount.render.charts.matplotlib import still
from headcount.render.words.numbers import heads_text
from render.browser_pipe import Browser, find_browser
from support import breakable

HOSTILE = "<script>alert(1)</script>\"'&</title><img src=x onerror=alert(2)>"
WITNESS = WitnessRecord(
    heads=2,
    tag="measured",
    why="",
    target="best model",
    gap=3.0,
    deviations=4.0,
    least_error=1.5,
    distance=1e-15,
    X1=[[0.25, 1.0]],
    X2=[[0.5, 2.0]],
    sentences=[Reason(tag="measured", text="Two inputs look the same.")],
)


def words(html: str) -> str:
    """What a reader sees."""
    body = re.sub(r"<(script|style|svg)\b.*?</\1>", " ", html, flags=re.S)
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", body)))


@pytest.mark.parametrize("classes", [False, True])
@pytest.mark.parametrize("verdict", VERDICTS)
def test_every_verdict_has_its_page(verdict, classes):
    record = made_record(verdict, classes=classes)
    html = breakable(advice_page(record))
    seen = words(html)
    claim, _, grounds = record.sentence.partition(": ")
    low, high = record.interval
    span = f"{low} or more" if record.interval_open else f"{low} to {high}" if low < high else str(low)
    assert f"<h1>{claim} (95 % interval {span})" in html
    assert grounds in seen
    assert record.settle in seen
    if record.named is None:
        best = f"the best model so far has {heads_text(record.recommended_heads)}"
        assert f"No number of heads is shown to be right ({best})" in seen
        assert "no number of heads to configure" in seen
    else:
        count = "1 head" if record.recommended_heads == 1 else f"{record.recommended_heads} heads"
        assert f"Recommended: {count}; interval at 95 % confidence" in seen
        assert f"num_heads={record.recommended_heads}" in html
    for reason in record.reasons:
        assert f'<span class="tag {reason.tag}">{reason.tag}</span> {reason.text}' in html
    assert ("Wrong" in seen) == classes
    assert "too few heads" in html if verdict == "transition" else "too few heads" not in html


def test_the_page_loads_nothing():
    html = advice_page(made_record(), witness=WITNESS)
    assert not re.findall(r"(?:https?:)?//[a-z0-9]", re.sub(r"^ *// .*$", "", html, flags=re.M))
    assert not re.findall(r"<(?:link|img|iframe|object|embed|form|base)\b|@import|url\((?!#)", html)
    assert not re.findall(r'\b(?:src|href)\s*=\s*"(?!#)', html)
    assert "default-src 'none'" in html


def test_a_hostile_name_is_text():
    html = advice_page(made_record(name=HOSTILE, classes=True), witness=WITNESS.model_copy(update={"why": HOSTILE}))
    assert "<script>alert" not in html
    assert "<img" not in html
    assert HOSTILE in words(html)
    assert html.count("<script>") == 1  # the package's own
    assert html.count("</title>") == 1


def test_all_parts_are_there():
    record = made_record()
    html = advice_page(record, configuration(record, 10), WITNESS)
    seen = words(html)
    for text in (
        "One head fewer (2): error × 62",
        "Error by length",
        "3 to 8",
        "What 2 heads cannot tell apart",
        "Two inputs look the same.",
        "[[0.25, 1.0]]",
        "5 is the smallest larger number",
        "Do more heads add parameters?",
        "heads × head size about 12",
        "at most 2100 parameters",
        "width 2 6 32",
        "Nothing is left open.",
        "the answer is 3 heads in 100 %",
    ):
        assert text in seen, text
    assert "No such pair of inputs is shown. It is hard." in words(
        advice_page(record, witness=WITNESS.model_copy(update={"why": "It is hard."}))
    )
    cut = record.model_copy(update={"shorter": [ShorterPoint(length=5, heads=3, error=0.0077)]})
    assert "5 3 0.0077" in words(advice_page(cut))
    bare = record.model_copy(update={"prices": [], "curves": [], "lengths": []})
    for text in ("The price of", "At fixed head size", "Error by length", "Short and long", "cannot tell apart"):
        assert text not in words(advice_page(bare))


def test_charts_hold_the_numbers_of_the_record():
    record = made_record()
    first, second = advice_charts(record)
    line = next(s for s in first.series if s.name == "validation" and s.style == "line")
    band = next(s for s in first.series if s.style == "band")
    assert [(p.x, p.y) for p in line.points] == [(p.heads, p.validation) for p in record.curve]
    assert [p.high for p in band.points] == [p.worst for p in record.curve]
    assert [p.y for s in first.series if s.name == "training" for p in s.points] == [p.train for p in record.curve]
    assert {p.y for s in first.series if s.name == "noise floor" for p in s.points} == {record.noise_floor}
    curves = [record.curve, *(curve.points for curve in record.curves)]
    for style in ("band", "line"):
        drawn = [s for s in second.series if s.style == style]
        assert [s.name for s in drawn] == ["same head size", "same width", "same parameters"]
        assert [[p.y for p in s.points] for s in drawn] == [[p.validation for p in points] for points in curves]
        spread = [[p.worst if style == "band" else None for p in points] for points in curves]
        assert [[p.high for p in s.points] for s in drawn] == spread
    few, enough = first.shades
    assert 2 < few.high == enough.low < 3
    perfect = [p.model_copy(update={"validation": 0.0, "train": 0.0, "worst": 0.0}) for p in record.curve]
    assert still(error_chart(record.model_copy(update={"curve": perfect, "noise_floor": 0.0})))


@pytest.mark.parametrize("classes", [False, True])
def test_the_axis_says_what_an_error_is_a_share_of(classes):
    record = made_record(classes=classes)
    errors = {p.heads: [p.validation, p.median] for p in record.curve}
    made = [*advice_charts(record), answer_chart(record, errors)]
    assert {chart.y.label for chart in made} == {
        "Error (share of the one-hot variance)" if classes else "Error (share of the variance of y)"
    }
    told = "the squared error of the one-hot classes, as a share of their variance"
    assert all((told in " ".join([chart.caption, *chart.notes])) == classes for chart in made)


def test_the_picture_marks_the_step_of_the_answer():
    record = made_record()
    chart = answer_chart(record, {p.heads: [p.validation, p.worst] for p in record.curve})
    assert chart.fall is not None
    assert (chart.fall.x_from, chart.fall.y_from, chart.fall.x_to, chart.fall.y_to) == (2, 0.13, 3, 0.0021)
    assert chart.x.scale == "log"
    assert 2 < chart.shades[0].high == chart.shades[1].low < 3
    assert answer_chart(made_record("noise"), {1: [1.0]}).fall is None
    assert still(chart)


@pytest.mark.skipif(find_browser() is None, reason="no chromium on this machine")
def test_in_a_real_browser_nothing_foreign_runs_and_nothing_is_clipped(tmp_path):
    browser = Browser(find_browser() or "", tmp_path / "profile")
    try:
        for verdict in VERDICTS:
            path = tmp_path / f"{verdict}.html"
            write_page(made_record(verdict, name=HOSTILE), path, witness=WITNESS)
            for width in (1100, 360):
                browser.open(path, width=width)
                assert browser.run("document.documentElement.scrollWidth") <= width
                outside = browser.run(
                    "[...document.querySelectorAll('figure.chart > svg text')].filter(t => { const b = "
                    "t.getBoundingClientRect(); return b.right > innerWidth + 1 || b.left < -1 })"
                    ".map(t => t.textContent)"
                )
                assert outside == []
            charts = len(advice_charts(made_record(verdict)))
            assert browser.run("document.querySelectorAll('figure.chart > svg[tabindex]').length") == charts
        assert browser.errors == []
        assert [url for url in browser.requests if not url.startswith("file:")] == []
        path.write_text(path.read_text().replace("</main>", "<script>document.title = 1</script></main>"))
        browser.open(path)
        assert browser.errors  # the browser refuses any other script
    finally:
        browser.close()


def test_advice_writes_its_folder_and_no_other(tmp_path):
    X = np.random.default_rng(0).standard_normal((60, 5, 2))
    found = hc.advise(X, X.mean((1, 2)), steps=5, heads_max=2, quiet=True)
    for _ in range(2):
        found.write(tmp_path / "new" / "advice")
    names = sorted(p.name for p in (tmp_path / "new" / "advice").iterdir())
    assert names == ["advice.json", "advice.png", "index.html"]
    (tmp_path / "index.html").write_text("mine")
    with pytest.raises(hc.BadInput, match="holds other files"):
        found.write(tmp_path)
    assert (tmp_path / "index.html").read_text() == "mine"
