"""Text from files and users never steers the terminal or a page: every verb, every input, hostile names."""

from __future__ import annotations

import importlib
import inspect
import json
import shutil
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import headcount as hc
from headcount.cli.main import VERBS
from headcount.core.readers.reading import read_toml
from headcount.core.readers.toml import toml_text
from headcount.core.text.harmless import plain
from headcount.models.files import SavedModel
from headcount.models.transformer.reference import Transformer
from headcount.models.transformer.spec import ModelSpec
from headcount.tasks import parse_task
from hostile import CONTROL, EVIL, FILE, MARKUP, forged, hidden, hidden_in_files, renamed, unfolded, write_csv
from support import Cli

Verb = Callable[..., Any]
SWEEP = {
    "name": "quick",
    "title": EVIL,
    "heads": [1, 2],
    "seeds": 2,
    "task": {"family": "min-plus-max", "length": 4},
    "model": {"head_dim": 2, "hidden": 4},
    "train": {"steps": 40, "warmup": 4, "batch": 8, "train_size": 50, "validation_size": 20},
}
IRREDUCIBLE = {
    "name": "curve",
    "title": EVIL,
    "model": {"hidden": 4},
    "train": {"steps": 20, "warmup": 2, "train_size": 300},
    "attack": {"starts": 2, "seconds": 1.0},
    "cells": [{"task": {"family": "min-plus-max", "length": 3}, "heads": [1], "random_seeds": 0, "seeds": 1}],
}


@pytest.fixture
def verb(headcount_here: Cli, tmp_path: Path) -> Verb:
    """Run a verb; whatever it ends with, nothing hidden may be shown or written, and no traceback.

    What a test gives to the verb lies in `in/`, and may be anything.
    """

    def run(*args: object, status: int | None = 0) -> Any:
        done = headcount_here(*map(str, args))
        shown = done.stdout + done.stderr
        assert hidden(shown) == set(), shown
        assert "Traceback" not in shown
        assert "a bug" not in shown, shown
        assert forged(shown) == [], shown
        assert status is None or done.returncode == status, shown
        assert hidden_in_files(tmp_path, but=tmp_path / "in") == {}
        return done

    return run


# -- the two attacks ----------------------------------------------------------------------------------------


def collision(folder: Path) -> Path:
    """Save a model of one random head, which cannot see both ends of three numbers."""
    task = hc.make_task("min-plus-max", length=3)
    spec = ModelSpec(dim=1, length=3, heads=1, head_dim=2, hidden=8)
    SavedModel(Transformer(spec, seed=1, dtype=torch.float64), task=task.data()).save(folder / "m")
    return folder / "m"


@pytest.fixture(scope="module")
def witness(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A witness that holds."""
    folder = tmp_path_factory.mktemp("witness")
    hc.attack(collision(folder), starts=4, budget=10).save(folder / "w")
    return folder / "w"


@pytest.fixture(autouse=True)
def _folded(_nothing_is_folded: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines are folded as in any pipe: none may begin with a part of a name."""
    monkeypatch.delenv("COLUMNS")


def changed(path: Path, **values: Any) -> None:
    """Change the first entries of a JSON file."""
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **values}), "utf-8")


def test_an_operation_with_escape_codes_cannot_erase_the_verdict(verb: Verb, tmp_path: Path, witness: Path) -> None:
    """A witness states its task, and what a reader cannot read of it stands in the reason."""
    shutil.copytree(witness, tmp_path / "in")
    task = json.loads((tmp_path / "in" / "witness.json").read_text("utf-8"))["task"]
    changed(tmp_path / "in" / "witness.json", task={**task, "F0": {**task["F0"], "op": f"x{CONTROL}"}})
    done = verb("recheck", "in", status=None)
    assert done.returncode in (1, 2)
    told = done.stdout + done.stderr
    assert told.startswith("It does not hold: " if done.returncode == 1 else "headcount: ")
    assert "\\x1b[2K" in told or "It holds" not in told
    assert len(unfolded(told)) == 1


def test_a_reason_with_escape_codes_cannot_erase_the_verdict(
    verb: Verb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a reader lets through into the reason, the verdict stands before it."""
    verb("build", "quadratic-basins", "-D", "2", "--eps", "0.3", "--out", "b")
    from headcount.api import verdicts

    real = verdicts.verify_certificate_file
    monkeypatch.setattr(
        verdicts, "verify_certificate_file", lambda path: replace(real(path), holds=False, proved=None, reason=EVIL)
    )
    done = verb("recheck", "b", status=1)
    (line,) = unfolded(done.stdout)
    assert line.startswith("It does not hold: a\\x1b[1A\\x1b[2K\\rIt holds")
    assert MARKUP in line


def test_a_name_with_markup_cannot_hide_whose_task_it_is(verb: Verb, tmp_path: Path, witness: Path) -> None:
    shutil.copytree(witness, tmp_path / "in")
    task = json.loads((witness / "witness.json").read_text("utf-8"))["task"]
    for name in ("mine[conceal]", "mine[black on black]", "mine[/x]", EVIL):
        changed(tmp_path / "in" / "witness.json", task={**task, "name": name})
        done = verb("recheck", "in")
        assert done.stdout.startswith("It holds: ")
        (line,) = unfolded(done.stdout)
        assert f"a task that is NOT the model's own, called '{plain(name)[:20]}" in line


# -- every verb, hostile inputs that are good ---------------------------------------------------------------


def try_tasks(verb: Verb, here: Path) -> None:
    task = renamed(hc.make_task("quadratic-basins", intrinsic=2).data(), here / "t.json")
    for how in ([], ["--json"]):
        verb("tasks", task, *how)
        verb("bounds", task, "--eps", "0.5", *how)
    out = here / FILE / "b"
    verb("build", task, "--eps", "0.3", "--out", out)
    for how in ([], ["--json"]):
        verb("recheck", out, *how)
        verb("show", out, *how)
        verb("certify", out, "--for", "0.3s", *how)


def try_attack(verb: Verb, here: Path) -> None:
    model = collision(here).rename(here / FILE)
    task = renamed(hc.make_task("min-plus-max", length=3).data(), here / "t.json")
    verb("attack", model, "--task", task, "--starts", "4", "--for", "5s", "--out", here / f"{FILE}w")
    verb("recheck", here / f"{FILE}w")
    basins = renamed(hc.make_task("quadratic-basins", intrinsic=2, length=3, dim=1).data(), here / "q.json")
    verb("attack", model, "--task", basins, "--adversary", "--out", here / f"{FILE}p", status=None)


def try_store(verb: Verb, here: Path) -> None:
    place, spec = here / FILE, here / f"{FILE}.toml"
    spec.write_text(toml_text(SWEEP), "utf-8")
    store = ["--store", place / "store"]
    verb("sweep", spec, *store)
    verb("sweep", spec, *store, "--json")
    verb("sweep", "--example", place / "example.toml")
    verb("runs", *store)
    verb("runs", "quick", *store)
    verb("runs", "merge", place / "store", "--store", place / "other")
    verb("export", "quick", "best", "--out", place / "m", *store)
    verb("analyse", "quick", *store)
    verb("report", "quick", "--terminal", *store)
    verb("report", "quick", "--out", place / "page", *store)
    page = (place / "page" / "index.html").read_text("utf-8")
    assert "\\u202e" in page
    assert "<b>&" not in page
    verb("report", "quick", "--json", "--out", place / "again", *store)


def try_data(verb: Verb, here: Path) -> None:
    data, place = here.parent / "in" / f"{FILE}.csv", here / FILE
    write_csv(data, EVIL, EVIL)
    verb("train", data, "--heads", "1", "--steps", "5", "--batch", "8", "--out", place / "m")
    verb("train", data, "--heads", "1", "--steps", "5", "--batch", "8", "--out", place / "m", "--json")
    verb("show", place / "m")
    advise = ["advise", data, "--steps", "5", "--heads-max", "2", "--budget", "20s"]
    verb(*advise, "--out", place / "advice")
    verb(*advise, "--json", here / "record.json")
    np.savez(here / f"{FILE}.npz", X=np.random.default_rng(0).random((40, 3, 1)), y=np.arange(40.0))
    verb("tasks", here / f"{FILE}.npz")


def try_density(verb: Verb, here: Path) -> None:
    (here / f"{FILE}.py").write_text("def F(X): return X.mean((1, 2))\n")
    (here / "bad.py").write_text(f"raise ValueError({EVIL!r})\n")
    options = ["--samples", "10", "-T", "4"]
    verb("density", f"{here / FILE}.py:F", *options, "--out", here / f"{FILE}.svg")
    verb("density", f"{here / FILE}.py:{EVIL}", *options, status=2)
    verb("density", f"{here / 'bad.py'}:F", *options, status=2)


def try_irreducible(verb: Verb, here: Path) -> None:
    spec = here / f"{FILE}.toml"
    spec.write_text(toml_text(IRREDUCIBLE), "utf-8")
    verb("irreducible", spec, "--out", here / FILE, "--workers", "1")
    (here / FILE / "mine\x1b").write_text("")
    verb("irreducible", spec, "--out", here / FILE, status=2)


def try_probe(verb: Verb, here: Path) -> None:
    import transformers

    sizes: Any = {"n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 16, "vocab_size": 20, "initializer_range": 0.3}
    special: Any = {"bos_token_id": 1, "eos_token_id": 2}
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **special))
    folder = here.parent / "in" / FILE.replace("\udcff", "")  # safetensors reads no other names
    model.save_pretrained(folder)
    changed(folder / "config.json", _name_or_path=EVIL)
    np.savez(here / f"{FILE}.npz", input_ids=np.random.default_rng(0).integers(0, 20, (6, 12)))
    probe = ["probe", folder, here / f"{FILE}.npz", "--samples", "4"]
    verb(*probe, "--out", here / f"{FILE}page")
    verb(*probe, "--json")
    changed(folder / "config.json", model_type=EVIL)
    verb(*probe, status=2)


def try_demo(verb: Verb, here: Path) -> None:
    with a_small_demo():
        verb("demo", "--out", here / FILE)
        verb("demo", "--out", here / FILE, "--json")


def try_reproduce(verb: Verb, here: Path) -> None:
    verb("reproduce")
    verb("reproduce", "table2", "--spec", here / f"{FILE}.toml")
    store = ["--store", here / FILE, "--out", here / f"{FILE}out"]
    verb("reproduce", "table2", "--scale", "smoke", "--for", "0.01s", *store, status=3)
    verb("reproduce", "table6", "--scale", "smoke", "--data", here / FILE, *store, status=2)


@contextmanager
def a_small_demo() -> Generator[None]:
    """Let the demo train four small models, under a hostile title."""
    from headcount.sweeps.spec import SweepSpec

    real = SweepSpec.parse
    with resources.as_file(resources.files("headcount.specs") / "demo.toml") as path:
        stated = {**read_toml(path), "title": EVIL, "heads": [1, 2], "seeds": 2, "train": SWEEP["train"]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SweepSpec, "parse", lambda *_, **__: real(stated, where="demo.toml"))
        yield


TRIES: dict[str, Callable[[Verb, Path], None]] = {
    "tasks bounds build recheck show certify": try_tasks,
    "attack": try_attack,
    "sweep runs export analyse report": try_store,
    "train advise": try_data,
    "density": try_density,
    "irreducible": try_irreducible,
    "probe": try_probe,
    "demo": try_demo,
    "reproduce": try_reproduce,
}


@pytest.mark.parametrize("verbs", TRIES)
def test_hostile_files_are_shown_literally(verb: Verb, tmp_path: Path, verbs: str) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "in").mkdir()
    TRIES[verbs](verb, tmp_path / "here")


def test_no_verb_is_left_out() -> None:
    assert {name for verbs in TRIES for name in verbs.split()} == set(VERBS)


# -- every verb, every parameter, hostile values that are bad -----------------------------------------------


def parameters(name: str) -> tuple[list[str], list[str]]:
    """Return the places and the flags of a verb."""
    function = getattr(importlib.import_module(f"headcount.cli.{name}"), name)
    found = inspect.signature(function).parameters.values()
    places = [p.name for p in found if p.kind is p.POSITIONAL_ONLY]
    flags = [f"--{p.name.strip('_').replace('_', '-')}" for p in found if p.kind is p.KEYWORD_ONLY]
    return places, flags


@pytest.mark.parametrize("name", VERBS)
def test_hostile_arguments_are_refused_literally(verb: Verb, tmp_path: Path, name: str) -> None:
    """Each flag with all places filled: there is nothing of these names, or no such value."""
    places, flags = parameters(name)
    flags = [flag for flag in flags if flag != "--example"]  # any name will do for a new file
    trained = name in ("demo", "reproduce")  # they would begin to work
    for value in (EVIL, "[/x]", FILE, f"in/{FILE}.json", f"{FILE}.npz"):
        nothing = [f"--no-such-flag={value}"] if trained else []
        verb(name, *[value] * len(places), *nothing, *([] if places else ["--out", value]), status=2)
        for flag in flags:
            verb(name, *[value] * len(places), flag, value, *nothing, status=2)
    verb(EVIL, status=2)
    assert list(tmp_path.iterdir()) == []


def test_python_shows_errors_and_results_literally(tmp_path: Path) -> None:
    """A traceback and a prompt print what `str` and `repr` return."""
    task = parse_task({**hc.make_task("quadratic-basins", intrinsic=2).data(), "name": EVIL})
    assert task.name == EVIL
    assert hidden(repr(task) + str(task)) == set()
    data = hc.ArrayTask.from_arrays(np.zeros((12, 3, 1)), np.arange(12.0), name=EVIL)
    assert hidden(repr(data)) == set()
    for wrong in (
        lambda: hc.make_task(EVIL),
        lambda: hc.load_model(tmp_path / FILE),
        lambda: hc.verify(tmp_path / FILE),
        lambda: hc.make_task("quadratic-basins", **{EVIL: 1}),
        lambda: hc.ArrayTask.load(tmp_path / f"{FILE}.npz"),
    ):
        with pytest.raises(hc.HeadcountError) as told:
            wrong()
        assert hidden(str(told.value)) == set()
        assert hidden("".join(traceback.format_exception_only(told.value))) == set()


def test_a_traceback_of_debug_is_shown_literally(headcount_here: Cli) -> None:
    done = headcount_here("show", EVIL, "--debug")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert hidden(done.stderr) == set()
