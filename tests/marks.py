"""Marks of stale figures: if the code has changed since a figure was measured, the document says so.

    in [4 s](benchmarks/results/demo.json#seconds) on two cores (measured 2026-11-16, code changed since)

A mark covers its paragraph, list item or table. In a paragraph without figures it covers the rest of its section with
all subsections; directly below a document's title, that is the whole document. A mark without any stale figure is as
wrong as a missing mark. `python -m benchmarks.stale --mark` writes and removes marks.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from claims import LINK
from documents import split

MARK = re.compile(r"\(measured (\d{4}-\d\d-\d\d), code changed since\)")
LIST_ITEM = re.compile(r"\s*(?:[-*+]|\d+\.)\s")
HEADING = re.compile(r"(#+)\s")
MAX_LINE_WIDTH = 130
"""Characters of a line up to which a mark is appended to it."""
MIN_SHARED_MARKS = 7
"""If at least this many paragraphs need the same date, one mark below the title covers all of them."""


class Stale(Protocol):
    """A stale part of a result file, as `benchmarks/stale.py` returns it."""

    @property
    def file(self) -> Path: ...
    @property
    def date(self) -> str: ...
    def covers(self, fragment: str) -> bool: ...


@dataclass
class Block:
    """Lines of a document that belong together, numbered from 0, with the dates of their stale figures."""

    first: int
    lines: list[str]
    needed: set[str] = field(default_factory=set[str])

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def marks(self) -> set[str]:
        return set(MARK.findall(self.text))

    @property
    def level(self) -> int:
        """The level of a heading; 0 for anything else."""
        heading = HEADING.match(self.lines[0])
        return len(heading[1]) if heading else 0

    @property
    def stands_alone(self) -> bool:
        """Whether it is a paragraph with a mark and no figures, whose mark covers what follows."""
        figures = any(".json#" in match[2] for match in LINK.finditer(self.text))
        return bool(self.marks) and not figures and not self.level and not self.is_table

    @property
    def is_table(self) -> bool:
        return self.lines[0].lstrip().startswith("|")


def blocks_of(text: str) -> Iterator[Block]:
    """Yield the headings, paragraphs, list items and tables of a document."""
    current: Block | None = None
    for number, line in enumerate(split(text)[1]):
        starts = HEADING.match(line) or LIST_ITEM.match(line) or current is None or current.level
        if current is not None and (starts or not line.strip()):
            yield current
            current = None
        if line.strip():
            current = current or Block(number, [])
            current.lines.append(line)
    if current is not None:
        yield current


def _blocks_and_marks(text: str, document: Path, stale: Iterable[Stale]) -> tuple[list[Block], dict[int, set[str]]]:
    """Return the blocks with the dates they need, and the dates that each mark standing alone covers, by its line."""
    stale = list(stale)
    blocks = list(blocks_of(text))
    for block in blocks:
        for match in LINK.finditer(block.text):
            target, _, fragment = match[2].partition("#")
            file = (document.parent / target).resolve()
            block.needed |= {one.date for one in stale if one.file.resolve() == file and one.covers(fragment)}
    dates_of_mark: dict[int, set[str]] = {}
    section, active = 1, list[tuple[int, Block]]()
    for block in blocks:
        if block.level:
            section = block.level
            active = [(level, mark) for level, mark in active if section > level]
        elif block.stands_alone:
            active.append((section, block))
            dates_of_mark[block.first] = set()
        for _, mark in active:
            dates_of_mark[mark.first] |= mark.marks & block.needed
            block.needed = block.needed - mark.marks
    return blocks, dates_of_mark


def mark_problems(document: Path, stale: Iterable[Stale]) -> list[str]:
    """Return where a stale figure has no mark, and where a mark has no stale figure."""
    blocks, dates_of_mark = _blocks_and_marks(document.read_text(encoding="utf-8"), document, stale)
    problems: list[str] = []
    for block in blocks:
        line = f"{document.name}:{block.first + 1}"
        wanted = dates_of_mark.get(block.first, block.needed)
        problems += [
            f"{line}: figures of {date} were measured with other code: write (measured {date}, code changed since)"
            for date in sorted(block.needed - block.marks)
        ]
        problems += [
            f"{line}: nothing of {date} is stale here: remove the mark" for date in sorted(block.marks - wanted)
        ]
    return problems


def with_marks(text: str, document: Path, stale: Iterable[Stale]) -> str:
    """Return the document with exactly the marks that it needs."""
    stale = list(stale)
    blocks, _ = _blocks_and_marks(text, document, stale)
    title = next((block for block in blocks if block.level), None)
    dates = Counter(date for block in blocks for date in block.needed - block.marks)
    many = [date for date, count in sorted(dates.items()) if count >= MIN_SHARED_MARKS]
    if title is not None and many:
        lines = text.split("\n")
        lines[title.first + 1 : title.first + 1] = ["", f"*Some figures of this page are stale {_marks(many)}.*"]
        text = "\n".join(lines)
    return _each_marked(text, document, stale)


def _marks(dates: Iterable[str]) -> str:
    return " ".join(f"(measured {date}, code changed since)" for date in dates)


def _each_marked(text: str, document: Path, stale: list[Stale]) -> str:
    """Return the document with a mark in every paragraph that needs one; works backwards to keep line numbers."""
    lines = text.split("\n")
    blocks, dates_of_mark = _blocks_and_marks(text, document, stale)
    for table in (block for block in blocks if block.is_table and block.needed - block.marks):
        lines[table.first : table.first] = [f"*{_marks(sorted(table.needed - table.marks))}*", ""]
        return _each_marked("\n".join(lines), document, stale)  # the new mark covers what follows, too
    for block in reversed(blocks):
        wanted = dates_of_mark.get(block.first, block.needed)
        last = block.first + len(block.lines)
        if block.marks and not wanted and block.stands_alone:
            del lines[block.first : last + (lines[last : last + 1] == [""])]
            continue
        if block.marks - wanted:
            old = lines[block.first : last]
            new = [MARK.sub(lambda mark, w=wanted: mark[0] if mark[1] in w else "", line).rstrip() for line in old]
            lines[block.first : last] = [line for line in new if line]
            last = block.first + sum(bool(line) for line in new)
        if missing := sorted(block.needed - block.marks):
            short = len(lines[last - 1]) + len(_marks(missing)) < MAX_LINE_WIDTH
            if short and not lines[last - 1].rstrip().endswith("-->"):
                lines[last - 1] += f" {_marks(missing)}"
            else:
                indent = LIST_ITEM.match(block.lines[0])
                lines.insert(last, " " * (len(indent[0]) if indent else 0) + _marks(missing))
    return "\n".join(lines)
