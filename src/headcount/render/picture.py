"""A matplotlib figure that a notebook shows, whether or not pyplot was ever imported."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.text import Text

from headcount.core.text import escape, plain
from headcount.render.style import COLOURS, PNG_DPI, RAMP, _settings  # pyright: ignore[reportPrivateUsage] (one style for all)

NOTEBOOK_DPI = 110
"""Dots per inch in a notebook: about 800 pixels wide."""


class Picture(Figure):
    """A figure with the package's settings, also in a notebook; every drawing of the package returns one."""

    def draw(self, renderer: Any) -> None:
        """Draw the figure; titles and names come from files and users, and are made harmless first."""
        for text in self.findobj(Text):
            text.set_text(plain(text.get_text(), lines=True))  # pyright: ignore[reportAttributeAccessIssue]
        super().draw(renderer)

    def _repr_png_(self) -> bytes:
        return self.as_png(NOTEBOOK_DPI)

    def as_png(self, dpi: int) -> bytes:
        """Return the picture as the bytes of a PNG file, the same every time."""
        return self.as_bytes("png", dpi=dpi)

    def as_file(self, path: Path) -> bytes:
        """Return the bytes of a file, png, pdf or svg by its ending."""
        kind = path.suffix.lower().removeprefix(".")
        return self.as_png(PNG_DPI) if kind == "png" else self.as_bytes(kind)

    def as_bytes(self, kind: str, **options: Any) -> bytes:
        """Return the picture as the bytes of a png, pdf or svg file, without dates, the same every time."""
        dates = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}, "pdf": {"CreationDate": None}}
        buffer = io.BytesIO()
        with _settings():
            self.savefig(buffer, format=kind, metadata=dates[kind], **options)
        return buffer.getvalue()

    def as_element(self, name: str, alt: str, colours: Mapping[str, str] | None = None) -> str:
        """Return the picture as an SVG element of a page, the same every time.

        Its ids begin with `name`, `alt` describes it, and the page sets its size. The package's colours, and those in
        `colours`, become values of `var(--…)`, which a page redefines for a dark background.
        """
        text = self.as_bytes("svg", transparent=True).decode()
        box = re.search(r'viewBox="[^"]*"', text)
        body = text[text.index(">", text.index("<svg")) + 1 : text.rindex("</svg>")].replace("xlink:href", "href")
        for unwanted in _UNWANTED:
            body = unwanted.sub("", body)
        referred = set(re.findall(r'(?:href="#|url\(#)([^")]*)', body))
        body = re.sub(r' id="([^"]*)"', lambda found: f' id="{name}-{found[1]}"' if found[1] in referred else "", body)
        body = body.replace('href="#', f'href="#{name}-').replace("url(#", f"url(#{name}-")
        body = _EMPTY.sub("", _TAG.sub(lambda tag: _slim(tag[0]), body))
        ramp = {f"c{i}": colour for i, colour in enumerate(RAMP)}
        for variable, colour in {**COLOURS, **ramp, **(colours or {})}.items():
            body = body.replace(f": {colour}", f": var(--{variable}, {colour})")
        joined = _SPACE.sub("\n", body).strip()
        label = f'role="img" aria-label="{escape(alt)}" {box[0] if box else ""} style="stroke-linejoin: round"'
        return f"<svg {label}>\n{joined}\n</svg>\n"


_UNWANTED = [
    re.compile(form, flags=re.DOTALL)
    for form in (
        r"<metadata>.*?</metadata>",
        r"<style.*?</style>",
        r" transform=\"rotate\(-0 [^\"]*\"",
        r"font-family: [^;\"]*; ",
        r"<path [^<>]*style=\"fill: none\"/>",
    )
]
"""What the page sets itself, rotations by 0, and invisible shapes."""
_EMPTY = re.compile(r"<defs>\s*</defs>|<g/>|<g>\s*</g>")
_SPACE = re.compile(r"\s*\n\s*")
_TAG = re.compile(r"<[a-z][^<>]*>")
_PLACES = re.compile(r'(?<=\s)(d|x|y|points|transform)="[^"]*"')


def _slim(tag: str) -> str:
    """Return a tag whose coordinates have one decimal, or two if they are small: more would not be visible."""
    return _PLACES.sub(lambda places: _NUMBER.sub(lambda n: _short(float(n[0])), " ".join(places[0].split())), tag)


_NUMBER = re.compile(r"-?\d+\.\d{2,}")


def _short(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if abs(value) < 10 else f"{value:.1f}"
