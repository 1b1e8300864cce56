"""The advisor on small data: the honest answers, the budget, the record, the predictions."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from advisor_cases import arrays

from headcount.advisor.advice import advise
from headcount.advisor.record import AdviceRecord
from headcount.advisor.search import Search
from headcount.advisor.shorter_sequences import allows, relabelled
from headcount.core.errors import BadInput
from headcount.tasks.families import make_task

QUICK = {"steps": 400, "heads_max": 4, "budget": 60.0, "quiet": True}


@pytest.fixture(scope="module")
def two_minima():
    """Advice on a task with D = 2, whose step is two decades."""
    X, y = arrays("sum-of-maxima", 1500, 0.05, intrinsic=2, dim=2, length=8)
    return advise(X, y, steps=1000, heads_max=4, budget=120.0, quiet=True), X, y


def test_the_step_is_found_and_everything_is_in_the_record(two_minima):
    found, _, _ = two_minima
    record = found.record
    assert (record.verdict, found.recommended_heads, found.interval[0]) == ("transition", 2, 2)
    assert found.interval[1] <= 3
    assert not record.no_transition
    assert record.settled == (record.answers["2"] >= record.confidence)
    assert [p.heads for p in record.curve] == [1, 2, 3, 4]
    assert {r.tag for r in record.reasons} == {"proved", "measured", "extrapolated"}
    assert 0.0 <= record.noise_floor < record.noise_floor_high == min(p.validation for p in record.curve)
    below, above = record.prices
    assert (below.heads, above.heads) == (1, 3)
    assert below.told_apart
    assert below.error_ratio > 3
    assert above.parameters_ratio > 1 > below.parameters_ratio
    assert all(p.step_seconds is not None and p.step_seconds > 0 for p in record.curve)
    told = json.loads(json.dumps(record.data()))
    assert AdviceRecord.parse(told) == record
    assert {"recommended_heads", "interval", "no_transition", "curve", "reasons"} <= set(told)


def test_it_predicts_with_the_best_model(two_minima):
    found, X, y = two_minima
    predicted = found.predict(X)
    nmse = float(np.mean((predicted - y) ** 2) / y.var())
    assert predicted.shape == y.shape
    assert nmse == pytest.approx(found.best.validation, rel=0.5)
    assert float(np.mean((found.predict(X[::-1]) - y) ** 2) / y.var()) > 0.5


def test_halves_are_labelled_by_the_best_model_where_it_can(two_minima):
    found, X, y = two_minima
    assert allows(found.material, found.best)
    half = relabelled(found.material, found.best, 0, found.material.task.length // 2)
    assert (half.task.length, half.task.dim) == (4, 2)
    a = make_task("sum-of-maxima", intrinsic=2, dim=2, length=4).value(torch.from_numpy(X[:, :4]))[:, 0].numpy()
    assert np.corrcoef(a, half.task.y[:, 0])[0, 1] > 0.9
    assert np.corrcoef(y, half.task.y[:, 0])[0, 1] < 0.9
    placed = found.best.model.model_copy(update={"positions": "concatenated"})
    assert not allows(found.material, replace(found.best, model=placed))
    assert not allows(found.material, replace(found.best, validation=0.2))


def test_the_picture_shows_the_step(two_minima, tmp_path):
    found = two_minima[0]
    data = found.figure()
    assert data.fall is not None
    assert (data.fall.x_from, data.fall.x_to) == (1, 2)
    found.plot(tmp_path / "advice.png")
    assert (tmp_path / "advice.png").read_bytes().startswith(b"\x89PNG")


def test_with_steps_the_same_data_give_the_same_answer():
    X, y = arrays("mean", 300, 0.1, dim=2, length=6)
    first, second = (advise(X, y, steps=60, heads_max=2, budget=60.0, quiet=True) for _ in range(2))
    assert first.record.curve[0].validation == second.record.curve[0].validation
    assert np.array_equal(first.predict(X), second.predict(X))
    other = advise(X, y, steps=60, heads_max=2, budget=60.0, seed=1, quiet=True)
    assert first.record.curve[0].validation != other.record.curve[0].validation


def test_one_head_suffices_for_a_mean():
    X, y = arrays("mean", 1500, 0.05, dim=2, length=8)
    record = advise(X, y, **QUICK).record
    assert (record.verdict, record.recommended_heads, record.no_transition) == ("one-head", 1, True)
    assert "more gain nothing beyond the margin" in record.sentence


def test_noise_is_told_from_a_task():
    X, y = arrays("mean", 1500, 0.0, dim=2, length=8)
    noise = np.random.default_rng(1).permutation(y)
    record = advise(X, noise, **QUICK).record
    assert record.verdict == "noise"
    assert record.sentence.startswith("Noise alone")
    assert "samples" in record.settle
    assert advise(X, y, **QUICK).record.verdict != "noise"


@pytest.mark.parametrize("heads_max", [3, pytest.param(4, marks=pytest.mark.slow)])
def test_as_many_heads_as_may_be_tried_are_not_called_too_few(heads_max):
    X = np.random.default_rng(0).normal(size=(1000, 12, 3))
    record = advise(X, X.max(1).sum(1), steps=1500, heads_max=heads_max, quiet=True).record
    assert [p.heads for p in record.curve] == list(range(1, heads_max + 1))
    assert record.recommended_heads == 3
    assert record.interval[0] <= 3 <= record.interval[1]
    assert record.verdict == ("not-reached" if heads_max == 3 else "transition")
    assert record.interval_open or record.settled


def test_a_function_without_look_ups_has_no_sure_step():
    X = np.random.default_rng(0).normal(size=(1000, 12, 3))
    record = advise(X, X.std(1).sum(1), steps=300, heads_max=8, quiet=True).record
    assert record.no_transition
    assert not record.settled


def test_classes_are_learned_and_named():
    X, y = arrays("sum-of-maxima", 1500, 0.0, intrinsic=1, dim=1, length=6)
    labels = np.where(y > np.median(y), "high", "low")
    found = advise(X, labels, **QUICK)
    assert found.record.kind == "classification"
    assert set(found.predict(X)) == {"high", "low"}
    wrong = float((found.predict(X) != labels).mean())
    assert wrong < 0.2
    assert found.best.wrong is not None
    assert abs(found.best.wrong - wrong) < 0.1


def test_vectors_are_learned():
    X, y = arrays("mean", 1000, 0.0, dim=2, length=6)
    found = advise(X, np.stack([y, -y], 1), **QUICK)
    assert found.record.out_dim == 2
    assert found.predict(X).shape == (1000, 2)


def test_lengths_may_vary():
    rng = np.random.default_rng(0)
    X, lengths = rng.standard_normal((1500, 8, 1)), rng.integers(2, 9, 1500)
    mask = np.arange(8)[None] < lengths[:, None]
    y = np.where(mask, X[:, :, 0], -9).max(1)
    X[~mask] = 77.0
    found = advise(X, y, mask, **QUICK)
    assert found.best.validation < 0.3
    assert [p.shortest for p in found.record.lengths] == sorted(p.shortest for p in found.record.lengths)
    assert len(found.record.lengths) >= 2
    other = X.copy()
    other[~mask] = -5.0
    assert np.array_equal(found.predict(X, mask), found.predict(other, mask))
    assert not np.allclose(found.predict(X, mask), found.predict(X, np.ones_like(mask)))


def test_the_budget_is_kept_and_what_is_trained_counts():
    X, y = arrays("sum-of-maxima", 4000, 0.0, intrinsic=3, dim=3, length=32)
    advise(X[:50], y[:50], steps=2, heads_max=2, budget=60.0, quiet=True)  # the kernels are loaded
    start = time.monotonic()
    record = advise(X, y, budget=4.0, quiet=True).record
    assert time.monotonic() - start < 12.0
    assert record.curve
    assert record.trials > 1


def test_a_budget_of_nothing_is_answered_in_one_line():
    X, y = arrays("mean", 4000, 0.0, dim=2, length=64)
    with pytest.raises(BadInput, match="budget is too small, nothing was trained"):
        advise(X, y, budget=1e-6, quiet=True)


def test_too_few_samples_to_train_on_are_named_as_the_reason():
    """Two sequences validate, and their targets are nearly equal: no error is within bounds, whatever the budget."""
    X = np.random.default_rng(0).standard_normal((10, 6, 3))
    y = np.where(np.arange(10) == 0, 5.0, 1e-7 * np.arange(10))
    with pytest.raises(
        BadInput,
        match=r"nothing could be trained \(.*training diverged: no usable error on the 10 validation sequences",
    ):
        advise(X, y, steps=20, heads_max=2, budget=60.0, quiet=True)


def test_a_task_may_stand_for_arrays():
    found = advise(make_task("mean", dim=1, length=4), steps=30, heads_max=2, budget=60.0, quiet=True)
    assert found.record.samples == 10_000


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"budget": 0}, "budget"),
        ({"budget": float("nan")}, "budget"),
        ({"heads_max": 1}, "heads_max"),
        ({"confidence": 1.0}, "confidence"),
        ({"steps": 0}, "steps"),
        ({"seed": -1}, "seed"),
        ({"device": "abacus"}, "device"),
    ],
)
def test_numbers_that_mean_nothing_are_refused(options, text):
    X, y = arrays("mean", 50, 0.0, dim=1, length=4)
    with pytest.raises(BadInput, match=text):
        advise(X, y, **{"quiet": True, **options})


def test_y_must_be_there():
    with pytest.raises(BadInput, match="y is missing"):
        advise(np.zeros((20, 3, 1)))


def test_tf32_of_the_user_does_not_reach_the_models(monkeypatch):
    """Not in the search, its prices or its threads: it is off from the first model to the last, and then as it was."""
    seen, right = [], Search.run
    monkeypatch.setattr(
        Search, "run", lambda self: (seen.append(torch.backends.cuda.matmul.allow_tf32), right(self))[1]
    )
    X, y = arrays("sum-of-maxima", 200, 0.0, intrinsic=1, dim=1, length=4)
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        advise(X, y, steps=5, heads_max=2, quiet=True)
        assert torch.backends.cuda.matmul.allow_tf32
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False
    assert seen == [False]
