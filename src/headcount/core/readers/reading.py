"""Files read within limits: bytes, strict JSON and TOML; what is too large or too deep is refused before it is held.

Part of the trusted base: `recheck` reads certificates, witnesses and configs through this file. It needs the standard
library alone.
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
"""Of a JSON file; as Python objects it takes some 20 times as much. Vocabularies, the largest, have some 20 MB."""
MAX_TOML_BYTES = 1 << 20
"""Of a TOML file; sweep files have a few kB."""
MAX_DEPTH = 200
"""Objects and lists inside each other: as deep as pydantic reads, and far from Python's own limit of 1000."""
MAX_DIGITS = 1000
"""Of a whole number: more than any double has, and too few to be slow."""

_MAX_WHOLE = 10**MAX_DIGITS
_PART = r"""(?:[A-Za-z0-9_-]++|"[^"\n]*+"|'[^'\n]*+')"""
_DOTTED = re.compile(rf"{_PART}(?:[ \t]*+\.[ \t]*+{_PART})*+(?P<key>[ \t]*+[=\]])?")


def read_limited(path: Path, most: int) -> bytes:
    """Return the bytes of a file that has at most so many; any other gives one line."""
    try:
        with path.open("rb") as handle:
            size = os.fstat(handle.fileno()).st_size  # 0 for a pipe, which may go on for ever
            content = b"" if size > most else handle.read(max(size, 1 << 16) + 1)
            while content and len(content) <= most and (more := handle.read(1 << 20)):
                content += more
    except FileNotFoundError:
        raise BadInput(f"there is no file {path}") from None
    except OSError as error:
        raise BadInput(f"cannot read {path}: {error.strerror}") from None
    if size > most or len(content) > most:
        raise BadInput(f"{path} is too large: at most {most:,} bytes are read, it may be another kind of file")
    return content


def read_json(path: Path) -> Any:
    """Return the data of a JSON file; a missing, broken, too large or ambiguous one gives one line."""
    return parse_json(read_limited(path, MAX_JSON_BYTES), str(path))


def parse_json(content: bytes | str, where: str) -> Any:
    """Return JSON data: a key twice in an object, NaN and infinity, and nesting beyond `MAX_DEPTH` are refused."""
    try:
        text = content if isinstance(content, str) else content.decode("utf-8-sig")
        value = json.loads(
            text, object_pairs_hook=_once_each, parse_constant=_no_number, parse_int=_whole, parse_float=_finite
        )
    except RecursionError:
        raise BadInput(_too_deep(where)) from None
    except ValueError as error:  # UnicodeDecodeError is one
        raise BadInput(
            f"{where} is not readable JSON ({error}): it may be truncated, or be another kind of file"
        ) from None
    _check_levels(value, where)
    return value


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))
        raise ValueError(f"the key {_short(twice)} occurs twice in one object")
    return found


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number in JSON")


def _whole(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a whole number of {len(digits):,} digits: at most {MAX_DIGITS} are read")
    return int(digits)


def _finite(digits: str) -> float:
    found = float(digits)
    if not math.isfinite(found):
        raise ValueError(f"{_short(digits)} is no finite number")
    return found


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")


def _too_deep(where: str) -> str:
    return f"{where}: its lists and objects are nested too deeply: at most {MAX_DEPTH} levels are read"


def _check_levels(value: Any, where: str) -> None:
    """Refuse data whose lists and objects lie too deep inside each other, and numbers of too many digits."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        if any(type(v) is int and abs(v) >= _MAX_WHOLE for v in level):
            raise BadInput(f"{where}: a whole number has more than {MAX_DIGITS} digits")
        inner: list[Any] = [v for v in level if isinstance(v, dict | list)]
        if not inner:
            return
        level = [child for v in inner for child in (cast("dict[str, Any]", v).values() if isinstance(v, dict) else v)]
    raise BadInput(_too_deep(where))


def read_toml(path: Path) -> dict[str, Any]:
    """Return the data of a TOML file; a missing, broken or too large one, or one with nan or inf, gives one line."""
    content = read_limited(path, MAX_TOML_BYTES)
    try:
        text = content.decode("utf-8")
        # a.b.c.… = 1: tomllib takes time in the square of their number
        if any(m["key"] and m.group().count(".") >= MAX_DEPTH for m in _DOTTED.finditer(text)):
            raise BadInput(_too_deep(str(path)))
        found = tomllib.loads(text, parse_float=_finite)
    except RecursionError:
        raise BadInput(_too_deep(str(path))) from None
    except ValueError as error:  # UnicodeDecodeError and TOMLDecodeError are such
        raise BadInput(f"{path} is not valid TOML: {error}") from None
    _check_levels(found, str(path))
    return found
