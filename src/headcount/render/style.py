"""The look of all pictures: colours, size, endings, and matplotlib's settings."""

from __future__ import annotations

import warnings
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from headcount.core import BadInput

# Colours of all drawings (safe for colour-blind readers). In an SVG each becomes a CSS variable with the colour as
# fallback, so that a page can lighten it on a dark background. All differ, since they are found by their value.
COLOURS = {
    "ink": "#1f2430",
    "muted": "#5c6470",
    "grid": "#e3e6eb",
    "few": "#c44e00",
    "enough": "#0067a8",
    "plain": "#5b4a9e",
    "few-ground": "#fdf1e7",
    "enough-ground": "#ebf4fb",
    "ground": "#ffffff",
}
RAMP = ("#0d0887", "#5302a3", "#8b0aa5", "#b83289", "#d2526d", "#dc6a3c", "#c98500", "#8f8a00")
"""From first to last: hue and lightness change together, so that the order is visible to colour-blind readers and in
grey prints."""
DARK_RAMP = ("#8f8dff", "#a97aff", "#c878f2", "#e47ad2", "#f588ab", "#fba283", "#fdc063", "#f3e062")
"""The same scale on a dark background."""
ENDINGS = (".png", ".pdf", ".svg")
PNG_DPI = 200


def check_ending(path: Path) -> None:
    """Raise BadInput unless a name ends in .png, .pdf or .svg."""
    if path.suffix.lower() not in ENDINGS:
        raise BadInput(f"a picture is saved as .png, .pdf or .svg, not {path.name!r}")


@contextmanager
def _settings() -> Generator[None]:
    """Use Matplotlib's defaults and ours, whatever the user's settings are, and restore these afterwards."""
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # a title may be in any script
        matplotlib.rcdefaults()
        ink, muted = COLOURS["ink"], COLOURS["muted"]
        matplotlib.rcParams.update(
            {
                "font.family": "DejaVu Sans",
                "font.size": 12,
                "text.parse_math": False,
                "text.color": ink,
                "svg.fonttype": "none",
                "svg.hashsalt": "headcount",
                "axes.axisbelow": True,
                "axes.labelcolor": ink,
                "axes.edgecolor": muted,
                "xtick.labelcolor": ink,
                "ytick.labelcolor": ink,
            }
        )
        yield
