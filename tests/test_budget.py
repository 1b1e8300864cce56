"""The pictures of the constructions: drawn from data that say what the theory says, the same every time."""

from __future__ import annotations

import numpy as np
import pytest

from headcount import build, make_task
from headcount.render.bounds import budget_table, save_errors
from headcount.render.error_budget import budget_png
from headcount.theory.bounds.enough_heads import budget_figure, count_figure, uppers


@pytest.fixture(scope="module")
def built():
    return build(make_task("quadratic-basins", intrinsic=2, length=8, sets="halves", outer="square"), 0.1)


def test_the_budget_adds_up_to_the_bound(built) -> None:
    figure = budget_figure(built.task, built)
    for panel in figure["panels"]:
        near = int(np.argmin(np.abs(np.log(np.array(panel["x"]) / panel["chosen"]))))
        total = sum(part[near] for part in panel["parts"].values())
        assert total == pytest.approx(built.budget.bound, rel=0.1)
        assert set(panel["parts"]) == {"encoder", "leakage", "feedforward"}
    leak, psi = figure["panels"][0]["parts"]["leakage"], figure["panels"][1]["parts"]["encoder"]
    assert leak == sorted(leak, reverse=True)  # a larger β leaks less
    assert psi == sorted(psi, reverse=True)  # more units err less
    assert sum(built.budget.shares.values()) == pytest.approx(built.budget.bound)
    table, narrow = budget_table(built.budget.shares, 0.1, 80), budget_table(built.budget.shares, 0.1, 40)
    assert len(table.rows) == 4
    assert float(table.rows[0][2].split()[0]) < 100
    assert [row[:3] for row in table.rows] == narrow.rows  # a narrow terminal has no bars
    assert max(len(row[3]) for row in table.rows) <= 80 - 46


def test_the_picture_is_the_same_every_time(built) -> None:
    figure = budget_figure(built.task, built)
    first, second = budget_png(figure), budget_png(figure)
    assert first == second
    assert first.startswith(b"\x89PNG")
    assert len(first) > 20_000


def test_counts_against_eps(tmp_path) -> None:
    task = make_task("quadratic-basins", intrinsic=2, dim=1, length=4)
    found, missing = uppers(task, 0.05)
    assert [u.theorem for u in found] == ["2 (1)", "2 (3)"]
    assert not missing
    assert all(u.bound <= 0.05 and u.nonzero <= u.parameters <= u.parameters_total for u in found)
    figure = count_figure(task, [0.2, 0.1, 0.05])
    slopes = [np.polyfit(np.log(s["x"]), np.log(s["y"]), 1)[0] for s in figure["series"] if s["style"] == "dashes"]
    assert slopes == pytest.approx([-0.5, -1.5])
    save_errors(figure, tmp_path / "counts.png")
    assert (tmp_path / "counts.png").stat().st_size > 20_000
    assert uppers(make_task("sum-of-maxima"), 0.1)[0] == []
    assert len(uppers(make_task("sum-of-maxima"), 0.1)[1]) == 2
