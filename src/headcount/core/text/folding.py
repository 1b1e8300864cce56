"""Line folding: between words only, by the terminal cells that characters take."""

from __future__ import annotations

import re

from rich.cells import cell_len

HANGING_INDENT = 2
"""Cells by which continuation lines are indented, so that no part of a name can look like a line of its own."""


def fold(text: str, width: int, hang: int = HANGING_INDENT) -> list[str]:
    """Break a text into lines of at most `width` cells; its own line feeds stay.

    A word longer than a line stays whole, so that a number can be read and a path can be copied. No-break spaces belong
    to words. Continuation lines keep the indent of their line, list items that of their text; others get `hang` cells.
    """
    lines: list[str] = []
    for line in text.split("\n"):
        first, *rest = folded_spans(line, width, hang)
        indent = " " * continuation_indent(line, width, hang)
        lines += [line[slice(*first)], *(indent + line[slice(*span)] for span in rest)]
    return lines


def folded_spans(line: str, width: int, hang: int = HANGING_INDENT) -> list[tuple[int, int]]:
    """Return the start and end in `line` of each part of the folded line."""
    found: list[tuple[int, int]] = []
    start, end, available = 0, 0, width
    for word in re.finditer("[^ ]+", line):
        if end and cell_len(line[start : word.end()]) > available:
            found.append((start, end))
            start, available = word.start(), width - continuation_indent(line, width, hang)
        end = word.end()
    return [*found, (start, end)]


def continuation_indent(line: str, width: int, hang: int = HANGING_INDENT) -> int:
    """Return the indent in cells of the continuation lines of a folded line."""
    head = re.match(" *(?:- )?", line)
    indent = (head.end() if head else 0) or hang
    return indent if indent < width // 2 else 0
