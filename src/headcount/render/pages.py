"""The page engine: Jinja2 templates in which every value is made harmless and escaped on its way in.

A template is named after its room: "render/run.html.j2" lies in `headcount/render/templates`. No template can output a
raw value, since there is no `safe` filter. The only markup is an `Illustration` or a chart, which a template shows with
`figure(chart)`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from headcount.core.text import plain
from headcount.render.charts.chart import Chart
from headcount.render.charts.html import HINT, figure, script, script_hash, style

MARK = '<meta name="generator" content="headcount">'
"""Marks our pages, near their beginning, so that they can be told from a user's."""
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""Tells the browser to load nothing."""
FILTERS = ("length",)
"""Jinja2 filters that templates may use; none of them makes markup."""
NBSP = "\N{NO-BREAK SPACE}"
_UNITS = "%|×|ms|s|min|h|MB|GB|MiB|GiB|heads?|times"
_BETWEEN = re.compile(
    rf"(?<=\d) (?=(?:{_UNITS})(?!\w))|(?<=%) (?=interval \d)|(?<=interval) (?=\d)"  # 90 %, 12 ms, 90 % interval 3
    r"|(?<=×) (?=\d)"  # error × 1,100
    r"|(?<![\w;&])(?P<left>\|?[^\W\d_][\w₀-₉]?\|?) (?P<sign>[=≈≤≥]) (?=[−+-]?[\d.])"  # h = 3, |S| ≥ 8
)
_POWER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?e-\d+(?!\w)")  # 5.4e-5, which a line may break at its hyphen
_KEPT = re.compile(r'(<(script|style|svg|pre|code)\b.*?</\2>|<span class="one-line">[^<]*</span>|<[^>]*>)', re.DOTALL)
"""Tags, and elements whose text is not prose but drawn, run or copied."""
_TITLE = re.compile(r"<title>.*?</title>", re.DOTALL)
"""The title of a page is text alone: a browser reads no element in it."""


def page(template: str, *, live: bool = True, rules: str = "", **values: Any) -> str:
    """Return a full page that loads nothing.

    live: whether it contains the script of the charts; the browser refuses any other. rules: style rules for its own
    pictures, besides the one stylesheet.
    """
    code = script() if live else ""
    policy = f"{POLICY}; script-src '{script_hash(code)}'" if live else POLICY
    own = {"mark": MARK, "policy": policy, "style": _style() + rules, "script": code}
    return render(template, **values, **{name: Markup(text) for name, text in own.items()})


def render(template: str, **values: Any) -> str:
    """Return the HTML of a template: a page, or a part of one."""
    text = _environment().get_template(template).render(values)
    # values are made harmless where they enter; this catches what was forgotten
    return unbroken(plain(text, lines=True))


class Illustration:
    """A picture drawn as an SVG element, with its caption: the only markup that a page takes unescaped."""

    def __init__(self, svg: str, caption: str, narrow: Sequence[str] = ()) -> None:
        """Take a picture; `narrow` has its panels, to be shown one below the other on phones."""
        self.svg, self.caption = Markup(svg), caption
        self.narrow = [Markup(_renamed(panel, f"narrow-{i}-")) for i, panel in enumerate(narrow)]


def _renamed(svg: str, mark: str) -> str:
    """Return a drawing whose ids have a prefix, so that no page has an id twice."""
    names = set(re.findall(r'\bid="([^"]+)"', svg))
    text = re.sub(r"#([\w-]+)", lambda m: f"#{mark}{m[1]}" if m[1] in names else m[0], svg)
    return re.sub(r'\bid="', f'id="{mark}', text)


def unbroken(html: str) -> str:
    """Return a page whose lines never break inside "90 %", "12 ms", "h = 3" or "5e-5"; tags, code and drawings stay."""
    parts: list[str] = []
    end = 0
    for kept in _KEPT.finditer(html):
        parts += [_joined(html[end : kept.start()]), kept[0]]
        end = kept.end()
    return _TITLE.sub(lambda m: re.sub(r"</?span[^>]*>", "", m[0]), "".join([*parts, _joined(html[end:])]))


def _joined(text: str) -> str:
    text = _BETWEEN.sub(lambda m: NBSP if m["left"] is None else f"{m['left']}{NBSP}{m['sign']}{NBSP}", text)
    return _POWER.sub(r'<span class="one-line">\g<0></span>', text)


@cache
def _environment() -> Environment:
    """Return a Jinja2 environment without unescaped output: no filter that makes markup, no globals but ours."""
    made = Environment(
        loader=FunctionLoader(_source),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_harmless,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters = {**{name: made.filters[name] for name in FILTERS}, "thousands": lambda number: f"{number:,}"}
    own: Any = made.globals
    own.clear()
    own.update(figure=_figure, hint=Markup(HINT))
    return made


def _source(name: str) -> str:
    room, _, file = name.partition("/")
    return (resources.files(f"headcount.{room}") / "templates" / file).read_text(encoding="utf-8")


def _harmless(value: Any) -> Any:
    """Return a value as harmless text, for Jinja2 to escape; markup, which is ours, as it is."""
    return value if isinstance(value, Markup) else plain(value, lines=True)


def _figure(chart: Chart) -> Markup:
    """Return a chart as an element of a page."""
    return Markup(figure(chart))


def _style() -> str:
    """Return the one stylesheet: that of pages, and that of charts."""
    return (resources.files("headcount.render") / "page.css").read_text(encoding="utf-8") + style()
