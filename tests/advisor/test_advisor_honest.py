"""An answer claims what is shown and no more: headline, interval, shares, reasons and `settled` agree."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from advisor_cases import made_up

from headcount.advisor.decide import TrialsByHeads, decide, drawn_errors
from headcount.advisor.warnings import flattened_features, outlying_targets
from headcount.advisor.words.answer import sentence
from headcount.analysis.bootstrap import interval_ends
from headcount.analysis.heads_needed import MAX_MARGIN, margins

RNG = np.random.default_rng(0)


def curves(count: int):
    """Made-up searches: steps, gentle falls, flat curves; few sequences and many; noise and none."""
    rng = np.random.default_rng(11)
    for _ in range(count):
        heads = [1, 2, 3, 4, 5, 8][: int(rng.integers(3, 7))]
        start, D = rng.uniform(0.05, 0.9), int(rng.integers(1, 6))
        kind = rng.choice(["step", "gentle", "flat"])
        power = rng.uniform(0.2, 1.0)
        level = {
            h: start * {"step": 1.0 if h < D else 0.02, "gentle": h**-power, "flat": 1.0}[str(kind)] for h in heads
        }
        scatter = rng.uniform(0.0, 0.5)
        errors = {h: [float(level[h] * np.exp(scatter * rng.normal())) for _ in range(3)] for h in heads}
        floor = float(rng.choice([0.0, 0.1, 0.5]))
        yield errors, floor, int(rng.choice([40, 100, 400, 2000])), float(rng.choice([0.1, 0.9]))


@pytest.mark.parametrize("folded", [False, True])
def test_no_headline_is_denied_by_what_stands_below_it(folded):
    seen: dict[str, int] = {}
    for errors, floor, samples, train in curves(60):
        found = made_up(errors, floor, train=train, samples=samples)
        decision = decide(found, heads_max=8, draws=300, folded=folded, inflation=2.25 if folded else 1.25)
        text = sentence(decision, 8)
        if decision.verdict in ("noise", "unclear", "too-few", "failed", "not-reached"):
            continue
        assert decision.estimate is not None
        assert decision.low <= decision.estimate <= (decision.high or 99)
        if decision.settled:
            assert decision.agreement >= 0.9
            assert text.startswith("One head suffices" if decision.estimate == 1 else f"{decision.estimate} heads: ")
            assert decision.verdict != "one-head" or decision.high == 1
        elif decision.high is None:
            assert "or more: " in text if decision.low > 1 else text.startswith("Any number of heads")
            assert decision.verdict != "one-head"
        else:
            assert text.startswith(f"Between {decision.low} and {decision.high} heads: ")
        seen[text.split(":")[0].split()[0]] = seen.get(text.split(":")[0].split()[0], 0) + 1
    assert {"One", "Any", *(() if folded else ("Between",))} <= seen.keys()


def test_a_difference_that_forty_sequences_cannot_show_is_no_sign_of_equality():
    """As on 40 sequences of a real set: one head errs by 0.23, eight by 0.016, in a few sequences that decide."""
    few = made_up({1: [0.23, 0.25], 2: [0.16, 0.2], 4: [0.1, 0.12], 8: [0.016, 0.03]}, samples=40)
    wrong = np.zeros(40, np.float32)
    wrong[:2] = 4.6  # two wrong sequences make up the whole difference
    few[0].squares[:], few[1].squares[:] = wrong, wrong
    decision = decide(few, heads_max=8)
    assert decision.high != 1
    assert not decision.settled
    assert "suffices" not in sentence(decision, 8)


def test_a_gain_that_may_be_chance_is_neither_noise_nor_an_answer():
    """One class in a hundred: three sequences carry the error, and what more heads gain on them is not shown."""
    rng = np.random.default_rng(3)
    rare = np.zeros(300)
    rare[:3] = 100.0
    found = [
        replace(one, squares=(rare * share + rng.uniform(0, 0.02, 300)).astype(np.float32), validation=share)
        for share, one in zip(
            np.repeat([0.83, 0.80, 0.59, 0.56], 2),
            made_up({h: [0.5, 0.5] for h in (1, 2, 4, 8)}, samples=300),
            strict=True,
        )
    ]
    decision = decide(found, heads_max=8, draws=300, inflation=1.25)
    assert (decision.verdict, decision.estimate, decision.low, decision.high) == ("unclear", None, 1, None)
    assert decision.gain_chance > 0.01
    text = sentence(decision, 8)
    assert "may be chance" in text
    assert "nothing" not in text
    noise = decide(made_up({h: [1.0, 1.0] for h in (1, 2, 4, 8)}, samples=300), heads_max=8, draws=300)
    assert noise.verdict == "noise"  # no model is better than a constant at all


def test_more_sequences_narrow_the_interval_and_never_move_it_off_the_answer():
    errors = {1: [0.3] * 3, 2: [0.06] * 3, 3: [0.05] * 3, 4: [0.05] * 3, 8: [0.05] * 3}
    ends = []
    for samples in (30, 300, 30_000):
        decision = decide(made_up(errors, samples=samples, train=0.05), heads_max=8, draws=300)
        assert decision.low <= 2 <= (decision.high or 99)
        ends.append((decision.high or 99) - decision.low)
    assert ends[0] > ends[-1] == 0


def test_dependence_between_folds_widens_what_is_drawn():
    table = TrialsByHeads.of(made_up({1: [0.2] * 3, 2: [0.1] * 3}, samples=200))
    plain, wide = (drawn_errors(table, 2000, 0, inflation=c)[1:].std(0) for c in (1.0, 2.25))
    assert wide == pytest.approx(1.5 * plain, rel=0.1)


@pytest.mark.parametrize(
    ("best", "floor", "margin"),
    [(0.01, 0.0, 0.004), (1e-6, 0.0, 1e-4), (0.5, 0.48, 0.024), (0.4, 0.0, MAX_MARGIN)],
)
def test_the_margin(best, floor, margin):
    assert margins(np.array([[1.0, best]]), floor)[0] == pytest.approx(margin)


def test_what_is_shown_and_what_is_not():
    enough = np.zeros((1000, 3), bool)
    enough[:, 2], enough[:995, 1], enough[:20, 0] = True, True, True
    assert interval_ends(enough, 0.025) == (1, 1)
    enough[:30, 0] = True  # that one head fails is no longer shown
    assert interval_ends(enough, 0.025) == (0, 1)
    enough[:, 1] = np.arange(1000) < 960  # nor that two are enough
    assert interval_ends(enough, 0.025) == (0, 2)
    enough[:, 2] = enough[:, 1]
    assert interval_ends(enough, 0.025) == (0, None)  # nor that any number is


def test_b_counts_fewer_heads_that_are_enough_and_a_needs_all_of_them_to_fail():
    """Two heads are enough in half of the draws, three in the other half: three or fewer in all."""
    enough = np.zeros((1000, 4), bool)
    enough[:500, 1], enough[500:, 2] = True, True
    assert interval_ends(enough, 0.025) == (1, 2)
    late = np.zeros((1000, 4), bool)
    late[:970, 3] = True  # 3 % of the draws say that none is enough
    assert interval_ends(late, 0.025) == (3, None)
    assert interval_ends(late, 0.05) == (3, 3)


def test_the_interval_of_draws_is_that_of_their_quantiles():
    rng = np.random.default_rng(5)
    for _ in range(200):
        answers = rng.choice(6, 400, p=rng.dirichlet(np.full(6, 0.3)))
        low, high = np.quantile(answers, [0.025, 0.975], method="inverted_cdf")
        a, b = interval_ends(answers[:, None] <= np.arange(5), 0.025)
        assert (a, 5 if b is None else b) == (min(low, 4), high)


def test_outliers_in_y_are_named():
    y = RNG.normal(size=(300, 1))
    assert outlying_targets(y) == []
    y[17] = 1e6
    (text,) = outlying_targets(y)
    assert text.startswith("Outliers in y have 100 % of its variance")
    assert "1e+06 (sequence 17)" in text
    assert outlying_targets(np.exp(RNG.normal(size=(300, 1)))) == []  # a tail is no outlier


def test_features_that_an_offset_or_huge_values_flatten_are_named():
    X = RNG.normal(size=(50, 8, 3))
    assert flattened_features(X, None) == []
    far = X.copy()
    far[:, :, 1] += 1e12
    (text,) = flattened_features(far, None)
    assert text.startswith("Feature 1 (from 0) varies by ")
    assert "around 1e+12" in text
    spiked = X.copy()
    spiked[3, 2, 0] = 1e9
    (text,) = flattened_features(spiked, None)
    assert text.startswith("Feature 0 (from 0) is flattened by 1 huge value")
    rare = X.copy()
    rare[:, :, 2] = RNG.random((50, 8)) < 0.02  # mostly 0, and no fault
    assert flattened_features(rare, None) == []
