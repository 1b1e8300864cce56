"""The rule, on trials that are made up: what it must find, and what it must not claim."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from advisor_cases import made_up

from headcount.advisor import decide as advisor_decide
from headcount.advisor.decide import TrialsByHeads, decide, levels_of, noise_floor, one_sided
from headcount.training.spec import TrainSpec


def ask(errors, floor=0.0, **options):
    found = made_up(errors, floor, **{k: options.pop(k) for k in ("train", "classes") if k in options})
    return decide(found, heads_max=options.pop("heads_max", 32), draws=200)


STEP = {1: [0.3, 0.31], 2: [0.1, 0.12], 3: [0.02, 0.03, 0.02], 4: [4e-4, 5e-4, 4e-4], 5: [3e-4, 4e-4], 8: [3e-4, 4e-4]}


@pytest.mark.parametrize("floor", [0.0, 0.001, 0.01])
def test_a_step_is_found_with_and_without_noise(floor):
    found = ask(STEP, floor, train=0.95)
    assert (found.verdict, found.estimate, found.low, found.high) == ("transition", 4, 4, 4)
    assert found.settled
    assert found.agreement > 0.9


def test_noise_hides_the_step_from_plain_errors_but_not_from_the_excess(monkeypatch):
    errors = {1: [0.2] * 3, 2: [0.06] * 3, 3: [0.005] * 3, 4: [3e-4] * 3, 8: [2e-4] * 3}
    assert ask(errors, 0.01, train=0.95).estimate == 4
    monkeypatch.setattr(advisor_decide, "noise_floor", lambda table: (0.0, 0.0))
    assert ask(errors, 0.01, train=0.95).estimate != 4


def test_luck_of_training_is_no_transition():
    found = ask({1: [1e-6, 9e-6], 2: [5e-7, 4e-6], 4: [2e-7, 3e-6], 8: [3e-7, 1e-6]})
    assert (found.verdict, found.estimate) == ("one-head", 1)


def test_equal_head_counts_mean_that_one_head_suffices():
    found = ask({h: [2e-4, 3e-4] for h in (1, 2, 4, 8)}, 0.005)
    assert (found.verdict, found.estimate, found.low, found.high) == ("one-head", 1, 1, 1)


def test_a_gentle_fall_is_no_transition():
    found = ask({h: [0.4 * h**-0.5] * 2 for h in (1, 2, 3, 4, 6, 8, 16)})
    assert found.verdict == "gentle"


def test_an_error_that_still_falls_at_the_end_needs_more_heads():
    errors = {h: [0.5 / h] * 2 for h in (1, 2, 4, 8, 16, 32)}
    assert ask(errors).verdict == "not-reached"
    assert ask({**errors, 32: [0.5 / 16.5] * 2}).verdict != "not-reached"


def test_noise_alone_is_recognised_and_a_weak_signal_is_not_taken_for_it():
    assert ask({h: [0.01, 0.02] for h in (1, 2, 4, 8)}, 1.0, train=0.95).verdict == "noise"
    assert ask({h: [0.001, 0.002] for h in (1, 2, 4, 8)}, 0.8, train=0.95).verdict == "one-head"


def test_noise_that_was_not_learned_is_told_from_noise_that_was_learned_by_heart():
    unlearned = ask({h: [0.01, 0.02] for h in (1, 2, 4)}, 1.0, train=0.95)
    by_heart = ask({h: [0.2, 0.3] for h in (1, 2, 4)}, 0.9, train=0.05)
    assert (unlearned.verdict, unlearned.cause) == ("noise", "unlearned")
    assert (by_heart.verdict, by_heart.cause) == ("noise", "by-heart")
    # the best validation point comes early: only the end of training shows what was learned by heart
    late = [replace(one, fitted=0.01) for one in made_up({h: [0.01, 0.02] for h in (1, 2, 4)}, 1.0, train=0.95)]
    assert decide(late, heads_max=32, draws=100).cause == "by-heart"


POORLY = {1: [0.75] * 3, 2: [0.7] * 3, 3: [0.65] * 3, 4: [0.6] * 3, 6: [0.57] * 3}


def test_seeds_that_scatter_while_nothing_is_learned_are_failed_training():
    failed = ask({**POORLY, 8: [0.5, 0.7, 0.75]}, train=0.7)
    assert (failed.verdict, failed.cause, failed.high) == ("failed", "scatter", None)
    assert ask({**POORLY, 8: [0.5, 0.51, 0.52]}, train=0.7).verdict == "gentle"


def test_a_lottery_is_failed_training_however_good_the_best():
    """One look-up behind a function that few seeds learn, with real errors."""
    errors = {1: [1.0, 1.0], 2: [1.0] * 6 + [0.94, 0.53], 3: [1.0, 1.0, 0.31, 0.49, 1.0, 1.0]}
    failed = ask({**errors, 4: [1.0, 0.34, 0.25, 1.0, 1.0, 0.38]}, heads_max=4)
    assert (failed.verdict, failed.cause, failed.high) == ("failed", "lottery", None)
    assert ask({**errors, 4: [0.3, 0.34, 0.25, 0.3, 0.3, 0.38]}, heads_max=4).verdict != "failed"
    one = ask({1: [0.99] * 3, 2: [0.96] * 3, 4: [0.96, 1.0, 0.83]}, train=0.9)
    assert (one.verdict, one.cause) == ("failed", "lottery")


def test_learned_by_heart_is_not_failed_training():
    found = ask({**POORLY, 8: [0.5, 0.7, 0.75]}, train=0.05)
    assert (found.verdict, found.cause, found.high) == ("gentle", "by-heart", None)
    few = [replace(one, fitted=0.001) for one in made_up({**POORLY, 8: [0.5, 0.7, 0.75]}, train=0.7)]
    assert decide(few, heads_max=32, draws=100).cause == "by-heart"


def test_longer_training_that_does_better_is_failed_training():
    found = made_up({**POORLY, 8: [0.35, 0.36, 0.55, 0.56]}, train=0.9)

    def trained(twice: set[int]):
        train = {seed: TrainSpec(steps=4000 if seed in twice else 2000) for seed in range(4)}
        wanted = [replace(one.wanted, train=train[one.wanted.seed]) for one in found]
        longer = [replace(one, wanted=w) for one, w in zip(found, wanted, strict=True)]
        return decide(longer, heads_max=32, draws=100)

    assert (trained({0, 1}).verdict, trained({0, 1}).cause) == ("failed", "patience")
    assert trained({0, 1, 2, 3}).cause == "scatter"


def test_a_step_beside_an_interval_that_begins_at_one_is_in_doubt():
    errors = {1: [0.1] * 2, 2: [2e-4] * 3, 3: [2e-4] * 3, 4: [2e-4] * 3}
    doubtful, sure = ask(errors), ask({**errors, 1: [0.1] * 3})
    assert (sure.verdict, sure.estimate, sure.low, sure.cause) == ("transition", 2, 2, "")
    assert (doubtful.verdict, doubtful.estimate, doubtful.low, doubtful.cause) == ("gentle", 2, 1, "doubtful")


def test_a_step_beside_an_interval_that_reaches_far_down_is_in_doubt():
    errors = {1: [0.9] * 8, 2: [0.1], 3: [0.1], 4: [2e-4] * 3, 5: [2e-4] * 3, 8: [2e-4] * 3}
    found = ask(errors)
    assert (found.verdict, found.estimate, found.low, found.cause) == ("gentle", 4, 2, "doubtful")


def test_single_trials_rule_nothing_out():
    errors = {1: [0.3] * 3, 2: [0.1] * 3, 4: [2e-4], 8: [2e-4]}
    found = ask(errors)
    assert (found.low, found.high) == (3, None)
    assert ask({**errors, 2: [0.1]}).verdict == "too-few"
    assert ask({h: e[:1] for h, e in errors.items()}).verdict == "too-few"
    assert ask({1: [2e-4], 2: [2e-4], 4: [2e-4]}).verdict == "too-few"
    assert ask({h: [1.0] for h in (1, 2, 4)}, 0.1).verdict == "too-few"


def test_the_largest_head_count_tried_is_confirmed_by_nothing():
    found = ask({1: [0.3] * 3, 2: [0.1] * 3, 4: [0.05] * 3, 8: [0.001] * 3})
    assert (found.estimate, found.high) == (8, None)


def test_at_the_largest_head_count_allowed_more_is_never_claimed():
    """Three look-ups, and no more than three heads allowed."""
    step = ask({1: [0.18] * 3, 2: [0.04] * 3, 3: [0.0011] * 3}, heads_max=3)
    assert (step.verdict, step.estimate, step.low, step.high) == ("not-reached", 3, 3, None)
    assert step.agreement > 0.9
    assert not step.settled
    even = ask({1: [0.18] * 3, 2: [0.04] * 3}, heads_max=2)
    assert (even.verdict, even.estimate, even.low, even.high) == ("not-reached", None, 2, None)
    untried = ask({1: [0.18] * 3, 2: [0.04] * 3, 4: [0.0011] * 3}, heads_max=4)
    assert untried.low == 3
    found = ask({1: [0.18] * 3, 2: [0.04] * 3, 3: [0.0012] * 3, 4: [0.0011] * 3}, heads_max=4)
    assert (found.verdict, found.estimate) == ("transition", 3)


def test_too_little_is_no_answer():
    assert ask({4: [0.01]}).verdict == "too-few"


def test_trials_that_were_cut_off_decide_nothing():
    found = made_up(STEP)
    assert decide(found, heads_max=32, draws=100).verdict == "transition"
    cut = decide([replace(one, completed=one.heads != 4) for one in found], heads_max=32, draws=100)
    assert (cut.verdict, cut.estimate, cut.low) == ("transition", 5, 4)
    late = [replace(one, completed=one.wanted.seed == 0) for one in found]
    assert decide(late, heads_max=32, draws=100).verdict == "too-few"
    late = [replace(one, completed=one.wanted.seed < 2) for one in found]
    assert (decide(late, heads_max=32, draws=100).estimate, decide(late, heads_max=32, draws=100).low) == (4, 3)
    assert decide([one for one in found if one.heads > 3], heads_max=32, draws=100).verdict == "too-few"
    assert decide([replace(one, completed=False) for one in found], heads_max=32, draws=100).verdict == "too-few"


def test_bad_luck_with_seeds_widens_the_interval():
    sure = {1: [0.3] * 3, 2: [0.1] * 3, 3: [2e-4] * 3, 4: [2e-4] * 3}
    unsure = {1: [0.3] * 3, 2: [0.1], 3: [2e-4, 0.1, 0.1], 4: [2e-4] * 3}
    assert ask(sure).low == 3
    assert ask(unsure).low < 3


def test_two_trials_rule_nothing_out():
    errors = {1: [0.3] * 3, 2: [0.1] * 3, 3: [2e-4] * 3, 4: [2e-4] * 3}
    assert (ask(errors).estimate, ask(errors).low) == (3, 3)
    few = ask({**errors, 2: [0.1] * 2})
    assert (few.estimate, few.low) == (3, 2)


def test_a_fall_over_head_counts_that_were_not_tried_is_shared_among_them():
    best = {1: 0.4, 2: 0.2, 4: 0.035, 5: 0.0135, 6: 0.013, 8: 0.013}
    errors = {h: [e, 1.4 * e, 1.5 * e] for h, e in best.items()}
    assert ask(errors).estimate == 5
    assert ask(dict(sorted({**errors, 3: [0.19] * 3}.items()))).estimate == 4


def test_classes_count_double():
    errors = {1: [0.5] * 3, 2: [0.35] * 3, 3: [0.25] * 3, 4: [0.15] * 3, 5: [0.145] * 3, 8: [0.14] * 3}
    plain, classes = ask(errors), ask(errors, classes=True)
    assert (classes.verdict, classes.estimate) == ("transition", 4)
    assert np.isclose(classes.rest[2], 2 * plain.rest[2])


def test_the_floor_lies_between_training_and_validation_error():
    table = TrialsByHeads.of(made_up({h: [2e-4, 2e-4] for h in (2, 4, 8)}, 0.01, train=0.9))
    floor, spread = noise_floor(table)
    best = table.champion
    assert 0.8 * best.train < floor < best.validation
    assert spread < 0.1 * floor
    scattered = TrialsByHeads.of(made_up({h: [2e-4, 2e-3] for h in (2, 4, 8)}, 0.0))
    assert noise_floor(scattered)[0] == 0.0


def test_levels_are_those_of_the_errors_without_noise():
    errors = np.array([[0.1, 0.01, 0.001]])
    assert np.allclose(levels_of(errors, 0.0), np.log10(errors))


def test_one_sided_chances():
    rng = np.random.default_rng(0)
    assert one_sided(rng.standard_normal(500) + 1) < 1e-6
    assert one_sided(rng.standard_normal(500) - 1) > 0.99
    assert one_sided(np.ones(5)) == 0.0
    assert one_sided(np.zeros(5)) == 1.0


def test_one_stuck_fold_of_five_does_not_rule_a_head_count_out():
    """With two heads, four of five models err as little as with three, and the fifth is stuck at the error of one."""
    errors = {1: [0.13] * 3, 2: [0.03] * 3, 3: [0.005] * 3, 4: [0.005] * 3, 8: [0.005] * 3}
    folds = {1: (0.13,) * 5, 2: (0.005,) * 4 + (0.13,)}

    def folded(some):
        found = made_up(errors, samples=400)
        return decide(
            [replace(one, fold_errors=some.get(one.heads, (0.005,) * 5)) for one in found],
            heads_max=8,
            draws=200,
            inflation=2.25,
            folded=True,
        )

    assert folded(folds).low == 2
    assert folded({**folds, 2: (0.03,) * 5}).low == 3  # all of them fail alike
    assert folded({**folds, 1: (0.005,) * 2 + (0.21,) * 3}).low == 1
    assert ask(errors, samples=400).low == 3  # one part held back: a trial is a model
