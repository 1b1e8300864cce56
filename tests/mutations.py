"""Seeded mutations of files: bytes that flip, go or come again, JSON values that turn into others."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

ODD: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    2,
    7,
    10**6,
    10**9,
    10**18,
    10**30,
    10**400,
    0.0,
    -0.0,
    0.5,
    -1.5,
    1e-300,
    1e308,
    "",
    "0",
    "banana",
    "learned",
    "gates",
    "\ud800",
    "\x00",
    "x" * 5000,
    [],
    {},
    [[]],
    [0],
    [0.0],
    [1.0],
    [None],
    {"": 0},
    {"0.0": 1.0},
    [[0.0], [1.0]],
    float("nan"),
    float("inf"),
)
"""What a value may turn into; the last two have no form in JSON, and are written as Python writes them."""


def mutate_bytes(rng: random.Random, raw: bytes) -> bytes:
    """Return the bytes with one to three changes."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        at, size = rng.randrange(len(raw) + 1), rng.choice((1, 1, 2, 8, 64))
        part = raw[at : at + size]
        change: Callable[[], bytes] = rng.choice(
            (
                lambda: raw[:at] + bytes(b ^ (1 << rng.randrange(8)) for b in part) + raw[at + size :],  # noqa: B023
                lambda: raw[:at] + raw[at + size :],  # noqa: B023
                lambda: raw[:at] + rng.randbytes(size) + raw[at:],  # noqa: B023
                lambda: raw[:at] + part + raw[at:],  # noqa: B023
                lambda: raw[:at] + b"\xff" * len(part) + raw[at + size :],  # noqa: B023
                lambda: raw[:at] + bytes(len(part)) + raw[at + size :],  # noqa: B023
                lambda: raw[:at],  # noqa: B023
                lambda: raw + rng.randbytes(size),  # noqa: B023
            )
        )
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


WORDS = (
    "nan",
    "-inf",
    "1e999",
    "0",
    "-1",
    "1.5",
    "true",
    "",
    '"banana"',
    "9" * 5000,
    "0x" + "f" * 5000,
    "[" * 5000,
    "{}",
    "[]",
    "[[1]]",
    "a.b",
    "1979-05-27",
    "10000000000000",
    "\x00",
    "\u202e",
    "1_0",
    "'",
    '"',
    "[1, 'a', 2.5]",
    "null",
)
"""What a word of a text file may turn into."""


def mutate_words(rng: random.Random, text: str) -> str:
    """Return a text with one or two of its words, numbers or lines changed, doubled or dropped."""
    for _ in range(rng.choice((1, 1, 2))):
        found = [*re.finditer(r'"[^"\n]*"|[\w.-]+', text)] or [*re.finditer("^", text)]
        chosen = rng.choice(found)
        word = rng.choice((*WORDS, rng.choice(found).group(), chosen.group() * 2))
        text = text[: chosen.start()] + word + text[chosen.end() :]
        if rng.random() < 0.2:
            lines = text.split("\n")
            lines.insert(rng.randrange(len(lines)), rng.choice(lines))
            text = "\n".join(lines)
    return text


def _odd_arrays(rng: random.Random, array: Any) -> Any:
    """Return another array in place of one."""
    return rng.choice(
        (
            lambda: array[:-1],
            lambda: array[..., None],
            lambda: array[:, :0] if array.ndim > 1 else array[:0],
            lambda: array.astype(complex),
            lambda: array.astype("<U9"),
            lambda: array.astype("S3"),
            lambda: array * np.nan,
            lambda: array + np.inf,
            lambda: np.array([{}] * len(array), object),
            lambda: array.astype(">f2"),
            lambda: np.asfortranarray(array),
            lambda: np.float64(3),
            lambda: np.zeros((0, 10**6)),
            lambda: array > 0.5,
            lambda: array.astype(np.uint64) * (2**63),
            lambda: array.view([("a", array.dtype)]),
            lambda: np.array(["2020-01-01"] * len(array), "datetime64[D]"),
            lambda: array.ravel(),
            lambda: array * 1e308,
            lambda: np.zeros((len(array), 3, 2), np.int8),
            lambda: np.ones((1,) * 30),
            lambda: array.astype("V4"),
        )
    )()


def mutate_arrays(rng: random.Random, path: Path) -> None:
    """Put another array in place of one of a .npz or .npy file, or change the names."""
    if path.suffix == ".npy":
        with np.errstate(all="ignore"):
            np.save(path, _odd_arrays(rng, np.load(path)), allow_pickle=True)
        return
    with np.load(path) as file:
        arrays = dict(file)
    name = rng.choice(sorted(arrays))
    with np.errstate(all="ignore"):
        odd = _odd_arrays(rng, arrays[name])
    key = rng.choice((name, name, name, "Z", "", "../X", name * 99))
    del arrays[name]
    rng.choice((np.savez, np.savez_compressed))(path, **{**arrays, key: odd})
