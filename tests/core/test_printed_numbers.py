"""Numbers that are printed as proved: never better than the proved ones."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from headcount import bounds, build, make_task, verify
from headcount.api.bounds_result import bounds_table
from headcount.api.proof_views import _density_error, built_facts, weights_sentence
from headcount.core.text import ceiling, exponent_text, floor, round_down, round_up
from headcount.render.bounds import budget_table
from headcount.render.irreducible import curve_table

SIZES = [float(v) for v in 10.0 ** np.random.default_rng(0).uniform(-12, 8, 400)] + [3e-308, 1.7e308, 0.1, 0.3, 1 / 3]


@pytest.mark.parametrize("digits", [2, 3, 4, 6])
def test_bounds_are_rounded_to_the_side_on_which_they_hold(digits: int) -> None:
    for value in SIZES:
        assert Fraction(round_down(value, digits)) <= Fraction(value) <= Fraction(round_up(value, digits))
        assert Fraction(floor(value, digits)) <= Fraction(value) <= Fraction(ceiling(value, digits))
        assert Fraction(round_up(-value, digits)) >= -Fraction(value) >= Fraction(round_down(-value, digits))


def test_exponents_are_rounded_downward_but_keep_the_digits_that_they_have() -> None:
    for below in range(1, 60):
        for over in range(1, 120):
            k, shown = Fraction(over, below), Fraction(exponent_text(over / below))
            assert k - Fraction(1, 100) < shown <= k
    assert [exponent_text(k) for k in (-0.643, 0.0, 2 / 3)] == ["-0.64", "0.00", "0.66"]


def test_no_row_of_bounds_states_a_larger_exponent_than_is_proved() -> None:
    found = bounds(intrinsic=3, heads=1, head_dim=1, length=8)
    (row,) = found.rows
    assert 0 < row.sharp.k < 0.67
    assert row.verdict == "M = Ω(1/ε^0.66)"
    (cells,) = bounds_table(found.rows, None).rows
    assert "0.66" in cells
    assert "0.67" not in cells


def test_an_error_budget_never_understates_a_step_nor_overstates_what_is_left() -> None:
    shares, eps = {"encoder": 0.0448123, "leakage": 0.00498321, "feedforward": 1 / 3e4}, 0.05
    *steps, left = (Fraction(row[1]) for row in budget_table(shares, eps, 0).rows)
    assert all(shown >= Fraction(value) for shown, value in zip(steps, shares.values(), strict=True))
    assert left <= Fraction(eps) - sum(Fraction(value) for value in shares.values())


def test_the_errors_of_theorem_1_are_rounded_upward_where_they_are_proved() -> None:
    for value in [*SIZES, np.nextafter(0.00123, 1), np.nextafter(0.5, 1)]:
        if 1e-300 < value < 1e6:
            assert Fraction(_density_error(float(value), up=True)) >= Fraction(float(value))
    assert _density_error(float(np.nextafter(0.5, 1)), up=True) == "0.50001"


def test_the_claim_of_a_certificate_and_large_weights_are_not_understated(tmp_path: Path) -> None:
    built = build(make_task("min-plus-max", length=8), 0.01)
    built.save(tmp_path)
    claimed = Fraction(built.budget.bound)
    text = "".join(verify(tmp_path).words())
    assert Fraction(text.split("it claims ")[1].split()[0]) >= claimed
    facts = built_facts(built)
    assert facts["largest_weights"]["feedforward"] > 1
    assert "F 1.00001 (Assumption 1.3, at most 1: not kept" in weights_sentence(facts)


def test_a_false_claim_is_answered_by_the_proved_number_not_a_smaller_one(tmp_path: Path) -> None:
    build(make_task("min-plus-max", length=8), 0.01).save(tmp_path)
    path = tmp_path / "certificate.json"
    certificate = json.loads(path.read_text())
    true = verify(tmp_path).proved.computed
    path.write_text(json.dumps({**certificate, "bound": certificate["bound"] * (1 - 1e-6)}))
    reason = verify(tmp_path).reason
    assert Fraction(reason.split("at most ")[1].split()[0]) >= Fraction(true)
    path.write_text(json.dumps({**certificate, "eps": certificate["bound"] * (1 - 1e-9)}))
    claimed, eps = re.findall(r"0\.\d+", verify(tmp_path).reason)
    assert Fraction(claimed) > Fraction(eps)


def test_proved_gaps_of_the_curve_are_rounded_downward() -> None:
    effort = {"converged": 4, "starts": 8, "equal": True}
    gaps = {kind: [1.996, 2.996, 3.996] for kind in ("typical", "all", "proved", "random")}
    row = {"intrinsic": 2, "length": 4, "head_dim": 2, "heads": 1, "nmse_measured": None, **gaps}
    cells = curve_table([{**row, "effort": dict.fromkeys(gaps, effort)}]).rows[0]
    assert cells[-2] == "2.99 (1.99–3.99)\n[4 of 8]"  # of these proved
    assert cells[-3] == "3.00 (2.00–4.00)\n[4 of 8]"  # measured
