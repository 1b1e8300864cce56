"""The support of a law: what it draws is inside, what it cannot draw is not, for the tasks and the verifier alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flint import arb

import headcount as hc
from headcount.recheck.support import outside
from headcount.recheck.weights import Rejected
from headcount.tasks.families import FAMILIES
from headcount.tasks.sampling import LAW, Marked, Sphere

LAWS: dict[str, tuple[dict[str, Any], int]] = {
    "uniform": ({"law": "uniform", "low": [-1.0, 0.0, 2.0], "high": [1.0, 0.5, 3.0]}, 3),
    "uniform, one number": ({"law": "uniform", "low": [0.0], "high": [1.0]}, 2),
    "gaussian": ({"law": "gaussian", "std": 2.0}, 3),
    "clipped": ({"law": "clipped-gaussian", "std": 1.0, "limit": 0.7}, 3),
    "sphere": ({"law": "sphere"}, 3),
    "marked": ({"law": "marked", "marks": 2}, 3),
}


def checked(law: dict[str, Any], X: np.ndarray, on_sphere: bool = False) -> str | None:
    """Return the verifier's verdict on a sequence of exact numbers."""
    balls = [[arb(float(v)) for v in x] for x in X]
    return outside({"law": law}, [balls, balls], on_sphere)


def cube(X: np.ndarray) -> np.ndarray:
    return np.sign(X) + (X == 0)


def nudged(X: np.ndarray, place: tuple[int, int], by: float) -> np.ndarray:
    moved = X.copy()
    moved[place] += by
    return moved


@pytest.mark.parametrize("name", LAWS)
def test_samples_of_a_law_lie_in_its_support(name: str) -> None:
    data, dim = LAWS[name]
    law = LAW.validate_python(data)
    for X in law.draw(np.random.default_rng(0), 50, 6, dim):
        assert law.outside(X) == ""
        assert checked(law.model_dump(mode="json"), X) == ""


MARKS = np.array([[0.2, 1.0, 0.0], [0.4, 0.0, 0.0], [1.0, 0.0, 1.0]])
UNIT = np.array([[0.6, 0.8, 0.0], [0.0, 0.0, -1.0], [1.0, 0.0, 0.0]])
BAD = {
    "a number beyond a box": (
        "uniform",
        nudged(np.tile([0.0, 0.25, 2.5], (3, 1)), (1, 1), 0.3),
        "a coordinate of 0.55; the task's lie from 0 to 0.5",
    ),
    "a hair beyond a box": ("clipped", nudged(np.full((2, 3), 0.7), (0, 2), 1e-9), "the task's lie from -0.7"),
    "corners of a cube": ("sphere", cube(UNIT - 0.1), "tokens of norm 1.73; the task's have norm 1"),
    "a token off the sphere": ("sphere", nudged(UNIT, (1, 2), 1e-9), "the task's have norm 1"),
    "fractional marks": ("marked", nudged(MARKS, (0, 1), -0.18), "a mark of 0.82; the task's are 0 or 1"),
    "a mark that is almost 1": ("marked", nudged(MARKS, (0, 1), -1e-9), "the task's are 0 or 1"),
    "a mark that two carry": ("marked", nudged(MARKS, (1, 1), 1.0), "2 tokens that carry mark 1"),
    "a mark that none carries": ("marked", nudged(MARKS, (2, 2), -1.0), "0 tokens that carry mark 2"),
    "a value above 1": ("marked", nudged(MARKS, (2, 0), 0.5), "the task's lie from 0 to 1"),
}


@pytest.mark.parametrize("case", BAD)
def test_points_that_a_law_cannot_draw_are_outside_its_support(case: str) -> None:
    name, X, said = BAD[case]
    law = LAW.validate_python(LAWS[name][0])
    assert said in law.outside(X)
    verified = checked(LAWS[name][0], X)
    assert verified
    assert said.rpartition(";")[2] in verified


def test_numbers_that_are_not_finite_are_outside() -> None:
    for data, dim in LAWS.values():
        X = LAW.validate_python(data).draw(np.random.default_rng(1), 1, 4, dim)[0]
        for odd in (np.nan, np.inf):
            assert LAW.validate_python(data).outside(nudged(X, (1, dim - 1), odd))


def test_the_tolerance_is_that_of_rounding() -> None:
    assert Sphere().outside(nudged(UNIT, (1, 2), 1e-13)) == ""
    assert Sphere().outside(nudged(UNIT, (1, 2), 1e-13), tolerance=0.0)
    assert Sphere().outside(nudged(UNIT, (1, 2), 0.01), tolerance=0.1) == ""
    assert checked({"law": "sphere"}, nudged(UNIT, (1, 2), 1e-13)) == ""
    assert Marked(marks=2).outside(nudged(MARKS, (0, 1), 1e-13)) == ""
    assert checked(LAWS["marked"][0], nudged(MARKS, (0, 1), 1e-13))  # the verifier's marks are exact


def test_a_ball_is_inside_only_if_all_of_it_is() -> None:
    wide = [[arb(0.5, 0.1), arb(0.95, 0.1)]]
    law = {"law": {"law": "uniform", "low": [0.0], "high": [1.0]}}
    assert outside(law, [wide, wide], False)
    assert outside(law, [[[arb(0.5, 0.1), arb(0.85, 0.1)]]] * 2, False) == ""
    mark = [[arb(0.5, 0.1), arb(1, 1e-30)]]
    assert "the task's are 0 or 1" in (outside({"law": {"law": "marked", "marks": 1}}, [mark, mark], False) or "")
    round_ = [[arb(0.6, 1e-6), arb(0.8)]]
    assert outside({"law": {"law": "sphere"}}, [round_, round_], False)
    assert outside({"law": {"law": "sphere"}}, [round_, round_], True) == ""  # norm 1 is proved of the pair meant


def test_laws_unknown_to_the_verifier() -> None:
    X = np.zeros((2, 2))
    for law in ({"law": "levy"}, None, "uniform", ["uniform"], {}):
        assert checked(law, X) is None  # type: ignore[arg-type]
    for law in (
        {"law": "uniform", "low": [0.0]},
        {"law": "uniform", "low": [0.0] * 3, "high": [1.0] * 3},
        {"law": "uniform", "low": ["0"], "high": [1.0]},
        {"law": "marked", "marks": 2},
        {"law": "marked"},
        {"law": "clipped-gaussian", "std": 1.0, "limit": float("inf")},
    ):
        with pytest.raises((Rejected, KeyError)):
            checked(law, X)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_knows_its_inputs(name: str) -> None:
    """Samples of the task are inputs; with one token ten times as long they are not, unless tokens are unbounded."""
    task = hc.make_task(name, length=6)
    X = task.sample(20, seed=1)
    assert task.outside(X) == ""
    X[7, 2] = 10.0 * X[7, 2] + 5.0
    assert bool(task.outside(X)) == (task.box is not None)
    with pytest.raises(hc.BadInput, match="takes X"):
        task.outside(X[:, :3])
