"""JSON and TOML within limits: depth, digits, size, and numbers that are none, each in one line; and stores."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from headcount import BadInput, SweepSpec
from headcount.core.readers import reading
from headcount.core.readers.reading import MAX_DEPTH, parse_json, read_json, read_limited, read_toml
from headcount.store.store import Store
from headcount.sweeps.attack_trials import IrreducibleSpec
from headcount.sweeps.file import read_sweep
from headcount.tasks.arrays.csv import read_csv
from headcount.tasks.families import family
from headcount.tasks.serial import parse_task, sized_family
from support import Cli

DEEP = MAX_DEPTH + 1
JSON = {
    "NaN": ('{"a": NaN}', "NaN is not a JSON number"),
    "infinity": ('{"a": -Infinity}', "-Infinity is not a JSON number"),
    "too large": ("[1e309]", "'1e309' is not a finite number"),
    "deep lists": ("[" * DEEP + "]" * DEEP, "nested too deeply"),
    "deep objects": ('{"a":' * DEEP + "1" + "}" * DEEP, "nested too deeply"),
    "bottomless": ("[" * 10**6, "nested too deeply"),
    "digits": ("9" * 4301, "4,301 digits"),
    "minus digits": ("-" + "9" * 1001, "1,002 digits"),
    "twice": ('[{"a": 1, "b": 2, "a": 1}]', "'a' occurs twice"),
    "empty": ("", "not valid JSON"),
    "cut": ('{"a": [1, 2', "not valid JSON"),
}


@pytest.mark.parametrize("case", JSON)
def test_bad_json_is_rejected(tmp_path: Path, case: str) -> None:
    text, said = JSON[case]
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(BadInput, match=said) as caught:
        read_json(tmp_path / "a.json")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_good_json_is_read(tmp_path: Path) -> None:
    for value in ({"a": [1, -2.5, None, True, "ä\ud800"]}, 10**999, [], 1e308, "x" * 10**6):
        assert parse_json(json.dumps(value), "here") == value
    deep = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert parse_json(deep, "here") == json.loads(deep)
    (tmp_path / "a.json").write_bytes(b"\xef\xbb\xbf[1]")  # some editors begin so
    assert read_json(tmp_path / "a.json") == [1]


TOML = {
    "nan": ("a = nan", "'nan' is not a finite number"),
    "inf": ("a = [1.0, -inf]", "'-inf' is not a finite number"),
    "deep lists": ("a = " + "[" * DEEP + "]" * DEEP, "nested too deeply"),
    "bottomless": ("a = " + "[" * 10**5, "nested too deeply"),
    "dotted": (".".join("a" * (DEEP + 1)) + " = 1", "nested too deeply"),
    "dotted without end": (".".join("a" * 400_000) + " = 1", "nested too deeply"),
    "dotted table": ("[" + " . ".join(['"a b"'] * 300) + "]", "nested too deeply"),
    "digits": ("a = " + "9" * 4301, "not valid TOML"),
    "hexadecimal digits": ("a = 0x" + "f" * 9000, "more than 1000 digits"),
    "not UTF-8": (b"a = '\xff'", "not valid TOML"),
    "twice": ("a = 1\na = 2", "not valid TOML"),
    "cut": ("a = [1, 2", "not valid TOML"),
}


@pytest.mark.parametrize("case", TOML)
def test_bad_toml_is_rejected(tmp_path: Path, case: str) -> None:
    text, said = TOML[case]
    (tmp_path / "a.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    start = time.perf_counter()
    with pytest.raises(BadInput, match=said) as caught:
        read_toml(tmp_path / "a.toml")
    assert time.perf_counter() - start < 5
    assert "\n" not in str(caught.value)


def test_good_toml_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(f"a.b.c = [1, 2.5]\n[x.y]\nz = 0xff\nw = '{'a.' * 500}'\nlong = '{'a' * 10**5}'")
    found = read_toml(tmp_path / "a.toml")
    assert (found["a"]["b"]["c"], found["x"]["y"]["z"], len(found["x"]["y"]["w"])) == ([1, 2.5], 255, 1000)


def test_files_that_are_too_large_or_endless_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sparse.json").touch()
    os.truncate(tmp_path / "sparse.json", 1 << 40)
    with pytest.raises(BadInput, match="too large: at most 67,108,864 bytes"):
        read_json(tmp_path / "sparse.json")
    os.truncate(tmp_path / "sparse.json", reading.MAX_TOML_BYTES + 1)
    with pytest.raises(BadInput, match="too large: at most 1,048,576 bytes"):
        read_toml(tmp_path / "sparse.json")
    with pytest.raises(BadInput, match="too large"):
        read_limited(Path("/dev/zero"), 10**6)
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_bytes(b"[1, 2]"))
    writer.start()
    assert read_json(tmp_path / "pipe") == [1, 2]
    writer.join()
    with pytest.raises(BadInput, match="no such file:"):
        read_json(tmp_path / "none.json")
    with pytest.raises(BadInput, match="cannot read .*Is a directory"):
        read_json(tmp_path)


# -- sizes that files state ---------------------------------------------------------------------------------------


def test_sweeps_of_too_many_combinations(tmp_path: Path) -> None:
    plain = 'name = "many"\nheads = [1]\n[task]\nfamily = "quadratic-basins"\n'
    lists = "".join(
        f"{key} = {[*range(8, 8 + n)]}\n" for key, n in (("lengths", 300), ("hidden", 200), ("head_dims", 9))
    )
    (tmp_path / "a.toml").write_text(plain.replace("[task]", lists + "[task]"))
    with pytest.raises(BadInput, match="540,000 combinations beside heads and seeds: at most 100,000"):
        read_sweep(tmp_path / "a.toml")
    (tmp_path / "a.toml").write_text(plain)
    assert len(read_sweep(tmp_path / "a.toml").panels()) == 1
    task = {"family": "quadratic-basins"}
    settings = [{"name": "a", "hidden": [8, 9]}, {"name": "b"}]
    spec = SweepSpec.parse({"name": "x", "heads": [1], "task": task, "lengths": [8, 9, 10], "settings": settings})
    assert spec._count() == len(spec.panels()) == 9


def test_sweeps_of_too_many_trials_and_long_tasks() -> None:
    task = {"family": "quadratic-basins"}
    stated = {"name": "x", "task": task, "heads": [1, 2], "seeds": 3}
    with pytest.raises(BadInput, match="the lists make 400,000 trials: at most 250,000"):
        SweepSpec.parse({**stated, "heads": [*range(1, 101)], "seeds": 4000})
    some = [{"name": "a", "heads": [*range(1, 50)]}, {"name": "b"}]
    assert SweepSpec.parse({**stated, "settings": some})._count("heads") == 51
    with pytest.raises(BadInput, match="the tasks of all lengths take [0-9,]* numbers: at most 67,108,864"):
        SweepSpec.parse({**stated, "lengths": [*range(3, 20_000)]})
    with pytest.raises(BadInput, match="the tasks of all lengths take"):
        SweepSpec.parse({**stated, "settings": [{"name": str(k), "lengths": [10**6 - k]} for k in range(30)]})
    assert len(SweepSpec.parse({**stated, "lengths": [8, 10_000]}).panels()) == 2
    cell = {"task": task, "heads": [*range(1, 301)], "seeds": 1000}
    with pytest.raises(BadInput, match="the cells make 300,300 attacks: at most 250,000"):
        IrreducibleSpec.parse({"name": "x", "cells": [cell]})
    assert (
        sum(1 for _ in IrreducibleSpec.parse({"name": "x", "cells": [{**cell, "heads": [1], "seeds": 2}]}).units()) == 3
    )


def test_tasks_of_too_many_positions() -> None:
    with pytest.raises(BadInput, match="this task takes 1,026,101,248 numbers to describe: at most 8,388,608"):
        sized_family("quadratic-basins", intrinsic=1024, length=1_000_000)
    assert sized_family("quadratic-basins", intrinsic=2, length=10_000).task().length == 10_000


GIANTS: dict[str, dict[str, Any]] = {
    "sparse-regression": {"q": 4096, "length": 4096},
    "linear": {"dim": 4096, "length": 1_000_000},
    "quadratic-basins": {"dim": 4096, "intrinsic": 4096, "length": 4096},
    "mean": {"dim": 4096},
    "sphere-anchors": {"dim": 4096, "intrinsic": 4},
    "sum-of-maxima": {"dim": 4096, "intrinsic": 4096, "length": 4096},
}


@pytest.mark.parametrize("name", GIANTS)
def test_tasks_of_too_many_numbers(name: str) -> None:
    """A few words ask for gigabytes: rejected before allocation. Small tasks take about as much as estimated."""
    with pytest.raises(BadInput, match="numbers to describe: at most"):
        parse_task({"family": name, **GIANTS[name]})
    small = sized_family(name)
    assert 0 < small.numbers() < 1000
    assert parse_task(small.task().data()).name == name


def test_functions_whose_gradient_is_too_large() -> None:
    def square(dim: int) -> dict[str, Any]:
        power = {"op": "power", "of": {"op": "variable", "dim": dim}, "exponent": 2}
        data = {**family("min-plus-max", length=4).task().data(), "dim": dim}
        return {**data, "f": [{"op": "sum", "args": [power]}] * 2, "F0": {"op": "variable", "dim": 2}}

    with pytest.raises(BadInput, match="the gradient of a function of 1000000 numbers needs"):
        parse_task(square(1_000_000))
    assert parse_task(square(1000)).dim == 1000


def test_many_names_do_not_take_quadratic_time(tmp_path: Path) -> None:
    """Neither duplicate keys in a large object nor a table with many columns."""
    begun = time.perf_counter()
    keys = ",".join(f'"{k}":0' for k in range(200_000))
    with pytest.raises(BadInput, match="the key '199999' occurs twice"):
        parse_json(f'{{{keys},"199999":1}}', "x")
    names = [f"a{k}" for k in range(100_000)]
    rows = "\n".join(f"{k},0,{k}" + ",0" * len(names) for k in range(12))
    (tmp_path / "wide.csv").write_text(f"sequence,position,target,{','.join(names)}\n{rows}\n")
    assert read_csv(tmp_path / "wide.csv")[0].shape == (12, 1, 100_000)
    assert time.perf_counter() - begun < 30  # in the square of their number it would take hours


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("dim", 10**12),
        ("length", 10**12),
        ("dim", 10**400),
        ("S", [[10**30]]),
        ("f", [{"op": "variable", "dim": 10**9}] * 2),
        ("F0", {"op": "variable", "dim": 10**12}),
    ],
)
def test_task_files_of_giant_sizes(tmp_path: Path, headcount_here: Cli, key: str, value: object) -> None:
    data = family("min-plus-max", length=4).task().data()
    (tmp_path / "task.json").write_text(json.dumps({**data, key: value}))
    done = headcount_here("tasks", str(tmp_path / "task.json"))
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    (tmp_path / "task.json").write_text(json.dumps(data))
    assert headcount_here("tasks", str(tmp_path / "task.json")).returncode == 0


# -- stores -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["abc", "", "1.5", "-1", "9" * 5000, b"\xff", "１"])
def test_invalid_store_versions_are_rejected(tmp_path: Path, headcount_here: Cli, version: object) -> None:
    Store.open(tmp_path / "store").close()
    assert headcount_here("runs", "--store", str(tmp_path / "store")).returncode == 0
    db = sqlite3.connect(tmp_path / "store" / "trials.sqlite")
    db.execute("UPDATE meta SET value = ? WHERE key = 'schema_version'", (version,))
    db.commit()
    db.close()
    done = headcount_here("runs", "--store", str(tmp_path / "store"))
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert "damaged" in done.stderr or "newer" in done.stderr


def test_a_schema_that_is_not_text(tmp_path: Path, headcount_here: Cli) -> None:
    Store.open(tmp_path / "store").close()
    path = tmp_path / "store" / "trials.sqlite"
    raw = path.read_bytes()
    for name in (b"CREATE TABLE meta", b"schema_version"):
        at = raw.index(name)
        path.write_bytes(raw[: at + 7] + b"\xff\xfe" + raw[at + 9 :])
        done = headcount_here("runs", "--store", str(tmp_path / "store"))
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1), done.stderr
