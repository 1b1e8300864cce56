"""Charts, tables and the page: what they show is what was measured, whole, safe and the same every time."""

from __future__ import annotations

import io
import json
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import pytest

from headcount.analysis.of_runs import answers
from headcount.core.errors import BadInput
from headcount.core.text.terminal import Terminal
from headcount.render.charts.chart import Chart
from headcount.render.charts.html import script
from headcount.render.charts.labels import Box, first_free
from headcount.render.charts.matplotlib import picture, still
from headcount.render.charts.of_trials import even_steps, training_chart, transition_chart
from headcount.render.pages import _environment
from headcount.render.panel_page import check_report_folder, page_html, write_report
from headcount.render.tables import as_markdown, as_terminal, transition_table
from headcount.render.words.task import task_text
from headcount.store.records import Run, Trial
from support import breakable

CLEAR = {1: [0.031, 0.034, 0.030], 2: [0.0121, 0.0143, 0.0127], 3: [8.1e-5, 6e-5, 9e-5], 4: [4e-5, 5.5e-5, 4.6e-5]}
TABLES = {
    "clear": CLEAR,
    "flat": {h: [2e-3, 2.5e-3] for h in range(1, 6)},
    "not reached": {1: [0.03] * 3, 2: [0.01] * 3, 3: [5e-5] * 3},
    "diverged": {1: [0.03] * 3, 2: [0.01, None, 0.012], 3: [6e-5, 6e-5, None], 4: [4e-5] * 3},
    "all diverged": {1: [None], 2: [None]},
    "zero": {1: [0.1, 0.1], 2: [0.0, 0.0], 3: [0.0, 0.0]},
    "missing": {1: [0.03] * 2, 2: [0.01] * 2, 4: [5e-5] * 2, 5: [4e-5] * 2},
    "one": {2: [0.1]},
    "empty": {},
}
VOID = {"meta", "br", "hr", "img", "link", "input"}


def trial(heads, seed, error):
    curve = [(0, 1.02), (50, 0.3), (100, error)] if error is not None else [(0, 1.1), (50, 70.0)]
    return Trial(
        heads=heads,
        seed=seed,
        state="diverged" if error is None else "done",
        nmse=error,
        train_nmse=error,
        steps=100,
        seconds=2.0 * heads,
        parameters=713 * heads,
        parameters_total=905 * heads,
        curve=curve,
    )


def make_run(table=CLEAR, **changes):
    fields = {
        "name": "demo",
        "title": "How many heads?",
        "intrinsic": 3,
        "task": {"kind": "retrieval", "name": "sum-of-maxima", "length": 8, "dim": 3},
        "spec": {
            "task": {"family": "sum-of-maxima", "sets": "all"},
            "heads": list(table),
            "model": {"head_dim": 8, "hidden": 32, "depth": 1},
            "train": {"steps": 100, "batch": 128, "train_size": 8000, "validation_size": 2000},
        },
        "trials": [trial(h, s, e) for h, errors in table.items() for s, e in enumerate(errors)],
        "provenance": {
            "commit": "0123456789ab",
            "versions": {"python": "3.11.2"},
            "machine": {"cores": 2},
            "time": "2026-01-02T03:04:05+00:00",
        },
        "seconds": 61.0,
    }
    return Run(**{**fields, **changes})


def found_in(run):
    return answers([run])[0]


def page_of(run):
    return page_html(run, found_in(run))


def table_html(table):
    """A table as all pages and notebooks have it."""
    text = '{% import "render/parts.html.j2" as parts %}{{ parts.table(shown) }}'
    return _environment().from_string(text).render(shown=table)


class Checker(HTMLParser):
    """Collects open tags, references, ids, headings and text; complains about a tag that closes another."""

    def __init__(self):
        super().__init__()
        self.open, self.references, self.ids, self.tags, self.text = [], [], [], [], []

    def handle_starttag(self, tag, attrs):
        self._note(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self._note(tag, attrs)

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.text.append(data)

    def _note(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "srcset", "data", "poster", "action"):
                self.references.append(value)
            if name == "id":
                self.ids.append(value)


def read(html):
    checker = Checker()
    checker.feed(html)
    checker.close()
    assert checker.open == []
    return checker


# -- the page -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", TABLES)
def test_the_page_is_whole_and_needs_nothing_else(case):
    html = page_of(make_run(TABLES[case]))
    seen = read(html)
    assert all(ref.startswith("#") or ref == "run.json" for ref in seen.references), seen.references
    assert {ref[1:] for ref in seen.references if ref.startswith("#")} <= set(seen.ids)
    assert len(seen.ids) == len(set(seen.ids)), "an id twice"
    assert not {tag for tag, _ in seen.tags} & {"link", "iframe", "img", "object"}
    assert re.findall(r"<script>(.*?)</script>", html, flags=re.DOTALL) == [script()]
    assert not re.search(r"https?://|@import|url\((?!#)", html)
    assert "nan" not in " ".join(seen.text).lower().split()


def test_the_checks_can_fail():
    for broken in ("<p><b></p></b>", "<div>", "</p>"):
        with pytest.raises(AssertionError):
            read(broken)
    assert read('<a href="https://x.test/a.css">x</a>').references == ["https://x.test/a.css"]


def test_the_page_says_what_was_found():
    run = make_run()
    found = found_in(run)
    seen = read(page_html(run, found))
    text = re.sub(r"\s+", " ", " ".join(seen.text)).replace(" :", ":")
    assert found.sentence in text
    assert found.comparison in text
    assert "measured in this run of 12 trained models, not proved" in text.replace("  ", " ")
    for wanted in ("y = Σᵢ maxₜ aᵢ·x(t)", "8,000 random sequences", "0123456789ab", "python 3.11.2", "100 steps"):
        assert wanted in text
    for cell in (cell for row in transition_table(found).rows for cell in row):
        assert cell in text


def test_the_page_is_accessible():
    seen = read(page_of(make_run()))
    tags = [tag for tag, _ in seen.tags]
    assert ("html", {"lang": "en"}) in seen.tags
    assert tags.count("h1") == 1
    assert tags.count("h2") >= 4
    assert all(attrs.get("scope") in ("col", "row") for tag, attrs in seen.tags if tag == "th")
    pictures = [attrs for tag, attrs in seen.tags if tag == "svg"]
    assert len(pictures) == 2
    assert all(attrs["role"] == "img" and len(attrs["aria-label"]) > 40 for attrs in pictures)
    assert {"caption", "figcaption", "main", "title"} <= set(tags)


def test_everything_is_escaped():
    evil = '<script>alert(1)</script> & "quotes" $x$ {T}'
    run = make_run(
        name=evil,
        title=evil,
        task={"name": evil, "length": 8, "dim": 3},
        spec={"task": {"family": evil}, "note": evil},
        provenance={"commit": evil, evil: evil},
    )
    html = page_of(run)
    assert "<script>alert" not in html
    assert html.count("<script") == 1 + html.count('<figure class="chart"')
    assert "&lt;script&gt;alert(1)" in html
    assert "<script" in "".join(read(html).text)
    picture(transition_chart(run, found_in(run)), dpi=40)
    known = make_run(title=evil, spec={"task": {"family": "sum-of-maxima", "sets": "{boom}"}})
    assert "{boom} sets" in page_of(known)


def test_the_report_is_written_whole_and_the_same_every_time(tmp_path):
    run = make_run()
    found = found_in(run)
    first, second = (write_report(run, found, tmp_path / name) for name in "ab")
    assert {p.name for p in (tmp_path / "a").iterdir()} == {"index.html", "transition.png", "training.png", "run.json"}
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()
    assert Run.load(first.run) == run
    assert first.picture.read_bytes().startswith(b"\x89PNG")
    loaded = Run.load(first.run)
    write_report(loaded, found_in(loaded), tmp_path / "a")  # an earlier report may be replaced
    assert first.page.read_bytes() == second.page.read_bytes()


def test_a_run_without_curves_has_no_training_picture(tmp_path):
    run = make_run()
    write_report(run, found_in(run), tmp_path)
    bare = run.model_copy(update={"trials": [t.model_copy(update={"curve": []}) for t in run.trials]})
    paths = write_report(bare, found_in(bare), tmp_path)
    assert paths.training is None
    assert not (tmp_path / "training.png").exists()
    assert "During training" not in paths.page.read_text(encoding="utf-8")


def test_a_folder_of_the_user_is_refused(tmp_path):
    run = make_run()
    for name in ("thesis.tex", "index.html"):
        folder = tmp_path / name.replace(".", "-")
        folder.mkdir()
        (folder / name).write_text("mine")
        with pytest.raises(BadInput, match="holds other files"):
            write_report(run, found_in(run), folder)
        assert [p.name for p in folder.iterdir()] == [name]
    with pytest.raises(BadInput, match="not a folder"):
        check_report_folder(tmp_path / "thesis-tex" / "thesis.tex")
    check_report_folder(tmp_path / "new")


# -- tables -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", TABLES)
def test_all_renderings_have_the_same_cells(case):
    found = found_in(make_run(TABLES[case]))
    table = transition_table(found)
    rows = [line.strip("|").split("|") for line in as_markdown(table).splitlines()[2:]]
    assert [[cell.strip(" *") for cell in row] for row in rows] == table.rows
    html = re.findall(r"<tr>.*?</tr>|<tr class.*?</tr>", breakable(table_html(table)))[1:]
    assert [re.findall(r">([^<]+)</t[hd]>", row) for row in html] == [
        [cell.replace(">", "&gt;") for cell in row] for row in table.rows
    ]
    screen = io.StringIO()
    Terminal(file=screen, width=80).print(as_terminal(table))
    lines = screen.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in screen.getvalue()
    shown = [line.split() for line in lines[-len(table.rows) :]] if table.rows else []
    assert shown == [" ".join(row).split() for row in table.rows]


def test_cells_of_the_clear_run():
    table = transition_table(found_in(make_run()))
    assert table.rows[1] == ["2", "3", "0.012", "0.013", "1.2×", "200× smaller", "1,426", "1,810", "4.0 s"]
    assert table.marked == 2
    rising = transition_table(found_in(make_run({1: [1e-3, 1e-3], 2: [2e-3, 2e-3], 3: [2e-3, 2e-3]})))
    assert [row[5] for row in rising.rows] == ["2.0× larger", "the same", "–"]
    assert rising.marked == 0  # one head suffices
    assert transition_table(found_in(make_run(TABLES["flat"]))).marked == 0
    assert transition_table(found_in(make_run(TABLES["not reached"]))).marked is None


# -- charts -------------------------------------------------------------------------------------------------


def test_the_chart_holds_every_finished_trial():
    run = make_run(TABLES["diverged"])
    chart = transition_chart(run, found_in(run))
    dots = {(p.x, p.text, p.y) for s in chart.series if s.style == "dots" for p in s.points}
    assert dots == {(t.heads, f"seed {t.seed}", t.nmse) for t in run.trials if t.nmse is not None}
    (best,) = (s for s in chart.series if s.name == "best seed")
    (median,) = (s for s in chart.series if s.name == "median of the seeds")
    assert [p.y for p in best.points] == [0.03, 0.01, 6e-5, 4e-5]
    assert [p.y for p in median.points] == pytest.approx([0.03, 0.011, 6e-5, 4e-5])
    assert chart.notes == ["2 of 12 models diverged and have no dot."]
    assert Chart.parse(json.loads(json.dumps(chart.data()))) == chart


def test_dots_of_one_head_count_stand_beside_each_other():
    run = make_run()
    dots = [s for s in transition_chart(run, found_in(run)).series if s.style == "dots"]
    places = [(p.x, s.shift) for s in dots for p in s.points]
    assert len(places) == len(set(places)) == 12
    assert {s.tone for s in dots} == {"few", "enough"}


def test_the_fall_is_marked_only_where_the_verdict_rests_on_one():
    clear = make_run()
    chart = transition_chart(clear, found_in(clear))
    assert chart.fall is not None
    assert (chart.fall.x_from, chart.fall.y_from, chart.fall.x_to, chart.fall.y_to) == pytest.approx(
        (2, 0.0121, 3, 6e-5)
    )
    assert chart.fall.text == "200 times\nsmaller error"
    assert [(s.text, s.tone, s.low, s.high) for s in chart.shades] == [
        ("too few heads", "few", 0.5, 2.5),
        ("enough heads", "enough", 2.5, chart.x.high),
    ]
    flat = make_run(TABLES["flat"])
    assert transition_chart(flat, found_in(flat)).fall is None
    assert transition_chart(flat, found_in(flat)).shades == []
    open_end = make_run(TABLES["not reached"])
    last = transition_chart(open_end, found_in(open_end))
    assert last.shades[1].text == "end not seen"
    assert last.x.place(3) < 0.7, "the arrow and its text have room"
    gap = make_run(TABLES["missing"])
    few, enough = transition_chart(gap, found_in(gap)).shades
    assert (few.high, enough.low) == (2.5, 3.5), "3 heads were not tried"


def test_the_caption_says_what_a_line_means():
    run = make_run()
    chart = transition_chart(run, found_in(run))
    assert "from one horizontal line to the next the error is 10 times smaller" in chart.caption
    uneven = chart.y.model_copy(update={"ticks": [(1.0, "1"), (2.0, "2"), (5.0, "5")]})
    assert even_steps(uneven) == ""


def test_training_curves_are_all_there():
    run = make_run(TABLES["diverged"])
    chart = training_chart(run)
    assert len(chart.series) == len(run.trials)
    best = {s.name: s.points[-1].y for s in chart.series if s.style == "line"}
    assert best == {"1 head": 0.03, "2 heads": 0.01, "3 heads": 6e-5, "4 heads": 4e-5}
    assert [s.name for s in chart.ends()] == list(best)


@pytest.mark.parametrize("case", TABLES)
def test_drawing_is_deterministic_and_leaves_no_trace(case):
    import matplotlib

    before = dict(matplotlib.rcParams)
    run = make_run(TABLES[case])
    found = found_in(run)
    for chart in (transition_chart(run, found), training_chart(run, found)):
        first, text = picture(chart, dpi=50), still(chart)
        with matplotlib.rc_context({"font.size": 30, "svg.hashsalt": "other", "axes.facecolor": "red"}):
            assert picture(chart, dpi=50) == first
            assert still(chart) == text
        assert ElementTree.fromstring(text).get("aria-label") == chart.alt
        assert not re.search("<metadata|<style|<script|font-family|xlink|http", text)
        assert set(re.findall(r' id="([^"]*)"', text)) == set(re.findall(r'(?:href="#|url\(#)([^")]*)', text))
    assert dict(matplotlib.rcParams) == before


def test_a_label_takes_the_first_place_that_meets_nothing():
    places = [Box(0, 0, 10, 10), Box(10, 0, 20, 10), Box(50, 0, 60, 10)]
    assert first_free(places, []) == places[0]
    assert first_free(places, [Box(5, 5, 6, 6)]) == places[1], "an edge may be shared"
    assert first_free(places, [Box(5, 5, 11, 6)]) == places[2]
    assert first_free(places, [Box(-1, -1, 99, 99)]) is None


def test_drawing_uses_no_global_figures():
    import subprocess
    import sys

    code = (
        "import sys, headcount.render.charts.of_trials as t; assert 'matplotlib' not in sys.modules; "
        "from headcount.render.charts.matplotlib import picture; from headcount.store import Run; "
        "run = Run(name='', task={}, intrinsic=None, spec={}, trials=[], provenance={}, seconds=0); "
        "picture(t.training_chart(run), dpi=30); "
        "assert 'matplotlib.pyplot' not in sys.modules; assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("family", "words"),
    [
        ("quadratic-basins", "3 fixed places"),
        ("min-plus-max", "smallest plus the largest"),
        ("mean", "average"),
        ("sparse-regression", "carry a mark"),
        ("sphere-anchors", "3 fixed anchors"),
        ("linear", "weighted sum"),
        ("nearest-neighbour", "nearest to the last"),
        ("unheard-of", "The task “sum-of-maxima”"),
    ],
)
def test_every_family_has_words(family, words):
    text = task_text(make_run(spec={"task": {"family": family}}))
    assert words in text.words
    assert "{" not in text.words + text.formula
    assert bool(text.formula) == (family != "unheard-of")


def test_no_family_is_forgotten():
    from headcount.tasks.families import FAMILIES

    assert all(task_text(make_run(spec={"task": {"family": name}})).formula for name in FAMILIES)
