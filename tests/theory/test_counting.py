"""The count behind Theorem 2 (2): against its definition, its proof followed on random layers, sabotaged twins."""

from __future__ import annotations

import dataclasses
import itertools
import math
from fractions import Fraction

import pytest
from count_cases import basins_task, brute, cases, definition, disagreements, exact, follow_proof, segment_faults

import headcount as hc
from headcount.tasks.expressions.tree import Exp, variable
from headcount.tasks.sampling import ClippedGaussian, Gaussian, Uniform
from headcount.theory.bounds.calculator import of_share, of_tasks, rows
from headcount.theory.bounds.counting import MAX_WIDTH, Basin, Heads, _exceeds, bites_below_eps, least_width
from headcount.theory.bounds.of_task import Segment, outer_slopes, segments
from headcount.theory.bounds.too_few_heads import counting_width, first_length, root

EXAMPLE = ([(1.9, 0.5), (1.0, 0.55)], [0.2, 0.2])
"""Two basins on the unit square, one with its centre outside."""


def found(task: hc.GeneralizedRetrieval) -> tuple[Segment, ...]:
    result = segments(task)
    assert not isinstance(result, str), result
    return result


# -- the width -----------------------------------------------------------------------------------------------


def test_the_width_is_the_definition_over_all_t_all_eps_and_all_basins():
    assert disagreements(exact) == 0
    assert sum(exact(*case) > 0 for case in cases()) > len(cases()) // 2


def test_sabotaged_widths_are_caught():
    assert disagreements(lambda *case: brute(*case, more=1)) > 0  # one too many in |S_i|
    assert disagreements(lambda *case: brute(*case, below=True)) > 0  # ε' below ε
    assert disagreements(lambda eps, b, sizes: exact(eps, b[:1], sizes)) > 0  # not the least over basins
    full = [
        definition(eps, b[0].size - s.heads - s.intrinsic + 1, b[0], s) != brute(eps, b[:1], s) for eps, b, s in cases()
    ]
    assert any(full)  # all free positions are not always best


def test_no_eps_of_a_fine_grid_gives_more():
    for eps, basins, sizes in cases()[::5]:
        if (width := exact(eps, basins, sizes)) == 0:
            continue
        by_grid = min(
            max(
                definition(eps * (1 + Fraction(j, 400)), t, b, sizes)
                for j in range(2000)
                for t in range(sizes.numbers + 1, b.size - sizes.heads - sizes.intrinsic + 2)
            )
            for b in basins
        )
        assert Fraction(99, 100) * width <= by_grid <= width


def test_an_irrational_bound_of_values_is_rounded_up():
    sizes = Heads(1, 2, 2)  # V = sqrt(2)
    width = least_width(Fraction(1, 1000), [Basin(12, Fraction(1, 4))], sizes)
    t, q = width.positions, math.floor(Fraction(1000, 12) / width.positions)
    by_hand = 0.25 / (3 * t * q) * root(q**t - 1, 3) / (2 * 2 * 3 * t * math.sqrt(2))
    assert float(width.width) == pytest.approx(by_hand, rel=1e-11)
    assert width.width**2 * (2 * 2 * 3 * t) ** 2 * 2 <= (Fraction(1, 4) / (3 * t * q) * root(q**t - 1, 3)) ** 2


def test_exceeding_a_level_is_decided_exactly():
    for eps, basins, sizes in cases():
        for basin in basins:
            width = exact(eps, [basin], sizes)
            if width:
                assert not _exceeds(width, eps, basin, sizes)
                assert _exceeds(width * Fraction(10**9 - 1, 10**9), eps, basin, sizes)


SETTINGS = [
    (Heads(s, n, D), size, variation)
    for (s, n, D), size, variation in itertools.product(
        [(1, 1, 2), (1, 2, 3), (2, 2, 3), (3, 4, 4)], (8, 13, 24, 64), (0.007, 0.1089, 1.0, 900.0)
    )
]


def test_the_width_never_rises_with_eps():
    for sizes, size, variation in SETTINGS:
        basins = [Basin(size, Fraction(variation))]
        widths = [least_width(10.0 ** (-k / 5), basins, sizes).width for k in range(5, 45)]
        assert widths == sorted(widths), (sizes, size, variation)


def test_below_the_threshold_eps_the_bound_is_always_positive():
    told = 0
    for sizes, size, variation in SETTINGS:
        basins = [Basin(size, Fraction(variation)), Basin(size + 3, Fraction(variation) / 2)]
        eps = bites_below_eps(basins, sizes)
        if eps is None:
            assert least_width(1e-299, basins, sizes).width <= 1
            continue
        told += 1
        assert least_width(eps, basins, sizes).width > 1
        assert eps == 1 or least_width(10 ** (math.log10(eps) + 1 / 8) * (1 - 1e-9), basins, sizes).width <= 1
        assert all(least_width(eps * 10 ** (-k / 7), basins, sizes).width > 1 for k in range(20))
    assert told > len(SETTINGS) // 2


def test_one_t_and_one_eps_are_not_monotone():
    """The twin of the two tests above: the simpler widths fall at a smaller ε and with more positions."""
    sizes = {"heads": 1, "head_dim": 2, "intrinsic": 2, "variation": 0.1089}
    widths = [counting_width(10.0 ** (-k / 40), smallest_set=64, **sizes) for k in range(100, 200)]
    assert widths != sorted(widths)
    assert counting_width(3e-4, smallest_set=128, **sizes) < counting_width(3e-4, smallest_set=32, **sizes)


@pytest.mark.parametrize("settings", [{}, {"sets": "bands"}, {"sets": "halves"}, {"sets": "random", "share": 0.3}])
def test_a_longer_task_is_no_easier(settings: dict[str, object]):
    lengths = [4, 8, 9, 16, 21, 29, 32, 33, 64, 100, 128, 400]
    tasks = [hc.make_task("quadratic-basins", intrinsic=2, length=T, **settings) for T in lengths]
    for eps in (1e-4, 1e-6):
        table = rows(of_tasks(tasks), intrinsic=2, heads=[1], head_dims=[1], eps=eps)
        assert [row.smallest_set for row in table] == [min(len(s) for s in task.S) for task in tasks]
        assert [row.width for row in table] == sorted(row.width or 0.0 for row in table)
        below = [row.bites_below_eps or 0.0 for row in table]
        assert below == sorted(below)
        assert below[-1] > 0


def test_extreme_numbers_are_capped_and_quick():
    sizes = Heads(8, 64, 9)
    assert least_width(1e-300, [Basin(2000, Fraction(1, 10))], sizes).width == MAX_WIDTH
    assert least_width(1e-300, [Basin(500, Fraction(1, 10))], sizes).width == 0
    with pytest.raises(hc.BadInput):
        least_width(0.0, [Basin(500, Fraction(1, 10))], sizes)
    with pytest.raises(hc.BadInput):
        counting_width(1e-3, smallest_set=8, heads=1, head_dim=1, intrinsic=2, variation=0.1, positions=7)
    assert counting_width(1e-3, smallest_set=8, heads=1, head_dim=1, intrinsic=2, variation=0.1, positions=6) > 0


# -- set sizes, and from which length on ---------------------------------------------------------------------


def test_a_fraction_gives_exact_set_sizes():
    """In floating point ⌈(|S|/T)·T⌉ is one too large for 138 pairs up to T = 128; in fractions it never is."""
    pairs = [(T, size) for T in range(1, 129) for size in range(-(-T // 4), T + 1)]
    assert sum(math.ceil((size / T) * T) != size for T, size in pairs) == 138
    assert all(of_share([T], 2, Fraction(size, T))[0].smallest_set == size for T, size in pairs)


def test_the_length_from_which_the_bound_is_positive_by_trying_all():
    rules = [lambda T, p=p: math.ceil(p * T) for p in (Fraction(1), Fraction(1, 2), Fraction(7, 25), Fraction(1, 4))]
    for needed, rule in itertools.product(range(1, 60), rules):
        first = first_length(needed, rule)
        assert all(rule(T) <= needed for T in range(1, first))
        assert all(rule(T) > needed for T in range(first, first + 40))


# -- the segments --------------------------------------------------------------------------------------------

TASKS = {
    "drawn": hc.make_task("quadratic-basins", intrinsic=3, dim=2, length=16),
    "one axis": basins_task([[0.1], [0.35], [0.9]], [1.0, 0.5, 0.25]),
    "centre outside": basins_task(*EXAMPLE),
    "beyond a corner": basins_task([(1.5, 1.25), (0.25, 0.5), (-0.5, 0.75)], [0.2, 0.25, 0.125]),
    "another box": basins_task([(-2, 0.5), (3, 0.5)], [0.02, 0.01], law=Uniform(low=(-2.5, 0.0), high=(2.5, 1.0))),
    "far apart": basins_task([(0, 0, 0, 0), (1, 1, 1, 1)], [0.25, 0.25]),
    "clipped": basins_task([(0.3, 0.1), (-0.2, 0.4)], [0.1, 0.1], law=ClippedGaussian(limit=1.0)),
    "slopes": basins_task([(0.3, 0.1), (0.2, 0.8)], [0.5, 0.5], F0=variable(2).dot([0.5, -3.0]) * 2.0),
}


@pytest.mark.parametrize("name", TASKS)
def test_segments_lie_in_the_box_beside_a_minimiser(name: str):
    task = TASKS[name]
    assert segment_faults(task, found(task)) == []


def test_sabotaged_segments_are_caught():
    task = TASKS["centre outside"]
    good = found(task)
    assert good[0].minimiser == (1, Fraction(0.5))  # the centre (1.9, 0.5) is no point of the box
    for bad in (
        dataclasses.replace(good[0], minimiser=(Fraction(1.9), Fraction(0.5))),
        dataclasses.replace(good[0], axis=0, towards=1),
        dataclasses.replace(good[0], rise=5 * good[0].rise, variation=5 * good[0].variation),
        dataclasses.replace(good[0], variation=2 * good[0].variation),
    ):
        assert segment_faults(task, (bad, good[1])), bad
    far = TASKS["far apart"]  # half of the distance, 1, is all the room there is
    assert [s.rise for s in found(far)] == [Fraction(0.25)] * 2
    longer = [dataclasses.replace(s, rise=2 * s.rise, variation=2 * s.variation) for s in found(far)]
    assert "segment 0 leaves the box" in segment_faults(far, longer)


def test_no_width_from_a_segment_outside_the_box():
    """With the distance to the centre outside, 0.9, the count would say 6.5e14."""
    task = basins_task(*EXAMPLE)
    row = rows(of_tasks([task]), intrinsic=2, heads=[1], head_dims=[2], eps=1e-6)[0]
    sizes = {"smallest_set": 32, "heads": 1, "head_dim": 2, "intrinsic": 2}
    outside = 0.2 * math.dist(*EXAMPLE[0]) ** 2 / 8
    assert float(counting_width(1e-6, **sizes, variation=outside)) == pytest.approx(6.5e14, rel=0.01)
    assert row.width is not None
    assert 0 < row.width < 1
    assert float(found(task)[0].variation) == pytest.approx(0.2 * 0.05**2 / 4)


REFUSED = {
    "do not fill a box": hc.make_task("sphere-anchors", intrinsic=2, length=16),
    "gaussian tokens": basins_task([(0.3, 0.1), (-0.2, 0.4)], [0.1, 0.1], law=Gaussian()),
    "scale·|x − c|²": hc.make_task("min-plus-max"),
    "not affine": hc.make_task("quadratic-basins", outer="exp"),
    "(2.2) fails": basins_task([(1.9, 0.5), (1.0, 0.5)], [0.2, 0.2]),  # one point of the box serves both
    "(2.4) fails": basins_task([(0.3, 0.1), (0.2, 0.4)], [0.1, 0.1], F0=variable(2)[0]),
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_missing_segment_is_explained(why: str):
    told = segments(REFUSED[why])
    assert isinstance(told, str)
    assert why in told
    facts = of_tasks([REFUSED[why]])[0]
    assert facts.basins() == ()
    assert all(row.width is None for row in rows([facts], intrinsic=3, heads=[1, 2], head_dims=[1], eps=1e-3))


def test_slopes_of_affine_trees_are_exact():
    z = variable(3)
    assert outer_slopes(z.sum(), 3) == [1, 1, 1]
    assert outer_slopes(z.sum() * 3.0 + z[1] * 0.1, 3) == [3, 3 + Fraction(0.1), 3]
    assert outer_slopes(z[0] - z[2], 3) == [1, 0, 1]
    assert outer_slopes(hc.make_task("quadratic-basins", outer="vector").F0, 3) == [1, 1, 1]
    assert outer_slopes(Exp(of=z.sum()), 3) is None
    assert outer_slopes(lambda x: x.sum(-1), 3) is None


# -- the proof -----------------------------------------------------------------------------------------------

PROOFS = [(2, 1, 5, 3), (3, 2, 6, 4), (3, 1, 4, 4)]


@pytest.mark.parametrize(("D", "s", "t", "q"), PROOFS)
def test_the_proof_holds_on_random_layers(D: int, s: int, t: int, q: int):
    """Weights and values at random: two sequences share a cell, outputs move as promised, targets lie 3ε apart."""
    task = hc.make_task("quadratic-basins", intrinsic=D, length=2 * (t + s + D - 1), sets="bands")
    assert min(len(S) for S in task.S) == t + s + D - 1
    hidden: set[int] = set()
    for seed in range(12):
        moved, gap, wanted, i = follow_proof(task, found(task), heads=s, t=t, q=q, seed=seed)
        assert moved <= 1
        assert gap >= wanted * (1 - 1e-9)
        hidden.add(i)
    assert len(hidden) > 1


def test_a_filler_that_hides_the_free_positions_is_caught():
    """x^(D) may not fill the rest when D itself is the hidden basin."""
    D, s, t, q = PROOFS[0]
    task = hc.make_task("quadratic-basins", intrinsic=D, length=2 * (t + s + D - 1), sets="bands")
    gaps = {
        (gap >= wanted * (1 - 1e-9), i == D - 1)
        for _, gap, wanted, i in (
            follow_proof(task, found(task), heads=s, t=t, q=q, seed=seed, filler_of=lambda _, D: D - 1)
            for seed in range(12)
        )
    }
    assert gaps == {(True, False), (False, True)}
