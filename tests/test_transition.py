"""The record of one panel: synthetic runs with known errors, and what each of them does and does not show."""

from __future__ import annotations

import json

import numpy as np
import pytest

import headcount as hc
from headcount.analysis.by_heads import head_rows
from headcount.analysis.of_runs import answers
from headcount.analysis.record import Dimension, fits
from headcount.render.words.heads_needed import comparison, sentence
from headcount.render.words.numbers import error_text, times_text
from headcount.store.records import Run, Trial

CLEAR = {1: [0.031, 0.034, 0.030], 2: [0.0121, 0.0143, 0.0127], 3: [8.1e-5, 6e-5, 9e-5], 4: [4e-5, 5.5e-5, 4.6e-5]}


def trials(table):
    return [
        Trial(
            heads=heads,
            seed=seed,
            state="diverged" if error is None else "done",
            nmse=error,
            train_nmse=error,
            steps=100,
            seconds=heads + 0.5 * seed,
            parameters=100 * heads,
            parameters_total=150 * heads,
        )
        for heads, errors in table.items()
        for seed, error in enumerate(errors)
    ]


def run(table, intrinsic=3):
    return Run(
        name="test",
        task={"name": "sum-of-maxima"},
        intrinsic=intrinsic,
        spec={},
        trials=trials(table),
        provenance={},
        seconds=1.0,
    )


def find(table, intrinsic=3):
    return answers([run(table, intrinsic)])[0]


def claims(found):
    return found.verdict, found.heads_needed, found.low, found.high


# -- a clear transition -------------------------------------------------------------------------------------


def test_a_clear_transition_is_found_and_said():
    found = find(CLEAR)
    assert claims(found) == ("transition", 3, 3, 3)
    assert found.agreement == 1.0
    assert (found.drop_from, found.drop_to) == (2, 3)
    assert found.drop == pytest.approx(0.0121 / 6e-5)
    assert 0.0121 / 9e-5 * 0.99 <= found.drop_low <= found.drop <= found.drop_high <= 0.0143 / 6e-5 * 1.01
    assert found.further == pytest.approx(1.5)
    assert found.sentence == (
        "3 heads are needed (90 % interval 3): with 2 the error is 200 times larger, "
        "and up to 4 heads improve it by 1.5 times at most."
    )
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
    compared = {"intrinsic": None, "agrees": None, "comparison": ""}
    assert len({r.model_copy(update=compared).model_dump_json() for r in results}) == 1
    assert [r.agrees for r in results] == [None, False, True, False]
    assert "does not show" in results[3].comparison
    assert "nothing to compare" in results[0].comparison


def test_the_sentence_is_made_from_the_record_alone():
    for table in (CLEAR, {1: [0.03] * 2, 2: [1e-5] * 2}, {h: [0.3] * 2 for h in (1, 2, 3)}, {}):
        found = find(table)
        again = Dimension.parse(json.loads(json.dumps(found.data(), allow_nan=False)))
        assert again == found
        assert sentence(again) == found.sentence
        assert comparison(again, 3) == found.comparison
    changed = find(CLEAR).model_copy(update={"drop": 7.0})
    assert "7.0 times larger" in sentence(changed)


def test_the_old_name_is_deprecated_and_is_the_one_rule():
    with pytest.warns(DeprecationWarning, match="find_transition is deprecated"):
        found = hc.find_transition(run(CLEAR))
    assert found == hc.SweepResult([run(CLEAR)]).transition == find(CLEAR)


def test_equal_runs_give_equal_results_in_any_order():
    shuffled = run(CLEAR).model_copy(update={"trials": trials(CLEAR)[::-1]})
    assert find(CLEAR) == find(CLEAR)
    assert answers([shuffled])[0].sentence == find(CLEAR).sentence


def test_the_last_of_two_jumps_counts():
    found = find({1: [0.5, 0.5], 2: [0.03, 0.04], 3: [0.02, 0.02], 4: [1e-5, 2e-5], 5: [1e-5, 1e-5]}, 4)
    assert found.heads_needed == 4


def test_one_stuck_seed_of_three_does_not_hide_the_transition():
    found = find({1: [0.03] * 3, 2: [0.012] * 3, 3: [6e-5, 7e-5, 0.012], 4: [4e-5, 4e-5, 0.012]})
    assert found.heads_needed == 3
    assert 0.9 <= found.agreement < 1


# -- no claim where there is none to make -------------------------------------------------------------------


def test_a_flat_run_of_large_errors_has_no_transition():
    found = find({h: [0.03, 0.033, 0.045] for h in range(1, 6)}, None)
    assert claims(found) == ("no-fall", None, 1, None)
    assert found.sentence.startswith("No number of heads stands out: from 1 to 5 heads the error stays at 0.030")
    assert "either one head can do it already or more than 5 are needed" in found.sentence


def test_one_head_suffices_only_where_the_error_is_small():
    found = find({h: [2e-3, 2.2e-3, 3e-3] for h in range(1, 6)}, 1)
    assert claims(found) == ("one-head", 1, 1, 1)
    assert found.sentence == "One head suffices (90 % interval 1): up to 5 heads do not improve the error."
    assert found.agrees is True
    two = find({h: [2e-5, 3e-5] for h in (2, 3)}, 1)
    assert (two.verdict, two.estimate, two.heads_needed, two.low) == ("one-head", 2, None, 1)
    assert "2 heads suffice (fewer were not tried)" in two.sentence
    assert two.agrees is True  # nothing is said against 1


def test_models_that_learned_nothing_show_nothing():
    found = find({h: [0.98, 1.01] for h in (1, 2, 3, 4)})
    assert "did not learn the task" in found.sentence
    assert (found.heads_needed, found.agrees) == (None, None)


def test_a_fall_at_the_last_head_count_is_not_an_end():
    found = find({1: [0.03] * 3, 2: [0.02] * 3, 3: [0.015] * 3, 4: [0.01] * 3, 5: [5e-5] * 3}, 6)
    assert claims(found) == ("not-reached", None, 5, None)
    assert (found.drop_from, found.drop_to) == (4, 5)
    assert found.sentence.startswith("Not reached by h = 5: ")
    assert found.sentence.endswith("at least 5 are needed.")
    assert found.agrees is True  # 6 is at least 5
    assert found.comparison.endswith("which fits.")
    assert find({1: [0.03] * 2, 2: [1e-5] * 2}, 1).agrees is False


@pytest.mark.parametrize(
    "table",
    [
        {1: [0.3, 0.31], 2: [2e-3, 2e-3], 3: [8e-4, 9e-4], 4: [2.5e-4, 2.5e-4]},
        {h: [0.1 / 3**h, 0.11 / 3**h] for h in range(1, 5)},
    ],
)
def test_a_fall_that_goes_on_is_not_an_end(table):
    found = find(table, 4)
    assert claims(found) == ("not-reached", None, 4, None)
    assert "at least 4 are needed" in found.sentence


@pytest.mark.parametrize(
    "table",
    [
        {1: [0.03, 0.02, 0.04], 2: [0.01, 0.02, 0.03], 3: [0.002, 0.02, 0.03], 4: [0.0018, 0.01, 0.02]},
        {1: [0.03] * 3, 2: [0.012] * 3, 3: [6e-5, 0.012, 0.012], 4: [4e-5] * 3},
    ],
)
def test_one_lucky_seed_leaves_the_answer_open_and_is_said_with_reserve(table):
    found = find(table)
    assert (found.estimate, found.low, found.high) == (3, 1, None)
    assert found.agreement < 0.9
    assert found.sentence.startswith("Probably 3 heads are needed (90 % interval 1 or more): ")
    assert not find(CLEAR).sentence.startswith("Probably")


def test_one_head_is_as_good_as_more_whatever_happens_between():
    found = find({1: [6e-5] * 3, 2: [0.012] * 3, 3: [0.03] * 3, 4: [4e-5] * 3})
    assert (found.verdict, found.heads_needed) == ("one-head", 1)


def test_shuffled_labels_give_no_confident_claim():
    """The sabotaged twin of the clear run: the same errors dealt out at random must not name a head count."""
    good = run(CLEAR)
    rng = np.random.default_rng(0)
    sure = 0
    for _ in range(100):
        dealt = rng.permutation(len(good.trials))
        mixed = [t.model_copy(update={"nmse": good.trials[i].nmse}) for t, i in zip(good.trials, dealt, strict=True)]
        (found,) = answers([good.model_copy(update={"trials": mixed})], resamples=100)
        sure += found.verdict == "transition" and found.low == found.high
    assert sure <= 5  # a deal that is sorted by chance is a transition
    (found,) = answers([good], resamples=100)
    assert (found.verdict, found.low, found.high) == ("transition", 3, 3)


# -- holes in the data --------------------------------------------------------------------------------------


def test_diverged_trials_are_counted_and_left_out():
    found = find({1: [0.03] * 3, 2: [0.01, None, 0.012], 3: [6e-5, 6e-5, 7e-5], 4: [None] * 3, 5: [4e-5] * 3})
    assert found.heads_needed == 3
    assert [r.diverged for r in found.rows] == [0, 1, 0, 3, 0]
    assert found.rows[3].best is None
    assert found.rows[2].next_heads == 5
    assert found.missing == {4: "diverged"}
    assert any(reason.text == "4 of 15 finished trials diverged and have no error." for reason in found.reasons)


def test_all_diverged():
    found = find({1: [None] * 3, 2: [None] * 3})
    assert (found.verdict, found.heads_needed, found.drop, found.agrees) == ("too-few", None, None, None)
    assert found.sentence == "Nothing can be said: no trial has a result, so there is nothing to compare."
    assert any("all diverged" in reason.text for reason in found.reasons)


@pytest.mark.parametrize("table", [{3: [0.01, 0.02]}, {1: [None], 3: [0.01, 0.02]}, {}])
def test_one_head_count_or_none_says_nothing(table):
    found = find(table)
    assert (found.verdict, found.heads_needed) == ("too-few", None)
    assert found.sentence.startswith("Nothing can be said")


def test_a_single_seed_is_too_few():
    found = find({h: errors[:1] for h, errors in CLEAR.items()})
    assert (found.verdict, found.estimate, found.heads_needed, found.agreement) == ("too-few", None, None, None)
    assert found.tentative == 3
    assert found.sentence.startswith("Too few trials to tell: 3 heads have an error 150 times smaller than 2")


def test_a_head_count_that_was_not_tried_is_not_ruled_out():
    found = find({1: [0.03] * 3, 2: [0.01] * 3, 4: [5e-5] * 3, 5: [4e-5] * 3})
    assert claims(found) == ("transition", None, 3, 4)
    assert found.sentence.startswith("3 to 4 heads are needed (90 % interval 3 to 4): with 2 the error")
    assert found.agrees is True
    assert found.comparison.endswith("which the interval holds.")


def test_errors_of_zero_divide_nothing():
    found = find({1: [0.1, 0.1], 2: [0.0, 0.0], 3: [0.0, 0.0]}, 2)
    assert found.heads_needed == 2
    assert "more than a million times larger" in found.sentence
    assert np.isfinite(found.drop)
    json.dumps(found.data(), allow_nan=False)
    assert find({h: [0.0, 0.0] for h in (1, 2)}).heads_needed == 1


def test_errors_too_large_for_a_ratio_are_kept_finite():
    found = find({1: [1e300, 1e300], 2: [0.0, 0.0], 3: [0.0, 0.0]})
    assert np.isfinite(found.drop)
    json.dumps(found.data(), allow_nan=False)


def test_nothing_is_compared_with_what_the_verdict_leaves_open():
    unclear = find(CLEAR).model_copy(update={"verdict": "unclear"})
    assert fits(unclear, 3) is None
    assert "neither confirms nor contradicts" in comparison(unclear, 3)
    assert fits(find({}), 3) is None


def test_rows_of_nothing():
    assert head_rows([]) == []


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0"),
        (0.012, "0.012"),
        (0.0300001, "0.030"),
        (6.04e-5, "6.0e-5"),
        (9.99e-4, "0.0010"),
        (1.0, "1.0"),
        (0.98, "0.98"),
        (12.3, "12"),
        (1e-12, "1.0e-12"),
        (0.00099, "9.9e-4"),
    ],
)
def test_errors_are_written_with_two_digits(number, text):
    assert error_text(number) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1.04, "1.0"),
        (6.24, "6.2"),
        (9.97, "10"),
        (143.0, "140"),
        (12345.0, "12,000"),
        (0.32, "0.3"),
        (0.04, "0.04"),
        (3e9, "more than a million"),
    ],
)
def test_ratios_are_written_with_two_digits(number, text):
    assert times_text(number) == text
