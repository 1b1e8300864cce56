"""Seeded mutations of files: bytes that flip, go or come again, JSON values that turn into others."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 7, 10**6, 10**9, 10**18, 10**30, 10**400, 0.0, -0.0, 0.5, -1.5, 1e-300, 1e308, "",
    "0", "banana", "learned", "gates", "\ud800", "\x00", "x" * 5000, [], {}, [[]], [0], [0.0], [1.0], [None], {"": 0},
    {"0.0": 1.0}, [[0.0], [1.0]], float("nan"), float("inf"),
)  # fmt: skip
"""What a value may turn into; the last two have no form in JSON, and are written as Python writes them."""


def mutate_bytes(rng: random.Random, raw: bytes) -> bytes:
    """Return the bytes with one to three changes."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        at, size = rng.randrange(len(raw) + 1), rng.choice((1, 1, 2, 8, 64))
        part = raw[at : at + size]
        change: Callable[[], bytes] = rng.choice((
            lambda: raw[:at] + bytes(b ^ (1 << rng.randrange(8)) for b in part) + raw[at + size :],  # noqa: B023
            lambda: raw[:at] + raw[at + size :],  # noqa: B023
            lambda: raw[:at] + rng.randbytes(size) + raw[at:],  # noqa: B023
            lambda: raw[:at] + part + raw[at:],  # noqa: B023
            lambda: raw[:at] + b"\xff" * len(part) + raw[at + size :],  # noqa: B023
            lambda: raw[:at] + bytes(len(part)) + raw[at + size :],  # noqa: B023
            lambda: raw[:at],  # noqa: B023
            lambda: raw + rng.randbytes(size),  # noqa: B023
        ))  # fmt: skip
        raw = change()
    return raw


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths to all values inside one."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in items:
        yield (*path, key)
        yield from _places(child, (*path, key))


def mutate_json(rng: random.Random, value: Any) -> str:
    """Return the JSON text of data with one value changed, dropped, doubled, renamed or buried."""
    data = json.loads(json.dumps(value))
    path = rng.choice([*_places(data)])
    owner: Any = data
    for key in path[:-1]:
        owner = owner[key]
    key, how = path[-1], rng.choice(("other", "other", "other", "drop", "wrap", "rename", "more", "number", "twice"))
    if how == "drop":
        del owner[key]
    elif how == "wrap":
        owner[key] = [owner[key]]
    elif how == "rename" and isinstance(owner, dict):
        owner[f"{key}_"] = owner.pop(key)
    elif how == "more" and isinstance(owner, dict):
        owner["more"] = rng.choice(ODD)
    elif how == "number" and type(owner[key]) in (int, float):
        owner[key] = rng.choice((-owner[key], owner[key] + 1, owner[key] * 2, owner[key] / 3, str(owner[key])))
    elif how == "twice" and isinstance(key, str):
        text = json.dumps(data)
        return text.replace(f'"{key}":', f'"{key}": {json.dumps(rng.choice(ODD))}, "{key}":', 1)
    else:
        owner[key] = rng.choice(ODD)
    return json.dumps(data)
