"""The witness of one head fewer: proved for a known task, measured for a learned one, refused where it is none."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

import headcount as hc
from headcount.advisor import advice as advisor
from headcount.advisor.data import Material, material
from headcount.advisor.engine import TrialEngine
from headcount.advisor.record import WitnessRecord
from headcount.advisor.trials import Outcome, Wanted
from headcount.advisor.witness import MIN_SEARCH_SECONDS, agreed, find_witness, own_units, save_witness, weaker
from headcount.core.errors import BadInput
from headcount.sweeps.spec import ModelOptions
from headcount.tasks.task import Task
from headcount.training.session import Stopped
from headcount.training.spec import TrainSpec

SECONDS = 4.0


@pytest.fixture(scope="module")
def case() -> tuple[Task, Material, list[Outcome]]:
    """A task with D = 2, and layers with 1, 2 and 4 heads that were trained on inputs in odd units."""
    task = hc.make_task("sum-of-maxima", intrinsic=2, length=16, limit=2.5)
    X = task.sample(2000, 0)
    stuff = material(X.numpy(), task.value(X).numpy())
    train = TrainSpec(
        steps=1000, warmup=100, learning_rate=1e-2, evaluations=10, batch=128, train_size=1600, validation_size=400
    )
    wanted = [Wanted(h, s, ModelOptions(head_dim=4, hidden=32), train) for h in (1, 2, 4) for s in (0, 1)]
    return task, stuff, TrialEngine(stuff, deadline=time.monotonic() + 300).train(wanted)


def test_a_model_in_the_units_of_the_data_is_the_same_model():
    X = 40.0 * np.random.default_rng(0).random((60, 5, 2)) + np.array([7.0, -300.0])
    stuff = material(X, X[:, :, 0].max(1))
    train = TrainSpec(steps=20, warmup=2, evaluations=2, batch=16, train_size=48, validation_size=12)
    for positions in ("none", "concatenated", "additive", "gates"):
        options = ModelOptions(head_dim=2, hidden=8, positions=positions)
        (one,) = TrialEngine(stuff, deadline=time.monotonic() + 60).train([Wanted(2, 0, options, train)])
        ours = own_units(one, stuff).predict(torch.from_numpy(X))
        theirs = one.network()(stuff.inputs(X)).double() * stuff.data.std + stuff.data.mean
        assert torch.allclose(ours, theirs.detach(), atol=1e-3)
        assert not torch.allclose(
            ours, own_units(one, replace(stuff, shift=stuff.shift + 1)).predict(torch.from_numpy(X))
        )


def test_one_head_fewer_is_proved_to_confuse_inputs_and_a_tampered_pair_is_rejected(case, tmp_path):
    task, stuff, trials = case
    found = find_witness(trials, stuff, 2, task=task, seconds=SECONDS)
    assert (found.heads, found.tag, found.why, found.target) == (1, "proved", "", "task")
    assert found.deviations > 3
    assert found.least_error == found.gap / 2
    assert abs(found.predictions[0] - found.predictions[1]) < 1e-6  # the layer itself says the same of both
    y = task.value(torch.tensor([found.X1, found.X2], dtype=torch.float64))[:, 0]
    assert abs(float(y[0] - y[1])) >= found.gap * (1 - 1e-9)
    assert {reason.tag for reason in found.sentences} == {"proved"}
    assert found.in_support is True
    assert 0 < found.converged <= found.starts
    assert f"{found.converged} of {found.starts} starts converged" in found.sentences[0].text
    assert "inputs of the task whose targets" in found.sentences[0].text
    save_witness(found, trials, stuff, 2, task, tmp_path / "layer")
    assert hc.verify_witness(tmp_path / "layer" / "witness.json").holds
    for key, change in (("claims", {"gap": 2 * found.gap}), ("X1", None)):
        bad = json.loads(json.dumps(found.file))
        if change:
            bad[key] |= change
        else:
            bad["X1"][0][0] = bad["X1"][1][0]
        (tmp_path / "layer" / "witness.json").write_text(json.dumps(bad))
        assert not hc.verify_witness(tmp_path / "layer" / "witness.json").holds


def test_a_layer_with_enough_heads_gives_no_witness_of_that_size(case):
    task, stuff, trials = case
    few, enough = (find_witness(trials, stuff, h, task=task, seconds=SECONDS) for h in (2, 4))
    assert enough.heads == 2
    assert (enough.deviations or 0.0) < few.deviations / 2


def test_a_learned_target_is_measured_and_all_good_models_must_agree(case):
    task, stuff, trials = case
    few, enough = (find_witness(trials, stuff, h, seconds=SECONDS) for h in (2, 4))
    assert (few.tag, few.target) == ("measured", "best model")
    assert few.judges >= 2
    assert few.file is None
    assert few.deviations > 2
    assert {reason.tag for reason in few.sentences} == {"measured"}
    assert "models stand in for it and nothing is proved" in few.sentences[-2].text
    assert "Whether such inputs occur is not known" in few.sentences[-1].text
    assert few.in_support is None
    assert f"{few.converged} of {few.starts} starts converged" in few.sentences[0].text
    assert (enough.deviations or 0.0) < few.deviations / 2
    y = task.value(torch.tensor([few.X1, few.X2], dtype=torch.float64))[:, 0]
    assert abs(float(y[0] - y[1])) > few.gap / 2  # what the models say is true of the task

    layer, pair = weaker(trials, 2), np.array([few.X1, few.X2])
    model = own_units(layer, stuff, None, (tuple(few.box[0]), tuple(few.box[1])))
    judges = [own_units(one, stuff) for one in trials if one.heads == 4]
    assert agreed(model, judges, stuff, pair, 0) >= few.gap
    moved, outside = pair.copy(), pair.copy()
    moved[0, 3] += 0.05 * (1 - 2 * (moved[0, 3] > 0))
    outside += 10.0
    assert agreed(model, judges, stuff, moved, 0) is None
    assert agreed(model, judges, stuff, outside, 0) is None
    assert agreed(model, [*judges, model], stuff, pair, 0) < 1e-6  # one judge who sees nothing is enough


def test_classes_that_one_head_cannot_tell_apart():
    """Two classes by the sum of two maxima, away from the border: the models' classes of the pair are the true ones."""
    X = np.random.default_rng(0).random((6000, 8, 2))
    sums = X.max(1).sum(1)
    border = np.median(sums)
    clear = np.flatnonzero(np.abs(sums - border) > 0.06)[:2000]
    stuff = material(X[clear], np.where(sums[clear] > border, "in time", "late"))
    train = TrainSpec(
        steps=1000, warmup=100, learning_rate=1e-2, evaluations=10, batch=128, train_size=1600, validation_size=400
    )
    wanted = [Wanted(h, s, ModelOptions(head_dim=4, hidden=32), train) for h in (1, 2) for s in (0, 1)]
    trials = TrialEngine(stuff, deadline=time.monotonic() + 300).train(wanted)
    found = find_witness(trials, stuff, 2, seconds=SECONDS)
    assert (found.heads, found.tag, found.why) == (1, "measured", "")
    above = np.array([found.X1, found.X2]).max(1).sum(1) > border
    first, second = ("in time" if high else "late" for high in above)
    assert first != second
    assert f"call the first {first} and the second {second}" in found.sentences[1].text
    assert f"scores of class {stuff.classes[found.output]}" in found.sentences[0].text
    assert abs(found.predictions[0] - found.predictions[1]) < 1e-6


def test_where_there_is_none_it_says_why(case):
    task, stuff, trials = case
    assert "No number of heads is recommended" in find_witness(trials, stuff, None).why
    assert "no trained layer with fewer heads" in find_witness(trials, stuff, 1).why
    poor = [replace(one, validation=0.2) for one in trials]
    assert "above 0.05 it cannot stand in" in find_witness(poor, stuff, 2).why
    assert "Fewer than two models" in find_witness(trials[:2] + [o for o in trials if o.heads < 4][:3], stuff, 4).why
    flags = replace(stuff, task=hc.ArrayTask.from_arrays(np.round(stuff.task.X), stuff.task.y))
    assert "takes only" in find_witness(trials, flags, 2).why
    mask = np.ones(stuff.task.X.shape[:2], dtype=bool)
    mask[:, -1] = False
    padded = replace(stuff, task=hc.ArrayTask.from_arrays(stuff.task.X, stuff.task.y, mask))
    assert "full length" in find_witness(trials, padded, 2, task=task).why
    other = hc.make_task("sum-of-maxima", intrinsic=2, length=8, limit=2.5)
    assert "does not cover this case" in find_witness(trials, stuff, 2, task=other).why
    for seconds in (1.9, -5.0):
        assert "no time left" in find_witness(trials, stuff, 2, task=task, seconds=seconds).why


def test_a_search_that_runs_beside_other_work_can_be_ended(case):
    task, stuff, trials = case
    halt = threading.Event()
    halt.set()
    start = time.monotonic()
    for known in (task, None):
        with pytest.raises(Stopped):
            find_witness(trials, stuff, 2, task=known, seconds=60.0, halt=halt)
    assert time.monotonic() - start < 30


def test_advice_looks_for_a_witness_when_told_to(case):
    task, *_ = case
    sizes = {"steps": 300, "heads_max": 2, "quiet": True}
    found = hc.advise(task, witness=2.0, **sizes)
    assert found.looked is not None
    assert found.looked.heads in (0, 1)
    assert found.looked.target == "task"
    assert found.looked.tag or found.looked.why
    assert found.data()["witness"] == found.looked.data()  # and so in what is written
    without = hc.advise(task, **sizes)
    assert without.looked is None
    assert without.data()["witness"] is None
    for seconds in (1.0, "1s", float("nan"), 1e9):
        with pytest.raises(BadInput, match="needs 2 seconds or more|seconds: invalid duration nan"):
            without.witness(seconds)
    for wrong in (1.0, "1s", -1, float("nan"), 1e9, "soon", True):
        with pytest.raises(BadInput, match="^witness(: invalid duration| must be )"):
            hc.advise(task, witness=wrong, **sizes)


def test_a_quick_answer_stays_quick(case, monkeypatch):
    """A witness gets half of the time that the answer took, two seconds at least and no more than asked."""
    task, *_ = case
    asked: list[float] = []
    found = WitnessRecord(heads=1, tag=None, why="made up", target="task")

    def noted(*_, seconds, halt, **__):
        asked.append(seconds)
        assert isinstance(halt, threading.Event)
        return found

    monkeypatch.setattr(advisor, "find_witness", noted)
    for share, most in ((advisor.WITNESS_TIME_FRACTION, 500.0), (1e6, 500.0), (1e6, 7.0)):
        monkeypatch.setattr(advisor, "WITNESS_TIME_FRACTION", share)
        assert hc.advise(task, witness=most, steps=20, heads_max=2, quiet=True).looked is found
    assert 2.0 <= asked[0] < 60
    assert asked[1:] == [500.0, 7.0]
    for budget in (1.0, 12.0):  # and no more than is left of the budget
        start = time.monotonic()
        record = hc.advise(task, witness=500.0, heads_max=2, budget=budget, quiet=True).record
        assert asked[-1] <= budget + 0.5
        assert record.seconds <= time.monotonic() - start
    assert asked[-2] < MIN_SEARCH_SECONDS
