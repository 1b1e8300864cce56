"""CSV files: a spreadsheet runs nothing of them, and what is read back is what was written."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headcount.core.text.csv import csv_rows, csv_text
from headcount.core.text.harmless import plain
from hostile import EVIL, hidden
from support import REPO

FORMULAS = (
    "=1+1",
    "+1+1",
    "-2+3",
    "@SUM(A1)",
    '=HYPERLINK("http://x","y")',
    "=cmd|' /C calc'!A0",
    "－1",
    "＝1",
    "-",
    "\t=1",
)
RUN = tuple("=+-@\t\r\n＝＋－＠")


def cells(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text)))


def run_by_a_spreadsheet(text: str) -> list[str]:
    """Return the cells of a file that a spreadsheet would run as formulas."""
    found = [cell for line in cells(text) for cell in line if cell.startswith(RUN)]
    return [
        cell for cell in found if not cell.lstrip("+-").replace(".", "").replace("e", "").replace("-", "").isdigit()
    ]


@pytest.mark.parametrize("text", FORMULAS)
def test_formulas_are_escaped_as_text(text: str) -> None:
    written = csv_text(["a", "b", text], [{"a": text, "b": 1, text: f"x{text}"}])
    assert run_by_a_spreadsheet(written) == []
    (row,) = csv_rows(written)
    assert list(row.values()) == [plain(text), "1", plain(f"x{text}")]
    assert run_by_a_spreadsheet(written.replace("'", "")) != [] or plain(text).startswith("\\")  # the check can fail


@pytest.mark.parametrize("value", [-1.5, -3, 1e-30, -2.5e-7, float("inf"), 0, True, "-1.5", "+0.25", "-1e-05", "-.5"])
def test_numbers_stay_numbers(value: object) -> None:
    ((_, _), (written, _)) = cells(csv_text(["a", "b"], [{"a": value, "b": None}]))
    assert written == str(value)


@given(st.lists(st.text(st.sampled_from("'=+-@1eabc ,\"\n"), max_size=6), min_size=1, max_size=4))
def test_a_written_table_reads_back_equal(texts: list[str]) -> None:
    names = [f"c{i}" for i in range(len(texts))]
    written = csv_text([*names, "end"], [{**dict(zip(names, texts, strict=True)), "end": 1}])
    assert run_by_a_spreadsheet(written) == []
    assert csv_rows(written) == [{**dict(zip(names, texts, strict=True)), "end": "1"}]


def test_only_selected_columns_are_written() -> None:
    written = csv_text(["a", "b"], [{"a": EVIL, "c": "left out"}, {"b": [1.5, "=x"]}])
    assert hidden(written) == set()
    assert cells(written)[2] == ["", "[1.5, '=x']"]
    assert "left out" not in written


def test_csv_is_written_in_one_place() -> None:
    source = REPO / "src" / "headcount"
    found = {
        path.relative_to(REPO).as_posix()
        for path in source.rglob("*.py")
        if any(name in path.read_text(encoding="utf-8") for name in ("csv.writer", "DictWriter"))
    }
    assert found == {"src/headcount/core/text/csv.py"}
