"""No number is cut, however narrow the terminal."""

from __future__ import annotations

import io
import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from run_cases import made_case, made_runs

from headcount.cli import analyse as verb
from headcount.core.errors import BadInput
from headcount.core.text import Terminal, plain
from headcount.render.charts.terminal import print_run
from headcount.render.tables import Column, Table, as_terminal
from widths import line_problems

SETTINGS = ({"kind": "a rather long name of a setting"}, {"kind": "[b]"})


def numbers(text: str) -> list[str]:
    return re.findall(r"[-−]?\d[\d,.]*(?:e-?\d+)?", text)


@pytest.mark.parametrize("width", [24, 40, 60, 80, 110])
def test_every_number_appears_whole(width: int):
    _, analysis = made_case(hidden=(16, 32), settings=SETTINGS, failed=3)
    screen = io.StringIO()
    verb.show(analysis, Terminal(file=screen, width=width))
    shown = screen.getvalue()
    assert "…" not in shown
    found = numbers(shown)
    for table in verb.tables(analysis):
        for row in table.rows:
            for number in numbers(" ".join(row)):
                assert number in found, (table.caption, row)
    if width >= 60:
        assert max(len(line.rstrip()) for line in shown.splitlines()) <= width


@pytest.mark.parametrize("width", [60, 80])
def test_the_cells_of_the_report_are_whole_too(width: int):
    runs, analysis = made_case(hidden=(16, 32), settings=SETTINGS)
    screen = io.StringIO()
    print_run(analysis, Terminal(file=screen, width=width), runs)
    shown = screen.getvalue().split("All cells")[1]
    assert "…" not in shown
    assert {f"{c.parameters:,}" for c in analysis.cells} <= set(numbers(shown))
    assert "[b]" in shown
    assert max(len(line.rstrip()) for line in shown.splitlines()) <= width


# -- any table at any width -----------------------------------------------------------------------------------

WORDS = st.sampled_from(
    [
        "heads",
        "loss",
        "a",
        "Σ_i",
        "漢字",
        "e\u0301t\u0301e\u0301",
        "a-rather-long-name",
        "[bold]",
        "x(t)",
        "\x1b[2K",
        "90\u00a0%",
    ]
)
NUMBERS = st.sampled_from(
    [
        "0",
        "–",
        "12",
        "1,234,567",
        "0.0012",
        "-3.1e-07",
        "≥ 0.354 | 0.342",
        "200× smaller",
        "1.1 (0.9 to 1.3)",
        "2 of 3",
        "9.1 ms",
    ]
)
TEXT = st.lists(WORDS, max_size=12).map(" ".join)
NAME = st.lists(WORDS, min_size=1, max_size=4).map(" ".join)


@st.composite
def tables(draw: st.DrawFn) -> Table:
    """Tables of up to eight columns, with one or two keys, or none stated."""
    kinds = draw(st.lists(st.sampled_from(["number", "text"]), min_size=1, max_size=8))
    keys = draw(st.sampled_from([None, 1, 2]))
    columns = [
        Column(name=f"{draw(NAME)} {i}", kind=kind, key=None if keys is None else i < keys, minor=draw(st.booleans()))
        for i, kind in enumerate(kinds)
    ]
    rows = draw(st.lists(st.tuples(*(NUMBERS if kind == "number" else TEXT for kind in kinds)).map(list), max_size=5))
    marked = draw(st.sampled_from([None, *range(len(rows))]))
    return Table(caption=draw(TEXT), columns=columns, rows=rows, marked=marked, notes=draw(st.lists(TEXT, max_size=2)))


def shown(table: Table, width: int) -> str:
    screen = io.StringIO()
    Terminal(file=screen, width=width).print(as_terminal(table))
    return screen.getvalue()


def table_problems(table: Table, width: int, text: str) -> list[str]:
    """Return what is wrong with a table on a screen: lines, words that are gone, numbers that are broken."""
    problems = line_problems(text, width)
    left_out = [c for c in table.columns if c.minor and "left out at" in text and plain(c.name) in _note(text)]
    kept = [i for i, column in enumerate(table.columns) if column not in left_out]
    cells = [plain(row[i]) for row in table.rows for i in kept]
    words = Counter(word for cell in cells for word in cell.split(" ") if word)
    have = Counter(word for word in re.split(r"[ \n]+", text) if word)
    problems += [f"{word!r} is gone" for word, number in words.items() if have[word] < number]
    lines = text.split("\n")
    for row in table.rows:
        for i in kept:
            if table.columns[i].kind == "number" and not any(plain(row[i]) in line for line in lines):
                problems.append(f"{row[i]!r} is broken")
    return problems


def _note(text: str) -> str:
    return re.sub(r"\n *", " ", text[text.rindex("left out at") :])


@settings(max_examples=100, deadline=None)
@given(tables(), st.integers(40, 130))
def test_every_table_fits_every_width(table: Table, width: int) -> None:
    assert table_problems(table, width, shown(table, width)) == []


WIDE = Table(
    caption="Errors",
    columns=[Column(name="task", kind="text"), *(Column(name=f"error {i}") for i in range(12))],
    rows=[["sum-of-maxima", *(f"0.0{i}1234" for i in range(12))], ["漢字 min", *(f"1{i},234" for i in range(12))]],
)


@pytest.mark.parametrize("sabotage", ["cut", "cropped", "dropped", "too wide", "a silent word"])
def test_a_table_that_loses_something_is_noticed(sabotage: str) -> None:
    text = shown(WIDE, 60)
    assert table_problems(WIDE, 60, text) == []
    ways = {
        "cut": text.replace("0.011234", "0.0112…"),
        "cropped": "\n".join(line[:50].rstrip() for line in text.split("\n")),
        "dropped": text[: text.index("error 11")],
        "too wide": shown(WIDE, 120),
        "a silent word": text.replace("漢字", "漢"),
    }
    assert table_problems(WIDE, 60, ways[sabotage])


def at(table: Table, width: int) -> list[str]:
    return shown(table, width).splitlines()[1:]


def test_the_order_in_which_room_is_made() -> None:
    """Side by side; header words folded, then texts; a smaller gap; parts; minor columns left out; a list a row."""
    text = "a longer remark that may well be folded here"
    names = [Column(name="h"), Column(name="best error"), Column(name="remark", kind="text")]
    table = Table(caption="", columns=names, rows=[["1", "0.5", text]])
    assert at(table, 59) == ["h  best error  remark", "─" * 59, f"1         0.5  {text}"]
    assert at(table, 58) == ["    best", "h  error  remark", "─" * 54, f"1    0.5  {text}"]
    assert at(table, 40)[3:] == ["1    0.5  a longer remark that may well", "          be folded here"]
    numbers = [Column(name="heads"), *(Column(name=name) for name in "abcdef")]
    table = Table(caption="", columns=numbers, rows=[["10", *(f"{i}.5" for i in range(6))]])
    assert at(table, 35) == ["heads    a    b    c    d    e    f", "─" * 35, "   10  0.5  1.5  2.5  3.5  4.5  5.5"]
    assert at(table, 34) == ["heads   a   b   c   d   e   f", "─" * 29, "   10 0.5 1.5 2.5 3.5 4.5 5.5"]
    assert at(table, 28) == [  # the same number of columns in every part
        "heads    a    b    c",
        "─" * 20,
        "   10  0.5  1.5  2.5",
        "",
        "heads    d    e    f",
        "─" * 20,
        "   10  3.5  4.5  5.5",
    ]


def test_minor_columns_are_left_out_before_a_fourth_part_and_named() -> None:
    columns = [Column(name="heads"), *(Column(name=f"error-{i}", minor=i > 6) for i in range(20))]
    table = Table(caption="", columns=columns, rows=[["10", *(f"0.{i:02}12345" for i in range(20))]])
    lines = at(table, 40)
    assert [line for line in lines if line.startswith("heads")] == [
        "heads    error-0    error-1    error-2",
        "heads    error-3    error-4    error-5",
        "heads    error-6    error-7    error-8",
    ]
    said = " ".join(line.strip() for line in lines[-6:])
    assert said.endswith("error-17, error-18, error-19; --json has all")
    assert "left out at 40 columns: error-9, error-10," in said
    assert not any("left out" in line for line in at(table, 120))
    whole = table.model_copy(update={"columns": [c.model_copy(update={"minor": False}) for c in columns]})
    assert sum(line.startswith("heads") for line in at(whole, 40)) == 7


def test_where_no_column_fits_beside_the_keys_a_row_is_a_list() -> None:
    name = "a-run-with-a-name-that-is-longer-than-the-terminal"
    columns = [Column(name="run", kind="text"), Column(name="done"), Column(name="why it failed", kind="text")]
    table = Table(caption="", columns=columns, rows=[[name, "12", "no memory on the device"], ["b", "7", ""]])
    assert at(table, 40) == [
        "run",
        f"  {name}",
        "done           12",
        "why it failed  no memory on the device",
        "",
        "run            b",
        "done           7",
    ]


def test_widths_are_counted_in_cells() -> None:
    """A Chinese character takes two cells, a combining accent none."""
    columns = [Column(name="名前", kind="text"), Column(name="e\u0301")]
    table = Table(caption="", columns=columns, rows=[["漢字", "1"], ["ab", "10"]])
    assert at(table, 40) == ["名前   e\u0301", "────────", "漢字   1", "ab    10"]


def test_no_cell_begins_a_line_unless_its_column_may() -> None:
    columns = [Column(name="run", kind="text"), Column(name="drop", lines=True)]
    rows, notes = [["b\nIt holds", "31\n20 to 32"]], ["c\x1b\nIt holds"]
    table = Table(caption="a\nIt holds", columns=columns, rows=rows, notes=notes)
    assert not any(line.startswith("It holds") for line in at(table, 60))
    assert at(table, 60)[3:5] == ["b\\nIt holds        31", "             20 to 32"]


def test_a_marked_row_is_bold_and_styled_cells_have_their_style() -> None:
    columns = [Column(name="h"), Column(name="holds", kind="text", styles={"no": "red"})]
    table = Table(caption="", columns=columns, rows=[["1", "no"], ["2", "yes"]], marked=1)
    screen = io.StringIO()
    Terminal(file=screen, width=60, force_terminal=True, color_system="standard").print(as_terminal(table))
    assert "\x1b[31mno" in screen.getvalue()
    assert "\x1b[1m2" in screen.getvalue()


@pytest.mark.parametrize("width", [40, 100])
def test_sentences_are_folded_between_words_and_paths_stay_whole(width: int) -> None:
    path = "/" + "/".join(["folder"] * 20)
    screen = io.StringIO()
    terminal = Terminal(file=screen, width=width)
    terminal.print(f"  - From 1 to 2 heads the error falls 15 times with 90\u00a0% of the draws. Saved in {path}")
    terminal.print(30 * "word ", soft_wrap=True)
    lines = screen.getvalue().splitlines()
    assert f"    {path}" in lines
    assert all(len(line) <= width for line in lines if path not in line and "word" not in line)
    assert lines[-1].count("word") == 30, "a line to paste is not folded"
    assert any("90\u00a0%" in line for line in lines)


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    from headcount.api import stored as room
    from headcount.store.store import Store

    Store.open(tmp_path / "store").close()
    monkeypatch.setattr(room, "stored_runs", lambda store, run: made_runs(targets=1))
    return tmp_path / "store"


def test_a_pipe_is_as_wide_as_columns_says(stored: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    widths: list[int] = []
    for columns in ("50", "200", ""):
        monkeypatch.setenv("COLUMNS", columns)
        assert verb.analyse("grid", store=stored, resamples=100) == 0
        tables = capsys.readouterr().out.split("Best NMSE")[1].splitlines()
        widths.append(max(len(line.rstrip()) for line in tables if "─" in line))
    assert widths[0] <= 50
    assert widths[0] < widths[2] <= 110 < widths[1]


def test_a_folder_as_out_is_refused_before_the_work(stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "a.json").mkdir()
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("headcount.api.stored.analyse_runs", lambda *_, **__: pytest.fail("worked first"))
    with pytest.raises(BadInput, match=r"a\.json is a folder"):
        verb.analyse("grid", store=stored, out=tmp_path / "a.json")
    with pytest.raises(BadInput, match="is not a writable folder: choose another folder"):
        verb.analyse("grid", store=stored, out=tmp_path / "file" / "b.json")
    assert list((tmp_path / "a.json").iterdir()) == []
