"""Who trains and who validates: in proportion, duplicates on one side, everybody in turn where sequences are few."""

from __future__ import annotations

import numpy as np
import pytest

from headcount.advisor.data import material
from headcount.advisor.split import FOLDS, MAX_VALIDATION, MIN_HOLDOUT_SAMPLES, deal, plan_splits, same_sequences
from headcount.tasks.arrays.task import ArrayTask


def task(samples: int, seed: int = 0) -> ArrayTask:
    rng = np.random.default_rng(seed)
    return ArrayTask.from_arrays(rng.normal(size=(samples, 3, 2)), rng.normal(size=samples))


def test_few_sequences_all_validate_and_none_of_them_on_what_it_trained():
    splits = plan_splits(task(103), None, 0)
    assert splits.folds == FOLDS
    for folds in splits.repeats:
        assert np.array_equal(np.sort(np.concatenate([one.validation for one in folds])), np.arange(103))
        assert all(np.intersect1d(one.train, one.validation).size == 0 for one in folds)
        assert all(len(one.train) + len(one.validation) == 103 for one in folds)
        assert {len(one.validation) for one in folds} <= {20, 21}
    first, second = splits.of(0), splits.of(1)
    assert not np.array_equal(first[0].validation, second[0].validation)  # dealt anew for every seed
    assert splits.inflation == pytest.approx(1 + 103 / 82.4)


@pytest.mark.parametrize("samples", [MIN_HOLDOUT_SAMPLES, 60_000])
def test_many_sequences_are_split_once(samples):
    splits = plan_splits(task(samples), None, 0)
    (only,) = splits.repeats[0]
    assert (splits.folds, len(splits.repeats)) == (1, 1)
    assert len(only.validation) == min(samples // 5, MAX_VALIDATION)
    assert splits.inflation == pytest.approx(1 + len(only.validation) / len(only.train))


@pytest.mark.parametrize("samples", [100, 2000])
def test_every_class_validates_in_proportion(samples):
    rng = np.random.default_rng(1)
    labels = (rng.random(samples) < 0.05).astype(np.int64)
    splits = plan_splits(task(samples), labels, 0)
    for one in splits.repeats[0]:
        rare = labels[one.validation].sum()
        assert abs(rare - labels.sum() * len(one.validation) / samples) < 1.01
    shuffled = rng.permutation(samples) % FOLDS  # what a split that ignores classes does
    apart = [abs(labels[shuffled == k].sum() - labels.sum() / FOLDS) for k in range(FOLDS)]
    assert max(apart) > 1


def test_equal_sequences_stay_on_one_side():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(30, 4, 1))[rng.integers(0, 30, 200)]
    twice = ArrayTask.from_arrays(X, rng.normal(size=200))
    groups = same_sequences(twice)
    assert len(set(groups.tolist())) == len(np.unique(X.reshape(200, -1), axis=0))
    for folds in plan_splits(twice, None, 0).repeats:
        for one in folds:
            assert not set(groups[one.train]) & set(groups[one.validation])
    alone = deal(np.arange(200), None, FOLDS, np.random.default_rng(0))  # duplicates not known as such
    assert set(groups[alone == 0]) & set(groups[alone != 0])


def test_padding_that_differs_is_no_duplicate_and_the_mask_tells_zeros_from_padding():
    X = np.zeros((20, 3, 1))
    mask = np.ones((20, 3), bool)
    mask[10:, 2] = False
    found = ArrayTask.from_arrays(X, np.arange(20.0), mask)
    assert same_sequences(found).tolist() == [0] * 10 + [1] * 10


def test_a_rare_class_does_not_outweigh_the_others():
    """In units of its own spread a class of 1 % would have as much weight as all others together."""
    rng = np.random.default_rng(3)
    y = np.where(np.arange(1000) < 10, "rare", np.where(rng.random(1000) < 0.5, "a", "b"))
    stuff = material(rng.normal(size=(1000, 4, 2)), y)
    weight = stuff.sequences.y.double().var(0)
    assert stuff.classes == ("a", "b", "rare")
    assert float(weight[2] / weight.sum()) < 0.03
