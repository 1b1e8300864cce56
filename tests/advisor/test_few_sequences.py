"""The study of advice on few sequences, from the rows that were kept; and its script."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

from benchmarks import few_sequences_study
from headcount.core.readers.reading import read_json
from results import RESULTS

FILES = ("few-sequences", "few-sequences-synthetic")


@pytest.fixture(scope="module")
def study() -> ModuleType:
    return few_sequences_study


@pytest.fixture(scope="module", params=FILES)
def kept(request: pytest.FixtureRequest) -> dict[str, Any]:
    return read_json(RESULTS / f"{request.param}.json")


def inside(row: dict[str, Any]) -> bool:
    return row["low"] <= row["truth"] and (row["high"] is None or row["truth"] <= row["high"])


def test_intervals_cover_and_settled_answers_are_right(study: ModuleType, kept: dict[str, Any]) -> None:
    known = [row for row in kept["rows"] if row["draw"] >= 0 and row["truth"] is not None]
    settled = [row for row in known if row["settled"]]
    assert sum(map(inside, known)) >= 0.9 * len(known)
    assert sum(row["answer"] == row["truth"] for row in settled) >= 0.95 * len(settled)
    assert all(row["low"] == row["answer"] == row["high"] for row in settled)
    counts = study.summary(kept["rows"])
    assert kept["counts"] == {**counts, "failed": 0}
    assert counts["covered"] == sum(map(inside, known))
    assert kept["wilson"] == study.wilson_intervals(counts)


def test_a_wrong_row_is_counted_as_wrong(study: ModuleType, kept: dict[str, Any]) -> None:
    rows = [dict(row) for row in kept["rows"]]
    row = next(row for row in rows if row["draw"] >= 0 and row["covered"])
    row["low"] = row["truth"] + 1
    before, after = kept["counts"]["covered"], study.summary(study.with_truth(rows))["covered"]
    assert after == before - 1


def test_where_the_truth_is_not_settled_there_is_nothing_to_compare_with(study: ModuleType) -> None:
    rows = read_json(RESULTS / "few-sequences.json")["rows"]
    truths = {(row["name"], row["size"]): row for row in rows if row["draw"] < 0}
    assert len(truths) == len(study.NAMES) * len(study.SIZES)
    for row in rows:
        if row["draw"] >= 0:
            truth = truths[row["name"], row["size"]]
            assert row["truth"] == (truth["answer"] if truth["settled"] else None)


def test_the_synthetic_tasks_are_those_that_were_announced(study: ModuleType) -> None:
    rows = read_json(RESULTS / "few-sequences-synthetic.json")["rows"]
    assert len(rows) == 64
    cases = {(row["intrinsic"], row["size"], row["draw"]) for row in rows}
    assert cases == {(D, n, k) for D in (2, 3) for n in study.SYNTHETIC_SIZES for k in range(10, 18)}
    assert all(row["truth"] == row["intrinsic"] for row in rows)


@pytest.mark.parametrize(
    ("hits", "count", "low", "high"), [(0, 0, 0.0, 1.0), (10, 10, 0.722, 1.0), (1, 4, 0.046, 0.699)]
)
def test_wilsons_interval(study: ModuleType, hits: int, count: int, low: float, high: float) -> None:
    assert study.wilson(hits, count) == [low, high]


def test_draws_are_subsets_without_repetition(study: ModuleType) -> None:
    some, other = (study.drawn_rows("italy", 500, 100, draw) for draw in (0, 1))
    assert len(set(some.tolist())) == 100
    assert set(some.tolist()) != set(other.tolist())
    assert np.array_equal(some, study.drawn_rows("italy", 500, 100, 0))
