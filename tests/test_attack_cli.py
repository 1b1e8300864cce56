"""`headcount attack` and `recheck` as a user types them: what they say, write and refuse."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import headcount as hc
from headcount.models.files import SavedModel
from headcount.models.reference import Transformer
from headcount.models.spec import ModelSpec


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """One random head that cannot see both ends of three numbers."""
    spec = ModelSpec(dim=1, length=3, heads=1, head_dim=2, hidden=8)
    task = hc.make_task("min-plus-max", length=3)
    SavedModel(Transformer(spec, seed=1, dtype=torch.float64), task=task.data()).save(tmp_path / "m")
    return tmp_path / "m"


def test_a_witness_says_what_it_is_about(model: Path, tmp_path: Path, headcount_here: Any) -> None:
    """Found, saved and verified; with another task stated recheck says so, and a raised claim is status 1."""
    done = headcount_here("attack", "m", "--starts", "6", "--for", "20s", "--enclose", "5s", "--out", "w")
    assert done.returncode == 0, done.stderr
    enclosure, claims = (json.loads((tmp_path / "w" / f"{n}.json").read_text()) for n in ("enclosure", "witness"))
    assert 0 < claims["claims"]["gap"] <= enclosure["bound"] < 2.0  # min + max of [0, 1] spans 2
    assert "Proved: every feed-forward block" in done.stdout
    assert "Proved: the best feed-forward block errs by" in done.stdout
    checked = headcount_here("recheck", "w")
    assert checked.returncode == 0
    assert "task min-plus-max, the model's own" in checked.stdout
    path = tmp_path / "w" / "witness.json"
    witness = json.loads(path.read_text())
    path.write_text(
        json.dumps({**witness, "task": {**witness["task"], "law": {"law": "uniform", "low": [-1.0], "high": [2.0]}}})
    )
    other = headcount_here("recheck", "w")
    assert other.returncode == 0
    assert "NOT the model's own" in other.stdout
    path.write_text(json.dumps({**witness, "claims": {**witness["claims"], "gap": 2.0}}))
    assert headcount_here("recheck", "w").returncode == 1
    assert json.loads(headcount_here("recheck", "w", "--json").stdout)["holds"] is False


def test_a_folder_with_both_is_verified_twice(tmp_path: Path, headcount_here: Any, model: Path) -> None:
    """A false witness beside a true certificate does not pass."""
    assert headcount_here("build", "min-plus-max", "--length", "3", "--eps", "0.2", "--out", "b").returncode == 0
    assert headcount_here("attack", "m", "--starts", "4", "--for", "10s", "--out", "w").returncode == 0
    shutil.copy(tmp_path / "w" / "witness.json", tmp_path / "b" / "witness.json")
    assert headcount_here("recheck", "b").returncode == 1
    (tmp_path / "b" / "witness.json").unlink()
    assert headcount_here("recheck", "b").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["m", "--out", "m"], "own folder"),
        (["nowhere"], "no model folder"),
        (["m", "--starts", "0"], "at least one start"),
        (["m", "--box", "1,0"], "LOW below HIGH"),
        (["m", "--among", "typical", "--adversary"], "--adversary takes no"),
        (["m", "--enclose", "5s", "--surrogate", "m"], "--enclose needs"),
        (["m", "--set", "length=4"], "--task"),
        (["m", "--task", "min-plus-max", "--set", "length=4"], "reads 3 tokens"),
    ],
)
def test_wrong_flags_are_one_line(
    model: Path, tmp_path: Path, headcount_here: Any, arguments: list[str], message: str
) -> None:
    before = sorted(p.name for p in tmp_path.rglob("*"))
    done = headcount_here("attack", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert sorted(p.name for p in tmp_path.rglob("*")) == before
