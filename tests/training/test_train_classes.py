"""Training on classes: `train` follows the rules of `advise` for labels, at the shell and in Python."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import headcount as hc
from headcount.advisor.advice import advise
from headcount.training.data import prepare
from headcount.training.loop import train as plain_train

QUICK = ("--heads", 1, "--steps", 200, "--batch", 32)
RECIPE = hc.TrainSpec(steps=200, warmup=20, batch=32)


def saved(folder, labels=("cold", "warm"), name="data.npz", **kinds):
    """Return sequences whose label says whether one of their tokens is large."""
    X = np.random.default_rng(0).random((400, 5, 2))
    y = np.array(labels)[(X[..., 0].max(1) > 0.87).astype(int)]
    np.savez(folder / name, X=X, y=y, **kinds)
    return X, y


def test_text_labels_are_classes_at_the_shell(headcount_here, tmp_path):
    X, y = saved(tmp_path)
    done = headcount_here("train", "data.npz", *QUICK, "--out", "model")
    assert done.returncode == 0, done.stderr
    wrong = float(done.stdout.split("1 head: ")[1].split("\u00a0%")[0])
    assert wrong < 30
    assert "% wrong classes, validation NMSE" in done.stdout
    model = hc.load_model(tmp_path / "model")
    assert model.task is not None
    assert model.task["classes"] == ["cold", "warm"]
    named = np.array(model.task["classes"])[model.predict(torch.from_numpy(X).float()).argmax(1).numpy()]
    assert (named == y).mean() > 0.7
    done = headcount_here("train", "data.npz", *QUICK, "--out", "again", "--json")
    told = json.loads(done.stdout)
    assert (told["classes"], round(100 * told["wrong"], 1)) == (["cold", "warm"], wrong)


@pytest.mark.parametrize(("kind", "outputs"), [(None, 2), ("auto", 2), ("classification", 2), ("regression", 1)])
def test_whole_numbers_are_classes_unless_told_otherwise(headcount_here, tmp_path, kind, outputs):
    X, y = saved(tmp_path, (3, 7))
    options = () if kind is None else ("--kind", kind)
    done = headcount_here("train", "data.npz", *QUICK, "--out", "model", *options)
    assert done.returncode == 0, done.stderr
    assert hc.load_model(tmp_path / "model").transformer.spec.out_dim == outputs
    assert ("wrong classes" in done.stdout) == (outputs == 2)
    found = advise(X, y, kind=kind or "auto", steps=5, heads_max=2, quiet=True)
    assert found.record.out_dim == outputs, "advise has the same rule"


BAD = {
    "text as numbers": (["data.npz", "--kind", "regression"], "y holds entries of type <U4"),
    "kind of a task": (["min-plus-max", "--kind", "classification"], "min-plus-max is not a file of arrays"),
    "unknown kind": (["data.npz", "--kind", "ranking"], "ranking"),
    "constant": (["one.npz"], "y is constant (only)"),
}


@pytest.mark.parametrize("name", list(BAD))
def test_bad_kinds_are_one_line_and_leave_nothing(headcount_here, tmp_path, name):
    saved(tmp_path)
    saved(tmp_path, ("only", "only"), "one.npz")
    options, text = BAD[name]
    done = headcount_here("train", *options, *QUICK, "--out", "model")
    assert (done.returncode, done.stdout, len(done.stderr.strip().splitlines())) == (2, "", 1)
    assert text in done.stderr
    assert not (tmp_path / "model").exists()


def test_a_trained_model_knows_its_wrong_classes(tmp_path):
    X, y = saved(tmp_path)
    task = hc.ArrayTask.from_arrays(X, y, kind="auto")
    trained = hc.train(task, hc.ModelSpec(dim=2, length=5, heads=1, out_dim=2), RECIPE)
    data = prepare(task, RECIPE)
    outputs = trained.model(data.validation.X).double() * data.std + data.mean
    truth = data.validation.y.double() * data.std + data.mean
    assert trained.wrong == float((outputs.argmax(1) != truth.argmax(1)).double().mean())
    assert "wrong classes" in trained._repr_html_()
    shuffled = hc.ArrayTask.from_arrays(X, np.random.default_rng(1).permutation(y), kind="auto")
    lost = plain_train(shuffled, hc.ModelSpec(dim=2, length=5, heads=1, out_dim=2), RECIPE)
    assert lost.wrong is not None
    assert trained.wrong is not None
    assert lost.wrong > trained.wrong, "labels without meaning are not learned"
    numbers = hc.ArrayTask.from_arrays(X, X[..., 0].max(1))
    assert plain_train(numbers, hc.ModelSpec(dim=2, length=5, heads=1), RECIPE).wrong is None


def test_advise_takes_a_task_with_classes(tmp_path):
    X, y = saved(tmp_path)
    found = advise(hc.ArrayTask.from_arrays(X, y, kind="auto"), steps=5, heads_max=2, quiet=True)
    assert (found.record.kind, found.record.classes) == ("classification", ["cold", "warm"])
    assert set(found.predict(X)) <= {"cold", "warm"}
