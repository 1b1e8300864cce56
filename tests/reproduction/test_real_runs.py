"""What was trained on real data, from the rows that were kept; and the scripts that keep it."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from kept import RESULTS

from benchmarks import precision_study, real_runs
from headcount.core.readers.reading import read_json

NAMES = sorted(path.stem for path in RESULTS.glob("real-*.csv"))


@pytest.mark.parametrize("name", NAMES)
def test_what_documents_quote_is_in_the_rows(name: str) -> None:
    about = read_json(RESULTS / f"{name}.json")
    with (RESULTS / f"{name}.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["state"] == "done"]
    assert len(rows) == about["counts"]["done"]
    assert len({row["steps"] for row in rows}) == 1
    for part, column in (("train", "train_accuracy"), ("validation", "accuracy")):
        for length, cells in about["accuracies"][part].items():
            for heads, cell in cells.items():
                own = [float(r[column]) for r in rows if (f"T{r['length']}", f"h{r['heads']}") == (length, heads)]
                assert len(own) == cell["seeds"]
                assert cell["mean"] == pytest.approx(np.mean(own), abs=2e-5)
                assert cell.get("deviation", 0) == pytest.approx(np.std(own, ddof=1), abs=2e-5)


@pytest.mark.parametrize(("kind", "cells"), [("marco", 36), ("cifar", 60)])
def test_the_grid_is_whole_and_took_less_than_25_minutes(kind: str, cells: int) -> None:
    about = read_json(RESULTS / f"real-{kind}.json")
    found = [cell for row in about["accuracies"]["train"].values() for cell in row.values()]
    assert [cell["seeds"] for cell in found] == [about["spec"]["seeds"]] * cells
    assert about["spec"]["seeds"] >= 3
    assert about["seconds"] < 25 * 60
    assert all(piece["seconds"] < 9 * 60 for piece in about["pieces"])
    assert sum(piece["trials"] for piece in about["pieces"]) == about["counts"]["done"]


@pytest.mark.parametrize(("kind", "beyond"), [("marco", 0), ("cifar", 1)])
def test_bf16_keeps_the_accuracy(kind: str, beyond: int) -> None:
    """No comparison differs beyond chance; so many means lie further apart than the deviation over seeds."""
    about = read_json(RESULTS / f"precision-{kind}.json")
    again = precision_study.compare(about["rows"])
    assert [(row["p"], row["differs"]) for row in again] == [(row["p"], False) for row in about["cells"]]
    apart = [row["mean_bf16"] - row["mean_float32"] for row in again]
    assert min(apart) < 0 < max(apart)  # now one is better, now the other
    spread = [max(row["spread_float32"], row["spread_bf16"]) for row in again]
    far = [abs(gap) > s for gap, s in zip(apart, spread, strict=True)]
    assert sum(far) == beyond


def test_many_passes_are_learned_by_heart() -> None:
    found = read_json(RESULTS / "real-marco-long.json")["accuracies"]
    cells = [(part, cell) for part, of in found.items() for row in of.values() for cell in row.values()]
    assert min(cell["mean"] for part, cell in cells if part == "train") > 0.999
    assert max(cell["mean"] for part, cell in cells if part == "validation") < 0.3


def test_unfinished_runs_are_kept_by_name_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from headcount.reproduction.plan import plan_of
    from headcount.store.store import Store
    from headcount.sweeps.open_data import open_cifar
    from headcount.sweeps.run import run_on_store
    from real_tiny import write_pictures

    plan = plan_of("cifar", "smoke")
    source = open_cifar(write_pictures(tmp_path / "images"), train=60, validation=30, patch=16)
    spec = plan.on_data(source.data).model_copy(update={"name": "cifar-paper"})
    with Store.open(tmp_path / "store") as store:
        run_on_store(spec, store, feeds=source.feeds("cpu"), quiet=True, seconds=0.0)
    assert real_runs.main([str(tmp_path / "store"), "--folder", str(tmp_path)]) == 0
    assert "not finished" in capsys.readouterr().out
    assert not list(tmp_path.glob("real-*"))
    with Store.open(tmp_path / "store") as store:
        run_on_store(spec, store, feeds=source.feeds("cpu"), quiet=True)
    assert real_runs.main([str(tmp_path / "store"), "--folder", str(tmp_path)]) == 0
    about = read_json(tmp_path / "real-cifar.json")
    assert about["counts"] == {"done": 4, "left": 0}
    (piece,) = about["pieces"]
    assert piece["trials"] == 4
    assert 0 < piece["seconds"] == about["seconds"] < 600
    assert about["findings"]


def test_the_precision_study_sees_a_difference_and_only_that() -> None:
    rng = np.random.default_rng(0)
    seeds = [(seed, float(rng.normal(0.7, 0.01))) for seed in range(6)]

    def rows(shift: float) -> list[dict[str, float]]:
        return [
            {
                "length": 8,
                "heads": 1,
                "seed": seed,
                "accuracy": value + shift + float(rng.normal(0, 0.002)),
                "train_accuracy": value,
            }
            for seed, value in seeds
        ]

    same = precision_study.compare({"float32": rows(0.0), "bf16": rows(0.0)})
    assert [row["differs"] for row in same] == [False, False]
    worse = precision_study.compare({"float32": rows(0.0), "bf16": rows(-0.02)})
    assert [row["differs"] for row in worse] == [True, False]


def test_the_precision_study_reads_kept_trials_by_cell() -> None:
    rows = precision_study.kept_rows(RESULTS / "real-cifar.csv", {"heads": [2], "lengths": [32, 64]}, {32: 65, 64: 257})
    assert [(row["length"], row["heads"], row["seed"]) for row in rows] == [
        (65, 2, 0), (65, 2, 1), (65, 2, 2), (257, 2, 0), (257, 2, 1), (257, 2, 2),
    ]  # fmt: skip
    mean = np.mean([row["accuracy"] for row in rows[:3]])
    about = read_json(RESULTS / "real-cifar.json")["accuracies"]["validation"]["T65"]["h2"]
    assert mean == pytest.approx(about["mean"], abs=2e-5)
