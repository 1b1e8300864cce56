"""Charts inside a page: a still picture that prints and needs no script, its data, and the script.

matplotlib draws the still picture. The script, chart.js, replaces it with the same data, interactively: at any width,
with a legend that hides and shows series, for mouse and keyboard.
"""

from __future__ import annotations

import base64
import hashlib
from importlib import resources

from headcount.core.text import escape, json_text, plain_data
from headcount.render.charts.chart import Chart
from headcount.render.charts.matplotlib import still
from headcount.render.style import DARK_RAMP, RAMP

TONES = ("few", "enough", "plain", "ink", "muted")


def script() -> str:
    """Return the script of the charts."""
    return (resources.files("headcount.render.charts") / "chart.js").read_text(encoding="utf-8")


def script_hash(text: str) -> str:
    """Return the hash by which a page's policy allows this script, and no other."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def style() -> str:
    """Return the stylesheet of the charts; the colours of series follow the page's background."""
    css = (resources.files("headcount.render.charts") / "chart.css").read_text(encoding="utf-8")
    light, dark = ("".join(f" --c{i}: {c};" for i, c in enumerate(colours)) for colours in (RAMP, DARK_RAMP))
    names = [*(f"c{i}" for i in range(len(RAMP))), *TONES]
    picks = "".join(f".c-{name} {{ --c: var(--{name}); }}\n" for name in names)
    screen = f"@media screen and (prefers-color-scheme: dark) {{ :root {{{dark} }} }}\n"
    return f":root {{{light} --ground: var(--page); }}\n{screen}{picks}{css}"


HINT = (
    '<p class="hint" hidden>Point at a mark to read it. Drag to zoom in, double-click to reset; after a click, the '
    "wheel zooms too. Click a name below a chart to hide or show it. Keys: arrows, +, −, 0.</p>"
)
"""How to use the charts; shown by the script, since they are interactive only with it."""


def figure(chart: Chart) -> str:
    """Return a chart as a figure of a page: title, picture, caption and data."""
    chart = Chart(**plain_data(chart.model_dump()))  # the script draws from the same texts
    text = json_text(chart.model_dump(mode="json", exclude_defaults=True), compact=True)
    data = text.replace("<", "\\u003c")  # no text of a user can end the script element
    notes = " ".join([chart.caption, *chart.notes]).strip()
    subtitle = f" <small>{escape(chart.subtitle)}</small>" if chart.subtitle else ""
    return (
        f'<figure class="chart" id="{chart.id}">\n<h3>{escape(chart.title)}{subtitle}</h3>\n{still(chart)}'
        f"<figcaption>{escape(notes)}</figcaption>\n"
        f'<script type="application/json">{data}</script>\n</figure>'
    )
