"""Two inputs that attention cannot tell apart although their targets differ, as a picture and as a page."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headcount.base.files import write_bytes
from headcount.report.draw import _settings  # pyright: ignore[reportPrivateUsage] (one style for all)
from headcount.report.pair_data import PairFigure
from headcount.report.pair_draw import draw_pair
from headcount.report.pair_page import page
from headcount.report.theory import check_picture

UNDATED: dict[str, dict[str, None]] = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}


def pair_png(figure: Mapping[str, Any], *, dpi: int = 200) -> bytes:
    """Draw a pair as a PNG, the same bytes every time."""
    return _bytes(PairFigure.parse(figure, "pair"), "png", dpi)


def save_pair(figure: Mapping[str, Any], path: Path) -> None:
    """Draw a pair into a file: png, pdf or svg, by its ending."""
    check_picture(path)
    write_bytes(path, _bytes(PairFigure.parse(figure, "pair"), path.suffix.lower()[1:], 200))


def pair_html(figure: Mapping[str, Any]) -> str:
    """Return the picture, its numbers and what they imply as one page that needs nothing else."""
    return page(PairFigure.parse(figure, "pair"))


def _bytes(figure: PairFigure, ending: str, dpi: int) -> bytes:
    with _settings():
        buffer = io.BytesIO()
        draw_pair(figure, titled=True).savefig(buffer, format=ending, dpi=dpi, metadata=UNDATED[ending])
    return buffer.getvalue()
