"""Every public result shows itself in a notebook: a sentence, a table, a picture where there is one; all escaped."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

import headcount as hc
from headcount.api.irreducible_result import IrreducibleResult
from headcount.cli.main import VERBS
from headcount.core import Displayable
from headcount.render.irreducible import curve_rows
from headcount.render.notebook import View
from headcount.store import State
from headcount.sweeps.attack_trials import IrreducibleSpec
from headcount.theory.construct import build_wide
from hostile import EVIL, hidden, renamed
from support import breakable, check_frame
from test_api import AS_FUNCTION, ON_THE_COMMAND_LINE_ALONE

FOLDER = Path(mkdtemp(prefix="results-"))
SHORT = {"steps": 30, "warmup": 3, "train_size": 64, "validation_size": 32, "batch": 16}


@cache
def task() -> hc.GeneralizedRetrieval:
    """A task that is called what an attacker would call it."""
    plain = hc.make_task("quadratic-basins", intrinsic=1, dim=1, length=2)
    found = hc.parse_task(hc_json(renamed(plain.data(), FOLDER / "task.json")))
    assert isinstance(found, hc.GeneralizedRetrieval)
    return found


def hc_json(path: Path) -> Any:
    from headcount.core.readers import read_json

    return read_json(path)


@cache
def built() -> Any:
    return hc.build(task(), 0.5)


@cache
def built_folder() -> Path:
    built().save(FOLDER / "built")
    return FOLDER / "built"


@cache
def trained() -> Any:
    return hc.train(task(), hc.ModelSpec(dim=1, length=2, heads=1, head_dim=1, hidden=4), hc.TrainSpec(**SHORT))


@cache
def attacked() -> Any:
    few = hc.parse_task(hc_json(renamed(hc.make_task("min-plus-max", length=3).data(), FOLDER / "few.json")))
    model = hc.ModelSpec(dim=1, length=3, heads=1, head_dim=2, hidden=4)
    hc.train(few, model, hc.TrainSpec(**SHORT)).save(FOLDER / "model")
    return hc.attack(FOLDER / "model", starts=4, budget=3.0)


@cache
def witness_folder() -> Path:
    attacked().save(FOLDER / "pair")
    return FOLDER / "pair"


@cache
def damaged_folder() -> Path:
    """A certificate that claims too much."""
    text = (built_folder() / "certificate.json").read_text()
    built().save(FOLDER / "damaged")
    bound = hc_json(built_folder() / "certificate.json")["bound"]
    (FOLDER / "damaged" / "certificate.json").write_text(text.replace(str(bound), "1e-9"))
    return FOLDER / "damaged"


@cache
def swept() -> Any:
    return hc.sweep(task(), heads=[1, 2], seeds=1, quiet=True, **SHORT)


def irreducible() -> IrreducibleResult:
    """The result of one layer, of a spec that is called what an attacker would call it."""
    found = {"deviations": 1.0, "deviations_proved": 0.5, "converged": 3, "starts": 9, "equal_effort": True}
    row = {"intrinsic": 2, "length": 4, "head_dim": 2, "heads": 1, "layer": "trained", "nmse_measured": 0.1}
    cell = {"task": {"family": "min-plus-max", "length": 4}, "heads": [1], "head_dim": 2, "seeds": 1}
    spec = IrreducibleSpec.parse({"name": "small", "title": EVIL, "train": SHORT, "cells": [cell]})
    rows = [{**row, "typical": found, "all": found}]
    counts: dict[State, int] = {"done": 1}
    return IrreducibleResult(spec, rows, curve_rows(rows), counts)


def density_of(X: Any) -> Any:
    return X.max((1, 2))


density_of.__name__ = EVIL

RESULTS: dict[str, tuple[Callable[[], Any], bool]] = {
    "build": (built, True),
    "build --wide": (lambda: build_wide(task(), 0.5), False),
    "certify": (lambda: hc.certify(built_folder(), budget=1.0), False),
    "recheck": (lambda: hc.verify(built_folder()), False),
    "recheck: fails": (lambda: hc.verify(damaged_folder()), False),
    "recheck: witness": (lambda: hc.verify_witness(witness_folder()), False),
    "density": (lambda: hc.density(density_of, length=4, samples=20), True),
    "attack": (attacked, True),
    "show": (lambda: hc.load_model(built_folder()), False),
    "train": (trained, True),
    "tasks": (lambda: hc.check_assumptions(task()), True),
    "bounds": (lambda: hc.bounds(task(), heads=[1, 2]), False),
    "sweep": (swept, True),
    "sweep: transition": (lambda: swept().transition, False),
    "analyse": (lambda: swept().analysis, True),
    "irreducible": (irreducible, True),
    "reproduce: list": (lambda: hc.reproduce(), False),
}
"""What each verb returns in Python, and whether it has a picture."""
ELSEWHERE = {
    "advise": "tests/advisor/test_notebook.py",
    "probe": "tests/probing/test_probe_show.py",
    "reproduce": "tests/reproduction/test_reproduce_python.py",
}
"""Results that take long to make, and the tests that look at them."""
OTHER = {"report": "the path of a page", "export": "a model, as load_model returns it"}


def test_every_verb_is_looked_at() -> None:
    looked_at = {name.split(":")[0].split(" ")[0] for name in RESULTS}
    assert looked_at | set(ELSEWHERE) | set(OTHER) == set(AS_FUNCTION) == set(VERBS) - ON_THE_COMMAND_LINE_ALONE
    for file in ELSEWHERE.values():
        assert "_repr_html_" in (Path(__file__).parent.parent / file).read_text()


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_shows_itself(name: str) -> None:
    make, picture = RESULTS[name]
    result = make()
    html = breakable(result._repr_html_())
    assert html.count("<p><strong>") == 1
    assert ("<table" in html) == (name != "recheck: fails")
    assert ("<img" in html) == picture
    assert "<b>" not in html, "markup of a name"
    assert hidden(html) == set()
    line = repr(result)
    assert "\n" not in line
    assert hidden(line) == set()
    assert " object at 0x" not in line
    if rows := result.table():
        check_frame([{key: value for key, value in row.items() if not isinstance(value, list | dict)} for row in rows])


def test_a_result_without_a_view_is_reported() -> None:
    @dataclasses.dataclass(repr=False)
    class Unknown(Displayable):
        number: int

    with pytest.raises(TypeError, match="Unknown has no view"):
        repr(Unknown(1))


def test_markup_would_be_seen() -> None:
    """The checks above can fail: a view that does not escape is caught."""
    view = View([EVIL])
    assert "<b>" not in view.html()
    assert "<b>" in view.html().replace("&lt;b&gt;", "<b>")


def test_printing_keeps_a_line_for_every_sentence() -> None:
    sentences = str(attacked()).splitlines()
    assert len(sentences) > 1
    assert repr(attacked()) == sentences[0], "the answer alone"


def test_a_sweep_of_several_settings_counts_them_in_one_line() -> None:
    several = hc.sweep(task(), heads=[1, 2], seeds=1, head_dims=[1, 2], quiet=True, **SHORT)
    assert repr(several) == "sweep: 2 settings, 4 trials (read .transitions)."
    assert str(several).splitlines() == [found.labelled for found in several.transitions]
