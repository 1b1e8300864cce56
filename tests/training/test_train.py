"""The plain training loop: it is reproducible, reports divergence, and shows the paper's transition."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from headcount import ArrayTask, BadInput, ModelSpec, TrainSpec, make_task
from headcount.training.data import Part, prepare
from headcount.training.loop import nmse, saved_model, train
from results import write_result

QUICK = TrainSpec(steps=40, warmup=5, batch=32, train_size=200, validation_size=100, evaluations=4)


def cell(heads: int, seed: int, steps: int) -> float:
    """The paper's cell: D = 4, orthonormal a_i, T = 8, N = 32, n = 8."""
    task = make_task("sum-of-maxima", intrinsic=4, dim=4, length=8, draw="orthonormal")
    spec = ModelSpec(dim=4, length=8, heads=heads, head_dim=8, hidden=32)
    error = train(task, spec, TrainSpec(steps=steps), seed=seed).trial.nmse
    assert error is not None
    return error


def test_papers_cell_sample() -> None:
    with_three, with_four = cell(3, seed=0, steps=800), cell(4, seed=0, steps=800)
    assert with_four < 5e-3
    assert with_three > 5 * with_four


@pytest.mark.slow
def test_papers_cell() -> None:
    errors = {h: [cell(h, seed, steps=8000) for seed in range(3)] for h in (3, 4)}
    best = {h: min(values) for h, values in errors.items()}
    write_result(
        "paper-cell",
        {
            "nmse": {str(h): v for h, v in errors.items()},
            "best": {str(h): v for h, v in best.items()},
            "ratio": best[3] / best[4],
        },
        seeds=[0, 1, 2],
        counts={"models": 6, "steps": 8000},
    )
    assert max(errors[4]) < 1e-3
    assert min(errors[3]) >= 10 * max(errors[4])


def test_same_arguments_same_weights() -> None:
    task = make_task("quadratic-basins")
    spec = ModelSpec(dim=2, length=8, heads=2, head_dim=3, hidden=7)
    first, again, other = (train(task, spec, QUICK, seed=s) for s in (1, 1, 2))
    for (_, a), (_, b) in zip(first.model.tensors(), again.model.tensors(), strict=True):
        assert torch.equal(a, b)
    assert first.trial.nmse == again.trial.nmse != other.trial.nmse


@pytest.mark.parametrize(
    "options",
    [
        {"heads": 1, "head_dim": 1},
        {"heads": 7, "head_dim": 3},
        {"heads": 5, "head_dim": 1, "width": 3},
        {"heads": 2, "head_dim": 9, "width": 4},
        {"heads": 3, "depth": 2, "residual": True, "layer_norm": True},
        {"heads": 2, "depth": 3},
        {"heads": 3, "positions": "gates", "class_key": True},
        {"heads": 3, "positions": "additive", "beta": "learned"},
        {"heads": 3, "positions": "concatenated", "feedforward": "relu5"},
        {"heads": 2, "feedforward": "relu2", "beta": 4.0, "hidden_ff": 5},
    ],
)
def test_all_shapes_train(options: dict[str, object]) -> None:
    """Check that every weight gets a gradient and that a few steps reduce the error."""
    task = make_task("quadratic-basins", length=6, outer="vector", sets="bands")
    spec = ModelSpec(dim=2, length=6, out_dim=3, **options)
    recipe = TrainSpec(steps=200, warmup=10, batch=64, train_size=500, validation_size=200, learning_rate=1e-2)
    trained = train(task, spec, recipe)
    assert trained.trial.curve[-1][1] < 0.95 * trained.trial.curve[0][1]
    model = type(trained.model)(spec, seed=0)
    model(trained.data.train.X).square().mean().backward()
    assert all(p.grad is not None and bool((p.grad != 0).any()) for p in model.parameters())


def test_schedule() -> None:
    spec = TrainSpec(steps=100, warmup=10, learning_rate=1.0)
    rates = [spec.rate(s) for s in range(100)]
    assert rates[0] == pytest.approx(0.1)
    assert max(rates) == pytest.approx(rates[9])
    assert rates[99] == pytest.approx(0.5 * (1 + math.cos(math.pi * 0.99)))
    assert all(a > b for a, b in itertools.pairwise(rates[10:]))
    assert TrainSpec(schedule="constant", warmup=0).rate(5000) == 1e-2


def test_nmse_by_hand() -> None:
    task = make_task("linear")
    data = prepare(task, QUICK)
    constant = type("Zero", (torch.nn.Module,), {"forward": lambda self, X, mask: torch.zeros(len(X), 1)})()
    y = data.validation.y.double()
    by_hand = float((y**2).mean() / y.var(correction=0))
    assert nmse(constant, data.validation) == pytest.approx(by_hand, rel=1e-6)
    perfect = type("Perfect", (torch.nn.Module,), {"forward": lambda self, X, mask: y.float()})()
    assert nmse(perfect, Part(data.validation.X, data.validation.y)) < 1e-12


def test_data_are_standardised_and_disjoint() -> None:
    task = make_task("min-plus-max")
    data = prepare(task, TrainSpec())
    assert float(data.train.y.mean().abs()) < 1e-5
    assert float(data.train.y.std() - 1) < 1e-3
    assert not bool((data.train.X[:200, None] == data.validation.X[None, :200]).all(-1).all(-1).any())
    y = data.validation.y.double() * data.std + data.mean
    assert torch.allclose(y, task.value(data.validation.X.double()), atol=1e-6)


def test_divergence_is_detected_and_recorded() -> None:
    task = make_task("sum-of-maxima")
    trained = train(
        task,
        ModelSpec(dim=4, length=8, heads=2),
        TrainSpec(learning_rate=10.0, steps=400, warmup=0, diverged_above=2.0),
    )
    assert trained.trial.state == "diverged"
    assert trained.trial.nmse is None
    assert trained.trial.steps < 400


def test_fresh_data_never_repeat() -> None:
    task = make_task("min-plus-max")
    spec = ModelSpec(dim=1, length=8, heads=2, head_dim=2, hidden=8)
    recipe = TrainSpec(steps=60, warmup=5, batch=64, fresh=True, train_size=100, validation_size=500)
    first, again = (train(task, spec, recipe).trial.nmse for _ in range(2))
    assert first == again
    assert first != train(task, spec, recipe.model_copy(update={"fresh": False})).trial.nmse


def test_arrays_train_with_mask() -> None:
    rng = np.random.default_rng(0)
    X, lengths = rng.random((400, 6, 2)), rng.integers(1, 7, 400)
    mask = np.arange(6) < lengths[:, None]
    y = np.where(mask, X[..., 0], np.inf).min(1)
    task = ArrayTask.from_arrays(X, y, mask)
    spec = ModelSpec(dim=2, length=6, heads=2, head_dim=2, hidden=16)
    trained = train(task, spec, TrainSpec(steps=400, warmup=20, batch=64, train_size=100))
    assert trained.trial.nmse is not None
    assert trained.trial.nmse < 0.3
    assert saved_model(task, trained).task == {"kind": "arrays", "name": task.name, "hash": task.hash()}
    with pytest.raises(BadInput, match="fresh"):
        train(task, spec, TrainSpec(fresh=True))


def test_bad_specs_are_one_line() -> None:
    for bad in (
        {"steps": 0},
        {"learning_rate": 0.0},
        {"learning_rate": float("nan")},
        {"batch": 0},
        {"batch": 9000},
        {"warmup": 9000},
    ):
        with pytest.raises(BadInput, match=next(iter(bad))) as caught:
            TrainSpec(**bad)
        assert "\n" not in str(caught.value)
    with pytest.raises(BadInput, match="differ from the task's"):
        train(make_task("mean"), ModelSpec(dim=3, length=8, heads=1))
