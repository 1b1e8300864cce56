"""The study of the advisor on tasks that nobody picked, from the rows that were kept; and its script."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from benchmarks import advisor_study
from headcount.core.readers.reading import read_json
from results import RESULTS


@pytest.fixture(scope="module")
def study() -> ModuleType:
    return advisor_study


@pytest.fixture(scope="module", params=["advisor-study", "advisor-study-cuda"])
def kept(request: pytest.FixtureRequest) -> dict[str, Any]:
    return read_json(RESULTS / f"{request.param}.json")


def first(kept: dict[str, Any]) -> int:
    """The number of a study's first task: on a GPU it has others."""
    return 280 if kept["name"].endswith("cuda") else 300


def again(row: dict[str, Any]) -> tuple[bool, bool]:
    """Judge a task anew: is the count D or D + 1, does the interval cover D?"""
    D = row["intrinsic"]
    return D <= row["recommended"] <= D + 1, row["low"] <= D <= row["high"]


def test_the_advice_is_right_on_tasks_that_nobody_tuned_for(study: ModuleType, kept: dict[str, Any]) -> None:
    rows = {kind: [r for r in kept["rows"] if r["name"].startswith(kind)] for kind in ("task", "control", "noise")}
    assert [row["name"] for row in rows["task"]] == [f"task-{first(kept) + n}" for n in range(20)]
    assert {row["intrinsic"] for row in rows["task"]} == {1, 2, 3, 4, 5, 6}
    judged = [again(row) for row in rows["task"]]
    assert all(right and covered for right, covered in judged)
    assert len(rows["control"]) == 10
    one_head = [row["recommended"] == 1 and row["no_transition"] for row in rows["control"]]
    assert sum(one_head) >= 9
    assert all(row["verdict"] == "noise" for row in rows["noise"])
    settled = [
        (row["recommended"], row["intrinsic"] or 1) for row in (*rows["task"], *rows["control"]) if row["settled"]
    ]
    assert len(settled) >= 20
    assert sum(answer == truth for answer, truth in settled) >= 0.95 * len(settled)
    assert kept["counts"]["settled_right"] == sum(answer == truth for answer, truth in settled)
    assert kept["counts"] == study.summary(kept["rows"])
    counted = [kept["counts"]["tasks_right"], kept["counts"]["tasks_covered"]]
    assert counted == [sum(right for right, _ in judged), sum(covered for _, covered in judged)]
    assert all(row["seconds"] <= kept["budget"] for row in kept["rows"])


def test_the_study_has_what_makes_tasks_hard(kept: dict[str, Any]) -> None:
    about = [row["about"] for row in kept["rows"] if row["name"].startswith("task")]
    assert {one["family"] for one in about} == {"sum-of-maxima", "quadratic-basins", "sphere-anchors"}
    assert {bool(one["classes"]) for one in about} == {True, False}
    assert max(one["noise"] for one in about) > 0.08
    assert any(one["distractors"] for one in about)
    assert len({one["sets"] for one in about}) > 2
    assert len({one.get("outer") for one in about}) > 3


@pytest.mark.parametrize("number", [0, 9, 19])
def test_a_row_is_of_the_task_that_its_number_draws(study: ModuleType, kept: dict[str, Any], number: int) -> None:
    drawn = study.study_task(first(kept) + number)
    row = next(row for row in kept["rows"] if row["name"] == drawn.name)
    assert (row["intrinsic"], row["about"]) == (drawn.intrinsic, drawn.about)
    other = study.study_task(first(kept) + number + 1)
    assert row["about"] != other.about


def test_wrong_advice_is_counted_as_wrong(study: ModuleType, kept: dict[str, Any]) -> None:
    rows = [dict(row) for row in kept["rows"]]
    task = next(row for row in rows if row["intrinsic"] == 3)
    task |= {"recommended": 5, "right": False}
    assert again(task)[0] is False
    task["settled"] = True
    assert study.summary(rows)["tasks_right"] == kept["counts"]["tasks_right"] - 1
    assert study.summary(rows)["settled_right"] < study.summary(rows)["settled"]
    assert again({**task, "low": 4})[1] is False


@pytest.mark.parametrize(("device", "most"), [("cpu", 165), ("cuda", 22.5)])
def test_how_long_advice_takes(device: str, most: float) -> None:
    about = read_json(RESULTS / f"advisor-speed-{device}.json")
    assert about["samples"] == 10_000
    assert (about["task"]["intrinsic"], about["task"]["length"]) == (4, 32)
    assert all(row["recommended_heads"] == 4 for row in about["rows"])
    assert len(about["rows"]) >= 2
    assert max(row["wall"] for row in about["rows"]) < most
