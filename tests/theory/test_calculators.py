"""The calculators against the paper's own numbers, brute force, and sabotaged twins."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import pytest

import headcount as hc
from headcount.theory import known
from headcount.theory.calculator import of_task, rows
from headcount.theory.lower import _root, bites_below_eps, counting_width, exponents, pair_width
from headcount.theory.task_bounds import segment
from support import Cli

CELLS = [(h, T) for h in (1, 2, 3) for T in (8, 16, 32, 64, 128)]


def both(h: int, T: int, n: int = 8, D: int = 4, smallest: int | None = None):
    return exponents(length=T, heads=h, head_dim=n, intrinsic=D, smallest_set=smallest)


def test_the_papers_own_settings():
    """12 of the 15 synthetic cells with h < D are vacuous as printed, 6 with |S_i| = T; h = 3 at T = 64 and 128."""
    assert sum(both(h, T)[0].vacuous for h, T in CELLS) == 12
    assert sum(both(h, T)[1].vacuous for h, T in CELLS) == 6
    assert both(3, 64)[1].k == pytest.approx(1.07, abs=5e-3)
    assert both(3, 128)[1].k == pytest.approx(3.36, abs=5e-3)
    assert (both(3, 64)[0].bites_from_length, both(3, 64)[1].bites_from_length) == (137, 35)
    assert both(3, 128)[1].k_five_layers == both(3, 128)[1].k / 4


@pytest.mark.parametrize("form", [0, 1])
def test_where_it_bites_by_trying(form: int):
    for n in (1, 2, 5):
        for h in (1, 2, 3):
            first = next(T for T in range(4, 400) if T >= 4 and not both(h, T, n)[form].vacuous)
            assert both(h, 50, n)[form].bites_from_length == first
    for T in (16, 40, 100):
        for h in (1, 2, 3):
            biting = [n for n in range(1, 200) if not both(h, T, n)[form].vacuous]
            told = both(h, T, 2)[form].bites_below_head_dim
            assert told == (None if not biting else max(biting) + 1)


def test_enough_heads_are_never_too_few():
    for form in both(4, 1000) + both(9, 1000):
        assert form.vacuous
        assert form.bites_from_length is None


def test_roots_are_exact():
    for number in (1, 2, 26, 27, 28, 10**50, 10**50 - 1, 7**60):
        for degree in (1, 2, 3, 7):
            g = _root(number, degree)
            assert g**degree <= number < (g + 1) ** degree


def test_the_counting_bound_keeps_its_constants():
    sizes = {"smallest_set": 32, "heads": 1, "head_dim": 2, "intrinsic": 2, "variation": 0.01}
    found = counting_width(1e-5, **sizes)
    free, points = 30, math.floor(Fraction(0.01) / (3 * 30 * Fraction(1e-5)))
    cells = _root(points**free - 1, 3)
    by_hand = 1e-5 / (2 * 2 * 1 * 3 * free * math.sqrt(2) / cells)
    assert float(found) == pytest.approx(by_hand, rel=1e-9)
    assert cells**3 < points**free  # pigeons and holes: one cell holds two sequences
    assert not (cells + 1) ** 3 < points**free
    exponent = exponents(length=32, heads=1, head_dim=2, intrinsic=2)[1]
    slope = math.log(float(counting_width(1e-12, **sizes)) / float(counting_width(1e-9, **sizes))) / math.log(1e3)
    assert slope == pytest.approx(exponent.k_limit, rel=0.02)
    assert counting_width(0.1, **sizes) == 0  # a grid of one point proves nothing
    assert counting_width(1e-5, **{**sizes, "heads": 2}) == 0


def test_the_eps_from_which_it_bites_is_itself_proved():
    sizes = {"smallest_set": 32, "heads": 1, "head_dim": 2, "intrinsic": 2, "variation": 0.01}
    eps = bites_below_eps(**sizes)
    assert counting_width(eps, **sizes) > 1
    assert counting_width(eps * 10 ** (1 / 8), **sizes) <= 1
    assert bites_below_eps(**{**sizes, "smallest_set": 3}) is None


def test_lemma_4():
    assert pair_width(1.0, 0.5, 0.1) == 0
    assert pair_width(1.0, 0.1, 0.1) == pytest.approx(8)
    assert pair_width(1.0, 0.1, 0.0) == math.inf


def test_the_segment_of_a_task_is_one():
    """The stated variation is attained: f_1 grows by at least it along the segment, and other basins lie above it."""
    import torch

    task = hc.make_task("quadratic-basins", intrinsic=3, dim=2, length=16)
    found = segment(task)
    centres = [[-b for b in f.of.args[0].of.bias] for f in task.f]
    for i, f in enumerate(task.f):
        c = torch.tensor(centres[i], dtype=torch.float64)
        towards = (0.5 - c) / (0.5 - c).norm()
        near, far = (task.tokens((c + found.radius * s * towards).expand(1, 16, 2))[0, i, 0] for s in (0.25, 0.5))
        assert float(far - near) >= found.variation
        for j, other in enumerate(centres):
            if j != i:
                ring = torch.tensor([[math.cos(a), math.sin(a)] for a in torch.linspace(0, 6.3, 16).tolist()])
                points = torch.tensor(other, dtype=torch.float64) + found.radius / 2 * ring
                assert float(task.tokens(points[None])[0, i].min()) >= float(far) - 1e-12
        del f
    assert isinstance(segment(hc.make_task("min-plus-max")), str)
    assert isinstance(segment(hc.make_task("quadratic-basins", outer="exp")), str)


def test_a_task_that_breaks_an_assumption_gets_no_bound():
    facts = of_task(hc.make_task("sum-of-maxima", length=128))
    assert "2.3" in facts["failing"]
    row = rows(
        intrinsic=4, heads=[3], head_dims=[8], lengths=[128], **{k: facts[k] for k in ("share", "variation", "failing")}
    )[0]
    assert "fails here" in row.verdict
    assert row.width is None


def test_known_results():
    assert known.corollary_one(3, 4, 1250).value is True
    assert known.corollary_one(3, 4, 1249).value is False
    assert known.conjecture_one(2, 2, 4).value is True
    assert known.conjecture_one(1, 3, 4).kind == "conjecture"
    assert known.density_primitives(8, 2).value == 4 * 28
    assert known.density_primitives(4, 1).value == 8
    assert known.rank_bottleneck(8, 8).value is True
    assert known.memorised(4, 8, 128).value == 32
    assert known.sparse_regression_heads(5).value == 5
    with pytest.raises(hc.BadInput):
        known.density_primitives(6, 1)


def test_the_command(headcount_here: Cli):
    done = headcount_here("bounds", "--D", "4", "--heads", "3", "--head-dim", "8", "--length", "64,128", "--json")
    found = json.loads(done.stdout)["rows"]
    assert [row["k"] for row in found] == pytest.approx([58 / 28 - 1, 122 / 28 - 1])
    assert (found[0]["vacuous"], found[0]["printed"]["vacuous"]) == (False, True)
    assert (found[0]["bites_from_length"], found[0]["bites_below_head_dim"]) == (35, 18)
    task = headcount_here("bounds", "quadratic-basins", "--D", "2", "-T", "32", "--heads", "1", "--eps", "1e-6")
    assert task.returncode == 0
    assert "proved" in task.stdout
    for bad in (["--D", "0"], ["--heads", "a", "--D", "3"], ["--D", "4", "--eps", "2"], ["mean"], [],
                ["--D", "3", "--share", "0.1"],
                ["--D", "3", "--heads", "5:1"], ["--D", "3", "--heads", "1:9999", "--head-dim", "1:99"]):  # fmt: skip
        done = headcount_here("bounds", *bad)
        assert (done.returncode, len(done.stderr.strip().splitlines())) == (2, 1), (bad, done.stderr)
