"""docs/trial.md is true: the functions that it names exist, and are called in its order (tests/travels.py)."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import headcount as hc
from support import REPO, Cli
from travels import Step, calls_of, problems, walks

WALKS = walks((REPO / "docs/trial.md").read_text(encoding="utf-8"))
SWEEP = """
name = "small"
task = { family = "sum-of-maxima", intrinsic = 2, dim = 2, length = 4 }
heads = [1, 2]
seeds = 1
[train]
steps = 40
warmup = 4
batch = 16
train_size = 200
validation_size = 100
evaluations = 4
"""
TOO_LONG_HERE = {"In memory, on a GPU": "tests/gpu"}
"""Walks that another test takes."""


def from_the_spec(folder: Path, run: Cli) -> list[list[Step]]:
    (folder / "sweep.toml").write_text(SWEEP)
    sweep = calls_of(lambda: run("sweep", "sweep.toml", "--store", "store"))
    return [sweep, calls_of(lambda: run("report", "small", "--store", "store"))]


def the_demo(folder: Path, run: Cli) -> list[list[Step]]:
    return [calls_of(lambda: run("demo", "--out", "page"))]


def advice(folder: Path, run: Cli) -> list[list[Step]]:
    X = np.random.default_rng(0).normal(size=(600, 4, 2)).astype(np.float32)
    np.savez(folder / "data.npz", X=X, y=X.max(1).sum(1))
    return [
        calls_of(
            lambda: run(
                "advise", "data.npz", "--budget", "20s", "--steps", "200", "--heads-max", "2", "--out", "advice"
            )
        )
    ]


def attack(folder: Path, run: Cli) -> list[list[Step]]:
    task = hc.make_task("sum-of-maxima", intrinsic=2, dim=2, length=4, limit=2.5)
    recipe = hc.TrainSpec(steps=40, warmup=4, batch=16, train_size=200, validation_size=100)
    hc.train(task, hc.ModelSpec(dim=2, length=4, heads=1, head_dim=2, hidden=4), recipe).save(folder / "model")
    found = calls_of(lambda: run("attack", "model", "--out", "pair", "--starts", "4", "--for", "5s"))
    return [found, calls_of(lambda: run("recheck", "pair"))]


TAKEN: dict[str, Callable[[Path, Cli], list[list[Step]]]] = {
    "From the spec to the page": from_the_spec,
    "The demo": the_demo,
    "Advice for your own data": advice,
    "Attack, then recheck": attack,
}


def test_every_walk_is_taken() -> None:
    assert sorted(WALKS) == sorted([*TAKEN, *TOO_LONG_HERE])


@pytest.mark.parametrize("name", TAKEN)
def test_a_walk_is_taken_in_this_order(name: str, tmp_path: Path, headcount_here: Cli) -> None:
    walk, commands = WALKS[name], TAKEN[name](tmp_path, headcount_here)
    begins = [n for n, step in enumerate(walk) if step[0].startswith("cli/")]
    parts = [walk[a:b] for a, b in zip(begins, [*begins[1:], len(walk)], strict=True)]
    for part, called in zip(parts, commands, strict=True):
        assert problems(part, called) == []


@pytest.mark.parametrize("name", WALKS)
def test_the_functions_exist(name: str) -> None:
    for file, function in WALKS[name]:
        found = importlib.import_module("headcount." + file.removesuffix(".py").replace("/", "."))
        for part in function.split("."):
            found = vars(found)[part]  # of the class itself, not of what it inherits from


def test_a_wrong_walk_is_noticed() -> None:
    called = [("a.py", "first"), ("b.py", "second"), ("a.py", "third")]
    assert problems(called, called) == []
    assert problems([called[1], called[0]], called) == ["a.py: first is called before second"]
    assert problems([("a.py", "second")], called) == ["a.py: second is not called"]
    assert walks("## One\n| `a.py` | `first` | x |\n## None\ntext\n") == {"One": [("a.py", "first")]}
