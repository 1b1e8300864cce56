"""The three searches for two selections with equal sums: against brute force, planted collisions, sabotaged twins."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

import headcount as hc
from headcount.theory.adversary.subset_sums import (
    Choices,
    Pair,
    distance,
    k_list,
    lattice,
    meet_in_the_middle,
    nearest_pair,
)


def drawn(seed: int, sizes: list[int], m: int = 3, **options) -> Choices:
    g = np.random.default_rng([7, seed])
    tags = [g.random(q) for q in sizes] if options else ()
    return Choices([g.standard_normal((q, m)) for q in sizes], tags, **options)


def exact(choices: Choices, first: tuple[int, ...], second: tuple[int, ...]) -> float:
    """Return the distance of two sums in rational arithmetic."""
    totals = []
    for k in range(choices.vectors[0].shape[1]):
        both = zip(choices.vectors, first, second, strict=True)
        totals.append(float(sum(Fraction(float(v[a, k])) - Fraction(float(v[b, k])) for v, a, b in both)))
    return math.hypot(*totals)


def allowed(choices: Choices, first: tuple[int, ...], second: tuple[int, ...]) -> bool:
    """Return whether two selections differ, and only in choices whose tags are far enough apart."""
    differing = [j for j, (a, b) in enumerate(zip(first, second, strict=True)) if a != b]
    tags = [(choices.tags[j][first[j]], choices.tags[j][second[j]]) for j in differing if choices.tags]
    return bool(differing) and all(abs(a - b) >= choices.gap for a, b in tags)


def brute(choices: Choices) -> float:
    """The slow twin: all pairs of selections, one after the other."""
    every = list(itertools.product(*(range(len(v)) for v in choices.vectors)))
    best = math.inf
    for first, second in itertools.combinations(every, 2):
        if allowed(choices, first, second):
            total = sum(v[a] - v[b] for v, a, b in zip(choices.vectors, first, second, strict=True))
            best = min(best, float(np.linalg.norm(total)))
    return best


def sound(choices: Choices, pair: Pair) -> None:
    """Check an answer: two selections that may differ, and their distance."""
    assert len(pair.first) == len(pair.second) == len(choices.vectors)
    assert allowed(choices, pair.first, pair.second)
    assert pair.distance == pytest.approx(exact(choices, pair.first, pair.second), rel=1e-12, abs=1e-300)


SIZES = [[2] * 6, [3] * 4, [3, 1, 2, 4], [5, 5], [9], [2, 1, 1]]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("options", [{}, {"gap": 0.2}])
def test_all_searches_against_brute_force(sizes: list[int], options: dict[str, float]):
    for seed, m in ((0, 1), (1, 3), (2, 6)):
        choices = drawn(seed, sizes, m, **options)
        least = brute(choices)
        if least == math.inf:
            continue
        for pair in (meet_in_the_middle(choices), k_list(choices), nearest_pair(choices)):
            sound(choices, pair)
            assert pair.complete
            assert pair.distance == pytest.approx(least, rel=1e-9)
        by_lattice = lattice(choices)
        if by_lattice:
            sound(choices, by_lattice)
            assert by_lattice.distance >= least * (1 - 1e-9)


def test_short_lists_are_sound_and_reported_as_incomplete():
    for sizes in ([3] * 6, [5] * 4):
        choices = drawn(3, sizes)
        least = meet_in_the_middle(choices).distance  # complete, and so the optimum
        for list_size in (2, 3, 10, 60):
            pairs = [k_list(choices, list_size)]
            pairs += [meet_in_the_middle(choices, list_size)] if list_size > 21 else []
            for pair in pairs:
                sound(choices, pair)
                assert not pair.complete
                assert pair.distance >= least * (1 - 1e-9)


def planted(seed: int, sizes: list[int], m: int, bits: int) -> Choices:
    """Return integers, so that sums are exact, in which two selections without a common choice have the same sum."""
    g = np.random.default_rng([11, seed])
    vectors = [g.integers(-(2**bits), 2**bits, (q, m)).astype(float) for q in sizes]
    vectors[-1][1] = sum(v[0] - v[1] for v in vectors[:-1]) + vectors[-1][0]
    return Choices(vectors)


def test_a_planted_collision_is_found():
    for seed in range(2):
        choices = planted(seed, [2] * 16, 3, 30)
        pair = meet_in_the_middle(choices)
        assert (pair.distance, pair.complete) == (0.0, True)
        choices = planted(seed, [2] * 12, 3, 30)
        assert k_list(choices, 20_000).distance == 0.0
        choices = planted(seed, [2] * 28, 2, 40)  # 3^28 differences: out of reach of lists, one short row for LLL
        pair = lattice(choices, tries=1)
        assert pair is not None
        assert pair.distance == 0.0
        sound(choices, pair)
        assert k_list(choices, 2000).distance > 0
        tampered = [v.copy() for v in choices.vectors]  # the sabotaged twin: one number moved by one unit
        tampered[-1][1, 0] += 1
        assert distance(Choices(tampered), pair.first, pair.second) == 1.0
        found = lattice(Choices(tampered), tries=1)
        assert found is None or found.distance >= 1.0


def test_a_collision_closer_than_the_gap_does_not_count():
    vectors = [np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 2.0]])]
    near = Choices(vectors, [np.array([0.0, 0.1, 1.0])], 0.2)
    for pair in (meet_in_the_middle(near), k_list(near), nearest_pair(near)):
        assert pair.distance == pytest.approx(math.sqrt(5))
    assert nearest_pair(Choices(vectors, [np.array([0.0, 0.3, 1.0])], 0.2)).distance == 0.0


def test_more_positions_are_used_by_the_tree():
    """With lists of one length, the tree finds what two halves miss, and more choices per position help it."""
    found = []
    for q in (3, 12):
        choices = drawn(5, [q] * 24)
        pair = k_list(choices, 4000)
        sound(choices, pair)
        found.append(pair.distance)
        assert pair.distance < meet_in_the_middle(choices, 4000).distance / 10
    assert found[1] < found[0] / 3
    assert k_list(choices, 4000, tries=2).distance <= found[1]


def test_a_subset_sum_by_lattice_reduction():
    """Two choices per token, 20 tokens: better than lists of five hundred sums, and never better than the optimum."""
    choices = drawn(6, [2] * 20)
    pair = lattice(choices)
    assert pair is not None
    sound(choices, pair)
    least = meet_in_the_middle(choices, 3**10).distance
    assert least <= pair.distance < 100 * least
    assert pair.distance < k_list(choices, 500).distance


def test_degenerate_choices():
    same = Choices([np.ones((2, 3)), np.ones((2, 3))])
    for pair in (meet_in_the_middle(same), k_list(same), lattice(same), nearest_pair(same)):
        assert pair is not None
        assert pair.distance == 0.0
        sound(same, pair)


def test_refusals():
    for make in (
        lambda: Choices([]),
        lambda: Choices([np.zeros((2, 3)), np.zeros((2, 2))]),
        lambda: Choices([np.zeros(3)]),
        lambda: Choices([np.zeros((2, 3))], [np.zeros(3)]),
        lambda: Choices([np.full((2, 1), np.nan)]),
        lambda: k_list(Choices([np.zeros((1, 3))] * 3)),
        lambda: meet_in_the_middle(drawn(0, [9]), 5),
        lambda: nearest_pair(Choices([np.zeros((2, 1))], [np.zeros(2)], 0.5)),
        lambda: k_list(drawn(0, [2]), 1),
    ):
        with pytest.raises(hc.BadInput) as told:
            make()
        assert "\n" not in str(told.value)
