"""Cells, drops, counts and scaling: planted numbers come back; what failed is counted."""

from __future__ import annotations

import time

import numpy as np
import pytest
from analyse_cases import panel, planted, trial, with_dimension

from headcount.analysis.blocks import blocks
from headcount.analysis.bootstrap import draw_setting, interval, known_mean, line_slope
from headcount.analysis.of_runs import analyse
from headcount.analysis.record import Analysis, Scaling
from headcount.analysis.scaling import theory
from headcount.core.errors import BadInput
from headcount.render.words.fits import theory_text
from headcount.store.records import Run
from headcount.tasks.assumptions.check import check_assumptions
from headcount.tasks.expressions.tree import Exp, variable
from headcount.tasks.families import FAMILIES, make_task
from headcount.tasks.retrieval import GeneralizedRetrieval


def test_a_cell_sums_up_seeds_and_targets_apart():
    runs = [
        panel([trial(1, 0, 1e-2), trial(1, 1, 1e-4), trial(1, 2, None)], {"failed": 2}, length=8, target=0),
        panel([trial(1, 0, 1e-3), trial(1, 1, 1e-3)], {"pending": 1}, length=8, target=7),
    ]
    runs = [run.model_copy(update={"spec": {**run.spec, "seeds": 5}}) for run in runs]
    found = analyse(runs, resamples=100)
    (cell,) = found.cells
    assert (cell.heads, cell.length, cell.hidden, cell.head_dim, cell.setting) == (1, 8, 32, 8, "")
    assert (cell.best, cell.median, cell.worst) == (1e-4, 1e-3, 1e-2)
    assert cell.by_target == [1e-4, 1e-3]
    assert (cell.targets, cell.trials, cell.diverged, cell.missing) == (2, 10, 1, 5)
    assert cell.seed_spread == pytest.approx(10.0)  # variances 2 and 0 within the targets
    assert cell.target_spread == pytest.approx(10**0.5**0.5)
    assert found.counts == {"done": 4, "diverged": 1, "failed": 2, "pending": 1, "running": 0}


def test_panels_go_to_settings_and_blocks():
    runs = [
        panel([trial(h, 0, 0.1 / h) for h in (1, 2)], length=T, hidden=N, target=k, depth=depth)
        for T in (8, 16)
        for N in (16, 32)
        for k in (0, 1)
        for depth in (1, 2)
    ]
    found = blocks(runs)
    assert [(b.setting, b.length, b.hidden, b.errors.shape) for b in found] == [
        (f"depth {depth}", T, N, (2, 2, 1)) for depth in (1, 2) for T in (8, 16) for N in (16, 32)
    ]
    analysed = analyse(runs, resamples=100)
    assert analysed.settings == ["depth 1", "depth 2"]
    assert [d.setting for d in analysed.dimensions] == ["depth 1", "depth 2"]


def test_drops_are_the_ratios_of_neighbours_with_an_interval():
    runs = planted(lambda h, T, N: {1: 0.1, 2: 0.05, 4: 1e-4}[h], heads=(1, 2, 4), lengths=[8], noise=0.05)
    drops = analyse(runs, resamples=300).drops
    assert [(d.heads, d.next_heads) for d in drops] == [(1, 2), (2, 4)]
    for drop, factor in zip(drops, (2, 500), strict=True):
        assert drop.factor == pytest.approx(factor, rel=0.3)
        assert drop.low <= drop.factor <= drop.high
    assert drops[0].high < drops[1].low


def test_the_interval_is_wide_where_seeds_or_targets_differ():
    def width(noise: float) -> float:
        drop = analyse(planted(with_dimension(2), heads=(1, 2), lengths=[8], noise=noise), resamples=300).drops[0]
        return float(np.log10(drop.high / drop.low))

    assert width(0.02) < 0.1 < 0.2 < width(0.5)


def test_draws_keep_the_best_of_the_drawn_seeds():
    runs = [panel([trial(1, s, e) for s, e in enumerate((1e-1, 1e-2, 1e-3))], length=8)]
    best = draw_setting(blocks(runs), 3000, 0)[0].level[:, 0, 0]
    assert best[0] == -3
    shares = [float((np.round(best[1:]) == v).mean()) for v in (-3, -2, -1)]
    assert shares == pytest.approx([19 / 27, 7 / 27, 1 / 27], abs=0.03)


def test_targets_are_drawn_as_wholes():
    runs = [panel([trial(h, 0, 10.0 ** -(1 + k)) for h in (1, 2)], length=8, target=k) for k in range(4)]
    best = draw_setting(blocks(runs), 200, 0)[0].level
    assert (best[:, :, 0] == best[:, :, 1]).all()  # a target keeps its place at every head count
    assert len({tuple(sorted(row)) for row in best[1:, :, 0]}) > 10


def test_small_helpers():
    nan = float("nan")
    assert known_mean(np.array([[1.0, nan], [3.0, nan]]), 0).tolist()[0] == 2.0
    slopes = line_slope(np.array([0.0, 1.0, 2.0]), np.array([[0.0, 2.0, 4.0], [1.0, nan, 1.0], [nan, nan, 1.0]]))
    assert slopes[:2].tolist() == [2.0, 0.0]
    assert np.isnan(slopes[2])
    assert interval(np.array([5.0, 1.0, 1.0])) == (1.0, 5.0)


def test_planted_scaling_in_the_hidden_size_comes_back():
    runs = planted(
        lambda h, T, N: 0.1 * (N / 16) ** (-0.5 if h == 1 else -1.5) * (T / 8), heads=(1, 2), lengths=(8, 16),
        hidden=(16, 32, 64, 128), noise=0.03,
    )  # fmt: skip
    found = analyse(runs, resamples=200)
    assert len(found.scaling) == 4
    for line in found.scaling:
        assert line.slope == pytest.approx(-0.5 if line.heads == 1 else -1.5, abs=0.1)
        assert line.low <= line.slope <= line.high
        assert [n for n, _ in line.points] == [16, 32, 64, 128]
    one = [e for e in found.equal_errors if e.heads == 1]
    assert one
    for line in one:  # error ∝ T·N^(−1/2): twice the length takes four times the parameters
        M = dict(line.points)
        assert M[8] is not None
        assert M[16] is not None
        assert M[16] / M[8] == pytest.approx(4.0, rel=0.35)


def test_parameters_are_not_invented_where_the_error_was_not_reached():
    runs = planted(
        lambda h, T, N: (1e-2 if T == 8 else 1e-5) * 16 / N, heads=[1], lengths=(8, 16), hidden=(16, 32), noise=0.0
    )
    lines = analyse(runs, resamples=100).equal_errors
    assert lines == [] or all(None in [M for _, M in line.points] for line in lines)


def theory_line(run: Run, heads: int, length: int) -> Scaling:
    """The record of what Theorem 2 (2) says, beside a slope of 0."""
    return Scaling(slope=0.0, low=0.0, high=0.0, points=[], **theory(run, heads, length))


def theory_note(run: Run, heads: int, length: int) -> str:
    """What is said about it."""
    return theory_text(theory_line(run, heads, length))


def test_the_theory_beside_the_slope_says_why_it_is_none():
    run = panel([trial(1, 0, 0.1)], length=128)
    assert theory(run, 1, 128) == {"theory_verdict": "unknown-d"}
    assert theory_note(run, 1, 128) == "the task has no known D"
    known = run.model_copy(update={"intrinsic": 4})
    found = theory_line(known, 3, 128)
    assert found.theory_verdict == "outside"
    assert found.half_k == pytest.approx(3.36 / 2, abs=0.01)
    assert found.theory == pytest.approx(-2 / 3.36, abs=0.01)
    assert found.departures == ["nmse", "weights", "gaussian"]
    assert theory_note(known, 3, 128).startswith("outside the assumptions: ")
    assert "Gaussian" in theory_note(known, 3, 128)
    short = theory_line(known, 3, 32)
    assert (short.theory_verdict, short.theory, short.half_k) == ("vacuous", None, None)
    assert theory_note(known, 3, 32).startswith("vacuous here: k = ")
    assert "; printed k = " in theory_note(known, 3, 32)
    assert theory(known, 4, 128) == {"theory_verdict": "enough-heads"}
    assert theory_note(known, 4, 128) == "enough heads: the bound speaks of fewer than D"


def test_both_forms_of_the_exponent_are_stated():
    known = panel([trial(1, 0, 0.1)], length=128).model_copy(update={"intrinsic": 4})
    long, short = theory_line(known, 3, 256), theory_line(known, 3, 128)
    # (64 − 3 − 4 + 1)/28 − 1 and (32 − 3 − 4 + 1)/28 − 1 with T/4 positions
    assert long.half_k_printed == pytest.approx((58 / 28 - 1) / 2)
    assert short.half_k is not None
    assert short.half_k_printed is None
    assert "the printed form is vacuous: k = -0.07, it bites from T = 137" in theory_text(short)
    runs = planted(lambda h, T, N: 0.1 / N, heads=[1, 2], lengths=[256], hidden=(16, 32))
    runs = [run.model_copy(update={"intrinsic": 4}) for run in runs]
    assert all(0 < (s.half_k_printed or 0) < (s.half_k or 0) for s in analyse(runs, resamples=100).scaling)


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_tasks_of_linear_functions_fail_an_assumption(name):
    """Read off the task itself: the same verdict as that of the checker of assumptions."""
    run = panel([trial(1, 0, 0.1)], length=128).model_copy(update={"intrinsic": 4})
    made, report = make_task(name), check_assumptions(make_task(name))
    note = theory_note(run.model_copy(update={"task": {**run.task, **made.data(), "length": 128}}), 1, 128)
    fails = report.applies and report.finding("2.3").verdict == "fails"
    assert ("assumption (2.3) fails: the f_i are linear" in note) == fails
    assert "(2.3)" not in theory_note(run, 1, 128)


def test_one_linear_function_among_others_is_enough():
    x, z = variable(2), variable(2)
    made = GeneralizedRetrieval([((x - [0.2, 0.9]) ** 2).sum(), 2.0 * x[0] + x[1]], None, z.sum(), length=128)
    run = panel([trial(1, 0, 0.1)], length=128).model_copy(update={"intrinsic": 4, "task": made.data()})
    assert "assumption (2.3) fails: some f_i are linear" in theory_note(run, 1, 128)
    bent = GeneralizedRetrieval([((x - [0.2, 0.9]) ** 2).sum(), Exp(of=x[0])], None, z.sum(), length=128)
    assert "(2.3)" not in theory_note(run.model_copy(update={"task": bent.data()}), 1, 128)


def test_a_fixed_width_is_divided_among_the_heads():
    run = panel([trial(h, s, 0.1) for h in (1, 2, 3) for s in (0, 1)], length=128)
    wide = run.model_copy(update={"intrinsic": 4, "spec": {**run.spec, "model": {"total_head_dim": 8, "head_dim": 99}}})
    assert [cell.head_dim for cell in analyse([wide], resamples=100).cells] == [8, 4, 3]
    narrow = run.model_copy(update={"intrinsic": 4, "spec": {**run.spec, "model": {"head_dim": 3}}})
    assert theory(wide, 3, 128) == theory(narrow, 3, 128)


def test_a_point_without_parameters_says_why():
    runs = planted(
        lambda h, T, N: {8: 1e-4, 16: 1e-2, 32: 1.0}[T] * (16 / N) ** (3 if T == 16 else 0.1), heads=[1],
        lengths=(8, 16, 32), hidden=(16, 32), noise=0.0,
    )  # fmt: skip
    runs += planted(lambda h, T, N: 1e-2 * (16 / N) ** 3, heads=[1], lengths=(64,), hidden=(16, 32), noise=0.0)
    lines = analyse(runs, resamples=100).equal_errors
    assert lines
    for line in lines:
        assert [M is None for _, M in line.points] == [True, False, True, False]
        assert line.reasons == ["smaller N suffices", "", "not reached", ""]


def test_equal_arguments_give_equal_analyses_and_json_keeps_them():
    runs = planted(with_dimension(3), hidden=(16, 32))
    found = analyse(runs, resamples=100)
    assert analyse(runs, resamples=100) == found
    assert analyse(runs, resamples=100, seed=1) != found
    assert Analysis.parse(found.data()) == found


def test_all_diverged_is_analysed_too():
    found = analyse([panel([trial(h, 0, None) for h in (1, 2)], length=T) for T in (8, 16)], resamples=100)
    assert found.counts["diverged"] == 4
    assert found.dimensions[0].verdict == "too-few"
    assert [cell.best for cell in found.cells] == [None] * 4


def test_bad_input_is_refused():
    with pytest.raises(BadInput, match="nothing to analyse"):
        analyse([])
    with pytest.raises(BadInput, match="resamples"):
        analyse(planted(with_dimension(2)), resamples=99)


def test_three_thousand_trials_take_seconds():
    runs = planted(
        with_dimension(4), lengths=(8, 16, 32, 64, 128), hidden=(16, 32, 64, 128), targets=5, seeds=5
    )  # fmt: skip
    assert sum(len(run.trials) for run in runs) == 3000
    start = time.perf_counter()
    analyse(runs)
    assert time.perf_counter() - start < 15
