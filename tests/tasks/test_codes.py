"""Ids and other categories become one-hot vectors, and only they."""

from __future__ import annotations

import numpy as np
import pytest

from headcount.core.errors import BadInput
from headcount.tasks.arrays.codes import MAX_CATEGORIES, category_codes
from headcount.tasks.arrays.task import ArrayTask

RNG = np.random.default_rng(0)


def test_integers_in_two_dimensions_are_ids():
    ids = RNG.choice([3, 7, 100], (20, 5))
    found = ArrayTask.from_arrays(ids, RNG.normal(size=20))
    assert found.X.shape == (20, 5, 3)
    assert found.codes is not None
    assert found.codes.values == ((0, (3.0, 7.0, 100.0)),)
    assert np.array_equal(found.X.argmax(2), np.searchsorted([3, 7, 100], ids))
    assert np.array_equal(found.X.sum(2), np.ones((20, 5)))


def test_fractions_in_two_dimensions_are_amounts():
    found = ArrayTask.from_arrays(RNG.normal(size=(20, 5)), RNG.normal(size=20))
    assert (found.X.shape, found.codes) == ((20, 5, 1), None)
    whole = ArrayTask.from_arrays(RNG.integers(0, 5, (20, 5)).astype(float), RNG.normal(size=20))
    assert (whole.X.shape, whole.codes) == ((20, 5, 1), None)  # floats: amounts, unless the caller finds otherwise


def test_padding_and_unknown_ids_are_zeros():
    ids = np.array([[1, 2, 9]] * 12)
    mask = np.array([[True, True, False]] * 12)
    found = ArrayTask.from_arrays(ids, np.arange(12.0), mask)
    assert found.codes is not None
    assert found.codes.values == ((0, (1.0, 2.0)),)  # padding is no id
    assert not found.X[:, 2].any()
    assert not found.codes.apply(np.full((1, 1, 1), 55.0)).any()


def test_too_many_ids_for_one_hot_are_rejected():
    with pytest.raises(BadInput, match=r"different ids, too many for one-hot vectors.*X\.astype\(float\)"):
        ArrayTask.from_arrays(np.arange(40_000).reshape(400, 100), RNG.normal(size=400))


@pytest.mark.parametrize(
    ("column", "category"),
    [
        (RNG.integers(0, 50, (30, 40)), True),
        (RNG.integers(0, 2, (30, 40)), False),  # two values: a linear map does it
        (RNG.integers(0, 50, (30, 40)) + 0.5, False),
        (np.arange(1200).reshape(30, 40) % (MAX_CATEGORIES + 1), False),
        (np.arange(1200).reshape(30, 40) % MAX_CATEGORIES, True),
        (RNG.normal(size=(30, 40)), False),
    ],
)
def test_which_columns_may_hold_categories(column, category):
    X = np.stack([RNG.normal(size=(30, 40)), column], 2).astype(float)
    codes = category_codes(X, None)
    assert (codes is not None) == category
    if codes is not None:
        assert codes.columns == [1]
        coded = codes.apply(X)
        assert np.array_equal(coded[:, :, 0], X[:, :, 0])
        assert np.array_equal(coded[:, :, 1:].argmax(2), np.searchsorted(np.unique(column), column))
