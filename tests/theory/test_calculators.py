"""The calculators against the paper's own numbers, brute force, and sabotaged twins."""

from __future__ import annotations

import itertools
import json
import math
import re
import sys
from fractions import Fraction
from pathlib import Path

import pytest

import headcount as hc
from headcount.tasks.expressions.tree import variable
from headcount.tasks.families import FAMILIES
from headcount.tasks.serial import parse_task
from headcount.theory.bounds import related_work as known
from headcount.theory.bounds.calculator import family_rule, of_share, of_tasks, rows
from headcount.theory.bounds.counting import Basin, Heads, least_width
from headcount.theory.bounds.of_task import segments
from headcount.theory.bounds.too_few_heads import SetRule, counting_width, exponents, pair_width, root, rounded_down
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
def test_the_sizes_where_the_bound_is_positive_by_trying_all(form: int):
    for n in (1, 2, 5):
        for h in (1, 2, 3):
            first = next(T for T in range(4, 400) if T >= 4 and not both(h, T, n)[form].vacuous)
            assert both(h, 50, n)[form].bites_from_length == first
    for T in (16, 40, 100):
        for h in (1, 2, 3):
            biting = [n for n in range(1, 200) if not both(h, T, n)[form].vacuous]
            told = both(h, T, 2)[form].bites_below_head_dim
            assert told == (None if not biting else max(biting) + 1)


def rules() -> list[SetRule]:
    """Return rules for sets that grow with T: fractions, and those of the families."""

    def share(p: Fraction) -> SetRule:
        return lambda T: math.ceil(p * T)

    kinds = [family_rule("quadratic-basins", {"sets": kind}) for kind in ("all", "halves", "bands", "random")]
    return [share(Fraction(7, 25)), share(Fraction(1, 3)), *(rule for rule in kinds if rule is not None)]


def test_k_and_the_first_positive_sizes_over_a_grid():
    """24,000 settings: k matches its formula, and the rows agree on the length from which the bound is positive."""
    lengths, count = (5, 8, 10, 16, 20, 21, 22, 32, 47, 64, 99, 128), 0
    for rule, D, s, n in itertools.product(rules(), range(1, 11), range(1, 8), range(1, 6)):
        told: set[int | None] = set()
        for T in lengths:
            m, count = rule(T), count + 1
            printed, sharp = exponents(length=T, heads=s, head_dim=n, intrinsic=D, smallest_set=m, rule=rule)
            few = s < D
            assert sharp.k == float(Fraction(m - s - D + 1, (n + 1) * s + 1) - 1)
            assert printed.k == float((Fraction(T, 4) - s - D + 1) / ((n + 1) * s + 1) - 1)
            assert sharp.vacuous == (not few or m - s - D + 1 <= (n + 1) * s + 1)
            told.add(sharp.bites_from_length)
            assert not few or sharp.vacuous == ((sharp.bites_from_length or 0) > T)
            assert not few or printed.vacuous == ((printed.bites_from_length or 0) > T)
        assert len(told) == 1
    assert count >= 24_000


def test_other_lengths_need_a_rule():
    """15 of 29 positions may mean a half or 15/29, so nothing is claimed about other lengths."""
    sizes = {"heads": 2, "head_dim": 5, "intrinsic": 3}
    assert exponents(length=29, smallest_set=15, **sizes)[1].bites_from_length is None
    assert exponents(length=29, smallest_set=29, **sizes)[1].bites_from_length == 18
    halves = family_rule("quadratic-basins", {"sets": "bands", "share": 0.5})
    assert exponents(length=29, smallest_set=15, rule=halves, **sizes)[1].bites_from_length == 35
    with pytest.raises(hc.BadInput, match="rule for the sets"):
        exponents(length=29, smallest_set=16, rule=halves, **sizes)


@pytest.mark.parametrize("settings", [{}, {"sets": "halves"}, {"sets": "bands", "share": 0.28}, {"sets": "random"}])
def test_the_rule_of_a_family_matches_its_tasks(settings: dict[str, object]):
    rule = family_rule("quadratic-basins", settings)
    assert rule is not None
    for T in range(3, 60):
        task = hc.make_task("quadratic-basins", intrinsic=3, length=T, **settings)
        assert rule(T) == min(len(S) for S in task.S)
        assert rule(T) <= rule(T + 1)
    assert family_rule("task.json", {}) is None
    assert {name for name in FAMILIES if family_rule(name, {}) is None} == set()


def test_enough_heads_are_never_too_few():
    for form in both(4, 1000) + both(9, 1000):
        assert form.vacuous
        assert form.bites_from_length is None


def test_roots_are_exact():
    for number in (1, 2, 26, 27, 28, 10**50, 10**50 - 1, 7**60):
        for degree in (1, 2, 3, 7):
            g = root(number, degree)
            assert g**degree <= number < (g + 1) ** degree
    assert root(0, 3) == 0


def test_the_counting_bound_keeps_its_constants():
    sizes = {"smallest_set": 32, "heads": 1, "head_dim": 2, "intrinsic": 2, "variation": 0.01}
    found = counting_width(1e-5, **sizes)
    free, points = 30, math.floor(Fraction(0.01) / (3 * 30 * Fraction(1e-5)))
    cells = root(points**free - 1, 3)
    by_hand = 1e-5 / (2 * 2 * 1 * 3 * free * math.sqrt(2) / cells)
    assert float(found) == pytest.approx(by_hand, rel=1e-9)
    assert cells**3 < points**free  # pigeons and holes: one cell holds two sequences
    assert not (cells + 1) ** 3 < points**free
    exponent = exponents(length=32, heads=1, head_dim=2, intrinsic=2)[1]
    slope = math.log(float(counting_width(1e-12, **sizes)) / float(counting_width(1e-9, **sizes))) / math.log(1e3)
    assert slope == pytest.approx(exponent.k_limit, rel=0.02)
    assert counting_width(0.1, **sizes) == 0  # a grid of one point proves nothing
    assert counting_width(1e-5, **{**sizes, "heads": 2}) == 0


def test_lemma_4():
    assert pair_width(1.0, 0.5, 0.1) == 0
    assert pair_width(1.0, 0.1, 0.1) == pytest.approx(8)
    assert pair_width(1.0, 0.1, 0.0) == math.inf


def test_a_task_that_breaks_an_assumption_gets_no_bound():
    facts = of_tasks([hc.make_task("sum-of-maxima", length=128)], variation=Fraction(1, 10))
    assert "2.3" in facts[0].failing
    row = rows(facts, intrinsic=4, heads=[3], head_dims=[8], eps=1e-6)[0]
    assert "fails here" in row.verdict
    assert row.width is None
    stated = rows(of_share([128], 4, variation=Fraction(1, 10)), intrinsic=4, heads=[3], head_dims=[8], eps=1e-6)[0]
    assert stated.width is not None


def test_every_basin_has_its_own_set():
    """The basin with the smallest bound decides; it need not have the smallest set or the smallest variation."""
    data = hc.make_task("quadratic-basins", intrinsic=3, length=24).data()
    data["S"] = [list(range(24)), list(range(12)), list(range(20))]
    task = parse_task(data)
    assert isinstance(task, hc.GeneralizedRetrieval)
    facts = of_tasks([task])
    row = rows(facts, intrinsic=3, heads=[1], head_dims=[1], eps=1e-6)[0]
    assert facts[0].sizes == (24, 12, 20)
    assert (row.smallest_set, row.basin, row.positions_used) == (12, 2, 9)
    assert row.sharp.bites_from_length is None
    swapped = [Basin(12, Fraction(1)), Basin(24, Fraction(1, 10**5))]
    assert least_width(1e-6, swapped, Heads(1, 1, 2)).basin == 1
    small = parse_task({**data, "S": [list(range(24)), list(range(5)), list(range(20))]})
    assert isinstance(small, hc.GeneralizedRetrieval)
    assert of_tasks([small])[0].failing == ("|S_i| ≥ T/4",)


def test_known_results():
    assert known.corollary_one(3, 4, 1250).value is True
    assert known.corollary_one(3, 4, 1249).value is False
    for D, T in itertools.product(range(1, 9), (1, 49, 99, 100, 249, 250, 499, 500, 1250, 5000)):
        excluded = [other for other in range(1, 20) if other != D and known.corollary_one(D, other, T).value]
        told = known.other_representations(D, T)
        assert excluded == [other for other in range(1, int(told.value or 0) + 1) if other != D]
        assert told.says.startswith("no second" if excluded else "says nothing"), (D, T)
        if not excluded:
            first = int(told.says.split("T = ")[1])
            assert first > T
            assert known.other_representations(D, first).value
            assert not known.other_representations(D, first - 1).value
    assert known.conjecture_one(2, 2, 4).value is True
    assert known.conjecture_one(1, 3, 4).kind == "conjecture"
    assert known.density_primitives(8, 2).value == 4 * 28
    assert known.density_primitives(4, 1).value == 8
    assert known.rank_bottleneck(8, 8).value is True
    assert known.memorised(4, 8, 128).value == 32
    assert known.sparse_regression_heads(5).value == 5
    with pytest.raises(hc.BadInput):
        known.density_primitives(6, 1)
    for T, d in ((404, 1), (1000, 3), (4000, 1)):
        told = known.density_primitives(T, d)
        digits = len(str(2 * d * math.comb(T, T // 4)))
        assert told.value is None
        assert re.search(r"> 10\^(\d+) ", told.says)
        assert digits - 3 <= int(told.says.split("10^")[1].split()[0]) < digits


def test_the_command(headcount_here: Cli):
    done = headcount_here("bounds", "--D", "4", "--heads", "3", "--head-dim", "8", "--length", "64,128", "--json")
    found = json.loads(done.stdout)["rows"]
    assert [row["k"] for row in found] == pytest.approx([58 / 28 - 1, 122 / 28 - 1])
    assert (found[0]["vacuous"], found[0]["printed"]["vacuous"]) == (False, True)
    assert (found[0]["bites_from_length"], found[0]["bites_below_head_dim"]) == (35, 18)
    task = headcount_here("bounds", "quadratic-basins", "--D", "2", "-T", "32", "--heads", "1", "--eps", "1e-6")
    assert task.returncode == 0
    assert "proved" in task.stdout
    for bad in (
        ["--D", "0"],
        ["--heads", "a", "--D", "3"],
        ["--D", "4", "--eps", "2"],
        ["mean"],
        [],
        ["--D", "3", "--share", "0.1"],
        ["--D", "3", "--share", "1/0"],
        ["--D", "3", "--share", "1e-999999999"],
        ["--D", "3", "--share", "-0.5"],
        ["quadratic-basins", "--share", "0.5"],
        ["--D", "3", "--variation", "0"],
        ["--D", "3", "--variation", "nan"],
        ["--D", "3", "--heads", "5:1"],
        ["--D", "3", "--heads", "1:9999", "--head-dim", "1:99"],
        ["--D", "3", "--heads", f"1:{10**10}"],
        ["--D", "9" * 400],
        ["--D", "3", "--head-dim", "9" * 400],
        ["--D", "3", "--length", "9" * 400],
        ["--D", "3", "--dim", "9" * 400],
    ):
        done = headcount_here("bounds", *bad)
        assert (done.returncode, len(done.stderr.strip().splitlines())) == (2, 1), (bad, done.stderr)


@pytest.mark.parametrize("sizes", [("--D", "3", "--dim", "40", "-T", "1000000"), ("quadratic-basins", "-T", "20000")])
def test_long_sequences_get_an_answer(sizes: tuple[str, ...], headcount_here: Cli):
    """C(T, T/4) has more digits than Python converts to text."""
    for how in ((), ("--json",)):
        done = headcount_here("bounds", *sizes, "--heads", "1", *how)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("scale", [1e300, 1e308])
def test_numbers_beyond_doubles_are_capped_at_the_largest(scale: float, headcount_here: Cli, tmp_path: Path):
    x, file = variable(2), tmp_path / "task.json"
    f = [((x - c) ** 2).sum() * scale for c in ([0.2, 0.3], [0.8, 0.7])]
    task = hc.GeneralizedRetrieval(f, None, variable(2).sum() * scale, length=8)
    file.write_text(json.dumps(task.data()), encoding="utf-8")
    done = headcount_here("bounds", str(file), "--heads", "1", "--eps", "1e-3", "--json")
    assert done.returncode == 0, done.stderr
    assert max(json.loads(done.stdout)["variations"]) == sys.float_info.max
    assert rounded_down(Fraction(10) ** 400) == sys.float_info.max
    assert rounded_down(Fraction(1, 3)) < Fraction(1, 3)


def test_sets_are_counted_without_being_built():
    """A rule is evaluated at lengths far beyond the task's; 10^12 positions would not fit into memory."""
    for kind in ("all", "bands", "halves", "random"):
        rule = family_rule("quadratic-basins", {"sets": kind, "share": 0.3})
        assert rule is not None
        for T in (*range(3, 60), 1000):
            task = hc.make_task("quadratic-basins", intrinsic=3, length=T, sets=kind, share=0.3)
            assert rule(T) == min(len(s) for s in task.S)
        assert 10**12 // 4 < rule(10**12) <= 10**12


BANDS = ("quadratic-basins", "--intrinsic", "2", "--set", "sets=bands", "--heads", "1", "--head-dim", "1")


def test_the_command_keeps_sets_with_all_positions_at_every_length(headcount_here: Cli):
    """29·(15/29) is 15.000000000000002 in floating point: 15 is meant, and other lengths have their own number."""
    done = headcount_here("bounds", *BANDS, "--set", "share=0.5", "--length", "29,21,64", "--eps", "1e-6", "--json")
    said = json.loads(done.stdout)
    table = said["rows"]
    assert [row["smallest_set"] for row in table] == [15, 11, 32]
    task = hc.make_task("quadratic-basins", intrinsic=2, length=29, sets="bands", share=0.5)
    found = segments(task)
    assert not isinstance(found, str)
    assert said["variations"] == [pytest.approx(float(s.variation)) for s in found]
    sizes = {"smallest_set": 15, "heads": 1, "head_dim": 1, "intrinsic": 2}
    v, best = found[0].variation, Fraction(0)
    for t in range(3, 14):
        most = math.floor(v / (3 * t * Fraction(1e-6)))
        larger = [v / (3 * t * q) for q in range(most - 20, most + 1)]  # ε' ≥ ε, where the number of points changes
        best = max(best, *(counting_width(eps, **sizes, variation=v, positions=t) for eps in larger))
    assert table[0]["width"] == pytest.approx(float(best), rel=1e-14)
    assert Fraction(table[0]["width"]) <= best
    assert (table[0]["positions_used"], table[0]["basin"]) == (13, 1)
    # on the paper's segment, from r/4 to r/2 and slope times length, half of the variation is left
    paper = float(counting_width(1e-6, **sizes, variation=found[0].variation / 2))
    assert paper == pytest.approx(7.1e12, rel=0.01)
    assert {row["bites_from_length"] for row in table} == {11}


def test_the_command_reads_a_fraction_exactly(headcount_here: Cli):
    """T = 25 and |S| = 7: 0.28·25 is 7.000000000000001 in floating point."""
    flags = ("--D", "2", "--heads", "1", "--head-dim", "1", "--length", "25", "--variation", "0.05", "--eps", "1e-6")
    for share in ("7/25", "0.28"):
        row = json.loads(headcount_here("bounds", *flags, "--share", share, "--json").stdout)["rows"][0]
        assert row["smallest_set"] == 7
        assert row["bites_from_length"] == 18
    shown = headcount_here("bounds", *flags, "--share", "7/25").stdout
    assert "7/25 of the positions" in shown
    assert "if the target varies by 0.05 on every segment" in shown  # proved on that condition alone
    assert headcount_here("bounds", "--D", "2", "--length", "8,25").returncode == 0  # neither a task nor ε


def test_a_task_file_gives_no_answer_for_other_lengths(headcount_here: Cli, tmp_path: Path):
    task = hc.make_task("quadratic-basins", intrinsic=3, length=12, sets="bands")
    file = tmp_path / "task.json"
    file.write_text(json.dumps(task.data()), encoding="utf-8")
    done = headcount_here("bounds", str(file), "--heads", "1:2", "--json")
    assert [row["bites_from_length"] for row in json.loads(done.stdout)["rows"]] == [None, None]
    assert "bites from T =" not in headcount_here("bounds", str(file), "--heads", "1:2").stdout
    named = headcount_here("bounds", "quadratic-basins", "--set", "sets=bands", "-T", "12", "--heads", "1:2").stdout
    assert "bites from T =" in named
