"""Targets that are missing in some cells: each is compared with itself, so that no slope or law comes of it."""

from __future__ import annotations

import numpy as np
import pytest
from analyse_cases import panel, trial

from headcount.analysis.bootstrap import balanced
from headcount.analysis.of_runs import analyse
from headcount.store.records import Run

NAN = float("nan")


def uneven(missing: str, *, lengths=(4, 8, 16), hidden=(32,), heads=(1, 2, 3), lost="pending") -> list[Run]:
    """Ten targets, five hard and five easy, no effect of size; one kind is missing at the largest size."""
    rng = np.random.default_rng(0)
    runs: list[Run] = []
    for T in lengths:
        for N in hidden:
            for k in range(10):
                gone = (k < 5) == (missing == "hard") and (max(lengths), max(hidden)) == (T, N)
                level = 1e-1 if k < 5 else 1e-5
                errors = {(h, s): level * 10 ** (0.02 * rng.standard_normal()) for h in heads for s in range(3)}
                trials = [trial(h, s, None if gone else e, N) for (h, s), e in errors.items()]
                dropped = gone and lost == "pending"
                found = panel(
                    [] if dropped else trials, {"pending": 9} if dropped else {}, length=T, hidden=N, target=k
                )
                runs.append(found.model_copy(update={"spec": {**found.spec, "heads": list(heads), "seeds": 3}}))
    return runs


@pytest.mark.parametrize("missing", ["easy", "hard"])
@pytest.mark.parametrize("lost", ["pending", "diverged"])
def test_a_missing_target_makes_no_slope_in_the_length(missing, lost):
    found = analyse(uneven(missing, lost=lost), resamples=100)
    for line in found.slopes:
        assert line.slope == pytest.approx(0.0, abs=0.05)
        assert -0.1 < line.low < line.high < 0.1
        assert line.lengths == [4, 8, 16]
    assert len(found.slopes) == 3
    assert min(score.p for score in found.reversals) > 0.02


def test_a_missing_target_makes_no_slope_in_the_hidden_size():
    found = analyse(uneven("easy", lengths=(8,), hidden=(16, 32, 64)), resamples=100)
    for line in found.scaling:
        assert line.slope == pytest.approx(0.0, abs=0.05)
        assert [error for _, error in line.points] == pytest.approx([1e-3] * 3, rel=0.1)
    assert found.equal_errors == [] or all(e.error == pytest.approx(1e-3, rel=0.2) for e in found.equal_errors)


def test_a_missing_target_makes_no_law():
    found = analyse(uneven("easy"), resamples=100).laws
    assert next(law for law in found if law.name == "heads and length apart").coefficients["b"] == pytest.approx(
        0.0, abs=0.05
    )
    assert {law.note.split("; ")[-1] for law in found} == {
        "3 of 9 cells lack some targets: each target has its own level"
    }
    whole = [run for run in uneven("easy") if int(run.values["target"]) < 5]
    assert all("lack" not in law.note for law in analyse(whole, resamples=100).laws)


def test_levels_are_means_where_all_is_there_and_additive_where_not():
    rng = np.random.default_rng(1)
    whole = rng.standard_normal((4, 5, 6))
    assert balanced(whole) == pytest.approx(whole.mean(1))
    target, point = rng.standard_normal((4, 5, 1)), rng.standard_normal((4, 1, 6))
    holes = np.where(rng.random((4, 5, 6)) < 0.3, NAN, target + point)
    found = balanced(holes)
    expected = point[:, 0] + target.mean(1)
    assert np.isfinite(found).all()
    assert found == pytest.approx(expected)
    # a target without any result does not count
    assert balanced(np.array([[[1.0, 3.0], [NAN, NAN]]])).tolist() == [[1.0, 3.0]]


def test_points_without_a_common_target_are_not_compared():
    apart = np.array([[[1.0, 1.0, NAN], [NAN, NAN, 5.0]]])
    assert np.isnan(balanced(apart)).tolist() == [[False, False, True]]
    runs = [run for run in uneven("easy") if (int(run.values["target"]) < 5) == (run.values["length"] == 16)]
    found = analyse(runs, resamples=100)
    assert [line.lengths for line in found.slopes] == [[4, 8]] * 3
    assert all("3 cells have no target in common with the others and are left out" in law.note for law in found.laws)
