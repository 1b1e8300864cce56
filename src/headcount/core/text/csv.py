"""CSV files, for programs and for spreadsheets, which run cells that begin like a formula."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headcount.core.text.harmless import plain_data

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(inf|nan)")
_FORMULA = re.compile(r"'*[=+\-@\t\r\n＝＋－＠]")
"""The beginning of a cell that a spreadsheet runs; apostrophes before it count, so that quoting can be undone."""


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the text of a CSV file: one line per row, None as an empty cell, no hidden characters, no formulas.

    Text that begins like a formula (= + - @) and is not a number gets a leading apostrophe, which tells spreadsheets
    that it is text; `csv_rows` removes it.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(_quoted, columns))
    for row in rows:
        writer.writerow(_quoted(row.get(name)) for name in columns)
    return out.getvalue()


def csv_rows(text: str) -> list[dict[str, str]]:
    """Return the rows of a file written by `csv_text`, with the original texts."""
    header, *lines = [[_unquoted(cell) for cell in line] for line in csv.reader(io.StringIO(text))]
    return [dict(zip(header, line, strict=True)) for line in lines]


def _quoted(value: Any) -> Any:
    text = plain_data(value)
    return f"'{text}" if isinstance(text, str) and _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def _unquoted(text: str) -> str:
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text
