"""Write plain data as TOML, the format of sweep files; `tomllib` reads it back unchanged."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, cast

from headcount.core.text.harmless import is_hidden

MAX_LINE_LENGTH = 110
"""Characters of a line; a longer list gets one line per value."""
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def toml_text(data: Mapping[str, Any], comment: str = "") -> str:
    """Return JSON data as TOML: first the plain values, then a table for each object, then lists of objects.

    A key whose value is None is left out, since TOML has no null; a None inside a list raises ValueError.
    `comment` becomes the first lines.
    """
    tables = {k: v for k, v in data.items() if isinstance(v, Mapping)}
    lists = {k: v for k, v in data.items() if _is_table_list(v)}
    plain = {k: v for k, v in data.items() if k not in tables and k not in lists}
    head = [*(f"# {line}" for line in comment.splitlines()), _lines(plain)]
    blocks = ["\n".join(filter(None, head))]
    blocks += [f"[{_key(key)}]\n{_lines(table)}" for key, table in tables.items()]
    blocks += [f"[[{_key(key)}]]\n{_lines(table)}" for key, rows in lists.items() for table in rows]
    return "\n\n".join(filter(None, map(str.strip, blocks))) + "\n"


def _is_table_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, Mapping) for v in cast("list[Any]", value))


def _lines(table: Mapping[str, Any]) -> str:
    return "\n".join(_line(key, value) for key, value in table.items() if value is not None)


def _line(key: str, value: Any) -> str:
    line = f"{_key(key)} = {_value(value)}"
    if len(line) <= MAX_LINE_LENGTH or not isinstance(value, list):
        return line
    listed = "\n".join(f"    {_value(v)}," for v in cast("list[Any]", value))
    return f"{_key(key)} = [\n{listed}\n]"


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _text(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value).items()
        inside = ", ".join(f"{_key(k)} = {_value(v)}" for k, v in items if v is not None)
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(v) for v in cast('list[Any]', value))}]"
    raise ValueError(f"TOML has no form for {type(value).__name__}")


def _text(text: str) -> str:
    """Quote a text: JSON's escapes are valid TOML, apart from the hidden characters that JSON leaves as they are."""
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(f"\\U{ord(c):08x}" if is_hidden(c) else c for c in quoted)
