"""One chart, three drawings: the picture, the page and the terminal show the same numbers, and no label hides any."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser_pipe import Browser, find_browser
from drawn import collisions, in_page, in_picture, in_terminal, page_boxes, picture_boxes, shown, write_page
from run_cases import made_case

from headcount.analysis.of_runs import answers
from headcount.render.charts import labels
from headcount.render.charts.chart import (
    SHAPES,
    Axis,
    Chart,
    ChartSeries,
    Dot,
    Fall,
    Level,
    Mark,
    PaperValue,
    Shade,
    log_axis,
    whole_axis,
)
from headcount.render.charts.html import script
from headcount.render.charts.of_run import run_charts
from headcount.render.charts.of_trials import training_chart, transition_chart

needs_browser = pytest.mark.skipif(find_browser() is None, reason="no chromium on this machine")
PAPER = [PaperValue(heads=h, length=8, value=v, low=v / 2, high=2 * v) for h, v in ((1, 0.02), (4, 1.3e-6))]


def readme_chart(**changes: object) -> Chart:
    """The first chart of README's report: an error near guessing, and a known D beside where guessing is named."""
    lines = {"T = 8": [0.12, 0.083, 0.001, 0.001], "T = 16": [0.13, 0.031, 0.0015, 0.0012]}
    series = [
        ChartSeries(
            name=name,
            style="line",
            colour=3 * i,
            shape=SHAPES[i],
            points=[Dot(x=float(h), y=y) for h, y in enumerate(errors, 1)],
        )
        for i, (name, errors) in enumerate(lines.items())
    ]
    fields: dict[str, object] = {
        "id": "readme",
        "kind": "error-by-heads",
        "title": "Error by number of heads",
        "alt": "The chart of a run.",
        "x": whole_axis("Number of attention heads", range(1, 5)),
        "y": log_axis("Error (NMSE)", [0.001, 2.0]),
        "series": series,
        "levels": [Level(y=1.0, text="always guessing the average")],
        "marks": [Mark(x=3.0, text="known D = 3")],
        "shades": [
            Shade(low=0.5, high=2.5, tone="few", text="too few heads"),
            Shade(low=2.5, high=4.5, tone="enough", text="enough heads"),
        ],
    }
    return Chart.model_validate({**fields, **changes})


def crowded_chart() -> Chart:
    """Points, levels and marks wherever a label would like to stand."""
    errors = [Dot(x=float(h), y=y) for h in range(1, 13) for y in (1.05, 0.9, 0.5, 0.2, 0.01)]
    return readme_chart(
        id="crowded",
        x=whole_axis("Heads", range(1, 13)),
        series=[
            ChartSeries(name="models", style="dots", points=errors),
            ChartSeries(name="best", style="line", points=[Dot(x=float(h), y=1.0) for h in range(1, 13)]),
        ],
        levels=[Level(y=1.0, text="always guessing the average"), Level(y=0.8, text="the budget allows")],
        marks=[Mark(x=float(h), text=f"known D = {h}") for h in (3, 4, 11, 12)],
        shades=[
            Shade(low=0.5, high=1.2, tone="few", text="too few heads"),
            Shade(low=1.2, high=12.5, tone="enough", text="enough heads"),
        ],
        fall=Fall(x_from=10.0, y_from=0.9, x_to=11.0, y_to=0.2, text="4.5 times\nsmaller error"),
    )


def charts() -> list[Chart]:
    runs, analysis = made_case(hidden=(16, 32))
    single, _ = made_case(lengths=(8,), targets=1)
    (found,) = answers(single)
    linear = readme_chart(
        id="linear", y=Axis(label="loss", scale="linear", low=0.0, high=2.2, ticks=[(0.0, "0"), (1.0, "1"), (2.0, "2")])
    )
    return [
        *run_charts(analysis, runs, PAPER),
        transition_chart(single[0], found),
        training_chart(with_curves(single[0]), found),
        readme_chart(),
        crowded_chart(),
        linear,
    ]


def with_curves(run):
    curve = [(0, 1.0), (50, 0.2), (100, 0.1)]
    return run.model_copy(update={"trials": [t.model_copy(update={"curve": curve}) for t in run.trials]})


def close(found: list[tuple[float, float]], wanted: list[tuple[float, float]], chart: Chart, slack: float) -> bool:
    """Whether points lie where they should, to a share of both axes."""
    return len(found) == len(wanted) and all(
        abs(chart.x.place(a[0]) - chart.x.place(b[0])) <= slack
        and abs(chart.y.place(a[1]) - chart.y.place(b[1])) <= slack
        for a, b in zip(found, wanted, strict=True)
    )


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    one = Browser(find_browser() or "", tmp_path_factory.mktemp("profile"))
    yield one
    one.close()


# -- numbers ------------------------------------------------------------------------------------------------


@needs_browser
def test_picture_page_and_terminal_show_the_same_numbers(browser: Browser, tmp_path: Path) -> None:
    made = charts()
    browser.open(write_page(made, tmp_path / "index.html"))
    kinds = {c.kind for c in made}
    assert {"error-by-heads", "error-by-length", "scaling", "spread", "laws", "transition", "training"} <= kinds
    for chart in made:
        wanted = [shown(s) for s in chart.series]
        assert [sorted(points) for points in in_picture(chart)] == [sorted(points) for points in wanted], chart.id
        page = in_page(chart, browser)
        assert all(close(found, points, chart, 4e-4) for found, points in zip(page, wanted, strict=True)), chart.id
        if any(s.style == "line" and s.marks == "all" for s in chart.series) and chart.id != "crowded":
            lines = [sorted(shown(s)) for s in chart.series if s.style == "line"]
            slack = 0.55 / sum("|" in line for line in terminal_rows(chart)) + 0.04
            assert all(close(a, b, chart, slack) for a, b in zip(in_terminal(chart), lines, strict=True)), chart.id
    assert browser.errors == []


def terminal_rows(chart: Chart) -> list[str]:
    from headcount.render.charts.terminal import character_chart

    return character_chart(chart)


@needs_browser
def test_a_number_that_is_drawn_elsewhere_is_noticed(browser: Browser, tmp_path: Path) -> None:
    chart = readme_chart()
    line, *rest = chart.series
    moved = line.model_copy(update={"points": [*line.points[:-1], Dot(x=4.0, y=0.01)]})
    other = chart.model_copy(update={"series": [moved, *rest]})
    browser.open(write_page([other], tmp_path / "index.html"))
    wanted = shown(line)
    assert in_picture(other)[0] != wanted
    assert not close(in_page(other, browser)[0], wanted, chart, 4e-4)
    assert not close(in_terminal(other)[0], wanted, chart, 0.08)
    assert close(in_terminal(chart)[0], wanted, chart, 0.08)


# -- labels -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(len(charts())))
def test_no_text_of_a_picture_hides_another_or_a_mark(number: int) -> None:
    chart = charts()[number]
    assert collisions(*picture_boxes(chart)) == []


def test_a_label_without_a_place_stands_in_the_legend() -> None:
    texts = [box.text for box in picture_boxes(crowded_chart())[0]]
    for label in ("always guessing the average", "the budget allows", "known D = 12", "too few heads", "enough heads"):
        assert label in texts
    assert any(text.split() == ["4.5", "times", "smaller", "error"] for text in texts)


def test_without_the_search_for_places_labels_collide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labels, "first_free", lambda places, _: next(iter(places)))
    found = collisions(*picture_boxes(crowded_chart()))
    assert any("known" in a or "guessing" in a for a, _ in found)


@needs_browser
@pytest.mark.parametrize("width", [390, 1280])
def test_no_text_of_a_page_hides_another_or_a_mark(browser: Browser, tmp_path: Path, width: int) -> None:
    made = charts()
    browser.open(write_page(made, tmp_path / "index.html"), width)
    for chart in made:
        texts, marks, legend = page_boxes(chart, browser)
        assert collisions(texts, marks) == [], chart.id
        names = [text.text for text in texts]
        for label in [m.text for m in chart.marks] + [level.text for level in chart.levels]:
            assert (label in names) != (label in legend), (chart.id, label)
    careless = script().replace("if (taken.some((other) => meet(here, other))) continue;", "")
    assert careless != script()
    browser.open(write_page([crowded_chart()], tmp_path / "twin.html", careless), width)
    assert collisions(*page_boxes(crowded_chart(), browser)[:2])


@needs_browser
def test_the_still_picture_has_the_same_texts(browser: Browser, tmp_path: Path) -> None:
    """Without the script: matplotlib's texts, in the page's font, are all inside the picture."""
    made = charts()
    browser.open(write_page(made, tmp_path / "index.html", '"use strict";'))
    for chart in made:
        svg = f"document.querySelector('#{chart.id} > svg')"
        texts = browser.run(f"[...{svg}.querySelectorAll('text')].map(t => t.textContent)")
        assert {chart.x.label, chart.y.label, *chart.names()} - {s.name for s in chart.ends()} <= {
            *texts,
            *chart.names()[:1],
        }
        outside = browser.run(f"""(r => [...{svg}.querySelectorAll('text')].filter(t => {{
            const b = t.getBoundingClientRect(); return b.right > r.right + 2 || b.left < r.left - 2; }})
            .map(t => t.textContent))({svg}.getBoundingClientRect())""")
        assert outside == [], chart.id
