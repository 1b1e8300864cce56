"""Two inputs that attention cannot tell apart although their targets differ, as a picture and as a page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headcount.core import write_bytes
from headcount.render.bounds import check_picture
from headcount.render.notebook import Drawing
from headcount.render.pair.data import PairFigure
from headcount.render.pair.draw import draw_pair
from headcount.render.pair.page import page
from headcount.render.style import _settings  # pyright: ignore[reportPrivateUsage] (one style for all)


def pair_png(figure: Mapping[str, Any], *, dpi: int = 200) -> bytes:
    """Return a pair as a PNG, the same bytes every time."""
    return pair_drawing(figure).make().as_png(dpi)


def pair_drawing(figure: Mapping[str, Any]) -> Drawing:
    """Return how to draw a pair, for a notebook."""
    data = PairFigure.parse(figure, "pair")

    def make() -> Any:
        with _settings():
            return draw_pair(data, titled=True)

    return Drawing(make, f"{data.title}. {data.subtitle}")


def save_pair(figure: Mapping[str, Any], path: Path) -> None:
    """Draw a pair into a file: png, pdf or svg, by its ending."""
    check_picture(path)
    write_bytes(path, pair_drawing(figure).make().as_file(path))


def pair_html(figure: Mapping[str, Any]) -> str:
    """Return the picture, its numbers and what they imply as one self-contained page."""
    return page(PairFigure.parse(figure, "pair"))
