"""The page engine: nothing gets into a page as it stands, and every page is whole, readable and reachable."""

from __future__ import annotations

import ast
import itertools
import re
from html import unescape
from pathlib import Path

import pytest
from browser_pipe import Browser, find_browser
from jinja2 import DictLoader, TemplateError, UndefinedError, nodes
from page_cases import PAGES

from headcount.core.text.harmless import escape
from headcount.render import pages
from headcount.render.pages import FILTERS, NBSP, POLICY, _environment, unbroken
from hostile import EVIL, hidden
from test_report import Checker, read

SOURCE = Path(pages.__file__).parent.parent
TEMPLATES = {f"{p.parent.parent.name}/{p.name}": p for p in sorted(SOURCE.rglob("*.j2"))}


# -- nothing gets in as it stands -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", PAGES)
def test_a_hostile_text_is_text_everywhere(kind: str) -> None:
    html = PAGES[kind](EVIL)
    assert hidden(html) == set()
    assert "\\u202e" in html
    assert "<b>&" not in html
    assert "[bold]x[/bold]" in unescape(html)
    read(html)


def render(text: str, **values: object) -> str:
    return _environment().from_string(text).render(values)


def test_a_value_is_escaped_wherever_it_stands() -> None:
    """As text, in an attribute, through a macro, a block, a filter, joined to markup, as a key, as an object."""

    class Shown:
        def __str__(self) -> str:
            return EVIL

        def __html__(self) -> str:
            return f"<i>{EVIL}</i>"

    ways = (
        "{{ x }}",
        '<p title="{{ x }}">',
        "{% macro m(y) %}{{ y }}{% endmacro %}{{ m(x) }}",
        "{{ [x][0] }}",
        "{% set y = x %}{{ y }}",
        "{% set y %}{{ x }}{% endset %}{{ y }}",
        "{% call(y) m() %}{{ x }}{% endcall %}",
        "{% for key in {x: 1} %}{{ key }}{% endfor %}",
        '{{ "a" if not x else x }}',
        "{{ x ~ x }}",
    )
    for way in ways:
        text = "{% macro m(y='') %}{{ caller(y) if caller else y }}{% endmacro %}" + way
        for value in (EVIL, Shown()):
            shown = render(text, x=value)
            assert hidden(shown) == set(), way
            assert "<b>" not in shown, way
            assert "<i>" not in shown, way
    assert render("{{ x }}", x=EVIL).replace("&#39;", "&#x27;").replace("&#34;", "&quot;") == escape(EVIL)


def test_a_value_that_is_missing_is_an_error() -> None:
    for text in ("{{ x }}", "{% if x %}{% endif %}", "{{ [].first }}"):
        with pytest.raises(UndefinedError):
            render(text)


def leaks(tree: nodes.Template) -> list[str]:
    """Return what in a template could let a value through: filters but the few, and a switch of the escaping."""
    found = [node.name for node in tree.find_all(nodes.Filter) if node.name not in {*FILTERS, "thousands"}]
    found += [type(node).__name__ for node in tree.find_all((nodes.ScopedEvalContextModifier, nodes.FilterBlock))]
    return found + [node.attr for node in tree.find_all(nodes.Getattr) if node.attr.startswith("__")]


def test_no_template_can_let_a_value_through() -> None:
    assert len(TEMPLATES) >= 7
    for name, path in TEMPLATES.items():
        text = path.read_text(encoding="utf-8")
        assert leaks(_environment().parse(text)) == [], name
        assert "safe" not in re.sub(r"\{#.*?#\}", "", text, flags=re.DOTALL), name
        _environment().get_template(name)


SABOTAGED = (
    "{{ x | safe }}",
    "{% autoescape false %}{{ x }}{% endautoescape %}",
    "{% filter upper %}{{ x }}{% endfilter %}",
    "{{ x | replace('a', 'b') }}",
    "{{ ''.__class__ }}",
    "{{ x | tojson }}",
    "{% if x | safe %}{{ x }}{% endif %}",
)


@pytest.mark.parametrize("text", SABOTAGED)
def test_a_template_that_lets_a_value_through_is_found(text: str) -> None:
    assert leaks(_environment().parse(text)) != []


def test_a_page_with_a_leak_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A template as shipped, with one value let through: the engine itself refuses it."""
    shipped = TEMPLATES["render/base.html.j2"].read_text(encoding="utf-8")
    sabotaged = shipped.replace("<title>{{ title }}", "<title>{{ title | safe }}")
    assert sabotaged != shipped
    monkeypatch.setattr(_environment(), "loader", DictLoader({"render/base.html.j2": sabotaged}))
    monkeypatch.setattr(_environment(), "cache", None)
    with pytest.raises(TemplateError, match="No filter named 'safe'"):
        pages.page("render/base.html.j2", title=EVIL)


def markup_problems(path: Path) -> list[str]:
    """Return where a module makes markup of its own, or takes anything but a drawing for an illustration."""
    text = path.read_text(encoding="utf-8")
    found = ["markupsafe"] if "markupsafe" in text and path.name != "pages.py" else []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Illustration":
            narrow = node.args[2] if len(node.args) > 2 else ast.List([])
            drawn = [node.args[0], *([narrow.elt] if isinstance(narrow, ast.ListComp) else narrow.elts)]
            names = [ast.unparse(one.func).split(".")[-1] if isinstance(one, ast.Call) else "" for one in drawn]
            found += [ast.unparse(node)] if set(names) - {"svg", "picture"} else []
    return found


def test_only_the_engine_makes_markup() -> None:
    assert {path: found for path in SOURCE.rglob("*.py") if (found := markup_problems(path))} == {}


@pytest.mark.parametrize(
    "line",
    [
        "from markupsafe import Markup",
        "Illustration(name, '')",
        "Illustration(f'<b>{name}</b>', '')",
        "Illustration(svg(figure), '', [name])",
        "Illustration(svg(figure), '', [name for name in names])",
    ],
)
def test_markup_of_ones_own_is_found(line: str, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(line)
    assert len(markup_problems(tmp_path / "a.py")) == 1


# -- lines that do not break ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("90 % of h = 3", "90_% of h_=_3"),
        ("(90 % interval 3 to 5)", "(90_%_interval_3 to 5)"),
        ("in 12 ms", "in 12_ms"),
        ("D = 3, N ≤ 32, |S| ≥ 8", "D_=_3, N_≤_32, |S|_≥_8"),
        ("3 heads, 1 head", "3_heads, 1_head"),
        ("130 times smaller", "130_times smaller"),
        ("error × 1,100", "error ×_1,100"),
        ("an error of 5.4e-5.", 'an error of <span class="one-line">5.4e-5</span>.'),
        ("version 1.5e-2b, a5e-5", "version 1.5e-2b, a5e-5"),
        ("<title>5.4e-5</title>", "<title>5.4e-5</title>"),
        ("x = y", "x = y"),
        ("head_dim = 8", "head_dim = 8"),
        ("3 sequences", "3 sequences"),
        ("a &lt; 3 %", "a &lt; 3_%"),
        ("p = −0.5", "p_=_−0.5"),
        ('<p title="90 %" class="a b">5 %</p>', '<p title="90 %" class="a b">5_%</p>'),
        ("<pre>h = 3</pre> h = 3", "<pre>h = 3</pre> h_=_3"),
        ("<code>4 s</code>", "<code>4 s</code>"),
        ("<svg><text>90 %</text></svg> 90 %", "<svg><text>90 %</text></svg> 90_%"),
        *[(f"<{name}>a = 3 % 2</{name}>",) * 2 for name in ("script", "style", "pre")],
    ],
)
def test_numbers_keep_to_their_units(text: str, shown: str) -> None:
    assert unbroken(text) == shown.replace("_", NBSP).replace(f"head{NBSP}dim", "head_dim")
    assert unbroken(unbroken(text)) == unbroken(text)


@pytest.mark.parametrize("kind", PAGES)
def test_no_line_breaks_inside_a_number(kind: str) -> None:
    html = PAGES[kind]("a title with 90 % and h = 3")
    text = re.sub(r"<(script|style|svg|pre)\b.*?</\1>", "", html, flags=re.DOTALL)
    text = re.sub(r"<[^>]*>", "", text)
    assert re.findall(r"\d %|\b[hDNT] = \d", text) == []
    assert f"90{NBSP}%" in text


# -- every page -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    return {kind: make("A name") for kind, make in PAGES.items()}


@pytest.mark.parametrize("kind", PAGES)
def test_a_page_loads_nothing_and_says_so(kind: str, made: dict[str, str]) -> None:
    html = made[kind]
    seen = read(html)
    assert html.index(pages.MARK) < 2000
    policy = unescape(re.search(r'Content-Security-Policy" content="([^"]+)"', html).group(1))
    scripts = [attrs for tag, attrs in seen.tags if tag == "script" and attrs.get("type") != "application/json"]
    live = "; script-src 'sha256-" in policy
    assert policy.startswith(POLICY)
    assert "unsafe-inline'; script" in policy if live else policy == POLICY
    assert len(scripts) == live
    assert [ref for ref in seen.references if not ref.startswith("#") and "/" in ref] == []
    assert not {tag for tag, _ in seen.tags} & {"link", "iframe", "object", "embed", "base", "form"}
    assert not re.search(r"@import|url\((?!#)", html)
    assert len(seen.ids) == len(set(seen.ids)), "an id twice"


def check_structure(seen: Checker) -> None:
    """What a reader who hears the page needs."""
    tags = [tag for tag, _ in seen.tags]
    assert ("html", {"lang": "en"}) in seen.tags
    assert {"title", "main", "header"} <= set(tags)
    levels = [int(tag[1]) for tag in tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels)), levels
    assert all(attrs.get("scope") in ("col", "row") for tag, attrs in seen.tags if tag == "th")
    assert tags.count("caption") == tags.count("table")
    pictures = [attrs for tag, attrs in seen.tags if tag == "svg" and "aria-hidden" not in attrs]
    assert all(attrs.get("role") == "img" and len(attrs["aria-label"]) > 20 for attrs in pictures)
    assert all(attrs.get("alt") for tag, attrs in seen.tags if tag == "img")
    boxes = [attrs for _, attrs in seen.tags if "scroll" in (attrs.get("class") or "").split()]
    assert all(attrs.get("tabindex") == "0" and attrs.get("aria-label") for attrs in boxes)
    assert len(boxes) >= tags.count("table")


@pytest.mark.parametrize("kind", PAGES)
def test_a_page_has_its_structure(kind: str, made: dict[str, str]) -> None:
    check_structure(read(made[kind]))


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        (' lang="en"', ""),
        ("<h2>", "<h4>"),
        (' scope="col"', ""),
        ("<caption>", "<b>"),
        ('role="img"', 'role="none"'),
        (' tabindex="0"', ""),
        ("<h2>", "<h1>"),
    ],
)
def test_a_page_without_its_structure_is_found(good: str, bad: str, made: dict[str, str]) -> None:
    html = made["report"]
    spoilt = html.replace(good, bad).replace("</h2>", f"</{bad.strip('<>')}>" if good == "<h2>" else "</h2>")
    spoilt = spoilt.replace("</caption>", "</b>") if good == "<caption>" else spoilt
    assert spoilt != html
    with pytest.raises((AssertionError, KeyError)):
        check_structure(read(spoilt))


@pytest.mark.parametrize("kind", PAGES)
def test_the_headline_is_the_answer_and_its_certainty(kind: str, made: dict[str, str]) -> None:
    """One short line, with nothing of what it rests on."""
    (headline,) = re.findall(r"<h1>(.*?)</h1>", made[kind], flags=re.DOTALL)
    headline = re.sub(r'<span class="mark">.</span>', "", headline)
    assert "<" not in headline
    assert ": " not in headline
    assert 3 < len(headline) < 120


# -- in a real browser ----------------------------------------------------------------------------------------


@pytest.mark.skipif(find_browser() is None, reason="no chromium on this machine")
def test_narrow_wide_and_dark_pages_fit_and_say_nothing_to_the_console(tmp_path: Path, made: dict[str, str]) -> None:
    browser = Browser(find_browser() or "", tmp_path / "profile")
    try:
        for number, html in enumerate(made.values()):
            path = tmp_path / f"{number}.html"
            path.write_text(html, encoding="utf-8")
            grounds: set[str] = set()
            for width, scheme in ((390, "light"), (390, "dark"), (1280, "light")):
                media = [{"name": "prefers-color-scheme", "value": scheme}]
                browser.send("Emulation.setEmulatedMedia", features=media)
                browser.open(path, width)
                assert browser.run("document.documentElement.scrollWidth") <= width
                grounds.add(browser.run("getComputedStyle(document.body).backgroundColor"))
                assert browser.run(UNHINTED) == []
                assert browser.run(CUT_CAPTIONS) == []
            assert len(grounds) == 2, "dark is not light"
        assert browser.errors == []
        assert [url for url in browser.requests if not url.startswith("file:")] == []
    finally:
        browser.close()


CUT_CAPTIONS = """[...document.querySelectorAll('caption span')].filter(text => text.checkVisibility()).filter(
  text => text.getBoundingClientRect().right > innerWidth).map(text => text.innerText)"""
UNHINTED = """[...document.querySelectorAll('.scroll')].filter(box => box.checkVisibility()).filter(box =>
  (box.scrollWidth > box.clientWidth + 1) !== (getComputedStyle(box, '::after').display === 'block'))
  .map(box => box.getAttribute('aria-label'))"""
"""Boxes that can be scrolled and do not say so, or the other way round."""


@pytest.mark.skipif(find_browser() is None, reason="no chromium on this machine")
def test_panels_stand_below_each_other_on_a_phone(tmp_path: Path, made: dict[str, str]) -> None:
    browser = Browser(find_browser() or "", tmp_path / "profile")
    shown = "[...document.querySelectorAll('{} svg')].filter(s => s.getBoundingClientRect().width > 0).length"
    try:
        for kind, narrow in (("pair", 1), ("probe", 2)):
            path = tmp_path / "page.html"
            path.write_text(made[kind], encoding="utf-8")
            for width, expected in ((390, (0, narrow)), (1280, (1, 0))):
                browser.open(path, width)
                assert (browser.run(shown.format(".on-wide")), browser.run(shown.format(".on-narrow"))) == expected
            browser.open(path, 390)
            texts = "[...document.querySelectorAll('.on-narrow svg text')].map(t => t.getBoundingClientRect())"
            assert browser.run(f"{texts}.every(box => box.left >= 0 && box.right <= innerWidth)")
    finally:
        browser.close()
