r"""Make text from files and users harmless: nothing in it can control a terminal, a page or a picture.

Control characters (escape sequences begin with one), marks that change the direction of writing, characters without
a width, line separators and lone surrogates are shown as Python escapes (`\x1b`, `\u202e`). Nothing is removed,
so different names stay different.
"""

from __future__ import annotations

import html
import json
import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

_HIDDEN_CATEGORIES = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
"""Control, format, surrogate, private use, unassigned, line separator, paragraph separator."""
_BLANK_LETTERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Letters and marks that are invisible, and so could make two names look alike."""


@lru_cache(maxsize=4096)
def is_hidden(character: str) -> bool:
    """Whether a character is invisible, or changes how others are shown."""
    return character in _BLANK_LETTERS or unicodedata.category(character) in _HIDDEN_CATEGORIES


def plain(text: object, *, lines: bool = False) -> str:
    """Return a text with its hidden characters escaped, on one line; with `lines` its line feeds stay."""
    raw = str(text)
    if raw.isascii() and raw.isprintable():
        return raw
    return "".join(_escaped(c) if is_hidden(c) and not (lines and c == "\n") else c for c in raw)


def _escaped(character: str) -> str:
    r"""Return a character as a Python escape: `\n`, `\x1b`, `\u202e`; blank letters too, which `repr` leaves."""
    code = ord(character)
    named = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
    if code > 0xFFFF:
        return f"\\U{code:08x}"
    return named.get(character) or (f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}")


def valid_text(text: str) -> str:
    """Return a file's name as text that every format can hold: bytes that are not UTF-8 are escaped."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def plain_data(value: Any) -> Any:
    """Return data of lists and mappings with the hidden characters of all texts, keys too, escaped."""
    if isinstance(value, str):
        return plain(value, lines=True)
    if isinstance(value, Mapping):
        return {plain_data(key): plain_data(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(plain_data(item) for item in value)
    return value


def escape(text: object) -> str:
    """Return a text for a page, in an element or in a quoted attribute."""
    return html.escape(plain(text, lines=True), quote=True)


def json_text(value: Any, *, compact: bool = False) -> str:
    """Return data as JSON without hidden characters: they are escaped, the value stays the same, NaN is refused."""
    style: dict[str, Any] = {"separators": (",", ":")} if compact else {"indent": 2}
    return visible_json(json.dumps(value, allow_nan=False, ensure_ascii=False, **style))


def visible_json(text: str) -> str:
    """Return JSON text with its hidden characters as JSON escapes."""
    if text.isascii() and "\x7f" not in text:
        return text
    return "".join(json.dumps(c)[1:-1] if c != "\n" and is_hidden(c) else c for c in text)
