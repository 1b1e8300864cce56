"""Where a line of text is broken: between words only, by the cells that characters take on a screen."""

from __future__ import annotations

import re

from rich.cells import cell_len

HANG = 2
"""Cells by which a line goes on further right than it began, so that no part of a name can look like a line of ours."""


def fold(text: str, width: int, hang: int = HANG) -> list[str]:
    """Break a text into lines of at most `width` cells; its own line feeds stay.

    A word that is longer than a line stays whole, so that a number can be read and a path can be copied. No-break
    spaces belong to words. A line goes on at its indent, that of a list behind its dash, any other after `hang` cells.
    """
    lines: list[str] = []
    for line in text.split("\n"):
        first, *rest = spans(line, width, hang)
        indent = " " * hanging(line, width, hang)
        lines += [line[slice(*first)], *(indent + line[slice(*span)] for span in rest)]
    return lines


def spans(line: str, width: int, hang: int = HANG) -> list[tuple[int, int]]:
    """Return where the parts of a folded line begin and end in it."""
    found: list[tuple[int, int]] = []
    start, end, room = 0, 0, width
    for word in re.finditer("[^ ]+", line):
        if end and cell_len(line[start : word.end()]) > room:
            found.append((start, end))
            start, room = word.start(), width - hanging(line, width, hang)
        end = word.end()
    return [*found, (start, end)]


def hanging(line: str, width: int, hang: int = HANG) -> int:
    """Return the indent of a folded line's later parts."""
    head = re.match(" *(?:- )?", line)
    indent = (head.end() if head else 0) or hang
    return indent if indent < width // 2 else 0
