"""Certificates: never below an error that is attained, over all options; tight on trained models; honest otherwise."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from certify_cases import OPTIONS, random_model, tasks, ways

import headcount as hc
from headcount.cli.main import main
from headcount.theory.certify import over_minima as level_boxes
from headcount.theory.certify.constant import constant_error
from headcount.theory.certify.folded import reference
from headcount.theory.certify.trained import certify
from headcount.theory.certify.worst_found import worst_error
from headcount.theory.construct.enough_heads import build
from headcount.training.loop import saved_model
from headcount.training.spec import TrainSpec
from results import write_result

TASKS = tasks()


def errors(saved: hc.SavedModel, task, X: np.ndarray) -> np.ndarray:
    x = torch.from_numpy(X)
    return (reference(saved)(x) - task.value(x)).abs().amax(-1).numpy()


def below(saved: hc.SavedModel, task, seed: int = 0, count: int = 6) -> list[str]:
    """Return bounds on cells and boxes around random sequences that are below the error there."""
    rng = np.random.default_rng(seed)
    levels, boxes = ways(saved, task)
    low, high = (np.array(side) for side in saved.box or ())
    X = low + (high - low) * rng.random((count, task.length, task.dim))
    X[: count // 3] = X[: count // 3].round()  # corners of the unit box
    X.sort(1) if task.dim == 1 else None
    e = errors(saved, task, X)
    z = task.features(torch.from_numpy(X)).numpy()
    found: list[str] = []
    for n in range(count):
        width = 10.0 ** rng.uniform(-6, 0, z.shape[1])
        bound, _ = levels.examine(z[n] - width * rng.random(len(width)), z[n] + width * rng.random(len(width)))
        if not bound >= e[n] * (1 - 1e-9):
            found.append(f"levels: {bound} < {e[n]}")
    size = 10.0 ** rng.uniform(-6, 0, (count, 1, 1))
    lows, highs = (np.clip(X + s * size * rng.random(X.shape), low, high) for s in (-1, 1))
    bounds, _ = boxes.examine(lows, highs)
    return found + [f"tokens: {b} < {v}" for b, v in zip(bounds, e, strict=True) if not b >= v * (1 - 1e-9)]


@pytest.mark.parametrize("options", OPTIONS)
def test_no_bound_is_below_a_measured_error(options):
    for k, name in enumerate(("min-plus-max", "basins")):
        task = TASKS[name]
        assert below(random_model(task, seed=k, **OPTIONS[options]), task, seed=k) == []


@pytest.mark.parametrize("name", ["plane", "vector", "sets", "single"])
def test_no_bound_is_below_a_measured_error_on_other_tasks(name):
    assert below(random_model(TASKS[name], seed=1), TASKS[name], seed=1) == []


def test_the_check_can_fail(monkeypatch):
    """Sabotaged twins: a slightly shifted target, or omitted heads, must be detected."""
    task = TASKS["basins"]
    saved = random_model(task)
    true = level_boxes.relax
    monkeypatch.setattr(level_boxes, "relax", lambda *a: (true(*a)[0] * 0.0, true(*a)[1]))
    assert below(saved, task) != []


@pytest.mark.parametrize("options", ["gates", "sharp"])
def test_the_whole_search(options):
    task = TASKS["min-plus-max"]
    saved = random_model(task, seed=5, **OPTIONS[options])
    seen: list[float] = []
    found = certify(saved, seconds=0.6, on_step=lambda bound, worst, left, spent: seen.append(bound))
    assert found.bound >= found.worst.error
    assert found.bound < math.inf
    assert seen == sorted(seen, reverse=True)  # a proved bound never rises
    assert errors(saved, task, found.worst.X[None])[0] == pytest.approx(found.worst.error)
    X = task.sample(4000, 1).numpy()
    assert errors(saved, task, X).max() <= found.bound
    assert found.finished == (found.bound <= 1.1 * found.worst.error)
    assert json.loads(json.dumps(found.data()))["bound_proved"] == found.bound


def test_a_model_with_known_error():
    """F is the constant 1, the target min + max on [0, 1]: the sup error is 1, at the corners."""
    task = hc.make_task("min-plus-max", length=5)
    saved = random_model(task)
    with torch.no_grad():
        last = saved.transformer.layers[0].feedforward.layers[-1]
        last.weight.zero_()
        last.bias.fill_(1.0)
    saved.mean, saved.std = (0.0,), (1.0,)
    found = certify(saved, seconds=4, goal=1.001)
    assert found.worst.error == pytest.approx(1.0)
    assert 1.0 <= found.bound <= 1.001
    assert found.finished


@pytest.mark.parametrize("shift", [0.0, 5.0])
def test_a_bound_that_a_constant_reaches_is_called_vacuous(shift, tmp_path, capsys):
    """A good model, and the same with a constant added to its output: provably worse than a constant would be."""
    task = hc.make_task("min-plus-max", length=2)
    saved = build(task, 0.2).model
    saved.mean = (shift,)
    found = certify(saved, seconds=0.5)
    assert found.vacuous is (shift > 0)
    assert 1.0 <= found.constant < 1.0001  # H runs over [0, 2], so that 1 is the best constant
    data = found.data()
    assert (data["vacuous"], data["constant_error_proved"], data["arithmetic"]) == (shift > 0, found.constant, "exact")
    saved.save(tmp_path / "model")
    with pytest.raises(SystemExit) as left:
        main(["certify", str(tmp_path / "model"), "--for", "0.5s"])
    said = capsys.readouterr().out
    assert left.value.code == 0
    assert "in exact arithmetic" in said
    assert "a constant errs by at most 1.00" in said.lower()
    assert ("Vacuous: a constant" in said) is (shift > 0)


@pytest.mark.parametrize("name", TASKS)
def test_the_constant_bound_holds_for_every_constant(name):
    """Half of the sampled range never exceeds the bound, and the two are close."""
    task = TASKS[name]
    low, high = (np.array(side) for side in task.box)
    X = low + (high - low) * np.random.default_rng(0).random((20_000, task.length, task.dim))
    X[:4000] = X[:4000].round()
    X[4000:8000] = X[4000:8000, :1]  # all tokens alike: the largest minima
    y = task.value(torch.from_numpy(X))
    half = float((y.amax(0) - y.amin(0)).max() / 2)
    assert half <= constant_error(task, low, high) <= 4 * half


def test_overflow_proves_nothing():
    task = TASKS["min-plus-max"]
    saved = random_model(task)
    with torch.no_grad():
        saved.transformer.layers[0].feedforward.layers[0].weight.fill_(1e38)
        saved.transformer.layers[0].feedforward.layers[1].weight.fill_(1e38)
    saved.std = (1e300,)
    levels, boxes = ways(saved, task)
    assert levels.bound == boxes.bound == math.inf


@pytest.mark.filterwarnings("error")
def test_a_model_without_finite_outputs_is_reported(tmp_path, capsys):
    saved = random_model(TASKS["min-plus-max"], seed=1, feedforward="relu2")
    saved.transformer.double()
    with torch.no_grad():
        saved.transformer.layers[0].attention.value.mul_(1e200)
        saved.transformer.layers[0].feedforward.layers[0].weight.mul_(1e200)
    assert not saved.predict(torch.rand(3, TASKS["min-plus-max"].length, 1)).isfinite().any()
    saved.save(tmp_path / "model")
    for flags in ([], ["--json"]):
        with pytest.raises(SystemExit) as left:
            main(["certify", str(tmp_path / "model"), "--for", "0.5s", *flags])
        said = capsys.readouterr()
        assert left.value.code == 0, said.err
        assert "not a finite number" in said.out or json.loads(said.out)["worst_measured"] is None


REFUSED = {
    "depth": ({"depth": 2}, {}, "depth"),
    "layer norm": ({"layer_norm": True}, {}, "layer norm"),
    "class key": ({"class_key": True}, {}, "class token"),
    "no task": ({}, {"task": None}, "no task"),
    "another task": ({}, {"task": hc.make_task("mean", dim=1, length=3).data()}, "retrieval"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case):
    options, change, match = REFUSED[case]
    saved = random_model(TASKS["min-plus-max"], **options)
    for key, value in change.items():
        setattr(saved, key, value)
    with pytest.raises(hc.BadInput, match=match) as error:
        certify(saved)
    assert "\n" not in str(error.value)


def test_more_refusals():
    saved = random_model(TASKS["min-plus-max"])
    free = hc.GeneralizedRetrieval([lambda x: x[..., :1]], None, lambda z: z, length=3, dim=1)
    with pytest.raises(hc.BadInput, match="bare Python function"):
        certify(saved, free)
    for box in (((0.0,), (math.inf,)), ((0.0, 0.0), (1.0, 1.0)), ((1.0,), (0.0,))):
        with pytest.raises(hc.BadInput, match="box"):
            certify(saved, box=box)
    gaussian = hc.make_task("sum-of-maxima", intrinsic=1, dim=1, length=3)
    other = random_model(gaussian)
    other.box = None
    with pytest.raises(hc.BadInput, match="not bounded"):
        certify(other)
    with torch.no_grad():
        saved.transformer.class_token.fill_(math.nan)
    with pytest.raises(hc.BadInput, match="finite"):
        certify(saved)


def test_command_line(headcount_here, tmp_path, capsys):
    random_model(TASKS["min-plus-max"]).save(tmp_path / "model")
    done = headcount_here("certify", "model", "--for", "1s", "--json", "--out", "found.json")
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert data == json.loads((tmp_path / "found.json").read_text())
    assert data["bound_proved"] >= data["worst_measured"] > 0
    with pytest.raises(SystemExit) as left:
        main(["certify", str(tmp_path / "model"), "--for", "0.5s", "--box", "0.2,0.4"])
    said = capsys.readouterr().out
    assert left.value.code == 0
    assert "Proved: the error is at most" in said
    assert "measured" in said
    for flags in (["--box", "1,0"], ["--box", "1"], ["--for", "fast"], ["--goal", "0.5"]):
        with pytest.raises(SystemExit) as left:
            main(["certify", str(tmp_path / "model"), *flags])
        assert left.value.code == 2
        assert len(capsys.readouterr().err.strip().splitlines()) == 1


@pytest.mark.slow
def test_trained_models_within_a_minute():
    """d = 1, D = 2, T = 4, and once T = 16: the bound is within twice the worst error, within a minute."""
    recipe, seeds, cells = TrainSpec(steps=3000, warmup=300), range(8), {}
    for name, task in {
        "min-plus-max": hc.make_task("min-plus-max", length=4),
        "quadratic-basins": hc.make_task("quadratic-basins", intrinsic=2, dim=1, length=4),
        "min-plus-max-16": hc.make_task("min-plus-max", length=16),
    }.items():
        spec = hc.ModelSpec(dim=1, length=task.length, heads=2, head_dim=2, hidden=32)
        trained = min((hc.train(task, spec, recipe, seed=seed) for seed in seeds), key=lambda t: t.trial.nmse)
        saved = saved_model(task, trained)
        found = certify(saved, seconds=60)
        assert found.bound >= worst_error(saved, task, seed=7).error
        assert found.gap <= 2.0
        assert found.seconds < 62
        cells[name] = {"nmse": trained.trial.nmse, **{k: v for k, v in found.data().items() if k != "worst_input"}}
    write_result(
        "certify", {"models": cells, "recipe": recipe.data()}, seeds=list(seeds), counts={"models": len(cells)}
    )
