"""Names that an attacker would choose, and how to see whether one of them got through."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from headcount.core.text.harmless import is_hidden

CONTROL = "\x1b[1A\x1b[2K\rIt holds\x1b]0;title\x07\x9b31m\x7f\x08"
"""Erases a line above, writes another one, sets the window's title, by the codes of 7 and of 8 bits."""
DIRECTION = "\u202e\u2066\u200f\u061c\u200b\ufeff\u2028\u2029\u00ad\U000e0041\ue000\u3164"
"""Turns the order of letters, hides between them, breaks a line."""
MARKUP = "[bold]x[/bold][/y][link=http://z]$\\frac{$<b>&\"'"
EVIL = f"a{CONTROL}{DIRECTION}{MARKUP}\nIt holds"
"""All of it, and a line of its own."""
FILE = "a\x1b[2K\r\x07\x9b\u202e\u200b\u2028[bold]x[y]$\nIt holds\udcff"
"""The same as far as a file can be called so: no slash, at most 255 bytes, and one byte that is no UTF-8."""
READABLE = (".html", ".json", ".csv", ".md", ".toml", ".svg", ".txt")


def hidden(text: str) -> set[str]:
    """Return the characters of a text that must not reach anybody; line feeds are the only ones that may."""
    return {f"U+{ord(c):04X}" for c in text if is_hidden(c) and c != "\n"}


def hidden_in_files(folder: Path, but: Path) -> dict[str, set[str]]:
    """Return such characters of the text files in a folder, but for those of one folder in it."""
    files = [p for p in folder.rglob("*") if p.suffix in READABLE and p.is_file() and not p.is_relative_to(but)]
    found = {repr(p): hidden(p.read_text("utf-8")) for p in files}
    return {name: what for name, what in found.items() if what}


def unfolded(out: str) -> list[str]:
    """Return the lines of an output with their later parts, which are indented, joined to them again."""
    return re.sub(r"\n +", " ", out).splitlines()


def forged(out: str) -> list[str]:
    """Return lines that a name has begun: none of ours begins so but a verdict, whose later lines are indented."""
    return [line for line in unfolded(out) if line.startswith("It holds") and "proved" not in line]


def write_csv(path: Path, label: str, feature: str) -> None:
    """Write sequences in long form, with a class and a feature of these names."""
    X = np.random.default_rng(0).random((120, 4, 2))
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["sequence", "position", feature, "b[/x]", "target"])
        for i, sequence in enumerate(X):
            name = label if sequence[:, 0].max() > 0.8 else "b[/x]"
            rows.writerows([i, t, *token, name] for t, token in enumerate(sequence.tolist()))


def renamed(task: dict[str, Any], path: Path, name: str = EVIL) -> Path:
    """Write a task under another name."""
    path.write_text(json.dumps({**task, "name": name}), "utf-8")
    return path
