"""`headcount sweep` and `headcount train` at the shell: positions from the task, and exit statuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headcount.cli.common import trials_status
from support import Cli

SWEEP = """
name = "quick"
heads = [1, 2]
seeds = 2
task = {family = "quadratic-basins", intrinsic = 2, length = 4, sets = "halves"}
model = {head_dim = 2, hidden = 4}
train = {steps = 40, warmup = 4, batch = 8, train_size = 50, validation_size = 20}
"""


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "quick.toml"
    path.write_text(SWEEP)
    return path


def test_a_file_without_positions_gets_those_of_its_task(spec: Path, headcount_here: Cli) -> None:
    done = headcount_here("sweep", spec, "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["notes"] == []
    rows = json.loads(headcount_here("runs", "quick", "--json").stdout)
    assert {row["spec.model.positions"] for row in rows} == {"concatenated"}
    spec.write_text(SWEEP.replace("hidden = 4", 'hidden = 4, positions = "none"').replace("quick", "blind"))
    assert "these models see no positions" in headcount_here("sweep", spec).stdout
    for verb in ("analyse", "report"):
        assert "these models see no positions" in headcount_here(verb, "blind").stdout
        assert "see no positions" not in headcount_here(verb, "quick").stdout


def test_a_trained_model_gets_the_positions_of_its_task(tmp_path: Path, headcount_here: Cli) -> None:
    quick = ("--heads", "1", "--steps", "5", "--batch", "8", "--train-size", "50", "--out", "m")

    def positions(*arguments: str) -> tuple[str, str]:
        done = headcount_here("train", "quadratic-basins", *quick, *arguments)
        assert done.returncode == 0, done.stderr
        return json.loads((tmp_path / "m" / "config.json").read_text())["model"]["positions"], done.stdout

    chosen, told = positions("--set", "sets=bands")
    assert chosen == "concatenated"
    assert "Positions: concatenated" in told
    assert positions() == ("none", positions()[1])
    assert "ositions" not in positions()[1]
    stated, told = positions("--set", "sets=bands", "--positions", "none")
    assert stated == "none"
    assert "these models see no positions" in told


# -- exit statuses ------------------------------------------------------------------------------------------


def test_what_is_left_has_a_status_of_its_own(spec: Path, headcount_here: Cli) -> None:
    for more in ((), ("--json",)):
        cut = headcount_here("sweep", spec, "--for", "0.001s", *more)
        assert cut.returncode == 3, cut.stderr
    assert headcount_here("sweep", spec).returncode == 0
    assert headcount_here("sweep", spec, "--for", "0.001s").returncode == 0  # nothing is left


def test_failed_trials_have_a_status_of_their_own(
    spec: Path, headcount_here: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headcount.training import on_cores as cpu

    real = cpu.CpuTrial

    def sometimes(task: Any, model: Any, *rest: Any) -> Any:
        if model.heads == 2:
            raise MemoryError("no room")
        return real(task, model, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(cpu, "CpuTrial", sometimes)
        failed = headcount_here("sweep", spec)
        assert failed.returncode == 4
        assert "2 done, 2 failed" in failed.stdout
    assert headcount_here("sweep", spec, "--json").returncode == 4  # still failed: nothing was tried again
    assert headcount_here("sweep", spec, "--retry").returncode == 0


def test_a_diverged_trial_has_ended(spec: Path, headcount_here: Cli) -> None:
    rates = SWEEP.replace("steps = 40", "diverged_above = 2.0, steps = 40")
    spec.write_text(rates.replace("heads =", "learning_rates = [1e-3, 10.0]\nheads ="))
    done = headcount_here("sweep", spec)
    assert "4 done, 4 diverged" in done.stdout
    assert done.returncode == 0
    spec.write_text(rates.replace("heads =", "learning_rates = [10.0]\nheads ="))
    assert headcount_here("sweep", spec).returncode == 4  # not one has an error to show


def test_an_interrupted_sweep_has_the_usual_status(
    spec: Path, headcount_here: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headcount.sweeps import run as runner

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "run_on_store", interrupted)
    for command in (("sweep", spec), ("reproduce", "table4", "--scale", "smoke")):
        done = headcount_here(*command)
        assert done.returncode == 130
        assert "everything trained so far is kept" in done.stderr


@pytest.mark.parametrize(
    ("sweeps", "status"),
    [
        ([{"done": 3}], 0),
        ([{"done": 1, "diverged": 2}], 0),
        ([{"done": 1, "superseded": 2, "failed": 0}], 0),
        ([{"done": 1, "pending": 1}], 3),
        ([{"done": 1, "running": 1}], 3),
        ([{"failed": 1, "pending": 1}], 3),
        ([{"done": 2, "failed": 1}], 4),
        ([{"diverged": 2}], 4),
        ([{"failed": 2}], 4),
        ([{"done": 1}, {"pending": 1}], 3),
        ([{"failed": 1}, {"pending": 1}], 3),
        ([{"done": 1}, {"diverged": 1}], 4),
    ],
)
def test_the_status_of_sweeps(sweeps: list[dict[str, int]], status: int) -> None:
    assert trials_status(*sweeps) == status


def test_the_statuses_are_in_the_help(headcount_here: Cli) -> None:
    for verb in ("sweep", "reproduce"):
        told = " ".join(headcount_here(verb, "--help").stdout.split())
        assert "Exit status: 0 when every trial has ended" in told
        assert all(status in told for status in ("2 for", "3 when", "4 when", "130 after"))
    assert "Exit status" not in headcount_here("train", "--help").stdout
