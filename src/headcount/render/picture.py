"""A matplotlib figure that a notebook shows, whether or not pyplot was ever imported."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.text import Text

from headcount.core.text import plain
from headcount.render.style import PNG_DPI, _settings  # pyright: ignore[reportPrivateUsage] (one style for all)

NOTEBOOK_DPI = 110
"""Dots per inch in a notebook: about 800 pixels wide."""


class Picture(Figure):
    """What every drawing of the package returns: a figure with the house settings, in a notebook too."""

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
