"""`headcount export`: a trained model out of a sweep is the model that was measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support import Cli

SWEEP = """
name = "small"
heads = [1, 2]
seeds = 2
[task]
family = "min-plus-max"
length = 4
[model]
head_dim = 2
hidden = 6
[train]
steps = 60
warmup = 5
batch = 16
train_size = 100
validation_size = 50
"""


@pytest.fixture
def swept(tmp_path: Path, headcount_here: Cli) -> Cli:
    (tmp_path / "sweep.toml").write_text(SWEEP)
    assert headcount_here("sweep", "sweep.toml").returncode == 0
    return headcount_here


def test_the_best_and_one_by_name(tmp_path: Path, swept: Cli) -> None:
    import torch

    import headcount as hc
    from headcount.training.data import prepare
    from headcount.training.loop import nmse

    rows = json.loads(swept("runs", "small", "--json").stdout)
    best = min(rows, key=lambda row: row["metrics.nmse"])
    told = json.loads(swept("export", "small", "best", "--out", "m", "--json").stdout)
    assert (told["trial"], told["nmse"]) == (best["hash"], best["metrics.nmse"])
    saved = hc.load_model(tmp_path / "m")
    task = hc.make_task("min-plus-max", length=4)
    recipe = hc.TrainSpec(steps=60, warmup=5, batch=16, train_size=100, validation_size=50)
    data = prepare(task, recipe)
    assert nmse(saved.transformer, data.validation) == pytest.approx(best["metrics.nmse"], rel=1e-4)
    assert torch.allclose(data.mean, torch.tensor(saved.mean, dtype=torch.float64))
    other = next(row for row in rows if row["hash"] != best["hash"])
    assert (
        json.loads(swept("export", "small", other["hash"][:12], "--out", "n", "--json").stdout)["hash"] != told["hash"]
    )


def test_bad_input_is_one_line_and_leaves_nothing(tmp_path: Path, swept: Cli) -> None:
    before = sorted(p.name for p in tmp_path.iterdir())
    for arguments in (("small", "zzz"), ("small", ""), ("smal", "best")):
        done = swept("export", *arguments, "--out", "m")
        assert done.returncode == 2, done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == before
    for file in (tmp_path / "headcount-runs" / "checkpoints").iterdir():
        file.write_bytes(b"damaged")
    done = swept("export", "small", "best", "--out", "m")
    assert (done.returncode, "no weights" in done.stderr) == (2, True)
