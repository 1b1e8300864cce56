"""The page in a real browser: it draws every chart, answers mouse and keys, and nothing foreign runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser_pipe import Browser, find_browser
from drawn import in_page, shown
from run_cases import made_case
from test_chart_drawings import close
from test_run_review import made_extra

from headcount.analysis.of_runs import analyse
from headcount.render.charts.html import script
from headcount.render.charts.of_run import run_charts
from headcount.render.run_page import run_page
from reproduction.real_cases import cifar_runs

pytestmark = pytest.mark.skipif(find_browser() is None, reason="no chromium on this machine")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    one = Browser(find_browser() or "", tmp_path_factory.mktemp("profile"))
    yield one
    one.close()


@pytest.fixture(scope="module")
def case():
    return made_case(hidden=(16, 32), diverged=1)


@pytest.fixture
def page(case, browser: Browser, tmp_path: Path) -> Path:
    """A page that is open, with a clean slate of complaints."""
    path = tmp_path / "index.html"
    path.write_text(run_page(*case), encoding="utf-8")
    browser.errors.clear()
    browser.requests.clear()
    browser.open(path)
    return path


def place(browser: Browser, x: float, y: float, chart: str = "error-by-heads-1") -> tuple[float, float]:
    """A point of a chart, in parts of its picture, on the screen."""
    r = browser.run(
        f"(r => [r.x, r.y, r.width, r.height])(document.querySelector('#{chart} > svg').getBoundingClientRect())"
    )
    return r[0] + x * r[2], r[1] + y * r[3]


def test_the_script_draws_every_chart(case, page, browser):
    """What it draws is compared with the data in test_chart_drawings.py."""
    live = browser.run("document.querySelectorAll('figure.chart > svg.live[tabindex]').length")
    assert live == len(run_charts(case[1])) > 5
    assert browser.run("[...document.querySelectorAll('figure.chart > svg.live')].every(s => s.querySelector('.axis'))")


def test_it_answers_and_nothing_is_loaded(page, browser):
    state = "document.querySelector('#error-by-heads-1 {}')"
    tip, axis = state.format(".tip"), state.format("> svg .x").replace("Selector(", "SelectorAll(")
    ticks = f"[...{axis}].map(t => t.textContent)"
    whole = browser.run(ticks)
    assert whole == ["1", "2", "3", "4", "5"]
    assert browser.run(f"{tip}.hidden")
    point = browser.run(f"""(() => {{ const d = {state.format("> svg .dot")}.getBBox(), s = {state.format("> svg")},
        m = s.getScreenCTM(); return [m.e + m.a * (d.x + 4), m.f + m.d * (d.y + 4)]; }})()""")
    browser.mouse("Moved", *point)
    told = browser.run(f"{tip}.innerText")
    assert told.startswith("T = ")
    assert "Number of attention heads: 1" in told
    assert "Error (NMSE): 0.0" in told
    tips = browser.run(f"(r => [r.x, r.y, r.width, r.height])({tip}.getBoundingClientRect())")
    assert abs(tips[0] - point[0]) < 60, "the tip stands beside its point"
    assert abs(tips[1] + tips[3] - point[1]) < 60
    # drag: zoom; double click: the whole chart again
    (x0, y0), (x1, y1) = place(browser, 0.5, 0.2), place(browser, 0.7, 0.7)
    for kind, x, y in (("Pressed", x0, y0), ("Moved", x1, y1), ("Released", x1, y1)):
        browser.mouse(kind, x, y, **({"buttons": 1, "button": "left"} if kind == "Moved" else {}))
    assert browser.run(ticks) != whole
    assert not browser.run(f"{state.format('.reset')}.hidden")
    for count in (1, 2):
        for kind in ("Pressed", "Released"):
            browser.mouse(kind, x0, y0, clickCount=count)
    assert browser.run(ticks) == whole
    # the wheel zooms, since the click gave the chart the focus; 0 returns
    browser.mouse("Wheel", *place(browser, 0.6, 0.5), deltaX=0, deltaY=-120)
    assert not browser.run(f"{state.format('.reset')}.hidden")
    browser.key("0")
    assert browser.run(ticks) == whole
    for key, wanted in (("ArrowRight", "heads: 1"), ("ArrowDown", "T = "), ("+", "")):
        browser.key(key)
        assert wanted in browser.run(f"{tip}.innerText")
    # the legend hides and shows, by mouse and by key
    paths = "document.querySelectorAll('#error-by-heads-1 > svg g path').length"
    browser.key("0")
    before = browser.run(paths)
    browser.run(f"{state.format('.legend li')}.click()")
    assert browser.run(paths) < before
    browser.run(f"{state.format('.legend li')}.focus()")
    browser.key("Enter")
    assert browser.run(paths) == before
    assert browser.errors == []
    assert set(browser.requests) == {page.as_uri()}


def test_charts_of_other_rooms_answer_too(case, browser, tmp_path):
    extra, path = made_extra(), tmp_path / "extra.html"
    path.write_text(run_page(*case, extra=[extra]), encoding="utf-8")
    browser.errors.clear()
    browser.open(path)
    assert browser.run("[...document.querySelectorAll('figure.chart')].map(f => f.id).indexOf('reversal')") > 0
    browser.run("document.querySelector('#reversal').scrollIntoView()")
    svg, tip = (f"document.querySelector('#reversal {part}')" for part in ("> svg", ".tip"))
    point = browser.run(f"""(() => {{ const d = {svg}.querySelector('.dot').getBBox(), m = {svg}.getScreenCTM();
        return [m.e + m.a * (d.x + 4), m.f + m.d * (d.y + d.height - 4)]; }})()""")
    browser.mouse("Moved", *point)
    assert "p = 0.02" in browser.run(f"{tip}.innerText")
    whole = browser.run(f"{svg}.innerHTML")
    (x0, y0), (x1, y1) = place(browser, 0.2, 0.3, "reversal"), place(browser, 0.7, 0.7, "reversal")
    for kind, x, y in (("Pressed", x0, y0), ("Moved", x1, y1), ("Released", x1, y1)):
        browser.mouse(kind, x, y, **({"buttons": 1, "button": "left"} if kind == "Moved" else {}))
    assert browser.run(f"{svg}.innerHTML") != whole
    browser.key("0")
    browser.run("dispatchEvent(new Event('beforeprint'))")
    wanted = [shown(series) for series in extra.series]
    assert all(close(*pair, extra, 4e-4) for pair in zip(in_page(extra, browser), wanted, strict=True))
    assert browser.errors == []


def test_a_foreign_script_is_refused(page, browser):
    html = page.read_text(encoding="utf-8")
    foreign = "<script>document.title = 'taken'</script><img src='https://example.test/x.png'>"
    page.write_text(html.replace("</main>", f"{foreign}</main>"), encoding="utf-8")
    browser.open(page)
    assert browser.run("document.title") == "How many heads?"
    assert "Content Security Policy" in json.dumps(browser.errors)
    assert browser.run("document.querySelectorAll('figure.chart > svg[tabindex]').length") > 5
    # a script with one letter changed does not run either
    page.write_text(html.replace('"use strict";', '"use strict"; '), encoding="utf-8")
    browser.open(page)
    assert browser.run("document.querySelectorAll('figure.chart > svg[tabindex]').length") == 0
    assert browser.run("document.querySelectorAll('figure.chart > svg.live').length") == 0
    assert browser.run("document.querySelectorAll('figure.chart > svg use').length") > 5, "drawn without a script"


@pytest.mark.parametrize("width", [390, 1000])
def test_nothing_sticks_out(page, browser, width):
    browser.open(page, width)
    assert browser.run("document.documentElement.scrollWidth") <= width
    small = "[...document.querySelectorAll('.chart text')].filter(t => t.getBoundingClientRect().height < 9).length"
    assert browser.run(small) == 0, "text that nobody can read"


COLLIDING = """[...document.querySelectorAll('figure.chart > svg')].map(svg => {
  const boxes = [...svg.querySelectorAll('text.x')].map(t => t.getBoundingClientRect());
  return boxes.slice(1).filter((box, i) => box.left < boxes[i].right + 4).length;
}).reduce((a, b) => a + b)"""


@pytest.mark.parametrize("width", [390, 1000])
def test_ticks_do_not_run_into_each_other(browser, tmp_path, monkeypatch, width):
    """Head counts 10, 11, 12, 13, 14 on a narrow chart; the twin leaves the thinning out."""
    runs = cifar_runs(lengths=(65, 145))
    found, path = analyse(runs, resamples=100, on="train"), tmp_path / "index.html"

    def colliding(text: str) -> int:
        monkeypatch.setattr("headcount.render.pages.script", lambda: text)
        path.write_text(run_page(runs, found), encoding="utf-8")
        browser.open(path, width)
        assert browser.run("document.querySelectorAll('.chart text.x').length") > 8
        return browser.run(COLLIDING)

    assert colliding(script()) == 0
    if width == 390:
        assert colliding(script().replace("if (X(v) - last > 9 * s.length + 3) ", "")) > 0
