"""The transition: synthetic runs with known errors, and the claims that each of them does and does not allow."""

from __future__ import annotations

import json

import numpy as np
import pytest

from headcount.analysis.transition import Transition, estimate, find_transition, head_rows
from headcount.analysis.wording import error_text, times_text
from headcount.store.records import Run, Trial

CLEAR = {1: [0.031, 0.034, 0.030], 2: [0.0121, 0.0143, 0.0127], 3: [8.1e-5, 6e-5, 9e-5], 4: [4e-5, 5.5e-5, 4.6e-5]}


def trials(table):
    return [
        Trial(heads=heads, seed=seed, state="diverged" if error is None else "done", nmse=error, train_nmse=error,
              steps=100, seconds=heads + 0.5 * seed, parameters=100 * heads, parameters_total=150 * heads)
        for heads, errors in table.items() for seed, error in enumerate(errors)
    ]  # fmt: skip


def run(table, intrinsic=3):
    return Run(
        name="test", task={"name": "sum-of-maxima"}, intrinsic=intrinsic, spec={}, trials=trials(table),
        provenance={}, seconds=1.0,
    )  # fmt: skip


def find(table, intrinsic=3):
    return find_transition(run(table, intrinsic))


# -- a clear transition -------------------------------------------------------------------------------------


def test_a_clear_transition_is_found_and_said():
    found = find(CLEAR)
    assert (found.verdict, found.heads_needed, found.at_least, found.enough) == ("transition", 3, 3, 3)
    assert found.agreement == 1.0
    assert found.evidence == "measured"
    assert (found.drop_from, found.drop_to) == (2, 3)
    assert found.drop == pytest.approx(0.0121 / 6e-5)
    assert found.drop_median == pytest.approx(0.0127 / 8.1e-5)
    assert 0.0121 / 9e-5 * 0.99 <= found.drop_low <= found.drop <= found.drop_high <= 0.0143 / 6e-5 * 1.01
    assert found.sentence == "3 heads are needed; with 2 the error is 200 times larger (best of 3 seeds)."
    assert found.comparison == "The task was built from 3 independent look-ups, so the paper expects 3."
    assert found.agrees is True


def test_rows_sum_up_the_trials():
    first, second, _, last = find(CLEAR).rows
    assert (first.heads, first.seeds, first.diverged, first.finished) == (1, 3, 0, 3)
    assert (first.best, first.median, first.worst) == (0.030, 0.031, 0.034)
    assert (first.parameters, first.parameters_total, first.seconds) == (100, 150, 1.5)
    assert second.next_heads == 3
    assert second.drop_best == pytest.approx(201.67, abs=0.01)
    assert (last.next_heads, last.drop_best, last.drop_median) == (None, None, None)


def test_the_estimate_does_not_read_the_known_answer():
    results = [find(CLEAR, intrinsic) for intrinsic in (None, 1, 3, 5)]
    assert [r.heads_needed for r in results] == [3] * 4
    assert len({r.sentence for r in results}) == 1
    assert [r.agrees for r in results] == [None, False, True, False]
    assert "does not show" in results[3].comparison
    assert "nothing to compare" in results[0].comparison


def test_the_result_is_json_and_comes_back():
    found = find(CLEAR)
    assert Transition.parse(json.loads(json.dumps(found.data(), allow_nan=False))) == found


def test_equal_runs_give_equal_results_in_any_order():
    shuffled = run(CLEAR).model_copy(update={"trials": trials(CLEAR)[::-1]})
    assert find(CLEAR) == find(CLEAR)
    assert find_transition(shuffled).sentence == find(CLEAR).sentence


def test_the_last_of_two_jumps_counts():
    found = find({1: [0.5, 0.5], 2: [0.03, 0.04], 3: [0.02, 0.02], 4: [1e-5, 2e-5], 5: [1e-5, 1e-5]}, 4)
    assert found.heads_needed == 4


def test_one_stuck_seed_of_three_does_not_hide_the_transition():
    found = find({1: [0.03] * 3, 2: [0.012] * 3, 3: [6e-5, 7e-5, 0.012], 4: [4e-5, 4e-5, 0.012]})
    assert found.heads_needed == 3
    assert 0.9 <= found.agreement < 1


# -- no claim where there is none to make -------------------------------------------------------------------


@pytest.mark.parametrize("level", [2e-3, 0.03])
def test_a_flat_run_has_no_transition(level):
    found = find({h: [level, 1.1 * level, 1.5 * level] for h in range(1, 6)}, None)
    assert (found.verdict, found.heads_needed, found.at_least, found.enough) == ("no-transition", None, None, None)
    assert found.sentence.startswith("No transition was seen: from 1 to 5 heads the best error stays at")
    assert "does not show whether 1 head can do it already or more than 5 are needed" in found.sentence


def test_one_head_is_enough_only_where_the_task_is_solved():
    found = find({h: [2e-5 / h**2, 3e-5] for h in range(1, 5)}, 1)
    assert (found.verdict, found.heads_needed, found.enough) == ("no-transition", None, 1)
    assert found.sentence.startswith("1 head is enough: the error is 2.0e-5 already")
    assert found.agrees is True
    assert "enough (fewer were not tried)" in find({h: [2e-5, 3e-5] for h in (2, 3)}).sentence


def test_models_that_learned_nothing_show_nothing():
    found = find({h: [0.98, 1.01] for h in (1, 2, 3, 4)})
    assert "did not learn the task" in found.sentence
    assert (found.heads_needed, found.enough, found.agrees) == (None, None, None)


def test_a_fall_at_the_last_head_count_is_not_an_end():
    found = find({1: [0.03] * 3, 2: [0.02] * 3, 3: [0.015] * 3, 4: [0.01] * 3, 5: [5e-5] * 3}, 6)
    assert (found.verdict, found.heads_needed, found.at_least, found.enough) == ("not-reached", None, 5, None)
    assert found.sentence.startswith("At least 5 heads are needed: with 4 the error is 200 times larger")
    assert "more than 5 were not tried" in found.sentence
    assert found.agrees is True  # 6 is at least 5
    assert find({1: [0.03] * 2, 2: [1e-5] * 2}, 1).agrees is False


def test_a_fall_that_goes_on_is_not_an_end():
    found = find({1: [0.3, 0.31], 2: [2e-3, 2e-3], 3: [8e-4, 9e-4], 4: [2.5e-4, 2.5e-4]})
    assert (found.verdict, found.at_least, found.heads_needed) == ("not-reached", 2, None)
    assert "goes on falling, 8.0 times more" in found.sentence


def test_a_gradual_fall_names_no_head_count():
    found = find({h: [0.1 / 3**h, 0.11 / 3**h] for h in range(1, 6)})
    assert (found.verdict, found.heads_needed, found.agrees) == ("gradual", None, None)
    assert found.sentence.startswith("No number of heads stands out")


def test_overlapping_seeds_are_unclear():
    found = find({1: [0.03, 0.02, 0.04], 2: [0.01, 0.02, 0.03], 3: [0.002, 0.02, 0.03], 4: [0.0018, 0.01, 0.02]})
    assert (found.verdict, found.heads_needed, found.at_least, found.enough) == ("unclear", None, None, None)
    assert found.reading == "transition"
    assert found.tentative == 3
    assert found.agreement < 0.9
    assert found.sentence.startswith("Unclear: 3 heads have an error 5.0 times smaller")
    assert f"only {int(100 * found.agreement)} % of the draws" in found.sentence


def test_a_single_lucky_seed_is_no_proof():
    found = find({1: [0.03] * 3, 2: [0.012] * 3, 3: [6e-5, 0.012, 0.012], 4: [4e-5, 4e-5, 4e-5]})
    assert (found.verdict, found.heads_needed) == ("unclear", None)


def test_more_heads_doing_worse_is_unclear():
    found = find({1: [6e-5] * 3, 2: [0.012] * 3, 3: [0.03] * 3, 4: [4e-5] * 3})
    assert (found.verdict, found.heads_needed) == ("unclear", None)
    assert "with 3 heads the best error is 500 times larger than with 1" in found.sentence


def test_shuffled_labels_give_no_confident_claim():
    """The sabotaged twin of the clear run: the same errors dealt out at random must not name a head count."""
    good = trials(CLEAR)
    rng = np.random.default_rng(0)
    verdicts = []
    for _ in range(100):
        dealt = rng.permutation(len(good))
        mixed = [t.model_copy(update={"nmse": good[i].nmse}) for t, i in zip(good, dealt, strict=True)]
        verdicts.append(estimate(mixed, resamples=200).verdict)
    assert verdicts.count("transition") <= 5  # a deal that is sorted by chance is a transition
    assert estimate(good, resamples=200).verdict == "transition"


# -- holes in the data --------------------------------------------------------------------------------------


def test_diverged_trials_are_counted_and_left_out():
    found = find({1: [0.03] * 3, 2: [0.01, None, 0.012], 3: [6e-5, 6e-5, 7e-5], 4: [None] * 3, 5: [4e-5] * 3})
    assert found.heads_needed == 3
    assert [r.diverged for r in found.rows] == [0, 1, 0, 3, 0]
    assert found.rows[3].best is None
    assert found.rows[2].next_heads == 5
    assert "(best seed of each)" in found.sentence


def test_all_diverged():
    found = find({1: [None] * 3, 2: [None] * 3})
    assert (found.verdict, found.heads_needed, found.drop, found.agrees) == ("too-few", None, None, None)
    assert found.sentence == "Nothing can be said: all 6 trials diverged."


@pytest.mark.parametrize("table", [{3: [0.01, 0.02]}, {1: [None], 3: [0.01, 0.02]}, {}])
def test_one_head_count_or_none_says_nothing(table):
    found = find(table)
    assert (found.verdict, found.heads_needed) == ("too-few", None)
    assert found.sentence.startswith("Nothing can be said")


def test_a_single_seed_is_too_few():
    found = find({h: errors[:1] for h, errors in CLEAR.items()})
    assert (found.verdict, found.heads_needed, found.agreement) == ("too-few", None, None)
    assert found.tentative == 3
    assert found.sentence.startswith("Too few trials to tell: 3 heads have an error 150 times smaller than 2")


def test_a_missing_head_count_leaves_a_bracket():
    found = find({1: [0.03] * 3, 2: [0.01] * 3, 4: [5e-5] * 3, 5: [4e-5] * 3})
    assert (found.verdict, found.heads_needed, found.at_least, found.enough) == ("bracketed", None, 3, 4)
    assert found.sentence.startswith("3 or 4 heads are needed (there is no result for 3); with 2 the error")
    assert found.agrees is True
    assert find({1: [0.03] * 2, 2: [0.01] * 2, 8: [5e-5] * 2}).at_least == 3


def test_errors_of_zero_divide_nothing():
    found = find({1: [0.1, 0.1], 2: [0.0, 0.0], 3: [0.0, 0.0]}, 2)
    assert found.heads_needed == 2
    assert "more than a million times larger" in found.sentence
    assert np.isfinite(found.drop)
    json.dumps(found.data(), allow_nan=False)
    assert find({h: [0.0, 0.0] for h in (1, 2)}).enough == 1


def test_differences_below_solved_are_no_evidence():
    found = find({1: [0.03] * 3, 2: [5e-5] * 3, 3: [2e-6] * 3, 4: [1e-6] * 3}, 2)
    assert (found.heads_needed, found.agrees) == (2, True)


def test_rows_of_nothing():
    assert head_rows([]) == []


@pytest.mark.parametrize(
    ("number", "text"),
    [(0.0, "0"), (0.012, "0.012"), (0.0300001, "0.030"), (6.04e-5, "6.0e-5"), (9.99e-4, "0.0010"), (1.0, "1.0"),
     (0.98, "0.98"), (12.3, "12"), (1e-12, "1.0e-12"), (0.00099, "9.9e-4")],
)  # fmt: skip
def test_errors_are_written_with_two_digits(number, text):
    assert error_text(number) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(1.04, "1.0"), (6.24, "6.2"), (9.97, "10"), (143.0, "140"), (12345.0, "12,000"), (0.32, "0.3"),
     (0.04, "0.04"), (3e9, "more than a million")],
)  # fmt: skip
def test_ratios_are_written_with_two_digits(number, text):
    assert times_text(number) == text
