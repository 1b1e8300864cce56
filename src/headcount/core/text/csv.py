"""CSV files, for programs and for spreadsheets, which run what begins like a formula."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headcount.core.text.harmless import plain_data

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(inf|nan)")
_FORMULA = re.compile(r"'*[=+\-@\t\r\n＝＋－＠]")
"""How a cell begins that a spreadsheet runs; apostrophes before it count, so that what is quoted can be told apart."""


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Return rows as a CSV file: a line for each, None as nothing, no hidden characters, nothing that would be run.

    A text that begins like a formula (= + - @) and is no number gets an apostrophe, by which spreadsheets know a text;
    `csv_rows` takes it off again.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(_quoted, columns))
    for row in rows:
        writer.writerow(_quoted(row.get(name)) for name in columns)
    return out.getvalue()


def csv_rows(text: str) -> list[dict[str, str]]:
    """Return the rows of a CSV file of ours, with the texts that were written."""
    header, *lines = [[_bare(cell) for cell in line] for line in csv.reader(io.StringIO(text))]
    return [dict(zip(header, line, strict=True)) for line in lines]


def _quoted(value: Any) -> Any:
    text = plain_data(value)
    return f"'{text}" if isinstance(text, str) and _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def _bare(text: str) -> str:
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text
