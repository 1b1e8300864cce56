"""`HeadCountAdvisor` as a scikit-learn estimator."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from advisor_cases import arrays

pytest.importorskip("sklearn")

from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import check_estimator, check_regressors_train

from headcount.advisor import split as advisor_split
from headcount.advisor.sklearn import HeadCountAdvisor
from headcount.advisor.split import MIN_HOLDOUT_SAMPLES

QUICK = {"steps": 300, "heads_max": 4, "budget": 60.0}


@pytest.mark.parametrize(
    "few", [0, pytest.param(MIN_HOLDOUT_SAMPLES, marks=pytest.mark.slow)], ids=["held back", "in folds"]
)
def test_it_passes_the_checks_of_scikit_learn(monkeypatch, few):
    """Their data are small, and five folds take three times as long."""
    monkeypatch.setattr(advisor_split, "MIN_HOLDOUT_SAMPLES", few)
    check_estimator(HeadCountAdvisor(steps=4, heads_max=2, budget=60.0), on_skip=None)


def test_the_checks_can_fail():
    class Forgetful(HeadCountAdvisor):
        def predict(self, X, mask=None):
            return super().predict(X, mask)[:-1]

    with pytest.raises(AssertionError):
        check_regressors_train("Forgetful", Forgetful(steps=4, heads_max=2, budget=60.0))


def test_it_says_what_it_found():
    X, y = arrays("sum-of-maxima", 1500, 0.05, intrinsic=2, dim=2, length=8)
    found = HeadCountAdvisor(**{**QUICK, "steps": 1200}).fit(X, y)
    assert (found.recommended_heads_, found.intrinsic_dimension_) == (2, 2)
    assert found.interval_[0] <= 2 <= found.interval_[1]
    assert [row["heads"] for row in found.curve_] == [1, 2, 3, 4]
    assert found.score(X, y) > 0.9
    assert found.n_features_in_ == 8
    assert "advice_" not in vars(clone(found))


def test_a_table_is_sequences_of_numbers():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1000, 5))
    found = HeadCountAdvisor(**{**QUICK, "heads_max": 2}).fit(X, X.mean(1))
    assert found.score(X, X.mean(1)) > 0.8
    assert found.intrinsic_dimension_ is None


def test_a_table_of_whole_numbers_holds_ids():
    X = np.random.default_rng(0).integers(0, 9, (1000, 6)) * 7
    y = ((X == 21).any(1) & (X == 49).any(1)).astype(float)
    found = HeadCountAdvisor(**{**QUICK, "heads_max": 2}).fit(X, y)
    assert found.advice_.material.categories.values == ((0, tuple(7.0 * i for i in range(9))),)
    assert "9 different ids" in found.advice_.record.categories
    assert found.score(X, y) > 0.5
    amounts = HeadCountAdvisor(**{**QUICK, "heads_max": 2}).fit(X.astype(float), y)
    assert amounts.advice_.material.task.codes is None  # floats are amounts, tried as categories and named
    assert "column 0" in amounts.advice_.record.categories


def test_classes_are_scored_by_accuracy():
    X, y = arrays("mean", 1000, 0.0, dim=2, length=6)
    labels = np.where(y > np.median(y), "high", "low")
    found = HeadCountAdvisor(kind="classification", **QUICK).fit(X, labels)
    assert list(found.classes_) == ["high", "low"]
    assert 0.7 < found.score(X, labels) <= 1.0


def test_kind_auto_scores_by_what_was_found():
    X, y = arrays("mean", 1000, 0.0, dim=2, length=6)
    labels = (y > np.median(y)).astype(int)
    found = HeadCountAdvisor(kind="auto", **QUICK).fit(X, labels)
    assert is_classifier(found)
    assert found.score(X, labels) == float((found.predict(X) == labels).mean()) > 0.7
    assert not is_classifier(found.fit(X, y))  # the same estimator on numbers forgets the classes
    assert not hasattr(found, "classes_")
    assert found.score(X, y) == pytest.approx(1 - np.mean((found.predict(X) - y) ** 2) / y.var())
    assert HeadCountAdvisor(kind="auto", **QUICK).fit(X, np.stack([y, -y], 1)).predict(X).shape == (1000, 2)


def test_sequences_of_another_length_are_predicted_and_others_refused():
    X, y = arrays("mean", 1000, 0.0, dim=2, length=6)
    found = HeadCountAdvisor(**{**QUICK, "steps": 30, "heads_max": 2}).fit(X, y)
    assert found.advice_.best.model.positions == "none"
    assert np.array_equal(found.predict(X[:, :4]), found.advice_.predict(X[:, :4]))
    mask = np.arange(6) < np.full((1000, 1), 4)
    assert np.allclose(found.predict(X, mask), found.predict(X[:, :4]), atol=1e-5)
    with pytest.raises(ValueError, match=r"\[samples, length, 2\]"):
        found.predict(X[:, :, :1])
    with pytest.raises(ValueError, match=r"\[samples, length, 2\]"):
        found.predict(X[:, :, 0])
    table = HeadCountAdvisor(**{**QUICK, "steps": 30, "heads_max": 2}).fit(X[:, :, 0], y)
    with pytest.raises(ValueError, match="4 features"):
        table.predict(X[:, :4, 0])


def test_bad_data_are_a_value_error_and_nothing_is_predicted_before_fit():
    with pytest.raises(ValueError, match="constant"):
        HeadCountAdvisor(**QUICK).fit(np.random.default_rng(0).standard_normal((30, 4)), np.ones(30))
    with pytest.raises(NotFittedError):
        HeadCountAdvisor(**QUICK).predict(np.zeros((3, 4)))


def test_the_package_does_not_need_scikit_learn():
    code = "import sys; sys.modules['sklearn'] = None; import headcount.advisor.advice; import headcount"
    subprocess.run([sys.executable, "-c", code], check=True)
