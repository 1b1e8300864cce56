"""The terminal for results: it ignores markup, and prints every text as one line of harmless characters.

A style is given beside a text, never inside it: `terminal.print(bold("It holds"), f": {reason}", sep="")`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.text import Text

from headcount.core.text.folding import continuation_indent, folded_spans
from headcount.core.text.harmless import plain


class Terminal(Console):
    """A rich console for untrusted text: tags such as [bold], emoji codes and control characters have no effect.

    No name can begin a line of its own: a text is one line, folded between words to the terminal's width.
    """

    def __init__(self, **options: Any) -> None:
        """Take the options of a rich console."""
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def print(self, *objects: Any, **options: Any) -> None:
        """Print texts as one line, folded between words, or an object that renders itself, such as a table.

        Nothing is cut: a word longer than a line stays whole. `soft_wrap` leaves a line to be copied unfolded.
        """
        options = {"overflow": "ignore", "crop": False, **options}
        shown = [_shown(value) for value in objects]
        texts = [Text(value) if isinstance(value, str) else value for value in shown if isinstance(value, str | Text)]
        unfolded = options.get("soft_wrap", self.soft_wrap) or options.get("no_wrap")
        if texts and len(texts) == len(shown) and not unfolded:
            shown = [_folded(Text(options.pop("sep", " ")).join(texts), self.width)]
            options["no_wrap"] = True
        super().print(*shown, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Return a printed text or a cell as one line, taken literally."""
        literal: dict[str, Any] = {**options, "markup": False, "emoji": False}
        return super().render_str(plain(text), **literal)


def _shown(value: Any) -> Any:
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, Text) and plain(value.plain, lines=True) != value.plain:
        return Text(plain(value.plain, lines=True), style=value.style, end=value.end)
    return value


def _folded(line: Text, width: int) -> Text:
    """Break a styled line between words."""
    parts = [line[start:end] for start, end in folded_spans(line.plain, width)]
    return Text("\n" + " " * continuation_indent(line.plain, width)).join(parts)


def styled(text: str, style: str) -> Text:
    """Return a text in a style such as "bold" or "green", as a part of one line of print."""
    return Text(plain(text), style=style)


def bold(text: str) -> Text:
    """Return a text in bold, as a part of one line of print."""
    return styled(text, "bold")


def row_text(pieces: Iterable[tuple[str, str]]) -> Text:
    """Return one line of a table from texts with their styles, which a console prints unchanged."""
    line = Text.assemble(*((plain(text), style) for text, style in pieces), no_wrap=True, overflow="ignore")
    line.rstrip()
    return line
