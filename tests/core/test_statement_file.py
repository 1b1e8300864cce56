"""Certificates and witnesses: claims that nobody checks, and steps that do not hold, are refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headcount import BadInput, make_task
from headcount.recheck.certificate import budget_total, verify
from headcount.theory.construct.enough_heads import build
from headcount.theory.construct.one_wide_head import build_wide
from signed import edit
from support import Cli


@pytest.fixture(scope="module", params=["enough-heads", "one-wide-head"])
def built(request, tmp_path_factory) -> Path:
    where = tmp_path_factory.mktemp("built") / "model"
    task = make_task("min-plus-max", length=3)
    (build(task, 0.1) if request.param == "enough-heads" else build_wide(task, 0.3)).save(where)
    return where


@pytest.fixture
def copy(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "copy"))


def steps(**changes: Callable[[Any], Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return an edit of the error budget; a missing step is added."""
    return lambda c: {"steps": {**c["steps"], **{k: f(c["steps"].get(k)) for k, f in changes.items()}}}


SPOILT: dict[str, tuple[Callable[[dict[str, Any]], dict[str, Any]], str]] = {
    "a claim more": (lambda c: {"lower_bound": 0.01}, "unknown key 'lower_bound'"),
    "a claim of speed": (lambda c: {"parameters": 3}, "unknown key 'parameters'"),
    "a step more": (steps(rounding=lambda v: [0.0]), "unknown key 'rounding'"),
    "slopes too small": (steps(slopes=lambda v: [[0.5 * s for s in row] for row in v]), "does not hold: slopes"),
    "slopes of 0": (steps(slopes=lambda v: [[0.0] * len(row) for row in v]), "does not hold: slopes"),
    "a slope missing": (steps(slopes=lambda v: [row[:-1] for row in v]), "does not hold: slopes"),
    "a row of slopes missing": (steps(slopes=lambda v: v[:-1]), "does not hold: slopes"),
    "slopes flat": (steps(slopes=lambda v: v[0]), "must be a list"),
    "slopes a text": (steps(slopes=lambda v: "steep"), "steps.slopes is 'steep'"),
    "slopes by name": (steps(slopes=lambda v: {"0": v[0]}), "must be a list"),
    "a slope a text": (steps(slopes=lambda v: [["1.0"] * len(v[0])]), "is '1.0': it must be a finite number ≥ 0"),
    "steps larger than the bound": (steps(encoder=lambda v: [9.0] * len(v)), "add up to more than the bound"),
    "slopes larger than the bound": (steps(slopes=lambda v: [[99.0] * len(v[0])]), "add up to more than the bound"),
    "a step below 0": (steps(encoder=lambda v: [-1.0] * len(v)), "it must be a finite number ≥ 0"),
    "a step longer": (steps(encoder=lambda v: [*v, 0.0]), "does not hold: encoder"),
    "a step missing": (lambda c: {"steps": {k: v for k, v in c["steps"].items() if k != "slopes"}}, "slopes is miss"),
    "steps a list": (lambda c: {"steps": [1]}, "must be a JSON object"),
    "eps true": (lambda c: {"eps": True}, "eps is true: it must be a finite number"),
    "bound a text": (lambda c: {"bound": "0.1"}, "bound is '0.1': it must be a finite number"),
    "eps of 400 digits": (lambda c: {"eps": 10**400}, "must be a finite number"),
}


@pytest.mark.parametrize("case", SPOILT)
def test_corrupted_certificates_are_rejected(copy: Path, case: str) -> None:
    change, said = SPOILT[case]
    whole = json.loads((copy / "certificate.json").read_text())
    edit(copy / "certificate.json", **change(whole))
    verdict = verify(copy)
    assert not verdict.holds
    assert said in verdict.reason
    assert "\n" not in verdict.reason


def test_a_scale_belongs_to_one_kind(copy: Path) -> None:
    whole = json.loads((copy / "certificate.json").read_text())
    if whole["kind"] == "enough-heads":
        assert whole.pop("scale") == 1.0
        (copy / "certificate.json").write_text(json.dumps(whole))
        assert "scale is missing" in verify(copy).reason
    else:
        edit(copy / "certificate.json", scale=1.0)
        assert "unknown key 'scale'" in verify(copy).reason


def test_weaker_claims_are_still_accepted(copy: Path) -> None:
    """The harmless twin: key order, a larger eps, another provenance and slack in the steps do not matter."""
    whole = json.loads((copy / "certificate.json").read_text())
    bound = 1.5 * whole["bound"]
    weaker = {**dict(reversed(whole.items())), "eps": 2 * bound, "bound": bound, "provenance": {}}
    weaker["steps"] = {**whole["steps"], "encoder": [1.01 * v for v in whole["steps"]["encoder"]]}
    (copy / "certificate.json").write_text(json.dumps(weaker))
    verdict = verify(copy)
    assert verdict.holds, verdict.reason


def test_the_budget_adds_up_as_documented() -> None:
    assert budget_total([[1.0, 2.0], [0.0, 3.0]], [0.1, 0.2], [0.0, 0.1], [0.5, 0.0]) == pytest.approx(1.2)
    assert budget_total([[1.0, 2.0], [0.0, 3.0]], [0.1, 0.2], [0.0, 0.1], [0.5, 0.0]) >= 0.5 + 0.1 + 2 * 0.3 - 1e-15


def test_a_duplicate_key_is_rejected(copy: Path, headcount_here: Cli) -> None:
    text = (copy / "certificate.json").read_text()
    (copy / "certificate.json").write_text(text.replace('"eps"', '"eps": 1e-9,\n  "eps"', 1))
    with pytest.raises(BadInput, match="'eps' occurs twice"):
        verify(copy)
    done = headcount_here("recheck", str(copy))
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
