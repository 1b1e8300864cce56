"""Read files within limits: bytes, strict JSON and TOML; too large or too deep input is refused before it is in memory.

Part of the trusted base: `recheck` reads certificates, witnesses and configs through this file. It needs only the
standard library.
"""

from __future__ import annotations

import json
import math
import os
import re
import tomllib
from pathlib import Path
from typing import Any, NoReturn, cast

from headcount.core.errors import BadInput

MAX_JSON_BYTES = 64 << 20
"""Size limit of a JSON file; as Python objects it takes some 20 times as much. The largest, vocabularies, are 20 MB."""
MAX_TOML_BYTES = 1 << 20
"""Size limit of a TOML file; sweep files have a few kB."""
MAX_DEPTH = 200
"""Nesting levels of objects and lists: as many as pydantic reads, and far below Python's own limit of 1000."""
MAX_DIGITS = 1000
"""Digits of a whole number: more than any double has, and too few to be slow to parse."""

_INTEGER_LIMIT = 10**MAX_DIGITS
_PART = r"""(?:[A-Za-z0-9_-]++|"[^"\n]*+"|'[^'\n]*+')"""
_DOTTED = re.compile(rf"{_PART}(?:[ \t]*+\.[ \t]*+{_PART})*+(?P<key>[ \t]*+[=\]])?")


def read_limited(path: Path, max_bytes: int) -> bytes:
    """Return the content of a file of at most `max_bytes`; raise BadInput where it is larger or cannot be read."""
    try:
        with path.open("rb") as handle:
            size = os.fstat(handle.fileno()).st_size  # 0 for a pipe, which may never end
            content = b"" if size > max_bytes else handle.read(max(size, 1 << 16) + 1)
            while content and len(content) <= max_bytes and (more := handle.read(1 << 20)):
                content += more
    except FileNotFoundError:
        raise BadInput(f"no such file: {path}") from None
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from None
    if size > max_bytes or len(content) > max_bytes:
        raise BadInput(f"{path} is too large: at most {max_bytes:,} bytes are read (it may be another kind of file)")
    return content


def read_json(path: Path) -> Any:
    """Return the data of a JSON file; raise BadInput where it is missing, broken, too large or ambiguous."""
    return parse_json(read_limited(path, MAX_JSON_BYTES), str(path))


def parse_json(content: bytes | str, where: str) -> Any:
    """Return JSON data; duplicate keys, NaN, infinity and nesting beyond `MAX_DEPTH` are refused."""
    try:
        text = content if isinstance(content, str) else content.decode("utf-8-sig")
        value = json.loads(
            text, object_pairs_hook=_unique_keys, parse_constant=_refuse_nan, parse_int=_to_int, parse_float=_to_float
        )
    except RecursionError:
        raise BadInput(_too_deep(where)) from None
    except ValueError as error:  # includes UnicodeDecodeError
        raise BadInput(f"{where} is not valid JSON ({error}): it may be truncated, or another kind of file") from None
    _check_levels(value, where)
    return value


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        duplicate = next(name for name, _ in pairs if name in seen or seen.add(name))
        raise ValueError(f"the key {_short(duplicate)} occurs twice in one object")
    return found


def _refuse_nan(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _to_int(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a whole number has {len(digits):,} digits: at most {MAX_DIGITS} are read")
    return int(digits)


def _to_float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{_short(digits)} is not a finite number")
    return number


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")


def _too_deep(where: str) -> str:
    return f"{where}: lists and objects are nested too deeply: at most {MAX_DEPTH} levels are read"


def _check_levels(value: Any, where: str) -> None:
    """Refuse data nested more than `MAX_DEPTH` levels deep, and whole numbers of more than `MAX_DIGITS` digits."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        if any(type(v) is int and abs(v) >= _INTEGER_LIMIT for v in level):
            raise BadInput(f"{where}: a whole number has more than {MAX_DIGITS} digits: use fewer")
        inner: list[Any] = [v for v in level if isinstance(v, dict | list)]
        if not inner:
            return
        level = [child for v in inner for child in (cast("dict[str, Any]", v).values() if isinstance(v, dict) else v)]
    raise BadInput(_too_deep(where))


def read_toml(path: Path) -> dict[str, Any]:
    """Return the data of a TOML file; raise BadInput where it is missing, broken or too large, or has nan or inf."""
    content = read_limited(path, MAX_TOML_BYTES)
    try:
        text = content.decode("utf-8")
        # a.b.c.… = 1: tomllib's time is quadratic in the number of parts
        if any(m["key"] and m.group().count(".") >= MAX_DEPTH for m in _DOTTED.finditer(text)):
            raise BadInput(_too_deep(str(path)))
        found = tomllib.loads(text, parse_float=_to_float)
    except RecursionError:
        raise BadInput(_too_deep(str(path))) from None
    except ValueError as error:  # UnicodeDecodeError and TOMLDecodeError are ValueErrors
        raise BadInput(f"{path} is not valid TOML: {error}") from None
    _check_levels(found, str(path))
    return found
