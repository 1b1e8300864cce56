"""What the estimate of D must not claim: without a fall, with one trial, or with head counts that have no result."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from analyse_cases import estimate, panel, planted, trial, with_dimension

from headcount.store.records import Run

LUCKY = (0.2, 0.02, 1e-3, 2e-6, 1.5e-6, 1e-6, 3e-7, 4e-7)


def run(errors: Mapping[int, Sequence[float | None]], left_out: dict[str, int] | None = None, **spec: object) -> Run:
    """One panel with the errors of each head count's seeds; `spec` overrides what was planned."""
    found = panel([trial(h, s, e) for h, row in errors.items() for s, e in enumerate(row)], left_out, length=8)
    return found.model_copy(update={"spec": {**found.spec, **spec}})


@pytest.mark.parametrize("level", [1.0, 0.9, 0.3, 0.1, 0.03])
def test_without_a_fall_nothing_is_claimed(level):
    found = estimate([run({h: [level * (1 + 0.02 * s) for s in range(3)] for h in range(1, 7)})])
    assert (found.verdict, found.estimate, found.low, found.high) == ("no-fall", None, 1, None)
    assert found.sentence.startswith("No number of heads stands out: from 1 to 6 heads the error stays at ")
    unlearned = "the models did not learn the task." in found.sentence
    assert unlearned == (level > 0.5)
    if not unlearned:
        assert found.sentence.endswith("; either one head can do it already or more than 6 are needed.")
    said = " ".join([found.sentence, *(reason.text for reason in found.reasons)])
    assert "at least" not in said
    assert "fall" not in said


def test_noise_around_a_flat_error_is_no_fall():
    found = [estimate(planted(lambda h, T, N: 0.3, noise=0.15, seed=seed, targets=1), 100) for seed in range(10)]
    assert {answer.low for answer in found} == {1}
    assert sum(answer.verdict == "no-fall" for answer in found) >= 9


STUCK = {1: (0.39, 0.40), 2: (0.38, 0.39), 4: (0.035, 0.37)}


def test_a_fall_that_one_stuck_seed_of_two_puts_in_doubt_is_unclear():
    found = estimate([run(STUCK)])
    assert (found.verdict, found.estimate, found.low, found.high) == ("unclear", None, 1, None)
    assert found.fall_share is not None
    assert 0.6 < found.fall_share < 0.9
    assert found.agreement == found.fall_share  # that no draw names a head count is no agreement
    assert found.sentence == (
        "Unclear: with 4 heads the error is 11 times smaller than with 1, but only "
        f"{int(100 * found.fall_share)} % of the draws show that more heads do better on average: more seeds, "
        "targets or training are needed."
    )
    assert any("11 times smaller than with 2" in reason.text for reason in found.reasons)
    assert not any("stays at" in reason.text or "end of the fall" in reason.text for reason in found.reasons)
    assert estimate([run({**STUCK, 4: (0.035, 0.035)})]).verdict == "not-reached"


def test_level_errors_of_which_one_seed_is_stuck_are_unclear_too():
    found = estimate([run({1: (0.1, 0.4), 2: (0.1, 0.1), 3: (0.1, 0.1)})])
    assert found.verdict == "unclear"
    assert found.sentence.startswith("Unclear: from 1 to 3 heads the error stays at 0.10, but 2")
    assert "% of the draws show a fall of more than 2 times" in found.sentence
    assert estimate([run({1: (0.1, 0.1), 2: (0.1, 0.4), 3: (0.1, 0.1)})]).verdict == "no-fall"


def test_a_hump_and_a_rise_are_not_called_level():
    hump = estimate([run({1: (0.05,) * 2, 2: (0.4,) * 2, 3: (0.05,) * 2})])
    assert hump.verdict == "unclear"
    assert "but hardly any of the draws shows that more heads do better" in hump.sentence
    rise = estimate([run({1: (0.05,) * 2, 2: (0.2,) * 2, 3: (0.4,) * 2})])
    assert rise.verdict == "no-fall"
    assert "the error is 0.050 to 0.40, without a fall of more than 2 times" in rise.sentence


def test_no_fall_is_claimed_of_level_errors_only():
    """Runs drawn with a D and a chance of stuck seeds: no sentence denies the fall that its numbers show."""
    rng = np.random.default_rng(1)
    verdicts: dict[str, int] = {}
    for _ in range(150):
        D, most, seeds = (int(rng.integers(*ends)) for ends in ((2, 5), (3, 7), (2, 4)))
        success = rng.uniform(0.3, 1.0)
        errors = {
            h: [
                (1e-3 if h >= D and rng.random() < success else 0.4 * 0.8 ** min(h, D)) * np.exp(0.15 * rng.normal())
                for _ in range(seeds)
            ]
            for h in range(1, most + 1)
        }
        found = estimate([run(errors)], 100)
        verdicts[found.verdict] = verdicts.get(found.verdict, 0) + 1
        best = [error for _, error in found.errors]
        fall = max(best[i] / min(best[i:]) for i in range(len(best)))
        assert found.verdict != "no-fall" or fall <= 2.0, found.sentence
        assert found.verdict != "unclear" or "stays at" not in found.sentence or fall <= 2.0, found.sentence
    assert min(verdicts.get(some, 0) for some in ("transition", "not-reached", "no-fall", "unclear")) >= 3, verdicts


DISAGREEING = {1: (1.0, 0.62), 2: (1.0, 0.62), 3: (0.064, 0.64), 4: (0.0065, 0.0065), 5: (0.035, 0.0035)}


def test_an_unclear_answer_is_not_worded_as_one():
    found = estimate([run(DISAGREEING)])
    assert (found.verdict, found.estimate) == ("unclear", None)
    assert found.sentence.startswith("Unclear: no head count up to 5 seems enough, but only ")
    assert re.search(r"of the draws say so \(h = 4 in \d+ %, not reached in \d+ %\): more seeds", found.sentence)
    assert "Not reached by" not in found.sentence


def test_every_unclear_sentence_says_so_first():
    rng = np.random.default_rng(2)
    unclear = 0
    for _ in range(400):
        falls = np.cumsum(rng.uniform(0.0, 1.0, 5) * (rng.random(5) < 0.5))
        levels = rng.uniform(-1.5, 0.0) - falls[:, None] + np.where(rng.random((5, 2)) < 0.3, 1.0, 0.0)
        found = estimate([run({h: list(10**row) for h, row in enumerate(np.minimum(levels, 0.0), 1)})], 100)
        assert found.sentence.startswith("Unclear:") == (found.verdict == "unclear"), found.sentence
        unclear += found.verdict == "unclear"
    assert unclear >= 20


def test_a_fall_of_untrained_models_claims_no_number():
    # D = 1, trained for 40 steps
    found = estimate([run({1: (0.75, 0.79), 2: (0.12, 0.82), 3: (0.093, 0.27), 4: (0.05, 0.11)})])
    assert (found.estimate, found.low, found.high) == (None, 1, None)
    assert "at least" not in found.sentence


def test_at_least_is_said_where_fewer_are_clearly_worse():
    found = estimate([run({h: [0.1 * 3.0**-h * (1 + 0.02 * s) for s in range(3)] for h in range(1, 7)})])
    assert (found.verdict, found.low, found.high) == ("not-reached", 6, None)
    assert "at least 6 are needed" in found.sentence


def test_a_lucky_fall_at_the_end_does_not_outweigh_the_large_one():
    found = estimate([run({h: [e * (1 + 0.3 * s) for s in range(3)] for h, e in enumerate(LUCKY, 1)})])
    assert (found.estimate, found.low, found.high) == (4, 4, 4)


def test_a_small_fall_at_the_end_is_no_answer_where_errors_are_large():
    errors = (0.5, 0.3, 0.2, 2e-3, 1.5e-3, 1e-3, 3e-4, 4e-4)
    found = estimate([run({h: [e * (1 + 0.3 * s) for s in range(3)] for h, e in enumerate(errors, 1)})])
    assert found.estimate != 7
    assert found.low == 4


@pytest.mark.parametrize(
    ("errors", "hint"),
    [
        ((0.07, 0.067, 0.022, 0.019, 0.019), "3 heads have an error 3.0 times smaller than 2 heads"),
        ((1e-4, 1e-4, 9e-5), "1 head and more do about equally well"),
        ((0.3, 0.3, 0.3), "no number of heads stands out"),
    ],
)
def test_one_trial_is_too_few(errors, hint):
    found = estimate([run({h: [e] for h, e in enumerate(errors, 1)})])
    assert (found.verdict, found.estimate, found.low, found.high) == ("too-few", None, 1, None)
    assert found.sentence.startswith(f"Too few trials to tell: {hint}, but ")
    assert found.shares == {}


def test_a_single_trial_at_a_decisive_head_count_is_too_few():
    errors = {1: [0.3] * 3, 2: [0.2] * 3, 3: [1e-5], 4: [1e-5] * 3}
    assert estimate([run(errors)]).verdict == "too-few"
    assert estimate([run({**errors, 3: [1e-5] * 2, 4: [1e-5]})]).estimate == 3  # 4 heads only confirm it


def test_one_seed_of_several_targets_or_lengths_will_do():
    assert estimate(planted(with_dimension(3), seeds=1, lengths=[8], targets=4)).estimate == 3
    several = estimate(planted(with_dimension(3), seeds=1, lengths=(8, 16, 32, 64), targets=1))
    assert several.estimate == 3
    # the lengths disagree, and drawn again they say so
    mixed = [run({h: [0.2 if h < D else 1e-5] for h in range(1, 7)}) for D in (2, 2, 4)]
    mixed = [r.model_copy(update={"values": {"length": T}}) for r, T in zip(mixed, (8, 16, 32), strict=True)]
    found = estimate(mixed)
    assert len(found.shares) > 1
    assert any("Drawn again over lengths and sizes" in reason.text for reason in found.reasons)


@pytest.mark.parametrize(
    ("left_out", "said"),
    [
        ({"pending": 4}, "the trials with 1 and 2 heads have no result yet"),
        ({"failed": 4}, "the trials with 1 and 2 heads failed"),
    ],
)
def test_head_counts_without_a_result_are_not_called_untried(left_out, said):
    found = estimate([run({3: [1e-4] * 2, 4: [1e-4] * 2}, left_out, heads=[1, 2, 3, 4])])
    assert (found.verdict, found.estimate, found.low, found.high) == ("unclear", None, 1, 3)
    assert said in found.sentence
    assert "not tried" not in found.sentence
    assert "suffices" not in found.sentence


def test_diverged_head_counts_are_called_diverged():
    found = estimate([run({1: [None] * 2, 2: [None] * 2, 3: [1e-4] * 2, 4: [1e-4] * 2})])
    assert (found.verdict, found.estimate) == ("unclear", None)
    assert "the trials with 1 and 2 heads all diverged" in found.sentence


def test_a_missing_count_below_the_answer_leaves_it_open():
    errors = {1: [0.3] * 3, 2: [0.2] * 3, 4: [1e-5] * 3, 5: [1e-5] * 3}
    found = estimate([run(errors, {"pending": 3}, heads=[1, 2, 3, 4, 5])])
    assert (found.verdict, found.estimate, found.low, found.high) == ("unclear", None, 3, 4)
    assert "the trials with 3 heads have no result yet, so whether fewer than 4 suffice is not known" in found.sentence
    assert estimate([run(errors)]).estimate == 4  # 3 was never planned: the interval alone says so


def test_missing_larger_counts_are_not_called_untried():
    found = estimate([run({1: [0.3] * 2, 2: [1e-3] * 2}, {"pending": 4}, heads=[1, 2, 3, 4])])
    said = " ".join(reason.text for reason in found.reasons)
    assert "the trials with 3 and 4 heads have no result yet" in said
    assert "not tried" not in said


@pytest.mark.parametrize(
    ("left_out", "said"),
    [
        ({"pending": 100}, "100 more trials have no result: 100 pending."),
        ({"failed": 1}, "1 more trial has no result: 1 failed."),
        ({"pending": 2, "failed": 3, "running": 0}, "5 more trials have no result: 3 failed, 2 pending."),
    ],
)
def test_lost_trials_are_counted_by_state(left_out, said):
    texts = [reason.text for reason in estimate([run({h: [0.1 / h] * 2 for h in (1, 2, 3)}, left_out)]).reasons]
    assert said in texts
