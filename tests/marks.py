"""Marks of stale figures: where the code has changed since a figure was measured, the document says so.

    in [4 s](benchmarks/results/demo.json#seconds) on two cores (measured 2026-11-16, code changed since)

A mark covers the paragraph, list item or table that it stands in. Alone in a paragraph it covers the rest of its
section, those below it included; below a document's title that is the whole document. A mark for which nothing stale
is left is as wrong as a missing one. `python benchmarks/stale.py --mark` writes and removes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from claims import LINK
from documents import split

MARK = re.compile(r"\(measured (\d{4}-\d\d-\d\d), code changed since\)")
ITEM = re.compile(r"\s*(?:[-*+]|\d+\.)\s")
HEADING = re.compile(r"(#+)\s")
WIDTH = 130


class Stale(Protocol):
    """What `benchmarks/stale.py` says of a part of a result file."""

    @property
    def file(self) -> Path: ...
    @property
    def date(self) -> str: ...
    def covers(self, fragment: str) -> bool: ...


@dataclass
class Block:
    """Lines of a document that belong together, by their numbers from 0, and the dates of its stale figures."""

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
        """Of a heading; 0 for anything else."""
        heading = HEADING.match(self.lines[0])
        return len(heading[1]) if heading else 0

    @property
    def alone(self) -> bool:
        return bool(self.marks) and not MARK.sub("", self.text).strip("*_ \n")

    @property
    def is_table(self) -> bool:
        return self.lines[0].lstrip().startswith("|")


def blocks_of(text: str) -> Iterator[Block]:
    """The headings, paragraphs, list items and tables of a document."""
    current: Block | None = None
    for number, line in enumerate(split(text)[1]):
        starts = HEADING.match(line) or ITEM.match(line) or current is None or current.level
        if current is not None and (starts or not line.strip()):
            yield current
            current = None
        if line.strip():
            current = current or Block(number, [])
            current.lines.append(line)
    if current is not None:
        yield current


def _judged(text: str, document: Path, stale: Iterable[Stale]) -> tuple[list[Block], dict[int, set[str]]]:
    """The blocks with the dates they need, and of each mark that stands alone (by its line) the dates it is for."""
    stale = list(stale)
    blocks = list(blocks_of(text))
    for block in blocks:
        for match in LINK.finditer(block.text):
            target, _, fragment = match[2].partition("#")
            file = (document.parent / target).resolve()
            block.needed |= {one.date for one in stale if one.file.resolve() == file and one.covers(fragment)}
    served: dict[int, set[str]] = {}
    section, active = 1, list[tuple[int, Block]]()
    for block in blocks:
        if block.level:
            section = block.level
            active = [(level, mark) for level, mark in active if section > level]
        elif block.alone:
            active.append((section, block))
            served[block.first] = set()
        for _, mark in active:
            served[mark.first] |= mark.marks & block.needed
            block.needed = block.needed - mark.marks
    return blocks, served


def mark_problems(document: Path, stale: Iterable[Stale]) -> list[str]:
    """Say where a stale figure has no mark, and where a mark has no stale figure."""
    blocks, served = _judged(document.read_text(encoding="utf-8"), document, stale)
    problems: list[str] = []
    for block in blocks:
        line = f"{document.name}:{block.first + 1}"
        wanted = served.get(block.first, block.needed)
        problems += [
            f"{line}: figures of {date} were measured with other code: write (measured {date}, code changed since)"
            for date in sorted(block.needed - block.marks)
        ]
        problems += [
            f"{line}: nothing of {date} is stale here: take the mark out" for date in sorted(block.marks - wanted)
        ]
    return problems


def marked(text: str, document: Path, stale: Iterable[Stale]) -> str:
    """The document with every mark that it needs and no other."""
    stale = list(stale)
    lines = text.split("\n")
    blocks, served = _judged(text, document, stale)
    for block in reversed(blocks):
        wanted = served.get(block.first, block.needed)
        last = block.first + len(block.lines)
        if block.marks - wanted:
            kept = [MARK.sub(lambda m, w=wanted: m[0] if m[1] in w else "", line) for line in lines[block.first : last]]
            kept = [
                line.rstrip()
                for line, old in zip(kept, lines[block.first : last], strict=True)
                if line.strip() or not old
            ]
            alone_and_gone = block.alone and not kept and lines[last : last + 1] == [""]
            lines[block.first : last + alone_and_gone] = kept
            last = block.first + len(kept)
        if missing := sorted(block.needed - block.marks):
            words = " ".join(f"(measured {date}, code changed since)" for date in missing)
            if block.is_table:
                lines[block.first : block.first] = [f"*{words}*", ""]
            elif len(lines[last - 1]) + len(words) < WIDTH and not lines[last - 1].rstrip().endswith("-->"):
                lines[last - 1] += f" {words}"
            else:
                indent = re.match(r"\s*(?:[-*+]\s|\d+\.\s)?", block.lines[0])
                lines.insert(last, " " * (len(indent[0]) if indent else 0) + words)
    return "\n".join(lines)
