"""Predictions for new sequences, and one line for those that the model cannot take; settings that mean nothing."""

from __future__ import annotations

import numpy as np
import pytest
from advisor_cases import arrays

from headcount.advisor.advice import Advice, advise
from headcount.core.errors import BadInput


@pytest.fixture(scope="module")
def found() -> Advice:
    X, y = arrays("mean", 400, 0.1, dim=2, length=6)
    return advise(X, y, steps=300, heads_max=2, quiet=True)


def test_new_sequences_are_predicted(found: Advice) -> None:
    X, y = arrays("mean", 400, 0.0, dim=2, length=6)
    assert found.predict(X[:7]).shape == (7,)
    assert np.corrcoef(found.predict(X), y)[0, 1] > 0.9
    seen = np.ones((7, 6), bool)
    assert np.allclose(found.predict(X[:7], seen), found.predict(X[:7]), atol=1e-6)
    seen[:, 3:] = False
    spoilt = X[:7].copy()
    spoilt[:, 3:] = np.nan  # hidden tokens may hold anything
    assert np.isfinite(found.predict(spoilt, seen)).all()


BAD = {
    "two axes": (np.zeros((3, 6)), None, "[samples, length, 2]"),
    "another dim": (np.zeros((3, 6, 5)), None, "[samples, length, 2]"),
    "nothing": (np.zeros((0, 6, 2)), None, "[samples, length, 2]"),
    "words": (np.full((3, 6, 2), "a"), None, "numbers"),
    "nan": (np.full((3, 6, 2), np.nan), None, "not finite"),
    "a mask of another shape": (np.zeros((3, 6, 2)), np.ones((3, 5), bool), "mask"),
    "a mask that hides all": (np.zeros((3, 6, 2)), np.zeros((3, 6), bool), "mask"),
}


@pytest.mark.parametrize("name", list(BAD))
def test_what_cannot_be_predicted_is_told(found: Advice, name: str) -> None:
    X, mask, text = BAD[name]
    with pytest.raises(BadInput) as told:
        found.predict(X, mask)
    assert text in str(told.value)
    assert len(str(told.value).splitlines()) == 1


@pytest.mark.parametrize(
    "options",
    [{"budget": "5 minutes"}, {"budget": 0}, {"heads_max": 2.5}, {"heads_max": 1}, {"steps": 2.5}, {"confidence": 1.0}],
)
def test_settings_that_mean_nothing(options: dict[str, object]) -> None:
    X, y = arrays("mean", 100, 0.1, dim=2, length=6)
    with pytest.raises(BadInput, match=next(iter(options))):
        advise(X, y, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("budget", [120, "2m", "120"])
def test_a_budget_is_seconds_or_a_text(budget: float | str) -> None:
    X, y = arrays("mean", 100, 0.1, dim=2, length=6)
    found = advise(X, y, budget=budget, witness="2s", steps=5, heads_max=2, quiet=True)
    assert found.record.budget == 120
    assert found.looked is not None
    with pytest.raises(BadInput, match="witness: invalid duration 'soon'"):
        advise(X, y, witness="soon")


def test_y_beside_a_file_is_refused(tmp_path) -> None:
    X, y = arrays("mean", 100, 0.1, dim=2, length=6)
    np.savez(tmp_path / "data.npz", X=X, y=y)
    with pytest.raises(BadInput, match="y and mask go only with an array X"):
        advise(tmp_path / "data.npz", y)
