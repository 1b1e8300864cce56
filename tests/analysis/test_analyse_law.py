"""The law of the error: planted coefficients come back, a planted alternative is chosen; a linear program agrees."""

from __future__ import annotations

import numpy as np
import pytest
from analyse_cases import planted
from scipy.optimize import linprog

from headcount.analysis import law as law_room
from headcount.analysis.law import FORMS, STEP, compare, least_absolute, predicted
from headcount.analysis.of_runs import analyse
from headcount.render.words.fits import law_text

H, T = (a.ravel() for a in np.meshgrid([1.0, 2, 3, 4, 6, 8], np.log([8.0, 16, 32, 64]), indexing="ij"))
PLANTED = {
    "heads over length": (0.5 + 0.3 * T - 1.4 * H * np.exp(-0.25 * T), {"b": 0.3, "alpha": -1.4, "delta": 0.25}),
    "heads and length apart": (0.5 + 0.3 * T - 0.4 * H, {"b": 0.3, "alpha": -0.4}),
    "powers of heads and length": (0.5 + 0.3 * T - 1.2 * np.log(H), {"b": 0.3, "a": -1.2}),
    "exponential in heads": (0.5 - 0.4 * H, {"alpha": -0.4}),
    "power of heads": (0.5 - 1.2 * np.log(H), {"a": -1.2}),
    "constant": (0.5 + 0.0 * H, {}),
}


@pytest.mark.parametrize("name", PLANTED)
def test_the_planted_law_is_chosen_and_its_coefficients_come_back(name):
    logs, coefficients = PLANTED[name]
    noise = 0.03 * np.random.default_rng(3).standard_normal((40, len(H)))
    draws = logs + noise[:1] + np.concatenate([np.zeros((1, len(H))), noise[1:]])
    laws = compare(H, T, draws)
    assert [law.name for law in laws if law.chosen] == [name]
    assert {law.name for law in laws} == {form.name for form in FORMS}
    assert [law.score for law in laws] == sorted(law.score for law in laws)
    chosen = next(law for law in laws if law.chosen)
    for key, value in {**coefficients, "c": np.exp(0.5)}.items():
        assert chosen.coefficients[key] == pytest.approx(value, abs=0.12)
        low, high = chosen.intervals[key]
        assert low - 0.1 <= value <= high + 0.1
        assert low <= chosen.coefficients[key] <= high


STEPPED = np.log(np.where(H >= 4, 1e-3, 0.2))


def test_a_planted_step_is_chosen_and_stands_in_the_record():
    noise = 0.03 * np.random.default_rng(3).standard_normal((40, len(H)))
    laws = compare(H, T, STEPPED + noise)
    (chosen,) = (law for law in laws if law.chosen)
    assert chosen.name == STEP.name
    assert {law.name for law in laws} == {STEP.name, *(form.name for form in FORMS)}
    assert chosen.coefficients == pytest.approx({"a": 0.2, "b": 1e-3, "s": 4.0}, rel=0.05)
    assert chosen.intervals["s"] == (4.0, 4.0)
    assert chosen.intervals["a"][0] <= chosen.coefficients["a"] <= chosen.intervals["a"][1]
    assert [predicted(chosen, h, 8.0) for h in (1, 3, 4, 8)] == pytest.approx([0.2, 0.2, 1e-3, 1e-3], rel=0.05)
    missed = {law.name: law.score for law in laws}
    assert missed[STEP.name] < 0.1 < min(score for name, score in missed.items() if name != STEP.name)


@pytest.mark.parametrize("name", PLANTED)
def test_a_step_that_does_not_win_leaves_the_record_alone(name, monkeypatch):
    """The same laws, numbers and choice as without the candidate: kept records stay what they are."""
    found = compare(H, T, PLANTED[name][0][None])
    monkeypatch.setattr(law_room, "_splits", lambda _: np.array([]))
    assert compare(H, T, PLANTED[name][0][None]) == found
    assert all(law.name != STEP.name for law in found)
    assert STEP.name not in {law.name for law in compare(H, T, STEPPED[None])}, "the twin never tries a step"


def test_a_step_is_tried_only_between_levels_of_two_cells():
    assert law_room._splits(np.array([1.0, 2, 2, 3, 3])).tolist() == [3.0]
    assert law_room._splits(np.array([1.0, 1, 2, 2, 3])).tolist() == [2.0]
    few = compare(np.arange(1.0, 7), np.zeros(6), np.log(np.arange(1.0, 7))[None])
    assert all(np.isfinite(law.score) for law in few)


def test_an_outlier_does_not_move_a_least_absolute_fit():
    logs = PLANTED["heads over length"][0].copy()
    logs[5] += 3.0
    law = next(law for law in compare(H, T, logs[None]) if law.name == "heads over length")
    assert law.coefficients["alpha"] == pytest.approx(-1.4, abs=0.01)
    assert law.coefficients["delta"] == pytest.approx(0.25)


def test_the_fit_is_that_of_a_linear_program():
    rng = np.random.default_rng(0)
    X = np.stack([np.ones_like(H), T, H], 1)
    for _ in range(5):
        y = X @ [0.5, 0.3, -0.4] + rng.standard_t(2, len(H))
        n, p = X.shape
        cost = np.concatenate([np.zeros(p), np.ones(n)])
        above = np.block([[X, -np.eye(n)], [-X, -np.eye(n)]])
        exact = linprog(cost, above, np.concatenate([y, -y]), bounds=[(None, None)] * p + [(0, None)] * n)
        found = least_absolute(X, y[None], np.ones((1, n)))[0]
        assert np.abs(y - X @ found).sum() == pytest.approx(exact.fun, rel=1e-4)
        assert np.abs(y - X @ np.linalg.lstsq(X, y)[0]).sum() > exact.fun * 1.001  # least squares is another answer


def test_a_runs_law_is_fitted_to_its_cells():
    runs = planted(
        lambda h, T, N: 0.5 * T**0.3 * np.exp(-1.4 * h / T**0.25),
        heads=range(1, 6),
        lengths=(8, 16, 32, 64),
        noise=0.02,
    )
    found = analyse(runs, resamples=100).laws
    chosen = next(law for law in found if law.chosen)
    assert (chosen.name, chosen.points, chosen.hidden) == ("heads over length", 20, 32)
    assert chosen.coefficients["delta"] == pytest.approx(0.25, abs=0.1)


def test_too_few_cells_have_no_law():
    assert analyse(planted(lambda h, T, N: 0.1 / h, lengths=[8]), resamples=100).laws == []
    assert analyse(planted(lambda h, T, N: 0.1 / h, heads=(1, 2)), resamples=100).laws == []


def test_a_delta_at_the_edge_of_its_grid_is_marked():
    beyond = compare(H, T, (np.log(0.3) + 0.4 * T - 2.5 * H * np.exp(-1.6 * T))[None])
    inside = compare(H, T, PLANTED["heads over length"][0][None])
    notes = {law.name: law_text(law) for law in beyond}
    assert notes.pop("heads over length") == "delta = 1 is at the edge of the values tried (0 to 1)"
    assert set(notes.values()) == {""}
    assert {law_text(law) for law in inside} == {""}
