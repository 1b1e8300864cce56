"""The one function that makes text harmless, and what shows it: terminals, pages, pictures, JSON."""

from __future__ import annotations

import io
import json
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headcount.core.progress import Progress
from headcount.core.text.harmless import escape, is_hidden, json_text, plain, plain_data, valid_text
from headcount.core.text.terminal import Terminal, bold, styled
from headcount.render.tables import Column, Table, as_terminal, terminal_list
from hostile import DIRECTION, EVIL, MARKUP, forged, hidden

anything = st.text(st.characters(), max_size=40)  # lone surrogates too


@given(anything)
def test_nothing_hidden_stays_and_nothing_else_changes(text: str) -> None:
    shown = plain(text)
    assert hidden(shown) == set()
    assert "\n" not in shown
    assert plain(shown) == shown
    shown.encode()
    if not any(is_hidden(c) for c in text):
        assert shown == text
    assert plain(text, lines=True).count("\n") == text.count("\n")


@given(anything)
def test_json_says_the_same_with_nothing_hidden(text: str) -> None:
    value = {"a": [text, {text: 1}]}
    for compact in (False, True):
        written = json_text(value, compact=compact)
        assert hidden(written) == set()
        assert json.loads(written) == value
        written.encode()


@given(anything)
def test_a_page_has_no_tag_of_a_text(text: str) -> None:
    shown = escape(text)
    assert hidden(shown) == set()
    assert not set("<>\"'") & set(shown)


def test_every_control_and_every_mark_of_direction_is_hidden() -> None:
    every = [chr(code) for code in range(sys.maxunicode + 1)]
    kinds = ("Cc", "Cf", "Cs", "Zl", "Zp")
    assert all(is_hidden(c) for c in every if unicodedata.category(c) in kinds)
    steering = [
        c
        for c in every
        if unicodedata.bidirectional(c) in ("LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI", "BN")
    ]
    assert len(steering) > 20
    assert all(is_hidden(c) for c in steering)
    assert not any(is_hidden(c) for c in "aΣé漢🙂 \u00a0\u202fẞ–“€½א")


def test_how_it_is_written() -> None:
    assert plain("a\x1b[1m\t\r\n\x7f\x9b\u202e\ud800\U000e0041") == (
        "a\\x1b[1m\\t\\r\\n\\x7f\\x9b\\u202e\\ud800\\U000e0041"
    )
    assert plain_data({"a\x1b": ["\x07", 1, None, ("b\n",)]}) == {"a\\x1b": ["\\x07", 1, None, ("b\n",)]}
    assert valid_text("a\udcff\x1b") == "a\\udcff\x1b"


def screen(*objects: object, **options: object) -> str:
    """Return what a terminal with colours gets."""
    stream = io.StringIO()
    Terminal(file=stream, width=200, force_terminal=True, color_system="standard").print(*objects, **options)
    return stream.getvalue()


def test_a_terminal_takes_text_literally() -> None:
    shown = screen(EVIL)
    assert hidden(shown) == set()
    assert MARKUP in shown.replace("\n", "")
    assert screen(":smile: [red]x[/red] [/y]") == ":smile: [red]x[/red] [/y]\n"
    assert screen("a\nb") == "a\\nb\n"


def test_a_style_stands_beside_a_text() -> None:
    """The codes of a style are the only ones, and none of them is a text's."""
    assert screen(bold(f"It holds{DIRECTION}"), ": x", sep="").count("\x1b[1m") == 1
    shown = screen(styled("\x1b[2K[bold]", "green"))
    assert shown == "\x1b[32m\\x1b[2K[bold]\x1b[0m\n"


def test_a_table_takes_text_literally() -> None:
    columns = [Column(name=EVIL), Column(name="lines", lines=True, kind="text")]
    table = Table(caption=EVIL, columns=columns, rows=[[EVIL, f"two\n{EVIL}"]], notes=[EVIL])
    stream = io.StringIO()
    terminal = Terminal(file=stream, width=2000)
    terminal.print(as_terminal(table))
    terminal.print(terminal_list([(EVIL, EVIL)]))
    shown = stream.getvalue()
    assert hidden(shown) == set()
    assert shown.count(MARKUP) == 7  # caption, head, two cells, note, name and value
    assert "two" in shown
    assert forged(shown) == []


@pytest.mark.parametrize("live", [False, True])
def test_progress_takes_text_literally(live: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: live)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "2000")
    with Progress(EVIL, 2, every=0.0) as progress:
        progress.show_table([(EVIL, "1", "2", "3")], ("cell", "trials", "best error", "median"))
        progress.start(EVIL)
        progress.print_line(EVIL)
        progress.advance(1, EVIL)
        progress.advance(1, EVIL)
    shown = stream.getvalue()
    assert "[bold]x[/bold][/y]" in shown
    assert not {c for c in EVIL if is_hidden(c)} & set(shown) - set("\n\r\x1b")  # the bar's own codes
    for code in ("\x1b]0;", "\x9b", "\u202e"):
        assert code not in shown


def test_pictures_take_text_literally(monkeypatch: pytest.MonkeyPatch) -> None:
    from headcount.render.picture import Picture
    from headcount.render.style import _settings  # pyright: ignore[reportPrivateUsage]

    with _settings():
        figure = Picture()
        axes = figure.add_subplot(title=EVIL, xlabel="$x_{$", ylabel="$\\frac{1}{2}$")
        axes.plot([1, 2], label=f"a{DIRECTION}")
        axes.legend()
        for kind in ("png", "pdf", "svg"):
            drawn = figure.as_bytes(kind)
    text = drawn.decode()
    assert hidden(text) == set()
    assert "$x_{$" in text
    assert "$\\frac{1}{2}$" in text
