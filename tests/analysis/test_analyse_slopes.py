"""The effect of the length: planted signs of the slope, the paper's reversal scores, and the test's error rate."""

from __future__ import annotations

import numpy as np
import pytest
from analyse_cases import planted

from headcount.analysis.of_runs import analyse
from headcount.analysis.slopes import reversal_score

LENGTHS = (8, 16, 32, 64)


@pytest.mark.parametrize(
    ("errors", "score"),
    [
        ([0.00109, 0.000708, 0.000724, 0.000776, 0.00111], 2.64),  # table 4, h = 2
        ([0.000694, 0.00064, 0.000909, 0.00131, 0.00158], 0.06),  # table 2, h = 3
        ([0.000212, 0.000185, 0.000222, 0.000313, 0.000428], 0.11),  # table 5, h = 1
        ([0.1, 0.1, 0.1], 0.0),
        ([3.0, 2.0, 1.0], 2.0),  # (1 + 2 + 1)/2
    ],
)
def test_the_score_is_the_papers(errors, score):
    assert round(float(reversal_score(np.array(errors))), 2) == score


def test_table_6_has_no_reversal():
    accuracy = np.array([
        [0.597, 0.45, 0.303, 0.154], [0.771, 0.647, 0.486, 0.286], [0.956, 0.9, 0.793, 0.58],
        [0.992, 0.977, 0.937, 0.814], [0.998, 0.995, 0.983, 0.932], [1.0, 0.999, 0.998, 0.991],
    ])  # fmt: skip
    assert (reversal_score(1 - accuracy) == 0).all()
    assert (reversal_score(1 - accuracy[:, ::-1]) > 0).all()


def test_planted_slopes_have_their_sign_and_lie_in_their_interval():
    powers = {1: 0.8, 2: 0.3, 3: 0.0, 4: -0.5}
    runs = planted(lambda h, T, N: 0.01 * T ** powers[h], heads=powers, lengths=LENGTHS, noise=0.05)
    found = {s.heads: s for s in analyse(runs, resamples=300).slopes}
    for h, power in powers.items():
        assert found[h].low <= power + 0.15
        assert found[h].high >= power - 0.15
        assert found[h].lengths == list(LENGTHS)
    assert found[1].low > 0
    assert found[4].high < 0
    assert found[3].low < 0 < found[3].high


def test_one_length_has_no_slope():
    found = analyse(planted(lambda h, T, N: 0.1 / h, lengths=[8]), resamples=100)
    assert found.slopes == []
    assert found.reversals == []


def test_a_reversal_is_told_from_chance():
    lengths = (4, *LENGTHS)
    falling = analyse(planted(lambda h, T, N: 2.0 - T / 64, lengths=lengths, heads=(1, 2)), resamples=300).reversals
    rising = analyse(planted(lambda h, T, N: 0.001 * T, lengths=lengths, heads=(1, 2)), resamples=300).reversals
    assert max(r.p for r in falling) < 0.1  # R is a weak test: a steep fall is seen, a gentle one is not
    assert min(r.p for r in rising) > 0.9
    assert min(r.score for r in falling) > 2


def test_without_an_effect_the_test_seldom_rejects():
    found = [
        r.p
        for seed in range(10)
        for r in analyse(
            planted(lambda h, T, N: 0.01, lengths=LENGTHS, heads=range(1, 6), targets=1, seed=seed), resamples=100
        ).reversals
    ]
    # scores themselves are far from 0: R alone misleads
    assert 0.3 < np.mean(found) < 0.7
    assert np.mean(np.array(found) <= 0.1) < 0.25
