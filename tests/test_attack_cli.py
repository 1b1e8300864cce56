"""`headcount attack` and `recheck` as a user types them: what they say, write and refuse."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import headcount as hc
from headcount.cli.adversary import run_paper
from headcount.models.files import SavedModel, load_model
from headcount.models.transformer.reference import Transformer
from headcount.models.transformer.spec import ModelSpec
from headcount.tasks.retrieval import GeneralizedRetrieval
from headcount.tasks.task import Task


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


def saved_model(task: Task, folder: Path, **sizes: int) -> None:
    """Write a random model of one head for a task."""
    options = {"heads": 1, "head_dim": 2, "hidden": 8, **sizes}
    spec = ModelSpec(dim=task.dim, length=task.length, out_dim=task.out_dim, **options)
    SavedModel(Transformer(spec, seed=1, dtype=torch.float64), task=task.data()).save(folder)


def test_a_pair_outside_of_the_task_says_so_first(tmp_path: Path, headcount_here: Any) -> None:
    """Corners of a cube are no inputs of a task on the sphere: in the first line, in JSON, on the page, by recheck."""
    saved_model(hc.make_task("sphere-anchors", length=4, intrinsic=2), tmp_path / "s")
    search = ("attack", "s", "--starts", "6", "--for", "20s")
    done = headcount_here(*search, "--among", "box", "--out", "w")
    assert done.returncode == 0, done.stderr
    first = done.stdout.splitlines()[0]
    assert "not inputs of this task (tokens of norm 1." in first
    assert "the task's have norm 1)" in first
    assert "the task's own inputs, which these are not" in done.stdout
    assert "standard deviations as measured" not in done.stdout
    assert " of 6 starts converged)" in done.stdout.splitlines()[1]
    page = (tmp_path / "w" / "pair.html").read_text()
    assert "<h1>Not inputs of this task: targets" in page
    assert "standard deviations apart" not in page
    checked = headcount_here("recheck", "w")
    assert checked.stdout.startswith("It holds, but the two are not inputs of this task (tokens of norm 1.")
    assert json.loads(headcount_here("recheck", "w", "--json").stdout)["in_support"] is False

    done = headcount_here(*search, "--out", "in")
    assert done.stdout.startswith("Two inputs that attention cannot tell apart: proved")
    assert "not inputs" not in done.stdout
    assert "standard deviations as measured; " in done.stdout
    assert "<h1>Targets " in (tmp_path / "in" / "pair.html").read_text()
    checked = json.loads(headcount_here("recheck", "in", "--json").stdout)
    assert (checked["holds"], checked["in_support"], checked["proved"]["outside"]) == (True, True, "")
    assert "both are inputs of this task" in headcount_here("recheck", "in").stdout
    data = json.loads(headcount_here(*search, "--json").stdout)
    assert (data["in_support"], data["not_inputs_because"], data["starts"]) == (True, None, 6)
    assert 0 < data["converged"] <= 6


def test_the_papers_adversary_says_what_its_sequences_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its segments stay in the box that the task's tokens fill; were they to leave it, the first line would say so."""
    saved_model(hc.make_task("quadratic-basins", length=12, intrinsic=2), tmp_path / "q")
    assert run_paper(load_model(tmp_path / "q"), None, None, 0, True) == 0
    assert json.loads(capsys.readouterr().out)["in_support"] is True
    monkeypatch.setattr(Task, "outside", lambda *_: "tokens of norm 9; the task's have norm 1")
    assert run_paper(load_model(tmp_path / "q"), None, None, 0, False) == 0
    assert "not inputs of this task (tokens of norm 9" in capsys.readouterr().out.splitlines()[0]


def test_a_pair_without_a_gap_is_not_written(tmp_path: Path, headcount_here: Any) -> None:
    """A task whose target is a constant has no gap anywhere: nothing is written, and the status is 1."""
    x = hc.variable(1)
    for slope, status in ((0.0, 1), (1.0, 0)):
        task = GeneralizedRetrieval([x[0]], None, slope * hc.variable(1)[0] + 1.0, length=3)
        saved_model(task, tmp_path / f"c{status}")
        done = headcount_here("attack", f"c{status}", "--starts", "4", "--for", "10s", "--out", f"w{status}")
        assert done.returncode == status, done.stderr
        assert (tmp_path / f"w{status}").exists() is (status == 0)
        assert ("No two inputs were found" in done.stdout) is (status == 1)
        assert ("w1 was not written: a pair without a gap is not a witness." in done.stdout) is (status == 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["m", "--out", "m"], "own folder"),
        (["nowhere"], "not a model folder"),
        (["m", "--starts", "0"], "at least one start"),
        (["m", "--box", "1,0"], "LOW below HIGH"),
        (["m", "--box", "2,3"], "no input of min-plus-max lies inside the box"),
        (["m", "--among", "typical", "--adversary"], "--adversary takes no"),
        (["m", "--enclose", "5s", "--surrogate", "m"], "--enclose needs"),
        (["m", "--set", "length=4"], "--task"),
        (["m", "--task", "min-plus-max", "--set", "length=4"], "takes 3 tokens"),
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
