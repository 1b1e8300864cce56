"""The terminal for results: it reads no markup, and a text that it prints is one line of harmless characters.

A style is given beside a text, never inside of it: `terminal.print(bold("It holds"), f": {reason}", sep="")`.
"""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from headcount.core.text.harmless import plain


class Terminal(Console):
    """A rich console for text from anywhere: tags such as [bold], emoji codes and control characters do nothing.

    Each text, printed or in a table, is one line, so that no name can begin a line of its own; a cell of several lines
    is made by `cell`.
    """

    def __init__(self, **options: Any) -> None:
        """Take what a console takes."""
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def print(self, *objects: Any, **options: Any) -> None:
        """Print texts as one line, or something that renders itself, such as a table."""
        super().print(*(_shown(value) for value in objects), **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Turn a text of a print or a cell into one line of what is shown; everything in it is literal."""
        literal: dict[str, Any] = {**options, "markup": False, "emoji": False}
        return super().render_str(plain(text), **literal)


def _shown(value: Any) -> Any:
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, Text) and plain(value.plain, lines=True) != value.plain:
        return Text(plain(value.plain, lines=True), style=value.style, end=value.end)
    return value


def styled(text: str, style: str) -> Text:
    """Return a text in a style such as "bold" or "green", as a part of one line of print."""
    return Text(plain(text), style=style)


def bold(text: str) -> Text:
    """Return a text in bold, as a part of one line of print."""
    return styled(text, "bold")


def cell(text: str, more: str = "") -> Text:
    """Return a cell of a table that any console shows as it stands, with `more` in small print below it."""
    shown = Text(plain(text, lines=True))
    return shown.append(f"\n{plain(more, lines=True)}", style="dim") if more else shown
